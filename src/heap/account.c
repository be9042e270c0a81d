/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums over chunks; see glibc_reader.h. */
#include "heap/glibc_reader.h"

#include "base/array.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- pinned pages ---- */

#define LIVE_SHARE 8u  /* live blocks fill at most an eighth of a pinned page */
#define TRIM_KEPT  48u /* malloc_trim keeps the first bytes of a free chunk */

/* Begins a carrier. */
static void pins_begin(struct hl_pins *pins, uint64_t page_bytes)
{
	*pins = (struct hl_pins){.page_bytes = page_bytes};
}

/* Adds ${bytes} of ${chunk}, which lie on the page. */
static void add_part(struct hl_pins *pins, const struct hl_chunk *chunk, uint64_t bytes)
{
	if (chunk->kind == HL_CHUNK_FREE || chunk->kind == HL_CHUNK_FASTBIN ||
	    chunk->kind == HL_CHUNK_TOP)
		return;
	if (chunk->kind != HL_CHUNK_LIVE || chunk->size > pins->page_bytes / LIVE_SHARE) {
		pins->is_blocked = true;
		return;
	}
	pins->live_bytes += bytes;
	pins->live_blocks++;
	pins->straddles = pins->straddles || chunk->address < pins->page;
	if (chunk->size > pins->block_bytes) {
		pins->block = chunk->address + HL_CHUNK_BLOCK;
		pins->block_bytes = chunk->size - HL_CHUNK_HEADER;
	}
}

/* Pages in a row end. */
static int end_run(struct hl_pins *pins, struct hl_heap *heap)
{
	uint64_t mask = pins->page_bytes - 1;
	struct hl_heap_pin pin = pins->run;
	uint64_t first = (pins->run_first_chunk + TRIM_KEPT + mask) & ~mask;

	pins->run.end = 0;
	first = first > pin.start ? first : pin.start;
	if (first >= pin.end)
		return 0;
	pin.returned_bytes = pin.end - first;
	return HL_ARRAY_APPEND(heap->pins, heap->pin_count, heap->pin_capacity, pin);
}

/* A pinned page extends the run, any other ends it. */
static int end_page(struct hl_pins *pins, const struct hl_pages *pages, struct hl_heap *heap)
{
	struct hl_heap_pin *run = &pins->run;

	if (pins->is_blocked || !pins->live_blocks ||
	    pins->live_bytes > pins->page_bytes / LIVE_SHARE ||
	    !hl_pages_contain(pages, pins->page))
		return end_run(pins, heap);
	if (!run->end) {
		*run = (struct hl_heap_pin){.start = pins->page};
		pins->run_first_chunk = pins->first_chunk;
		pins->straddles = false;
	}
	run->end = pins->page + pins->page_bytes;
	run->live_bytes += pins->live_bytes;
	run->live_blocks += pins->live_blocks - pins->straddles;
	if (pins->block_bytes > run->block_bytes) {
		run->block = pins->block;
		run->block_bytes = pins->block_bytes;
	}
	return 0;
}

static void begin_page(struct hl_pins *pins, uint64_t page, uint64_t first_chunk)
{
	pins->page = page;
	pins->first_chunk = first_chunk;
	pins->live_bytes = pins->live_blocks = pins->block_bytes = 0;
	pins->is_blocked = pins->straddles = false;
}

/* Reports the next chunk; ${pages} are those in memory. 0 or -ENOMEM. */
static int pins_chunk(struct hl_pins *pins, const struct hl_chunk *chunk,
		      const struct hl_pages *pages, struct hl_heap *heap)
{
	uint64_t at = chunk->address, end = at + chunk->size, mask = pins->page_bytes - 1;
	int r = 0;

	if (!pins->page)
		begin_page(pins, at & ~mask, at);
	while (end >= pins->page + pins->page_bytes && r == 0) {
		uint64_t page_end = pins->page + pins->page_bytes;
		add_part(pins, chunk, page_end - at);
		r = end_page(pins, pages, heap);
		at = page_end;
		/* pages of one chunk alone are not pinned */
		if (r == 0 && end - at >= pins->page_bytes) {
			r = end_run(pins, heap);
			at = end & ~mask;
		}
		begin_page(pins, at, at < end ? chunk->address : at);
	}
	if (at < end && r == 0)
		add_part(pins, chunk, end - at);
	return r;
}

static int compare(const void *a, const void *b)
{
	const struct hl_heap_pin *x = a, *y = b;

	if (x->returned_bytes != y->returned_bytes)
		return x->returned_bytes < y->returned_bytes ? 1 : -1;
	return (x->start > y->start) - (x->start < y->start);
}

void hl_pins_sort(struct hl_heap *heap)
{
	if (heap->pin_count)
		qsort(heap->pins, heap->pin_count, sizeof(*heap->pins), compare);
}

/* ---- sums over chunks ---- */

/* malloc_trim keeps the first bytes of a free chunk: they hold its links. */
#define TRIM_KEPT 48u

/* malloc_trim also leaves this much of the top in place. */
#define TOP_KEPT (HL_CHUNK_MIN + 1)

static struct hl_carrier *carrier_of(struct hl_account *account)
{
	return &account->heap->carriers.carriers[account->carrier];
}

int hl_account_begin(struct hl_account *account, const char *type, uint64_t start, uint64_t end,
		     uint32_t arena)
{
	struct hl_carrier *carrier = hl_carriers_add(&account->heap->carriers);
	uint32_t parts = account->settings->strip_count;

	if (!carrier)
		return -ENOMEM;
	if (parts) {
		carrier->strip = calloc(parts, sizeof(*carrier->strip));
		if (!carrier->strip)
			return -ENOMEM;
		carrier->strip_count = parts;
	}
	pins_begin(&account->pins, account->page_bytes);
	carrier->total_bytes = end - start;
	account->carrier = account->heap->carriers.count - 1;
	account->arena = arena;
	account->free_start = 0;
	snprintf(carrier->allocator, sizeof(carrier->allocator), "glibc");
	snprintf(carrier->type, sizeof(carrier->type), "%s", type);
	carrier->address = start;
	carrier->arena = arena;
	carrier->block_kinds = 1;
	strcpy(carrier->blocks[0].type, "block");
	if (arena != UINT32_MAX) {
		account->heap->arenas[arena].carriers++;
		carrier->in_pool = arena > 0 && account->heap->arenas[arena].threads == 0;
	}
	return 0;
}

void hl_account_pages(void *context, const struct hl_pages *pages)
{
	struct hl_account *account = context;

	account->pages = pages;
	account->page_run = 0;
}

/* Bytes of [${start}, ${end}) in memory, as RSS counts it. Calls must come in rising order of address. */
static uint64_t resident(struct hl_account *account, uint64_t start, uint64_t end)
{
	const struct hl_pages *pages = account->pages;
	uint64_t bytes = 0;

	while (account->page_run < pages->count && pages->runs[account->page_run].end <= start)
		account->page_run++;
	for (size_t i = account->page_run; i < pages->count && pages->runs[i].start < end; i++) {
		uint64_t from = pages->runs[i].start > start ? pages->runs[i].start : start;
		uint64_t to = pages->runs[i].end < end ? pages->runs[i].end : end;
		bytes += pages->runs[i].kind & HL_PAGE_BESIDE_RSS ? 0 : to - from;
	}
	return bytes;
}

/*
 * malloc_trim first joins adjacent free chunks. It then returns the whole pages of each, but for
 * its first bytes, and what the top can spare. A row of free chunks ends at ${chunk} unless that is
 * free, too.
 */
static void account_trim(struct hl_account *account, const struct hl_chunk *chunk)
{
	uint64_t page = account->page_bytes, end = chunk->address;
	uint64_t start = account->free_start ? account->free_start : chunk->address;

	if (chunk->kind == HL_CHUNK_FREE || chunk->kind == HL_CHUNK_FASTBIN) {
		account->free_start = start;
		return;
	}
	if (chunk->kind == HL_CHUNK_TOP) {
		end += chunk->size;
		uint64_t spare =
			account->trim_unit && end - start > TOP_KEPT ? end - start - TOP_KEPT : 0;
		start = spare ? end - spare / account->trim_unit * account->trim_unit : end;
	} else {
		start = (start + TRIM_KEPT + page - 1) & ~(page - 1);
		end &= ~(page - 1);
	}
	if (start < end)
		account->heap->arenas[account->arena].trimmable_bytes +=
			hl_pages_count_in(account->pages, start, end) * page;
	account->free_start = 0;
}

/* ---- pictures ---- */

static void draw(struct hl_account *account, const struct hl_chunk *chunk)
{
	static const enum hl_stretch_kind stretches[] = {
		[HL_CHUNK_LIVE] = HL_STRETCH_LIVE,
		[HL_CHUNK_TCACHE] = HL_STRETCH_CACHED,
		[HL_CHUNK_FASTBIN] = HL_STRETCH_CACHED,
		[HL_CHUNK_FREE] = HL_STRETCH_FREE_ABSENT,
		[HL_CHUNK_TOP] = HL_STRETCH_FREE_ABSENT,
		[HL_CHUNK_OWN] = HL_STRETCH_LIVE,
		[HL_CHUNK_UNSCANNED] = HL_STRETCH_UNSCANNED,
	};
	enum hl_stretch_kind stretch = stretches[chunk->kind];
	const struct hl_carrier *carrier = carrier_of(account);
	uint64_t at = chunk->address, end = at + chunk->size;
	uint32_t last = carrier->strip_count - 1;
	__uint128_t offset = at > carrier->address ? at - carrier->address : 0;
	__uint128_t first =
		carrier->total_bytes ? offset * carrier->strip_count / carrier->total_bytes : 0;
	uint32_t part = first < last ? (uint32_t)first : last;

	for (uint64_t part_end; at < end; at = part_end, part++) {
		part_end = part < last ? hl_carrier_part_start(carrier, part + 1) : end;
		part_end = part_end < at ? at : part_end < end ? part_end : end;
		uint64_t in_memory =
			stretch == HL_STRETCH_FREE_ABSENT ? resident(account, at, part_end) : 0;
		carrier->strip[part][HL_STRETCH_FREE_RESIDENT] += in_memory;
		carrier->strip[part][stretch] += part_end - at - in_memory;
	}
}

/* ---- kinds ---- */

static void add_live(struct hl_account *account, const struct hl_chunk *chunk, uint64_t in_memory)
{
	struct hl_heap_arena *arena = &account->heap->arenas[account->arena];
	struct hl_carrier *carrier = carrier_of(account);
	struct hl_heap_rss *rss = &account->heap->rss;
	uint64_t header = in_memory < HL_CHUNK_HEADER ? in_memory : HL_CHUNK_HEADER;

	arena->inuse_blocks++;
	arena->inuse_bytes += chunk->size - HL_CHUNK_HEADER;
	carrier->allocated_blocks++;
	carrier->allocated_bytes += chunk->size - HL_CHUNK_HEADER;
	rss->overhead_bytes += header;
	rss->live_bytes += in_memory - header;
}

static void add_cached(struct hl_account *account, const struct hl_chunk *chunk, uint64_t in_memory)
{
	struct hl_heap_arena *arena = &account->heap->arenas[account->arena];
	struct hl_carrier *carrier = carrier_of(account);

	if (chunk->kind == HL_CHUNK_TCACHE) {
		arena->tcache_blocks++;
		arena->tcache_bytes += chunk->size;
	} else {
		arena->fastbin_blocks++;
		arena->fastbin_bytes += chunk->size;
	}
	carrier->cached_blocks++;
	carrier->cached_bytes += chunk->size;
	account->heap->rss.cached_bytes += in_memory;
}

static void add_free(struct hl_account *account, const struct hl_chunk *chunk, uint64_t in_memory)
{
	struct hl_heap_arena *arena = &account->heap->arenas[account->arena];
	struct hl_carrier *carrier = carrier_of(account);

	if (chunk->kind == HL_CHUNK_TOP)
		arena->top_bytes += chunk->size;
	arena->free_blocks++;
	arena->free_bytes += chunk->size;
	if (chunk->size > arena->largest_free_bytes)
		arena->largest_free_bytes = chunk->size;
	arena->free_resident_bytes += in_memory;
	carrier->free_blocks++;
	carrier->free_bytes += chunk->size;
	carrier->free_resident_bytes += in_memory;
	if (chunk->size > carrier->largest_free_bytes)
		carrier->largest_free_bytes = chunk->size;
	carrier->free_histogram.counts[hl_log2_slot(&account->free_shape, chunk->size)]++;
	account->heap->rss.free_bytes += in_memory;
}

/* ${resident_bytes}: of the usable ones. */
static int call_block(struct hl_account *account, uint64_t block, uint64_t usable_bytes,
		      uint64_t last_word, uint64_t resident_bytes)
{
	const struct hl_heap_settings *settings = account->settings;
	int r = settings->block ? settings->block(settings->context, block, usable_bytes, last_word)
				: 0;

	for (size_t i = 0; i < account->heap->guest_count && r == 0; i++)
		r = account->heap->guests[i].guest->heap.add_block(account->heap->guests[i].kept,
								   block, usable_bytes);
	return r == 0 && settings->resident
		       ? settings->resident(settings->context, block, usable_bytes, resident_bytes)
		       : r;
}

static int call_live(struct hl_account *account, const struct hl_chunk *chunk, uint64_t in_memory)
{
	return call_block(account, chunk->address + HL_CHUNK_BLOCK, chunk->size - HL_CHUNK_HEADER,
			  chunk->last_word,
			  in_memory > HL_CHUNK_HEADER ? in_memory - HL_CHUNK_HEADER : 0);
}

static int account_chunk(struct hl_account *account, const struct hl_chunk *chunk)
{
	uint64_t in_memory = resident(account, chunk->address, chunk->address + chunk->size);
	struct hl_addresses *caches = &account->cache_blocks;

	account_trim(account, chunk);
	carrier_of(account)->resident_bytes += in_memory;
	if (carrier_of(account)->strip)
		draw(account, chunk);
	if (account->settings->want_pins &&
	    pins_chunk(&account->pins, chunk, account->pages, account->heap) < 0)
		return -ENOMEM;
	switch (chunk->kind) {
	case HL_CHUNK_LIVE:
		add_live(account, chunk, in_memory);
		if (chunk->size >= account->cache_size &&
		    chunk->size <= account->cache_size + HL_CHUNK_MIN &&
		    HL_ARRAY_APPEND(caches->addresses, caches->count, caches->capacity,
				    chunk->address + HL_CHUNK_BLOCK) < 0)
			return -ENOMEM;
		return call_live(account, chunk, in_memory);
	case HL_CHUNK_TCACHE:
		add_cached(account, chunk, in_memory);
		return HL_ARRAY_APPEND(account->cached, account->cached_count,
				       account->cached_capacity,
				       (struct hl_cached_chunk){*chunk, in_memory, account->carrier,
								account->arena});
	case HL_CHUNK_FASTBIN:
		add_cached(account, chunk, in_memory);
		break;
	case HL_CHUNK_FREE:
	case HL_CHUNK_TOP:
		add_free(account, chunk, in_memory);
		break;
	case HL_CHUNK_OWN:
		account->heap->rss.overhead_bytes += in_memory;
		break;
	case HL_CHUNK_UNSCANNED:
		account->heap->arenas[account->arena].unscanned_bytes += chunk->size;
		carrier_of(account)->unscanned_bytes += chunk->size;
		account->heap->rss.unscanned_bytes += in_memory;
		break;
	}
	return 0;
}

int hl_account_chunks(void *context, const struct hl_chunk *chunks, size_t count)
{
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++)
		r = account_chunk(context, &chunks[i]);
	return r;
}

int hl_account_revive(struct hl_account *account, const struct hl_cached_chunk *cached)
{
	const struct hl_chunk *chunk = &cached->chunk;
	struct hl_heap_arena *arena = &account->heap->arenas[cached->arena];

	account->arena = cached->arena;
	account->carrier = cached->carrier;
	arena->tcache_blocks--;
	arena->tcache_bytes -= chunk->size;
	carrier_of(account)->cached_blocks--;
	carrier_of(account)->cached_bytes -= chunk->size;
	carrier_of(account)->blocks[0].count++;
	carrier_of(account)->blocks[0].bytes += chunk->size - HL_CHUNK_HEADER;
	account->heap->rss.cached_bytes -= cached->in_memory;
	add_live(account, chunk, cached->in_memory);
	return call_live(account, chunk, cached->in_memory);
}

void hl_account_release(struct hl_account *account)
{
	hl_addresses_release(&account->cache_blocks);
	free(account->cached);
}

void hl_account_end(struct hl_account *account, uint64_t end)
{
	struct hl_carrier *carrier = carrier_of(account);

	carrier->total_bytes = end - carrier->address;
	carrier->blocks[0].count = carrier->allocated_blocks;
	carrier->blocks[0].bytes = carrier->allocated_bytes;
}

int hl_account_mmapped(struct hl_account *account, uint64_t start, uint64_t end, uint64_t block,
		       uint64_t usable_bytes, uint64_t last_word)
{
	struct hl_heap *heap = account->heap;

	if (hl_account_begin(account, "mmapped chunk", start, end, UINT32_MAX) < 0)
		return -ENOMEM;
	struct hl_carrier *carrier = carrier_of(account);
	carrier->allocated_blocks = 1;
	carrier->allocated_bytes = usable_bytes;
	uint64_t block_end = block + usable_bytes;
	uint64_t around = resident(account, start, block);
	uint64_t in_memory = resident(account, block, block_end);
	around += resident(account, block_end, end);
	carrier->resident_bytes = around + in_memory;
	for (uint32_t i = 0; i < carrier->strip_count; i++)
		carrier->strip[i][HL_STRETCH_LIVE] =
			hl_carrier_part_start(carrier, i + 1) - hl_carrier_part_start(carrier, i);
	heap->rss.overhead_bytes += around;
	heap->rss.live_bytes += in_memory;
	heap->mmapped_blocks++;
	heap->mmapped_bytes += end - start;
	hl_account_end(account, end);
	return call_block(account, block, usable_bytes, last_word, in_memory);
}
