/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The account of a heap of slabs: of an allocator whose blocks of one size share a stretch of pages, with free memory kept in
 * whole pages beside them. The reader of such an allocator reports what it finds, in order, and this adds up sums by arena,
 * by carrier, by class of size and by page. Not thread-safe.
 *
 *	for each carrier, a stretch of memory that lies together, by address
 *		hl_slab_carrier_begin
 *		for each stretch in it, by address: a slab, a free run, one that could not be read; what lies between
 *		them is the allocator's own
 *			hl_slab_begin, hl_slab_block for each place in it, by address, or hl_slab_places, hl_slab_end
 *			hl_slab_free_run
 *			hl_slab_unscanned
 *		hl_slab_carrier_end
 *
 * All functions that return an int return 0, -ENOMEM, another negative errno of reading, or what the visitor of blocks
 * returned, which ends the walk.
 */
#pragma once

#include "base/error.h"
#include "heap/heap.h"

#include <stdbool.h>
#include <stdint.h>

struct hl_allocator_traits;

enum hl_slab_state {
	HL_SLAB_LIVE,
	HL_SLAB_CACHED, /* freed, and kept for the next request of its size by a thread or for all of them */
	HL_SLAB_FREE, /* in its slab alone */
};

/* Memory in whole pages that no block has. */
enum hl_slab_free {
	HL_SLAB_FREE_STAYS,  /* the allocator keeps it when it is asked to purge */
	HL_SLAB_FREE_PURGED, /* such a request gives back what is in RAM of it */
};

/* The slab that is being reported. */
struct hl_slab {
	uint64_t start, end, slot_bytes, resident_bytes;
	uint64_t slots, live_blocks, live_bytes, live_resident_bytes;
	uint64_t cached_blocks, cached_bytes, cached_resident_bytes;
	uint64_t block, block_bytes; /* the largest live one */
	uint32_t arena;
};

/* The members are slab_heap.c's own. */
struct hl_slab_heap {
	struct hl_memory *memory;
	const struct hl_heap_settings *settings;
	struct hl_heap *heap;
	const struct hl_allocator_traits *allocator;
	struct hl_log2_shape free_shape;
	uint32_t first_arena; /* in heap->arenas */
	bool has_visitors;    /* who see each live block */
	uint64_t places_abandoned, first_abandoned;

	/* of the current carrier */
	struct hl_carrier *carrier;
	struct hl_pages pages;
	size_t cursor;
	uint64_t known_resident; /* of it, what has been reported as something */

	struct hl_slab slab;
	struct hl_heap_pin pin; /* slabs in a row that few live bytes keep; end 0: none */
};

/* Begins the account of ${allocator}'s heap; stops the process where ${settings} say so. 0 or a negative errno with a
 * sentence. */
int hl_slab_heap_open(struct hl_slab_heap *slabs, struct hl_memory *memory,
		      const struct hl_allocator_traits *allocator,
		      const struct hl_heap_settings *settings, struct hl_heap *heap,
		      struct hl_error *err);

/* Ends it, lets the process go on, and says what did not fit together. Releases ${slabs}. ${r}: what the walk came to;
 * returned, or -ENOMEM, with a sentence. */
int hl_slab_heap_close(struct hl_slab_heap *slabs, int r, struct hl_error *err);

/* Adds an arena that ${threads} use; carriers and slabs name it by *${ret_arena}. At least one before the first carrier. */
int hl_slab_arena_add(struct hl_slab_heap *slabs, uint64_t address, uint32_t threads,
		      uint32_t *ret_arena);

/* [${start}, ${end}) of ${type}, a word or two, from the system. ${arena}: UINT32_MAX where several share it. */
int hl_slab_carrier_begin(struct hl_slab_heap *slabs, const char *type, uint64_t start,
			  uint64_t end, uint32_t arena);
int hl_slab_carrier_end(struct hl_slab_heap *slabs);

/* [${start}, ${end}) is cut into places of ${slot_bytes} each and goes back to the system once none is in use; or is one block
 * of a size of its own. 0: it is neither, and counts neither by class nor as a slab that few blocks keep. */
void hl_slab_begin(struct hl_slab_heap *slabs, uint64_t start, uint64_t end, uint64_t slot_bytes,
		   uint32_t arena);
int hl_slab_block(struct hl_slab_heap *slabs, uint64_t start, uint64_t usable_bytes,
		  enum hl_slab_state state);
/* The same for all ${count} places of ${slot_bytes} each from ${start} on, whose states are enum hl_slab_state; at once where
 * nothing but their number matters. */
int hl_slab_places(struct hl_slab_heap *slabs, uint64_t start, const uint8_t *states,
		   uint32_t count);
int hl_slab_end(struct hl_slab_heap *slabs);

void hl_slab_free_run(struct hl_slab_heap *slabs, uint64_t start, uint64_t end,
		      enum hl_slab_free kind, uint32_t arena);

/* [${start}, ${end}) did not fit together in ${places} places. */
void hl_slab_unscanned(struct hl_slab_heap *slabs, uint64_t start, uint64_t end, uint64_t places,
		       uint32_t arena);

/* ---- the readers ---- */

/* How the heap of an allocator is read from outside: src/allocators/outside. */
struct hl_heap_reader {
	/* The name of its row in hl_allocator_traits. */
	const char *allocator;
	bool is_of_libc; /* it has this heap instead of glibc's, never beside it */
	/*
	 * Finds the heap and reads it into ${heap}. 0; -ENOTSUP: there is none, without a sentence, or its layout could not be
	 * proven, with one (subject, reason); what ${settings} visit returned; other negative errnos with a sentence. Nothing
	 * that is read is trusted; nothing is reported before the layout is proven.
	 */
	int (*read)(struct hl_memory *memory, const struct hl_allocator_traits *allocator,
		    const struct hl_heap_settings *settings, struct hl_heap *heap,
		    struct hl_error *err);
};

extern const struct hl_heap_reader *const hl_heap_readers[]; /* NULL ends them */
