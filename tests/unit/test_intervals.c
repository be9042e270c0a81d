/* SPDX-License-Identifier: BSD-2-Clause */
/* Intervals equal a brute-force replay of the same events. */
#include "log/log.h"

#include "base/compiler.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fail_allocations.h"

#define NODES 64

struct event {
	uint64_t tick;
	uint32_t node;
	int64_t bytes, objects;
};

/* What every node holds. */
struct state {
	int64_t bytes[NODES], objects[NODES];
	int64_t total_bytes, total_objects;
	uint64_t tick;
};

static void apply(struct state *state, const struct event *event)
{
	state->bytes[event->node] += event->bytes;
	state->objects[event->node] += event->objects;
	state->total_bytes += event->bytes;
	state->total_objects += event->objects;
	state->tick = event->tick;
}

/* The state at the first highest total among those before and after each of the events. */
static void replay(struct state *state, const struct event *events, size_t count,
		   struct state *ret_max)
{
	*ret_max = *state;
	for (size_t i = 0; i < count; i++) {
		apply(state, &events[i]);
		if (state->total_bytes > ret_max->total_bytes)
			*ret_max = *state;
	}
}

static void add_change(struct state *state, const struct hl_log_change *change, bool rest)
{
	state->bytes[change->node] += rest ? change->rest_bytes : change->max_bytes;
	state->objects[change->node] += rest ? change->rest_objects : change->max_objects;
}

/* Follows the changes of ${interval} from ${known}, and compares with what was replayed. */
static void check_interval(struct state *known, const struct hl_log_interval *interval,
			   const struct state *max, const struct state *end)
{
	for (size_t i = 0; i < interval->change_count; i++) {
		assert_true(i == 0 || interval->changes[i].node > interval->changes[i - 1].node);
		add_change(known, &interval->changes[i], false);
	}
	assert_memory_equal(known->bytes, max->bytes, sizeof(max->bytes));
	assert_memory_equal(known->objects, max->objects, sizeof(max->objects));
	assert_int_equal(interval->max_bytes, max->total_bytes);
	assert_int_equal(interval->max_objects, max->total_objects);
	for (size_t i = 0; i < interval->change_count; i++)
		add_change(known, &interval->changes[i], true);
	assert_memory_equal(known->bytes, end->bytes, sizeof(end->bytes));
	assert_memory_equal(known->objects, end->objects, sizeof(end->objects));
	assert_int_equal(interval->end_bytes, end->total_bytes);
	assert_int_equal(interval->end_objects, end->total_objects);
}

static void feed(struct hl_intervals *intervals, const struct event *events, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		hl_intervals_tick(intervals, events[i].tick);
		assert_int_equal(hl_intervals_event(intervals, events[i].node, events[i].bytes,
						    events[i].objects),
				 0);
	}
}

static struct event random_event(uint64_t number, uint64_t at, uint64_t of)
{
	struct event event = {
		.tick = number * HL_INTERVAL_TICKS + at * HL_INTERVAL_TICKS / of,
		.node = (uint32_t)(1 + rand() % (NODES - 1)),
		.bytes = rand() % 1000,
		.objects = 1,
	};

	if (rand() % 2) {
		event.bytes = -event.bytes;
		event.objects = -1;
	}
	return event;
}

static void random_events_equal_a_replay_in_every_interval(void **state)
{
	struct hl_intervals intervals = {0};
	struct state replayed = {0}, known = {0}, max;
	struct event events[200];

	(void)state;
	srand(23);
	for (uint64_t number = 0; number < 2000; number++) {
		struct hl_log_interval interval;
		size_t count = (size_t)rand() % HL_COUNT_OF(events);
		for (size_t i = 0; i < count; i++)
			events[i] = random_event(number, i, count);
		replayed.tick = number * HL_INTERVAL_TICKS;
		replay(&replayed, events, count, &max);
		feed(&intervals, events, count);
		assert_int_equal(hl_intervals_end(&intervals, number + 1, &interval), 0);
		assert_int_equal(interval.number, number);
		assert_int_equal(interval.max_tick, max.tick);
		assert_int_equal(interval.events, count);
		check_interval(&known, &interval, &max, &replayed);
	}
	hl_intervals_release(&intervals);
}

static void a_short_spike_is_the_maximum_to_the_byte(void **state)
{
	static const struct event events[] = {
		{3, 5, 1000, 1}, {40, 6, 64 << 20, 1}, {45, 6, -(64 << 20), -1}, {50, 5, 7, 1}};
	struct hl_intervals intervals = {0};
	struct hl_log_interval interval;

	(void)state;
	feed(&intervals, events, HL_COUNT_OF(events));
	assert_int_equal(hl_intervals_end(&intervals, 1, &interval), 0);
	assert_int_equal(interval.max_bytes, 1000 + (64 << 20));
	assert_int_equal(interval.max_tick, 40);
	assert_int_equal(interval.end_bytes, 1007);
	assert_int_equal(interval.change_count, 2);
	assert_int_equal(interval.changes[0].max_bytes, 1000);
	assert_int_equal(interval.changes[0].rest_bytes, 7);
	assert_int_equal(interval.changes[1].max_bytes, 64 << 20);
	assert_int_equal(interval.changes[1].rest_bytes, -(64 << 20));
	hl_intervals_release(&intervals);
}

static void what_an_interval_begins_with_can_be_its_maximum(void **state)
{
	static const struct event first[] = {{0, 1, 500, 1}}, second[] = {{150, 1, -500, -1}};
	struct hl_intervals intervals = {0};
	struct hl_log_interval interval;

	(void)state;
	feed(&intervals, first, 1);
	assert_int_equal(hl_intervals_end(&intervals, 1, &interval), 0);
	feed(&intervals, second, 1);
	assert_int_equal(hl_intervals_end(&intervals, 7, &interval), 0);
	assert_int_equal(interval.max_bytes, 500);
	assert_int_equal(interval.max_tick, 100);
	assert_int_equal(interval.end_bytes, 0);
	assert_int_equal(interval.changes[0].max_bytes, 0);
	assert_int_equal(interval.changes[0].rest_bytes, -500);
	assert_int_equal(intervals.number, 7);
	hl_intervals_release(&intervals);
}

static void nodes_that_end_as_they_began_are_left_out(void **state)
{
	static const struct event events[] = {{0, 9, 100, 1}, {1, 3, 10, 1}, {2, 3, -10, -1}};
	struct hl_intervals intervals = {0};
	struct hl_log_interval interval;

	(void)state;
	/* Node 3 is at its highest at the maximum, so it must be there ... */
	feed(&intervals, events, HL_COUNT_OF(events));
	assert_int_equal(hl_intervals_end(&intervals, 1, &interval), 0);
	assert_int_equal(interval.change_count, 2);
	/* ... and here it comes and goes before the maximum is reached. */
	static const struct event again[] = {{100, 3, 10, 1}, {101, 3, -10, -1}, {102, 9, 50, 1}};
	feed(&intervals, again, HL_COUNT_OF(again));
	assert_int_equal(hl_intervals_end(&intervals, 2, &interval), 0);
	assert_int_equal(interval.change_count, 1);
	assert_int_equal(interval.changes[0].node, 9);
	hl_intervals_release(&intervals);
}

static void ticks_never_go_back(void **state)
{
	struct hl_intervals intervals = {0};
	struct hl_log_interval interval;
	static const struct event events[] = {{50, 1, 10, 1}, {20, 1, 10, 1}};

	(void)state;
	feed(&intervals, events, HL_COUNT_OF(events));
	assert_int_equal(hl_intervals_end(&intervals, 1, &interval), 0);
	assert_int_equal(interval.max_tick, 50);
	hl_intervals_release(&intervals);
}

static void blocks_that_threads_hand_over_within_a_tick_count_once(void **state)
{
	struct hl_intervals intervals = {0};
	struct hl_log_interval interval;

	(void)state;
	/* One thread allocates, another frees, one block at a time; all of the one come first. */
	hl_intervals_tick(&intervals, 5);
	for (int thread = 0; thread < 2; thread++) {
		hl_intervals_run(&intervals, true);
		for (int i = 0; i < 300; i++)
			hl_intervals_event(&intervals, 1, thread ? -1000 : 1000, thread ? -1 : 1);
	}
	hl_intervals_tick(&intervals, 6);
	hl_intervals_run(&intervals, false);
	hl_intervals_event(&intervals, 2, 10, 1);
	hl_intervals_event(&intervals, 2, -10, -1);
	assert_int_equal(hl_intervals_end(&intervals, 1, &interval), 0);
	assert_int_equal(interval.max_bytes, 10);
	assert_int_equal(interval.max_tick, 6);
	assert_int_equal(interval.change_count, 1);
	hl_intervals_release(&intervals);
}

static void what_several_threads_left_at_a_ticks_end_can_be_the_maximum(void **state)
{
	struct hl_intervals intervals = {0};
	struct hl_log_interval interval;

	(void)state;
	hl_intervals_tick(&intervals, 7);
	for (uint32_t thread = 0; thread < 2; thread++) {
		hl_intervals_run(&intervals, true);
		hl_intervals_event(&intervals, 1 + thread, 500, 1);
	}
	hl_intervals_tick(&intervals, 9);
	hl_intervals_run(&intervals, false);
	hl_intervals_event(&intervals, 1, -500, -1);
	assert_int_equal(hl_intervals_end(&intervals, 1, &interval), 0);
	assert_int_equal(interval.max_bytes, 1000);
	assert_int_equal(interval.max_tick, 7);
	assert_int_equal(interval.changes[0].max_bytes, 500);
	assert_int_equal(interval.changes[0].rest_bytes, -500);
	assert_int_equal(interval.changes[1].max_bytes, 500);
	assert_int_equal(interval.end_bytes, 500);
	hl_intervals_release(&intervals);
}

static int run_one(struct hl_intervals *intervals)
{
	struct hl_log_interval interval;

	int r = hl_intervals_event(intervals, 5000, 10, 1);
	return r < 0 ? r : hl_intervals_end(intervals, 1, &interval);
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	struct hl_intervals intervals = {0};
	long failures = 0;

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, run_one(&intervals))
	{
		assert_int_equal(r, -ENOMEM);
		hl_intervals_release(&intervals);
		failures++;
	}
	assert_int_equal(failures, 3);
	hl_intervals_release(&intervals);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_events_equal_a_replay_in_every_interval),
		cmocka_unit_test(a_short_spike_is_the_maximum_to_the_byte),
		cmocka_unit_test(what_an_interval_begins_with_can_be_its_maximum),
		cmocka_unit_test(nodes_that_end_as_they_began_are_left_out),
		cmocka_unit_test(ticks_never_go_back),
		cmocka_unit_test(blocks_that_threads_hand_over_within_a_tick_count_once),
		cmocka_unit_test(what_several_threads_left_at_a_ticks_end_can_be_the_maximum),
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
