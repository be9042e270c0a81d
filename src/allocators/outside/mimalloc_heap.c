/* SPDX-License-Identifier: BSD-2-Clause */
/* Walks the lists of mimalloc's pages, and reports their blocks; see mimalloc.h. */
#include "allocators/outside/mimalloc.h"

#include "base/array.h"

#include <errno.h>

#define TRIES	     16u   /* how often a page is read until it fits together */
#define WHOLE_BLOCK  1024u /* of pages with larger blocks one word of each free one is read */
#define WHOLE_BYTES  (UINT64_C(1) << 20)
#define PLACES_MAX   65535u
#define WINDOW_BYTES 8192u
#define NEAR_BYTES   (UINT64_C(16) << 20)
#define FAR_BYTES \
	(UINT64_C(1) << 40) /* no heap of mimalloc's is mapped in one piece of that size */

const char hl_mi_encoded[] =
	"it is a secure build, or one for debugging, which encodes its lists of free "
	"blocks";

/* ---- memory ---- */

static int read_present(struct hl_memory *memory, const struct hl_pages *pages, uint64_t address,
			uint8_t *bytes, size_t length)
{
	uint64_t end = address + length;
	size_t i = HL_LOWER_BOUND(k, pages->count, pages->runs[k].end <= address);
	int r = 0;

	memset(bytes, 0, length);
	for (; i < pages->count && pages->runs[i].start < end && r == 0; i++) {
		uint64_t from = pages->runs[i].start > address ? pages->runs[i].start : address;
		uint64_t to = pages->runs[i].end < end ? pages->runs[i].end : end;
		r = hl_memory_read(memory, from, bytes + (from - address), to - from);
	}
	return r;
}

int hl_mi_read(struct hl_memory *memory, uint64_t address, uint8_t *bytes, size_t length)
{
	uint64_t mask = memory->page_bytes - 1, end = address + length;
	struct hl_pages pages = {0};
	int r = hl_memory_scan(memory, address & ~mask, (end + mask) & ~mask, &pages);

	if (r == 0)
		r = read_present(memory, &pages, address, bytes, length);
	hl_pages_release(&pages);
	return r;
}

/* The same, by what was in memory when the walk came near. */
static int read_near(struct hl_mi_walker *walker, uint64_t address, uint8_t *bytes, size_t length)
{
	uint64_t start = address & ~(NEAR_BYTES - 1);
	uint64_t end = (address + length + NEAR_BYTES - 1) & ~(NEAR_BYTES - 1);

	if (address < walker->near_start || address + length > walker->near_end) {
		walker->near.count = walker->near.page_count = 0;
		walker->near_end = 0;
		int r = hl_memory_scan(walker->memory, start, end, &walker->near);
		if (r < 0)
			return r;
		walker->near_start = start;
		walker->near_end = end;
	}
	return read_present(walker->memory, &walker->near, address, bytes, length);
}

int hl_mi_copy(struct hl_mi_walker *walker, uint64_t address, uint8_t *bytes, size_t length)
{
	uint64_t window = address & ~(uint64_t)(WINDOW_BYTES / 2 - 1);

	if (!walker->window_bytes && !(walker->window_bytes = malloc(WINDOW_BYTES)))
		return -ENOMEM;
	if (window != walker->window) {
		walker->window = 0;
		int r = read_near(walker, window, walker->window_bytes, WINDOW_BYTES);
		if (r < 0)
			return r;
		walker->window = window;
	}
	memcpy(bytes, walker->window_bytes + (address - window), length);
	return 0;
}

void hl_mi_copy_anew(struct hl_mi_walker *walker)
{
	walker->window = 0;
}

/* Lists those in [${start}, ${end}). */
static int find_present_in(struct hl_memory *memory, uint64_t start, uint64_t end,
			   uint64_t alignment, uint64_t bytes, struct hl_mi_addresses *addresses)
{
	struct hl_pages pages = {0};
	int r = 0;

	for (uint64_t at = (start + alignment - 1) & ~(alignment - 1); at < end && r == 0;
	     at += alignment) {
		uint64_t last = at + bytes < end ? at + bytes : end, mask = memory->page_bytes - 1;
		pages.count = pages.page_count = 0;
		r = hl_memory_scan(memory, at, (last + mask) & ~mask, &pages);
		if (r == 0 && pages.count)
			r = HL_ARRAY_APPEND(addresses->at, addresses->count, addresses->capacity,
					    at);
	}
	hl_pages_release(&pages);
	return r;
}

/* The same where there are many addresses and few pages, as in the shadow of a sanitizer. */
static int find_present_far(struct hl_memory *memory, const struct hl_map *map, uint64_t alignment,
			    uint64_t bytes, struct hl_mi_addresses *addresses)
{
	struct hl_pages pages = {0};
	uint64_t next = map->start;
	int r = hl_memory_scan(memory, map->start, map->end, &pages);

	for (size_t i = 0; i < pages.count && r == 0; i++) {
		uint64_t start = pages.runs[i].start & ~(alignment - 1);
		start = start > next ? start : next;
		if (start >= pages.runs[i].end)
			continue;
		r = find_present_in(memory, start, pages.runs[i].end, alignment, bytes, addresses);
		next = (pages.runs[i].end + alignment - 1) & ~(alignment - 1);
	}
	hl_pages_release(&pages);
	return r;
}

int hl_mi_find_present(struct hl_memory *memory, uint64_t alignment, uint64_t bytes,
		       struct hl_mi_addresses *addresses)
{
	int r = 0;

	for (size_t i = 0; i < memory->maps.count && r == 0; i++) {
		const struct hl_map *map = &memory->maps.maps[i];
		bool is_far = map->end - map->start > FAR_BYTES;
		/* Since 2.2 it calls its memory "mimalloc", which kernels show as [anon:mimalloc]. */
		if (map->inode || (map->path[0] && strncmp(map->path, "[anon:", 6)) ||
		    map->end >> 56 || map->flags & (HL_MAP_SHARED | HL_MAP_RECORDER) ||
		    (is_far && memory->is_slow_on_holes))
			continue;
		r = is_far ? find_present_far(memory, map, alignment, bytes, addresses)
			   : find_present_in(memory, map->start, map->end, alignment, bytes,
					     addresses);
	}
	return r;
}

/* ---- pages ---- */

static uint64_t first_block(const struct hl_mi_page_layout *layout, const uint8_t *bytes,
			    const struct hl_mi_page *page)
{
	uint64_t block = page->block_bytes;

	switch (layout->start_is) {
	case HL_MI_START_AFTER_384:
		return page->area + (block >= 8 && block <= 1024 ? 384 : 0);
	case HL_MI_START_AFTER_BLOCK:
		return page->area + (block <= 64 ? 3 * block : block <= 512 ? block : 0);
	case HL_MI_START_POINTER:
		return hl_mi_word(bytes + layout->start);
	case HL_MI_START_WORDS:
		return page->at + (uint64_t)hl_mi_half(bytes + layout->start) * 8;
	case HL_MI_START_BYTES:
		break;
	}
	return page->at + hl_mi_word(bytes + layout->start);
}

bool hl_mi_page_decode(const struct hl_mi_page_layout *layout, const uint8_t *bytes,
		       struct hl_mi_page *page)
{
	bool is_computed = layout->start_is <= HL_MI_START_AFTER_BLOCK;

	page->block_bytes = is_computed ? hl_mi_half(bytes + layout->block_size)
					: hl_mi_word(bytes + layout->block_size);
	page->start = first_block(layout, bytes, page);
	if (is_computed && page->block_bytes >> 31) /* it has no room for more */
		page->block_bytes = page->end - page->start;
	page->free = hl_mi_word(bytes + layout->free);
	page->local_free = hl_mi_word(bytes + layout->local_free);
	page->remote_free =
		hl_mi_word(bytes + layout->remote_free) & ~(uint64_t)layout->remote_flags;
	page->heap = hl_mi_word(bytes + layout->heap);
	page->used = hl_mi_quarter(bytes + layout->used);
	page->capacity = hl_mi_quarter(bytes + layout->capacity);
	page->reserved = hl_mi_quarter(bytes + layout->reserved);
	page->has_aligned = bytes[layout->flags] & HL_MI_ALIGNED;
	if (page->block_bytes < 8 || page->block_bytes % 8 || page->start < page->area ||
	    page->start >= page->end || !page->reserved || page->capacity > page->reserved ||
	    page->used > page->capacity)
		return false;
	uint64_t room = page->end - page->start;
	/* What has no place is computed from the room: it proves the rule. */
	return room / page->block_bytes >= page->reserved &&
	       (!is_computed || room / page->block_bytes == page->reserved ||
		page->reserved == PLACES_MAX);
}

int hl_mi_arena_of(struct hl_mi_walker *walker, uint64_t id, uint32_t *ret_arena)
{
	size_t at = HL_LOWER_BOUND(i, walker->thread_count, walker->threads[i].id < id);
	uint32_t arena;

	if (at < walker->thread_count && walker->threads[at].id == id) {
		*ret_arena = walker->threads[at].arena;
		return 0;
	}
	int r = HL_ARRAY_RESERVE(walker->threads, walker->thread_capacity,
				 walker->thread_count + 1);
	if (r == 0)
		r = hl_slab_arena_add(&walker->slabs, id, id != 0, &arena);
	if (r < 0)
		return r;
	memmove(&walker->threads[at + 1], &walker->threads[at],
		(walker->thread_count++ - at) * sizeof(*walker->threads));
	walker->threads[at] = (struct hl_mi_thread){id, arena};
	*ret_arena = arena;
	return 0;
}

/* ---- lists ---- */

static bool is_read_whole(const struct hl_mi_page *page)
{
	return page->block_bytes <= WHOLE_BLOCK &&
	       page->capacity * page->block_bytes <= WHOLE_BYTES;
}

static int first_word(struct hl_mi_walker *walker, const struct hl_mi_page *page, uint64_t block,
		      uint64_t *ret_word)
{
	if (is_read_whole(page)) {
		*ret_word = hl_mi_word(walker->blocks + (block - page->start));
		return 0;
	}
	return read_near(walker, block, (uint8_t *)ret_word, sizeof(*ret_word));
}

/* Marks the blocks of a list. 0, -EBADMSG: it is not one of this page; another negative errno. */
static int follow(struct hl_mi_walker *walker, const struct hl_mi_page *page, uint64_t block,
		  enum hl_slab_state state, uint32_t *count)
{
	while (block) {
		uint64_t number = (block - page->start) / page->block_bytes;
		if (block < page->start || number >= page->capacity ||
		    (block - page->start) % page->block_bytes ||
		    walker->places[number] != HL_SLAB_LIVE)
			return -EBADMSG;
		walker->places[number] = (uint8_t)state;
		++*count;
		int r = first_word(walker, page, block, &block);
		if (r < 0)
			return r;
	}
	return 0;
}

/* The first block of the page, or behind it, in the lists of heaps. */
static size_t find_delayed(const struct hl_mi_walker *walker, const struct hl_mi_page *page)
{
	return HL_LOWER_BOUND(i, walker->delayed_count, walker->delayed[i] < page->start);
}

static bool has_delayed(const struct hl_mi_walker *walker, const struct hl_mi_page *page)
{
	size_t first = find_delayed(walker, page);

	return first < walker->delayed_count && walker->delayed[first] < page->end;
}

/* Marks blocks of the page that are in the lists of heaps. Returns how many. */
static uint32_t mark_delayed(struct hl_mi_walker *walker, const struct hl_mi_page *page)
{
	uint64_t end = page->start + page->capacity * page->block_bytes;
	uint32_t count = 0;

	for (size_t i = find_delayed(walker, page);
	     i < walker->delayed_count && walker->delayed[i] < end; i++) {
		uint64_t number = (walker->delayed[i] - page->start) / page->block_bytes;
		if (walker->places[number] == HL_SLAB_LIVE) {
			walker->places[number] = HL_SLAB_CACHED;
			count++;
		}
	}
	return count;
}

/* Fills ${walker}->places. 0; -EBADMSG: the page does not fit together; another negative errno. */
static int mark_places(struct hl_mi_walker *walker, const struct hl_mi_page *page,
		       uint32_t *ret_live)
{
	uint32_t free = 0, remote = 0;

	memset(walker->places, HL_SLAB_LIVE, page->capacity);
	if (page->free || page->local_free || page->remote_free) {
		int r = is_read_whole(page) ? read_near(walker, page->start, walker->blocks,
							page->capacity * page->block_bytes)
					    : 0;
		if (r == 0)
			r = follow(walker, page, page->free, HL_SLAB_FREE, &free);
		if (r == 0)
			r = follow(walker, page, page->local_free, HL_SLAB_FREE, &free);
		if (r == 0)
			r = follow(walker, page, page->remote_free, HL_SLAB_CACHED, &remote);
		if (r < 0)
			return r;
	}
	remote += mark_delayed(walker, page);
	if (free + page->used != page->capacity || remote > page->used)
		return -EBADMSG;
	*ret_live = page->used - remote;
	return 0;
}

static int report_places(struct hl_mi_walker *walker, const struct hl_mi_page *page, uint32_t arena)
{
	hl_slab_begin(&walker->slabs, page->area, page->end, page->block_bytes, arena);
	memset(walker->places + page->capacity, HL_SLAB_FREE, page->reserved - page->capacity);
	int r = hl_slab_places(&walker->slabs, page->start, walker->places, page->reserved);
	return r == 0 ? hl_slab_end(&walker->slabs) : r;
}

static int make_buffers(struct hl_mi_walker *walker)
{
	if (!walker->places)
		walker->places = malloc(PLACES_MAX);
	if (!walker->blocks)
		walker->blocks = malloc(WHOLE_BYTES);
	return walker->places && walker->blocks ? 0 : -ENOMEM;
}

static int read_again(struct hl_mi_walker *walker, struct hl_mi_page *page)
{
	uint8_t bytes[256];

	int r = read_near(walker, page->at, bytes, walker->layout->bytes);

	if (r == 0)
		walker->slabs.heap->rereads++;
	return r < 0 ? r : hl_mi_page_decode(walker->layout, bytes, page) ? 0 : -EBADMSG;
}

int hl_mi_page_report(struct hl_mi_walker *walker, const struct hl_mi_page *page, uint32_t arena,
		      enum hl_slab_free empty)
{
	struct hl_mi_page now = *page;
	uint32_t live = 0;
	int r = make_buffers(walker);

	if (r < 0)
		return r;
	r = mark_places(walker, &now, &live);
	for (uint32_t i = 1; i < TRIES && r == -EBADMSG; i++) {
		r = read_again(walker, &now);
		if (r == 0)
			r = mark_places(walker, &now, &live);
	}
	if (r == -EBADMSG) {
		hl_slab_unscanned(&walker->slabs, page->area, page->end, page->capacity, arena);
		return 0;
	}
	walker->aligned_blocks += r == 0 && now.has_aligned ? live : 0;
	if (r == 0 && live)
		return report_places(walker, &now, arena);
	if (r == 0)
		hl_slab_free_run(&walker->slabs, page->area, page->end, empty, arena);
	return r;
}

bool hl_mi_page_is_empty(struct hl_mi_walker *walker, const struct hl_mi_page *page)
{
	uint32_t live = 1;

	if (!page->used || (!page->remote_free && !has_delayed(walker, page)))
		return !page->used;
	return make_buffers(walker) == 0 && mark_places(walker, page, &live) == 0 && !live;
}

int hl_mi_add_notes(struct hl_mi_walker *walker)
{
	uint64_t blocks = walker->aligned_blocks;

	if (!blocks)
		return 0;
	return hl_heap_note(
		walker->slabs.heap,
		"%llu block%s may begin later than shown, and end%s where shown: the program "
		"aligned some of %s, and mimalloc does not keep which",
		(unsigned long long)blocks, blocks > 1 ? "s" : "", blocks > 1 ? "" : "s",
		blocks > 1 ? "them" : "its page");
}

void hl_mi_walker_release(struct hl_mi_walker *walker)
{
	free(walker->threads);
	free(walker->delayed);
	free(walker->places);
	free(walker->blocks);
	free(walker->window_bytes);
	hl_pages_release(&walker->near);
}

/* ---- the reader ---- */

static int read_heap(struct hl_memory *memory, const struct hl_allocator_traits *allocator,
		     const struct hl_heap_settings *settings, struct hl_heap *heap,
		     struct hl_error *err)
{
	int r = hl_mi_arenas_read(memory, allocator, settings, heap, err);

	return r == -ENOTSUP && !(err && err->text[0])
		       ? hl_mi_segments_read(memory, allocator, settings, heap, err)
		       : r;
}

const struct hl_heap_reader hl_mimalloc_reader = {.allocator = "mimalloc", .read = read_heap};
