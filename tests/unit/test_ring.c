/* SPDX-License-Identifier: BSD-2-Clause */
/* What a recorder writes into its ring is what the collector reads out of it. */
#include "log/ring_reader.h"
#include "recorder/region_map.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <pthread.h>

#include "test_region.h"

#define EVENTS 200000

struct event {
	uint64_t tick;
	uint32_t node;
	int64_t bytes, objects;
};

/* Compares what is read with what is expected next. */
struct expecting {
	struct hl_ring_sink sink;
	const struct event *events;
	size_t next, count;
	const struct hl_ring_reader *reader;
	int failure;
};

static int expect_event(struct hl_ring_sink *sink, uint32_t node, int64_t bytes, int64_t objects)
{
	struct expecting *expecting = (struct expecting *)sink;
	const struct event *event = &expecting->events[expecting->next];

	if (expecting->failure)
		return expecting->failure;
	if (expecting->next == expecting->count || event->node != node || event->bytes != bytes ||
	    event->objects != objects || event->tick != expecting->reader->tick)
		return -EBADMSG;
	expecting->next++;
	return 0;
}

struct lab {
	struct hl_region_map region;
	struct hl_ring_writer writer;
	struct hl_ring_reader reader;
	struct event events[EVENTS];
	struct expecting expecting;
};

static uint64_t room_of(const struct lab *lab)
{
	return lab->region.header->areas[HL_AREA_RINGS].capacity - 4 * HL_RING_SMALL;
}

static struct lab *lab_new(size_t count)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	lab->region = test_region_new(0);
	hl_ring_writer_init(&lab->writer, &lab->region, 3);
	assert_non_null(lab->writer.ring);
	hl_ring_reader_init(&lab->reader, lab->writer.ring, room_of(lab));
	lab->expecting =
		(struct expecting){{.event = expect_event}, lab->events, 0, count, &lab->reader, 0};
	return lab;
}

static void lab_free(struct lab *lab)
{
	test_region_free(&lab->region);
	free(lab);
}

static void set_tick(struct lab *lab, uint64_t tick)
{
	atomic_store(&lab->region.header->tick, tick);
}

static bool write_event(struct lab *lab, const struct event *event)
{
	set_tick(lab, event->tick);
	return hl_ring_writer_put(&lab->writer, &lab->region, event->node,
				  (uint64_t)llabs(event->bytes), (uint64_t)llabs(event->objects),
				  event->objects < 0);
}

static struct event random_event(uint64_t tick)
{
	/* Few pairs again and again, and now and then one of any kind. */
	struct event event = {tick, (uint32_t)(1 + rand() % 40), 16 * (rand() % 8), 1};

	if (rand() % 10 == 0)
		event = (struct event){tick, (uint32_t)(rand() & 0xffffff) | 1, rand(), 1};
	if (rand() % 100 == 0)
		event.bytes = (int64_t)rand() << 20;
	if (rand() % 1000 == 0)
		event.objects = (int64_t)(1 + rand() % 100000) << rand() % 40;
	if (rand() % 2) {
		event.bytes = -event.bytes;
		event.objects = -event.objects;
	}
	return event;
}

static void every_kind_of_event_comes_out_as_it_went_in(void **state)
{
	struct lab *lab = lab_new(EVENTS);
	uint64_t tick = 0;

	(void)state;
	srand(7);
	for (size_t i = 0; i < EVENTS; i++) {
		tick += rand() % 50 == 0 ? (uint64_t)(rand() % 3) : 0;
		tick += rand() % 20000 == 0 ? (uint64_t)rand() << 4 : 0;
		lab->events[i] = random_event(tick);
		assert_true(write_event(lab, &lab->events[i]));
		if (rand() % 200 == 0)
			assert_int_equal(hl_ring_reader_read(&lab->reader, tick, UINT64_MAX,
							     &lab->expecting.sink),
					 0);
	}
	assert_int_equal(hl_ring_reader_read(&lab->reader, tick, UINT64_MAX, &lab->expecting.sink),
			 0);
	assert_int_equal(lab->expecting.next, EVENTS);
	assert_int_equal(hl_ring_reader_next_tick(&lab->reader), UINT64_MAX);
	lab_free(lab);
}

static void events_of_later_ticks_wait(void **state)
{
	struct lab *lab = lab_new(3);
	static const struct event events[] = {{5, 1, 10, 1}, {6, 1, 10, 1}, {9, 2, -10, -1}};

	(void)state;
	memcpy(lab->events, events, sizeof(events));
	for (int i = 0; i < 3; i++)
		assert_true(write_event(lab, &events[i]));
	assert_int_equal(hl_ring_reader_next_tick(&lab->reader), 5);
	assert_int_equal(hl_ring_reader_read(&lab->reader, 4, UINT64_MAX, &lab->expecting.sink), 1);
	assert_int_equal(lab->expecting.next, 0);
	assert_int_equal(hl_ring_reader_read(&lab->reader, 6, UINT64_MAX, &lab->expecting.sink), 1);
	assert_int_equal(lab->expecting.next, 2);
	assert_int_equal(hl_ring_reader_next_tick(&lab->reader), 9);
	assert_int_equal(hl_ring_reader_read(&lab->reader, 9, UINT64_MAX, &lab->expecting.sink), 0);
	assert_int_equal(lab->expecting.next, 3);
	lab_free(lab);
}

static void an_event_that_is_refused_is_read_again(void **state)
{
	struct lab *lab = lab_new(1);

	(void)state;
	lab->events[0] = (struct event){1, 7, 99, 1};
	assert_true(write_event(lab, &lab->events[0]));
	lab->expecting.failure = -ENOMEM;
	assert_int_equal(hl_ring_reader_read(&lab->reader, 1, UINT64_MAX, &lab->expecting.sink),
			 -ENOMEM);
	lab->expecting.failure = 0;
	assert_int_equal(hl_ring_reader_read(&lab->reader, 1, UINT64_MAX, &lab->expecting.sink), 0);
	assert_int_equal(lab->expecting.next, 1);
	lab_free(lab);
}

/* ---- full rings ---- */

static void *read_for_ever(void *context)
{
	struct lab *lab = context;

	while (lab->expecting.next < lab->expecting.count && !lab->reader.given_up) {
		atomic_fetch_add(&lab->region.header->tick, 1);
		hl_ring_reader_read(&lab->reader, UINT64_MAX, UINT64_MAX, &lab->expecting.sink);
		sched_yield();
	}
	return NULL;
}

/* Ticks are the reader's here, so they are not compared. */
static int expect_event_at_any_tick(struct hl_ring_sink *sink, uint32_t node, int64_t bytes,
				    int64_t objects)
{
	struct expecting *expecting = (struct expecting *)sink;
	struct event *event = (struct event *)&expecting->events[expecting->next];

	event->tick = expecting->reader->tick;
	return expect_event(sink, node, bytes, objects);
}

static void a_full_ring_makes_its_thread_wait_and_grows(void **state)
{
	struct lab *lab = lab_new(EVENTS);
	pthread_t reader;

	(void)state;
	lab->expecting.sink.event = expect_event_at_any_tick;
	for (size_t i = 0; i < EVENTS; i++)
		lab->events[i] = (struct event){0, (uint32_t)(1 + i), (int64_t)(i % 4096), 1};
	assert_int_equal(pthread_create(&reader, NULL, read_for_ever, lab), 0);
	for (size_t i = 0; i < EVENTS; i++)
		assert_true(hl_ring_writer_put(&lab->writer, &lab->region, (uint32_t)(1 + i),
					       i % 4096, 1, false));
	pthread_join(reader, NULL);
	assert_false(lab->reader.given_up);
	assert_int_equal(lab->expecting.next, EVENTS);
	assert_true(atomic_load(&lab->writer.ring->capacity) > HL_RING_BYTES_MIN);
	/* Rings that have grown are next to each other, behind those that have not. */
	uint64_t rings = lab->region.header->areas[HL_AREA_RINGS].capacity / HL_RING_STRIDE;
	assert_ptr_equal(lab->writer.bytes,
			 atomic_load(&lab->region.rings) + rings * HL_RING_SMALL);
	lab_free(lab);
}

static void a_lossy_ring_drops_what_it_has_no_room_for(void **state)
{
	struct lab *lab = lab_new(EVENTS);
	size_t kept = 0;

	(void)state;
	atomic_fetch_or(&lab->region.header->flags, HL_REGION_LOSSY);
	memset(&lab->writer, 0, sizeof(lab->writer));
	hl_ring_writer_init(&lab->writer, &lab->region, 4);
	hl_ring_reader_init(&lab->reader, lab->writer.ring, room_of(lab));
	for (size_t i = 0; i < EVENTS; i++) {
		struct event event = {1, (uint32_t)(1 + i), 17, 1};
		if (write_event(lab, &event))
			lab->events[kept++] = event;
	}
	assert_true(kept > HL_RING_BYTES_MAX / 9 && kept < HL_RING_BYTES_MAX / 8);
	lab->expecting.count = kept;
	assert_int_equal(hl_ring_reader_read(&lab->reader, 1, UINT64_MAX, &lab->expecting.sink), 0);
	assert_int_equal(lab->expecting.next, kept);
	assert_true(write_event(lab, &lab->events[0]));
	lab_free(lab);
}

static void without_a_living_collector_nobody_waits_twice(void **state)
{
	struct lab *lab = lab_new(EVENTS);
	size_t kept = 0;

	(void)state;
	/* The tick does not advance. The first event without room waits until that is certain; all
	 * others, many thousands of them, do not. */
	for (size_t i = 0; i < EVENTS; i++)
		kept += hl_ring_writer_put(&lab->writer, &lab->region, (uint32_t)(1 + i), 17, 1,
					   false);
	assert_true(kept < HL_RING_BYTES_MIN / 8);
	lab_free(lab);
}

static pid_t pid_of_nobody(void)
{
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	return child;
}

/* ${collector} makes no tick; whether it is given up in less than the time for living ones. */
static bool is_given_up_soon(pid_t collector)
{
	struct lab *lab = lab_new(EVENTS);
	struct timespec begin, end;

	lab->region.collector_pid = collector;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	while (hl_ring_writer_put(&lab->writer, &lab->region, 1, 17, 1, false))
		continue;
	clock_gettime(CLOCK_MONOTONIC, &end);
	lab_free(lab);
	return end.tv_sec - begin.tv_sec < 9;
}

static void a_collector_whose_process_has_gone_is_not_waited_for_longer(void **state)
{
	(void)state;
	assert_true(is_given_up_soon(pid_of_nobody()));
}

static void a_collector_that_nobody_reaps_is_not_waited_for_longer(void **state)
{
	siginfo_t info;
	pid_t zombie = fork();

	(void)state;
	if (zombie == 0)
		_exit(0);
	assert_int_equal(waitid(P_PID, (id_t)zombie, &info, WEXITED | WNOWAIT), 0);
	assert_true(is_given_up_soon(zombie));
	assert_int_equal(waitpid(zombie, NULL, 0), zombie);
}

static void a_collector_that_is_stopped_is_waited_for_longer(void **state)
{
	pid_t stopped = fork();

	(void)state;
	if (stopped == 0) {
		raise(SIGSTOP);
		_exit(0);
	}
	assert_int_equal(waitpid(stopped, NULL, WUNTRACED), stopped);
	assert_false(is_given_up_soon(stopped));
	kill(stopped, SIGKILL);
	assert_int_equal(waitpid(stopped, NULL, 0), stopped);
}

static void a_slot_keeps_its_ring(void **state)
{
	struct lab *lab = lab_new(0);
	struct hl_ring *ring = lab->writer.ring;

	(void)state;
	hl_ring_writer_init(&lab->writer, &lab->region, 3);
	assert_ptr_equal(lab->writer.ring, ring);
	assert_int_equal(atomic_load(&lab->region.threads[3].has_ring), 1);
	assert_int_equal(atomic_load(&lab->region.threads[2].has_ring), 0);
	lab_free(lab);
}

static void a_slot_beyond_the_area_has_no_ring(void **state)
{
	struct lab *lab = lab_new(0);
	struct hl_ring_writer beyond = {0}, writer = {0};

	(void)state;
	lab->region.header->areas[HL_AREA_RINGS].capacity = 5 * HL_RING_STRIDE;
	hl_ring_writer_init(&beyond, &lab->region, 5);
	assert_null(beyond.ring);
	hl_ring_writer_init(&writer, &lab->region, 4);
	assert_non_null(writer.ring);
	lab_free(lab);
}

/* ---- what a target can do to its ring ---- */

static int take_any(struct hl_ring_sink *sink, uint32_t node, int64_t bytes, int64_t objects)
{
	return !sink || (!node && bytes && objects) ? -EINVAL : 0;
}

static void a_ring_that_makes_no_sense_is_given_up(void **state)
{
	struct hl_ring_sink sink = {.event = take_any};

	static const struct {
		uint64_t head;
		uint32_t capacity;
		uint64_t word;
	} cases[] = {
		{8, 0, 0},
		{8, 12345, 0},
		{8, HL_RING_BYTES_MAX * 2, 0},
		{12, HL_RING_BYTES_MIN, 0},
		{HL_RING_BYTES_MIN + 8, HL_RING_BYTES_MIN, 0},
		{HL_RING_EVENT_MAX - 8, HL_RING_BYTES_MIN, HL_RING_ALLOC_MANY},
	};
	static const uint64_t places[] = {0, HL_RING_DATA + 4, UINT64_C(1) << 40, UINT64_MAX - 7};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		struct lab *lab = lab_new(0);
		*(uint64_t *)(void *)lab->writer.bytes = cases[i].word;
		atomic_store(&lab->writer.ring->capacity, cases[i].capacity);
		atomic_store(&lab->writer.ring->head, cases[i].head);
		assert_int_equal(hl_ring_reader_read(&lab->reader, 5, UINT64_MAX, &sink), 0);
		assert_true(lab->reader.given_up);
		assert_int_equal(hl_ring_reader_next_tick(&lab->reader), UINT64_MAX);
		lab_free(lab);
	}
	for (size_t i = 0; i < HL_COUNT_OF(places); i++) {
		struct lab *lab = lab_new(0);
		atomic_store(&lab->writer.ring->data, places[i]);
		atomic_store(&lab->writer.ring->head, 8);
		assert_int_equal(hl_ring_reader_read(&lab->reader, 5, UINT64_MAX, &sink), 0);
		assert_true(lab->reader.given_up);
		lab_free(lab);
	}
}

static void any_content_is_read_without_harm(void **state)
{
	struct hl_ring_sink sink = {.event = take_any};

	(void)state;
	srand(11);
	for (int round = 0; round < 200; round++) {
		struct lab *lab = lab_new(0);
		for (uint32_t i = 0; i < HL_RING_BYTES_MIN; i++)
			lab->writer.bytes[i] = (uint8_t)rand();
		atomic_store(&lab->writer.ring->head, HL_RING_BYTES_MIN);
		hl_ring_reader_read(&lab->reader, (uint64_t)rand(), UINT64_MAX, &sink);
		hl_ring_reader_next_tick(&lab->reader);
		hl_ring_reader_read(&lab->reader, UINT64_MAX, UINT64_MAX, &sink);
		assert_true(lab->reader.position <= HL_RING_BYTES_MIN);
		lab_free(lab);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_of_event_comes_out_as_it_went_in),
		cmocka_unit_test(events_of_later_ticks_wait),
		cmocka_unit_test(an_event_that_is_refused_is_read_again),
		cmocka_unit_test(a_full_ring_makes_its_thread_wait_and_grows),
		cmocka_unit_test(a_lossy_ring_drops_what_it_has_no_room_for),
		cmocka_unit_test(without_a_living_collector_nobody_waits_twice),
		cmocka_unit_test(a_collector_whose_process_has_gone_is_not_waited_for_longer),
		cmocka_unit_test(a_collector_that_nobody_reaps_is_not_waited_for_longer),
		cmocka_unit_test(a_collector_that_is_stopped_is_waited_for_longer),
		cmocka_unit_test(a_slot_keeps_its_ring),
		cmocka_unit_test(a_slot_beyond_the_area_has_no_ring),
		cmocka_unit_test(a_ring_that_makes_no_sense_is_given_up),
		cmocka_unit_test(any_content_is_read_without_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
