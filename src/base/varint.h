/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers in as few bytes as they need: LEB128, seven bits a byte, and zigzag for signed ones. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HL_VARINT_MAX 10u /* bytes of the longest number */

/* Writes ${number} to ${bytes}, which has room for HL_VARINT_MAX; returns how many it took. */
static inline size_t hl_varint_put(uint8_t *bytes, uint64_t number)
{
	size_t count = 0;

	for (; number >= 0x80; number >>= 7)
		bytes[count++] = (uint8_t)(number | 0x80);
	bytes[count++] = (uint8_t)number;
	return count;
}

/* Reads from *${at}, which it moves on; false at ${end}, or where no number of 64 bits stands. */
static inline bool hl_varint_get(const uint8_t **at, const uint8_t *end, uint64_t *ret_number)
{
	uint64_t number = 0;
	const uint8_t *byte = *at;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		if (byte == end)
			return false;
		number |= (uint64_t)(*byte & 0x7f) << shift;
		if (*byte++ < 0x80) {
			if (shift == 63 && byte[-1] > 1)
				return false;
			*at = byte;
			*ret_number = number;
			return true;
		}
	}
	return false;
}

static inline uint64_t hl_zigzag(int64_t number)
{
	return (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
}

static inline int64_t hl_unzigzag(uint64_t number)
{
	return (int64_t)(number >> 1 ^ (0 - (number & 1)));
}
