/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The blocks of allocators that cannot be walked, by the table of a recorder in the process.
 *
 * Of such a heap only the blocks are known, not the free memory between them. Mappings in which the
 * table has blocks, and that were made in the way of allocators (MAP_NORESERVE), are the allocator's
 * as a whole: what else lies there are free blocks, which still hold old pointers, and its own lists.
 * But a recorder that came later than the program's first blocks does not know these: then all that is
 * no block counts as a root, and less is found.
 */
#pragma once

#include "base/error.h"
#include "heap/extents.h"
#include "heap/heap.h"

#include <sys/types.h>

struct hl_memory;

struct hl_table_walk {
	/* As hl_heap_settings.block and .foreign; the latter gets blocks that are too small for the
	 * graph, too, in rising order. */
	int (*block)(void *context, uint64_t address, uint64_t usable_bytes, uint64_t last_word);
	int (*foreign)(void *context, uint64_t start, uint64_t end);
	void *context;
};

/* Whether ${memory} of a process has an allocator besides glibc's, whose blocks a table may know. */
bool hl_table_walk_is_wanted(const struct hl_memory *memory);

/*
 * Gives the blocks of ${pid} that lie outside of ${extents}, and adds to these what they occupy. Says
 * in ${heap} what is not certain. 0; -ENODATA when there is no recorder; or a negative errno, with a
 * sentence.
 */
int hl_table_walk(pid_t pid, const struct hl_memory *memory, const struct hl_table_walk *walk,
		  struct hl_extents *extents, struct hl_heap *heap, struct hl_error *err);
