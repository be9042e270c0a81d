/* SPDX-License-Identifier: BSD-2-Clause */
/* Which version of an ELF file it was: by its build id or, where it has none, by a fingerprint. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Build ids are kept as they are up to HL_BUILD_ID_MAX bytes; of a longer one, the first
 * HL_BUILD_ID_HEAD bytes and a hash of the whole. Nearly all have 20 bytes, but a linker takes any
 * number. Both sides of a comparison are kept this way.
 */
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

/*
 * A fingerprint. The recorder takes it inside the target, right after a module was loaded; views
 * compare it with the file that lies at the path when they read the recording. All zero where there
 * is a build id, and in recordings of versions that took none.
 */
struct hl_file_print {
	uint64_t bytes, mtime_ns;
	uint64_t hash; /* of the ELF, program and section headers and the ends of the symbol table;
			  below 2^63 */
};

/* The file could not be read when the module was first seen, or was another one by then. */
#define HL_FILE_PRINT_UNKNOWN UINT64_C(1)

static inline bool hl_file_print_is_known(const struct hl_file_print *print)
{
	return print->hash > HL_FILE_PRINT_UNKNOWN;
}

/* Like pread(2), but returns a negative errno. */
typedef long hl_read_at_fn(int fd, void *buffer, size_t bytes, uint64_t offset);

/* The hash of an open file; 0 when it is not a 64-bit ELF file or cannot be read. About 10 us. */
uint64_t hl_file_print_hash(int fd, hl_read_at_fn *read_at);

static inline bool hl_file_print_is_same(const struct hl_file_print *a,
					 const struct hl_file_print *b)
{
	return a->hash == b->hash && a->bytes == b->bytes && a->mtime_ns == b->mtime_ns;
}
