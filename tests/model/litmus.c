/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * litmus ROUNDS: two threads on the structures that have no lock, each on a processor of its own where there are two. Counts
 * outcomes that docs/memory-order.md says cannot be; says "STRUCTURE: N rounds, M forbidden", and fails if M is not 0.
 */
#include "collector/region_read.h"
#include "log/ring_reader.h"
#include "recorder/block.h"
#include "recorder/cells.h"
#include "recorder/event_parts.h"
#include "recorder/node.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/test_region.h"

static uint64_t rounds, forbidden;
static struct hl_region_map region;
static _Atomic uint64_t turn;

static void *start(pthread_t *thread, void *(*run)(void *))
{
	if (pthread_create(thread, NULL, run, NULL) != 0)
		abort();
	return NULL;
}

static void say(const char *structure)
{
	printf("%s: %lu rounds, %lu forbidden\n", structure, rounds, forbidden);
	fflush(stdout);
}

/* ---- a ring: words arrive in order, each as it was written ---- */

struct sink {
	struct hl_ring_sink sink; /* first */
	uint64_t expected;
};

static int take_word(struct hl_ring_sink *sink, uint32_t node, int64_t bytes, int64_t objects)
{
	struct sink *own = (struct sink *)sink;

	forbidden += node != own->expected % 1000 + 1 || (uint64_t)bytes != own->expected ||
		     objects != 1;
	own->expected++;
	return 0;
}

static void *write_words(void *unused)
{
	struct hl_ring_writer writer = {0};

	hl_ring_writer_init(&writer, &region, 0);
	for (uint64_t i = 0; i < rounds; i++)
		while (!hl_ring_writer_put(&writer, &region, (uint32_t)(i % 1000 + 1), i, 1, false))
			sched_yield();
	return unused;
}

static void try_ring(void)
{
	struct sink sink = {.sink.event = take_word};
	struct hl_ring_reader reader;
	pthread_t writer;

	region = test_region_new(0);
	atomic_store(&region.header->flags, HL_REGION_LOSSY);
	start(&writer, write_words);
	while (!atomic_load(&region.threads[0].has_ring))
		sched_yield();
	hl_ring_reader_init(&reader, hl_ring_at(hl_region_map_rings(&region), 0),
			    region.header->areas[HL_AREA_RINGS].capacity);
	while (sink.expected < rounds && !reader.given_up)
		hl_ring_reader_read(&reader, UINT64_MAX, UINT64_MAX, &sink.sink);
	forbidden += reader.given_up;
	pthread_join(writer, NULL);
	test_region_free(&region);
	say("ring");
}

/* ---- stamps: threads that bring about each other's events ---- */

static struct hl_ring_writer writers[2];
static uint64_t stamps[2];

/* Each event is because of the other thread's last one, which it has a stamp of. */
static void *write_by_turns(void *argument)
{
	const uint64_t own = (uint64_t)(uintptr_t)argument;
	struct hl_ring_writer *writer = &writers[own];

	for (uint64_t i = own; i < rounds; i += 2) {
		while (atomic_load_explicit(&turn, memory_order_acquire) != i)
			hl_machine_pause();
		if (i % 64 < 2) /* another tick, in which one may be alone */
			atomic_store(&region.header->tick, i / 64);
		if (!hl_ring_writer_put(writer, &region, 1, i, 1, false))
			abort();
		uint64_t stamp = writer->stamp;
		forbidden += i && stamp <= stamps[!own];
		stamps[own] = stamp;
		atomic_store(&writer->ring->tail, writer->head); /* read */
		writer->limit = writer->head + writer->mask + 1;
		atomic_store_explicit(&turn, i + 1, memory_order_release);
	}
	return NULL;
}

static void try_stamps(void)
{
	pthread_t other;

	region = test_region_new(0);
	atomic_store(&region.header->flags, HL_REGION_LOSSY | HL_REGION_STAMPS);
	hl_ring_writer_init(&writers[0], &region, 0);
	hl_ring_writer_init(&writers[1], &region, 1);
	atomic_store(&turn, 0);
	if (pthread_create(&other, NULL, write_by_turns, (void *)1) != 0)
		abort();
	write_by_turns(NULL);
	pthread_join(other, NULL);
	test_region_free(&region);
	say("stamps");
}

/* ---- nodes: one for each key, whole ---- */

#define KEYS 1500u /* fewer than the first table may have */

static uint32_t ids[2][KEYS];

static void *intern(void *argument)
{
	const uint64_t own = (uint64_t)(uintptr_t)argument;
	struct hl_node_cache *cache = calloc(1, sizeof(*cache));

	atomic_fetch_add(&turn, 1);
	while (atomic_load(&turn) < 2)
		;
	for (uint32_t i = 0; i < KEYS; i++) {
		uint32_t parent = i ? ids[own][i / 2] : 0;
		ids[own][i] = hl_node_intern(&region, cache, parent, (i + 1) * UINT64_C(16));
	}
	free(cache);
	return NULL;
}

static void try_nodes(void)
{
	pthread_t other;

	for (uint64_t done = 0; done < rounds; done += KEYS) {
		region = test_region_new(0);
		if (!hl_node_init(&region))
			abort();
		atomic_store(&turn, 0);
		if (pthread_create(&other, NULL, intern, (void *)1) != 0)
			abort();
		intern(NULL);
		pthread_join(other, NULL);
		for (uint32_t i = 0; i < KEYS; i++) {
			const struct hl_region_node *node = &region.nodes[ids[0][i]];
			forbidden += ids[0][i] != ids[1][i] ||
				     atomic_load(&node->frame) != (i + 1) * UINT64_C(16) ||
				     node->parent != (i ? ids[0][i / 2] : 0);
		}
		test_region_free(&region);
	}
	say("nodes");
}

/* ---- blocks: neighbours in one granule, and objects of two sizes ---- */

#define HEAP UINT64_C(0x100000000000)

static struct hl_block_table table;

static void *set_and_take(void *argument)
{
	const uint64_t own = (uint64_t)(uintptr_t)argument;
	void *block = (void *)(HEAP + own * 16);
	struct hl_block taken;

	for (uint64_t i = 0; i < rounds; i++) {
		uint32_t node = (uint32_t)(i % 1000 + 1 + own * 1000);
		if (!hl_block_set_shared(&table, block, node, i % 100))
			abort();
		forbidden += !hl_block_take(&table, block, 128, &taken) || taken.node != node ||
			     taken.requested != 128 - i % 100;
	}
	return NULL;
}

static void try_blocks(void)
{
	pthread_t other;

	if (!hl_block_table_init(&table) || !hl_block_table_add_array(&table))
		abort();
	if (pthread_create(&other, NULL, set_and_take, (void *)1) != 0)
		abort();
	set_and_take(NULL);
	pthread_join(other, NULL);
	say("block table");
}

/* ---- cells: what was kept at a mark is of one mark ---- */

#define MARK_EVENTS 8 /* between two marks */

static struct hl_recorder recorder;
static _Atomic bool is_over;

static void *count(void *unused)
{
	struct hl_cells cells = {0};
	struct hl_node_cache *cache = calloc(1, sizeof(*cache));
	uint32_t node = hl_node_intern(&recorder.region, cache, 0, 16);
	struct hl_cell *cell = hl_cells_get(&cells, &recorder.region, node);

	if (!cell)
		abort();
	for (uint64_t i = 0; i < rounds; i++) {
		if (i % MARK_EVENTS == 0)
			atomic_fetch_add(&recorder.region.header->peak_epoch, 1);
		hl_event_keep_peak(&recorder, cell);
		*(volatile uint64_t *)&cell->alloc_bytes += 1;
		*(volatile uint64_t *)&cell->alloc_objects += 1;
	}
	atomic_store(&is_over, true);
	free(cache);
	return unused;
}

static void try_cells(void)
{
	const struct hl_region_times times = {.now_ns = UINT64_C(1) << 50};
	struct hl_region_header layout;
	pthread_t counter;

	recorder.region = test_region_new(0);
	layout = *recorder.region.header;
	if (!hl_node_init(&recorder.region))
		abort();
	start(&counter, count);
	while (!atomic_load(&is_over)) {
		struct hl_region_view view = {.base = recorder.region.header,
					      .bytes = layout.region_bytes,
					      .layout = &layout};
		struct hl_recording_process process = {0};
		if (hl_region_read(&view, &times, &process, NULL) < 0)
			abort();
		for (uint32_t i = 0; i < process.value_count; i++) {
			const struct hl_recording_value *value = &process.values[i];
			bool is_now = (uint64_t)value->peak_bytes == value->alloc_bytes &&
				      (uint64_t)value->peak_objects == value->alloc_objects;
			int64_t apart = value->peak_bytes - value->peak_objects;
			/* If this thread has to wait while it reads them, counters of now may be
			 * the events of one mark apart. */
			forbidden += is_now ? llabs(apart) > MARK_EVENTS : apart != 0;
		}
		hl_recording_process_release(&process);
	}
	pthread_join(counter, NULL);
	test_region_free(&recorder.region);
	say("cells");
}

int main(int argc, char **argv)
{
	rounds = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
	if (!rounds)
		return 2;
	try_ring();
	try_stamps();
	try_nodes();
	try_blocks();
	try_cells();
	return forbidden != 0;
}
