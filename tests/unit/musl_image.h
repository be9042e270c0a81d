/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lays out a heap as musl's mallocng does: groups with pages of their own, one in a slot of another, a
 * donated one, and a block with a mapping of its own. Where the fields lie is said here once more, in
 * plain numbers from the release's sources, so that a mistake in heapline's own table shows.
 */
#pragma once

#include "heap_image.h"

#define MUSL_GROUPS    UINT64_C(0x7f1100000000)
#define MUSL_METAS     UINT64_C(0x7f1200000000) /* areas, with a page that is not an area between */
#define MUSL_VARIABLES UINT64_C(0x7f1230000000)
#define MUSL_CONTEXT   (MUSL_VARIABLES + 0x140)
#define MUSL_DONATED   (MUSL_VARIABLES + 0x1800)
#define MUSL_ALONE     (MUSL_GROUPS + 4 * IMAGE_PAGE)
#define MUSL_SECRET    UINT64_C(0x9e3779b97f4a7c15)

#define MUSL_GROUP_PAGES    40u
#define MUSL_ALONE_PAGES    34u
#define MUSL_VARIABLE_PAGES 2u

static const uint64_t musl_areas[] = {MUSL_METAS, MUSL_METAS + 2 * IMAGE_PAGE};

struct musl_group {
	uint64_t meta, start, stride;
	uint32_t slots, size_class, pages;
	bool is_freeable;
};

struct musl_builder {
	struct image image;
	uint64_t next_meta;
	/* What a walk must find. */
	uint64_t live_blocks, live_bytes, free_blocks, free_bytes;
};

static void musl_put(struct musl_builder *builder, uint64_t address, const void *bytes,
		     size_t length)
{
	const struct image_part *part = image_part_at(&builder->image, address);

	memcpy(part->bytes + (address - part->start), bytes, length);
}

static void musl_word(struct musl_builder *builder, uint64_t address, uint64_t word)
{
	musl_put(builder, address, &word, sizeof(word));
}

/* Writes a group and its meta; slots of which ${free} has the bit are free. */
static void musl_begin(struct musl_builder *builder, struct musl_group *group, uint32_t free)
{
	group->meta = builder->next_meta;
	builder->next_meta += 40;
	musl_word(builder, group->start, group->meta);
	musl_word(builder, group->meta + 16, group->start);
	musl_put(builder, group->meta + 24, &free, sizeof(free));
	musl_word(builder, group->meta + 32,
		  (group->slots - 1) | (group->is_freeable ? 32 : 0) |
			  (uint64_t)group->size_class << 6 | (uint64_t)group->pages << 12);
	for (uint32_t i = 0; i < group->slots; i++)
		if (free >> i & 1) {
			builder->free_blocks++;
			builder->free_bytes += group->stride - 4;
		}
}

static uint64_t musl_slot(const struct musl_group *group, uint32_t number)
{
	return group->start + 16 + number * group->stride;
}

static void musl_header(struct musl_builder *builder, const struct musl_group *group,
			uint32_t number, uint64_t block, uint8_t rest)
{
	uint32_t offset = (uint32_t)((block - musl_slot(group, 0)) / 16);
	uint8_t header[4] = {offset > 0xffff, (uint8_t)(number | rest << 5), (uint8_t)offset,
			     (uint8_t)(offset >> 8)};

	if (header[0])
		musl_put(builder, block - 8, &offset, sizeof(offset));
	musl_put(builder, block - 4, header, sizeof(header));
}

/* A block of ${size} bytes in the slot, ${later} bytes after its beginning. */
static void musl_live(struct musl_builder *builder, const struct musl_group *group, uint32_t number,
		      uint64_t size, uint32_t later)
{
	uint64_t slot = musl_slot(group, number), end = slot + group->stride - 4;
	uint32_t rest = (uint32_t)(end - (slot + later + size));
	const uint8_t head[4] = {0, 7 << 5, (uint8_t)(later / 16), 0};

	if (later)
		musl_put(builder, slot - 4, head, sizeof(head));
	musl_header(builder, group, number, slot + later, rest < 5 ? (uint8_t)rest : 5);
	if (rest >= 5)
		musl_put(builder, end - 4, &rest, sizeof(rest));
	builder->live_blocks++;
	builder->live_bytes += size;
}

static void musl_groups(struct musl_builder *builder)
{
	struct musl_group small = {.start = MUSL_GROUPS, .stride = 16, .slots = 32, .pages = 1};
	struct musl_group large = {.start = MUSL_GROUPS + IMAGE_PAGE,
				   .stride = 12 * 16,
				   .slots = 10,
				   .size_class = 10,
				   .pages = 1};
	struct musl_group nested = {.stride = 16, .slots = 11, .is_freeable = true};
	struct musl_group alone = {.start = MUSL_ALONE,
				   .stride = MUSL_ALONE_PAGES * IMAGE_PAGE - 16,
				   .slots = 1,
				   .size_class = 63,
				   .pages = MUSL_ALONE_PAGES,
				   .is_freeable = true};
	struct musl_group donated = {
		.start = MUSL_DONATED, .stride = 6 * 16, .slots = 7, .size_class = 5};

	musl_begin(builder, &small, 0x80000005);
	for (uint32_t i = 0; i < small.slots; i++)
		if (!(0x80000005 >> i & 1))
			musl_live(builder, &small, i, i % 13, 0);
	musl_begin(builder, &large, 1 << 9);
	for (uint32_t i = 0; i < 9; i++)
		if (i != 3)
			musl_live(builder, &large, i, 100 - i, i == 5 ? 32 : 0);
	nested.start = musl_slot(&large, 3);
	musl_header(builder, &large, 3, nested.start, 6);
	builder->next_meta = musl_areas[1] + 24;
	musl_begin(builder, &nested, 1 << 4);
	for (uint32_t i = 0; i < nested.slots; i++)
		if (i != 4)
			musl_live(builder, &nested, i, 12, 0);
	musl_begin(builder, &alone, 0);
	musl_live(builder, &alone, 0, 135000, 64);
	musl_begin(builder, &donated, 1 << 2);
	for (uint32_t i = 0; i < donated.slots; i++)
		if (i != 2)
			musl_live(builder, &donated, i, 80, 0);
}

static void musl_context(struct musl_builder *builder)
{
	const uint32_t is_ready = 1;

	musl_word(builder, MUSL_CONTEXT, MUSL_SECRET);
	musl_put(builder, MUSL_CONTEXT + 8, &is_ready, sizeof(is_ready));
	musl_word(builder, MUSL_CONTEXT + 56, musl_areas[0]);
	musl_word(builder, MUSL_CONTEXT + 64, musl_areas[1]);
	for (unsigned i = 0; i < 2; i++) {
		musl_word(builder, musl_areas[i], MUSL_SECRET);
		musl_word(builder, musl_areas[i] + 8, i ? 0 : musl_areas[1]);
		musl_word(builder, musl_areas[i] + 16, 101);
	}
}

static inline void musl_make(struct musl_builder *builder)
{
	memset(builder, 0, sizeof(*builder));
	image_add(&builder->image, MUSL_GROUPS, MUSL_GROUP_PAGES * IMAGE_PAGE, "", 0);
	image_add(&builder->image, MUSL_METAS, 3 * IMAGE_PAGE, "", 0);
	image_add(&builder->image, MUSL_VARIABLES, MUSL_VARIABLE_PAGES * IMAGE_PAGE,
		  "/lib/ld-musl-x86_64.so.1", 7);
	musl_context(builder);
	builder->next_meta = musl_areas[0] + 24;
	musl_groups(builder);
}
