/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The allocator of gperftools (tcmalloc, 2.9 to 2.18) in the memory of a process: where its variables are, and where fields
 * lie on 64-bit machines. Nothing that is read is trusted. Google's later tcmalloc, with caches for each processor, is another one.
 *
 *	page		of tcmalloc's own size, 8 KiB unless it was built otherwise
 *	span		a run of pages: a large block, blocks of one class of size, or free; its descriptor lies elsewhere
 *	page map	a tree of two or three levels, from a page's number to the descriptor of its span. Entries of a span's
 *			first and last page are right; others may be stale
 *	page heap	the page map, and free spans: lists by length, and a set of longer ones. Normal ones are in memory,
 *			returned ones were given back to the system
 *	central list	of a class: spans with free blocks, and a transfer cache, chains of blocks on their way between threads
 *	thread cache	of a thread: a chain of free blocks for each class
 *
 * A chain goes through the first words of its blocks. Descriptors, caches and the map are metadata, in stretches of their own.
 */
#pragma once

#include "base/error.h"
#include "heap/extents.h"
#include "heap/memory.h"
#include "heap/slab_heap.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- where fields lie ---- */

#define HL_TCMALLOC_CLASSES_MAX 128u

/* Of a descriptor. */
#define HL_TCMALLOC_SPAN_START	 0u
#define HL_TCMALLOC_SPAN_LENGTH	 8u /* in pages */
#define HL_TCMALLOC_SPAN_NEXT	 16u
#define HL_TCMALLOC_SPAN_PREV	 24u
#define HL_TCMALLOC_SPAN_OBJECTS 32u
#define HL_TCMALLOC_SPAN_BITS	 40u
#define HL_TCMALLOC_SPAN_BYTES	 48u

enum hl_tcmalloc_location {
	HL_TCMALLOC_IN_USE,
	HL_TCMALLOC_NORMAL,
	HL_TCMALLOC_RETURNED,
};

/* Of a central list; the two heads of lists are descriptors. */
#define HL_TCMALLOC_CENTRAL_CLASS    8u
#define HL_TCMALLOC_CENTRAL_EMPTY    16u
#define HL_TCMALLOC_CENTRAL_NONEMPTY 64u
#define HL_TCMALLOC_CENTRAL_CHAINS   128u /* of 16 bytes each */
#define HL_TCMALLOC_CENTRAL_USED     1152u
#define HL_TCMALLOC_CENTRAL_BYTES    1216u
#define HL_TCMALLOC_CENTRAL_SMALL    192u /* built for little memory: without chains */
#define HL_TCMALLOC_CHAINS_MAX	     64u

/* Of a thread cache: chains by class, then what differs between releases, with a link to the next cache and back. */
#define HL_TCMALLOC_LIST_LENGTH 8u
#define HL_TCMALLOC_LIST_SIZE	24u /* of its blocks */
#define HL_TCMALLOC_LIST_BYTES	32u
#define HL_TCMALLOC_CACHE_LINKS (HL_TCMALLOC_CLASSES_MAX * HL_TCMALLOC_LIST_BYTES + 8u)
#define HL_TCMALLOC_CACHE_BYTES (HL_TCMALLOC_CACHE_LINKS + 64u)

/* ---- copies ---- */

#define HL_TCMALLOC_COPIES 1024u

/* Copies of small stretches of memory, so that what lies together is read together. What is not in memory reads as zero.
 * Zero-initialize but for the first three. */
struct hl_tcmalloc_copies {
	struct hl_memory *memory;
	uint32_t shift; /* each is of 2^shift bytes, aligned */
	uint32_t count; /* up to HL_TCMALLOC_COPIES */
	uint8_t *bytes;
	uint64_t numbers[HL_TCMALLOC_COPIES]; /* of the stretch, plus 1 */
	struct hl_pages pages;
};

/* 0 or -ENOMEM. */
int hl_tcmalloc_copy(struct hl_tcmalloc_copies *copies, uint64_t address, void *bytes,
		     size_t length);
/* So that memory is read as it is now. */
void hl_tcmalloc_copies_forget(struct hl_tcmalloc_copies *copies);
void hl_tcmalloc_copies_release(struct hl_tcmalloc_copies *copies);

/* Calls ${visit} for each word in [${address}, ${address} + 8 * ${count}) that is in memory and not 0, until it returns non-
 * zero; returns that or a negative errno. */
int hl_tcmalloc_words(struct hl_memory *memory, uint64_t address, uint64_t count,
		      int (*visit)(void *context, uint64_t index, uint64_t word), void *context);

/* ---- finding it ---- */

struct hl_tcmalloc_class {
	uint32_t bytes; /* of a block */
	uint32_t pages; /* of a span */
	uint32_t batch; /* blocks of a chain in a transfer cache */
	uint64_t
		inverse; /* 2^32 / bytes, rounded up: a product with it is exact where division is */
};

struct hl_tcmalloc {
	uint64_t page_heap; /* where its lists of free spans begin */
	uint64_t root;	    /* of the page map */
	uint32_t page_shift;
	uint32_t levels;
	uint32_t root_bits, inner_bits, leaf_bits; /* inner_bits 0: two levels */
	uint64_t central;			   /* lists by class */
	uint32_t central_bytes;
	struct hl_tcmalloc_class classes[HL_TCMALLOC_CLASSES_MAX];
	uint32_t class_count;
	bool out_of_memory; /* what then seems not to be there may be */
	uint64_t variables_start,
		variables_end; /* the module's, in which a thread cache is named */
};

/* Copies what is in memory now. False: some of it is not, or memory is out. */
bool hl_tcmalloc_read(struct hl_tcmalloc *tcmalloc, struct hl_memory *memory, uint64_t address,
		      void *bytes, size_t length);

/* Whether a thread cache may lie in ${bytes}, HL_TCMALLOC_CACHE_BYTES: it names the sizes of all classes. */
bool hl_tcmalloc_is_cache(const struct hl_tcmalloc *tcmalloc, const uint8_t *bytes);

static inline uint64_t hl_tcmalloc_word(const uint8_t *bytes)
{
	uint64_t word;

	__builtin_memcpy(&word, bytes, sizeof(word));
	return word;
}

/* Finds its variables, without symbols, by their shape: lists that name their own addresses, classes of rising size, a page
 * map that leads back to each descriptor. 0; -ENOTSUP where there are none, or with a sentence where they do not fit together;
 * -ENOMEM. */
int hl_tcmalloc_find(struct hl_memory *memory, struct hl_tcmalloc *ret_tcmalloc,
		     struct hl_error *err);

/* ---- reading it ---- */

struct hl_tcmalloc_span {
	uint64_t page, descriptor;
	uint64_t objects;     /* the first free block; of a sampled one where its size is */
	uint64_t first_mark;  /* of its places */
	size_t next_of_class; /* in walker's spans, plus 1; 0: none */
	uint32_t pages;
	uint16_t places; /* for blocks; 0: it is one block, or free */
	uint16_t used;	 /* blocks that are not in the span's own chain */
	uint8_t class;
	uint8_t location : 2;
	bool is_sampled : 1;
	bool is_odd : 1; /* it did not fit together */
};

/* A stretch of spans, or of metadata. */
struct hl_tcmalloc_stretch {
	uint64_t start, end;
	size_t first, count; /* spans; 0: metadata */
};

/* Zero-initialize but for memory, tcmalloc and the first members of the copies. */
struct hl_tcmalloc_walker {
	struct hl_memory *memory;
	struct hl_tcmalloc *tcmalloc;
	struct hl_slab_heap slabs;
	struct hl_tcmalloc_copies metadata, blocks;
	const struct hl_map *map;	/* that held the last span */
	struct hl_tcmalloc_span *spans; /* by page */
	size_t span_count, span_capacity;
	size_t first_of[HL_TCMALLOC_CLASSES_MAX], last_of[HL_TCMALLOC_CLASSES_MAX]; /* plus 1 */
	uint64_t next_page;
	uint64_t mark_count;
	uint8_t *marks;		    /* of all places: enum hl_slab_state, 2 bits each */
	struct hl_addresses caches; /* of threads */
	struct hl_addresses chain;  /* marks of the one that is being read */
	uint32_t threads;
	uint64_t bad_chains, first_bad_chain;
	struct hl_extents known; /* where metadata is for sure */
	struct hl_extents nodes; /* of the page map that were read */
	uint32_t repeats;	 /* of those, read again */
	struct hl_tcmalloc_stretch *stretches;
	size_t stretch_count, stretch_capacity;
	uint32_t arena;
	uint8_t *ahead; /* a copy of a span and of the spans after it */
	uint64_t ahead_start, ahead_end;
	struct hl_pages pages; /* of it */
};

static inline uint64_t hl_tcmalloc_span_start(const struct hl_tcmalloc_walker *walker,
					      const struct hl_tcmalloc_span *span)
{
	return span->page << walker->tcmalloc->page_shift;
}

static inline uint64_t hl_tcmalloc_span_end(const struct hl_tcmalloc_walker *walker,
					    const struct hl_tcmalloc_span *span)
{
	return (span->page + span->pages) << walker->tcmalloc->page_shift;
}

static inline const struct hl_tcmalloc_class *
hl_tcmalloc_span_class(const struct hl_tcmalloc_walker *walker, const struct hl_tcmalloc_span *span)
{
	return &walker->tcmalloc->classes[span->class];
}

/* Whether a descriptor's ${bytes} are those of a span from ${page} on. */
bool hl_tcmalloc_span_parse(const struct hl_tcmalloc_walker *walker, uint64_t page,
			    const uint8_t *bytes, struct hl_tcmalloc_span *ret_span);

/* The span that holds ${address}, or NULL. */
const struct hl_tcmalloc_span *hl_tcmalloc_span_find(const struct hl_tcmalloc_walker *walker,
						     uint64_t address);

/* Reads all spans, by page. 0 or a negative errno. */
int hl_tcmalloc_read_spans(struct hl_tcmalloc_walker *walker);

/* Finds the caches that variables name, and those that a cache names, once spans are read. Among them are some of threads that have
 * ended, which have no blocks and are not named by those that they name. 0 or a negative errno. */
int hl_tcmalloc_read_caches(struct hl_tcmalloc_walker *walker);
