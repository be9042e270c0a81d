/* SPDX-License-Identifier: BSD-2-Clause */
/* Buffers that fields are appended to, and readers that take fields out of bytes. */
#pragma once

#include "base/encode.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialize. A failed allocation is remembered, and nothing is added from then on. */
struct hl_byte_buffer {
	uint8_t *bytes;
	size_t size, capacity;
	bool failed;
};

/* Room for ${more} bytes after the last; NULL when there is none. */
uint8_t *hl_byte_buffer_reserve(struct hl_byte_buffer *buffer, size_t more);

void hl_byte_buffer_put(struct hl_byte_buffer *buffer, const void *bytes, size_t size);
void hl_byte_buffer_release(struct hl_byte_buffer *buffer);

/* Forgets the content and the failure, and keeps the memory. */
static inline void hl_byte_buffer_clear(struct hl_byte_buffer *buffer)
{
	buffer->size = 0;
	buffer->failed = false;
}

static inline void hl_byte_buffer_number(struct hl_byte_buffer *buffer, uint64_t number)
{
	uint8_t *bytes = hl_byte_buffer_reserve(buffer, HL_VARINT_MAX);

	if (bytes)
		buffer->size += hl_varint_put(bytes, number);
}

static inline void hl_byte_buffer_signed(struct hl_byte_buffer *buffer, int64_t number)
{
	hl_byte_buffer_number(buffer, hl_zigzag(number));
}

/* The first field that is missing sets `failed`; it and all later ones are 0. */
struct hl_byte_reader {
	const uint8_t *at, *end;
	bool failed;
};

static inline uint64_t hl_byte_reader_number(struct hl_byte_reader *reader)
{
	uint64_t number = 0;

	if (!reader->failed && !hl_varint_get(&reader->at, reader->end, &number))
		reader->failed = true;
	return reader->failed ? 0 : number;
}

static inline int64_t hl_byte_reader_signed(struct hl_byte_reader *reader)
{
	return hl_unzigzag(hl_byte_reader_number(reader));
}

/* ${size} bytes as they stand, or NULL. */
static inline const uint8_t *hl_byte_reader_bytes(struct hl_byte_reader *reader, uint64_t size)
{
	const uint8_t *bytes = reader->at;

	if (reader->failed || size > (uint64_t)(reader->end - reader->at)) {
		reader->failed = true;
		return NULL;
	}
	reader->at += size;
	return bytes;
}
