/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Build ids as heapline keeps them: up to HL_BUILD_ID_MAX bytes as they are; of a longer one the
 * first HL_BUILD_ID_HEAD bytes and a hash of the whole. Nearly all have 20 bytes, but a linker
 * takes any number. Both sides of a comparison are kept this way.
 */
#pragma once

#include <stdint.h>
#include <string.h>

#define HL_BUILD_ID_MAX	 32u
#define HL_BUILD_ID_HEAD 24u
/* Shorter ones are made up by hand, and other files have them too. */
#define HL_BUILD_ID_UNIQUE 8u

#define HL_FNV_START UINT64_C(0xcbf29ce484222325)

/* FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/ */
static inline uint64_t hl_fnv(uint64_t hash, const void *bytes, uint64_t size)
{
	const uint8_t *at = (const uint8_t *)bytes;
	for (uint64_t i = 0; i < size; i++)
		hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
	return hash;
}

/* Writes the id of ${size} bytes as it is kept; returns how many bytes those are. */
static inline uint32_t hl_build_id_keep(uint8_t ret_kept[HL_BUILD_ID_MAX], const void *bytes,
					uint64_t size)
{
	if (size <= HL_BUILD_ID_MAX) {
		memcpy(ret_kept, bytes, size);
		return (uint32_t)size;
	}
	uint64_t hash = hl_fnv(HL_FNV_START, bytes, size);
	memcpy(ret_kept, bytes, HL_BUILD_ID_HEAD);
	memcpy(ret_kept + HL_BUILD_ID_HEAD, &hash, sizeof(hash));
	return HL_BUILD_ID_MAX;
}
