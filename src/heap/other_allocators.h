/* SPDX-License-Identifier: BSD-2-Clause */
/* Allocators that a process has besides glibc's, or in its place, and that cannot be walked. */
#pragma once

#include "heap/memory.h"

struct hl_other_allocator {
	const char *name;    /* "jemalloc" */
	const char *library; /* how the name of its file begins */
	const char *inside;  /* a text that programs hold which have it built in */
	const char *remedy;  /* what shows its state */
};

/* The allocator that is mapped as a library; NULL for none. */
const struct hl_other_allocator *hl_other_allocator_library(const struct hl_maps *maps);

/* The allocator that the program has built in; NULL for none. Reads the program's file, so it is to
 * be asked only where glibc has no heap. */
const struct hl_other_allocator *hl_other_allocator_built_in(struct hl_memory *memory);
