/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the context of musl's allocator, and walks its groups; see musl.h. */
#include "allocators/outside/musl.h"

#include "allocators/outside/readers.h"
#include "base/array.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the context, without symbols ---- */

/* Searches no more of a module's variables. musl's own are 16 KiB; a static program may have more. */
#define VARIABLES_MAX (UINT64_C(16) << 20)

/* Whether the bytes may be a context: from its counters, before anything else is read. */
static bool looks_like_context(const uint8_t *bytes)
{
	uint64_t head = hl_musl_word(bytes + HL_MUSL_CONTEXT_HEAD);
	uint64_t tail = hl_musl_word(bytes + HL_MUSL_CONTEXT_TAIL);
	uint32_t is_ready;

	memcpy(&is_ready, bytes + HL_MUSL_CONTEXT_READY, sizeof(is_ready));
	return hl_musl_word(bytes) && is_ready == 1 && head && tail &&
	       head % HL_MUSL_AREA_BYTES == 0 && tail % HL_MUSL_AREA_BYTES == 0 &&
	       hl_musl_word(bytes + HL_MUSL_CONTEXT_FREE_METAS) <= HL_MUSL_AREA_METAS &&
	       hl_musl_word(bytes + HL_MUSL_CONTEXT_SHIFT) < 64;
}

/* 0; -EFAULT where there is no area; or another negative errno. */
static int check_area(struct hl_memory *memory, uint64_t address, uint64_t secret)
{
	uint64_t check;
	int r = hl_memory_read_present(memory, address, &check, sizeof(check));

	return r == 0 && check != secret ? -EFAULT : r;
}

/* 0; -ENOTSUP when it is not there; -ENOMEM. */
static int seek(struct hl_memory *memory, const uint8_t *bytes, uint64_t start, uint64_t length,
		struct hl_musl *ret_musl)
{
	for (uint64_t at = 0; at + HL_MUSL_CONTEXT_BYTES <= length; at += 8) {
		if (!looks_like_context(bytes + at))
			continue;
		const struct hl_musl found = {
			.context = start + at,
			.secret = hl_musl_word(bytes + at),
			.first_area = hl_musl_word(bytes + at + HL_MUSL_CONTEXT_HEAD)};
		int r = check_area(memory, found.first_area, found.secret);
		if (r == 0)
			r = check_area(memory, hl_musl_word(bytes + at + HL_MUSL_CONTEXT_TAIL),
				       found.secret);
		if (r == 0)
			*ret_musl = found;
		if (r == 0 || r == -ENOMEM)
			return r;
	}
	return -ENOTSUP;
}

/* A module's variables, and its .bss, which follows them without a file. */
static bool has_variables(const struct hl_maps *maps, size_t index)
{
	const struct hl_map *map = &maps->maps[index];

	if (!(map->flags & HL_MAP_WRITE) || map->flags & (HL_MAP_SHARED | HL_MAP_RECORDER))
		return false;
	return map->inode || (index && map[-1].end == map->start && map[-1].inode);
}

int hl_musl_find(struct hl_memory *memory, struct hl_musl *ret_musl)
{
	HL_CLEANUP(hl_pages_release) struct hl_pages pages = {0};
	HL_FREED uint8_t *bytes = NULL;
	size_t capacity = 0;

	for (size_t i = 0; i < memory->maps.count; i++) {
		const struct hl_map *map = &memory->maps.maps[i];
		uint64_t end = map->end - map->start > VARIABLES_MAX ? map->start + VARIABLES_MAX
								     : map->end;
		if (!has_variables(&memory->maps, i))
			continue;
		if (HL_ARRAY_RESERVE(bytes, capacity, end - map->start) < 0)
			return -ENOMEM;
		memset(bytes, 0, end - map->start);
		pages.count = pages.page_count = 0;
		int r = hl_memory_scan(memory, map->start, end, &pages);
		if (r == -ENOMEM)
			return r;
		if (r < 0)
			continue;
		for (size_t k = 0; k < pages.count; k++)
			(void)hl_memory_read(memory, pages.runs[k].start,
					     bytes + (pages.runs[k].start - map->start),
					     pages.runs[k].end - pages.runs[k].start);
		r = seek(memory, bytes, map->start, end - map->start, ret_musl);
		if (r != -ENOTSUP)
			return r;
	}
	return -ENOTSUP;
}

/* ---- the walk ---- */

#define AREAS_MAX  (1u << 20)	       /* with 101 groups each */
#define DEPTH_MAX  8u		       /* groups in slots of groups; sizes halve at least */
#define TRIES	   3u		       /* how often a group is read until it fits together */
#define BUFFER_MAX (UINT64_C(1) << 20) /* groups of more than one slot are smaller */

/* Bytes of a slot in units, by its class: four between powers of two from 8 on, so that a power of two
 * less a header holds a whole number of them. */
static const uint16_t class_units[HL_MUSL_CLASSES] = {
	1,    2,    3,	  4,	5,    6,    7,	  8,	9,    10,   12,	  15,
	18,   20,   25,	  31,	36,   42,   50,	  63,	72,   84,   102,  127,
	146,  170,  204,  255,	292,  340,  409,  511,	584,  682,  818,  1023,
	1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552, 8191};

struct area {
	uint64_t address;
	uint8_t bytes[HL_MUSL_AREA_BYTES];
};

/* A stretch of a slot. */
struct stretch {
	uint64_t start, end;
	enum hl_slab_state state;
	bool is_bad; /* it does not fit */
};

struct walker {
	struct hl_memory *memory;
	const struct hl_musl *musl;
	const struct hl_heap_settings *settings;
	struct hl_heap *heap;
	struct area *areas; /* by address once all are read */
	size_t area_count, area_capacity;
	struct hl_musl_meta *groups; /* those that lie in no other, by address */
	size_t group_count, group_capacity;
	struct hl_slab_heap slabs;

	/* of the group that is being read, with those in its slots */
	uint8_t *buffer; /* a copy of it; buffer_bytes 0: it is large, and read where needed */
	uint64_t buffer_start, buffer_bytes;
	struct stretch *stretches;
	size_t stretch_count, stretch_capacity;
	size_t bad_slots;
	bool has_nested;    /* a slot holds a group */
	bool out_of_memory; /* what then seems not to be there may be */
};

/* Copies what is in memory. */
static bool read_present(struct walker *walker, uint64_t address, void *bytes, size_t length)
{
	int r = hl_memory_read_present(walker->memory, address, bytes, length);

	walker->out_of_memory |= r == -ENOMEM;
	return r == 0;
}

/* ---- metas ---- */

static int by_address(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static int by_group(const void *left, const void *right)
{
	const struct hl_musl_meta *a = left, *b = right;

	return (a->group > b->group) - (a->group < b->group);
}

static uint64_t stride_of(const struct hl_musl_meta *meta)
{
	if (!meta->last_slot && meta->pages)
		return meta->pages * HL_MUSL_PAGE - HL_MUSL_UNIT;
	return meta->size_class < HL_MUSL_CLASSES
		       ? (uint64_t)class_units[meta->size_class] * HL_MUSL_UNIT
		       : 0;
}

static uint64_t length_of(const struct hl_musl_meta *meta)
{
	return meta->pages ? meta->pages * HL_MUSL_PAGE
			   : HL_MUSL_UNIT + stride_of(meta) * (meta->last_slot + 1);
}

/* Whether all of [${start}, ${end}) is mapped. */
static bool is_mapped(const struct hl_maps *maps, uint64_t start, uint64_t end)
{
	const struct hl_map *map = hl_maps_find(maps, start);

	while (map && map->end < end) {
		const struct hl_map *next = map + 1;
		map = next < maps->maps + maps->count && next->start == map->end ? next : NULL;
	}
	return map;
}

/* Whether a meta is one of a group that can be there. */
static bool makes_sense(const struct walker *walker, const struct hl_musl_meta *meta)
{
	uint64_t stride = stride_of(meta), end = meta->group + length_of(meta);

	return meta->group && meta->group % HL_MUSL_UNIT == 0 && stride && end > meta->group &&
	       is_mapped(&walker->memory->maps, meta->group, end) &&
	       HL_MUSL_UNIT + stride * (meta->last_slot + 1) <= length_of(meta);
}

/* In rising order, each once. */
static void sort_areas(struct walker *walker)
{
	size_t kept = 0;

	if (walker->area_count)
		qsort(walker->areas, walker->area_count, sizeof(*walker->areas), by_address);
	for (size_t i = 0; i < walker->area_count; i++)
		if (!kept || walker->areas[i].address != walker->areas[kept - 1].address)
			walker->areas[kept++] = walker->areas[i];
	walker->area_count = kept;
}

/* Reads all areas. A damaged list may lead back into itself, which is noticed at the latest when it has been
 * read three times (Brent's algorithm). */
static int read_areas(struct walker *walker)
{
	uint64_t address = walker->musl->first_area, lap = 0;

	for (size_t i = 0; address && address != lap && i < AREAS_MAX; i++) {
		if (HL_ARRAY_RESERVE(walker->areas, walker->area_capacity, walker->area_count + 1) <
		    0)
			return -ENOMEM;
		struct area *area = &walker->areas[walker->area_count];
		area->address = address;
		if (address % HL_MUSL_AREA_BYTES ||
		    !read_present(walker, address, area->bytes, sizeof(area->bytes)) ||
		    hl_musl_word(area->bytes) != walker->musl->secret)
			break;
		walker->area_count++;
		if ((i & (i + 1)) == 0)
			lap = address;
		address = hl_musl_word(area->bytes + HL_MUSL_AREA_NEXT);
	}
	sort_areas(walker);
	return 0;
}

static int list_groups(struct walker *walker)
{
	int r = 0;

	for (size_t i = 0; i < walker->area_count; i++)
		for (uint32_t k = 0; k < HL_MUSL_AREA_METAS && r == 0; k++) {
			uint32_t at = HL_MUSL_AREA_FIRST + k * HL_MUSL_META_BYTES;
			const struct hl_musl_meta meta = hl_musl_meta(walker->areas[i].address + at,
								      walker->areas[i].bytes + at);
			if ((meta.pages || meta.is_donated) && makes_sense(walker, &meta))
				r = HL_ARRAY_APPEND(walker->groups, walker->group_count,
						    walker->group_capacity, meta);
		}
	if (walker->group_count)
		qsort(walker->groups, walker->group_count, sizeof(*walker->groups), by_group);
	return r;
}

/* The meta at ${address}, as it was read with all others, or now. False: none can be there. */
static bool find_meta(struct walker *walker, uint64_t address, bool now,
		      struct hl_musl_meta *ret_meta)
{
	uint64_t page = address & ~(uint64_t)(HL_MUSL_AREA_BYTES - 1), at = address - page;
	size_t i = HL_LOWER_BOUND(k, walker->area_count, walker->areas[k].address < page);
	uint8_t bytes[HL_MUSL_META_BYTES];
	uint64_t check;

	if (at < HL_MUSL_AREA_FIRST || (at - HL_MUSL_AREA_FIRST) % HL_MUSL_META_BYTES ||
	    at + HL_MUSL_META_BYTES > HL_MUSL_AREA_BYTES)
		return false;
	bool is_known = i < walker->area_count && walker->areas[i].address == page;
	if (is_known && !now) {
		*ret_meta = hl_musl_meta(address, walker->areas[i].bytes + at);
		return true;
	}
	if (!read_present(walker, page, &check, sizeof(check)) || check != walker->musl->secret ||
	    !read_present(walker, address, bytes, sizeof(bytes)))
		return false;
	*ret_meta = hl_musl_meta(address, bytes);
	return true;
}

/* ---- memory of a group ---- */

static int fill_buffer(struct walker *walker, const struct hl_musl_meta *meta)
{
	uint64_t start = meta->group, end = start + length_of(meta);

	walker->buffer_start = start;
	walker->buffer_bytes = 0;
	if (end - start > BUFFER_MAX || meta->size_class == HL_MUSL_CLASS_ALONE)
		return 0;
	memset(walker->buffer, 0, end - start);
	size_t first = HL_LOWER_BOUND(i, walker->slabs.pages.count,
				      walker->slabs.pages.runs[i].end <= start);
	for (size_t i = first;
	     i < walker->slabs.pages.count && walker->slabs.pages.runs[i].start < end; i++) {
		const struct hl_page_run *run = &walker->slabs.pages.runs[i];
		uint64_t from = run->start > start ? run->start : start;
		uint64_t to = run->end < end ? run->end : end;
		int r = hl_memory_read(walker->memory, from, walker->buffer + (from - start),
				       to - from);
		if (r < 0)
			return r;
	}
	walker->buffer_bytes = end - start;
	return 0;
}

/* Copies what is in memory; what is not was never written to. */
static bool copy(struct walker *walker, uint64_t address, void *bytes, size_t length)
{
	if (walker->buffer_bytes) {
		if (address < walker->buffer_start ||
		    address + length > walker->buffer_start + walker->buffer_bytes)
			return false;
		memcpy(bytes, walker->buffer + (address - walker->buffer_start), length);
		return true;
	}
	return read_present(walker, address, bytes, length);
}

/* ---- slots ---- */

struct slot {
	uint64_t start, end; /* of what blocks may have */
	uint64_t storage;    /* where slot 0 of the group begins */
	uint32_t number;
};

/* The bytes before a block. */
struct header {
	uint32_t far_offset; /* in units from slot 0, where the near one has no room */
	uint8_t is_far, number_and_rest;
	uint16_t offset;
};

static bool read_header(struct walker *walker, uint64_t block, struct header *ret_header)
{
	return copy(walker, block - sizeof(*ret_header), ret_header, sizeof(*ret_header));
}

/* Whether ${header} is that of a block at ${block} in the slot. */
static bool fits(const struct slot *slot, uint64_t block, const struct header *header)
{
	uint64_t offset = header->is_far ? header->far_offset : header->offset;

	return (header->number_and_rest & 31) == slot->number &&
	       offset == (block - slot->storage) / HL_MUSL_UNIT &&
	       header->number_and_rest >> 5 <= HL_MUSL_REST_FAR;
}

/* Sets where the block of a slot in use lies. False: the slot does not fit together, as it is just being given
 * away or freed. */
static bool find_block(struct walker *walker, const struct slot *slot, uint64_t *ret_start,
		       uint64_t *ret_end)
{
	uint64_t block = slot->start;
	struct header header;
	uint32_t rest;

	if (!read_header(walker, block, &header))
		return false;
	if (header.number_and_rest >> 5 == HL_MUSL_REST_LATER) {
		block += (uint64_t)header.offset * HL_MUSL_UNIT;
		if (block <= slot->start || block >= slot->end ||
		    !read_header(walker, block, &header))
			return false;
	}
	if (!fits(slot, block, &header))
		return false;
	rest = header.number_and_rest >> 5;
	if (rest == HL_MUSL_REST_FAR &&
	    (!copy(walker, slot->end - sizeof(rest), &rest, sizeof(rest)) ||
	     rest < HL_MUSL_REST_FAR))
		return false;
	if (rest > slot->end - block)
		return false;
	*ret_start = block;
	*ret_end = slot->end - rest;
	return true;
}

static int add_stretch(struct walker *walker, uint64_t start, uint64_t end,
		       enum hl_slab_state state)
{
	return HL_ARRAY_APPEND(walker->stretches, walker->stretch_count, walker->stretch_capacity,
			       (struct stretch){start, end, state, false});
}

static int add_bad(struct walker *walker, uint64_t start, uint64_t end)
{
	walker->bad_slots++;
	return HL_ARRAY_APPEND(walker->stretches, walker->stretch_count, walker->stretch_capacity,
			       (struct stretch){start, end, HL_SLAB_FREE, true});
}

static int read_slots(struct walker *walker, const struct hl_musl_meta *meta, bool now,
		      unsigned depth);

static int read_slot(struct walker *walker, const struct slot *slot, bool now, unsigned depth)
{
	struct hl_musl_meta nested;
	struct header header;
	uint64_t address, start, end;

	bool is_nested = read_header(walker, slot->start, &header) &&
			 header.number_and_rest >> 5 == HL_MUSL_REST_NESTED;
	if (!is_nested && find_block(walker, slot, &start, &end))
		return add_stretch(walker, start, end, HL_SLAB_LIVE);
	if (is_nested && depth < DEPTH_MAX &&
	    copy(walker, slot->start, &address, sizeof(address)) &&
	    (find_meta(walker, address, now, &nested) && nested.group == slot->start &&
	     makes_sense(walker, &nested) &&
	     slot->start + length_of(&nested) <= slot->end + HL_MUSL_TRAILER)) {
		walker->has_nested = true;
		return read_slots(walker, &nested, now, depth + 1);
	}
	return add_bad(walker, slot->start, slot->end);
}

/* Finds blocks and free slots of a group and of groups in its slots. */
static int read_slots(struct walker *walker, const struct hl_musl_meta *meta, bool now,
		      unsigned depth)
{
	uint64_t stride = stride_of(meta), storage = meta->group + HL_MUSL_UNIT, owner;
	int r = 0;

	if (!copy(walker, meta->group, &owner, sizeof(owner)) || owner != meta->address)
		return add_bad(walker, meta->group, meta->group + length_of(meta));
	for (uint32_t i = 0; i <= meta->last_slot && r == 0; i++) {
		const struct slot slot = {.start = storage + i * stride,
					  .end = storage + (i + 1) * stride - HL_MUSL_TRAILER,
					  .storage = storage,
					  .number = i};
		r = meta->free >> i & 1 ? add_stretch(walker, slot.start, slot.end, HL_SLAB_FREE)
					: read_slot(walker, &slot, now, depth);
	}
	return r;
}

static int account_group(struct walker *walker, const struct hl_musl_meta *meta)
{
	bool is_slab = meta->pages && !walker->has_nested;
	int r = 0;

	hl_slab_begin(&walker->slabs, meta->group, meta->group + length_of(meta),
		      is_slab ? stride_of(meta) : 0, 0);
	for (size_t i = 0; i < walker->stretch_count && r == 0; i++) {
		const struct stretch *stretch = &walker->stretches[i];
		if (stretch->is_bad)
			hl_slab_unscanned(&walker->slabs, stretch->start, stretch->end, 1, 0);
		else
			r = hl_slab_block(&walker->slabs, stretch->start,
					  stretch->end - stretch->start, stretch->state);
	}
	if (r == 0)
		r = hl_slab_end(&walker->slabs);
	return r;
}

/* Reads a group, again where it does not fit together: it changes while it is read. One that has gone
 * meanwhile has no blocks. */
static int read_group(struct walker *walker, const struct hl_musl_meta *known)
{
	struct hl_musl_meta meta = *known;
	int r = 0;

	for (unsigned i = 0; i < TRIES && r == 0; i++) {
		walker->stretch_count = walker->bad_slots = 0;
		walker->has_nested = false;
		if (i && (!find_meta(walker, known->address, true, &meta) ||
			  meta.group != known->group || length_of(&meta) != length_of(known) ||
			  !makes_sense(walker, &meta)))
			return 0;
		walker->heap->rereads += i > 0;
		r = fill_buffer(walker, &meta);
		if (r == -EFAULT) { /* unmapped, or about to be */
			r = 0;
			continue;
		}
		if (r == 0)
			r = read_slots(walker, &meta, i > 0, 0);
		if (!walker->bad_slots)
			break;
	}
	return r == 0 ? account_group(walker, &meta) : r;
}

/* ---- carriers ---- */

/* [${start}, ${end}) shares a page with donated groups, and is a module's. */
static int pass_foreign(struct walker *walker, uint64_t start, uint64_t end)
{
	const struct hl_heap_settings *settings = walker->settings;
	struct hl_heap_rss *rss = &walker->heap->rss;
	size_t cursor = 0;

	if (start >= end)
		return 0;
	uint64_t resident = hl_pages_bytes_in(&walker->slabs.pages, start, end, &cursor);
	rss->anonymous[HL_ANONYMOUS_VARIABLES] += resident;
	rss->anonymous_bytes += resident;
	return settings->foreign ? settings->foreign(settings->context, start, end) : 0;
}

/* Reads the groups from ${first} on that lie one after the other; ${ret_next} is the first that does not.
 * ${before} is where the carrier before ends. */
static int read_carrier(struct walker *walker, size_t first, uint64_t before, size_t *ret_next)
{
	const struct hl_musl_meta *groups = walker->groups;
	uint64_t mask = walker->memory->page_bytes - 1, start = groups[first].group;
	uint64_t end = start + length_of(&groups[first]);
	size_t next = first + 1;

	while (next < walker->group_count && groups[next].group == end)
		end += length_of(&groups[next++]);
	int r = hl_slab_carrier_begin(
		&walker->slabs, groups[first].is_donated ? "donated" : "groups", start, end, 0);
	for (size_t i = first; i < next && r == 0; i++)
		r = read_group(walker, &groups[i]);
	if (r == 0)
		r = hl_slab_carrier_end(&walker->slabs);
	if (r != 0)
		return r;
	uint64_t page = start & ~mask, page_end = (end + mask) & ~mask;
	if (next < walker->group_count && groups[next].group < page_end)
		page_end = groups[next].group;
	r = pass_foreign(walker, before > page ? before : page, start);
	*ret_next = next;
	return r == 0 ? pass_foreign(walker, end, page_end) : r;
}

static int read_carriers(struct walker *walker)
{
	uint64_t before = 0;
	int r = 0;

	for (size_t i = 0, next; i < walker->group_count && r == 0; i = next) {
		next = i + 1;
		/* Metas that were read while groups came and went may name the same memory. */
		if (walker->groups[i].group < before)
			continue;
		r = read_carrier(walker, i, before, &next);
		before = walker->groups[next - 1].group + length_of(&walker->groups[next - 1]);
	}
	for (size_t i = 0, next; i < walker->area_count && r == 0; i = next) {
		uint64_t end = walker->areas[i].address;
		for (next = i; next < walker->area_count && walker->areas[next].address == end;
		     next++)
			end += HL_MUSL_AREA_BYTES;
		r = hl_slab_carrier_begin(&walker->slabs, "metas", walker->areas[i].address, end,
					  0);
		if (r == 0)
			r = hl_slab_carrier_end(&walker->slabs);
	}
	return r;
}

/* ---- all ---- */

static int walk(struct walker *walker)
{
	uint32_t arena;
	int r = hl_slab_arena_add(&walker->slabs, walker->musl->context, 0, &arena);

	if (r < 0 || walker->settings->only_arenas)
		return r;
	walker->buffer = malloc(BUFFER_MAX);
	r = walker->buffer ? read_areas(walker) : -ENOMEM;
	if (r == 0)
		r = list_groups(walker);
	if (r == 0)
		r = read_carriers(walker);
	return r == 0 && walker->out_of_memory ? -ENOMEM : r;
}

static int read_heap(struct hl_memory *memory, const struct hl_allocator_traits *allocator,
		     const struct hl_heap_settings *settings, struct hl_heap *heap,
		     struct hl_error *err)
{
	struct walker walker = {.memory = memory, .settings = settings, .heap = heap};
	struct hl_musl musl;
	int r = hl_musl_find(memory, &musl);

	if (r < 0)
		return r == -ENOMEM ? hl_error_set(err, r, "out of memory") : r;
	walker.musl = &musl;
	r = hl_slab_heap_open(&walker.slabs, memory, allocator, settings, heap, err);
	if (r < 0)
		return r;
	strcpy(heap->walked_name, "musl's mallocng");
	r = hl_slab_heap_close(&walker.slabs, walk(&walker), err);
	free(walker.areas);
	free(walker.groups);
	free(walker.buffer);
	free(walker.stretches);
	return r;
}

const struct hl_heap_reader hl_musl_reader = {
	.allocator = "musl's malloc", .is_of_libc = true, .read = read_heap};
