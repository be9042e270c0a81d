/* SPDX-License-Identifier: BSD-2-Clause */
/* Walks the heap of gperftools' tcmalloc: its spans by the page map, its free blocks by their chains; see tcmalloc.h. */
#include "allocators/outside/readers.h"
#include "allocators/outside/tcmalloc.h"
#include "allocators/traits.h"
#include "base/array.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "heap/extents.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TRIES	    3u
#define CHAIN_TRIES 8u
#define CACHES_MAX  16384u	 /* threads */
#define AHEAD_MAX   (256u << 10) /* bytes of spans that are read together */
#define AREA_BYTES \
	(128u << 10) /* descriptors of a kind lie together, and other kinds beside them */

struct span {
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
struct stretch {
	uint64_t start, end;
	size_t first, count; /* spans; 0: metadata */
};

struct walker {
	struct hl_memory *memory;
	struct hl_tcmalloc *tcmalloc;
	struct hl_slab_heap slabs;
	struct hl_tcmalloc_copies metadata, blocks;
	const struct hl_map *map; /* that held the last span */
	struct span *spans;	  /* by page */
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
	struct stretch *stretches;
	size_t stretch_count, stretch_capacity;
	uint32_t arena;
	uint8_t *ahead; /* a copy of a span and of the spans after it */
	uint64_t ahead_start, ahead_end;
	struct hl_pages pages; /* of it */
};

static uint64_t start_of(const struct walker *walker, const struct span *span)
{
	return span->page << walker->tcmalloc->page_shift;
}

static uint64_t end_of(const struct walker *walker, const struct span *span)
{
	return (span->page + span->pages) << walker->tcmalloc->page_shift;
}

static const struct hl_tcmalloc_class *class_of(const struct walker *walker,
						const struct span *span)
{
	return &walker->tcmalloc->classes[span->class];
}

static bool read_now(struct walker *walker, uint64_t address, void *bytes, size_t length)
{
	return hl_tcmalloc_read(walker->tcmalloc, walker->memory, address, bytes, length);
}

/* ---- spans ---- */

/* Whether the descriptor's bytes are those of a span from ${page} on. */
static bool parse_span(const struct walker *walker, uint64_t page, const uint8_t *bytes,
		       struct span *ret_span)
{
	uint64_t length = hl_tcmalloc_word(bytes + HL_TCMALLOC_SPAN_LENGTH);
	uint64_t bits = hl_tcmalloc_word(bytes + HL_TCMALLOC_SPAN_BITS);
	struct span span = {.page = page,
			    .objects = hl_tcmalloc_word(bytes + HL_TCMALLOC_SPAN_OBJECTS),
			    .pages = (uint32_t)length,
			    .used = (uint16_t)bits,
			    .class = (uint8_t)(bits >> 16),
			    .location = bits >> 24 & 3,
			    .is_sampled = bits >> 26 & 1};

	if (hl_tcmalloc_word(bytes + HL_TCMALLOC_SPAN_START) != page || !length ||
	    length > UINT32_MAX || span.location > HL_TCMALLOC_RETURNED)
		return false;
	if (span.location != HL_TCMALLOC_IN_USE)
		span.class = 0;
	if (span.class >= walker->tcmalloc->class_count ||
	    (span.class && span.pages != class_of(walker, &span)->pages))
		return false;
	uint64_t places = span.class ? (length << walker->tcmalloc->page_shift) /
					       class_of(walker, &span)->bytes
				     : 0;
	span.places = (uint16_t)places;
	span.used = span.class ? span.used : 0;
	*ret_span = span;
	return places == span.places && span.used <= places;
}

static bool is_mapped(struct walker *walker, uint64_t start, uint64_t end)
{
	const struct hl_maps *maps = &walker->memory->maps;

	if (!walker->map || start < walker->map->start || start >= walker->map->end)
		walker->map = hl_maps_find(maps, start);
	for (const struct hl_map *map = walker->map; map && start < end; map++) {
		if (map->end >= end)
			return true;
		if (map + 1 == maps->maps + maps->count || map[1].start != map->end)
			return false;
	}
	return false;
}

static int note_known(struct walker *walker, uint64_t start, uint64_t bytes)
{
	const struct hl_extents *known = &walker->known;
	const uint64_t mask = walker->memory->page_bytes - 1;
	const struct hl_extent *last = known->count ? &known->extents[known->count - 1] : NULL;

	if (last && start >= last->start && start + bytes <= last->end)
		return 0;
	return hl_extents_add(&walker->known, start & ~mask, (start + bytes + mask) & ~mask);
}

/* An entry of the page map. It is stale where its descriptor is no longer that of a span from this page on. */
static int add_page(struct walker *walker, uint64_t page, uint64_t descriptor)
{
	uint8_t bytes[HL_TCMALLOC_SPAN_BYTES];
	struct span span;

	if (page < walker->next_page || descriptor % 8)
		return 0;
	int r = hl_tcmalloc_copy(&walker->metadata, descriptor, bytes, sizeof(bytes));
	if (r < 0 || !parse_span(walker, page, bytes, &span) ||
	    !is_mapped(walker, start_of(walker, &span), end_of(walker, &span)))
		return r;
	span.descriptor = descriptor;
	span.first_mark = walker->mark_count;
	walker->mark_count += span.places;
	walker->next_page = page + span.pages;
	r = note_known(walker, descriptor, sizeof(bytes));
	if (r == 0)
		r = HL_ARRAY_APPEND(walker->spans, walker->span_count, walker->span_capacity, span);
	if (r < 0 || !span.class)
		return r;
	size_t *last = &walker->last_of[span.class];
	if (*last)
		walker->spans[*last - 1].next_of_class = walker->span_count;
	else
		walker->first_of[span.class] = walker->span_count;
	*last = walker->span_count;
	return 0;
}

/* A node of the map, whose first entry is that of ${page}. */
struct node {
	struct walker *walker;
	uint64_t page;
	uint32_t level; /* 1: its entries are descriptors */
};

static int add_node(void *context, uint64_t index, uint64_t word)
{
	const struct node *node = context;
	const struct hl_tcmalloc *tcmalloc = node->walker->tcmalloc;
	struct node below = *node;

	if (node->level == 1)
		return add_page(node->walker, node->page + index, word);
	below.level--;
	uint32_t bits = below.level == 1 ? tcmalloc->leaf_bits : tcmalloc->inner_bits;
	below.page += index << (below.level == 1 ? bits : bits + tcmalloc->leaf_bits);
	if (word % 8 || word >> 48 || !hl_maps_find(&node->walker->memory->maps, word))
		return 0;
	int r = note_known(node->walker, word, UINT64_C(8) << bits);
	return r == 0 ? hl_tcmalloc_words(node->walker->memory, word, UINT64_C(1) << bits, add_node,
					  &below)
		      : r;
}

static int read_spans(struct walker *walker)
{
	const struct hl_tcmalloc *tcmalloc = walker->tcmalloc;
	struct node root = {.walker = walker, .level = tcmalloc->levels};

	return hl_tcmalloc_words(walker->memory, tcmalloc->root, UINT64_C(1) << tcmalloc->root_bits,
				 add_node, &root);
}

static const struct span *find_span(const struct walker *walker, uint64_t address)
{
	uint64_t page = address >> walker->tcmalloc->page_shift;
	const struct span *spans = walker->spans;
	size_t at = HL_LOWER_BOUND(i, walker->span_count, spans[i].page + spans[i].pages <= page);

	return at < walker->span_count && spans[at].page <= page ? &spans[at] : NULL;
}

/* ---- thread caches ---- */

static bool is_known_cache(const struct walker *walker, uint64_t address)
{
	for (size_t i = 0; i < walker->caches.count; i++)
		if (walker->caches.addresses[i] == address)
			return true;
	return false;
}

static int add_cache(void *context, uint64_t index, uint64_t word)
{
	struct walker *walker = context;
	uint8_t bytes[HL_TCMALLOC_CACHE_BYTES];
	const struct hl_map *map = hl_maps_find(&walker->memory->maps, word);

	(void)index;
	if (word % 8 || !map || map->inode || !(map->flags & HL_MAP_WRITE) ||
	    walker->caches.count == CACHES_MAX || find_span(walker, word) ||
	    is_known_cache(walker, word))
		return 0;
	int r = hl_tcmalloc_copy(&walker->metadata, word, bytes, sizeof(bytes));
	if (r < 0 || !hl_tcmalloc_is_cache(walker->tcmalloc, bytes))
		return r;
	r = note_known(walker, word, sizeof(bytes));
	return r == 0 ? HL_ARRAY_APPEND(walker->caches.addresses, walker->caches.count,
					walker->caches.capacity, word)
		      : r;
}

/* Whether the links of the cache at ${address} name ${other}, a cache. */
static bool has_link(struct walker *walker, uint64_t address, uint64_t other)
{
	uint64_t links[(HL_TCMALLOC_CACHE_BYTES - HL_TCMALLOC_CACHE_LINKS) / 8];
	bool is_there = false;

	if (hl_tcmalloc_copy(&walker->metadata, address + HL_TCMALLOC_CACHE_LINKS, links,
			     sizeof(links)) < 0)
		return false;
	for (size_t i = 0; i < HL_COUNT_OF(links); i++)
		is_there |= links[i] == other;
	return is_there;
}

static int link_cache(struct walker *walker, uint64_t cache)
{
	uint64_t links[(HL_TCMALLOC_CACHE_BYTES - HL_TCMALLOC_CACHE_LINKS) / 8];
	bool is_linked = false;
	int r = hl_tcmalloc_copy(&walker->metadata, cache + HL_TCMALLOC_CACHE_LINKS, links,
				 sizeof(links));

	for (size_t i = 0; i < HL_COUNT_OF(links) && r == 0; i++) {
		r = add_cache(walker, 0, links[i]);
		is_linked |= is_known_cache(walker, links[i]) && has_link(walker, links[i], cache);
	}
	walker->threads += is_linked;
	return r;
}

/* Finds the caches that variables name, and those that a cache names. Among them are some of threads that have ended, which
 * have no blocks and are not named by those that they name. */
static int read_caches(struct walker *walker)
{
	const struct hl_tcmalloc *tcmalloc = walker->tcmalloc;
	int r = hl_tcmalloc_words(walker->memory, tcmalloc->variables_start,
				  (tcmalloc->variables_end - tcmalloc->variables_start) / 8,
				  add_cache, walker);

	for (size_t i = 0; i < walker->caches.count && r == 0; i++)
		r = link_cache(walker, walker->caches.addresses[i]);
	walker->threads += walker->caches.count && !walker->threads; /* with nobody beside it */
	return r;
}

/* ---- marks ---- */

static enum hl_slab_state mark_at(const struct walker *walker, uint64_t number)
{
	return walker->marks[number / 4] >> number % 4 * 2 & 3;
}

/* Returns what it was before. */
static enum hl_slab_state set_mark(struct walker *walker, uint64_t number, enum hl_slab_state state)
{
	uint8_t *marks = &walker->marks[number / 4];
	uint32_t shift = number % 4 * 2, before = *marks;

	*marks = (uint8_t)((before & ~(3u << shift)) | (uint32_t)state << shift);
	return before >> shift & 3;
}

/* The number of the mark of the place of ${class} that begins at ${block}. False: there is none. */
static inline bool find_place(const struct walker *walker, const struct span *span,
			      const struct hl_tcmalloc_class *class, uint64_t block,
			      uint64_t *ret_number)
{
	uint64_t offset = block - start_of(walker, span);
	uint64_t place = (offset & UINT32_MAX) * class->inverse >> 32;

	*ret_number = span->first_mark + place;
	return place * class->bytes == offset && place < span->places;
}

/* ---- free blocks in spans ---- */

/* Copies a span, and those after it that have free blocks as well. What is not in memory reads as zero. */
static int read_ahead(struct walker *walker, const struct span *span)
{
	const struct span *end = walker->spans + walker->span_count;
	const uint64_t mask = walker->memory->page_bytes - 1;
	struct hl_pages *pages = &walker->pages;
	uint64_t start = start_of(walker, span), stop = end_of(walker, span);

	if (start >= walker->ahead_start && stop <= walker->ahead_end)
		return 0;
	for (; ++span < end && span->class == span[-1].class && span->objects &&
	       start_of(walker, span) == stop && end_of(walker, span) - start <= AHEAD_MAX;)
		stop = end_of(walker, span);
	walker->ahead_start = start;
	walker->ahead_end = stop;
	memset(walker->ahead, 0, stop - start);
	pages->count = pages->page_count = 0;
	int r = hl_memory_scan(walker->memory, start & ~mask, (stop + mask) & ~mask, pages);
	for (size_t i = 0; i < pages->count && r == 0; i++) {
		uint64_t from = pages->runs[i].start > start ? pages->runs[i].start : start;
		uint64_t to = pages->runs[i].end < stop ? pages->runs[i].end : stop;
		if (hl_memory_read(walker->memory, from, walker->ahead + (from - start),
				   to - from) < 0)
			memset(walker->ahead + (from - start), 0, to - from);
	}
	return r == -ENOMEM ? r : 0;
}

/* Marks the blocks in the span's own chain. Whether their number is what its descriptor says. */
static bool mark_free(struct walker *walker, const struct span *span)
{
	const struct hl_tcmalloc_class *class = class_of(walker, span);
	const uint8_t *ahead = walker->ahead - walker->ahead_start;
	uint64_t block = span->objects, number;
	uint32_t count = 0;

	for (; block; count++) {
		if (!find_place(walker, span, class, block, &number) ||
		    set_mark(walker, number, HL_SLAB_FREE) == HL_SLAB_FREE)
			return false;
		block = hl_tcmalloc_word(ahead + block);
	}
	return count == (uint32_t)(span->places - span->used);
}

/* Reads the descriptor again. Whether it still is that of a span of the same length there, of the same class or free. */
static bool read_again(struct walker *walker, struct span *span)
{
	uint8_t bytes[HL_TCMALLOC_SPAN_BYTES];
	struct span now;

	walker->slabs.heap->rereads++;
	walker->ahead_end = 0;
	if (!read_now(walker, span->descriptor, bytes, sizeof(bytes)) ||
	    !parse_span(walker, span->page, bytes, &now) || now.pages != span->pages ||
	    (now.class != span->class && now.location == HL_TCMALLOC_IN_USE))
		return false;
	now.descriptor = span->descriptor;
	now.first_mark = span->first_mark;
	now.next_of_class = span->next_of_class;
	*span = now;
	return true;
}

/* Marks the free places of a span, again where they do not fit together. */
static int read_span(struct walker *walker, struct span *span)
{
	int r = 0;

	for (unsigned i = 0; i < TRIES; i++) {
		r = span->objects ? read_ahead(walker, span) : 0;
		if (r < 0 || mark_free(walker, span))
			return r;
		for (uint32_t k = 0; k < span->places; k++)
			set_mark(walker, span->first_mark + k, HL_SLAB_LIVE);
		if (!read_again(walker, span))
			break;
		if (!span->class)
			return 0; /* it has just become free */
	}
	span->is_odd = true;
	return r;
}

/* ---- chains of cached blocks ---- */

/* Marks the blocks of a chain, and keeps the numbers of their marks. Nothing is trusted: each is a place of its class, and in no
 * other chain. It may have been free in its span a moment ago. */
static int mark_chain(struct walker *walker, uint32_t number, uint64_t first, uint64_t length,
		      bool *ret_fits)
{
	const struct hl_tcmalloc_class *class = &walker->tcmalloc->classes[number];
	struct hl_addresses *chain = &walker->chain;
	uint64_t block = first, mark;
	int r = 0;

	for (chain->count = 0; block && r == 0 && chain->count < length;) {
		const struct span *span = find_span(walker, block);
		if (!span || span->class != number ||
		    !find_place(walker, span, class, block, &mark) ||
		    mark_at(walker, mark) == HL_SLAB_CACHED)
			break;
		bool was_free = set_mark(walker, mark, HL_SLAB_CACHED) == HL_SLAB_FREE;
		r = HL_ARRAY_APPEND(chain->addresses, chain->count, chain->capacity,
				    mark * 2 + was_free);
		if (r == 0)
			r = hl_tcmalloc_copy(&walker->blocks, block, &block, sizeof(block));
	}
	/* A thread that runs changes its count meanwhile; one that was stopped may stand between a block and the count. */
	bool runs = walker->memory->pid && !walker->slabs.settings->stop;
	*ret_fits = chain->count == length || (!block && (runs || chain->count + 1 == length));
	return r;
}

static void note_chain(struct walker *walker, uint64_t address)
{
	if (!walker->bad_chains++)
		walker->first_bad_chain = address;
}

/* Reads the chain of a thread's cache, again where it does not fit together: its thread is at work. */
static int read_list(struct walker *walker, uint32_t class, uint64_t address)
{
	uint8_t bytes[HL_TCMALLOC_LIST_BYTES];
	bool fits = false;

	for (unsigned i = 0; i < CHAIN_TRIES; i++) {
		uint32_t length;
		for (size_t k = 0; i && k < walker->chain.count; k++)
			set_mark(walker, walker->chain.addresses[k] / 2,
				 walker->chain.addresses[k] & 1 ? HL_SLAB_FREE : HL_SLAB_LIVE);
		int r = hl_tcmalloc_copy(&walker->blocks, address, bytes, sizeof(bytes));
		memcpy(&length, bytes + HL_TCMALLOC_LIST_LENGTH, sizeof(length));
		if (r == 0)
			r = mark_chain(walker, class, hl_tcmalloc_word(bytes), length, &fits);
		if (r < 0 || fits)
			return r;
		hl_tcmalloc_copies_forget(&walker->blocks);
	}
	note_chain(walker, address);
	return 0;
}

static int read_transfer_cache(struct walker *walker, uint32_t class)
{
	const struct hl_tcmalloc *tcmalloc = walker->tcmalloc;
	uint64_t central = tcmalloc->central + class * HL_TCMALLOC_CENTRAL_BYTES;
	uint8_t bytes[HL_TCMALLOC_CENTRAL_BYTES];
	uint32_t used;
	int r = 0;

	if (tcmalloc->central_bytes != HL_TCMALLOC_CENTRAL_BYTES ||
	    !read_now(walker, central, bytes, sizeof(bytes)))
		return 0;
	memcpy(&used, bytes + HL_TCMALLOC_CENTRAL_USED, sizeof(used));
	for (uint32_t i = 0; i < used && i < HL_TCMALLOC_CHAINS_MAX && r == 0; i++) {
		uint32_t at = HL_TCMALLOC_CENTRAL_CHAINS + 16 * i;
		bool fits = false;
		r = mark_chain(walker, class, hl_tcmalloc_word(bytes + at),
			       tcmalloc->classes[class].batch, &fits);
		if (!fits)
			note_chain(walker, central + at);
	}
	return r;
}

/* Marks what is not live, class by class: spans and caches exchange blocks all the time, and what is read of both should be of
 * about the same moment. */
static int read_classes(struct walker *walker)
{
	const struct hl_tcmalloc *tcmalloc = walker->tcmalloc;
	int r = 0;

	for (uint32_t class = 1; class < tcmalloc->class_count && r == 0; class ++) {
		hl_tcmalloc_copies_forget(&walker->blocks);
		for (size_t i = walker->first_of[class]; i && r == 0;) {
			struct span *span = &walker->spans[i - 1];
			i = span->next_of_class;
			r = read_span(walker, span);
		}
		for (size_t i = 0; i < walker->caches.count && r == 0; i++)
			r = read_list(walker, class,
				      walker->caches.addresses[i] + class * HL_TCMALLOC_LIST_BYTES);
		if (r == 0)
			r = read_transfer_cache(walker, class);
	}
	return r;
}

/* ---- stretches ---- */

static int by_start(const void *left, const void *right)
{
	const struct stretch *a = left, *b = right;

	return (a->start > b->start) - (a->start < b->start);
}

static int list_spans(struct walker *walker)
{
	int r = 0;

	for (size_t i = 0, next; i < walker->span_count && r == 0; i = next) {
		uint64_t end = end_of(walker, &walker->spans[i]);
		for (next = i + 1;
		     next < walker->span_count && start_of(walker, &walker->spans[next]) == end;
		     next++)
			end = end_of(walker, &walker->spans[next]);
		r = HL_ARRAY_APPEND(
			walker->stretches, walker->stretch_count, walker->stretch_capacity,
			(struct stretch){start_of(walker, &walker->spans[i]), end, i, next - i});
	}
	return r;
}

/* Appends the metadata around what is known, within its mapping and between spans: areas of kinds that nothing here names
 * lie beside those that are. */
static int list_metadata(struct walker *walker)
{
	const size_t spans = walker->stretch_count;
	int r = 0;

	hl_extents_sort(&walker->known);
	for (size_t i = 0; i < walker->known.count && r == 0; i++) {
		const struct hl_extent *known = &walker->known.extents[i];
		const struct hl_map *map = hl_maps_find(&walker->memory->maps, known->start);
		struct stretch *last = &walker->stretches[walker->stretch_count - 1];
		if (!map)
			continue;
		size_t next = HL_LOWER_BOUND(k, spans, walker->stretches[k].end <= known->start);
		uint64_t lower = next && walker->stretches[next - 1].end > map->start
					 ? walker->stretches[next - 1].end
					 : map->start;
		uint64_t upper = next < spans && walker->stretches[next].start < map->end
					 ? walker->stretches[next].start
					 : map->end;
		if (upper < known->end || lower > known->start)
			continue; /* damaged */
		uint64_t start = known->start - lower > 2 * AREA_BYTES
					 ? known->start - 2 * AREA_BYTES
					 : lower;
		uint64_t end =
			upper - known->end > 2 * AREA_BYTES ? known->end + 2 * AREA_BYTES : upper;
		if (walker->stretch_count > spans && start < last->end)
			start = last->end;
		if (walker->stretch_count > spans && start == last->end && end > start)
			last->end = end;
		else if (end > start)
			r = HL_ARRAY_APPEND(walker->stretches, walker->stretch_count,
					    walker->stretch_capacity,
					    (struct stretch){.start = start, .end = end});
	}
	return r;
}

/* ---- what is reported ---- */

static int report_small(struct walker *walker, const struct span *span)
{
	struct hl_slab_heap *slabs = &walker->slabs;
	uint64_t start = start_of(walker, span), end = end_of(walker, span);
	uint32_t size = class_of(walker, span)->bytes;
	int r = 0;

	if (span->is_odd) {
		hl_slab_unscanned(slabs, start, end, 1, walker->arena);
		return 0;
	}
	hl_slab_begin(slabs, start, end, size, walker->arena);
	for (uint32_t i = 0; i < span->places && r == 0; i++)
		r = hl_slab_block(slabs, start + (uint64_t)i * size, size,
				  mark_at(walker, span->first_mark + i));
	return r == 0 ? hl_slab_end(slabs) : r;
}

/* The bytes that a program may use of a sampled block, which has a span even if it is small. */
static uint64_t sampled_bytes(struct walker *walker, const struct span *span)
{
	const struct hl_tcmalloc *tcmalloc = walker->tcmalloc;
	uint64_t whole = (uint64_t)span->pages << tcmalloc->page_shift, asked = 0;

	if (!read_now(walker, span->objects, &asked, sizeof(asked)))
		return whole;
	for (uint32_t i = 1; i < tcmalloc->class_count; i++)
		if (asked <= tcmalloc->classes[i].bytes)
			return tcmalloc->classes[i].bytes < whole ? tcmalloc->classes[i].bytes
								  : whole;
	return whole;
}

static int report_large(struct walker *walker, const struct span *span)
{
	struct hl_slab_heap *slabs = &walker->slabs;
	uint64_t start = start_of(walker, span), end = end_of(walker, span);
	uint64_t usable = span->is_sampled ? sampled_bytes(walker, span) : end - start;

	hl_slab_begin(slabs, start, end, end - start, walker->arena);
	int r = hl_slab_block(slabs, start, usable, HL_SLAB_LIVE);
	return r == 0 ? hl_slab_end(slabs) : r;
}

static int report_stretch(struct walker *walker, const struct stretch *stretch)
{
	const struct span *span = walker->spans + stretch->first, *end = span + stretch->count;
	int r = hl_slab_carrier_begin(&walker->slabs, stretch->count ? "spans" : "metadata",
				      stretch->start, stretch->end, walker->arena);

	for (; span < end && r == 0; span++) {
		if (span->location != HL_TCMALLOC_IN_USE)
			hl_slab_free_run(&walker->slabs, start_of(walker, span),
					 end_of(walker, span),
					 span->location == HL_TCMALLOC_NORMAL ? HL_SLAB_FREE_PURGED
									      : HL_SLAB_FREE_STAYS,
					 walker->arena);
		else if (span->class)
			r = report_small(walker, span);
		else
			r = report_large(walker, span);
	}
	return r == 0 ? hl_slab_carrier_end(&walker->slabs) : r;
}

/* ---- the whole ---- */

/* Of the copy of spans: of one at least. */
static size_t ahead_bytes(const struct walker *walker)
{
	size_t most = AHEAD_MAX;

	for (uint32_t i = 1; i < walker->tcmalloc->class_count; i++) {
		size_t bytes = (size_t)walker->tcmalloc->classes[i].pages
			       << walker->tcmalloc->page_shift;
		most = bytes > most ? bytes : most;
	}
	return most;
}

static int walk(struct walker *walker)
{
	int r = read_spans(walker);

	if (r == 0)
		r = read_caches(walker);
	if (r == 0)
		r = hl_slab_arena_add(&walker->slabs, walker->tcmalloc->page_heap, walker->threads,
				      &walker->arena);
	if (r < 0 || walker->slabs.settings->only_arenas || !walker->span_count)
		return r;
	walker->ahead = malloc(ahead_bytes(walker));
	walker->marks = calloc(1, walker->mark_count / 4 + 1);
	r = walker->ahead && walker->marks ? read_classes(walker) : -ENOMEM;
	if (r == 0)
		r = list_spans(walker);
	if (r == 0)
		r = list_metadata(walker);
	if (r == 0)
		qsort(walker->stretches, walker->stretch_count, sizeof(*walker->stretches),
		      by_start);
	for (size_t i = 0; i < walker->stretch_count && r == 0; i++)
		r = report_stretch(walker, &walker->stretches[i]);
	if (r == 0 && walker->tcmalloc->out_of_memory)
		r = -ENOMEM;
	if (r == 0 && walker->bad_chains)
		r = hl_heap_note(walker->slabs.heap,
				 "%llu list%s of free blocks did not fit together, the first at "
				 "0x%llx: blocks of them count as live",
				 (unsigned long long)walker->bad_chains,
				 walker->bad_chains > 1 ? "s" : "",
				 (unsigned long long)walker->first_bad_chain);
	return r;
}

/* What is not gperftools' tcmalloc as programs use it; NULL: nothing says so. */
static const char *find_refusal(const struct hl_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++) {
		const char *path = maps->maps[i].path, *name = hl_path_basename(path);
		if (strstr(path, "[anon:tcmalloc_region"))
			return "it is Google's later tcmalloc, with caches for each processor, and "
			       "not gperftools'";
		if (strncmp(name, "libtcmalloc", strlen("libtcmalloc")) == 0 &&
		    strstr(name, "_debug"))
			return "it is the one for debugging, which puts blocks of its own around "
			       "the program's";
	}
	return NULL;
}

static int tcmalloc_read(struct hl_memory *memory, const struct hl_allocator_traits *allocator,
			 const struct hl_heap_settings *settings, struct hl_heap *heap,
			 struct hl_error *err)
{
	const char *refusal = find_refusal(&memory->maps);
	struct hl_tcmalloc tcmalloc;
	int r = refusal ? hl_error_set(err, -ENOTSUP, "%s", refusal)
			: hl_tcmalloc_find(memory, &tcmalloc, err);

	if (r < 0)
		return r == -ENOMEM ? hl_error_set(err, r, "out of memory") : r;
	struct walker *walker = calloc(1, sizeof(*walker));
	if (!walker)
		return hl_error_set(err, -ENOMEM, "out of memory");
	walker->memory = memory;
	walker->tcmalloc = &tcmalloc;
	walker->metadata = (struct hl_tcmalloc_copies){.memory = memory, .shift = 17, .count = 64};
	walker->blocks = (struct hl_tcmalloc_copies){
		.memory = memory, .shift = 12, .count = HL_TCMALLOC_COPIES};
	r = hl_slab_heap_open(&walker->slabs, memory, allocator, settings, heap, err);
	if (r == 0)
		r = hl_slab_heap_close(&walker->slabs, walk(walker), err);
	free(walker->spans);
	free(walker->stretches);
	free(walker->ahead);
	free(walker->marks);
	hl_addresses_release(&walker->chain);
	hl_pages_release(&walker->pages);
	hl_addresses_release(&walker->caches);
	hl_extents_release(&walker->known);
	hl_tcmalloc_copies_release(&walker->metadata);
	hl_tcmalloc_copies_release(&walker->blocks);
	free(walker);
	return r;
}

const struct hl_heap_reader hl_tcmalloc_reader = {.allocator = "tcmalloc", .read = tcmalloc_read};
