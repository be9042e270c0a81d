/* SPDX-License-Identifier: BSD-2-Clause */
/* Assembles call frame sections byte by byte, for tests. */
#pragma once

#include "unwind/cfi.h"

#include <assert.h>
#include <string.h>

#define BUILDER_MAX 1024u

struct builder {
	uint8_t bytes[BUILDER_MAX];
	size_t size;
	uint64_t address; /* at which the section is said to lie */
};

/* How the CIE is to be; zero means the usual. */
struct cie_shape {
	uint8_t version;	    /* 0: 1 */
	const char *augmentation;   /* NULL: "zR" */
	uint8_t encoding;	    /* of pointers, for 'R' */
	uint8_t code_align;	    /* 0: 1 */
	uint8_t return_register;    /* 0: 16 */
	bool is_debug_frame, is_64; /* .debug_frame; 64-bit lengths */
	bool is_bare;		    /* without initial instructions */
};

static inline void put(struct builder *builder, uint64_t value, unsigned size)
{
	assert(builder->size + size <= BUILDER_MAX);
	for (unsigned i = 0; i < size; i++)
		builder->bytes[builder->size++] = (uint8_t)(value >> (8 * i));
}

static inline void put_bytes(struct builder *builder, const void *bytes, size_t size)
{
	assert(builder->size + size <= BUILDER_MAX);
	if (size)
		memcpy(builder->bytes + builder->size, bytes, size);
	builder->size += size;
}

static inline void put_uleb(struct builder *builder, uint64_t value)
{
	do {
		uint8_t more = value > 0x7f ? 0x80 : 0;
		put(builder, (value & 0x7f) | more, 1);
		value >>= 7;
	} while (value);
}

static inline void put_sleb(struct builder *builder, int64_t value)
{
	for (;;) {
		uint8_t byte = value & 0x7f;
		value >>= 7;
		bool is_last = (value == 0 && !(byte & 0x40)) || (value == -1 && (byte & 0x40));
		put(builder, byte | (is_last ? 0u : 0x80u), 1);
		if (is_last)
			return;
	}
}

/* Begins a record; returns what end_record needs to fill the length in. */
static inline size_t begin_record(struct builder *builder, bool is_64)
{
	if (is_64)
		put(builder, UINT32_MAX, 4);
	put(builder, 0, is_64 ? 8 : 4);
	return builder->size;
}

static inline void end_record(struct builder *builder, size_t body, bool is_64)
{
	unsigned width = is_64 ? 8 : 4;
	uint64_t length = builder->size - body;

	for (unsigned i = 0; i < width; i++)
		builder->bytes[body - width + i] = (uint8_t)(length >> (8 * i));
}

/* The data of one augmentation letter. */
static inline void put_augmentation(struct builder *builder, char letter, uint8_t encoding)
{
	if (letter == 'R' || letter == 'L')
		put(builder, encoding, 1);
	if (letter == 'P') {
		put(builder, 0x9b, 1); /* indirect, pcrel, sdata4 */
		put(builder, 0x1234, 4);
	}
}

/* Data alignment -8, initially CFA = rsp + 8 and the return address at CFA - 8. Returns its offset.
 */
static inline size_t put_cie(struct builder *builder, const struct cie_shape *shape)
{
	static const uint8_t initial[] = {0x0c, 7, 8, 0x90, 1};
	const char *letters = shape->augmentation ? shape->augmentation : "zR";
	unsigned version = shape->version ? shape->version : 1;
	size_t start = builder->size;
	size_t body = begin_record(builder, shape->is_64);

	if (shape->is_debug_frame)
		put(builder, UINT64_MAX, shape->is_64 ? 8 : 4);
	else
		put(builder, 0, 4);
	put(builder, version, 1);
	put_bytes(builder, letters, strlen(letters) + 1);
	if (version >= 4)
		put(builder, 8, 2); /* size of addresses, none of segments */
	put_uleb(builder, shape->code_align ? shape->code_align : 1);
	put_sleb(builder, -8);
	put(builder, shape->return_register ? shape->return_register : 16, 1);
	if (letters[0] == 'z') {
		size_t length_at = builder->size;
		put(builder, 0, 1);
		for (const char *letter = letters + 1; *letter; letter++)
			put_augmentation(builder, *letter, shape->encoding);
		builder->bytes[length_at] = (uint8_t)(builder->size - length_at - 1);
	}
	if (!shape->is_bare)
		put_bytes(builder, initial, sizeof(initial));
	end_record(builder, body, shape->is_64);
	return start;
}

/* A number in a pointer encoding, at the place where it comes to stand. */
static inline void put_pointer(struct builder *builder, uint8_t encoding, uint64_t value)
{
	static const unsigned sizes[16] = {
		[0] = 8, [2] = 2, [3] = 4, [4] = 8, [0xa] = 2, [0xb] = 4, [0xc] = 8};

	if ((encoding & 0x70) == 0x10)
		value -= builder->address + builder->size;
	if ((encoding & 0x0f) == 1)
		put_uleb(builder, value);
	else if ((encoding & 0x0f) == 9)
		put_sleb(builder, (int64_t)value);
	else
		put(builder, value, sizes[encoding & 0x0f]);
}

static inline void put_fde(struct builder *builder, size_t cie, const struct cie_shape *shape,
			   uint64_t begin, uint64_t size, const uint8_t *program,
			   size_t program_size)
{
	size_t body = begin_record(builder, shape->is_64);

	if (shape->is_debug_frame)
		put(builder, cie, shape->is_64 ? 8 : 4);
	else
		put(builder, builder->size - cie, 4);
	put_pointer(builder, shape->encoding, begin);
	put_pointer(builder, shape->encoding & 0x0f, size);
	if (!shape->is_debug_frame && (!shape->augmentation || shape->augmentation[0] == 'z'))
		put(builder, 0, 1);
	put_bytes(builder, program, program_size);
	end_record(builder, body, shape->is_64);
}

static inline struct hl_cfi_section section_of(const struct builder *builder, bool is_debug_frame)
{
	return (struct hl_cfi_section){
		.bytes = builder->bytes,
		.size = builder->size,
		.address = builder->address,
		.is_debug_frame = is_debug_frame,
	};
}
