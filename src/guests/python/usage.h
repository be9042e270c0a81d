/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What Python's memory holds, read from outside: the arenas of its own allocator, the types of its objects, and what these
 * use. No symbols are needed.
 */
#pragma once

#include "base/index.h"
#include "base/strings.h"
#include "heap/extents.h"
#include "heap/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- arenas ---- */

/*
 * The arenas of Python's own allocator, pymalloc, as an interpreter without debug information shows them:
 * by the pools that they are cut into.
 *
 *	arena	what pymalloc maps; unmapped when all of its pools are free
 *	pool	a part of an arena, for blocks of one size class; free when none of its blocks is used
 */

#define HL_PYTHON_CLASSES 32u /* of 16 bytes each */

struct hl_python_class {
	uint64_t pools;	      /* with a block that is used */
	uint64_t used_blocks; /* which keep their pools */
	uint64_t free_blocks; /* of these pools: kept for blocks of this size alone */
};

struct hl_python_arenas {
	uint64_t pool_bytes; /* 0: there are no arenas */
	uint64_t arenas;
	/* Pools that were used and are free now, kept by the arena's other pools. Those that have never
	 * been used are not counted. */
	uint64_t free_pools;
	struct hl_python_class classes[HL_PYTHON_CLASSES];
};

/* Bytes of a block of class ${number}. */
static inline uint64_t hl_python_block_bytes(uint32_t number)
{
	return (number + UINT64_C(1)) * 16;
}

/* Whether most of what is in memory of [${start}, ${end}), of which ${pages} are, are pools; of how many bytes. 0: no. */
uint64_t hl_python_arenas_pool_bytes(struct hl_memory *memory, uint64_t start, uint64_t end,
				     const struct hl_pages *pages);

/*
 * Reads all arenas of the process: of CPython 3.8 to 3.14, of all its interpreters. Pages that are not in memory are
 * not touched. Figures are exact where the process is stopped. Calls ${pool}, if it is not NULL, with each pool that
 * has a used block, until it returns non-zero, and returns that. 0; -ESRCH, -EACCES, -ENOMEM.
 */
int hl_python_arenas_read(struct hl_memory *memory,
			  int (*pool)(void *context, uint64_t address, uint64_t bytes),
			  void *context, struct hl_python_arenas *ret_arenas);

/* ---- types ---- */

/*
 * Types of Python's objects, by what their blocks begin with:
 *
 *	head	0, 16 or 32 bytes that the interpreter puts before an object, by the flags of its type
 *	object	the number of references, then the address of the type
 *
 * A type is an object itself, whose type is one as well; the last one of these is its own, and is called "type".
 * The layout is that of CPython 3.8 to 3.14 with the global lock.
 */

#define HL_PYTHON_HEAD_MAX   32u
#define HL_PYTHON_WORDS	     (HL_PYTHON_HEAD_MAX / 8 + 2) /* of a block, that tell its type */
#define HL_PYTHON_NAME_BYTES 256u

struct hl_python_type {
	uint64_t address;
	uint32_t name;	     /* in hl_python_types.names; 0 if no type lies there */
	uint32_t head_bytes; /* before each of its objects */
	uint32_t body_bytes; /* of an object, without its items; of strings more than some have */
};

/* Initialize the first two members, which must outlive it, and zero the others. */
struct hl_python_types {
	struct hl_memory *memory;
	struct hl_strings *names;
	struct hl_python_type *types; /* also what was not a type, so that it is read once */
	size_t count, capacity;
	struct hl_index index;
};

/*
 * The type of the object in a block that begins with ${count} ${words}: *${ret_type} is its number, in types->types from
 * 1 on; 0 if no object is there, or if nobody refers to it. 0 or -ENOMEM.
 */
int hl_python_types_find(struct hl_python_types *types, const uint64_t *words, size_t count,
			 uint32_t *ret_type);

void hl_python_types_release(struct hl_python_types *types);

/* ---- objects by type ---- */

/*
 * What Python's objects use, by type.
 *
 *	object	a block that begins as one does, in a pool of pymalloc or of malloc(); its type is told by its words
 *	part	a block that is not an object, and to which an object leads, or a part of one: items of a list, the table of
 *		a dictionary, the buffer of an array. It counts for the type of the first object, by address
 *	pinned	free blocks of a pool, which its used ones keep for their size alone; each of these is charged an equal part
 */

#define HL_PYTHON_WINDOW_WORDS 128u
#define HL_PYTHON_PAGES	       64u

/* A page of the process that was read. */
struct hl_python_page {
	uint64_t start; /* 0: none */
	uint64_t words[512];
};

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
	uint64_t window[HL_PYTHON_WINDOW_WORDS];      /* what lies in two pages */
	struct hl_python_page pages[HL_PYTHON_PAGES]; /* by address */
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
