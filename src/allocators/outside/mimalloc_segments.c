/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds the segments of mimalloc 2 and reports them; see mimalloc.h.
 *
 * A segment lies at a multiple of 32 MiB and has that size, or more if it has one block. Its header has a struct for each slice;
 * that of a page's first slice is the page, that of a free span's says how many slices it has. A segment is proven by itself: its
 * spans follow each other up to its end, as many as it counts are pages, and each of those fits into its slices.
 */
#include "allocators/outside/mimalloc.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/error.h"

#include <errno.h>
#include <stdlib.h>

#define SEGMENT_BYTES  (UINT64_C(32) << 20)
#define SEGMENT_SLICES (SEGMENT_BYTES / HL_MI_SLICE)
#define INFO_MAX       4u
#define SLICES_MAX     (UINT64_C(1) << 30)
#define HEADER_BYTES   (64u << 10)
#define TRIES	       3u
#define DELAYED_MAX    (1u << 24)
#define PROOFS	       64u /* segments that choose the layout */

/* Offsets in a segment's header, and what else differs by release. */
struct layout {
	uint16_t expire, purge_mask; /* of what is to be purged; 64 bytes */
	uint16_t used, cookie, slices, info_slices, kind, entries, thread, first;
	uint16_t delayed;      /* in a thread's heap */
	uint16_t thread_bytes; /* of that heap and what lies with it */
	bool keeps_spans;      /* a purge leaves free spans between pages alone */
	struct hl_mi_page_layout page;
};

/* clang-format off */
#define HEADER_OLD \
	.expire = 40, .purge_mask = 48, .used = 208, .cookie = 216, .slices = 224, .info_slices = 232, .kind = 240, \
	.entries = 248, .thread = 256, .first = 264
#define HEADER_NEW \
	.expire = 48, .purge_mask = 56, .used = 216, .cookie = 224, .slices = 248, .info_slices = 256, .kind = 264, \
	.entries = 272, .thread = 280, .first = 288
/* KEYS: bytes of those by which lists are encoded. */
#define PAGE_OLD(START_IS, KEYS) \
	.page = {.start_is = START_IS, .bytes = 80 + (KEYS), .free = 16, .local_free = 32, .remote_free = 40 + (KEYS), \
		 .used = 24, .capacity = 10, .reserved = 12, .block_size = 28, .heap = 48 + (KEYS), .remote_flags = 3, \
		 .flags = 14, .is_encoded = (KEYS) > 0}
#define PAGE_NEW(KEYS) \
	.page = {.start_is = HL_MI_START_POINTER, .bytes = 96 + (KEYS), .free = 16, .local_free = 24, \
		 .remote_free = 56 + (KEYS), .used = 32, .capacity = 10, .reserved = 12, .block_size = 40, .start = 48, \
		 .heap = 64 + (KEYS), .remote_flags = 3, .flags = 14, \
		 .is_encoded = (KEYS) > 0}

static const struct layout layouts[] = {
	{HEADER_OLD, PAGE_OLD(HL_MI_START_AFTER_384, 0), .delayed = 2840, .thread_bytes = 8192, .keeps_spans = true}, /* 2.0.9 */
	{HEADER_OLD, PAGE_OLD(HL_MI_START_AFTER_BLOCK, 0), .delayed = 2840, .thread_bytes = 8192, .keeps_spans = true}, /* to 2.1.2 */
	{HEADER_OLD, PAGE_NEW(0), .delayed = 8, .thread_bytes = 8192},	/* 2.1.4 to 2.1.7 */
	{HEADER_NEW, PAGE_NEW(0), .delayed = 8, .thread_bytes = 12288}, /* 2.1.8 to 2.4 */
	{HEADER_OLD, PAGE_OLD(HL_MI_START_AFTER_384, 16)},
	{HEADER_OLD, PAGE_OLD(HL_MI_START_AFTER_BLOCK, 16)},
	{HEADER_OLD, PAGE_NEW(16)},
	{HEADER_NEW, PAGE_NEW(16)},
};
/* clang-format on */

struct segment {
	uint64_t address, slices;
};

struct reader {
	struct hl_mi_walker walker;
	const struct layout *layout;
	struct segment *segments; /* by address */
	size_t segment_count, segment_capacity;
	uint64_t *heaps; /* by address, each once */
	size_t heap_count, heap_capacity;
	struct hl_mi_addresses candidates; /* at which a segment may lie */
	uint64_t cookie;		   /* of all segments, but for their addresses */
	uint8_t *header;
	uint8_t uses[SEGMENT_SLICES]; /* of a segment's slices: enum slice_use */
	bool purged[SEGMENT_SLICES];  /* whether mi_collect(true) would give them back */
};

/* ---- headers ---- */

static uint64_t word_of(const struct reader *reader, uint16_t offset)
{
	return hl_mi_word(reader->header + offset);
}

/* The header's struct of slice ${i}. */
static const uint8_t *slice_at(const struct reader *reader, uint64_t i)
{
	return reader->header + reader->layout->first + i * reader->layout->page.bytes;
}

/* Slices from ${i} on that are one span; 0: none is. */
static uint64_t span_at(const struct reader *reader, uint64_t i)
{
	const uint8_t *slice = slice_at(reader, i);

	return hl_mi_half(slice + 4) ? 0 : hl_mi_half(slice);
}

static bool is_page(const struct reader *reader, uint64_t i)
{
	const struct hl_mi_page_layout *page = &reader->layout->page;
	const uint8_t *size = slice_at(reader, i) + page->block_size;

	/* 1: free slices of a segment that was freed itself. */
	return (page->start_is == HL_MI_START_POINTER ? hl_mi_word(size) : hl_mi_half(size)) > 1;
}

/* The page in slices [${i}, ${i} + ${span}) of the segment at ${address}. False: it does not fit there. */
static bool page_at(const struct reader *reader, uint64_t address, uint64_t i, uint64_t span,
		    struct hl_mi_page *ret_page)
{
	*ret_page = (struct hl_mi_page){.at = address +
					      (uint64_t)(slice_at(reader, i) - reader->header),
					.area = address + i * HL_MI_SLICE,
					.end = address + (i + span) * HL_MI_SLICE,
					.thread = word_of(reader, reader->layout->thread)};
	return hl_mi_page_decode(&reader->layout->page, slice_at(reader, i), ret_page);
}

/* Whether the counts of the header can be a segment's. */
static bool has_counts(const struct reader *reader)
{
	const struct layout *layout = reader->layout;
	uint64_t slices = word_of(reader, layout->slices),
		 kind = hl_mi_half(reader->header + layout->kind);
	uint64_t info = word_of(reader, layout->info_slices),
		 entries = word_of(reader, layout->entries);

	return word_of(reader, layout->cookie) && info && info <= INFO_MAX && kind <= 1 &&
	       slices > info && slices <= SLICES_MAX && (kind == 1 || slices == SEGMENT_SLICES) &&
	       entries <= SEGMENT_SLICES && entries > info &&
	       entries + 1 >= (slices < SEGMENT_SLICES ? slices : SEGMENT_SLICES) &&
	       layout->first + (entries + 1) * layout->page.bytes <= HEADER_BYTES &&
	       word_of(reader, layout->used) <= entries;
}

/* Whether the header is that of a segment at ${address}. */
static bool is_segment(const struct reader *reader, uint64_t address)
{
	const struct layout *layout = reader->layout;
	uint64_t pages = 0, i = 0, span;

	if (!has_counts(reader) || span_at(reader, 0) != word_of(reader, layout->info_slices))
		return false;
	uint64_t entries = word_of(reader, layout->entries);
	bool is_huge = hl_mi_half(reader->header + layout->kind) == 1;
	for (i = span_at(reader, 0); i < entries; i += span) {
		struct hl_mi_page page;
		span = span_at(reader, i);
		if (!span || i + span > (is_huge ? word_of(reader, layout->slices) : entries))
			return false;
		if (!is_page(reader, i))
			continue;
		if (!page_at(reader, address, i, span, &page))
			return false;
		pages++;
	}
	return pages == word_of(reader, layout->used);
}

static int read_header(struct reader *reader, uint64_t address)
{
	return hl_mi_read(reader->walker.memory, address, reader->header, HEADER_BYTES);
}

/* ---- finding them ---- */

static int add_heap(struct reader *reader, uint64_t heap)
{
	size_t at = HL_LOWER_BOUND(i, reader->heap_count, reader->heaps[i] < heap);

	if (!heap || (at < reader->heap_count && reader->heaps[at] == heap))
		return 0;
	if (HL_ARRAY_RESERVE(reader->heaps, reader->heap_capacity, reader->heap_count + 1) < 0)
		return -ENOMEM;
	memmove(&reader->heaps[at + 1], &reader->heaps[at],
		(reader->heap_count++ - at) * sizeof(*reader->heaps));
	reader->heaps[at] = heap;
	return 0;
}

/* Adds the segment whose header was read, and the heaps of its pages. */
static int add_segment(struct reader *reader, uint64_t address)
{
	uint64_t entries = word_of(reader, reader->layout->entries), last = 0;
	int r = HL_ARRAY_APPEND(reader->segments, reader->segment_count, reader->segment_capacity,
				(struct segment){address, word_of(reader, reader->layout->slices)});

	for (uint64_t i = span_at(reader, 0), span; i < entries && r == 0; i += span) {
		struct hl_mi_page page;
		span = span_at(reader, i);
		if (!span)
			break; /* it is changing */
		if (!is_page(reader, i) || !page_at(reader, address, i, span, &page) ||
		    page.heap == last)
			continue;
		last = page.heap;
		r = add_heap(reader, last);
	}
	return r;
}

/* Chooses the layout by which most candidates are segments; NULL: none is. Only the pages tell some of them apart. */
static int choose_layout(struct reader *reader)
{
	const struct layout *best = NULL;
	size_t most = 0;

	for (size_t k = 0; k < HL_COUNT_OF(layouts); k++) {
		size_t count = 0;
		reader->layout = &layouts[k];
		for (size_t i = 0; i < reader->candidates.count && count < PROOFS; i++) {
			int r = read_header(reader, reader->candidates.at[i]);
			if (r < 0)
				return r;
			count += is_segment(reader, reader->candidates.at[i]);
		}
		if (count > most) {
			most = count;
			best = reader->layout;
		}
	}
	reader->layout = best;
	return 0;
}

/* Reads the header at ${address}. 1: a segment, which may be changing; 0: none; or a negative errno. */
static int look(struct reader *reader, uint64_t address)
{
	int r = read_header(reader, address);
	uint64_t cookie = r == 0 ? word_of(reader, reader->layout->cookie) ^ address : 0;

	if (r < 0)
		return r;
	if (is_segment(reader, address)) {
		reader->cookie = cookie;
		return 1;
	}
	return cookie == reader->cookie && has_counts(reader);
}

/* Finds all segments, and the layout that they have. 0, or a negative errno. */
static int find_segments(struct reader *reader)
{
	uint64_t end = 0;
	int r = hl_mi_find_present(reader->walker.memory, SEGMENT_BYTES, 1, &reader->candidates);

	if (r == 0)
		r = choose_layout(reader);
	for (size_t i = 0; i < reader->candidates.count && reader->layout && r >= 0; i++) {
		uint64_t address = reader->candidates.at[i];
		if (address < end)
			continue;
		r = look(reader, address);
		if (r == 1) {
			end = address + word_of(reader, reader->layout->slices) * HL_MI_SLICE;
			r = add_segment(reader, address);
		}
	}
	return r;
}

/* ---- blocks in no list of their page ---- */

static int by_address(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static bool is_in_segment(const struct reader *reader, uint64_t address)
{
	size_t at = HL_LOWER_BOUND(
		i, reader->segment_count,
		reader->segments[i].address + reader->segments[i].slices * HL_MI_SLICE <= address);

	return at < reader->segment_count && reader->segments[at].address <= address;
}

/* Blocks of full pages that other threads have freed wait in a list of the owner's heap. */
static int read_delayed(struct reader *reader)
{
	struct hl_mi_walker *walker = &reader->walker;
	int r = 0;

	for (size_t i = 0; i < reader->heap_count && r == 0; i++) {
		uint64_t block = 0, earlier = 0, steps = 0;
		r = hl_mi_read(walker->memory, reader->heaps[i] + reader->layout->delayed,
			       (uint8_t *)&block, sizeof(block));
		/* A damaged list leads back into itself: to the block at the last power of two. */
		while (r == 0 && block && block != earlier && is_in_segment(reader, block) &&
		       walker->delayed_count < DELAYED_MAX) {
			steps++;
			earlier = steps & (steps - 1) ? earlier : block;
			r = HL_ARRAY_APPEND(walker->delayed, walker->delayed_count,
					    walker->delayed_capacity, block);
			if (r == 0)
				r = hl_mi_read(walker->memory, block, (uint8_t *)&block,
					       sizeof(block));
		}
	}
	if (walker->delayed_count)
		qsort(walker->delayed, walker->delayed_count, sizeof(*walker->delayed), by_address);
	return r;
}

/* ---- reporting ---- */

enum slice_use { SLICE_LIVE, SLICE_EMPTY /* of a page without a live block */, SLICE_FREE };

static bool is_to_be_purged(const struct reader *reader, uint64_t slice)
{
	uint64_t at = reader->layout->purge_mask + slice / 64 * 8;

	return hl_mi_word(reader->header + at) >> slice % 64 & 1;
}

/* Fills reader->uses of the segment whose header was read. Returns whether it has no live block. */
static bool classify_slices(struct reader *reader, uint64_t address)
{
	uint64_t entries = word_of(reader, reader->layout->entries);
	bool is_empty = true;

	memset(reader->uses, SLICE_LIVE, sizeof(reader->uses));
	for (uint64_t i = span_at(reader, 0), span; i < entries; i += span) {
		struct hl_mi_page page;
		enum slice_use use = SLICE_FREE;
		span = span_at(reader, i);
		if (is_page(reader, i)) {
			(void)page_at(reader, address, i, span, &page);
			bool is_live = !hl_mi_page_is_empty(&reader->walker, &page);
			use = is_live ? SLICE_LIVE : SLICE_EMPTY;
			is_empty = is_empty && !is_live;
		}
		memset(reader->uses + i, use, i + span < entries ? span : entries - i);
	}
	return is_empty;
}

/* Whether what waits for a purge in the segment has waited long enough. */
static bool is_time_to_purge(const struct reader *reader)
{
	uint64_t expires_ms = word_of(reader, reader->layout->expire);

	return expires_ms &&
	       (!reader->walker.memory->pid || hl_clock_ns(CLOCK_MONOTONIC) / 1000000 > expires_ms);
}

/*
 * Fills reader->purged. mi_collect(true) frees pages without a live block, and purges them with the free spans beside them; and
 * other free spans that wait for it, or all of a segment that no thread has. Until 2.1.2 it purges what waits only when it frees
 * a page some time after the one before, and that one; pages that it frees after that wait.
 */
static void plan_purge(struct reader *reader)
{
	const struct layout *layout = reader->layout;
	bool waits = layout->keeps_spans && (!memchr(reader->uses, SLICE_EMPTY, SEGMENT_SLICES) ||
					     !is_time_to_purge(reader));
	bool is_owned = word_of(reader, layout->thread), has_freed = false;

	for (uint64_t i = 0, end; i < SEGMENT_SLICES; i = end) {
		bool is_freed = false;
		for (end = i; end < SEGMENT_SLICES && reader->uses[end] != SLICE_LIVE; end++)
			is_freed |= reader->uses[end] == SLICE_EMPTY;
		bool is_late = layout->keeps_spans && has_freed;
		for (uint64_t k = i; k < end; k++)
			reader->purged[k] =
				!waits &&
				((is_freed && !is_late) || (!is_owned && !layout->keeps_spans) ||
				 (reader->uses[k] == SLICE_FREE && is_to_be_purged(reader, k)));
		has_freed |= is_freed;
		end += end == i;
	}
}

/* Of what lies beyond the table the last entry tells. */
static bool is_purged(const struct reader *reader, uint64_t slice)
{
	return reader->purged[slice < SEGMENT_SLICES ? slice : SEGMENT_SLICES - 1];
}

static void report_free(struct reader *reader, const struct segment *segment, uint64_t from,
			uint64_t to, uint32_t arena)
{
	for (uint64_t next; from < to; from = next) {
		for (next = from + 1;
		     next < to && is_purged(reader, next) == is_purged(reader, from);)
			next++;
		hl_slab_free_run(&reader->walker.slabs, segment->address + from * HL_MI_SLICE,
				 segment->address + next * HL_MI_SLICE,
				 is_purged(reader, from) ? HL_SLAB_FREE_PURGED : HL_SLAB_FREE_STAYS,
				 arena);
	}
}

static int report_spans(struct reader *reader, const struct segment *segment, uint32_t arena)
{
	uint64_t entries = word_of(reader, reader->layout->entries);
	int r = 0;

	if (classify_slices(reader, segment->address)) { /* all of it goes, its header, too */
		hl_slab_free_run(&reader->walker.slabs, segment->address,
				 segment->address + segment->slices * HL_MI_SLICE,
				 HL_SLAB_FREE_PURGED, arena);
		return 0;
	}
	plan_purge(reader);
	for (uint64_t i = span_at(reader, 0), span; i < entries && r == 0; i += span) {
		struct hl_mi_page page;
		span = span_at(reader, i);
		if (!is_page(reader, i)) {
			report_free(reader, segment, i, i + span, arena);
			continue;
		}
		(void)page_at(reader, segment->address, i, span, &page);
		r = hl_mi_page_report(&reader->walker, &page, arena,
				      reader->purged[i] ? HL_SLAB_FREE_PURGED : HL_SLAB_FREE_STAYS);
	}
	return r;
}

static int report_segment(struct reader *reader, const struct segment *segment)
{
	struct hl_slab_heap *slabs = &reader->walker.slabs;
	uint64_t end = segment->address + segment->slices * HL_MI_SLICE;
	bool is_whole = false;
	uint32_t arena;
	int r = 0;

	hl_mi_copy_anew(&reader->walker);
	for (uint32_t i = 0; i < TRIES && r == 0 && !is_whole; i++) {
		r = read_header(reader, segment->address);
		is_whole = r == 0 && is_segment(reader, segment->address) &&
			   word_of(reader, reader->layout->slices) == segment->slices;
	}
	if (r == 0)
		r = hl_mi_arena_of(&reader->walker,
				   is_whole ? word_of(reader, reader->layout->thread) : 0, &arena);
	if (r == 0)
		r = hl_slab_carrier_begin(slabs,
					  hl_mi_half(reader->header + reader->layout->kind) == 1
						  ? "huge segment"
						  : "segment",
					  segment->address, end, arena);
	if (r < 0)
		return r;
	if (is_whole)
		r = report_spans(reader, segment, arena);
	else
		hl_slab_unscanned(slabs, segment->address, end, 1, arena);
	return r == 0 ? hl_slab_carrier_end(slabs) : r;
}

/* The structs of threads, which have pages of their own. */
static int report_threads(struct reader *reader)
{
	struct hl_slab_heap *slabs = &reader->walker.slabs;
	const struct hl_maps *maps = &reader->walker.memory->maps;
	uint64_t before = 0;
	int r = 0;

	for (size_t i = 0; i < reader->heap_count && r == 0; i++) {
		uint64_t start = reader->heaps[i], end = start + reader->layout->thread_bytes;
		const struct hl_map *map = hl_maps_find(maps, start);
		if (!map || map->inode || start % reader->walker.memory->page_bytes ||
		    end > map->end || start < before || is_in_segment(reader, start))
			continue;
		before = end;
		r = hl_slab_carrier_begin(slabs, "metadata", start, end, UINT32_MAX);
		if (r == 0)
			r = hl_slab_carrier_end(slabs);
	}
	return r;
}

static int report(struct reader *reader)
{
	uint32_t arena;
	int r = read_delayed(reader);

	if (r == 0 && reader->walker.slabs.settings->only_arenas)
		return hl_mi_arena_of(&reader->walker, 0, &arena);
	for (size_t i = 0; i < reader->segment_count && r == 0; i++)
		r = report_segment(reader, &reader->segments[i]);
	if (r == 0)
		r = report_threads(reader);
	return r == 0 ? hl_mi_add_notes(&reader->walker) : r;
}

static void release(struct reader *reader)
{
	free(reader->segments);
	free(reader->candidates.at);
	free(reader->heaps);
	free(reader->header);
	hl_mi_walker_release(&reader->walker);
}

int hl_mi_segments_read(struct hl_memory *memory, const struct hl_allocator_traits *allocator,
			const struct hl_heap_settings *settings, struct hl_heap *heap,
			struct hl_error *err)
{
	HL_CLEANUP(release) struct reader reader = {.walker = {.memory = memory}};

	reader.header = malloc(HEADER_BYTES);
	int r = reader.header ? find_segments(&reader) : -ENOMEM;
	if (r < 0)
		return hl_error_set(err, r, "cannot look for the heap of mimalloc: %s",
				    strerror(-r));
	if (!reader.segment_count || !reader.layout)
		return -ENOTSUP;
	if (reader.layout->page.is_encoded)
		return hl_error_set(err, -ENOTSUP, "%s", hl_mi_encoded);
	reader.walker.layout = &reader.layout->page;
	r = hl_slab_heap_open(&reader.walker.slabs, memory, allocator, settings, heap, err);
	return r < 0 ? r : hl_slab_heap_close(&reader.walker.slabs, report(&reader), err);
}
