/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What Python's objects use, by type.
 *
 *	object	a block that begins as one does, in a pool of pymalloc or of malloc(); its type is told by its words
 *	part	a block that is not an object, and to which an object leads, or a part of one: items of a list, the table of
 *		a dictionary, the buffer of an array. It counts for the type of the first object, by address
 *	pinned	free blocks of a pool, which its used ones keep for their size alone; each of these is charged an equal part
 */
#pragma once

#include "base/strings.h"
#include "guests/python/types.h"
#include "heap/extents.h"

#include <stdbool.h>

#define HL_PYTHON_WINDOW_WORDS 512u

/* One type, or several of one name. */
struct hl_python_usage_row {
	uint32_t
		name; /* in hl_python_usage.names; 0 for blocks of pools that are not objects, nor parts */
	uint64_t objects;
	uint64_t object_bytes, part_bytes; /* usable bytes of the blocks */
	uint64_t pinned_bytes;
};

struct hl_python_usage {
	struct hl_extents heap; /* malloc's, of a process that runs on; empty: it is stopped */
	uint64_t moved_objects; /* that lead to where no block was when malloc's were listed */
	bool has_moved;		/* the object that is looked at */
	struct hl_strings names;
	struct hl_python_types types;
	struct hl_python_usage_row *rows; /* once made, by bytes */
	size_t row_count, row_capacity;
	struct hl_python_usage_row total;
	uint64_t unscanned_bytes; /* of pools that changed while they were read */
	struct hl_python_usage_block *blocks;
	size_t block_count, block_capacity;
	size_t *parts; /* blocks that were found to be parts, and are to be searched */
	size_t part_count, part_capacity;
	uint64_t window_start, window_end; /* what is in the window */
	uint64_t window[HL_PYTHON_WINDOW_WORDS];
};

/* Of what is in ${memory}, which must live until the rows are made. NULL for want of memory. */
struct hl_python_usage *hl_python_usage_new(struct hl_memory *memory);

/* Adds a live block of malloc(). 0 or -ENOMEM. */
int hl_python_usage_add(struct hl_python_usage *usage, uint64_t address, uint64_t usable_bytes);

/* Adds the used blocks of the pool at ${address} of ${bytes}; hl_python_arenas_read() calls it. 0; -ENOMEM, -ESRCH. */
int hl_python_usage_add_pool(void *usage, uint64_t address, uint64_t bytes);

/* Makes the rows, of all blocks that were added, and forgets the blocks, which take 24 bytes each. 0; -ENOMEM, -ESRCH. */
int hl_python_usage_make(struct hl_python_usage *usage);

/*
 * Instead of rows: calls ${visit} with each block that was added, in rising order of address, until it returns
 * non-zero, and returns that. ${name} is that of its type, in hl_python_usage.names; 0: the block is neither an object
 * nor a part of one. 0; -ENOMEM, -ESRCH.
 */
int hl_python_usage_each(struct hl_python_usage *usage,
			 int (*visit)(void *context, uint32_t name, bool is_part), void *context);

void hl_python_usage_free(struct hl_python_usage *usage); /* NULL is fine */
