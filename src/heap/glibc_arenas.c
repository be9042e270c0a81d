/* SPDX-License-Identifier: BSD-2-Clause */
/* The ring of glibc's arenas, and the heaps of those that are not the main one. */
#include "heap/glibc_reader.h"

#include "base/array.h"
#include "heap/glibc.h"

#include <errno.h>

#define ARENAS_MAX 65536u

/* ---- the ring ---- */

int hl_glibc_arenas_read(struct hl_glibc_reader *reader)
{
	HL_CLEANUP(hl_index_release) struct hl_index seen = {0};
	struct hl_heap *heap = reader->heap;
	uint64_t address = reader->glibc->main_arena;
	struct hl_glibc_arena arena;

	do {
		uint32_t hash = hl_hash_pair(address, 0), at = hash, id;
		while ((id = hl_index_next(&seen, hash, &at)) &&
		       reader->arenas[id - 1].address != address)
			;
		if (id || reader->arena_count == ARENAS_MAX)
			return hl_heap_note(heap, "the ring of arenas does not lead back to the "
						  "first one: the heap is damaged");
		if (hl_index_add(&seen, hash, (uint32_t)reader->arena_count + 1) < 0)
			return -ENOMEM;
		int r = hl_glibc_state_arena(reader->memory, reader->glibc, address, &arena);
		if (r == -ENOMEM || r == -ESRCH || (r < 0 && !reader->arena_count))
			return r;
		if (r < 0)
			return hl_heap_note(
				heap, "the arena at 0x%llx cannot be read: the heap is damaged",
				(unsigned long long)address);
		if (arena.is_damaged &&
		    hl_heap_note(heap,
				 "the top of the arena at 0x%llx lies outside its memory: the "
				 "heap is damaged",
				 (unsigned long long)address) < 0)
			return -ENOMEM;
		const struct hl_heap_arena shown = {
			.address = address,
			.threads = (uint32_t)arena.threads,
			.system_bytes = arena.system_bytes,
			.max_system_bytes = arena.max_system_bytes,
		};
		if (HL_ARRAY_APPEND(reader->arenas, reader->arena_count, reader->arena_capacity,
				    arena) < 0 ||
		    HL_ARRAY_APPEND(heap->arenas, heap->arena_count, heap->arena_capacity, shown) <
			    0)
			return -ENOMEM;
		address = arena.next;
	} while (address != reader->glibc->main_arena);
	return 0;
}

/* ---- heaps ---- */

/* The address of the first chunk of the heap at ${start}: after its heap_info, and after the
 * arena's malloc_state if that lies there. */
static uint64_t first_chunk(const struct hl_glibc_reader *reader,
			    const struct hl_glibc_arena *arena, uint64_t start)
{
	const struct hl_glibc_layout *layout = reader->glibc->layout;
	uint64_t first = start + layout->heap_info_bytes;

	if (arena->address == first)
		first += layout->arena.bytes;
	return (first + 15) & ~UINT64_C(15);
}

/* Whether the heap at ${address} belongs to ${arena} and was not seen before; it is then remembered
 * as the next carrier. 1, 0 or -ENOMEM. */
static int check_heap(struct hl_glibc_reader *reader, const struct hl_glibc_arena *arena,
		      uint64_t address, uint64_t *ret_previous, uint64_t *ret_bytes)
{
	uint64_t alignment = hl_glibc_state_heap_alignment(reader->glibc, &reader->common);
	struct {
		uint64_t arena, previous, bytes;
	} info; /* glibc's heap_info */
	const struct hl_carriers *carriers = &reader->heap->carriers;
	uint32_t hash = hl_hash_pair(address, 0), at = hash, id;

	if (address & (alignment - 1) ||
	    hl_memory_read(reader->memory, address, &info, sizeof(info)) < 0 ||
	    info.arena != arena->address || info.bytes > alignment || info.bytes & 4095)
		return 0;
	while ((id = hl_index_next(&reader->heaps, hash, &at)))
		if (id <= carriers->count && carriers->carriers[id - 1].address == address)
			return 0;
	int r = hl_index_add(&reader->heaps, hash, (uint32_t)carriers->count + 1);
	if (r < 0)
		return r;
	*ret_previous = info.previous;
	*ret_bytes = info.bytes;
	return 1;
}

/* Goes from the newest heap, which has the top, to the oldest, which holds the arena. Where the top
 * is unknown, reads only the oldest. */
int hl_glibc_arenas_read_heaps(struct hl_glibc_reader *reader, uint32_t index)
{
	const struct hl_glibc_arena *arena = &reader->arenas[index];
	uint64_t alignment = hl_glibc_state_heap_alignment(reader->glibc, &reader->common);
	uint64_t newest = (arena->is_damaged ? arena->address : arena->top) & ~(alignment - 1);

	for (uint64_t address = newest, previous, bytes; address; address = previous) {
		int is_good = check_heap(reader, arena, address, &previous, &bytes);
		if (is_good < 0)
			return is_good;
		if (!is_good)
			return hl_heap_note(reader->heap,
					    "the heap at 0x%llx is damaged, or has just ended",
					    (unsigned long long)address);
		uint64_t end = address + bytes;
		const struct hl_run run = {
			.own_start = address,
			.start = first_chunk(reader, arena, address),
			.end = end,
			.limit = address + alignment,
			.top = arena->top >= address && arena->top < end ? arena->top : 0,
			.arena = arena->address,
		};
		if (run.start >= end)
			continue;
		reader->account.trim_unit = 0;
		int r = hl_account_begin(&reader->account, "arena heap", address, end, index);
		if (r == 0)
			r = hl_glibc_walker_run(reader->walker, &run, &end);
		if (r != 0)
			return r;
		hl_account_end(&reader->account, end);
	}
	return 0;
}

uint64_t hl_glibc_arenas_tcache_key(struct hl_glibc_reader *reader)
{
	uint64_t alignment = hl_glibc_state_heap_alignment(reader->glibc, &reader->common), key = 0;

	if (reader->glibc->layout->tcache_key != HL_TCACHE_KEY_RANDOM)
		return 0;
	for (size_t i = 0; i < reader->arena_count && !key; i++) {
		const struct hl_glibc_arena *arena = &reader->arenas[i];
		uint64_t first = i ? first_chunk(reader, arena, arena->address & ~(alignment - 1))
				   : (reader->common.sbrk_base + 15) & ~UINT64_C(15);
		key = hl_glibc_state_tcache_key(reader->memory, reader->glibc, first);
	}
	return key;
}
