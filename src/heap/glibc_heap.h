/* SPDX-License-Identifier: BSD-2-Clause */
/* All that glibc has of a process' memory: its arenas' heaps and the blocks that have a mapping of
 * their own. */
#pragma once

#include "heap/glibc_roots.h"
#include "heap/heap.h"

/* Walks the heap of ${glibc} into ${heap}: arenas, carriers, and what of RSS is theirs. 0, a
 * negative errno with a sentence, or what the visitor of blocks said. */
int hl_glibc_heap_read(struct hl_memory *memory, const struct hl_glibc *glibc,
		       const struct hl_heap_settings *settings, struct hl_heap *heap,
		       struct hl_error *err);

/* Appends a sentence. 0 or -ENOMEM. */
int hl_heap_note(struct hl_heap *heap, const char *format, ...) HL_PRINTF(2, 3);
