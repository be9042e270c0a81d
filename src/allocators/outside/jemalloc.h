/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * jemalloc's heap in the memory of a process: where its tree of pages is, and what its descriptors say. Releases 5.2 and 5.3, on
 * 64-bit machines, built for pages of 4 KiB or, as Debian does for arm64, of 64. Nothing that is read is trusted, and no symbol is needed: a tree counts as one because its
 * leaves name descriptors that name the pages they were reached by.
 *
 *	tree		by the address of a page, of two or three levels; its root is one of the library's variables
 *	leaf element	a word for a page: the extent's descriptor, with its size class in the upper bits, and in 5.3 its state in
 *			the lower ones. First and last page of each extent have one, of a slab all pages
 *	extent		whole pages: a slab, a large block, or free
 *	descriptor	where its extent is, its state, and of a slab which places are free: a bit for each that fits into a page
 *	slab		places of one size
 *	base block	where jemalloc has descriptors, leaves and arenas; each arena has a list of them
 *	bin		a thread's cache of one size class: a stack of freed blocks
 */
#pragma once

#include "heap/extents.h"
#include "heap/memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define HL_JEMALLOC_HUGE_PAGE (UINT64_C(2) << 20) /* base blocks are whole ones */

/* Of a descriptor, in all releases; the bits of its first word differ. */
#define HL_JEMALLOC_HEAD_BYTES		 64u /* before the places */
#define HL_JEMALLOC_DESCRIPTOR_BYTES_MAX 1112u
#define HL_JEMALLOC_AT_BLOCK		 8u /* a large block may begin later than its extent */
#define HL_JEMALLOC_AT_SIZE		 16u /* its lowest bits, within a page, are a serial number */
#define HL_JEMALLOC_ARENAS		 4096u
#define HL_JEMALLOC_NO_ARENA		 (HL_JEMALLOC_ARENAS - 1) /* of descriptors in base blocks' headers */

/* A base block begins with its size, the next one, and a descriptor of what is not used yet, which ends with the block. */
#define HL_JEMALLOC_BASE_NEXT 8u
#define HL_JEMALLOC_BASE_REST 16u

#define HL_JEMALLOC_CLASSES_MAX 256u
#define HL_JEMALLOC_CLASS_NONE	232u /* and above: sizes that no memory has */

enum hl_jemalloc_state {
	HL_JEMALLOC_ACTIVE,
	HL_JEMALLOC_DIRTY,
	HL_JEMALLOC_MUZZY,
	HL_JEMALLOC_RETAINED,
};

/* What differs between releases. */
struct hl_jemalloc_layout {
	const char *releases;
	uint32_t descriptor_alignment;
	uint32_t state_bits, state_shift, class_shift, free_shift; /* in its first word */
	bool is_5_2;
};

extern const struct hl_jemalloc_layout hl_jemalloc_layouts[];
extern const size_t hl_jemalloc_layout_count;

/* What depends on how jemalloc was built. */
struct hl_jemalloc_shape {
	uint32_t page_bits;
	uint64_t page;
	uint32_t places; /* at most of a slab: as many of 8 bytes as a page */
	uint32_t descriptor_bytes;
	uint32_t levels, bits[3]; /* of an address that each level of the tree resolves */
	uint32_t element_bytes;	  /* of leaves: 8, or 16 with class and state in the second word */
};

extern const struct hl_jemalloc_shape hl_jemalloc_shapes[];
extern const size_t hl_jemalloc_shape_count;

struct hl_jemalloc_extent {
	uint64_t start; /* first: lists are sorted by it */
	uint64_t end;
	uint64_t block; /* of a large one */
	uint64_t descriptor;
	size_t free_at; /* of a slab: which places are free, in hl_jemalloc.free_places */
	uint32_t arena, state, size_class, free_places;
	bool is_slab;
	bool is_bad; /* did not fit together */
	bool is_of_huge_page; /* cut from one that jemalloc keeps as a whole: what no extent has of it is free */
};

struct hl_jemalloc_block {
	uint64_t start; /* first, as above */
	uint64_t end;
	uint32_t arena;
};

struct hl_jemalloc_arena {
	uint64_t address; /* 0: not found */
	uint64_t base;	  /* in its oldest base block; 0: as above */
	uint64_t base_at; /* where the arena names that */
	uint32_t threads;
	bool is_used; /* by an extent, or a base block */
};

/* One jemalloc of a process, which may have several. */
struct hl_jemalloc {
	struct hl_jemalloc *next;
	const struct hl_jemalloc_layout *layout;
	const struct hl_jemalloc_shape *shape;
	uint64_t root;
	uint64_t variables, variables_end; /* of the module that has it */
	uint64_t class_bytes[HL_JEMALLOC_CLASSES_MAX];
	uint32_t class_count; /* 0: they were not found */
	uint32_t slab_classes;
	uint64_t
		large_pad; /* bytes of a large extent that its block has not: a page, to vary where blocks begin, or 0 */
	struct hl_jemalloc_extent *extents; /* by address, without overlaps */
	size_t extent_count, extent_capacity;
	uint64_t *free_places; /* a bit for each place of a slab, set: it is free */
	size_t free_count, free_capacity;
	struct hl_jemalloc_block *blocks; /* base blocks, by address */
	size_t block_count, block_capacity;
	struct hl_jemalloc_arena arenas[HL_JEMALLOC_ARENAS];
	struct hl_addresses cached; /* blocks in caches of threads */
	struct hl_addresses own;    /* within blocks that jemalloc took from itself */
	uint64_t rereads;
};

/* Whether the extent is a block or has some; else it is free, and some of its bits are those of what it was. */
static inline bool hl_jemalloc_has_blocks(const struct hl_jemalloc_extent *extent)
{
	return extent->state == HL_JEMALLOC_ACTIVE && extent->size_class < HL_JEMALLOC_CLASS_NONE;
}

static inline uint64_t hl_jemalloc_word(const uint8_t *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word));
	return word;
}

/* ---- jemalloc_tree.c ---- */

/*
 * Finds each jemalloc of the process. 0 with *${ret_first} NULL where there is none; or -ENOMEM.
 * Others are freed with hl_jemalloc_free().
 */
int hl_jemalloc_find(struct hl_memory *memory, struct hl_jemalloc **ret_first);

/* Lists its extents, which take up to three tries to fit together. 0 or a negative errno. */
int hl_jemalloc_list(struct hl_memory *memory, struct hl_jemalloc *jemalloc);

/* Reads again the descriptor that the tree has for the page at ${start}. 0; -ENOENT: no extent begins there; -EBADMSG: what the
 * tree leads to does not fit together; -ENOMEM. */
int hl_jemalloc_reread(struct hl_memory *memory, struct hl_jemalloc *jemalloc, uint64_t start,
		       struct hl_jemalloc_extent *ret_extent);

/* This one and all that follow; NULL is fine. */
void hl_jemalloc_free(struct hl_jemalloc *jemalloc);

/* ---- jemalloc_base.c ---- */

/* Finds base blocks, arenas and what is in caches of threads, after hl_jemalloc_list(). 0 or a negative errno. */
int hl_jemalloc_read_base(struct hl_memory *memory, struct hl_jemalloc *jemalloc);
