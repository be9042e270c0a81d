/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a page of a report knows over time: points and moments are the maxima of their parts, and
 * what was in use at a moment is what the log says of it, node by node.
 */
#include "fail_allocations.h"
#include "made_up_log.h"
#include "temporary.h"
#include "view/page/report.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define NODES 30

struct lab {
	char directory[64];
	struct hl_profile *profile; /* of the recording, which knows no node */
	struct hl_history *history;
	struct hl_report_history report;
};

/* Some blocks come and go, in two intervals of three. */
static void make_events(struct hl_intervals *intervals, uint64_t number, int64_t *held)
{
	int count = number % 3 ? rand() % 9 : 0;

	for (int i = 0; i < count; i++) {
		uint32_t node = 1 + (uint32_t)rand() % (NODES - 1);
		int64_t bytes = rand() % 3 || !held[node] ? 1 + rand() % 5000 : -held[node];
		held[node] += bytes;
		hl_intervals_tick(intervals, number * HL_INTERVAL_TICKS + (uint64_t)i * 9);
		assert_int_equal(hl_intervals_event(intervals, node, bytes, bytes < 0 ? -1 : 1), 0);
	}
}

static void write_log(int fd, uint64_t count, uint64_t segment_bytes, uint64_t hole_first,
		      uint64_t hole_end)
{
	const struct hl_log_settings settings = {
		fd, 0, START_NS, segment_bytes, 1000, &made_up_names};
	struct hl_intervals intervals = {0};
	struct hl_log_interval interval;
	struct hl_log_writer *writer;
	int64_t held[NODES] = {0};

	assert_int_equal(hl_log_writer_new(&settings, &writer), 0);
	for (uint64_t number = 0; number < count; number++) {
		make_events(&intervals, number, held);
		assert_int_equal(hl_intervals_end(&intervals, number + 1, &interval), 0);
		allow_writing(number < hole_first || number >= hole_end);
		hl_log_writer_interval(writer, &interval, 4096 * (number + 1), 0);
		allow_writing(true);
	}
	assert_int_equal(hl_log_writer_finish(writer), 0);
	hl_intervals_release(&intervals);
}

static struct lab *lab_new(uint64_t count, uint64_t segment_bytes, uint64_t hole_first,
			   uint64_t hole_end)
{
	struct lab *lab = calloc(1, sizeof(*lab));
	struct hl_profile_selection selection = {0};
	struct hl_recording *recording;
	struct hl_error err = {0};

	srand(5);
	assert_int_equal(make_temporary(lab->directory), 0);
	int fd = open(lab->directory, O_RDONLY | O_DIRECTORY);
	write_made_up_recording(fd, lab->directory, 0);
	write_log(fd, count, segment_bytes, hole_first, hole_end);
	close(fd);
	assert_int_equal(hl_recording_open(lab->directory, &recording, &err), 0);
	assert_int_equal(hl_profile_load(recording, &selection, &lab->profile, &err), 0);
	hl_recording_free(recording);
	if (hl_history_open(lab->directory, &selection, &HL_HISTORY_ALL, NULL, &lab->history,
			    &err) != 0)
		fail_msg("%s", err.text);
	return lab;
}

static int read_history(struct lab *lab)
{
	struct hl_error err = {0};

	int r = hl_report_history_init(&lab->report, lab->history, lab->profile, &err);
	if (r < 0)
		assert_true(strlen(err.text) > 0);
	return r;
}

static void lab_free(struct lab *lab)
{
	hl_report_history_release(&lab->report);
	hl_history_free(lab->history);
	hl_profile_free(lab->profile);
	assert_int_equal(remove_temporary(lab->directory), 0);
	free(lab);
}

/* ---- what must hold ---- */

/* Every point is the first of the highest of its intervals. */
static void check_points(const struct lab *lab)
{
	const struct hl_report_history *report = &lab->report;
	const struct hl_history *history = lab->history;

	assert_true(report->point_count <= HL_REPORT_POINTS_MAX);
	for (size_t i = 0; i < history->point_count; i++) {
		const struct hl_report_point *point = &report->points[i / report->point_intervals];
		const struct hl_log_point *interval = &history->points[i];
		assert_true(point->bytes >= interval->max_bytes);
		assert_true(point->bytes > interval->max_bytes ||
			    point->number <= interval->number);
		assert_true(point->rss_bytes >= interval->rss_bytes);
		assert_true(point->missing || !interval->missing);
		assert_true(point->ms / HL_INTERVAL_TICKS == point->number);
	}
}

/* And every moment of its points. */
static void check_moments(const struct hl_report_history *report)
{
	assert_true(report->moment_count <= HL_REPORT_MOMENTS_MAX);
	for (size_t i = 0; i < report->point_count; i++) {
		const struct hl_report_moment *moment = &report->moments[i / report->moment_points];
		assert_true(report->points[moment->point].bytes >= report->points[i].bytes);
	}
}

/* The node of the log that a node of the report's profile is; the root: 0. */
static uint32_t log_node(const struct hl_profile *profile, uint32_t node)
{
	return node ? (uint32_t)((profile->frames[profile->nodes[node].frame].address - CODE) / 16)
		    : 0;
}

static void check_figures_at(const struct lab *lab, const struct hl_report_point *point,
			     const int64_t *bytes, const int64_t *objects)
{
	struct hl_log_state *state;
	struct hl_error err = {0};

	assert_int_equal(
		hl_log_state_at(lab->history->log, point->number, HL_LOG_AT_MAX, &state, &err), 0);
	for (size_t node = 1; node < NODES; node++) {
		bool known = node < state->node_count;
		assert_int_equal(bytes[node], known ? state->bytes[node] : 0);
		assert_int_equal(objects[node], known ? state->objects[node] : 0);
	}
	assert_int_equal(state->total_bytes, point->bytes);
	hl_log_state_free(state);
}

static void check_figures(const struct lab *lab)
{
	const struct hl_report_history *report = &lab->report;
	int64_t bytes[NODES] = {0}, objects[NODES] = {0};

	for (size_t i = 0; i < report->moment_count; i++) {
		const struct hl_report_moment *moment = &report->moments[i];
		for (size_t j = 0; j < moment->change_count; j++) {
			const struct hl_report_change *change =
				&report->changes[moment->first_change + j];
			uint32_t node = log_node(report->profile, change->node);
			assert_true(!j || change->node > change[-1].node);
			bytes[node] += change->bytes;
			objects[node] += change->objects;
		}
		check_figures_at(lab, &report->points[moment->point], bytes, objects);
	}
}

static void check(uint64_t count, uint64_t segment_bytes, uint64_t hole_first, uint64_t hole_end)
{
	struct lab *lab = lab_new(count, segment_bytes, hole_first, hole_end);

	assert_int_equal(read_history(lab), 0);
	check_points(lab);
	check_moments(&lab->report);
	check_figures(lab);
	assert_true(hl_profile_is_valid(lab->report.profile));
	lab_free(lab);
}

/* ---- tests ---- */

static void every_interval_of_a_short_log_is_a_moment(void **state)
{
	struct lab *lab = lab_new(HL_REPORT_MOMENTS_MAX, 1 << 30, 0, 0);

	(void)state;
	assert_int_equal(read_history(lab), 0);
	assert_int_equal(lab->report.moment_count, lab->history->point_count);
	check_figures(lab);
	lab_free(lab);
}

static void moments_are_the_maxima_of_their_parts_to_the_byte(void **state)
{
	(void)state;
	check(1, 1 << 30, 0, 0);
	check(201, 1 << 30, 0, 0);
	check(1999, 1 << 30, 0, 0);
	check(4321, 1 << 30, 0, 0);
}

static void segments_make_no_difference(void **state)
{
	(void)state;
	check(700, 4096, 0, 0);
}

static void of_holes_the_outcome_is_known(void **state)
{
	(void)state;
	check(150, 1 << 30, 40, 47);
	check(900, 4096, 100, 230);
}

static void stacks_that_the_recording_lacks_come_from_the_log(void **state)
{
	struct lab *lab = lab_new(60, 1 << 30, 0, 0);

	(void)state;
	assert_int_equal(lab->profile->node_count, 1);
	assert_int_equal(read_history(lab), 0);
	assert_true(lab->report.profile->node_count > NODES / 2);
	assert_int_equal(lab->report.profile->total.alloc_bytes, lab->profile->total.alloc_bytes);
	lab_free(lab);
}

static int read_and_release(struct lab *lab)
{
	int r = read_history(lab);

	hl_report_history_release(&lab->report);
	return r;
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	struct lab *lab = lab_new(30, 1 << 30, 0, 0);

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, read_and_release(lab))
	assert_int_equal(r, -ENOMEM);
	assert_int_equal(read_history(lab), 0);
	check_figures(lab);
	lab_free(lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_interval_of_a_short_log_is_a_moment),
		cmocka_unit_test(moments_are_the_maxima_of_their_parts_to_the_byte),
		cmocka_unit_test(segments_make_no_difference),
		cmocka_unit_test(of_holes_the_outcome_is_known),
		cmocka_unit_test(stacks_that_the_recording_lacks_come_from_the_log),
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
	};

	signal(SIGXFSZ, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
