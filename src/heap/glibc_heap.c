/* SPDX-License-Identifier: BSD-2-Clause */
/* The ring of arenas and their heaps, one after the other; see glibc_reader.h. */
#include "heap/glibc_reader.h"

#include "base/array.h"
#include "heap/glibc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the ring of arenas ---- */

#define ARENAS_MAX 65536u

/* Follows the ring of arenas and fills reader->arenas. Where a damaged heap breaks the ring, adds a
 * note. 0 or a negative errno. */
static int read_ring(struct hl_glibc_reader *reader)
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

/* ---- heaps of arenas that are not the main one ---- */

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

/* Walks the heaps of arena ${index}, which is not the main one. Goes from the newest heap, which
 * has the top, to the oldest, which holds the arena. Where the top is unknown, reads only the
 * oldest. */
static int read_heaps_of(struct hl_glibc_reader *reader, uint32_t index)
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

/* The key of chunks in thread caches, read from the first caches of the arenas; 0: unknown. */
static uint64_t find_tcache_key(struct hl_glibc_reader *reader)
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

/* ---- one part after the other, with the process stopped if asked for ---- */

#define STOPS_MAX     50u /* how often to wait for a thread to leave the allocator */
#define STOP_PAUSE_US 200

#define AGREEMENT_TRIES 4u /* while the process runs */

typedef int read_part(struct hl_glibc_reader *reader, uint32_t arena);

static int read_break(struct hl_glibc_reader *reader, uint32_t arena)
{
	(void)arena;
	return hl_glibc_main_read_break(reader);
}

static int read_mappings(struct hl_glibc_reader *reader, uint32_t arena)
{
	(void)arena;
	return hl_glibc_mmapped_read(reader);
}

/* Stops the process and reads ${arena} and mp_ again. Chunks may be inconsistent while a thread is
 * inside the allocator, so the process goes on for a moment until no thread is. */
static int stop_outside(struct hl_glibc_reader *reader, struct hl_glibc_arena *arena)
{
	for (unsigned tries = 1;; tries++) {
		int r = hl_memory_stop(reader->memory, reader->err);
		if (r < 0)
			return r;
		r = hl_glibc_state_common(reader->memory, reader->glibc, &reader->common);
		if (r == 0)
			r = hl_glibc_state_arena(reader->memory, reader->glibc, arena->address,
						 arena);
		if (r == 0 && (!arena->is_locked || tries == STOPS_MAX))
			return 0;
		hl_memory_go_on(reader->memory);
		if (r < 0)
			return r;
		usleep(STOP_PAUSE_US);
	}
}

/* Reads one part of the heap; stops the process for it if the settings say so. */
static int read_stopped(struct hl_glibc_reader *reader, read_part *part, uint32_t index)
{
	struct hl_heap_arena *shown = &reader->heap->arenas[index];
	struct hl_glibc_arena *arena = &reader->arenas[index];
	struct hl_glibc_arena before = *arena;

	if (!reader->account.settings->stop)
		return part(reader, index);
	int r = stop_outside(reader, arena);
	if (r < 0)
		return r;
	if (part == read_mappings) {
		/* The size of main_arena stays as it was when the break was read. */
		*arena = before;
	} else {
		shown->threads = (uint32_t)arena->threads;
		shown->system_bytes = arena->system_bytes;
		shown->max_system_bytes = arena->max_system_bytes;
	}
	r = part(reader, index);
	hl_memory_go_on(reader->memory);
	return r;
}

static bool has_swap(const struct hl_memory *memory)
{
	struct hl_rss_beside beside = {0};

	if (memory->pid)
		hl_rss_read_beside(memory->pid, &beside);
	return beside.swap_bytes != 0;
}

/* Adds notes on what could not be read, and on what glibc counts but was not found. */
static int note_gaps(const struct hl_glibc_reader *reader,
		     const struct hl_glibc_walker_counts *counts)
{
	struct hl_heap *heap = reader->heap;
	int r = 0;

	if (counts->abandoned)
		r = hl_heap_note(
			heap,
			"%llu place%s did not fit together, the first at 0x%llx: the heap "
			"%s; what lies there is unscanned",
			(unsigned long long)counts->abandoned, counts->abandoned > 1 ? "s" : "",
			(unsigned long long)counts->first_abandoned,
			heap->was_stopped ? "is damaged" : "changed too fast, or is damaged");
	if (r == 0 && heap->mmapped_blocks != heap->mp_mmapped_blocks)
		r = hl_heap_note(
			heap,
			"glibc counts %llu separately mapped blocks of %llu KiB; %llu of "
			"them, %llu KiB, could be located: %s",
			(unsigned long long)heap->mp_mmapped_blocks,
			(unsigned long long)heap->mp_mmapped_bytes >> 10,
			(unsigned long long)heap->mmapped_blocks,
			(unsigned long long)heap->mmapped_bytes >> 10,
			has_swap(reader->memory)
				? "pages of the process are on swap, headers of blocks among "
				  "them, and were not read"
				: "the rest is among other mappings");
	if (r == 0 && hl_glibc_main_lacks_pieces(reader))
		r = hl_heap_note(heap, "the main arena has %llu bytes, of which %llu were found",
				 (unsigned long long)reader->arenas[0].system_bytes,
				 (unsigned long long)reader->main_bytes);
	return r;
}

/* Adds the note that the layout is another version's. */
static int note_layout(const struct hl_glibc_reader *reader)
{
	const struct hl_glibc *glibc = reader->glibc;
	char versions[40];

	hl_glibc_layout_name(glibc->layout, versions, sizeof(versions));
	return hl_heap_note(reader->heap, "%s; its heap agrees with the layout of %s",
			    glibc->minor ? "this version of glibc is not known"
					 : "glibc does not state its version",
			    versions);
}

static int describe(struct hl_glibc_reader *reader)
{
	struct hl_heap *heap = reader->heap;
	const struct hl_glibc_walker_counts *counts = hl_glibc_walker_counts(reader->walker);
	struct hl_glibc_arena now, *main = &reader->arenas[0];

	/* The main arena may have given memory back since it was read. */
	if (hl_glibc_main_lacks_pieces(reader) &&
	    hl_glibc_state_arena(reader->memory, reader->glibc, main->address, &now) == 0 &&
	    now.system_bytes < main->system_bytes)
		heap->arenas[0].system_bytes = main->system_bytes = now.system_bytes;
	if (hl_glibc_main_lacks_pieces(reader))
		heap->arenas[0].unscanned_bytes += main->system_bytes - reader->main_bytes;
	/* An arena that has grown since it was read has more than system_bytes said. Overhead is
	 * what belongs to no other part. */
	for (size_t i = 0; i < heap->arena_count; i++) {
		struct hl_heap_arena *arena = &heap->arenas[i];
		uint64_t parts = arena->inuse_bytes + arena->tcache_bytes + arena->fastbin_bytes +
				 arena->free_bytes + arena->unscanned_bytes;
		if (arena->system_bytes < parts)
			arena->system_bytes = parts;
		arena->overhead_bytes = arena->system_bytes - parts;
	}
	heap->trim_threshold = reader->common.trim_threshold;
	heap->mmap_threshold = reader->common.mmap_threshold;
	heap->arena_max = (uint32_t)reader->common.arena_max;
	heap->mp_mmapped_blocks = reader->common.mmapped_blocks;
	heap->mp_mmapped_bytes = reader->common.mmapped_bytes;
	heap->was_stopped = heap->was_stopped || reader->account.settings->stop;
	heap->chunks = counts->chunks;
	heap->rereads = counts->rereads;
	heap->abandoned = counts->abandoned;
	snprintf(heap->allocator, sizeof(heap->allocator), "%s", reader->glibc->name);
	int r = reader->glibc->is_unknown ? note_layout(reader) : 0;
	if (r < 0)
		return r;
	return note_gaps(reader, counts);
}

static void begin_account(struct hl_glibc_reader *reader, struct hl_heap *heap,
			  const struct hl_heap_settings *settings)
{
	struct hl_log2_shape shape = settings->free_shape;

	if (!shape.width)
		shape = (struct hl_log2_shape){.start = 512, .width = 14};
	heap->carriers.shape = shape;
	reader->heap = heap;
	reader->arena_count = 0;
	reader->main_bytes = 0;
	reader->tries = 0;
	reader->account = (struct hl_account){
		.heap = heap,
		.settings = settings,
		.free_shape = shape,
		.page_bytes = reader->memory->page_bytes,
		.cache_size = hl_glibc_state_tcache_size(reader->glibc->layout),
	};
}

/* Walks the whole heap and fills ${heap}. */
static int read_pass(struct hl_glibc_reader *reader, struct hl_heap *heap,
		     const struct hl_heap_settings *settings)
{
	const struct hl_glibc_walker_settings strict = {.is_strict = true};

	begin_account(reader, heap, settings);
	int r = hl_glibc_state_common(reader->memory, reader->glibc, &reader->common);
	if (r == 0)
		r = read_ring(reader);
	if (r == 0) {
		reader->walk.tcache_key = find_tcache_key(reader);
		reader->walk.tcache_max_bytes = reader->common.tcache_max_bytes;
		r = hl_glibc_walker_new(reader->memory, reader->glibc, &reader->walk,
					&reader->walker);
	}
	if (r == 0)
		r = hl_glibc_walker_new(reader->memory, reader->glibc, &strict, &reader->strict);
	if (r == 0)
		r = read_stopped(reader, read_break, 0);
	for (uint32_t i = 1; i < reader->arena_count && r == 0; i++)
		r = read_stopped(reader, read_heaps_of, i);
	return r == 0 ? read_stopped(reader, read_mappings, 0) : r;
}

static void end_pass(struct hl_glibc_reader *reader)
{
	hl_account_release(&reader->account);
	hl_glibc_walker_free(reader->walker);
	hl_glibc_walker_free(reader->strict);
	hl_index_release(&reader->heaps);
	reader->walker = reader->strict = NULL;
}

/* ---- thread caches ---- */

static void release_scratch(struct hl_heap *scratch)
{
	hl_carriers_release(&scratch->carriers);
	free(scratch->arenas);
	free(scratch->notes);
}

/* Where nothing marks chunks in thread caches, a first pass looks for the caches. */
static int find_cached_chunks(struct hl_glibc_reader *reader, struct hl_addresses *chunks)
{
	const struct hl_heap_settings settings = {.stop = reader->wants_stop};
	struct hl_heap scratch = {.page_bytes = reader->memory->page_bytes};
	int r = read_pass(reader, &scratch, &settings);

	if (r == 0 && reader->walk.tcache_key == 0)
		r = hl_glibc_state_cached(reader->memory, reader->glibc,
					  &reader->account.cache_blocks, chunks);
	end_pass(reader);
	release_scratch(&scratch);
	reader->walk.tcache_chunks = chunks;
	return r;
}

/* ---- whether a layout is that of the heap ---- */

/* Whether the free chunks in the bins are free for their neighbours, too. Some may have been taken meanwhile. */
static bool bins_agree(const struct hl_glibc_reader *reader, const struct hl_glibc_arena *arena)
{
	HL_CLEANUP(hl_addresses_release) struct hl_addresses chunks = {0};
	struct hl_memory *memory = reader->memory;
	uint64_t head, next[2];
	size_t agreed = 0;

	if (hl_glibc_state_bins(memory, reader->glibc, arena, &chunks) < 0)
		return false;
	for (size_t i = 0; i < chunks.count; i++) {
		uint64_t chunk = chunks.addresses[i];
		if (hl_memory_read(memory, chunk + 8, &head, sizeof(head)) < 0)
			continue;
		head &= ~HL_CHUNK_FLAGS;
		agreed += hl_memory_read(memory, chunk + head, next, sizeof(next)) == 0 &&
			  next[0] == head && !(next[1] & HL_CHUNK_IN_USE_BEFORE);
	}
	return agreed >= chunks.count - chunks.count / 16;
}

/* Whether the memory of each arena is what it counts, and its lists agree with it. */
static bool arenas_agree(const struct hl_glibc_reader *reader)
{
	const struct hl_carriers *carriers = &reader->heap->carriers;

	for (size_t i = 0; i < reader->arena_count; i++) {
		uint64_t found = i ? 0 : reader->main_bytes;
		for (size_t at = 0; i && at < carriers->count; at++)
			found += carriers->carriers[at].arena == i
					 ? carriers->carriers[at].total_bytes
					 : 0;
		if (found != reader->arenas[i].system_bytes ||
		    !bins_agree(reader, &reader->arenas[i]))
			return false;
	}
	return true;
}

/* An enum hl_glibc_agreement, or a negative errno. */
static int walk_to_agree(struct hl_glibc_reader *reader)
{
	HL_CLEANUP(hl_addresses_release) struct hl_addresses cached = {0};
	struct hl_heap scratch = {.page_bytes = reader->memory->page_bytes};
	const struct hl_heap_settings settings = {0};
	int r = read_pass(reader, &scratch, &settings);

	if (r == 0)
		r = hl_glibc_state_cached(reader->memory, reader->glibc,
					  &reader->account.cache_blocks, &cached);
	if (r == 0 && !scratch.note_count && !hl_glibc_walker_counts(reader->walker)->abandoned &&
	    scratch.mmapped_blocks == reader->common.mmapped_blocks && arenas_agree(reader))
		r = cached.count ? HL_GLIBC_AGREES : HL_GLIBC_AGREES_BUT_CACHES;
	end_pass(reader);
	release_scratch(&scratch);
	return r;
}

int hl_glibc_heap_agreement(struct hl_memory *memory, const struct hl_glibc *glibc)
{
	struct hl_glibc_reader reader = {.memory = memory, .glibc = glibc};
	int r = HL_GLIBC_DISAGREES;

	reader.walk.chunks = hl_account_chunks;
	reader.walk.pages = hl_account_pages;
	reader.walk.context = &reader.account;
	for (unsigned i = 0; i < AGREEMENT_TRIES && r == HL_GLIBC_DISAGREES; i++)
		r = walk_to_agree(&reader);
	free(reader.arenas);
	return r == -ENOMEM || r == -ESRCH || r > 0 ? r : HL_GLIBC_DISAGREES;
}

/* ---- all of it ---- */

static bool needs_first_pass(struct hl_glibc_reader *reader)
{
	struct hl_heap scratch = {0};
	const struct hl_heap_settings settings = {0};

	if (reader->glibc->layout->tcache_key != HL_TCACHE_KEY_RANDOM)
		return true;
	begin_account(reader, &scratch, &settings);
	int r = hl_glibc_state_common(reader->memory, reader->glibc, &reader->common);
	if (r == 0)
		r = read_ring(reader);
	bool has_key = r == 0 && (find_tcache_key(reader) || !reader->common.tcache_count);
	release_scratch(&scratch);
	return !has_key;
}

/* Counts chunks as live that have the key but are in no list: a thread that ended has left the key.
 * */
static int revive_stale(struct hl_glibc_reader *reader)
{
	struct hl_account *account = &reader->account;
	struct hl_addresses listed = {0};
	int r = hl_glibc_state_cached(reader->memory, reader->glibc, &account->cache_blocks,
				      &listed);

	for (size_t i = 0; i < account->cached_count && r == 0; i++) {
		uint64_t address = account->cached[i].chunk.address;
		size_t at = hl_addresses_at(&listed, address);
		if ((at == listed.count || listed.addresses[at] != address) &&
		    hl_glibc_state_has_key(reader->memory, address, reader->walk.tcache_key))
			r = hl_account_revive(account, &account->cached[i]);
	}
	hl_addresses_release(&listed);
	return r;
}

/* What arenas have from the system, and nothing of what is in them. */
static int read_arenas(struct hl_glibc_reader *reader, struct hl_heap *heap,
		       const struct hl_heap_settings *settings)
{
	begin_account(reader, heap, settings);
	int r = hl_glibc_state_common(reader->memory, reader->glibc, &reader->common);
	if (r == 0)
		r = read_ring(reader);
	heap->mp_mmapped_blocks = reader->common.mmapped_blocks;
	snprintf(heap->allocator, sizeof(heap->allocator), "%s", reader->glibc->name);
	free(reader->arenas);
	return r < 0 ? hl_error_set(reader->err, r, "cannot read the heap: %s", strerror(-r)) : 0;
}

int hl_glibc_heap_read(struct hl_memory *memory, const struct hl_glibc *glibc,
		       const struct hl_heap_settings *settings, struct hl_heap *heap,
		       struct hl_error *err)
{
	struct hl_glibc_reader reader = {
		.memory = memory, .glibc = glibc, .err = err, .wants_stop = settings->stop};
	struct hl_addresses chunks = {0};
	int r = 0;

	reader.walk.chunks = hl_account_chunks;
	reader.walk.pages = hl_account_pages;
	reader.walk.context = &reader.account;
	if (settings->only_arenas)
		return read_arenas(&reader, heap, settings);
	if (needs_first_pass(&reader))
		r = find_cached_chunks(&reader, &chunks);
	if (r == 0)
		r = read_pass(&reader, heap, settings);
	/* The lists are known only where all was read. */
	if (r == 0 && reader.walk.tcache_key &&
	    hl_glibc_walker_counts(reader.walker)->abandoned == 0)
		r = revive_stale(&reader);
	if (r == 0)
		r = describe(&reader);
	hl_pins_sort(heap);
	end_pass(&reader);
	hl_addresses_release(&chunks);
	free(reader.arenas);
	return r < 0 ? hl_error_set(err, r, "cannot read the heap: %s", strerror(-r)) : r;
}
