/* SPDX-License-Identifier: BSD-2-Clause */
/* What the file of a libc, or of a static program, says of its allocator. Files are not trusted. */
#pragma once

#include "heap/glibc_layout.h"

#include <stddef.h>
#include <stdint.h>

/* A file in memory. */
struct hl_glibc_file {
	const uint8_t *bytes;
	size_t length;
};

/* Maps ${fd}, which may be closed then. 0 or a negative errno. */
int hl_glibc_file_map(int fd, struct hl_glibc_file *ret_file);
void hl_glibc_file_release(struct hl_glibc_file *file);

/* x of the version 2.x that the file says it is; 0 when it says none. */
uint32_t hl_glibc_file_minor(const struct hl_glibc_file *file);

/* The virtual address that the file has for what it stores at ${offset}; UINT64_MAX for none. */
uint64_t hl_glibc_file_address(const struct hl_glibc_file *file, uint64_t offset);

/* Where main_arena and mp_ lie by their initial values, as virtual addresses of the file; 0 each
 * when no place fits, or more than one does. */
uint64_t hl_glibc_file_main_arena(const struct hl_glibc_file *file,
				  const struct hl_glibc_layout *layout);
uint64_t hl_glibc_file_mp(const struct hl_glibc_file *file, const struct hl_glibc_layout *layout);
