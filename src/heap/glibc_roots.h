/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds the roots of glibc's allocator, main_arena and mp_, in a libc without symbols.
 *
 * Three ways, each tested against another: in the live memory of libc's variables an arena is known
 * by its bins, which point at chunks or at themselves, and by the ring of arenas, which closes; in
 * the file, by a word that is to hold the address of the struct that it ends; and by the symbols of
 * a debug file. mp_ is known by its constants, of which tunables can change some but hardly all.
 */
#pragma once

#include "heap/glibc_layout.h"
#include "heap/memory.h"

struct hl_glibc {
	const struct hl_glibc_layout *layout;
	uint32_t minor; /* of 2.x; 0: a static program, any version of ${layout} */
	char name[64];	/* "glibc 2.36" */
	uint64_t main_arena, mp;
	bool is_confirmed; /* two ways gave the same */
};

/*
 * 0; -ENOTSUP when ${memory} has no glibc, or one whose layout is not known, or the roots were not
 * found; -ENOMEM. With a sentence. Takes well below a millisecond.
 */
int hl_glibc_find(struct hl_memory *memory, struct hl_glibc *ret_glibc, struct hl_error *err);
