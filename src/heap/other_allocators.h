/* SPDX-License-Identifier: BSD-2-Clause */
/* Allocators that a process has besides glibc's, or in its place, and that cannot be walked; and
 * the commands that work for them. */
#pragma once

#include "allocators/traits.h"
#include "heap/memory.h"

#include <sys/types.h>

/* An allocator in a process. */
struct hl_other_found {
	const struct hl_allocator_traits *allocator; /* NULL if there is none */
	bool is_built_in;			     /* into the program; else it is a library */
	bool hides_functions; /* the program has no symbols, or is linked with no library and has no malloc */
};

/* The allocator that is mapped as a library, if any. */
struct hl_other_found hl_other_allocator_library(const struct hl_maps *maps);

/* The allocator that the program has built in, if any. Reads the program's file, so it is to be
 * asked only where glibc has no heap. */
struct hl_other_found hl_other_allocator_built_in(struct hl_memory *memory);

#define HL_OTHER_REMEDY_MAX 384

/* Names the commands that show the state of ${found}, which may be unknown, and whether it grows;
 * only those that work for process ${pid}, which has ${maps} (0: it is a core file). Returns ${text}. */
const char *hl_other_allocator_remedy(const struct hl_other_found *found,
				      const struct hl_maps *maps, pid_t pid,
				      char text[HL_OTHER_REMEDY_MAX]);
