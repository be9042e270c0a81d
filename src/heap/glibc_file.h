/* SPDX-License-Identifier: BSD-2-Clause */
/* What the file of a libc, or of a static program, says of its allocator. */
#pragma once

#include "elf/elf.h"
#include "heap/glibc_layout.h"

/* x of the version 2.x that the file says it is; 0 when it says none. */
uint32_t hl_glibc_file_minor(Elf *elf);

/* Virtual addresses of the file; 0: not found. */
struct hl_glibc_symbols {
	uint64_t main_arena, mp;
};

/* Finds main_arena and mp_ in the symbol table of the file, or of its separate debug file below
 * ${debug_directory}. */
struct hl_glibc_symbols hl_glibc_file_symbols(Elf *elf, const char *debug_directory);

/* The same by their initial values; 0 when no place fits, or more than one does. */
uint64_t hl_glibc_file_main_arena(Elf *elf, const struct hl_glibc_layout *layout);
uint64_t hl_glibc_file_mp(Elf *elf, const struct hl_glibc_layout *layout);
