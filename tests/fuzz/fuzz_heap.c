/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Heaps of other processes, damaged in every way. The first byte says what the rest is:
 *
 *	C	a core file
 *	other	a version of glibc, whose heap is laid out; then its damage, 12 bytes each: the
 *part, the word there, and what is written to it; or a page that is taken away
 */
#include "heap/glibc.h"
#include "heap/glibc_reader.h"
#include "heap/graph/leaks.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "glibc_image.h"
#include "scratch.h"

#define DAMAGE_BYTES 12u

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* What must hold of any heap, whatever was read. */
static void check(const struct hl_heap *heap)
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

static void read_image(struct builder *builder)
{
	const struct hl_heap_settings settings = {.want_pins = true, .strip_count = 7};
	struct hl_heap *heap = calloc(1, sizeof(*heap));
	struct hl_glibc glibc;

	require(heap);
	if (hl_glibc_roots_find(&builder->image.base, &glibc, NULL) == 0 &&
	    hl_glibc_heap_read(&builder->image.base, &glibc, &settings, heap, NULL) == 0)
		check(heap);
	hl_heap_free(heap);
}

/* What must hold of lost blocks, whatever was read. */
static void check_leaks(struct hl_leaks *leaks)
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

static const struct hl_leaks_settings look = {.show = 5};

static void damage(struct image *image, const uint8_t *bytes)
{
	struct image_part *part = &image->parts[bytes[0] % image->count];
	uint32_t word = (uint32_t)bytes[1] | (uint32_t)bytes[2] << 8 | (uint32_t)bytes[3] << 16;

	if (bytes[0] & 0x80)
		part->absent[word % (part->length / IMAGE_PAGE)] = true;
	else
		memcpy(part->bytes + word % (part->length / 8) * 8, bytes + 4, 8);
}

static void fuzz_image(const uint8_t *bytes, size_t size)
{
	static struct builder builder;

	builder_make(&builder, &versions[bytes[0] % VERSION_COUNT]);
	for (bytes++, size--; size >= DAMAGE_BYTES; bytes += DAMAGE_BYTES, size -= DAMAGE_BYTES)
		damage(&builder.image, bytes);
	read_image(&builder);
	struct hl_leaks *leaks;
	if (hl_leaks_read_memory(&builder.image.base, &look, &leaks, NULL) == 0)
		check_leaks(leaks);
	image_release(&builder.image);
}

static void fuzz_core(const uint8_t *bytes, size_t size)
{
	const struct hl_heap_settings settings = {0};
	struct hl_heap *heap;
	char path[64];
	int fd = memfd_create("core", MFD_CLOEXEC);

	require(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (hl_heap_read_core(path, &settings, &heap, NULL) == 0) {
		check(heap);
		hl_heap_free(heap);
	}
	struct hl_leaks *leaks;
	if (hl_leaks_read(0, path, &look, &leaks, NULL) == 0)
		check_leaks(leaks);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	if (size && bytes[0] == 'C')
		fuzz_core(bytes + 1, size - 1);
	else if (size)
		fuzz_image(bytes, size);
	return 0;
}
