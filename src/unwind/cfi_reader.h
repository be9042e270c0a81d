/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads numbers of DWARF encodings out of bytes that are not trusted. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reading past the end gives zero and sets ${failed}, once and for good, so that a caller may read
 * a whole record and ask afterwards. */
struct hl_cfi_reader {
	const uint8_t *at, *end;
	bool failed;
};

static inline size_t hl_cfi_left(const struct hl_cfi_reader *reader)
{
	return (size_t)(reader->end - reader->at);
}

static inline void hl_cfi_skip(struct hl_cfi_reader *reader, uint64_t bytes)
{
	if (bytes > hl_cfi_left(reader)) {
		reader->failed = true;
		bytes = hl_cfi_left(reader);
	}
	reader->at += bytes;
}

/* Little-endian, ${size} 1 to 8 bytes. */
static inline uint64_t hl_cfi_read_unsigned(struct hl_cfi_reader *reader, unsigned size)
{
	if (hl_cfi_left(reader) < size) {
		reader->failed = true;
		reader->at = reader->end;
		return 0;
	}
	uint64_t value = 0;
	for (unsigned i = 0; i < size; i++)
		value |= (uint64_t)reader->at[i] << (8 * i);
	reader->at += size;
	return value;
}

static inline int64_t hl_cfi_read_signed(struct hl_cfi_reader *reader, unsigned size)
{
	unsigned unused = 64 - 8 * size;
	return (int64_t)(hl_cfi_read_unsigned(reader, size) << unused) >> unused;
}

static inline uint8_t hl_cfi_read_byte(struct hl_cfi_reader *reader)
{
	return (uint8_t)hl_cfi_read_unsigned(reader, 1);
}

/* ULEB128; bits beyond 64 are dropped. */
static inline uint64_t hl_cfi_read_uleb(struct hl_cfi_reader *reader)
{
	uint64_t value = 0;
	uint8_t byte;
	unsigned shift = 0;
	do {
		byte = hl_cfi_read_byte(reader);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	return value;
}

/* SLEB128; bits beyond 64 are dropped. */
static inline int64_t hl_cfi_read_sleb(struct hl_cfi_reader *reader)
{
	uint64_t value = 0;
	uint8_t byte;
	unsigned shift = 0;
	do {
		byte = hl_cfi_read_byte(reader);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	if (shift < 64 && (byte & 0x40))
		value |= ~UINT64_C(0) << shift;
	return (int64_t)value;
}
