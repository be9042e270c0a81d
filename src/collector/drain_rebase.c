/* SPDX-License-Identifier: BSD-2-Clause */
/* Compares counters and log, thread by thread; see drain.h. */
#include "collector/drain.h"

#include "base/compiler.h"
#include "collector/region_read.h"

#include <errno.h>
#include <stdlib.h>

/* The most events of a cell; one with more is damaged. */
#define COUNT_MAX (UINT64_C(1) << 40)

/* How often a thread in the middle of an event is looked at: some microseconds. */
#define LOOKS 1000

/* A node, while counters are read. Sums wrap, as the counters of a broken program may. */
struct node {
	uint64_t bytes, objects; /* in use by the counters, less what unread events will add */
	uint64_t position;	 /* of the ring, when the counter was read, of ... */
	uint32_t thread;	 /* the last thread that has one, + 1 */
};

struct reading {
	struct hl_ring_sink sink; /* first: what it is given leads back here */
	const struct hl_drain_rebase *rebase;
	struct node *nodes;
	uint32_t node_count; /* ids up to it */
	uint64_t *chunks;    /* thread << 32 | chunk; sorted */
	uint32_t chunk_count;
	uint32_t thread;	     /* that is being read */
	uint64_t end;		     /* the last position of its ring that a counter was read at */
	bool settled;		     /* all its counters were read between events */
	struct hl_ring_reader ahead; /* of its ring */
	uint32_t unsettled;
};

/* ---- counters ---- */

static const struct hl_cell_chunk *chunk_at(const struct reading *reading, uint32_t chunk)
{
	const struct hl_region_view *view = reading->rebase->view;
	uintptr_t cells = (uintptr_t)view->base + view->layout->areas[HL_AREA_CELLS].offset;

	return (const struct hl_cell_chunk *)cells + chunk;
}

/* Without a ring nothing of the thread is in the log, and nothing unread. */
static struct hl_ring *ring_of(const struct reading *reading)
{
	const struct hl_ring_set *rings = reading->rebase->rings;

	if (reading->thread >= rings->count || rings->readers[reading->thread].given_up)
		return NULL;
	return rings->readers[reading->thread].ring;
}

/* Changes with each event of the thread that is being read, and once more if that is lost. */
struct progress {
	uint64_t head, lost;
};

static struct progress progress_of(const struct reading *reading, const struct hl_ring *ring)
{
	const struct hl_region_view *view = reading->rebase->view;
	const struct hl_region_thread *threads =
		(const void *)((const char *)view->base +
			       view->layout->areas[HL_AREA_THREADS].offset);
	struct progress now = {.head = atomic_load_explicit(&ring->head, memory_order_acquire)};

	/* After the head: C does not order the members of an initializer. */
	now.lost = __atomic_load_n(&threads[reading->thread].lost_log_events, __ATOMIC_ACQUIRE);
	return now;
}

/* Copies ${cell} between two events of its thread; returns where the ring was then. The thread sanitizer
 * does not know of looking twice. */
__attribute__((no_sanitize("thread"))) static uint64_t
copy_cell(struct reading *reading, const struct hl_cell *cell, struct hl_cell *ret_cell)
{
	struct hl_ring *ring = ring_of(reading);
	struct progress before, after;
	unsigned looks = reading->settled ? LOOKS : 1;

	if (!ring) {
		*ret_cell = *cell;
		return 0;
	}
	do {
		before = progress_of(reading, ring);
		*ret_cell = *(const volatile struct hl_cell *)cell;
		atomic_thread_fence(memory_order_acquire);
		after = progress_of(reading, ring);
	} while ((before.head != after.head || before.lost != after.lost ||
		  before.head & HL_RING_IN_EVENT) &&
		 --looks);
	reading->settled &= looks > 0;
	return before.head & ~HL_RING_IN_EVENT;
}

static void read_cell(struct reading *reading, const struct hl_cell *shared)
{
	struct hl_cell cell;
	uint64_t position = copy_cell(reading, shared, &cell);

	if (!cell.node || cell.node > reading->node_count ||
	    !hl_region_check_cell(&cell, COUNT_MAX))
		return;
	struct node *node = &reading->nodes[cell.node];
	node->bytes += cell.alloc_bytes - cell.free_bytes;
	node->objects += cell.alloc_objects - cell.free_objects;
	node->position = position;
	node->thread = reading->thread + 1;
	if (position > reading->end)
		reading->end = position;
}

/* ---- unread events ---- */

/* What the counter has already will be added to the log when the event is read. */
static int take_off(struct hl_ring_sink *sink, uint32_t id, int64_t bytes, int64_t objects)
{
	struct reading *reading = (struct reading *)sink;

	if (!id || id > reading->node_count)
		return 0;
	struct node *node = &reading->nodes[id];
	if (node->thread != reading->thread + 1 || reading->ahead.position >= node->position)
		return 0;
	node->bytes -= (uint64_t)bytes;
	node->objects -= (uint64_t)objects;
	return 0;
}

/* ---- all threads ---- */

static uint32_t thread_at(const struct reading *reading, uint32_t index)
{
	return (uint32_t)(reading->chunks[index] >> 32);
}

/* Reads what the thread of the ${first}th chunk has counted; returns where the next thread's chunks begin. */
static uint32_t read_thread(struct reading *reading, uint32_t first)
{
	uint32_t i = first;

	reading->thread = thread_at(reading, first);
	reading->end = 0;
	reading->settled = true;
	for (; i < reading->chunk_count && thread_at(reading, i) == reading->thread; i++) {
		const struct hl_cell_chunk *chunk = chunk_at(reading, (uint32_t)reading->chunks[i]);
		uint32_t used = atomic_load_explicit(&chunk->used, memory_order_acquire);
		for (uint32_t cell = 0; cell < used && cell < HL_CHUNK_CELLS; cell++)
			read_cell(reading, &chunk->cells[cell]);
	}
	if (ring_of(reading)) {
		reading->ahead = reading->rebase->rings->readers[reading->thread];
		hl_ring_reader_peek(&reading->ahead, reading->end, &reading->sink);
	}
	reading->unsettled += !reading->settled;
	return i;
}

static int by_number(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static int read_counters(struct reading *reading)
{
	const struct hl_region_view *view = reading->rebase->view;

	reading->node_count = hl_region_read_node_count(view);
	uint32_t chunks = hl_region_read_chunk_count(view);
	reading->nodes = calloc(reading->node_count + (size_t)1, sizeof(*reading->nodes));
	reading->chunks = calloc(chunks + (size_t)1, sizeof(*reading->chunks));
	if (!reading->nodes || !reading->chunks)
		return -ENOMEM;
	/* Until it has its first cell a chunk does not say whose it is. What is counted there later
	 * is unread, too. */
	for (uint32_t i = 0; i < chunks; i++) {
		const struct hl_cell_chunk *chunk = chunk_at(reading, i);
		if (atomic_load_explicit(&chunk->used, memory_order_acquire))
			reading->chunks[reading->chunk_count++] = (uint64_t)chunk->thread << 32 | i;
	}
	qsort(reading->chunks, reading->chunk_count, sizeof(*reading->chunks), by_number);
	for (uint32_t i = 0; i < reading->chunk_count;)
		i = read_thread(reading, i);
	return 0;
}

/* ---- the log ---- */

static int add(const struct hl_drain_rebase *rebase, uint32_t node, int64_t bytes, int64_t objects)
{
	if (!bytes && !objects)
		return 0;
	int r = hl_intervals_event(rebase->intervals, node, bytes, objects);
	if (r == 0 && rebase->events)
		hl_event_writer_event(rebase->events, node, bytes, objects);
	return r;
}

/* The differences have no order: what is in use after all of them can be a maximum, and nothing
 * before. */
static int add_differences(const struct reading *reading)
{
	const struct hl_drain_rebase *rebase = reading->rebase;
	int r = 0;

	hl_intervals_run(rebase->intervals, true);
	if (rebase->events)
		hl_event_writer_run(rebase->events, 0, rebase->intervals->tick, true);
	for (uint32_t id = 1; r == 0 && id <= reading->node_count; id++) {
		const struct node *node = &reading->nodes[id];
		int64_t bytes, objects, bytes_since, objects_since;
		hl_log_writer_in_use(rebase->writer, id, &bytes, &objects);
		hl_intervals_change(rebase->intervals, id, &bytes_since, &objects_since);
		uint64_t more_bytes = node->bytes - (uint64_t)bytes - (uint64_t)bytes_since;
		uint64_t more_objects = node->objects - (uint64_t)objects - (uint64_t)objects_since;
		/* Bytes and blocks apart: kept events are allocations or frees, of both alike. */
		r = add(rebase, id, (int64_t)more_bytes, 0);
		if (r == 0)
			r = add(rebase, id, 0, (int64_t)more_objects);
	}
	return r;
}

int hl_drain_rebase(const struct hl_drain_rebase *rebase, uint32_t *ret_unsettled)
{
	struct reading *reading = calloc(1, sizeof(*reading));

	if (!reading)
		return -ENOMEM;
	reading->sink.event = take_off;
	reading->rebase = rebase;
	int r = read_counters(reading);
	if (r == 0)
		r = add_differences(reading);
	if (r == 0)
		*ret_unsettled = reading->unsettled;
	free(reading->nodes);
	free(reading->chunks);
	free(reading);
	return r;
}
