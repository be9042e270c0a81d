/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds the pages and arenas of mimalloc 3 and reports them; see mimalloc.h.
 *
 * Until 3.4 a variable points to the map of pages: for each 512 MiB of addresses a table with one pointer for each slice, to its
 * page. The first entry, for addresses that no page has, points to a table that lies directly after the map, which tells the map
 * from other memory. Since 3.6 the first 512 KiB of each 256 MiB that have a page are a table of 128 bytes for each slice, which
 * begin with a pointer to the page. Pages are proven by themselves: each says which slices of which arena it has.
 */
#include "allocators/outside/mimalloc.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/error.h"
#include "heap/extents.h"

#include <errno.h>
#include <stdlib.h>

#define PROOFS	      64u   /* pages that choose the layout */
#define TABLE_SLICES  8192u /* of the map */
#define TABLE_BYTES   (TABLE_SLICES * 8u)
#define TABLES_MAX    16384u /* 8 TiB of addresses */
#define MAPS_MAX      64u    /* words that might lead to the map */
#define GROUP_BYTES   (UINT64_C(256) << 20)
#define GROUP_SLICES  4096u
#define ENTRY_BYTES   128u
#define VARIABLES_MAX (UINT64_C(16) << 20) /* of a module, as for musl */
#define ARENA_WORDS   32u		   /* in which its bitmaps are named */
#define ARENAS_MAX    160u
#define CHUNKS_MAX    512u /* of a bitmap: 512 slices each */
#define SUBPROC_WORDS 64u

/* clang-format off */
#define FIELDS_TO_3_4 \
	.free = 8, .local_free = 24, .remote_free = 32, .used = 16, .capacity = 18, .reserved = 20, .block_size = 40, \
	.start = 48, .thread = 0, .flags = 0, .arena_kind = 7, .os_kind = 4, .remote_flags = 1
#define FIELDS_3_6 \
	.free = 16, .local_free = 24, .remote_free = 64, .used = 40, .capacity = 56, .reserved = 58, .block_size = 32, \
	.start = 48, .thread = 8, .own_thread = 8, .flags = 8, .arena_kind = 6, .os_kind = 3, .remote_flags = 1

static const struct hl_mi_page_layout layouts[] = {
	{FIELDS_3_6, .start_is = HL_MI_START_BYTES, .bytes = 128, .memid = 104},
	{FIELDS_TO_3_4, .start_is = HL_MI_START_POINTER, .bytes = 120, .memid = 96}, /* 3.0 to 3.3 */
	{FIELDS_TO_3_4, .start_is = HL_MI_START_WORDS, .bytes = 112, .memid = 88},   /* 3.4 */
	{FIELDS_TO_3_4, .start_is = HL_MI_START_POINTER, .bytes = 136, .memid = 112, .is_encoded = true},
	{FIELDS_TO_3_4, .start_is = HL_MI_START_WORDS, .bytes = 128, .memid = 104, .is_encoded = true},
};
#define LAYOUT_OF_GROUPS (&layouts[0])
/* clang-format on */

struct page {
	uint64_t at;
	uint64_t slice, end; /* its first one, and where its last one ends */
	uint64_t owner;	     /* its arena, or where its memory from the system begins */
	bool may_be_empty;
};

struct arena {
	uint64_t at, base;
	uint64_t slices, info_slices;
	uint64_t free_bits,
		purge_bits;	  /* where those lie of slices that are free, or wait for a purge */
	uint32_t purged_together; /* slices that a purge gives back only all at once */
};

struct reader {
	struct hl_mi_walker walker;
	struct page *pages; /* by slice, each once */
	size_t page_count, page_capacity;
	struct arena *arenas; /* by base */
	size_t arena_count, arena_capacity;
	uint64_t map, map_bytes; /* 0: it has groups */
	uint32_t maps_tried;
	struct hl_extents tables; /* of the map */
	uint8_t *table;		  /* the one that is being read */
	uint64_t *threads;	  /* that have pages: one entry for a run of pages of one */
	size_t thread_count, thread_capacity;
	uint32_t arena; /* of the slab heap: pages move between threads */
};

/* ---- pages ---- */

/* What a page says of its memory. */
struct memory_of {
	uint64_t owner, slice;
	uint64_t end;
	bool is_arena;
};

static bool find_memory(const struct hl_mi_page_layout *layout, const uint8_t *bytes, uint64_t at,
			struct memory_of *ret_of)
{
	const uint8_t *memid = bytes + layout->memid;
	uint32_t kind = hl_mi_half(memid + 16), index = hl_mi_half(memid + 8);
	uint64_t first = hl_mi_word(memid), slices = hl_mi_half(memid + 12);

	ret_of->owner = first;
	ret_of->is_arena = kind == layout->arena_kind;
	if (ret_of->is_arena) {
		uint64_t base = layout == LAYOUT_OF_GROUPS ? first & ~(GROUP_BYTES - 1) : first;
		ret_of->slice = base + (uint64_t)index * HL_MI_SLICE;
		ret_of->end = ret_of->slice + slices * HL_MI_SLICE;
		return first && slices && base % HL_MI_SLICE == 0;
	}
	/* Of the system: where it begins, and its bytes. The page lies at its start, or in its table. */
	ret_of->slice = at & ~(uint64_t)(HL_MI_SLICE - 1);
	ret_of->end = first + hl_mi_word(memid + 8);
	return kind >= layout->os_kind && kind < layout->arena_kind && first <= at &&
	       ret_of->end > at;
}

/* Reads the page at ${at}. 1; 0: the layout does not fit; or a negative errno. */
static int read_page(struct reader *reader, const struct hl_mi_page_layout *layout, uint64_t at,
		     struct hl_mi_page *ret_page, struct memory_of *ret_of)
{
	uint8_t bytes[256];
	int r = at % 8 ? 0 : hl_mi_copy(&reader->walker, at, bytes, layout->bytes);

	if (r < 0 || at % 8 || !find_memory(layout, bytes, at, ret_of))
		return r;
	*ret_page =
		(struct hl_mi_page){.at = at,
				    .area = ret_of->slice,
				    .end = ret_of->end,
				    .thread = hl_mi_word(bytes + layout->thread) & ~UINT64_C(15)};
	ret_page->is_own = layout->own_thread && (hl_mi_word(bytes + layout->thread) &
						  ~UINT64_C(3)) == layout->own_thread;
	return hl_mi_page_decode(layout, bytes, ret_page);
}

/* Adds the page to which slice ${slice} belongs. */
static int add_page(struct reader *reader, uint64_t at, uint64_t slice)
{
	if (!at || (reader->page_count && reader->pages[reader->page_count - 1].at == at))
		return 0;
	return HL_ARRAY_APPEND(reader->pages, reader->page_count, reader->page_capacity,
			       (struct page){.at = at, .slice = slice});
}

/* ---- the proof ---- */

/* Chooses the layout by which most of the first pages are pages. */
static int choose_layout(struct reader *reader)
{
	size_t most = 0, tried = reader->page_count < PROOFS ? reader->page_count : PROOFS;

	for (size_t k = 0; k < HL_COUNT_OF(layouts); k++) {
		size_t count = 0;
		for (size_t i = 0; i < tried; i++) {
			struct hl_mi_page page;
			struct memory_of of;
			int r = read_page(reader, &layouts[k], reader->pages[i].at, &page, &of);
			if (r < 0)
				return r;
			count += r == 1;
		}
		if (count > most) {
			most = count;
			reader->walker.layout = &layouts[k];
		}
	}
	/* A few may be changing, or have no blocks. */
	return most && most >= tried / 2 ? 0 : -ENOTSUP;
}

/* ---- the map of pages ---- */

/* Whether a map of pages may begin at ${address}. Sets its bytes. */
static bool is_map(struct hl_memory *memory, uint64_t address, uint64_t *ret_bytes)
{
	uint64_t first;

	if (!address || address % memory->page_bytes || !hl_maps_find(&memory->maps, address) ||
	    hl_memory_read_present(memory, address, &first, sizeof(first)) < 0 || first <= address)
		return false;
	*ret_bytes = first - address;
	/* 47 or 48 bits of addresses. */
	return *ret_bytes == UINT64_C(2) << 20 || *ret_bytes == UINT64_C(4) << 20;
}

/* Adds the pages of the map's table ${index} at ${table}, if one may be there, and has not been read. */
static int list_table(struct reader *reader, uint64_t index, uint64_t table)
{
	struct hl_memory *memory = reader->walker.memory;
	uint64_t first = index * TABLE_SLICES;

	if (!table || table % memory->page_bytes || reader->tables.count >= TABLES_MAX ||
	    !hl_maps_find(&memory->maps, table))
		return 0;
	int r = hl_extents_claim(&reader->tables, table, table + TABLE_BYTES);
	if (r != 1)
		return r;
	r = hl_mi_read(memory, table, reader->table, TABLE_BYTES);
	for (uint64_t s = 0; s < TABLE_SLICES && r == 0; s++)
		r = add_page(reader, hl_mi_word(reader->table + s * 8), (first + s) * HL_MI_SLICE);
	/* Before more are listed: other memory, too, begins with an address behind itself. */
	return r == 0 && !reader->walker.layout && reader->page_count >= PROOFS
		       ? choose_layout(reader)
		       : r;
}

static int list_tables(struct reader *reader)
{
	struct hl_memory *memory = reader->walker.memory;
	struct hl_pages pages = {0};
	uint8_t bytes[4096];
	int r = hl_memory_scan(memory, reader->map, reader->map + reader->map_bytes, &pages);

	for (size_t i = 0; i < pages.count && r == 0; i++)
		for (uint64_t at = pages.runs[i].start; at < pages.runs[i].end && r == 0;
		     at += sizeof(bytes)) {
			r = hl_memory_read(memory, at, bytes, sizeof(bytes));
			for (uint64_t k = 0; k < sizeof(bytes) && r == 0; k += 8)
				r = list_table(reader, (at - reader->map + k) / 8,
					       hl_mi_word(bytes + k));
		}
	hl_pages_release(&pages);
	return r == 0 && !reader->walker.layout ? choose_layout(reader) : r;
}

/* Lists the pages of the map at ${address}. 1; 0: there is none, or its pages are not proven; or a negative errno. */
static int try_map(struct reader *reader, uint64_t address)
{
	if (reader->maps_tried >= MAPS_MAX ||
	    !is_map(reader->walker.memory, address, &reader->map_bytes))
		return 0;
	reader->maps_tried++;
	reader->map = address;
	int r = list_tables(reader);
	if (r == 0)
		return 1;
	reader->map = 0;
	reader->page_count = reader->tables.count = 0;
	reader->walker.layout = NULL;
	return r == -ENOTSUP || r == -EFAULT ? 0 : r;
}

/* A module's variables, and its .bss, which follows them without a file. */
static bool has_variables(const struct hl_maps *maps, size_t index)
{
	const struct hl_map *map = &maps->maps[index];

	if (!(map->flags & HL_MAP_WRITE) || map->flags & (HL_MAP_SHARED | HL_MAP_RECORDER))
		return false;
	return map->inode || (index && map[-1].end == map->start && map[-1].inode);
}

/* Looks for the variable that points to the map, and lists its pages. */
static int find_map(struct reader *reader)
{
	struct hl_memory *memory = reader->walker.memory;
	struct hl_pages pages = {0};
	uint8_t bytes[4096];
	uint64_t last = 0;
	int r = 0;

	for (size_t i = 0; i < memory->maps.count && r == 0; i++) {
		const struct hl_map *map = &memory->maps.maps[i];
		uint64_t end = map->end - map->start > VARIABLES_MAX ? map->start + VARIABLES_MAX
								     : map->end;
		pages.count = pages.page_count = 0;
		if (!has_variables(&memory->maps, i) ||
		    (r = hl_memory_scan(memory, map->start, end, &pages)) < 0)
			continue;
		for (size_t k = 0; k < pages.count; k++)
			for (uint64_t at = pages.runs[k].start; at < pages.runs[k].end;
			     at += sizeof(bytes)) {
				if (hl_memory_read(memory, at, bytes, sizeof(bytes)) < 0)
					continue;
				for (size_t w = 0; w < sizeof(bytes); w += 8) {
					uint64_t word = hl_mi_word(bytes + w);
					r = word == last ? 0 : try_map(reader, word);
					last = word;
					if (r != 0) {
						hl_pages_release(&pages);
						return r < 0 ? r : 0;
					}
				}
			}
	}
	hl_pages_release(&pages);
	return r;
}

/* ---- groups ---- */

/* Adds the pages of the table at the start of the group at ${group}. */
static int list_group(struct reader *reader, uint64_t group)
{
	int r = hl_mi_read(reader->walker.memory, group, reader->table, GROUP_SLICES * ENTRY_BYTES);

	for (uint64_t i = 0; i < GROUP_SLICES && r == 0; i++) {
		uint64_t at = hl_mi_word(reader->table + i * ENTRY_BYTES);
		uint64_t slice = group + i * HL_MI_SLICE;
		bool is_there = at == slice || (at > group && at <= group + i * ENTRY_BYTES &&
						at % ENTRY_BYTES == 0);
		if (is_there)
			r = add_page(reader, at, slice);
	}
	return r;
}

static int list_groups(struct reader *reader)
{
	struct hl_mi_addresses groups = {0};
	int r = hl_mi_find_present(reader->walker.memory, GROUP_BYTES, GROUP_SLICES * ENTRY_BYTES,
				   &groups);

	for (size_t i = 0; i < groups.count && r == 0; i++)
		r = list_group(reader, groups.at[i]);
	free(groups.at);
	return r == 0 ? choose_layout(reader) : r;
}

/* ---- arenas ---- */

/* Looks for the bitmaps of an arena's slices: those of the free ones, and three alike of other kinds. */
static bool find_bitmaps(const uint8_t *words, uint64_t at, struct hl_memory *memory,
			 struct arena *arena)
{
	for (size_t i = 4; i + 4 <= ARENA_WORDS; i++) {
		uint64_t maps[4], chunks, count;
		memcpy(maps, words + i * 8, sizeof(maps));
		chunks = (maps[2] - maps[1] - 128) / 64;
		if (maps[0] <= at || maps[1] <= maps[0] || maps[2] <= maps[1] || !chunks ||
		    chunks > CHUNKS_MAX || maps[2] - maps[1] != 128 + chunks * 64 ||
		    maps[3] - maps[2] != maps[2] - maps[1] ||
		    maps[1] - maps[0] < 128 + chunks * 64 ||
		    maps[1] - maps[0] > 2048 + chunks * 64 ||
		    hl_memory_read_present(memory, maps[0], &count, sizeof(count)) < 0 ||
		    count != chunks)
			continue;
		arena->free_bits = maps[1] - chunks * 64;
		arena->purge_bits = maps[3] + 128;
		for (size_t k = 3; k + 1 < i; k++) {
			uint64_t slices = hl_mi_word(words + k * 8);
			uint64_t info = hl_mi_word(words + k * 8 + 8);
			if (slices > (chunks - 1) * 512 && slices <= chunks * 512 && info &&
			    info < slices) {
				arena->slices = slices;
				arena->info_slices = info;
				/* 3.2 and 3.6, which their own places tell: where the kernel has huge pages. */
				arena->purged_together = i == 11 || i == 14 ? 32 : 1;
				return true;
			}
		}
	}
	return false;
}

/* Adds the arena at ${at}, if there is one that is not known yet. */
static int add_arena(struct reader *reader, uint64_t at, bool *ret_is_new)
{
	struct hl_memory *memory = reader->walker.memory;
	uint64_t base = reader->walker.layout == LAYOUT_OF_GROUPS ? at & ~(GROUP_BYTES - 1) : at;
	size_t place = HL_LOWER_BOUND(i, reader->arena_count, reader->arenas[i].base < base);
	struct arena arena = {.at = at, .base = base};
	uint8_t words[ARENA_WORDS * 8];

	*ret_is_new = false;
	if (!at || at % HL_MI_SLICE ||
	    (place < reader->arena_count && reader->arenas[place].base == base) ||
	    reader->arena_count >= ARENAS_MAX)
		return 0;
	int r = hl_mi_read(memory, at, words, sizeof(words));
	if (r < 0 || !find_bitmaps(words, at, memory, &arena))
		return r;
	if (HL_ARRAY_RESERVE(reader->arenas, reader->arena_capacity, reader->arena_count + 1) < 0)
		return -ENOMEM;
	memmove(&reader->arenas[place + 1], &reader->arenas[place],
		(reader->arena_count++ - place) * sizeof(*reader->arenas));
	reader->arenas[place] = arena;
	*ret_is_new = true;
	return 0;
}

/* Adds the arenas that are listed beside the one at ${at}: those without a page, too. */
static int add_listed(struct reader *reader, uint64_t at)
{
	uint8_t words[(SUBPROC_WORDS + ARENAS_MAX) * 8];
	uint64_t subproc;
	bool is_new;
	int r = hl_mi_read(reader->walker.memory, at + 24, (uint8_t *)&subproc, sizeof(subproc));

	if (r < 0 || !subproc || subproc % 8)
		return r;
	r = hl_mi_read(reader->walker.memory, subproc, words, sizeof(words));
	for (size_t i = 0; i < SUBPROC_WORDS && r == 0; i++) {
		if (hl_mi_word(words + i * 8) != at)
			continue;
		for (size_t k = i + 1; k < SUBPROC_WORDS + ARENAS_MAX && r == 0 &&
				       hl_mi_word(words + k * 8) % HL_MI_SLICE == 0;
		     k++)
			r = add_arena(reader, hl_mi_word(words + k * 8), &is_new);
		break;
	}
	return r;
}

/* ---- settling ---- */

static int by_slice(const void *left, const void *right)
{
	const struct page *a = left, *b = right;

	return (a->slice > b->slice) - (a->slice < b->slice);
}

static int add_thread(struct reader *reader, uint64_t id)
{
	if (!id || (reader->thread_count && reader->threads[reader->thread_count - 1] == id))
		return 0;
	return HL_ARRAY_APPEND(reader->threads, reader->thread_count, reader->thread_capacity, id);
}

static int by_id(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static uint32_t count_threads(struct reader *reader)
{
	uint32_t count = 0;

	if (reader->thread_count)
		qsort(reader->threads, reader->thread_count, sizeof(*reader->threads), by_id);
	for (size_t i = 0; i < reader->thread_count; i++)
		count += !i || reader->threads[i] != reader->threads[i - 1];
	return count;
}

/* Reads where each page's memory is, and the arenas; drops what is not a page now. */
static int settle_pages(struct reader *reader)
{
	size_t kept = 0;
	int r = 0;

	hl_mi_copy_anew(&reader->walker);
	for (size_t i = 0; i < reader->page_count && r >= 0; i++) {
		struct hl_mi_page page;
		struct memory_of of;
		bool is_new = false;
		r = read_page(reader, reader->walker.layout, reader->pages[i].at, &page, &of);
		if (r != 1)
			continue;
		r = of.is_arena ? add_arena(reader, of.owner, &is_new) : 0;
		if (r == 0 && is_new)
			r = add_listed(reader, of.owner);
		if (r == 0)
			r = add_thread(reader, page.thread);
		reader->pages[kept++] =
			(struct page){.at = page.at,
				      .slice = of.slice,
				      .end = of.end,
				      .owner = of.owner,
				      .may_be_empty = !page.used || page.remote_free};
	}
	reader->page_count = kept;
	if (kept)
		qsort(reader->pages, kept, sizeof(*reader->pages), by_slice);
	return r < 0 ? r : 0;
}

/* ---- reporting ---- */

/* Reports a page, unless it does not lie in [${from}, ${to}) now; sets where it ends. */
static int report_page(struct reader *reader, const struct page *known, uint64_t from, uint64_t to,
		       enum hl_slab_free empty, uint64_t *ret_end)
{
	struct hl_mi_page page;
	struct memory_of of;
	int r = read_page(reader, reader->walker.layout, known->at, &page, &of);

	*ret_end = from;
	if (r != 1 || page.area < from || page.end > to || page.area != known->slice)
		return r < 0 ? r : 0;
	*ret_end = page.end;
	if (page.is_own)
		return 0;
	return hl_mi_page_report(&reader->walker, &page, reader->arena, empty);
}

/* Where the last slice of the arena that was ever used ends: beyond it there is only address space. */
static int find_end(struct reader *reader, const struct arena *arena, uint64_t *ret_end)
{
	uint64_t end = arena->base + arena->slices * HL_MI_SLICE, last = arena->base;
	struct hl_pages pages = {0};
	int r = hl_memory_scan(reader->walker.memory, arena->base, end, &pages);
	size_t after = HL_LOWER_BOUND(i, reader->page_count, reader->pages[i].slice < end);

	if (pages.count)
		last = pages.runs[pages.count - 1].end;
	if (after && reader->pages[after - 1].end > last && reader->pages[after - 1].end <= end)
		last = reader->pages[after - 1].end;
	last = (last + HL_MI_SLICE - 1) & ~(uint64_t)(HL_MI_SLICE - 1);
	*ret_end = last > arena->base + arena->info_slices * HL_MI_SLICE ? last : end;
	hl_pages_release(&pages);
	return r;
}

/* What is known of the slices of an arena. */
struct slices {
	uint8_t *free, *purged; /* bits; mi_collect(true) would give back what is purged */
	uint64_t count;
};

static bool has_bit(const uint8_t *bits, uint64_t i)
{
	return bits[i / 8] >> i % 8 & 1;
}

/* Adds the pages that mi_collect(true) frees: those that a thread has, without a live block. */
static int add_empty_pages(struct reader *reader, const struct arena *arena, struct slices *slices)
{
	uint64_t end = arena->base + arena->slices * HL_MI_SLICE;
	size_t i = HL_LOWER_BOUND(k, reader->page_count, reader->pages[k].slice < arena->base);
	int r = 0;

	for (; i < reader->page_count && reader->pages[i].slice < end && r >= 0; i++) {
		struct hl_mi_page page;
		struct memory_of of;
		if (!reader->pages[i].may_be_empty)
			continue;
		r = read_page(reader, reader->walker.layout, reader->pages[i].at, &page, &of);
		if (r != 1 || !page.thread || page.area < arena->base || page.end > end ||
		    !hl_mi_page_is_empty(&reader->walker, &page))
			continue;
		for (uint64_t at = page.area; at < page.end; at += HL_MI_SLICE) {
			uint64_t slice = (at - arena->base) / HL_MI_SLICE;
			slices->purged[slice / 8] |= (uint8_t)(1 << slice % 8);
		}
	}
	return r < 0 ? r : 0;
}

/* Drops what is purged only together with slices beside it that are not. */
static void keep_whole_groups(struct slices *slices, uint32_t together)
{
	for (uint64_t i = 0; together > 1 && i < slices->count; i += together) {
		uint64_t end = i + together < slices->count ? i + together : slices->count, k = i;
		while (k < end && has_bit(slices->purged, k))
			k++;
		if (k == i + together)
			continue;
		for (k = i; k < end; k++)
			slices->purged[k / 8] &= (uint8_t) ~(1 << k % 8);
	}
}

static int read_slices(struct reader *reader, const struct arena *arena, struct slices *slices)
{
	size_t bytes = (arena->slices + 511) / 512 * 64;

	slices->count = arena->slices;
	slices->free = malloc(bytes);
	slices->purged = malloc(bytes);
	if (!slices->free || !slices->purged)
		return -ENOMEM;
	int r = hl_mi_read(reader->walker.memory, arena->free_bits, slices->free, bytes);
	if (r == 0)
		r = hl_mi_read(reader->walker.memory, arena->purge_bits, slices->purged, bytes);
	if (r == 0)
		r = add_empty_pages(reader, arena, slices);
	if (r == 0)
		keep_whole_groups(slices, arena->purged_together);
	return r;
}

static void release_slices(struct slices *slices)
{
	free(slices->free);
	free(slices->purged);
}

/* Where free slices from ${slice} on end of which a purge gives back all or none. */
static uint64_t end_of_free(const struct slices *slices, uint64_t slice)
{
	uint64_t end = slice + 1;

	while (end < slices->count && has_bit(slices->free, end) &&
	       has_bit(slices->purged, end) == has_bit(slices->purged, slice))
		end++;
	return end;
}

static enum hl_slab_free purge_of(const struct slices *slices, uint64_t slice)
{
	return has_bit(slices->purged, slice) ? HL_SLAB_FREE_PURGED : HL_SLAB_FREE_STAYS;
}

static int report_slices(struct reader *reader, const struct arena *arena,
			 const struct slices *slices, uint64_t end)
{
	uint64_t at = arena->base + arena->info_slices * HL_MI_SLICE;
	size_t i = HL_LOWER_BOUND(k, reader->page_count, reader->pages[k].slice < at);
	int r = 0;

	while (at < end && r == 0) {
		uint64_t slice = (at - arena->base) / HL_MI_SLICE, next = at + HL_MI_SLICE;
		while (i < reader->page_count && reader->pages[i].slice < at)
			i++;
		if (has_bit(slices->free, slice)) {
			next = arena->base + end_of_free(slices, slice) * HL_MI_SLICE;
			next = next < end ? next : end;
			hl_slab_free_run(&reader->walker.slabs, at, next, purge_of(slices, slice),
					 reader->arena);
		} else if (i < reader->page_count && reader->pages[i].slice == at) {
			uint64_t after;
			r = report_page(reader, &reader->pages[i], at, end, purge_of(slices, slice),
					&after);
			next = after > next ? after : next;
		}
		at = next;
	}
	return r;
}

static int report_arena(struct reader *reader, const struct arena *arena)
{
	HL_CLEANUP(release_slices) struct slices slices = {0};
	uint64_t end;
	int r = read_slices(reader, arena, &slices);

	if (r == 0)
		r = find_end(reader, arena, &end);
	if (r == 0)
		r = hl_slab_carrier_begin(&reader->walker.slabs, "arena", arena->base, end,
					  reader->arena);
	if (r == 0)
		r = report_slices(reader, arena, &slices, end);
	return r == 0 ? hl_slab_carrier_end(&reader->walker.slabs) : r;
}

/* A page that has its memory from the system, and one block. Sets where that ends. */
static int report_alone(struct reader *reader, const struct page *known, uint64_t *ret_end)
{
	struct hl_mi_page page;
	struct memory_of of;
	int r = read_page(reader, reader->walker.layout, known->at, &page, &of);

	if (r != 1 || of.is_arena || of.owner != known->owner)
		return r < 0 ? r : 0;
	*ret_end = of.end;
	r = hl_slab_carrier_begin(&reader->walker.slabs, "huge page", known->owner, of.end,
				  reader->arena);
	if (r == 0)
		r = report_page(reader, known, known->slice, of.end, HL_SLAB_FREE_PURGED, &of.end);
	return r == 0 ? hl_slab_carrier_end(&reader->walker.slabs) : r;
}

/* The map of pages and its tables. */
static int report_map(struct reader *reader)
{
	struct hl_slab_heap *slabs = &reader->walker.slabs;
	int r = hl_slab_carrier_begin(slabs, "metadata", reader->map,
				      reader->map + reader->map_bytes + TABLE_BYTES, reader->arena);

	if (r == 0)
		r = hl_slab_carrier_end(slabs);
	for (size_t i = 0; i < reader->tables.count && r == 0; i++) {
		const struct hl_extent *table = &reader->tables.extents[i];
		if (table->start == reader->map + reader->map_bytes)
			continue;
		r = hl_slab_carrier_begin(slabs, "metadata", table->start, table->end,
					  reader->arena);
		if (r == 0)
			r = hl_slab_carrier_end(slabs);
	}
	return r;
}

static int report(struct reader *reader)
{
	uint64_t at = reader->arena_count ? reader->arenas[0].at : reader->pages[0].slice,
		 before = 0;
	int r = hl_slab_arena_add(&reader->walker.slabs, at, count_threads(reader), &reader->arena);

	if (r < 0 || reader->walker.slabs.settings->only_arenas)
		return r;
	hl_mi_copy_anew(&reader->walker);
	/* In rising order; of damaged ones that overlap the later one is left out. */
	for (size_t i = 0, k = 0; r == 0 && (i < reader->arena_count || k < reader->page_count);) {
		const struct arena *arena = i < reader->arena_count ? &reader->arenas[i] : NULL;
		const struct page *page = k < reader->page_count ? &reader->pages[k] : NULL;
		if (arena && (!page || arena->base <= page->owner)) {
			i++;
			if (arena->base < before)
				continue;
			before = arena->base + arena->slices * HL_MI_SLICE;
			r = report_arena(reader, arena);
		} else {
			k++;
			if (page->owner >= before)
				r = report_alone(reader, page, &before);
		}
	}
	if (r == 0 && reader->map)
		r = report_map(reader);
	return r == 0 ? hl_mi_add_notes(&reader->walker) : r;
}

static void release(struct reader *reader)
{
	free(reader->pages);
	free(reader->arenas);
	hl_extents_release(&reader->tables);
	free(reader->threads);
	free(reader->table);
	hl_mi_walker_release(&reader->walker);
}

/* Finds all pages, and their layout. */
static int find_pages(struct reader *reader)
{
	int r;

	reader->table = malloc(GROUP_SLICES * ENTRY_BYTES);
	r = reader->table ? find_map(reader) : -ENOMEM;
	if (r == 0 && !reader->map)
		r = list_groups(reader);
	if (r == 0)
		r = settle_pages(reader);
	return r == 0 && !reader->page_count ? -ENOTSUP : r;
}

int hl_mi_arenas_read(struct hl_memory *memory, const struct hl_allocator_traits *allocator,
		      const struct hl_heap_settings *settings, struct hl_heap *heap,
		      struct hl_error *err)
{
	HL_CLEANUP(release) struct reader reader = {.walker = {.memory = memory}};
	int r = find_pages(&reader);

	if (r == -ENOTSUP)
		return r;
	if (r < 0)
		return hl_error_set(err, r, "cannot look for the heap of mimalloc: %s",
				    strerror(-r));
	if (reader.walker.layout->is_encoded)
		return hl_error_set(err, -ENOTSUP, "%s", hl_mi_encoded);
	r = hl_slab_heap_open(&reader.walker.slabs, memory, allocator, settings, heap, err);
	return r < 0 ? r : hl_slab_heap_close(&reader.walker.slabs, report(&reader), err);
}
