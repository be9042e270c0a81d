/* SPDX-License-Identifier: BSD-2-Clause */
/* A log read back is what was written, at every moment, however it was cut, and whatever is gone.
 */
#include "log/log_reader.h"
#include "log/segment_reader.h"
#include "log/segment_writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define NODES	  300
#define INTERVALS 400
#define PROCESS	  3
#define START_NS  UINT64_C(1767225600000000000)

/* ---- names: node i lies below node i / 2, and there are more modules from time to time ---- */

struct names {
	struct hl_log_names base;
	uint32_t modules;
	char path[32];
};

static bool name_node(const struct hl_log_names *base, uint32_t node, uint64_t *ret_frame,
		      uint32_t *ret_parent)
{
	(void)base;
	*ret_frame = UINT64_C(1) << 48 | (0x1000 + node);
	*ret_parent = node / 2;
	return node < NODES;
}

static uint32_t count_modules(const struct hl_log_names *base)
{
	return ((const struct names *)base)->modules;
}

static bool name_module(const struct hl_log_names *base, uint32_t module,
			struct hl_log_module *ret_module)
{
	struct names *names = (struct names *)base;

	snprintf(names->path, sizeof(names->path), "/lib/%u.so", module);
	*ret_module = (struct hl_log_module){.path = names->path,
					     .start = module * 0x100000,
					     .end = module * 0x100000 + 0x1000,
					     .load_bias = module,
					     .build_id = {0xab, (uint8_t)module},
					     .build_id_bytes = 2};
	return true;
}

/* ---- a log of random intervals, and what it must say ---- */

struct moment {
	bool written;
	int64_t max[NODES], end[NODES];
	int64_t max_total, end_total;
};

struct lab {
	char directory[64];
	int fd;
	struct names names;
	struct hl_intervals intervals;
	struct hl_log_writer *writer;
	struct moment *moments;
	int64_t held[NODES];
};

static struct lab *lab_new(uint64_t segment_bytes, uint32_t kept)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	strcpy(lab->directory, "/tmp/heapline-log-XXXXXX");
	assert_non_null(mkdtemp(lab->directory));
	lab->fd = open(lab->directory, O_RDONLY | O_DIRECTORY);
	lab->moments = calloc(INTERVALS, sizeof(*lab->moments));
	lab->names = (struct names){{name_node, count_modules, name_module}, 1, ""};
	struct hl_log_settings settings = {lab->fd,	  PROCESS, START_NS,
					   segment_bytes, kept,	   &lab->names.base};
	assert_int_equal(hl_log_writer_new(&settings, &lab->writer), 0);
	return lab;
}

static void lab_free(struct lab *lab)
{
	char command[128];

	hl_log_writer_finish(lab->writer);
	hl_intervals_release(&lab->intervals);
	close(lab->fd);
	snprintf(command, sizeof(command), "rm -rf '%s'", lab->directory);
	assert_int_equal(system(command), 0);
	free(lab->moments);
	free(lab);
}

static int64_t total_of(const int64_t *held)
{
	int64_t total = 0;

	for (int i = 0; i < NODES; i++)
		total += held[i];
	return total;
}

/* One interval of random events; what it is at its maximum and at its end goes to its moment. */
static void fill_interval(struct lab *lab, uint64_t number, int events)
{
	struct moment *moment = &lab->moments[number];

	memcpy(moment->max, lab->held, sizeof(lab->held));
	moment->max_total = total_of(lab->held);
	for (int i = 0; i < events; i++) {
		uint32_t node = 1 + (uint32_t)rand() % (NODES - 1);
		int64_t bytes = rand() % 3 || !lab->held[node] ? rand() % 5000 : -lab->held[node];
		hl_intervals_tick(&lab->intervals, number * HL_INTERVAL_TICKS + (uint64_t)i);
		assert_int_equal(
			hl_intervals_event(&lab->intervals, node, bytes, bytes < 0 ? -1 : 1), 0);
		lab->held[node] += bytes;
		if (total_of(lab->held) > moment->max_total) {
			moment->max_total = total_of(lab->held);
			memcpy(moment->max, lab->held, sizeof(lab->held));
		}
	}
	memcpy(moment->end, lab->held, sizeof(lab->held));
	moment->end_total = total_of(lab->held);
}

static int write_interval(struct lab *lab, uint64_t number)
{
	struct hl_log_interval interval;

	assert_int_equal(hl_intervals_end(&lab->intervals, number + 1, &interval), 0);
	int r = hl_log_writer_interval(lab->writer, &interval, 4096 * (number + 1), 0);
	lab->moments[number].written = r == 0;
	return r;
}

static void write_intervals(struct lab *lab, uint64_t first, uint64_t count)
{
	for (uint64_t number = first; number < first + count; number++) {
		lab->names.modules = 1 + (uint32_t)number / 50;
		/* Some are idle. */
		fill_interval(lab, number, number % 7 < 2 ? 0 : rand() % 20);
		assert_int_equal(write_interval(lab, number), 0);
	}
}

static struct hl_log *read_log(const struct lab *lab, unsigned jobs)
{
	struct hl_log_options options = {.jobs = jobs};
	struct hl_error err = {0};
	struct hl_log *log;

	if (hl_log_open(lab->directory, PROCESS, &options, &log, &err) != 0)
		fail_msg("%s", err.text);
	return log;
}

/* ---- comparing ---- */

static void check_state(const struct hl_log *log, uint64_t number, enum hl_log_moment moment,
			const int64_t *expected)
{
	struct hl_log_state *state;
	struct hl_error err = {0};

	if (hl_log_state_at(log, number, moment, &state, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(state->total_bytes, total_of(expected));
	for (uint32_t i = 1; i < NODES; i++) {
		int64_t found = i < state->node_count ? state->bytes[i] : 0;
		if (found != expected[i])
			fail_msg("interval %llu: node %u holds %lld instead of %lld",
				 (unsigned long long)number, i, (long long)found,
				 (long long)expected[i]);
		if (!found)
			continue;
		assert_true(state->nodes[i].defined);
		assert_int_equal(state->nodes[i].parent, i / 2);
		assert_int_equal(state->nodes[i].frame, UINT64_C(1) << 48 | (0x1000 + i));
		assert_true(i < 2 || state->nodes[i / 2].defined);
	}
	assert_string_equal(state->modules[0].path, "/lib/1.so");
	hl_log_state_free(state);
}

static void check_points(const struct lab *lab, const struct hl_log *log)
{
	for (size_t i = 0; i < log->point_count; i++) {
		const struct hl_log_point *point = &log->points[i];
		assert_int_equal(point->number, log->points[0].number + i);
		if (point->missing)
			continue;
		assert_int_equal(point->max_bytes, lab->moments[point->number].max_total);
		assert_int_equal(point->end_bytes, lab->moments[point->number].end_total);
		check_state(log, point->number, HL_LOG_AT_MAX, lab->moments[point->number].max);
		check_state(log, point->number, HL_LOG_AT_END, lab->moments[point->number].end);
	}
}

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

/* The name of the ${index}th segment, in order. */
static void segment_path(const struct lab *lab, int index, char *path, size_t size)
{
	struct dirent **entries;
	int count = scandir(lab->directory, &entries, NULL, alphasort), found = 0;

	path[0] = '\0';
	for (int i = 0; i < count; i++) {
		if (!strncmp(entries[i]->d_name, "memlog-", 7) && found++ == index)
			snprintf(path, size, "%s/%s", lab->directory, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
}

static void only_the_newest_run_without_a_gap_is_used(void **state)
{
	struct lab *lab = lab_new(2000, 1000);
	char path[400];

	(void)state;
	srand(5);
	write_intervals(lab, 0, INTERVALS);
	struct hl_log *log = read_log(lab, 0);
	uint32_t all = log->segment_count;
	hl_log_free(log);
	segment_path(lab, 4, path, sizeof(path));
	assert_int_equal(unlink(path), 0);
	log = read_log(lab, 0);
	assert_int_equal(log->ignored_count, 4);
	assert_int_equal(log->segment_count, all - 5);
	check_points(lab, log);
	hl_log_free(log);
	lab_free(lab);
}

static void a_damaged_segment_ends_the_run(void **state)
{
	struct lab *lab = lab_new(2000, 1000);
	char path[400];

	(void)state;
	srand(6);
	write_intervals(lab, 0, INTERVALS);
	segment_path(lab, 6, path, sizeof(path));
	int fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, "X", 1, 3), 1);
	close(fd);
	struct hl_log *log = read_log(lab, 0);
	assert_int_equal(log->ignored_count, 7);
	check_points(lab, log);
	hl_log_free(log);
	lab_free(lab);
}

static void a_segment_that_is_cut_anywhere_is_read_up_to_its_last_whole_piece(void **state)
{
	struct lab *lab = lab_new(1 << 30, 10);
	struct stat status;
	char path[400];
	uint64_t last = UINT64_MAX;

	(void)state;
	srand(7);
	write_intervals(lab, 0, 30);
	segment_path(lab, 0, path, sizeof(path));
	assert_int_equal(stat(path, &status), 0);
	for (off_t size = status.st_size - 1; size >= 0; size--) {
		struct hl_error err = {0};
		struct hl_log *log;
		assert_int_equal(truncate(path, size), 0);
		int r = hl_log_open(lab->directory, PROCESS, NULL, &log, &err);
		if (r < 0) {
			assert_int_equal(r, -ENODATA);
			assert_non_null(strstr(err.text, "cut off"));
			continue;
		}
		assert_true(log->cut_off);
		if (log->point_count && log->points[log->point_count - 1].number != last) {
			check_points(lab, log);
			last = log->points[log->point_count - 1].number;
		}
		hl_log_free(log);
	}
	lab_free(lab);
}

/* Points ${first} to ${last} of the log are missing, and no other. */
static void check_hole(const struct hl_log *log, uint64_t first, uint64_t last)
{
	for (size_t i = 0; i < log->point_count; i++) {
		const struct hl_log_point *point = &log->points[i];
		assert_int_equal(point->missing, point->number >= first && point->number <= last);
		if (!point->missing)
			continue;
		assert_int_equal(point->max_bytes, log->points[i - 1].end_bytes);
		assert_int_equal(point->end_bytes, log->points[i - 1].end_bytes);
	}
}

/* Of small segments, without idle intervals, and finished. */
static struct lab *lab_with_segments(unsigned seed)
{
	struct lab *lab = lab_new(2000, 1000);

	srand(seed);
	for (uint64_t number = 0; number < 100; number++) {
		fill_interval(lab, number, 10);
		assert_int_equal(write_interval(lab, number), 0);
	}
	assert_int_equal(hl_log_writer_finish(lab->writer), 0);
	lab->writer = NULL;
	return lab;
}

static void what_is_cut_off_before_another_segment_is_missing(void **state)
{
	struct lab *lab = lab_with_segments(13);
	struct stat status;
	char path[400];

	(void)state;
	struct hl_log *log = read_log(lab, 0);
	assert_true(log->segment_count > 4);
	uint64_t next = log->segments[3].header.first_interval;
	check_hole(log, 1, 0);
	hl_log_free(log);
	segment_path(lab, 2, path, sizeof(path));
	assert_int_equal(stat(path, &status), 0);
	for (off_t size = status.st_size - 1; size > 0; size -= 11) {
		assert_int_equal(truncate(path, size), 0);
		log = read_log(lab, 0);
		assert_false(log->cut_off);
		if (log->cut_count) {
			assert_int_equal(log->cut_count, 1);
			assert_string_equal(log->cuts[0].name, strrchr(path, '/') + 1);
			assert_int_equal(log->cuts[0].last, next - 1);
			assert_int_equal(log->missing_count, next - log->cuts[0].first);
			check_hole(log, log->cuts[0].first, log->cuts[0].last);
		} else {
			check_hole(log, 1, 0);
			assert_int_equal(log->missing_count, 0);
		}
		check_points(lab, log);
		assert_int_equal(log->points[log->point_count - 1].number, 99);
		/* The piece before the index, or all up to the checkpoint, is gone. */
		assert_true(log->cut_count || log->ignored_count || size > status.st_size - 200);
		assert_true(log->points[0].number == 0 || log->ignored_count == 3);
		hl_log_free(log);
	}
	lab_free(lab);
}

static void a_first_segment_of_which_no_interval_is_left_is_ignored(void **state)
{
	struct lab *lab = lab_with_segments(19);
	struct stat status;
	char path[400];

	(void)state;
	segment_path(lab, 0, path, sizeof(path));
	assert_int_equal(stat(path, &status), 0);
	for (off_t size = status.st_size - 1; size > 0; size -= 11) {
		assert_int_equal(truncate(path, size), 0);
		struct hl_log *log = read_log(lab, 0);
		assert_int_equal(log->ignored_count, log->points[0].number != 0);
		hl_log_free(log);
	}
	lab_free(lab);
}

static void a_segment_whose_end_is_zeroed_is_cut_off(void **state)
{
	struct lab *lab = lab_with_segments(14);
	char path[400], zeros[1000] = {0};
	struct stat status;

	(void)state;
	segment_path(lab, 0, path, sizeof(path));
	assert_int_equal(stat(path, &status), 0);
	int fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, zeros, sizeof(zeros), status.st_size - 1000), 1000);
	close(fd);
	struct hl_log *log = read_log(lab, 0);
	assert_int_equal(log->cut_count, 1);
	assert_int_equal(log->missing_count, log->cuts[0].last - log->cuts[0].first + 1);
	check_hole(log, log->cuts[0].first, log->cuts[0].last);
	check_points(lab, log);
	hl_log_free(log);
	lab_free(lab);
}

static void newest_segments_without_anything_in_them_leave_the_log_without_an_end(void **state)
{
	struct lab *lab = lab_with_segments(15);
	char path[400];

	(void)state;
	struct hl_log *log = read_log(lab, 0);
	uint32_t all = log->segment_count;
	hl_log_free(log);
	for (uint32_t i = all - 2; i < all; i++) {
		segment_path(lab, (int)i, path, sizeof(path));
		assert_int_equal(truncate(path, 0), 0);
	}
	log = read_log(lab, 0);
	assert_int_equal(log->segment_count, all - 2);
	assert_true(log->cut_off);
	check_points(lab, log);
	hl_log_free(log);
	lab_free(lab);
}

/* Puts a copy of segment ${index} of ${from} in the place of ${path}. */
static void replace_segment(const struct lab *from, int index, const char *path)
{
	char other[400], command[900];

	segment_path(from, index, other, sizeof(other));
	snprintf(command, sizeof(command), "cp '%s' '%s'", other, path);
	assert_int_equal(system(command), 0);
}

static void a_segment_of_another_recording_ends_the_run(void **state)
{
	struct lab *lab = lab_with_segments(16), *other = lab_new(2000, 1000);
	struct hl_log_settings settings = {other->fd, PROCESS, START_NS + 1,
					   2000,      1000,    &other->names.base};
	char path[400];

	(void)state;
	hl_log_writer_finish(other->writer);
	assert_int_equal(hl_log_writer_new(&settings, &other->writer), 0);
	write_intervals(other, 0, 100);
	segment_path(lab, 3, path, sizeof(path));
	replace_segment(other, 3, path);
	struct hl_log *log = read_log(lab, 0);
	assert_int_equal(log->ignored_count, 4);
	assert_int_equal(log->start_realtime_ns, START_NS);
	check_points(lab, log);
	hl_log_free(log);
	lab_free(other);
	lab_free(lab);
}

static void
segments_of_another_recording_are_left_out_where_it_is_known_which_is_meant(void **state)
{
	struct lab *lab = lab_with_segments(18), *other = lab_new(2000, 1000);
	struct hl_log_settings settings = {other->fd, PROCESS, START_NS + 1,
					   2000,      1000,    &other->names.base};
	struct hl_log_options options = {.start_realtime_ns = START_NS};
	struct hl_error err = {0};
	struct hl_log *log;
	char path[400];

	(void)state;
	hl_log_writer_finish(other->writer);
	assert_int_equal(hl_log_writer_new(&settings, &other->writer), 0);
	write_intervals(other, 0, 100);
	log = read_log(lab, 0);
	int newest = (int)log->segment_count - 1;
	hl_log_free(log);
	segment_path(lab, newest, path, sizeof(path));
	replace_segment(other, 3, path);
	assert_int_equal(hl_log_open(lab->directory, PROCESS, &options, &log, &err), 0);
	assert_int_equal(log->foreign_count, 1);
	assert_int_equal(log->ignored_count, 0);
	assert_int_equal(log->segment_count, newest);
	assert_int_equal(log->start_realtime_ns, START_NS);
	check_points(lab, log);
	hl_log_free(log);
	assert_int_equal(hl_log_open(other->directory, PROCESS, &options, &log, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "of another recording"));
	lab_free(other);
	lab_free(lab);
}

static void a_segment_under_the_name_of_another_ends_the_run(void **state)
{
	struct lab *lab = lab_with_segments(17);
	struct hl_error err = {0};
	struct hl_log *log;
	char path[400];

	(void)state;
	segment_path(lab, 3, path, sizeof(path));
	replace_segment(lab, 1, path);
	log = read_log(lab, 0);
	assert_int_equal(log->ignored_count, 4);
	check_points(lab, log);
	segment_path(lab, (int)log->segment_count + 3, path, sizeof(path));
	hl_log_free(log);
	replace_segment(lab, 1, path);
	assert_int_equal(hl_log_open(lab->directory, PROCESS, NULL, &log, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "another number than its name says"));
	lab_free(lab);
}

/* Where the index is whole and a piece is not, moments behind it cannot be read; no other is wrong.
 */
static void check_readable_points(const struct lab *lab, const struct hl_log *log)
{
	for (size_t i = 0; i < log->point_count; i++) {
		struct hl_log_state *found;
		struct hl_error err = {0};
		uint64_t number = log->points[i].number;
		assert_int_equal(log->points[i].max_bytes, lab->moments[number].max_total);
		if (hl_log_state_at(log, number, HL_LOG_AT_MAX, &found, &err) < 0) {
			assert_non_null(strstr(err.text, "damaged"));
			continue;
		}
		assert_int_equal(found->total_bytes, lab->moments[number].max_total);
		hl_log_state_free(found);
	}
}

static void flipped_bits_do_no_harm(void **state)
{
	struct lab *lab = lab_new(1 << 30, 10);
	struct stat status;
	char path[400];

	(void)state;
	srand(8);
	write_intervals(lab, 0, 6);
	assert_int_equal(hl_log_writer_finish(lab->writer), 0);
	lab->writer = NULL;
	segment_path(lab, 0, path, sizeof(path));
	assert_int_equal(stat(path, &status), 0);
	int fd = open(path, O_RDWR);
	for (off_t at = 0; at < status.st_size; at++) {
		struct hl_log *log;
		uint8_t byte, flipped;
		assert_int_equal(pread(fd, &byte, 1, at), 1);
		flipped = (uint8_t)(byte ^ 1u << rand() % 8);
		assert_int_equal(pwrite(fd, &flipped, 1, at), 1);
		if (hl_log_open(lab->directory, PROCESS, NULL, &log, NULL) == 0) {
			check_readable_points(lab, log);
			hl_log_free(log);
		}
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	}
	close(fd);
	lab_free(lab);
}

static void limit_files(rlim_t bytes)
{
	struct rlimit limit;

	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_full_disk_leaves_a_hole_and_right_figures_after_it(void **state)
{
	struct lab *lab = lab_new(1 << 30, 10);
	char path[400];
	struct stat status;

	(void)state;
	srand(9);
	signal(SIGXFSZ, SIG_IGN);
	write_intervals(lab, 0, 50);
	segment_path(lab, 0, path, sizeof(path));
	assert_int_equal(stat(path, &status), 0);
	limit_files((rlim_t)status.st_size + 30);
	for (uint64_t number = 50; number < 70; number++) {
		fill_interval(lab, number, 5);
		assert_true(write_interval(lab, number) < 0);
	}
	limit_files(RLIM_INFINITY);
	write_intervals(lab, 70, 50);
	assert_int_equal(hl_log_writer_missing(lab->writer), 20);
	for (int finished = 0; finished < 2; finished++) {
		struct hl_log *log = read_log(lab, 0);
		assert_int_equal(log->missing_count, 20);
		assert_int_equal(log->point_count, 119 + finished); /* the last one is idle */
		assert_false(log->points[48].missing);
		assert_true(log->points[50].missing && log->points[69].missing);
		assert_false(log->points[72].missing);
		check_points(lab, log);
		hl_log_free(log);
		hl_log_writer_finish(lab->writer);
		lab->writer = NULL;
	}
	lab_free(lab);
}

/* Takes the trailers away, so that all segments have to be walked. */
static void cut_trailers(const struct lab *lab, const struct hl_log *log)
{
	struct stat status;
	char path[400];

	for (uint32_t i = 0; i < log->segment_count; i++) {
		if (log->segments[i].cut_off) /* for want of room */
			continue;
		segment_path(lab, (int)i, path, sizeof(path));
		assert_int_equal(stat(path, &status), 0);
		assert_int_equal(truncate(path, status.st_size - 1), 0);
	}
}

static void a_hole_between_segments_is_seen_without_indexes_too(void **state)
{
	(void)state;
	srand(23);
	signal(SIGXFSZ, SIG_IGN);
	for (uint64_t first = 20; first < 80; first++) {
		struct lab *lab = lab_new(1500, 1000);
		for (uint64_t number = 0; number < 100; number++) {
			bool full = number >= first && number < first + 7;
			limit_files(full ? 1 : RLIM_INFINITY);
			fill_interval(lab, number, 5);
			assert_int_equal(write_interval(lab, number) < 0, full);
		}
		limit_files(RLIM_INFINITY);
		hl_log_writer_finish(lab->writer);
		lab->writer = NULL;
		struct hl_log *log = read_log(lab, 0);
		check_hole(log, first, first + 6);
		cut_trailers(lab, log);
		hl_log_free(log);
		log = read_log(lab, 0);
		assert_int_equal(log->missing_count, 7);
		check_hole(log, first, first + 6);
		check_points(lab, log);
		hl_log_free(log);
		lab_free(lab);
	}
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
		if (hl_log_open(lab->directory, PROCESS, NULL, &log, NULL) == 0) {
			if (check_fold(log, 21))
				whole++;
			else
				errors++;
			hl_log_free(log);
		}
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	}
	close(fd);
	assert_true(errors > whole && whole > 0); /* what lies behind, and the index */
	lab_free(lab);
}

static void other_processes_and_no_log_at_all_are_told_apart(void **state)
{
	struct lab *lab = lab_new(2000, 100);
	struct hl_error err = {0};
	struct hl_log *log;

	(void)state;
	write_intervals(lab, 0, 5);
	assert_int_equal(hl_log_open(lab->directory, PROCESS + 1, NULL, &log, &err), -ENOENT);
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
		cmocka_unit_test(only_the_newest_run_without_a_gap_is_used),
		cmocka_unit_test(a_damaged_segment_ends_the_run),
		cmocka_unit_test(a_segment_that_is_cut_anywhere_is_read_up_to_its_last_whole_piece),
		cmocka_unit_test(what_is_cut_off_before_another_segment_is_missing),
		cmocka_unit_test(a_first_segment_of_which_no_interval_is_left_is_ignored),
		cmocka_unit_test(a_segment_whose_end_is_zeroed_is_cut_off),
		cmocka_unit_test(
			newest_segments_without_anything_in_them_leave_the_log_without_an_end),
		cmocka_unit_test(a_segment_of_another_recording_ends_the_run),
		cmocka_unit_test(
			segments_of_another_recording_are_left_out_where_it_is_known_which_is_meant),
		cmocka_unit_test(a_segment_under_the_name_of_another_ends_the_run),
		cmocka_unit_test(flipped_bits_do_no_harm),
		cmocka_unit_test(a_full_disk_leaves_a_hole_and_right_figures_after_it),
		cmocka_unit_test(a_hole_between_segments_is_seen_without_indexes_too),
		cmocka_unit_test(marks_are_kept_with_their_ticks),
		cmocka_unit_test(marks_that_come_late_stand_where_they_belong),
		cmocka_unit_test(a_range_is_folded_part_by_part),
		cmocka_unit_test(intervals_that_the_index_promised_and_damage_took_are_an_error),
		cmocka_unit_test(other_processes_and_no_log_at_all_are_told_apart),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
