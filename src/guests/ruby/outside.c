/* SPDX-License-Identifier: BSD-2-Clause */
/* Pages of Ruby's objects, of another process; see guests/outside.h. */
#include "guests/outside.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "cli/cli.h"
#include "heap/heap.h"
#include "heap/memory.h"
#include "view/heap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- pages ---- */

/*
 * The collector cuts its objects from pages of 16 KiB (until 3.1) or 64 KiB, aligned to their size, which it maps, or gets from
 * malloc. Each begins with the address of what is known of it (struct heap_page of gc.c), which says where its slots begin, how
 * many there are, and how large they are: those of one size are a pool. A slot whose first word is 0 is free. No symbols are needed.
 */
#define PAGE_MAX  (UINT64_C(64) << 10)
#define PAGE_MIN  (UINT64_C(16) << 10)
#define SLOT_MIN  40u
#define SLOTS_MAX (PAGE_MAX / SLOT_MIN)
#define POOLS	  5u /* of 40, 80, 160, 320 and 640 bytes */
#define SAMPLES	  32u

/* How struct heap_page begins. From 3.4 on the address of the page itself comes before that of the first slot. */
struct page {
	int16_t slot_bytes, slots, free_slots, others[2];
	uint32_t flags;
	uint64_t pool, next, first, after;
};

static_assert(offsetof(struct page, first) == 32, "as in gc.c");

/* Bitmaps with a bit for each 40 bytes of a page: where those of marked and of pinned slots are, and how many words each has. */
struct bitmaps {
	uint32_t marked, pinned, words;
};

#define BITMAP_WORDS_MAX 26u

static const struct bitmaps bitmaps_of_min = {120, 288, 7};
static const struct bitmaps bitmaps_of_max = {272, 1104, BITMAP_WORDS_MAX};

/* The number of the pool with slots of ${bytes}; POOLS: none has. */
static uint32_t pool_of(int16_t bytes)
{
	uint32_t pool = 0;

	while (pool < POOLS && bytes != (int16_t)(SLOT_MIN << pool))
		pool++;
	return pool;
}

/* Whether the page of ${bytes} at ${address} is what ${page} says: its slots fill it. */
static bool is_page(const struct page *page, uint64_t address, uint64_t bytes)
{
	uint64_t first = page->first - address, slot = (uint64_t)page->slot_bytes;
	uint64_t end = first + (uint64_t)page->slots * slot;

	return pool_of(page->slot_bytes) < POOLS && page->slots > 0 && page->free_slots >= 0 &&
	       page->free_slots <= page->slots && first >= 8 && first < 8 + SLOT_MIN + slot &&
	       end <= bytes && end + slot > bytes;
}

/* How many bytes the page at ${address} has, and what is known of it; 0: there is none. *${ret_known}: where that lies, for
 * bitmaps. */
static uint64_t read_page(struct hl_memory *memory, uint64_t address, struct page *ret_page,
			  uint64_t *ret_known)
{
	uint64_t known;

	if (hl_memory_read(memory, address, &known, sizeof(known)) < 0 || !known || known & 7 ||
	    !hl_maps_find(&memory->maps, known) ||
	    hl_memory_read_present(memory, known, ret_page, sizeof(*ret_page)) < 0)
		return 0;
	/* From 3.4 on. */
	if (ret_page->first == address) {
		ret_page->first = ret_page->after;
		known += sizeof(ret_page->first);
	}
	*ret_known = known;
	return is_page(ret_page, address, PAGE_MIN)			       ? PAGE_MIN
	       : !(address % PAGE_MAX) && is_page(ret_page, address, PAGE_MAX) ? PAGE_MAX
									       : 0;
}

static uint64_t pool_bytes(struct hl_memory *memory, uint64_t start, uint64_t end,
			   const struct hl_pages *pages)
{
	uint64_t step = ((end - start) / SAMPLES + PAGE_MAX) & ~(PAGE_MAX - 1), known, found = 0;
	unsigned asked = 0, held = 0;
	struct page page;

	for (uint64_t at = (start + PAGE_MAX - 1) & ~(PAGE_MAX - 1); at < end; at += step) {
		if (!hl_pages_contain(pages, at))
			continue;
		uint64_t bytes = read_page(memory, at, &page, &known);
		asked++;
		held += bytes != 0;
		found = bytes ? bytes : found;
	}
	return held > asked / 2 ? found : 0;
}

/* ---- the transient heap ---- */

/*
 * Until 3.2 elements of small arrays, tables of small hashes and members of small objects lie at first in an arena of 32 MiB
 * (transient_heap.c), which is mapped. It consists of blocks, aligned to their size; from each, elements are cut one after the
 * other, behind a header that has their object. Blocks are emptied as a whole, by a collection, which moves what is left to malloc.
 */
#define BLOCK_BYTES    (UINT64_C(32) << 10)
#define ELEMENTS_MAGIC 0xfeabu
#define UNMARKED       (-1)
#define OBJECT_WORDS   5u /* of its slot, one of which leads to its elements */

struct block {
	int16_t used_bytes, last_marked, elements;
	uint64_t next;
};

struct elements {
	uint16_t magic, bytes; /* with this header */
	int16_t next_marked, unused;
	uint64_t object;
};

static_assert(sizeof(struct block) == 16 && sizeof(struct elements) == 16,
	      "as in transient_heap.c");

struct transient {
	uint64_t bytes; /* 0: there is none */
	uint64_t cut_bytes, live_elements, live_bytes;
};

/* Elements at ${address} that belong to ${object}, if that is so still. */
struct owned {
	uint64_t object, address, bytes;
};

/* Whether a block of an arena that lies in [${start}, ${end}) begins at ${address}. */
static bool read_block(struct hl_memory *memory, uint64_t start, uint64_t end, uint64_t address,
		       struct block *ret_block)
{
	const int room = (int)(BLOCK_BYTES - sizeof(*ret_block));

	return hl_memory_read(memory, address, ret_block, sizeof(*ret_block)) == 0 &&
	       ret_block->used_bytes >= 0 && ret_block->used_bytes <= room &&
	       ret_block->last_marked >= UNMARKED && ret_block->last_marked <= room &&
	       (ret_block->elements > 0) == (ret_block->used_bytes > 0) &&
	       (ret_block->used_bytes || ret_block->last_marked == UNMARKED) &&
	       (!ret_block->next || (ret_block->next >= start && ret_block->next < end &&
				     ret_block->next % BLOCK_BYTES == 0));
}

static uint64_t first_block(uint64_t start)
{
	return (start + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1);
}

/* All blocks of an arena are linked to others from the start on. */
static uint64_t transient_bytes(struct hl_memory *memory, uint64_t start, uint64_t end,
				const struct hl_pages *pages)
{
	uint64_t step = first_block((end - start) / SAMPLES + 1);
	unsigned asked = 0, held = 0, linked = 0;
	struct block block;

	for (uint64_t at = first_block(start); at < end; at += step) {
		if (!hl_pages_contain(pages, at))
			continue;
		bool is_block = read_block(memory, start, end, at, &block);
		asked++;
		held += is_block;
		linked += is_block && block.next;
	}
	return held > asked / 2 && linked > 1 ? BLOCK_BYTES : 0;
}

static int compare_objects(const void *left, const void *right)
{
	const struct owned *a = left, *b = right;

	return (a->object > b->object) - (a->object < b->object);
}

/* Appends what has been cut from the block at ${address}. 0 or -ENOMEM. */
static int add_elements(struct hl_memory *memory, uint64_t address, const struct block *block,
			struct owned **owned, size_t *count, size_t *capacity)
{
	uint8_t bytes[BLOCK_BYTES];
	uint32_t used = (uint32_t)block->used_bytes;
	struct elements header;
	int r = 0;

	address += sizeof(*block);
	if (hl_memory_read(memory, address, bytes, used) < 0)
		return 0;
	for (uint32_t at = 0; at + sizeof(header) <= used && r == 0; at += header.bytes) {
		memcpy(&header, bytes + at, sizeof(header));
		if (header.magic != ELEMENTS_MAGIC || header.bytes < sizeof(header))
			break;
		r = HL_ARRAY_APPEND(*owned, *count, *capacity,
				    (struct owned){header.object, address + at + sizeof(header),
						   header.bytes - sizeof(header)});
	}
	return r;
}

/* Counts those elements of ${owned} that their object leads to. By pages, which are read once each. */
static void count_live(struct hl_memory *memory, struct owned *owned, size_t count,
		       struct transient *transient)
{
	uint64_t words[PAGE_MIN / 8 + OBJECT_WORDS] = {0}, page = 0;

	if (count)
		qsort(owned, count, sizeof(*owned), compare_objects);
	for (size_t i = 0; i < count; i++) {
		uint64_t object = owned[i].object & ~UINT64_C(7);
		if (!page || object / PAGE_MIN != page / PAGE_MIN) {
			page = object & ~(PAGE_MIN - 1);
			if (hl_memory_read_present(memory, page, words, PAGE_MIN) < 0)
				memset(words, 0, sizeof(words));
		}
		const uint64_t *slot = &words[object % PAGE_MIN / 8];
		bool is_live = false;
		for (uint32_t k = 1; k < OBJECT_WORDS && slot[0]; k++)
			is_live = is_live || slot[k] == owned[i].address;
		transient->live_elements += is_live;
		transient->live_bytes += is_live ? owned[i].bytes : 0;
	}
}

/* The arena in [${start}, ${end}). 0 or -ENOMEM. */
static int read_transient(struct hl_memory *memory, uint64_t start, uint64_t end,
			  struct transient *transient)
{
	HL_FREED struct owned *owned = NULL;
	size_t count = 0, capacity = 0;
	struct block block;
	int r = 0;

	for (uint64_t at = first_block(start); at < end && r == 0; at += BLOCK_BYTES) {
		if (!read_block(memory, start, end, at, &block))
			continue;
		transient->bytes += BLOCK_BYTES;
		transient->cut_bytes += (uint64_t)block.used_bytes;
		r = add_elements(memory, at, &block, &owned, &count, &capacity);
	}
	count_live(memory, owned, count, transient);
	return r;
}

static void describe_transient(struct hl_memory *memory, uint64_t start, uint64_t end,
			       char *ret_text, size_t capacity)
{
	struct transient transient = {0};

	if (read_transient(memory, start, end, &transient) == 0)
		snprintf(ret_text, capacity, "arena of %s, %s live", HL_HEAP_BYTES(transient.bytes),
			 HL_HEAP_BYTES(transient.live_bytes));
}

/* ---- all of them ---- */

struct pool {
	uint64_t slot_bytes, pages, slots, live_slots, live_bytes, free_slots, free_bytes;
	uint64_t slots_of_page;
	uint64_t empty_pages;  /* without a live slot */
	uint64_t pinned_slots; /* as of the last compaction */
	uint64_t held_pages;   /* with one of those */
	uint64_t pinned_pages; /* with nothing else that lives */
	uint64_t spare_pages;  /* that neither pinned slots hold nor all live ones need */
};

struct report {
	uint64_t page_bytes; /* 0: there are no pages */
	struct pool pools[POOLS];
	struct transient transient;
	uint64_t unread_pages; /* that changed meanwhile, or are not in memory */
	bool has_pinned;       /* the collector has noted which slots are pinned */
};

/* Of a page in memory that is not wholly there, the rest is zero, and so free. */
static int read_slots(struct hl_memory *memory, uint64_t address, uint64_t bytes, uint64_t *words)
{
	HL_CLEANUP(hl_pages_release) struct hl_pages pages = {0};

	memset(words, 0, bytes);
	int r = hl_memory_scan(memory, address, address + bytes, &pages);
	for (size_t i = 0; i < pages.count && r == 0; i++) {
		const struct hl_page_run *run = &pages.runs[i];
		r = hl_memory_read(memory, run->start, &words[(run->start - address) / 8],
				   run->end - run->start);
	}
	return r;
}

/*
 * How many slots are pinned: bits that the collector sets as it marks for a compaction, and clears at the next full collection. It
 * also sets them where an object was that it has moved, which is not marked.
 */
static uint32_t read_pinned(struct hl_memory *memory, uint64_t known, uint64_t bytes)
{
	const struct bitmaps *maps = bytes == PAGE_MIN ? &bitmaps_of_min : &bitmaps_of_max;
	uint64_t marked[BITMAP_WORDS_MAX], pinned[BITMAP_WORDS_MAX];
	size_t length = maps->words * sizeof(*marked);
	uint32_t bits = 0;

	if (hl_memory_read_present(memory, known + maps->marked, marked, length) < 0 ||
	    hl_memory_read_present(memory, known + maps->pinned, pinned, length) < 0)
		return 0;
	for (uint32_t i = 0; i < maps->words; i++)
		bits += (uint32_t)__builtin_popcountll(marked[i] & pinned[i]);
	return bits;
}

static int add_page(struct report *report, struct hl_memory *memory, uint64_t address)
{
	uint64_t words[PAGE_MAX / 8], known = 0;
	struct page page;

	uint64_t bytes = read_page(memory, address, &page, &known);
	if (!bytes)
		return 0;
	int r = read_slots(memory, address, bytes, words);
	if (r < 0) {
		report->unread_pages++;
		return r == -EFAULT ? 0 : r;
	}
	struct pool *pool = &report->pools[pool_of(page.slot_bytes)];
	uint32_t live = 0, pinned = read_pinned(memory, known, bytes);
	for (uint32_t i = 0; i < (uint32_t)page.slots; i++)
		live += words[(page.first - address + i * (uint64_t)page.slot_bytes) / 8] != 0;
	report->page_bytes = bytes;
	report->has_pinned |= pinned != 0;
	pool->pages++;
	pool->slots += (uint64_t)page.slots;
	pool->live_slots += live;
	pool->empty_pages += !live;
	pool->pinned_slots += pinned;
	pool->held_pages += pinned != 0;
	pool->pinned_pages += pinned && pinned == live;
	if ((uint64_t)page.slots > pool->slots_of_page)
		pool->slots_of_page = (uint64_t)page.slots;
	return 0;
}

static bool may_hold_pages(const struct hl_map *map)
{
	return !map->inode && map->flags & HL_MAP_WRITE &&
	       !(map->flags & (HL_MAP_SHARED | HL_MAP_EXEC | HL_MAP_RECORDER));
}

static void sum_up(struct report *report)
{
	for (uint32_t i = 0; i < POOLS; i++) {
		struct pool *pool = &report->pools[i];
		uint64_t needed =
			pool->slots_of_page
				? (pool->live_slots + pool->slots_of_page - 1) / pool->slots_of_page
				: 0;
		if (needed < pool->held_pages)
			needed = pool->held_pages;
		pool->slot_bytes = SLOT_MIN << i;
		pool->free_slots = pool->slots - pool->live_slots;
		pool->live_bytes = pool->live_slots * pool->slot_bytes;
		pool->free_bytes = pool->free_slots * pool->slot_bytes;
		pool->spare_pages = pool->pages > needed ? pool->pages - needed : 0;
	}
}

static int read_pages(struct hl_memory *memory, struct report *report)
{
	int r = 0;

	for (size_t i = 0; i < memory->maps.count && r == 0; i++) {
		HL_CLEANUP(hl_pages_release) struct hl_pages pages = {0};
		const struct hl_map *map = &memory->maps.maps[i];
		if (!may_hold_pages(map))
			continue;
		r = hl_memory_scan(memory, map->start, map->end, &pages);
		for (uint64_t at = (map->start + PAGE_MIN - 1) & ~(PAGE_MIN - 1);
		     at < map->end && r == 0; at += PAGE_MIN)
			if (hl_pages_contain(&pages, at))
				r = add_page(report, memory, at);
		if (r == 0 && transient_bytes(memory, map->start, map->end, &pages))
			r = read_transient(memory, map->start, map->end, &report->transient);
		if (r == -EFAULT)
			r = 0; /* a mapping that has gone meanwhile */
	}
	sum_up(report);
	return r;
}

/* ---- the report ---- */

static const struct hl_option heap_options[] = {
	{"ruby", 0, NULL, "also show the pages of Ruby's objects, by size of their slots",
	 HL_OPTION_FLAG, offsetof(struct hl_guest_request, pools), NULL},
	{0},
};

static int open_report(struct hl_memory *memory, const struct hl_guest_request *request,
		       void **ret_report)
{
	(void)memory;
	*ret_report = request->pools ? calloc(1, sizeof(struct report)) : NULL;
	return request->pools && !*ret_report ? -ENOMEM : 0;
}

static int add_block(void *report, uint64_t address, uint64_t usable_bytes)
{
	(void)report;
	(void)address;
	(void)usable_bytes;
	return 0;
}

static int read_report(void *kept, struct hl_memory *memory,
		       const struct hl_heap_settings *settings, struct hl_heap *heap,
		       struct hl_error *err)
{
	struct report *report = kept;

	(void)settings;
	int r = read_pages(memory, report);
	if (r < 0)
		return hl_error_set(err, r, "cannot read Ruby's pages: %s", strerror(-r));
	if (!report->page_bytes &&
	    hl_heap_note(heap, "no pages of Ruby's objects are in the process") < 0)
		return hl_error_set(err, -ENOMEM, "out of memory");
	return 0;
}

#define POOL(name) HL_MEMBER(struct pool, name)

static const struct hl_column pool_columns[] = {
	{"slot_bytes", "Ruby slot", HL_COLUMN_BYTES, POOL(slot_bytes), HL_COLUMN_KEY},
	{"pages", "pages", HL_COLUMN_COUNT, POOL(pages)},
	{"live_slots", "live", HL_COLUMN_COUNT, POOL(live_slots)},
	{"live_bytes", "bytes", HL_COLUMN_BYTES, POOL(live_bytes)},
	{"free_slots", "free", HL_COLUMN_COUNT, POOL(free_slots)},
	{"free_bytes", "free bytes", HL_COLUMN_BYTES, POOL(free_bytes)},
	{"empty_pages", "empty pages", HL_COLUMN_COUNT, POOL(empty_pages), HL_COLUMN_BLANK_ZERO},
	{"spare_pages", "spare", HL_COLUMN_COUNT, POOL(spare_pages), HL_COLUMN_BLANK_ZERO},
	{"pinned_slots", "pinned", HL_COLUMN_COUNT, POOL(pinned_slots), HL_COLUMN_BLANK_ZERO},
	{"pinned_pages", "only pinned", HL_COLUMN_COUNT, POOL(pinned_pages), HL_COLUMN_BLANK_ZERO},
};

static void emit_sums(struct hl_emit *emit, const struct report *report, const struct pool *sum)
{
	const struct transient *transient = &report->transient;
	uint64_t page = report->page_bytes;

	hl_emit_object(emit, "ruby");
	hl_emit_unsigned(emit, "page_bytes", page);
	hl_emit_unsigned(emit, "pages", sum->pages);
	hl_emit_unsigned(emit, "slots", sum->slots);
	hl_emit_unsigned(emit, "live_slots", sum->live_slots);
	hl_emit_unsigned(emit, "live_bytes", sum->live_bytes);
	hl_emit_unsigned(emit, "free_bytes", sum->free_bytes);
	hl_emit_unsigned(emit, "empty_pages", sum->empty_pages);
	hl_emit_unsigned(emit, "spare_pages", sum->spare_pages);
	hl_emit_unsigned(emit, "pinned_slots", sum->pinned_slots);
	hl_emit_unsigned(emit, "pinned_pages", sum->pinned_pages);
	hl_emit_unsigned(emit, "unread_pages", report->unread_pages);
	hl_emit_unsigned(emit, "transient_bytes", transient->bytes);
	hl_emit_unsigned(emit, "transient_cut_bytes", transient->cut_bytes);
	hl_emit_unsigned(emit, "transient_live_elements", transient->live_elements);
	hl_emit_unsigned(emit, "transient_live_bytes", transient->live_bytes);
	hl_emit_object_end(emit);
	hl_emit_line(emit,
		     "Ruby's objects use %s of %s in %s pages; %s are free for objects of the same "
		     "sizes, and GC.compact could give back at most %s, in %s pages%s",
		     HL_HEAP_BYTES(sum->live_bytes), HL_HEAP_BYTES(sum->pages * page),
		     HL_HEAP_COUNT(sum->pages), HL_HEAP_BYTES(sum->free_bytes),
		     HL_HEAP_BYTES(sum->spare_pages * page), HL_HEAP_COUNT(sum->spare_pages),
		     report->has_pinned ? "" : "; what is pinned is known after a compaction");
	if (report->has_pinned)
		hl_emit_line(emit,
			     "%s slots in %s pages were pinned at the last compaction; they alone "
			     "keep %s pages",
			     HL_HEAP_COUNT(sum->pinned_slots), HL_HEAP_COUNT(sum->held_pages),
			     HL_HEAP_COUNT(sum->pinned_pages));
	if (transient->bytes)
		hl_emit_line(emit,
			     "its transient heap of %s has given %s since its blocks were last "
			     "emptied; %s elements of arrays and hashes, %s, are live there",
			     HL_HEAP_BYTES(transient->bytes), HL_HEAP_BYTES(transient->cut_bytes),
			     HL_HEAP_COUNT(transient->live_elements),
			     HL_HEAP_BYTES(transient->live_bytes));
	if (report->unread_pages)
		hl_emit_line(emit, "%s pages could not be read; --stop reads all",
			     HL_HEAP_COUNT(report->unread_pages));
}

static void emit_report(struct hl_emit *emit, const void *kept, uint64_t row_limit)
{
	const struct report *report = kept;
	struct pool sum = {0};

	(void)row_limit;
	if (!report->page_bytes)
		return;
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("ruby_pools", pool_columns)});
	for (uint32_t i = 0; i < POOLS; i++) {
		const struct pool *pool = &report->pools[i];
		if (!pool->pages)
			continue;
		hl_table_row(emit, pool, 0);
		sum.pages += pool->pages;
		sum.slots += pool->slots;
		sum.live_slots += pool->live_slots;
		sum.live_bytes += pool->live_bytes;
		sum.free_bytes += pool->free_bytes;
		sum.empty_pages += pool->empty_pages;
		sum.spare_pages += pool->spare_pages;
		sum.pinned_slots += pool->pinned_slots;
		sum.held_pages += pool->held_pages;
		sum.pinned_pages += pool->pinned_pages;
	}
	hl_table_end(emit);
	emit_sums(emit, report, &sum);
}

/* ---- the table ---- */

const struct hl_guest_outside hl_guest_outside_ruby = {
	.pools = {.name = "Ruby objects (GC heap)",
		  .listed_by = "--ruby' shows the pages of Ruby's objects",
		  .pool_bytes = pool_bytes},
	.other_pools = {.name = "Ruby's transient heap",
			.listed_by = "--ruby' shows how much of that is live",
			.pool_bytes = transient_bytes,
			.describe = describe_transient},
	.heap = {open_report, add_block, read_report, emit_report, free},
	.options[HL_GUEST_OPTIONS_HEAP] = heap_options,
};
