/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a log says over time equals a millisecond-by-millisecond replay of the changes that were
 * written: sums of every node, figures at every maximum, hills, and what the views make of them.
 */
#include "fail_allocations.h"
#include "log/segment.h"
#include "made_up_log.h"
#include "open/history.h"
#include "temporary.h"
#include "view/view.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define NODES	  MADE_UP_NODES
#define INTERVALS 120
#define LENGTH_MS (INTERVALS * HL_INTERVAL_TICKS)

/* What was written, told once more by the millisecond. */
struct lab {
	char directory[64];
	int fd;
	struct hl_intervals intervals;
	struct hl_log_writer *writer;
	int64_t held[NODES];
	int64_t at_ms[LENGTH_MS][NODES]; /* as changes are taken to happen: see history.h */
	int64_t at_max[INTERVALS][NODES], at_end[INTERVALS][NODES];
	bool missing[INTERVALS];
};

static struct lab *lab_new(uint64_t segment_bytes)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	assert_int_equal(make_temporary(lab->directory), 0);
	lab->fd = open(lab->directory, O_RDONLY | O_DIRECTORY);
	write_made_up_recording(lab->fd, lab->directory, LENGTH_MS * UINT64_C(1000000));
	struct hl_log_settings settings = {lab->fd,	  0,	START_NS,
					   segment_bytes, 1000, &made_up_names};
	assert_int_equal(hl_log_writer_new(&settings, &lab->writer), 0);
	return lab;
}

static void lab_free(struct lab *lab)
{
	hl_log_writer_finish(lab->writer);
	hl_intervals_release(&lab->intervals);
	close(lab->fd);
	assert_int_equal(remove_temporary(lab->directory), 0);
	free(lab);
}

static void finish_log(struct lab *lab)
{
	assert_int_equal(hl_log_writer_finish(lab->writer), 0);
	lab->writer = NULL;
}

static void change(struct lab *lab, uint64_t tick, uint32_t node, int64_t bytes)
{
	lab->held[node] += bytes;
	hl_intervals_tick(&lab->intervals, tick);
	assert_int_equal(hl_intervals_event(&lab->intervals, node, bytes, bytes < 0 ? -1 : 1), 0);
}

/*
 * Ends interval ${number}, ${before} being what was held when it began. One that cannot be written
 * changes nothing until the next one that can.
 */
static void end_interval(struct lab *lab, uint64_t number, const int64_t *before)
{
	struct hl_log_interval interval;
	int64_t at_max[NODES];
	uint64_t first = number * HL_INTERVAL_TICKS;

	assert_int_equal(hl_intervals_end(&lab->intervals, number + 1, &interval), 0);
	memcpy(at_max, before, sizeof(at_max));
	for (size_t i = 0; i < interval.change_count; i++)
		at_max[interval.changes[i].node] += interval.changes[i].max_bytes;
	allow_writing(!lab->missing[number]);
	int r = hl_log_writer_interval(lab->writer, &interval, 4096 * (number + 1), 0);
	allow_writing(true);
	assert_int_equal(r, lab->missing[number] ? -EFBIG : 0);
	for (uint64_t ms = first; ms < first + HL_INTERVAL_TICKS; ms++)
		memcpy(lab->at_ms[ms], ms < interval.max_tick ? before : at_max, sizeof(at_max));
	memcpy(lab->at_max[number], at_max, sizeof(at_max));
	memcpy(lab->at_end[number], lab->held, sizeof(lab->held));
	if (!lab->missing[number] || !first)
		return;
	for (uint64_t ms = first; ms < first + HL_INTERVAL_TICKS; ms++)
		memcpy(lab->at_ms[ms], lab->at_ms[first - 1], sizeof(at_max));
}

static void write_random_log(struct lab *lab)
{
	for (uint64_t number = 0; number < INTERVALS; number++) {
		int64_t before[NODES];
		int events = number % 9 < 3 ? 0 : rand() % 12;
		memcpy(before, lab->held, sizeof(before));
		for (int i = 0; i < events; i++) {
			uint32_t node = 1 + (uint32_t)rand() % (NODES - 1);
			int64_t bytes = rand() % 3 || !lab->held[node] ? 1 + rand() % 5000
								       : -lab->held[node];
			change(lab, number * HL_INTERVAL_TICKS + (uint64_t)i * 7, node, bytes);
		}
		end_interval(lab, number, before);
	}
	finish_log(lab);
}

static struct hl_history *open_history(const struct lab *lab, struct hl_history_range range,
				       unsigned jobs)
{
	struct hl_profile_selection selection = {.jobs = jobs};
	struct hl_history *history;
	struct hl_error err = {0};

	if (hl_history_open(lab->directory, &selection, &range, NULL, &history, &err) != 0)
		fail_msg("%s", err.text);
	return history;
}

/* ---- sums ---- */

static void assert_near(double found, double expected, double scale)
{
	if (fabs(found - expected) > 1e-9 * (1 + fabs(scale)))
		fail_msg("%.17g instead of %.17g", found, expected);
}

/* By brute force, one millisecond after the other. */
static struct hl_history_sum expected_sum(const struct lab *lab, const struct hl_history *history,
					  uint32_t node, double *buckets, size_t bucket_count)
{
	uint64_t start = hl_history_start_ms(history), length = hl_history_length_ms(history);
	struct hl_history_sum sum = {.buckets = buckets};
	size_t bucket = 0;

	memset(buckets, 0, bucket_count * sizeof(*buckets));
	for (uint64_t ms = 0; ms < length; ms++) {
		double bytes = (double)lab->at_ms[start + ms][node];
		while (hl_history_bucket_ms(history, bucket_count, bucket + 1) <= ms)
			bucket++;
		buckets[bucket] += bytes;
		sum.area += bytes;
		sum.moment += bytes * ((double)ms + 0.5);
	}
	return sum;
}

/* Whether the log names the node: its frame has the address that it was given. */
static bool is_named(const struct hl_history *history, uint32_t node)
{
	const struct hl_profile *profile = history->profile;
	const struct hl_profile_node *in_profile = &profile->nodes[history->profile_nodes[node]];

	return profile->frames[in_profile->frame].address == CODE + 16 * node;
}

static void check_survey(const struct lab *lab, struct hl_history_range range, unsigned jobs,
			 size_t bucket_count)
{
	struct hl_history *history = open_history(lab, range, jobs);
	struct hl_history_survey survey;
	struct hl_error err = {0};
	double buckets[64];

	assert_int_equal(hl_history_survey_init(&survey, history, bucket_count, &err), 0);
	for (uint32_t node = 1; node < history->log_node_count; node++) {
		struct hl_history_sum expected =
			expected_sum(lab, history, node, buckets, bucket_count);
		const struct hl_history_sum *sum = &survey.sums[history->profile_nodes[node]];
		uint64_t last = history->points[history->point_count - 1].number;
		if (!is_named(history, node)) {
			assert_true(expected.area == 0);
			continue;
		}
		assert_near(sum->area, expected.area, expected.area);
		assert_near(sum->moment, expected.moment, expected.moment);
		for (size_t i = 0; sum->buckets && i < bucket_count; i++)
			assert_near(sum->buckets[i], buckets[i], expected.area);
		if (!lab->missing[last])
			assert_int_equal(sum->to_bytes, lab->at_end[last][node]);
	}
	hl_history_survey_release(&survey);
	hl_history_free(history);
}

static void sums_over_time_equal_a_replay_by_the_millisecond(void **state)
{
	struct lab *lab = lab_new(1 << 30);

	(void)state;
	srand(1);
	write_random_log(lab);
	check_survey(lab, HL_HISTORY_ALL, 1, 64);
	check_survey(lab, HL_HISTORY_ALL, 1, 1);
	check_survey(lab, (struct hl_history_range){3000, 4500}, 1, 7);
	check_survey(lab, (struct hl_history_range){11900, 11999}, 1, 3);
	lab_free(lab);
}

static void sums_of_many_segments_are_the_same_with_any_number_of_threads(void **state)
{
	struct lab *lab = lab_new(1000);

	(void)state;
	srand(2);
	write_random_log(lab);
	for (unsigned jobs = 1; jobs < 8; jobs += 2) {
		check_survey(lab, HL_HISTORY_ALL, jobs, 64);
		check_survey(lab, (struct hl_history_range){5050, 9999}, jobs, 10);
	}
	lab_free(lab);
}

static void sums_go_on_after_a_hole(void **state)
{
	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	for (int segment_bytes = 1000; segment_bytes < 2000000; segment_bytes *= 1000) {
		struct lab *lab = lab_new((uint64_t)segment_bytes);
		srand(3);
		for (int i = 0; i < 7; i++) /* busy ones: idle ones do not fail */
			lab->missing[39 + i] = true;
		write_random_log(lab);
		check_survey(lab, HL_HISTORY_ALL, 2, 64);
		check_survey(lab, (struct hl_history_range){0, 4100}, 2, 4);
		check_survey(lab, (struct hl_history_range){4100, 5500}, 2, 4);
		check_survey(lab, (struct hl_history_range){4100, 4300}, 2, 4);
		lab_free(lab);
	}
}

/* Cuts the third segment in the middle; what was in its rest is missing, also to the lab. */
static void cut_segment(struct lab *lab)
{
	struct hl_history *history = open_history(lab, HL_HISTORY_ALL, 1);
	const struct hl_segment *segment = &history->log->segments[2];

	assert_true(history->log->segment_count > 3);
	int fd = openat(lab->fd, segment->path, O_WRONLY);
	assert_int_equal(ftruncate(fd, (off_t)segment->size / 2), 0);
	close(fd);
	hl_history_free(history);

	history = open_history(lab, HL_HISTORY_ALL, 1);
	assert_int_equal(history->log->cut_count, 1);
	const struct hl_log_cut *cut = &history->log->cuts[0];
	assert_true(cut->last > cut->first + 1);
	for (uint64_t number = cut->first; number <= cut->last; number++) {
		lab->missing[number] = true;
		for (uint64_t ms = number * HL_INTERVAL_TICKS;
		     ms < (number + 1) * HL_INTERVAL_TICKS; ms++)
			memcpy(lab->at_ms[ms], lab->at_end[cut->first - 1], sizeof(lab->at_ms[ms]));
	}
	hl_history_free(history);
}

static uint64_t first_missing_ms(const struct lab *lab)
{
	uint64_t number = 0;

	while (!lab->missing[number])
		number++;
	return number * HL_INTERVAL_TICKS;
}

static void sums_go_on_after_what_was_cut_off(void **state)
{
	struct lab *lab = lab_new(1500);

	(void)state;
	srand(12);
	write_random_log(lab);
	cut_segment(lab);
	uint64_t hole = first_missing_ms(lab);
	check_survey(lab, HL_HISTORY_ALL, 2, 64);
	check_survey(lab, (struct hl_history_range){0, hole}, 1, 4);
	check_survey(lab, (struct hl_history_range){hole, hole}, 1, 4);
	check_survey(lab, (struct hl_history_range){hole + HL_INTERVAL_TICKS, UINT64_MAX}, 2, 7);
	lab_free(lab);
}

static void where_nothing_was_written_it_is_as_before(void **state)
{
	struct lab *lab = lab_new(1 << 30);
	int64_t before[NODES] = {0};

	(void)state;
	change(lab, 1, 5, 1000);
	end_interval(lab, 0, before);
	memcpy(before, lab->held, sizeof(before));
	for (uint64_t number = 1; number < 90; number++)
		end_interval(lab, number, before);
	finish_log(lab);
	check_survey(lab, (struct hl_history_range){2000, 3000}, 1, 4);
	struct hl_history *history = open_history(lab, (struct hl_history_range){2000, 2999}, 1);
	assert_int_equal(history->point_count, 10);
	assert_int_equal(history->profile->total.alloc_bytes, 1000);
	assert_int_equal(history->profile->total.peak_bytes, 1000);
	hl_history_free(history);
	lab_free(lab);
}

/* Bytes per second, from a point for each millisecond. */
static double regression(const struct lab *lab, uint32_t node)
{
	double mean = (LENGTH_MS - 1) / 2.0, products = 0, squares = 0;

	for (uint32_t ms = 0; ms < LENGTH_MS; ms++) {
		products += (ms - mean) * (double)lab->at_ms[ms][node];
		squares += (ms - mean) * (ms - mean);
	}
	return products / squares * 1000;
}

static void a_line_through_what_rises_evenly_has_its_slope(void **state)
{
	struct lab *lab = lab_new(1 << 30);
	struct hl_history_survey survey;
	struct hl_error err = {0};

	(void)state;
	for (uint64_t number = 0; number < INTERVALS; number++) {
		int64_t before[NODES];
		memcpy(before, lab->held, sizeof(before));
		change(lab, number * HL_INTERVAL_TICKS + 50, 3, 500);
		end_interval(lab, number, before);
	}
	finish_log(lab);
	struct hl_history *history = open_history(lab, HL_HISTORY_ALL, 1);
	assert_int_equal(hl_history_survey_init(&survey, history, 4, &err), 0);
	const struct hl_history_sum *sum = &survey.sums[history->profile_nodes[3]];
	double expected = regression(lab, 3);
	assert_true(expected > 4900 && expected < 5100); /* 500 bytes every 100 ms */
	assert_true(fabs(hl_history_survey_slope(sum, history) - expected) < 0.001);
	assert_int_equal(sum->from_bytes, 0);
	assert_int_equal(sum->to_bytes, 500 * INTERVALS);
	hl_history_survey_release(&survey);
	hl_history_free(history);
	lab_free(lab);
}

/* As after a switch from a mode without a log: what is in use comes at once. */
static void a_log_that_begins_late_begins_with_what_is_in_use(void **state)
{
	struct lab *lab = lab_new(1 << 30);
	struct hl_history_survey survey;
	struct hl_error err = {0};

	(void)state;
	lab->intervals.number = 37;
	change(lab, 3738, 4, 7000);
	for (uint64_t number = 37; number < INTERVALS; number++) {
		int64_t before[NODES];
		memcpy(before, lab->held, sizeof(before));
		change(lab, number * HL_INTERVAL_TICKS + 50, 3, number == 37 ? 8000 : 500);
		end_interval(lab, number, before);
	}
	finish_log(lab);
	struct hl_history *history = open_history(lab, HL_HISTORY_ALL, 1);
	assert_int_equal(hl_history_start_ms(history), 3700);
	assert_int_equal(hl_history_survey_init(&survey, history, 4, &err), 0);
	const struct hl_history_sum *grew = &survey.sums[history->profile_nodes[3]];
	assert_int_equal(grew->from_bytes, 8000);
	assert_int_equal(grew->to_bytes, 8000 + 500 * (INTERVALS - 38));
	assert_true(fabs(hl_history_survey_slope(grew, history) - 5000) < 50);
	const struct hl_history_sum *stayed = &survey.sums[history->profile_nodes[4]];
	assert_int_equal(stayed->from_bytes, 7000);
	assert_int_equal(stayed->to_bytes, 7000);
	assert_null(stayed->buckets);
	hl_history_survey_release(&survey);
	hl_history_free(history);
	lab_free(lab);
}

/* ---- series ---- */

static void check_series(const struct lab *lab, struct hl_history_range range, unsigned jobs,
			 size_t step)
{
	struct hl_history *history = open_history(lab, range, jobs);
	struct hl_history_survey survey;
	struct hl_error err = {0};
	size_t points[INTERVALS], count = 0;
	int64_t *bytes;

	assert_int_equal(hl_history_survey_init(&survey, history, 1, &err), 0);
	uint32_t *key_of = calloc(history->profile->node_count, sizeof(*key_of));
	for (uint32_t node = 1; node < history->log_node_count; node++)
		key_of[history->profile_nodes[node]] = is_named(history, node) ? node % 3 : 0;
	for (size_t i = 0; i < history->point_count; i += step)
		points[count++] = i;
	assert_int_equal(hl_history_series(history, points, count, key_of, 3, &bytes, &err), 0);
	for (size_t i = 0; i < count; i++) {
		const struct hl_log_point *point = &history->points[points[i]];
		int64_t expected[3] = {0}, total = 0;
		for (uint32_t node = 1; node < NODES; node++)
			expected[node % 3] += lab->at_max[point->number][node];
		for (size_t key = 0; key < 3; key++) {
			total += bytes[i * 3 + key];
			if (!point->missing)
				assert_int_equal(bytes[i * 3 + key], expected[key]);
		}
		assert_int_equal(total, point->max_bytes);
	}
	free(bytes);
	free(key_of);
	hl_history_survey_release(&survey);
	hl_history_free(history);
}

static void figures_by_key_add_up_to_the_timeline(void **state)
{
	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	for (int seed = 4; seed < 8; seed++) {
		struct lab *lab = lab_new(seed % 2 ? 700 : 1 << 30);
		srand((unsigned)seed);
		for (int i = 0; seed > 5 && i < 7; i++)
			lab->missing[39 + i] = true;
		write_random_log(lab);
		check_series(lab, HL_HISTORY_ALL, 1, 1);
		check_series(lab, HL_HISTORY_ALL, 3, 7);
		check_series(lab, (struct hl_history_range){1850, 4210}, 3, 1);
		check_series(lab, (struct hl_history_range){900, 1100}, 1, 1);
		check_series(lab, (struct hl_history_range){4100, 5500}, 2, 1);
		lab_free(lab);
	}
}

static void figures_by_key_add_up_where_a_segment_was_cut_off(void **state)
{
	struct lab *lab = lab_new(1500);

	(void)state;
	srand(13);
	write_random_log(lab);
	cut_segment(lab);
	uint64_t hole = first_missing_ms(lab);
	check_series(lab, HL_HISTORY_ALL, 2, 1);
	check_series(lab, (struct hl_history_range){hole, UINT64_MAX}, 1, 1);
	check_series(lab, (struct hl_history_range){hole + HL_INTERVAL_TICKS, UINT64_MAX}, 2, 3);
	lab_free(lab);
}

/* ---- hills ---- */

/* The definition, by brute force: higher ground, or as high an earlier point, on either side. */
static bool is_hill(const struct hl_history *history, size_t at, double percent)
{
	const struct hl_log_point *points = history->points;
	double fall = percent / 100 * (double)points[at].max_bytes;

	for (int side = -1; side <= 1; side += 2) {
		int64_t lowest = INT64_MAX;
		for (size_t i = at; side < 0 ? i > 0 : i + 1 < history->point_count;
		     i += (size_t)side) {
			size_t next = i + (size_t)side;
			int64_t between = points[side < 0 ? next : i].end_bytes;
			lowest = between < lowest ? between : lowest;
			bool hidden = points[next].max_bytes > points[at].max_bytes ||
				      (side < 0 && points[next].max_bytes == points[at].max_bytes);
			if (!hidden)
				continue;
			if (points[at].max_bytes - lowest <= 0 ||
			    (double)(points[at].max_bytes - lowest) < fall)
				return false;
			break;
		}
	}
	return true;
}

static void hills_are_what_their_definition_says(void **state)
{
	static const double percents[] = {0, 1, 5, 20, 60, 100};
	struct lab *lab = lab_new(1 << 30);

	(void)state;
	srand(9);
	write_random_log(lab);
	struct hl_history *history = open_history(lab, HL_HISTORY_ALL, 1);
	for (size_t i = 0; i < HL_COUNT_OF(percents); i++) {
		struct hl_history_hill *hills;
		size_t count, next = 0;
		assert_int_equal(hl_history_hills(history, percents[i], &hills, &count), 0);
		for (size_t at = 0; at < history->point_count; at++) {
			bool found = next < count && hills[next].point == at;
			assert_int_equal(found, is_hill(history, at, percents[i]));
			next += found;
		}
		assert_int_equal(next, count);
		assert_true(count > 0);
		free(hills);
	}
	hl_history_free(history);
	lab_free(lab);
}

/* ---- want of memory ---- */

static int show_range(const struct lab *lab, struct hl_history_range range, hl_history_view *view,
		      enum hl_view_key by)
{
	struct hl_profile_selection selection = {.jobs = 1};
	FILE *null = fopen("/dev/null", "w");
	struct hl_view_options options = {.out = null,
					  .notes = null,
					  .by = by,
					  .timeline.key_limit = 3,
					  .row_limit = 10,
					  .stack_limit = 3,
					  .timeline.form = HL_VIEW_TIMELINE_SVG,
					  .json = view != hl_timeline_view};
	struct hl_history *history = NULL;
	struct hl_error err = {0};

	int r = hl_history_open(lab->directory, &selection, &range, NULL, &history, &err);
	if (r == 0)
		r = view(history, &options, &err);
	hl_history_free(history);
	if (null)
		fclose(null);
	assert_true(r == 0 || err.text[0]);
	return r;
}

static int show(const struct lab *lab, hl_history_view *view, enum hl_view_key by)
{
	return show_range(lab, HL_HISTORY_ALL, view, by);
}

static void want_of_memory_is_an_error_in_a_hole(void **state)
{
	struct lab *lab = lab_new(1500);

	(void)state;
	srand(14);
	write_random_log(lab);
	cut_segment(lab);
	struct hl_history_range range = {first_missing_ms(lab), UINT64_MAX};
	FOR_EACH_FAILING_ALLOCATION(r,
				    show_range(lab, range, hl_timeline_view, HL_VIEW_BY_FUNCTION))
	assert_int_equal(r, -ENOMEM);
	lab_free(lab);
}

static void want_of_memory_is_an_error_everywhere(void **state)
{
	struct lab *lab = lab_new(3000);

	(void)state;
	srand(11);
	write_random_log(lab);
	FOR_EACH_FAILING_ALLOCATION(r, show(lab, hl_timeline_view, HL_VIEW_BY_TOTAL))
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, show(lab, hl_timeline_view, HL_VIEW_BY_FUNCTION))
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, show(lab, hl_peaks_view, HL_VIEW_BY_TOTAL))
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, show(lab, hl_growth_view, HL_VIEW_BY_STACK))
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, show(lab, hl_growth_view, HL_VIEW_BY_LINE))
	assert_int_equal(r, -ENOMEM);
	lab_free(lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_over_time_equal_a_replay_by_the_millisecond),
		cmocka_unit_test(sums_of_many_segments_are_the_same_with_any_number_of_threads),
		cmocka_unit_test(sums_go_on_after_a_hole),
		cmocka_unit_test(sums_go_on_after_what_was_cut_off),
		cmocka_unit_test(where_nothing_was_written_it_is_as_before),
		cmocka_unit_test(a_line_through_what_rises_evenly_has_its_slope),
		cmocka_unit_test(a_log_that_begins_late_begins_with_what_is_in_use),
		cmocka_unit_test(figures_by_key_add_up_to_the_timeline),
		cmocka_unit_test(figures_by_key_add_up_where_a_segment_was_cut_off),
		cmocka_unit_test(hills_are_what_their_definition_says),
		cmocka_unit_test(want_of_memory_is_an_error_everywhere),
		cmocka_unit_test(want_of_memory_is_an_error_in_a_hole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
