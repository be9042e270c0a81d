/* SPDX-License-Identifier: BSD-2-Clause */
/* Events of several threads are read in the order in which one could be because of another. */
#include "log/ring_reader.h"
#include "recorder/region_map.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fail_allocations.h"
#include "test_region.h"

#define RINGS_MAX 40
#define EVENTS	  60000

/* Too large for a word with a time: some events are larger by this. */
#define LARGE (UINT64_C(1) << HL_RING_LATER_BITS)

/* What was written: event ${number} has as many bytes, but for LARGE. */
struct event {
	uint64_t tick, stamp;
	uint32_t ring;
	bool read;
};

struct lab {
	struct hl_ring_sink sink; /* first: leads back here */
	struct hl_region_map region;
	struct hl_ring_writer *writers;
	struct hl_ring_set set;
	uint32_t rings;
	struct event *events;
	uint32_t *order; /* numbers, as they were read */
	size_t written, read, runs;
	uint32_t ring; /* of the run */
};

static void note_run(struct hl_ring_sink *sink, uint32_t ring)
{
	struct lab *lab = (struct lab *)sink;

	lab->ring = ring;
	lab->runs++;
}

static int note_event(struct hl_ring_sink *sink, uint32_t node, int64_t bytes, int64_t objects)
{
	struct lab *lab = (struct lab *)sink;

	(void)objects;
	bytes &= LARGE - 1;
	assert_int_equal(node, lab->ring + 1);
	assert_true(bytes >= 0 && (size_t)bytes < lab->written && !lab->events[bytes].read);
	lab->events[bytes].read = true;
	lab->order[lab->read++] = (uint32_t)bytes;
	return 0;
}

/* Lossy rings have all their room at once. */
static struct lab *lab_new(uint32_t rings, uint32_t flags)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	lab->sink = (struct hl_ring_sink){note_run, note_event};
	lab->region = test_region_new(0);
	atomic_store(&lab->region.header->flags, HL_REGION_LOSSY | flags);
	lab->rings = rings;
	lab->writers = calloc(rings, sizeof(*lab->writers));
	lab->events = calloc(EVENTS, sizeof(*lab->events));
	lab->order = calloc(EVENTS, sizeof(*lab->order));
	assert_int_equal(hl_ring_set_init(&lab->set, rings), 0);
	lab->set.count = rings;
	for (uint32_t i = 0; i < rings; i++) {
		hl_ring_writer_init(&lab->writers[i], &lab->region, i);
		assert_non_null(lab->writers[i].ring);
		hl_ring_reader_init(&lab->set.readers[i], lab->writers[i].ring,
				    lab->region.header->areas[HL_AREA_RINGS].capacity -
					    i * HL_RING_SMALL);
	}
	return lab;
}

static void lab_free(struct lab *lab)
{
	hl_ring_set_release(&lab->set);
	test_region_free(&lab->region);
	free(lab->writers);
	free(lab->events);
	free(lab->order);
	free(lab);
}

/* The event that has just been written into the ring. */
static void note_written(struct lab *lab, uint32_t ring)
{
	const struct hl_ring_writer *writer = &lab->writers[ring];

	lab->events[lab->written++] =
		(struct event){.tick = writer->tick, .stamp = writer->stamp, .ring = ring};
}

static void write_next(struct lab *lab, uint32_t ring)
{
	assert_true(lab->written < EVENTS);
	assert_true(hl_ring_writer_put(&lab->writers[ring], &lab->region, ring + 1, lab->written, 1,
				       false));
	note_written(lab, ring);
}

static void read_up_to(struct lab *lab, uint64_t last, uint64_t now)
{
	uint64_t tick = hl_ring_set_look(&lab->set, now);

	while (tick <= last)
		tick = hl_ring_set_read(&lab->set, tick, &lab->sink);
}

static void assert_read_in_order_of_writing(const struct lab *lab)
{
	assert_int_equal(lab->read, lab->written);
	for (size_t i = 0; i < lab->read; i++)
		if (lab->order[i] != i)
			fail_msg("event %u (ring %u, tick %lu, stamp %lu) was read at place %zu "
				 "(ring %u, tick %lu, stamp %lu)",
				 lab->order[i], lab->events[lab->order[i]].ring,
				 lab->events[lab->order[i]].tick, lab->events[lab->order[i]].stamp,
				 i, lab->events[i].ring, lab->events[i].tick, lab->events[i].stamp);
}

/* ---- stamps that are given ---- */

/* Like hl_ring_writer_put() with a clock that shows ${stamp}; the region has none. */
static void write_stamped(struct lab *lab, uint32_t ring, uint64_t tick, uint64_t stamp)
{
	struct hl_ring_writer *writer = &lab->writers[ring];

	assert_true(lab->written < EVENTS);
	atomic_store(&lab->region.header->tick, tick);
	assert_true(hl_ring_writer_prepare(writer, &lab->region));
	hl_ring_writer_put_stamped(writer, stamp, ring + 1,
				   lab->written + (lab->written % 7 ? 0 : LARGE), 1, false);
	hl_ring_writer_end(writer);
	note_written(lab, ring);
}

static int check_stamp(struct hl_ring_sink *sink, uint32_t node, int64_t bytes, int64_t objects)
{
	struct lab *lab = (struct lab *)sink;

	assert_int_equal(lab->set.readers[0].stamp, lab->events[bytes & (LARGE - 1)].stamp);
	return note_event(sink, node, bytes, objects);
}

static void stamps_come_out_as_they_went_in(void **state)
{
	static const uint64_t times[] = {0,
					 1,
					 100,
					 HL_RING_STAMP_MAX,
					 HL_RING_STAMP_MAX + 1,
					 UINT64_C(1) << 32,
					 UINT64_C(1) << 48};
	struct lab *lab = lab_new(1, 0);
	uint64_t stamp = 0;

	(void)state;
	srand(5);
	lab->sink.event = check_stamp;
	for (size_t i = 0; i < EVENTS; i++) {
		stamp += times[(size_t)rand() % (i % 100 ? 3 : HL_COUNT_OF(times))];
		write_stamped(lab, 0, i / 1000, stamp);
		assert_int_equal(lab->events[i].stamp, stamp);
		if (rand() % 1000 == 0) /* so that the ring wraps */
			read_up_to(lab, i, i);
	}
	read_up_to(lab, EVENTS, EVENTS);
	assert_read_in_order_of_writing(lab);
	lab_free(lab);
}

static void a_clock_that_goes_back_leaves_the_last_stamp(void **state)
{
	struct lab *lab = lab_new(1, 0);

	(void)state;
	write_stamped(lab, 0, 1, UINT64_C(1) << 40);
	write_stamped(lab, 0, 1, (UINT64_C(1) << 40) - 1);
	write_stamped(lab, 0, 1, 7);
	assert_int_equal(lab->events[2].stamp, UINT64_C(1) << 40);
	read_up_to(lab, 1, 1);
	assert_read_in_order_of_writing(lab);
	lab_free(lab);
}

/* Same stamps in any order, but those of a ring in theirs. */
static void assert_read_by_time(const struct lab *lab)
{
	uint64_t last[RINGS_MAX] = {0};

	assert_int_equal(lab->read, lab->written);
	for (size_t i = 0; i < lab->read; i++) {
		const struct event *event = &lab->events[lab->order[i]];
		const struct event *before = i ? &lab->events[lab->order[i - 1]] : event;
		assert_true(before->tick < event->tick ||
			    (before->tick == event->tick && before->stamp <= event->stamp));
		assert_true(lab->order[i] >= last[event->ring]);
		last[event->ring] = lab->order[i];
	}
}

/* Threads take turns of up to ${turn} events, some at the same time. */
static void merge_random_rings(unsigned seed, uint32_t rings, int turn)
{
	struct lab *lab = lab_new(rings, 0);
	uint64_t tick = 3, stamp = 1;

	srand(seed);
	while (lab->written + (size_t)turn < EVENTS / 3) {
		uint32_t ring = (uint32_t)rand() % rings;
		for (int i = 1 + rand() % turn; i; i--) {
			stamp += rand() % 3 ? (uint64_t)rand() % 5 : 0;
			write_stamped(lab, ring, tick, stamp);
		}
		tick += rand() % 500 == 0;
		if (rand() % 3000 == 0)
			read_up_to(lab, tick - 1, tick);
	}
	read_up_to(lab, tick, tick);
	assert_read_by_time(lab);
	assert_true(turn < 100 || lab->runs < lab->read / 10);
	lab_free(lab);
}

static void merged_rings_are_sorted_by_tick_and_stamp(void **state)
{
	(void)state;
	for (unsigned seed = 0; seed < 5; seed++) {
		merge_random_rings(seed, 1, 10);
		merge_random_rings(seed, 2, 1);
		merge_random_rings(seed, 3, 1000);
		merge_random_rings(seed, 8, 2);
		merge_random_rings(seed, RINGS_MAX, 100);
	}
}

/* ---- stamps of the clock ---- */

static void without_stamps_in_the_region_none_are_written(void **state)
{
	struct lab *lab = lab_new(2, 0);

	(void)state;
	for (int i = 0; i < 1000; i++)
		write_next(lab, i % 2);
	assert_int_equal(lab->writers[0].stamp | lab->writers[1].stamp, 0);
	assert_int_equal(atomic_load(&lab->region.order.seen), 0);
	read_up_to(lab, 0, 0);
	assert_int_equal(lab->runs, 2);
	lab_free(lab);
}

static void a_lone_thread_writes_one_stamp(void **state)
{
	struct lab *lab = lab_new(2, HL_REGION_STAMPS);
	uint64_t stamp = 0;

	(void)state;
	for (uint64_t tick = 1; tick < 100; tick++) {
		atomic_store(&lab->region.header->tick, tick);
		write_next(lab, 1);
		write_next(lab, 1);
		assert_true(!stamp || lab->writers[1].stamp == stamp);
		stamp = lab->writers[1].stamp;
		assert_true(stamp);
	}
	lab_free(lab);
}

/* An event after a long silence, of a thread whose being alone ends while it writes. */
static void there_is_room_for_all_that_is_written_at_once(void **state)
{
	struct lab *lab = lab_new(1, HL_REGION_STAMPS);
	struct hl_ring_writer *writer = &lab->writers[0];

	(void)state;
	hl_ring_writer_put_tick(writer, &lab->region, 1);
	assert_true(writer->stamp);
	hl_ring_writer_put_stamped(writer, writer->stamp + HL_RING_STAMP_MAX + 1, 1, 1, 2, false);
	assert_int_equal(writer->head, HL_RING_ROOM);
	writer->limit = writer->head + HL_RING_ROOM - 1;
	atomic_store(&writer->ring->tail, writer->limit - writer->mask - 1);
	assert_false(hl_ring_writer_put(writer, &lab->region, 1, 1, 1, false));
	lab_free(lab);
}

static void another_thread_ends_being_alone_until_a_tick_without_it(void **state)
{
	struct lab *lab = lab_new(2, HL_REGION_STAMPS);

	static const struct {
		uint64_t tick;
		uint32_t ring;
		bool stamped;
	} steps[] = {{1, 0, true},  {1, 0, false}, {2, 0, false}, {2, 1, true},	 {2, 0, true},
		     {2, 1, true},  {3, 0, true},  {3, 0, true},  {4, 0, true},	 {4, 0, false},
		     {9, 0, false}, {9, 1, true},  {10, 1, true}, {11, 1, true}, {11, 1, false}};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(steps); i++) {
		struct hl_ring_writer *writer = &lab->writers[steps[i].ring];
		uint64_t before = writer->stamp;
		atomic_store(&lab->region.header->tick, steps[i].tick);
		write_next(lab, steps[i].ring);
		assert_int_equal(writer->stamp != before, steps[i].stamped);
	}
	read_up_to(lab, 11, 11);
	assert_read_in_order_of_writing(lab);
	lab_free(lab);
}

static void events_of_one_thread_in_many_rings_keep_their_order(void **state)
{
	struct lab *lab = lab_new(20, HL_REGION_STAMPS);
	uint64_t tick = 1;
	uint32_t ring = 0;

	(void)state;
	srand(13);
	while (lab->written < EVENTS) {
		atomic_store(&lab->region.header->tick, tick += rand() % 50 == 0);
		ring = rand() % 10 ? ring : (uint32_t)rand() % lab->rings;
		write_next(lab, ring);
		if (rand() % 1000 == 0)
			read_up_to(lab, tick - 1, tick);
	}
	read_up_to(lab, tick, tick);
	assert_read_in_order_of_writing(lab);
	lab_free(lab);
}

/* ---- threads ---- */

#define THREADS_MAX 4
#define SPINS	    1000 /* before another thread gets the processor */

struct worker {
	struct lab *lab;
	uint32_t ring;
	pthread_t thread;
	_Atomic size_t *next; /* event */
	uint32_t threads;
	size_t share;
};

/* The threads write in turns of ${share} events: that it is its turn each learns from nothing but a
 * store after the last event of the one before. */
static void *write_in_turns(void *argument)
{
	struct worker *worker = argument;
	struct lab *lab = worker->lab;
	size_t next, spins = 0;

	while ((next = atomic_load_explicit(worker->next, memory_order_acquire)) < EVENTS) {
		if (next / worker->share % worker->threads != worker->ring) {
			if (++spins % SPINS == 0)
				sched_yield();
			continue;
		}
		if (next % 300 == 0)
			atomic_fetch_add(&lab->region.header->tick, 1);
		write_next(lab, worker->ring);
		atomic_store_explicit(worker->next, next + 1, memory_order_release);
	}
	return NULL;
}

static void run_turns(uint32_t threads, size_t share)
{
	struct lab *lab = lab_new(threads, HL_REGION_STAMPS);
	struct worker workers[THREADS_MAX];
	_Atomic size_t next = 0;

	for (uint32_t i = 0; i < threads; i++) {
		workers[i] = (struct worker){
			.lab = lab, .ring = i, .next = &next, .threads = threads, .share = share};
		assert_int_equal(
			pthread_create(&workers[i].thread, NULL, write_in_turns, &workers[i]), 0);
	}
	for (uint32_t i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	read_up_to(lab, EVENTS, EVENTS);
	assert_read_in_order_of_writing(lab);
	lab_free(lab);
}

/* With long turns each is alone for a while. */
static void what_threads_do_because_of_each_other_keeps_its_order(void **state)
{
	(void)state;
	run_turns(2, 1);
	run_turns(3, 5);
	run_turns(4, 1000);
	run_turns(2, EVENTS / 8);
}

static int init_and_release(void)
{
	struct hl_ring_set set = {0};
	int r = hl_ring_set_init(&set, 10);

	hl_ring_set_release(&set);
	return r;
}

static void sets_for_which_there_is_no_memory_are_refused(void **state)
{
	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, init_and_release())
	assert_int_equal(r, -ENOMEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stamps_come_out_as_they_went_in),
		cmocka_unit_test(a_clock_that_goes_back_leaves_the_last_stamp),
		cmocka_unit_test(merged_rings_are_sorted_by_tick_and_stamp),
		cmocka_unit_test(without_stamps_in_the_region_none_are_written),
		cmocka_unit_test(a_lone_thread_writes_one_stamp),
		cmocka_unit_test(there_is_room_for_all_that_is_written_at_once),
		cmocka_unit_test(another_thread_ends_being_alone_until_a_tick_without_it),
		cmocka_unit_test(events_of_one_thread_in_many_rings_keep_their_order),
		cmocka_unit_test(what_threads_do_because_of_each_other_keeps_its_order),
		cmocka_unit_test(sets_for_which_there_is_no_memory_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
