/* SPDX-License-Identifier: BSD-2-Clause */
/* Logs of which something is missing, cut off, damaged or another log's: what is left is right. */
#include "log_lab.h"
#include "sanitized.h"

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
	for (off_t size = status.st_size - 1; size >= 0; size -= STRIDE(1)) {
		struct hl_error err = {0};
		struct hl_log *log;
		assert_int_equal(truncate(path, size), 0);
		int r = open_log_in(lab->directory, PROCESS, NULL, &log, &err);
		if (r < 0) {
			assert_int_equal(r, -ENODATA);
			assert_non_null(strstr(err.text, "cut off"));
			continue;
		}
		assert_true(log->cut_off);
		assert_null(log->damaged);
		if (log->point_count && log->points[log->point_count - 1].number != last) {
			check_points(lab, log);
			last = log->points[log->point_count - 1].number;
		}
		hl_log_free(log);
	}
	lab_free(lab);
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
	for (off_t size = status.st_size - 1; size > 0; size -= STRIDE(11)) {
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
	for (off_t size = status.st_size - 1; size > 0; size -= STRIDE(11)) {
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

static _Atomic size_t most_bytes; /* of any allocation */

void *__real_malloc(size_t size);
void *__real_realloc(void *block, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_realloc(void *block, size_t size);

void *__wrap_malloc(size_t size)
{
	most_bytes = size > most_bytes ? size : most_bytes;
	return __real_malloc(size);
}

void *__wrap_realloc(void *block, size_t size)
{
	most_bytes = size > most_bytes ? size : most_bytes;
	return __real_realloc(block, size);
}

static void damage_before_a_large_rest_is_found_in_little_memory(void **state)
{
	struct lab *lab = lab_with_segments(21);
	enum { REST_BYTES = 64 << 20, TRAILER_BYTES = sizeof(struct hl_segment_trailer) };
	char path[400], bytes[1 << 16], no_piece[TRAILER_BYTES];

	(void)state;
	segment_path(lab, 0, path, sizeof(path));
	int fd = open(path, O_RDWR);
	ssize_t size = pread(fd, bytes, sizeof(bytes), 0) - TRAILER_BYTES;
	assert_in_range(size, 1, (ssize_t)sizeof(bytes) - TRAILER_BYTES - 1);
	memset(no_piece, 0xff, sizeof(no_piece));
	assert_int_equal(pwrite(fd, no_piece, sizeof(no_piece), size), sizeof(no_piece));
	assert_int_equal(pwrite(fd, bytes, (size_t)size, REST_BYTES), size);
	assert_int_equal(pwrite(fd, no_piece, sizeof(no_piece), REST_BYTES + size), TRAILER_BYTES);
	close(fd);
	most_bytes = 0;
	struct hl_log *log = read_log(lab, 0);
	assert_true(log->segments[0].damaged);
	assert_true(most_bytes < REST_BYTES / 4);
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
	assert_int_equal(open_log_in(lab->directory, PROCESS, &options, &log, &err), 0);
	assert_int_equal(log->foreign_count, 1);
	assert_int_equal(log->ignored_count, 0);
	assert_int_equal(log->segment_count, newest);
	assert_int_equal(log->start_realtime_ns, START_NS);
	check_points(lab, log);
	hl_log_free(log);
	assert_int_equal(open_log_in(other->directory, PROCESS, &options, &log, &err), -EBADMSG);
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
	assert_int_equal(open_log_in(lab->directory, PROCESS, NULL, &log, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "another number than its name says"));
	lab_free(lab);
}

/* Where the index is whole and a piece is not, moments after it cannot be read; no other is wrong.
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

static void flipped_bits_do_no_harm_and_read_as_damage(void **state)
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
	for (off_t at = 0; at < status.st_size; at += STRIDE(1)) {
		struct hl_log *log;
		uint8_t byte, flipped;
		assert_int_equal(pread(fd, &byte, 1, at), 1);
		flipped = (uint8_t)(byte ^ 1u << rand() % 8);
		assert_int_equal(pwrite(fd, &flipped, 1, at), 1);
		if (open_log_in(lab->directory, PROCESS, NULL, &log, NULL) == 0) {
			check_readable_points(lab, log);
			assert_true(!log->cut_off || log->damaged);
			hl_log_free(log);
		}
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	}
	close(fd);
	lab_free(lab);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_newest_run_without_a_gap_is_used),
		cmocka_unit_test(a_damaged_segment_ends_the_run),
		cmocka_unit_test(a_segment_that_is_cut_anywhere_is_read_up_to_its_last_whole_piece),
		cmocka_unit_test(what_is_cut_off_before_another_segment_is_missing),
		cmocka_unit_test(a_first_segment_of_which_no_interval_is_left_is_ignored),
		cmocka_unit_test(a_segment_whose_end_is_zeroed_is_cut_off),
		cmocka_unit_test(damage_before_a_large_rest_is_found_in_little_memory),
		cmocka_unit_test(
			newest_segments_without_anything_in_them_leave_the_log_without_an_end),
		cmocka_unit_test(a_segment_of_another_recording_ends_the_run),
		cmocka_unit_test(
			segments_of_another_recording_are_left_out_where_it_is_known_which_is_meant),
		cmocka_unit_test(a_segment_under_the_name_of_another_ends_the_run),
		cmocka_unit_test(flipped_bits_do_no_harm_and_read_as_damage),
		cmocka_unit_test(a_full_disk_leaves_a_hole_and_right_figures_after_it),
		cmocka_unit_test(a_hole_between_segments_is_seen_without_indexes_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
