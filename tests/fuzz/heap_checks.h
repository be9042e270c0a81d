/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Damage to images of heaps, 12 bytes each: the part, the word there, and what is written to it; or a page that is
 * taken away. And what must hold of a heap in spite of it.
 */
#pragma once

#include "heap/graph/leaks.h"
#include "heap/heap.h"

#include "heap_image.h"
#include "scratch.h"

#define DAMAGE_BYTES 12u

/* What must hold of any heap, whatever was read. */
static inline void check(const struct hl_heap *heap)
{
	struct hl_heap_arena total;
	uint64_t resident = 0;

	hl_heap_total(heap, &total);
	for (size_t i = 0; i < heap->carriers.count; i++) {
		const struct hl_carrier *carrier = &heap->carriers.carriers[i];
		require(carrier->allocated_bytes + carrier->cached_bytes + carrier->free_bytes +
				carrier->unscanned_bytes <=
			carrier->total_bytes);
		require(carrier->free_resident_bytes <= carrier->free_bytes);
		require(carrier->arena == UINT32_MAX || carrier->arena < heap->arena_count);
		resident += carrier->resident_bytes;
	}
	require(total.trimmable_bytes <= resident);
	for (size_t i = 0; i < heap->pin_count; i++)
		require(heap->pins[i].returned_bytes <= heap->pins[i].end - heap->pins[i].start);
}

/* What must hold of lost blocks, whatever was read. */
static inline void check_leaks(struct hl_leaks *leaks)
{
	uint64_t blocks = leaks->lost.blocks + leaks->indirect.blocks + leaks->possible.blocks;
	struct hl_leak_sum lost = {0}, possible = {0};

	for (size_t i = 0; i < leaks->row_count; i++) {
		lost.blocks += leaks->rows[i].lost.blocks;
		lost.bytes += leaks->rows[i].lost.bytes;
		possible.blocks += leaks->rows[i].possible.blocks;
	}
	require(blocks <= leaks->live.blocks);
	require(lost.blocks == leaks->lost.blocks && lost.bytes == leaks->lost.bytes);
	require(possible.blocks == leaks->possible.blocks);
	require(leaks->block_count <= 5 && leaks->block_count <= leaks->lost.blocks);
	hl_leaks_free(leaks);
}

/* Blocks lie one after the other. ${context}: where the one before ends. */
static inline int take_block(void *context, uint64_t address, uint64_t usable_bytes,
			     uint64_t last_word)
{
	uint64_t *end = context;

	(void)last_word;
	require(address >= *end && address + usable_bytes >= address);
	*end = address + usable_bytes;
	return 0;
}

static const struct hl_leaks_settings look = {.show = 5};

static inline void damage(struct image *image, const uint8_t *bytes)
{
	struct image_part *part = &image->parts[bytes[0] % image->count];
	uint32_t word = (uint32_t)bytes[1] | (uint32_t)bytes[2] << 8 | (uint32_t)bytes[3] << 16;

	if (bytes[0] & 0x80)
		part->absent[word % (part->length / IMAGE_PAGE)] = true;
	else
		memcpy(part->bytes + word % (part->length / 8) * 8, bytes + 4, 8);
}

static inline void damage_all(struct image *image, const uint8_t *bytes, size_t size)
{
	for (; size >= DAMAGE_BYTES; bytes += DAMAGE_BYTES, size -= DAMAGE_BYTES)
		damage(image, bytes);
}

static inline void look_for_leaks(struct image *image)
{
	struct hl_leaks *leaks;

	if (hl_leaks_read_memory(&image->base, &look, &leaks, NULL) == 0)
		check_leaks(leaks);
}
