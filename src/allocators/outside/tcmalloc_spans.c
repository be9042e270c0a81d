/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads the spans of gperftools' tcmalloc by its page map, and finds its thread caches; see tcmalloc.h. */
#include "allocators/outside/tcmalloc.h"
#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CACHES_MAX  16384u /* threads */
#define REPEATS_MAX 256u   /* nodes of the page map that are read again */

/* ---- copies ---- */

static int fill_copy(struct hl_tcmalloc_copies *copies, uint64_t number, uint8_t *bytes)
{
	uint64_t start = number << copies->shift, length = UINT64_C(1) << copies->shift;

	memset(bytes, 0, length);
	copies->pages.count = copies->pages.page_count = 0;
	int r = hl_memory_scan(copies->memory, start, start + length, &copies->pages);
	for (size_t i = 0; r == 0 && i < copies->pages.count; i++) {
		const struct hl_page_run *run = &copies->pages.runs[i];
		if (hl_memory_read(copies->memory, run->start, bytes + (run->start - start),
				   run->end - run->start) < 0)
			memset(bytes + (run->start - start), 0, run->end - run->start);
	}
	return r == -ENOMEM ? r : 0;
}

int hl_tcmalloc_copy(struct hl_tcmalloc_copies *copies, uint64_t address, void *bytes,
		     size_t length)
{
	if (!copies->bytes && !(copies->bytes = malloc((size_t)copies->count << copies->shift)))
		return -ENOMEM;
	while (length) {
		uint64_t number = address >> copies->shift;
		uint32_t place = (uint32_t)(number % copies->count);
		uint8_t *copy = copies->bytes + ((size_t)place << copies->shift);
		uint64_t at = address - (number << copies->shift);
		uint64_t part = (UINT64_C(1) << copies->shift) - at;
		if (copies->numbers[place] != number + 1) {
			copies->numbers[place] = 0;
			int r = fill_copy(copies, number, copy);
			if (r < 0)
				return r;
			copies->numbers[place] = number + 1;
		}
		part = part < length ? part : length;
		memcpy(bytes, copy + at, part);
		bytes = (uint8_t *)bytes + part;
		address += part;
		length -= part;
	}
	return 0;
}

void hl_tcmalloc_copies_forget(struct hl_tcmalloc_copies *copies)
{
	memset(copies->numbers, 0, sizeof(copies->numbers));
}

void hl_tcmalloc_copies_release(struct hl_tcmalloc_copies *copies)
{
	free(copies->bytes);
	hl_pages_release(&copies->pages);
	copies->bytes = NULL;
}

int hl_tcmalloc_words(struct hl_memory *memory, uint64_t address, uint64_t count,
		      int (*visit)(void *context, uint64_t index, uint64_t word), void *context)
{
	enum { PART = 64 << 10 };
	HL_CLEANUP(hl_pages_release) struct hl_pages pages = {0};
	uint64_t mask = memory->page_bytes - 1, end = address + 8 * count;
	HL_FREED uint8_t *bytes = malloc(PART);
	int r = bytes ? hl_memory_scan(memory, address & ~mask, (end + mask) & ~mask, &pages)
		      : -ENOMEM;

	for (size_t i = 0; i < pages.count && r == 0; i++) {
		uint64_t at = pages.runs[i].start > address ? pages.runs[i].start : address;
		uint64_t stop = pages.runs[i].end < end ? pages.runs[i].end : end;
		for (uint64_t part; at < stop && r == 0; at += part) {
			part = stop - at < PART ? stop - at : PART;
			if (hl_memory_read(memory, at, bytes, part) < 0)
				continue; /* unmapped meanwhile */
			for (uint64_t k = 0; k + 8 <= part && r == 0; k += 8) {
				uint64_t word = hl_tcmalloc_word(bytes + k);
				if (word)
					r = visit(context, (at + k - address) / 8, word);
			}
		}
	}
	return r;
}

bool hl_tcmalloc_read(struct hl_tcmalloc *tcmalloc, struct hl_memory *memory, uint64_t address,
		      void *bytes, size_t length)
{
	int r = hl_memory_read_present(memory, address, bytes, length);

	tcmalloc->out_of_memory |= r == -ENOMEM;
	return r == 0;
}

/* ---- spans ---- */

bool hl_tcmalloc_span_parse(const struct hl_tcmalloc_walker *walker, uint64_t page,
			    const uint8_t *bytes, struct hl_tcmalloc_span *ret_span)
{
	uint64_t length = hl_tcmalloc_word(bytes + HL_TCMALLOC_SPAN_LENGTH);
	uint64_t bits = hl_tcmalloc_word(bytes + HL_TCMALLOC_SPAN_BITS);
	struct hl_tcmalloc_span span = {.page = page,
					.objects =
						hl_tcmalloc_word(bytes + HL_TCMALLOC_SPAN_OBJECTS),
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
	    (span.class && span.pages != hl_tcmalloc_span_class(walker, &span)->pages))
		return false;
	uint64_t places = span.class ? (length << walker->tcmalloc->page_shift) /
					       hl_tcmalloc_span_class(walker, &span)->bytes
				     : 0;
	span.places = (uint16_t)places;
	span.used = span.class ? span.used : 0;
	*ret_span = span;
	return places == span.places && span.used <= places;
}

static bool is_mapped(struct hl_tcmalloc_walker *walker, uint64_t start, uint64_t end)
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

static int note_known(struct hl_tcmalloc_walker *walker, uint64_t start, uint64_t bytes)
{
	const struct hl_extents *known = &walker->known;
	const uint64_t mask = walker->memory->page_bytes - 1;
	const struct hl_extent *last = known->count ? &known->extents[known->count - 1] : NULL;

	if (last && start >= last->start && start + bytes <= last->end)
		return 0;
	return hl_extents_add(&walker->known, start & ~mask, (start + bytes + mask) & ~mask);
}

/* An entry of the page map. It is stale where its descriptor is no longer that of a span from this page on. */
static int add_page(struct hl_tcmalloc_walker *walker, uint64_t page, uint64_t descriptor)
{
	uint8_t bytes[HL_TCMALLOC_SPAN_BYTES];
	struct hl_tcmalloc_span span;

	if (page < walker->next_page || descriptor % 8)
		return 0;
	int r = hl_tcmalloc_copy(&walker->metadata, descriptor, bytes, sizeof(bytes));
	if (r < 0 || !hl_tcmalloc_span_parse(walker, page, bytes, &span) ||
	    !is_mapped(walker, hl_tcmalloc_span_start(walker, &span),
		       hl_tcmalloc_span_end(walker, &span)))
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
	struct hl_tcmalloc_walker *walker;
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
	/* A damaged map may lead to one node again and again; the entry that is right may come later. */
	int r = hl_extents_claim(&node->walker->nodes, word, word + (UINT64_C(8) << bits));
	if (r < 0 || (r == 0 && node->walker->repeats++ >= REPEATS_MAX))
		return r;
	r = note_known(node->walker, word, UINT64_C(8) << bits);
	return r == 0 ? hl_tcmalloc_words(node->walker->memory, word, UINT64_C(1) << bits, add_node,
					  &below)
		      : r;
}

int hl_tcmalloc_read_spans(struct hl_tcmalloc_walker *walker)
{
	const struct hl_tcmalloc *tcmalloc = walker->tcmalloc;
	struct node root = {.walker = walker, .level = tcmalloc->levels};

	return hl_tcmalloc_words(walker->memory, tcmalloc->root, UINT64_C(1) << tcmalloc->root_bits,
				 add_node, &root);
}

const struct hl_tcmalloc_span *hl_tcmalloc_span_find(const struct hl_tcmalloc_walker *walker,
						     uint64_t address)
{
	uint64_t page = address >> walker->tcmalloc->page_shift;
	const struct hl_tcmalloc_span *spans = walker->spans;
	size_t at = HL_LOWER_BOUND(i, walker->span_count, spans[i].page + spans[i].pages <= page);

	return at < walker->span_count && spans[at].page <= page ? &spans[at] : NULL;
}

/* ---- thread caches ---- */

static bool is_known_cache(const struct hl_tcmalloc_walker *walker, uint64_t address)
{
	for (size_t i = 0; i < walker->caches.count; i++)
		if (walker->caches.addresses[i] == address)
			return true;
	return false;
}

static int add_cache(void *context, uint64_t index, uint64_t word)
{
	struct hl_tcmalloc_walker *walker = context;
	uint8_t bytes[HL_TCMALLOC_CACHE_BYTES];
	const struct hl_map *map = hl_maps_find(&walker->memory->maps, word);

	(void)index;
	if (word % 8 || !map || map->inode || !(map->flags & HL_MAP_WRITE) ||
	    walker->caches.count == CACHES_MAX || hl_tcmalloc_span_find(walker, word) ||
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
static bool has_link(struct hl_tcmalloc_walker *walker, uint64_t address, uint64_t other)
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

static int link_cache(struct hl_tcmalloc_walker *walker, uint64_t cache)
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

int hl_tcmalloc_read_caches(struct hl_tcmalloc_walker *walker)
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
