/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fingerprints of ELF files without a build id: which version of a file it was.
 *
 * Freestanding: the recorder takes them inside the target, right after a module was loaded; views
 * take them again of what lies at the path when they read the recording.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zero where a build id does instead, and in recordings of versions that took none. */
struct hl_file_print {
	uint64_t bytes, mtime_ns;
	uint64_t hash; /* of the ELF, program and section headers and the ends of the symbol table;
			  below 2^63 */
};

/* The file could not be read when the module was met, or was another one by then. */
#define HL_FILE_PRINT_UNKNOWN UINT64_C(1)

static inline bool hl_file_print_is_known(const struct hl_file_print *print)
{
	return print->hash > HL_FILE_PRINT_UNKNOWN;
}

/* As pread(2), but gives a negative errno. */
typedef long hl_read_at_fn(int fd, void *buffer, size_t bytes, uint64_t offset);

/* The hash of an open file; 0 when it is no 64-bit ELF file or cannot be read. Some 10 us. */
uint64_t hl_file_print_hash(int fd, hl_read_at_fn *read_at);

static inline bool hl_file_print_is_same(const struct hl_file_print *a,
					 const struct hl_file_print *b)
{
	return a->hash == b->hash && a->bytes == b->bytes && a->mtime_ns == b->mtime_ns;
}
