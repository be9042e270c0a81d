/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lays out heaps as mimalloc does, of 2.0.9, 3.1, 3.4 and 3.6: a page with blocks in each of its lists, one without a live block, one
 * of large blocks. Where the fields lie is said here once more, in plain numbers from the releases, so that a mistake in
 * heapline's own tables shows.
 */
#pragma once

#include "heap_image.h"

#define MI_SEGMENT   UINT64_C(0x7f1200000000)
#define MI_ARENA     UINT64_C(0x7f1210000000) /* a group of 256 MiB begins there, too */
#define MI_TABLE     UINT64_C(0x7f1300000000)
#define MI_MAP	     UINT64_C(0x7f1400000000)
#define MI_VARIABLES UINT64_C(0x7f1500000000)
#define MI_COOKIE    UINT64_C(0x9e3779b97f4a7c15)
#define MI_THREAD    UINT64_C(0x7f1600001740)
#define MI_SLICE     65536u

/* Where the fields of a page lie. */
struct mi_fields {
	uint8_t bytes, capacity, reserved, used, free, local, remote, size, size_bytes;
	uint8_t start, start_bytes,
		start_unit; /* none; or a pointer (unit 0), or words or bytes after the page */
	uint8_t thread, memid, kind;
};

static const struct mi_fields mi_2_0 = {80, 10, 12, 24, 16, 32, 40, 28, 4, 0, 0, 0, 0, 0, 0};
static const struct mi_fields mi_3_1 = {120, 18, 20, 16, 8, 24, 32, 40, 8, 48, 8, 0, 0, 96, 7};
static const struct mi_fields mi_3_4 = {112, 18, 20, 16, 8, 24, 32, 40, 8, 48, 4, 8, 0, 88, 7};
static const struct mi_fields mi_3_6 = {128, 56, 58, 40, 16, 24, 64, 32, 8, 48, 8, 1, 8, 104, 6};

struct mi_builder {
	struct image image;
	const struct mi_fields *fields;
	uint64_t base;
	/* What a walk must find. */
	uint64_t live_blocks, live_bytes, cached_blocks;
};

static inline void mi_put(struct mi_builder *builder, uint64_t address, uint64_t value,
			  size_t length)
{
	const struct image_part *part = image_part_at(&builder->image, address);

	memcpy(part->bytes + (address - part->start), &value, length);
	part->absent[(address - part->start) / IMAGE_PAGE] = false;
}

/* Memory of which only those pages are present that something is put into. */
static inline void mi_add(struct mi_builder *builder, uint64_t start, uint64_t length,
			  const char *path)
{
	image_add(&builder->image, start, length, path, path[0] ? 7 : 0);
	memset(builder->image.parts[builder->image.count - 1].absent, true, length / IMAGE_PAGE);
}

/* A page in ${slices} slices from ${slice} on, with its struct at ${at}; blocks of ${size} from ${start} on, of which the last
 * ${lists[i]} but those of the lists before are in the list i: free, local, remote. */
static inline void mi_page(struct mi_builder *builder, uint64_t at, uint64_t slice, uint32_t slices,
			   uint64_t start, uint64_t size, uint32_t capacity,
			   const uint32_t lists[3])
{
	const struct mi_fields *fields = builder->fields;
	const uint8_t heads[] = {fields->free, fields->local, fields->remote};
	uint64_t area = builder->base + slice * MI_SLICE;
	uint32_t next = capacity, listed = lists[0] + lists[1];

	mi_put(builder, at + fields->capacity, capacity, 2);
	mi_put(builder, at + fields->reserved, (area + slices * MI_SLICE - start) / size, 2);
	mi_put(builder, at + fields->used, capacity - listed, 2);
	mi_put(builder, at + fields->size, size, fields->size_bytes);
	if (fields->start)
		mi_put(builder, at + fields->start,
		       fields->start_unit ? (start - at) / fields->start_unit : start,
		       fields->start_bytes);
	for (size_t i = 0; i < 3; i++) {
		uint64_t block = 0;
		for (uint32_t k = 0; k < lists[i]; k++) {
			uint64_t last = block;
			block = start + --next * size;
			mi_put(builder, block, last, 8);
		}
		mi_put(builder, at + heads[i], block | (i == 2 && fields->memid ? 1 : 0), 8);
	}
	if (fields->memid) {
		mi_put(builder, at + fields->thread, MI_THREAD, 8);
		mi_put(builder, at + fields->memid,
		       builder->base + (fields == &mi_3_6 ? 8 * MI_SLICE : 0), 8);
		mi_put(builder, at + fields->memid + 8, slice | (uint64_t)slices << 32, 8);
		mi_put(builder, at + fields->memid + 16, fields->kind, 4);
	}
	builder->live_blocks += next;
	builder->live_bytes += next * size;
	builder->cached_blocks += next ? lists[2] : 0;
}

/* ---- 2.0.9 ---- */

static inline void mi_span(struct mi_builder *builder, uint32_t slice, uint32_t slices)
{
	mi_put(builder, builder->base + 264 + slice * 80, slices, 4);
}

/* The segment has one huge page's segment beside it. */
static inline void mi_make_segments(struct mi_builder *builder)
{
	static const uint16_t at[] = {208, 224, 232, 240, 248};
	static const uint64_t of[2][5] = {{3, 512, 1, 0, 512}, {1, 600, 1, 1, 512}};
	static const uint32_t lists[][3] = {{2, 1, 3}, {4, 0, 0}, {0}};

	*builder = (struct mi_builder){.fields = &mi_2_0};
	mi_add(builder, MI_SEGMENT, 1112 * MI_SLICE, "");
	for (uint32_t i = 0; i < 2; i++) {
		builder->base = MI_SEGMENT + i * 512 * MI_SLICE;
		for (size_t k = 0; k < 5; k++)
			mi_put(builder, builder->base + at[k], of[i][k], 8);
		mi_put(builder, builder->base + 216, builder->base ^ MI_COOKIE, 8);
		mi_put(builder, builder->base + 256, MI_THREAD, 8);
		mi_span(builder, 0, 1);
		mi_put(builder, builder->base + 264 + 28, MI_SLICE, 4);
	}
	mi_span(builder, 1, 599);
	mi_page(builder, builder->base + 264 + 80, 1, 599, builder->base + MI_SLICE, 599 * MI_SLICE,
		1, lists[2]);
	builder->base = MI_SEGMENT;
	mi_span(builder, 1, 1);
	mi_page(builder, MI_SEGMENT + 264 + 80, 1, 1, MI_SEGMENT + MI_SLICE + 384, 64, 20,
		lists[0]);
	mi_span(builder, 2, 1);
	mi_page(builder, MI_SEGMENT + 264 + 160, 2, 1, MI_SEGMENT + 2 * MI_SLICE + 384, 80, 4,
		lists[1]);
	mi_span(builder, 3, 8);
	mi_page(builder, MI_SEGMENT + 264 + 240, 3, 8, MI_SEGMENT + 3 * MI_SLICE, 40000, 3,
		lists[2]);
	mi_span(builder, 11, 501);
}

/* ---- 3 ---- */

/* The arena's struct, with the bits of its slices: from ${first} on all are free but those of pages, which end at ${used}. */
static inline void mi_arena(struct mi_builder *builder, uint64_t at, uint64_t count_at,
			    uint64_t bitmaps_at, uint64_t info, uint64_t used)
{
	uint64_t maps[] = {at + 1024, at + 2048, at + 2048 + 192, at + 2048 + 384};

	mi_put(builder, at, builder->base, 8);
	mi_put(builder, at + 24, MI_VARIABLES + 256, 8);
	mi_put(builder, MI_VARIABLES + 256 + 8, at, 8);
	mi_put(builder, at + count_at, 512, 8);
	mi_put(builder, at + count_at + 8, info, 8);
	for (size_t i = 0; i < 4; i++) {
		mi_put(builder, at + bitmaps_at + i * 8, maps[i], 8);
		mi_put(builder, maps[i], 1, 8);
	}
	for (uint64_t slice = used; slice < 512; slice++) {
		uint64_t word = maps[1] - 64 + slice / 64 * 8;
		mi_put(builder, word,
		       *image_word(&builder->image, word) | UINT64_C(1) << slice % 64, 8);
	}
}

/* Pages from slice ${first} on, with their structs at the start of their slices or, if ${metas}, there. */
static inline void mi_pages(struct mi_builder *builder, uint64_t first, uint64_t metas,
			    uint64_t *ret_at)
{
	static const uint32_t slices[] = {1, 1, 8}, capacities[] = {20, 4, 3};
	static const uint64_t sizes[] = {64, 80, 40000};
	static const uint32_t lists[][3] = {{2, 1, 3}, {4, 0, 0}, {0}};

	for (size_t i = 0; i < 3; first += slices[i++]) {
		uint64_t slice = builder->base + first * MI_SLICE;
		ret_at[i] = metas ? metas + first * builder->fields->bytes : slice;
		mi_page(builder, ret_at[i], first, slices[i], metas ? slice : slice + 128, sizes[i],
			capacities[i], lists[i]);
	}
}

/* 3.1, or 3.4 where the structs of pages lie together. */
static inline void mi_make_mapped(struct mi_builder *builder, const struct mi_fields *fields)
{
	static const uint32_t slices[] = {1, 1, 8};
	uint64_t info = 2, slice = info, at[3];
	bool is_apart = fields == &mi_3_4;

	*builder = (struct mi_builder){.fields = fields, .base = MI_ARENA};
	mi_add(builder, MI_ARENA, 512 * MI_SLICE, "");
	mi_add(builder, MI_TABLE, MI_SLICE, "");
	mi_add(builder, MI_MAP, (UINT64_C(2) << 20) + MI_SLICE, "");
	mi_add(builder, MI_VARIABLES, 2 * IMAGE_PAGE, "/usr/lib/libmimalloc.so.3");
	mi_put(builder, MI_VARIABLES + 0x140, MI_MAP, 8);
	mi_put(builder, MI_MAP, MI_MAP + (UINT64_C(2) << 20), 8);
	mi_put(builder, MI_MAP + MI_ARENA / MI_SLICE / 8192 * 8, MI_TABLE, 8);
	mi_pages(builder, info, is_apart ? MI_ARENA + MI_SLICE : 0, at);
	for (size_t i = 0; i < 3; i++)
		for (uint32_t k = 0; k < slices[i]; k++, slice++)
			mi_put(builder, MI_TABLE + (MI_ARENA / MI_SLICE + slice) % 8192 * 8, at[i],
			       8);
	mi_arena(builder, MI_ARENA, is_apart ? 40 : 32, is_apart ? 104 : 80, info, slice);
}

/* 3.6 */
static inline void mi_make_group(struct mi_builder *builder)
{
	static const uint32_t slices[] = {1, 1, 8};
	uint64_t info = 11, slice = info, at[3];

	*builder = (struct mi_builder){.fields = &mi_3_6, .base = MI_ARENA};
	mi_add(builder, MI_ARENA, 512 * MI_SLICE, "");
	mi_add(builder, MI_VARIABLES, 2 * IMAGE_PAGE, "/usr/lib/libmimalloc.so.3");
	mi_pages(builder, info, MI_ARENA, at);
	for (size_t i = 0; i < 3; i++)
		for (uint32_t k = 0; k < slices[i]; k++, slice++)
			mi_put(builder, MI_ARENA + slice * 128, at[i], 8);
	mi_arena(builder, MI_ARENA + 8 * MI_SLICE, 48, 112, info, slice);
}
