/* SPDX-License-Identifier: BSD-2-Clause */
/* What is written to a log is what is read from it: moments, marks, ranges, in one segment or in
 * many. */
#include "log_lab.h"

#include "base/frame_key.h"

static void every_moment_is_read_as_it_was(void **state)
{
	struct lab *lab = lab_new(1 << 30, 10);

	(void)state;
	srand(1);
	write_intervals(lab, 0, INTERVALS);
	assert_int_equal(hl_log_writer_finish(lab->writer), 0);
	lab->writer = NULL;
	struct hl_log *log = read_log(lab, 1);
	assert_int_equal(log->segment_count, 1);
	assert_int_equal(log->start_realtime_ns, START_NS);
	assert_false(log->cut_off);
	check_points(lab, log);
	hl_log_free(log);
	lab_free(lab);
}

static void a_log_in_many_segments_is_the_same_with_any_number_of_threads(void **state)
{
	struct lab *lab = lab_new(2000, 1000);

	(void)state;
	srand(2);
	write_intervals(lab, 0, INTERVALS);
	assert_int_equal(hl_log_writer_finish(lab->writer), 0);
	lab->writer = NULL;
	struct hl_log *one = read_log(lab, 1), *many = read_log(lab, 7);
	assert_true(one->segment_count > 10);
	assert_int_equal(one->segment_count, many->segment_count);
	assert_int_equal(one->point_count, many->point_count);
	check_points(lab, one);
	check_points(lab, many);
	hl_log_free(one);
	hl_log_free(many);
	lab_free(lab);
}

static void a_log_that_is_being_written_can_be_read(void **state)
{
	struct lab *lab = lab_new(5000, 1000);

	(void)state;
	srand(3);
	for (uint64_t at = 0; at < 60; at += 20) {
		write_intervals(lab, at, 20);
		struct hl_log *log = read_log(lab, 2);
		assert_true(log->cut_off);
		check_points(lab, log);
		hl_log_free(log);
	}
	lab_free(lab);
}

static void only_as_many_segments_are_kept_as_wanted_and_the_rest_is_right(void **state)
{
	struct lab *lab = lab_new(2000, 3);

	(void)state;
	srand(4);
	write_intervals(lab, 0, INTERVALS);
	struct hl_log *log = read_log(lab, 0);
	assert_int_equal(log->segment_count, 3);
	assert_true(log->points[0].number > 0);
	check_points(lab, log);
	hl_log_free(log);
	hl_log_writer_keep(lab->writer, 1);
	log = read_log(lab, 0);
	assert_int_equal(log->segment_count, 1);
	check_points(lab, log);
	hl_log_free(log);
	lab_free(lab);
}

static bool name_by_path(const struct hl_log_names *base, uint32_t node, uint64_t *ret_frame,
			 uint32_t *ret_parent)
{
	bool is_there = name_node(base, node, ret_frame, ret_parent);

	if (node == 200)
		*ret_frame = hl_path_frame_key(77);
	return is_there;
}

static void a_node_for_a_path_of_scripts_comes_with_the_nodes_of_the_path(void **state)
{
	struct lab *lab = lab_new(1 << 30, 10);
	struct hl_log_state *at_end;
	struct hl_error err = {0};

	(void)state;
	lab->names.base.node = name_by_path;
	hl_intervals_tick(&lab->intervals, 1);
	assert_int_equal(hl_intervals_event(&lab->intervals, 200, 10, 1), 0);
	assert_int_equal(write_interval(lab, 0), 0);
	struct hl_log *log = read_log(lab, 1);
	assert_int_equal(hl_log_state_at(log, 0, HL_LOG_AT_END, &at_end, &err), 0);
	assert_true(at_end->nodes[200].frame == hl_path_frame_key(77));
	for (uint32_t node = 77; node; node /= 2)
		assert_true(at_end->nodes[node].defined);
	assert_false(at_end->nodes[78].defined);
	hl_log_state_free(at_end);
	hl_log_free(log);
	lab_free(lab);
}

static void marks_are_kept_with_their_ticks(void **state)
{
	struct lab *lab = lab_new(2000, 100);

	(void)state;
	srand(10);
	write_intervals(lab, 0, 30);
	assert_int_equal(hl_log_writer_mark(lab->writer, 2950, "round 1 begins"), 0);
	write_intervals(lab, 30, 100);
	assert_int_equal(hl_log_writer_mark(lab->writer, 12950, ""), 0);
	for (int finished = 0; finished < 2; finished++) {
		struct hl_log *log = read_log(lab, 0);
		assert_int_equal(log->mark_count, 2);
		assert_int_equal(log->marks[0].tick, 2950);
		assert_string_equal(log->marks[0].text, "round 1 begins");
		assert_string_equal(log->marks[1].text, "");
		hl_log_free(log);
		hl_log_writer_finish(lab->writer);
		lab->writer = NULL;
	}
	lab_free(lab);
}

static void marks_that_come_late_stand_where_they_belong(void **state)
{
	struct lab *lab = lab_new(1 << 20, 100);

	(void)state;
	srand(11);
	write_intervals(lab, 0, 3);
	assert_int_equal(hl_log_writer_mark(lab->writer, 150, "by ctl"), 0);
	assert_int_equal(hl_log_writer_mark(lab->writer, 120, "by the program"), 0);
	assert_int_equal(hl_log_writer_mark(lab->writer, 150, "again"), 0);
	struct hl_log *log = read_log(lab, 0);
	assert_int_equal(log->mark_count, 3);
	assert_string_equal(log->marks[0].text, "by the program");
	assert_string_equal(log->marks[1].text, "by ctl");
	assert_string_equal(log->marks[2].text, "again");
	hl_log_free(log);
	lab_free(lab);
}

/* ---- folding ---- */

struct folding {
	int64_t held[20][NODES];
	int64_t first[20], last[20]; /* interval numbers of each part */
	size_t visits;
};

static int begin_part(void *context, size_t part, const struct hl_log_state *state)
{
	struct folding *folding = context;

	for (size_t i = 0; i < state->node_count && i < NODES; i++)
		folding->held[part][i] = state->bytes[i];
	folding->first[part] = -1;
	return 0;
}

static int visit_interval(void *context, size_t part, const struct hl_log_interval *interval)
{
	struct folding *folding = context;

	if (folding->first[part] < 0)
		folding->first[part] = (int64_t)interval->number;
	folding->last[part] = (int64_t)interval->number;
	for (size_t i = 0; i < interval->change_count; i++)
		folding->held[part][interval->changes[i].node] +=
			interval->changes[i].max_bytes + interval->changes[i].rest_bytes;
	__atomic_fetch_add(&folding->visits, 1, __ATOMIC_RELAXED);
	return 0;
}

static int end_part(void *context, size_t part, const struct hl_log_state *state)
{
	struct folding *folding = context;

	for (size_t i = 0; i < state->node_count && i < NODES; i++)
		if (folding->held[part][i] != state->bytes[i])
			return -EINVAL;
	return 0;
}

static void a_range_is_folded_part_by_part(void **state)
{
	struct lab *lab = lab_new(8000, 100);
	struct folding *folding = calloc(1, sizeof(*folding));
	const struct hl_log_fold fold = {folding, begin_part, visit_interval, end_part};
	struct hl_error err = {0};

	(void)state;
	srand(12);
	write_intervals(lab, 0, INTERVALS);
	struct hl_log *log = read_log(lab, 0);
	assert_in_range(log->segment_count, 3, 20);
	if (hl_log_read(log, 100, 299, NULL, &fold, &err) != 0)
		fail_msg("%s", err.text);
	int64_t before = 99;
	for (uint32_t i = 0; i < log->segment_count; i++) {
		if (!folding->last[i])
			continue;
		assert_true(folding->first[i] > before);
		before = folding->last[i];
		assert_memory_equal(folding->held[i], lab->moments[before].end,
				    sizeof(folding->held[i]));
	}
	assert_in_range(before, 295, 299);
	assert_in_range(folding->visits, 100, 200);
	hl_log_free(log);
	free(folding);
	lab_free(lab);
}

/* Reading intervals 5 to 25 yields all of them, or an error that names the segment. */
static bool check_fold(const struct hl_log *log, size_t expected_visits)
{
	struct folding *folding = calloc(1, sizeof(*folding));
	const struct hl_log_fold fold = {folding, begin_part, visit_interval, end_part};
	struct hl_error err = {0};

	int r = hl_log_read(log, 5, 25, NULL, &fold, &err);
	if (r == 0) {
		assert_int_equal(folding->visits, expected_visits);
	} else {
		assert_int_equal(r, -EBADMSG);
		assert_non_null(strstr(err.text, "memlog-3-"));
		assert_non_null(strstr(err.text, "damaged"));
	}
	free(folding);
	return r == 0;
}

static void intervals_that_the_index_promised_and_damage_took_are_an_error(void **state)
{
	struct lab *lab = lab_new(1 << 30, 10);
	struct stat status;
	char path[400];
	int errors = 0, whole = 0;

	(void)state;
	srand(18);
	for (uint64_t number = 0; number < 30; number++) {
		fill_interval(lab, number, 10);
		assert_int_equal(write_interval(lab, number), 0);
	}
	assert_int_equal(hl_log_writer_finish(lab->writer), 0);
	lab->writer = NULL;
	segment_path(lab, 0, path, sizeof(path));
	assert_int_equal(stat(path, &status), 0);
	int fd = open(path, O_RDWR);
	for (off_t at = sizeof(struct hl_segment_header); at < status.st_size; at += 7) {
		struct hl_log *log;
		uint8_t byte, flipped;
		assert_int_equal(pread(fd, &byte, 1, at), 1);
		flipped = byte ^ 4;
		assert_int_equal(pwrite(fd, &flipped, 1, at), 1);
		if (open_log_in(lab->directory, PROCESS, NULL, &log, NULL) == 0) {
			if (check_fold(log, 21))
				whole++;
			else
				errors++;
			hl_log_free(log);
		}
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	}
	close(fd);
	assert_true(errors > whole && whole > 0); /* what lies after, and the index */
	lab_free(lab);
}

static void other_processes_and_no_log_at_all_are_told_apart(void **state)
{
	struct lab *lab = lab_new(2000, 100);
	struct hl_error err = {0};
	struct hl_log *log;

	(void)state;
	write_intervals(lab, 0, 5);
	assert_int_equal(open_log_in(lab->directory, PROCESS + 1, NULL, &log, &err), -ENOENT);
	assert_non_null(strstr(err.text, "--mode log-fast"));
	log = read_log(lab, 0);
	struct hl_log_state *unused;
	assert_int_equal(hl_log_state_at(log, 1000, HL_LOG_AT_MAX, &unused, &err), 0);
	hl_log_state_free(unused);
	hl_log_free(log);
	lab_free(lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_moment_is_read_as_it_was),
		cmocka_unit_test(a_log_in_many_segments_is_the_same_with_any_number_of_threads),
		cmocka_unit_test(a_log_that_is_being_written_can_be_read),
		cmocka_unit_test(only_as_many_segments_are_kept_as_wanted_and_the_rest_is_right),
		cmocka_unit_test(a_node_for_a_path_of_scripts_comes_with_the_nodes_of_the_path),
		cmocka_unit_test(marks_are_kept_with_their_ticks),
		cmocka_unit_test(marks_that_come_late_stand_where_they_belong),
		cmocka_unit_test(a_range_is_folded_part_by_part),
		cmocka_unit_test(intervals_that_the_index_promised_and_damage_took_are_an_error),
		cmocka_unit_test(other_processes_and_no_log_at_all_are_told_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
