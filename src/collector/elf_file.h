/* SPDX-License-Identifier: BSD-2-Clause */
/* The few facts about an ELF file that decide whether a program can be recorded. */
#pragma once

#include <limits.h>
#include <stdbool.h>

struct hl_elf_file {
	bool is_64_bit;
	bool is_native;		    /* for the machine that heapline was built for */
	char interpreter[PATH_MAX]; /* PT_INTERP; "" when there is none: static */
	bool defines_malloc;	    /* in its dynamic symbol table */
	bool needs_asan;	    /* built with -fsanitize=address */
};

/*
 * The function of a known allocator under a name of its own, mi_malloc for one, that the file at
 * ${path} brings in itself, so that no library can take its place: a constant; NULL when there is
 * none, or no symbol table says so.
 */
const char *hl_elf_file_allocator(const char *path);

/*
 * 0, -ENOEXEC when ${path} is no ELF file, or another negative errno. Of a file for another machine
 * only the first two members are told. Damage ends the reading early, never crashes it.
 */
int hl_elf_file_read(const char *path, struct hl_elf_file *ret_elf);
