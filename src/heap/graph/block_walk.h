/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a process is looked at for the graph: the walk of its blocks, at a moment when no thread changes its heap; and what was
 * not read.
 *
 * The blocks are those of glibc's heap and of musl's by a walk, those of allocators that
 * cannot be walked by the table of a recorder in the process.
 *
 * The latter gives only the blocks, not the free memory between them. Mappings in which the
 * table has blocks, and that were made in the way of allocators (MAP_NORESERVE), are the allocator's
 * as a whole: what else lies there are free blocks, which still hold old pointers, and its own lists.
 * But a recorder that came later than the program's first blocks does not know these: then all that is
 * no block counts as a root, and less is found.
 */
#pragma once

#include "base/error.h"
#include "heap/extents.h"
#include "heap/heap.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_glibc;
struct hl_memory;

struct hl_block_walk {
	pid_t pid; /* 0: no recorder can be asked, as of a core file */
	struct hl_memory *memory;
	/* As hl_heap_settings.block and .foreign; the latter gets blocks of the table that are too
	 * small for the graph, too. ${counted_bytes} is what a block adds to sums: its usable bytes; of the
	 * table the requested ones, by the mean of the block's stack where its own size is not known, and
	 * ${usable_bytes} is an upper bound then. */
	int (*block)(void *context, uint64_t address, uint64_t usable_bytes,
		     uint64_t counted_bytes);
	int (*foreign)(void *context, uint64_t start, uint64_t end);
	void *context;
	bool takes_small; /* ${block} gets blocks of up to 16 bytes, and those at any multiple of 8 */
	const char *command; /* that errors advise */
};

/* Blocks that are not chunks of glibc's. */
struct hl_walked_table {
	bool is_there;
	uint64_t small_blocks, small_bytes; /* that were not given to ${block} */
};

/*
 * Gives all live blocks: those of glibc's heap and of musl's by a walk, those of other allocators by the table of a
 * recorder, if there is one. ${extents}, empty before, get what the blocks occupy; ${heap} gets what the walk found, what is
 * not certain, and how long it took. 0; or a negative errno with a sentence:
 * -ENOTSUP when there is no heap that can be walked, and no recorder.
 */
int hl_block_walk(const struct hl_block_walk *walk, struct hl_heap *heap,
		  struct hl_extents *extents, struct hl_walked_table *ret_table,
		  struct hl_error *err);

/* ---- the process is stopped ---- */

/* Whether a thread is changing an arena: chunks may then be in no list. Not where ${glibc} was not found. */
bool hl_stand_is_any_arena_locked(struct hl_memory *memory, const struct hl_glibc *glibc);

/*
 * Stops and lets go again until no arena is locked. After about a second it gives that up: the process stays stopped all the same,
 * and ${ret_is_locked} is true. 0, or as hl_memory_stop(): the process then runs. It goes on after 100 ms, see
 * hl_memory_keep_time(): a JVM has GiB to read. So what is most likely to change is to be read first: registers and stacks,
 * then the heap, then all other memory.
 */
int hl_stand_begin_outside_malloc(struct hl_memory *memory, const struct hl_glibc *glibc,
				  bool *ret_is_locked, struct hl_error *err);

/*
 * Holds it, and lets go again until no arena is locked. After about 10 ms it gives that up, and the process stays held.
 * Sleepers are left alone, unless ${stops_all}: those that woke are held from then on. 0, or as hl_memory_hold().
 */
int hl_stand_hold_outside_malloc(struct hl_memory *memory, const struct hl_glibc *glibc,
				 bool stops_all, struct hl_error *err);

/* Notes in ${heap} what was read after the process had gone on, and ${what} may be wrong; nothing, if nothing was. 0 or -ENOMEM. */
int hl_stand_note_late(const struct hl_memory *memory, struct hl_heap *heap, const char *what);

/* ---- what was not read ---- */

/* Memory where pointers to blocks may lie, and that was not read. */
struct hl_unread {
	uint64_t swapped_bytes;
	uint64_t secret_bytes; /* of memfd_secret(2) */
	uint64_t closed_bytes; /* pages without access that the system does not show */
	bool has_io_uring;     /* whose requests lead to blocks, too */
};

/* Keeps in ${unread} what it or ${other} has more of: what was seen at several moments. */
void hl_unread_join(struct hl_unread *unread, const struct hl_unread *other);

/* How many blocks may be in use by pointers there. */
uint64_t hl_unread_words(const struct hl_unread *unread);

/* Adds a note to ${heap} for each kind. ${verb} is the command that has --swapped. 0 or -ENOMEM. */
int hl_unread_note(const struct hl_unread *unread, struct hl_heap *heap, const char *verb);
