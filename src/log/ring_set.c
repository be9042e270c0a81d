/* SPDX-License-Identifier: BSD-2-Clause */
/* A heap of rings, the earliest next event on top; see ring_reader.h. */
#include "log/ring_reader.h"

#include "base/compiler.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/* A ring that has events of the tick, and the stamp of the next one. */
struct hl_ring_turn {
	uint64_t stamp;
	uint32_t ring;
};

/* ---- the heap ---- */

static void sift_down(struct hl_ring_turn *turns, size_t count, size_t at)
{
	struct hl_ring_turn turn = turns[at];

	for (size_t child; (child = 2 * at + 1) < count; at = child) {
		child += child + 1 < count && turns[child + 1].stamp < turns[child].stamp;
		if (turn.stamp <= turns[child].stamp)
			break;
		turns[at] = turns[child];
	}
	turns[at] = turn;
}

/* ---- sets ---- */

static size_t reader_bytes(uint32_t max)
{
	return (max + (size_t)1) * sizeof(struct hl_ring_reader);
}

/* RLIMIT_DATA counts private memory by what is reserved; that of shared mappings is free. */
int hl_ring_set_init(struct hl_ring_set *set, uint32_t max)
{
	void *readers = mmap(NULL, reader_bytes(max), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	set->max = max;
	set->readers = readers == MAP_FAILED ? NULL : readers;
	set->next_ticks = calloc(max + (size_t)1, sizeof(*set->next_ticks));
	set->turns = calloc(max + (size_t)1, sizeof(*set->turns));
	return set->readers && set->next_ticks && set->turns ? 0 : -ENOMEM;
}

/* The next tick of a ring. One that is given up is emptied, or its thread would wait for ever. */
static uint64_t look_at_ring(struct hl_ring_reader *reader, uint64_t now)
{
	if (!reader->ring)
		return UINT64_MAX;
	uint64_t next = hl_ring_reader_next_tick(reader);
	reader->given_up |= next > now && next != UINT64_MAX;
	if (HL_LIKELY(!reader->given_up)) {
		/* All was read. The program can write the tail: a wrong one would have its thread
		 * wait for ever. */
		if (next == UINT64_MAX &&
		    atomic_load_explicit(&reader->ring->tail, memory_order_relaxed) !=
			    reader->position)
			atomic_store_explicit(&reader->ring->tail, reader->position,
					      memory_order_release);
		return next;
	}
	atomic_store_explicit(&reader->ring->tail, hl_ring_head(reader->ring),
			      memory_order_relaxed);
	return UINT64_MAX;
}

static uint64_t earliest_of(const struct hl_ring_set *set)
{
	uint64_t earliest = UINT64_MAX;

	for (uint32_t i = 0; i < set->count; i++)
		if (set->next_ticks[i] < earliest)
			earliest = set->next_ticks[i];
	return earliest;
}

uint64_t hl_ring_set_look(struct hl_ring_set *set, uint64_t now)
{
	for (uint32_t i = 0; i < set->count; i++)
		set->next_ticks[i] = look_at_ring(&set->readers[i], now);
	return earliest_of(set);
}

bool hl_ring_set_several(const struct hl_ring_set *set, uint64_t tick)
{
	uint32_t rings = 0;

	for (uint32_t i = 0; i < set->count && rings < 2; i++)
		rings += set->next_ticks[i] <= tick;
	return rings > 1;
}

/* Reads the ring on top as long as it stays on top. Whether it has events of the tick left. */
static bool take_turn(struct hl_ring_set *set, size_t count, uint64_t tick,
		      struct hl_ring_sink *sink)
{
	struct hl_ring_turn *top = set->turns;
	struct hl_ring_reader *reader = &set->readers[top->ring];
	uint64_t second = count > 1 ? top[1].stamp : UINT64_MAX;

	if (count > 2 && top[2].stamp < second)
		second = top[2].stamp;
	if (sink->run)
		sink->run(sink, top->ring);
	int r = hl_ring_reader_read(reader, tick, second, sink);
	top->stamp = reader->stamp;
	set->next_ticks[top->ring] = r > 0 ? reader->tick : UINT64_MAX;
	return r > 0 && reader->tick <= tick;
}

uint64_t hl_ring_set_read(struct hl_ring_set *set, uint64_t tick, struct hl_ring_sink *sink)
{
	size_t count = 0;

	for (uint32_t i = 0; i < set->count; i++)
		if (set->next_ticks[i] <= tick)
			set->turns[count++] = (struct hl_ring_turn){set->readers[i].stamp, i};
	for (size_t i = count / 2; i-- > 0;)
		sift_down(set->turns, count, i);
	while (count) {
		if (!take_turn(set, count, tick, sink))
			set->turns[0] = set->turns[--count];
		sift_down(set->turns, count, 0);
	}
	return earliest_of(set);
}

void hl_ring_set_release(struct hl_ring_set *set)
{
	if (set->readers)
		munmap(set->readers, reader_bytes(set->max));
	free(set->next_ticks);
	free(set->turns);
}
