/* SPDX-License-Identifier: BSD-2-Clause */
/* Kept events read back are those that happened, however the files were cut, and whatever is gone.
 */
#include "event_lab.h"
#include "sanitized.h"

#include <glob.h>
#include <sys/stat.h>

static void events_read_back_are_those_written_in_their_order(void **test)
{
	struct lab *lab = filled_lab(4096, 1000);
	struct hl_event_log *log = open_log(lab);

	(void)test;
	assert_true(log->file_count > 10);
	assert_true(log->part_count >= log->file_count);
	assert_false(log->cut_off);
	assert_int_equal(log->missing_events, 0);
	assert_true(lab->entry_count > INTERVALS * EVENTS / 2);
	assert_int_equal(compare(lab, log, 1), lab->entry_count);
	assert_int_equal(compare(lab, log, 4), lab->entry_count);
	hl_event_log_free(log);
	lab_free(lab);
}

static off_t size_of_file(const char *path)
{
	struct stat status;

	assert_int_equal(stat(path, &status), 0);
	return status.st_size;
}

/* Intervals alike, so that what comes next is known. */
static void files_end_before_they_are_too_large(void **test)
{
	const off_t limit = 8192;
	struct lab *lab = lab_new((uint64_t)limit, 1000);
	char pattern[96];
	glob_t found;

	(void)test;
	for (uint64_t i = 0; i < INTERVALS; i++) {
		for (uint64_t event = 0; i % 5 && event < 2 * EVENTS; event++)
			allocate(lab, i * HL_INTERVAL_TICKS, 0);
		end_interval(lab, i);
	}
	finish(lab);
	snprintf(pattern, sizeof(pattern), "%s/events-*", lab->directory);
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	assert_true(found.gl_pathc > 5);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		assert_true(size_of_file(found.gl_pathv[i]) <= limit);
		assert_true(i + 1 == found.gl_pathc || size_of_file(found.gl_pathv[i]) > limit / 2);
	}
	globfree(&found);
	lab_free(lab);
}

static void large_files_have_parts_that_are_read_alone(void **test)
{
	struct lab *lab = lab_new(UINT64_C(1) << 30, 10);

	(void)test;
	lab->entries = realloc(lab->entries, 4000000 * sizeof(*lab->entries));
	for (uint64_t number = 0; number < 40; number++) {
		for (uint32_t i = 0; i < 100000; i++)
			give(lab, number * HL_INTERVAL_TICKS, i / 5000 % 2,
			     &(struct hl_event){i, 1, 1 + i % 7, false});
		end_interval(lab, number);
	}
	finish(lab);
	struct hl_event_log *log = open_log(lab);
	assert_int_equal(log->file_count, 1);
	assert_in_range(log->part_count, 2, PARTS_MAX);
	assert_int_equal(compare(lab, log, 2), lab->entry_count);
	hl_event_log_free(log);
	lab_free(lab);
}

static void events_of_any_size_and_weight_come_back(void **test)
{
	static const struct hl_event events[] = {
		{0, 1, 1, false},
		{0, -1, 1, true},
		{(INT64_C(1) << 37) - 1, 1, 2, false},
		{INT64_C(1) << 37, 1, 2, false},
		{INT64_MAX, 1, 3, false},
		{-INT64_MAX, -1, 3, true},
		{524288, 17, 4, false},
		{-524288, -17, 4, true},
		{-4096, 0, 5, true},
		{4096, 0, 5, false},
		{4096, UINT32_MAX, NODES - 1, false},
	};
	struct lab *lab = lab_new(UINT64_C(1) << 20, 10);

	(void)test;
	for (uint32_t i = 0; i < 2000; i++)
		give(lab, i / 11, i % 11, &events[i % HL_COUNT_OF(events)]);
	finish(lab);
	struct hl_event_log *log = open_log(lab);
	assert_int_equal(compare(lab, log, 1), lab->entry_count);
	hl_event_log_free(log);
	lab_free(lab);
}

/* Each thread and tick a run of its own: pieces end when these are too many. */
static void many_short_runs_come_back(void **test)
{
	struct lab *lab = lab_new(UINT64_C(1) << 20, 10);

	(void)test;
	for (uint32_t i = 0; i < HL_EVENT_RUNS_MAX * 5 / 4; i++)
		give(lab, i / 1000, i % 1000, &(struct hl_event){24, 1, 1 + i % 50, false});
	finish(lab);
	struct hl_event_log *log = open_log(lab);
	assert_int_equal(compare(lab, log, 1), lab->entry_count);
	hl_event_log_free(log);
	lab_free(lab);
}

/* ---- files that are gone, cut off, or damaged ---- */

static void old_files_are_deleted_and_the_rest_is_read(void **test)
{
	struct lab *lab = filled_lab(4096, 3);
	struct hl_event_log *log = open_log(lab);

	(void)test;
	assert_int_equal(log->file_count, 3);
	assert_true(log->parts[0].first_interval > 0);
	assert_int_equal(compare(lab, log, 2),
			 lab->entry_count - first_entry(lab, log->parts[0].first_interval));
	hl_event_log_free(log);
	lab_free(lab);
}

static void files_that_came_after_a_place_was_opened_are_read(void **test)
{
	HL_CLEANUP(hl_log_place_release) struct hl_log_place place = HL_LOG_PLACE_NONE;
	struct lab *lab = lab_new(4096, 10);
	struct hl_event_log *log;
	struct hl_error err;

	(void)test;
	assert_int_equal(hl_log_place_open_directory(&place, lab->directory, &err), 0);
	assert_int_equal(place.file_count, 0);
	for (uint64_t i = 0; i < INTERVALS; i++)
		fill_interval(lab, i);
	finish(lab);
	assert_int_equal(hl_event_log_open(&place, PROCESS, NULL, &log, &err), 0);
	assert_int_equal(log->file_count, 10);
	hl_event_log_free(log);
	lab_free(lab);
}

static void what_is_before_a_gap_is_left_out(void **test)
{
	struct lab *lab = filled_lab(4096, 1000);
	size_t file_count;
	struct hl_log_file *files = list_files(lab, &file_count);

	(void)test;
	unlinkat(lab->fd, files[4].name, 0);
	struct hl_event_log *log = open_log(lab);
	assert_int_equal(log->file_count, file_count - 5);
	assert_int_equal(log->ignored_count, 4);
	compare(lab, log, 2);
	hl_event_log_free(log);
	free(files);
	lab_free(lab);
}

static void a_file_cut_off_anywhere_is_read_up_to_its_last_whole_piece(void **test)
{
	struct lab *lab = filled_lab(UINT64_C(1) << 30, 10);
	size_t file_count;
	struct hl_log_file *files = list_files(lab, &file_count);
	int fd = openat(lab->fd, files[0].name, O_RDWR);
	off_t size = lseek(fd, 0, SEEK_END);
	size_t before = lab->entry_count;
	struct hl_event_log *log;

	(void)test;
	assert_int_equal(file_count, 1);
	for (off_t length = size - 1; length >= 0; length -= 1 + length * STRIDE(1) / 300) {
		assert_int_equal(ftruncate(fd, length), 0);
		if (open_events_in(lab->directory, PROCESS, NULL, &log, NULL) < 0)
			continue;
		assert_true(log->cut_off);
		assert_null(log->damaged);
		size_t count = compare(lab, log, 1);
		assert_true(count <= before);
		before = count;
		hl_event_log_free(log);
	}
	assert_true(before < lab->entry_count / 10);
	close(fd);
	free(files);
	lab_free(lab);
}

static void flip_byte(int fd, off_t at)
{
	uint8_t byte;

	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

static int count_run(void *context, size_t part, const struct hl_event_run *run)
{
	(void)part;
	*(uint64_t *)context += run->count;
	return 0;
}

/* Whatever is damaged, it is never read as something else. */
static void damage_is_found_out(void **test)
{
	struct lab *lab = filled_lab(16384, 1000);
	size_t file_count;
	struct hl_log_file *files = list_files(lab, &file_count);
	int fd = openat(lab->fd, files[1].name, O_RDWR);
	off_t size = lseek(fd, 0, SEEK_END);
	unsigned errors = 0;

	(void)test;
	for (off_t at = 0; at < size; at += STRIDE(97)) {
		struct hl_event_log *log;
		struct hl_error err = {0};
		uint64_t count = 0;
		const struct hl_event_fold fold = {.context = &count, .visit = count_run};
		flip_byte(fd, at);
		log = open_log(lab); /* the files after it are whole */
		int r = hl_event_log_read(log, 0, log->part_count - 1,
					  &(struct hl_log_options){.jobs = 1}, &fold, &err);
		assert_true(r == 0 || (r == -EBADMSG && err.text[0]));
		if (r == 0 && !log->ignored_count)
			assert_int_equal(count, lab->entry_count);
		errors += r < 0 || log->ignored_count;
		hl_event_log_free(log);
		flip_byte(fd, at);
	}
	assert_true(errors > size / STRIDE(97) / 2);
	close(fd);
	free(files);
	lab_free(lab);
}

/* Opens and reads all events. Whether that says that the file is damaged. */
static bool says_damage(const struct lab *lab)
{
	struct hl_event_log *log;
	struct hl_error err = {0};
	uint64_t count = 0;
	const struct hl_event_fold fold = {.context = &count, .visit = count_run};

	if (open_events_in(lab->directory, PROCESS, NULL, &log, &err) < 0)
		return strstr(err.text, "damaged") || strstr(err.text, "not a file of events") ||
		       strstr(err.text, "another version");
	int r = hl_event_log_read(log, 0, log->part_count - 1, &(struct hl_log_options){.jobs = 1},
				  &fold, &err);
	bool says = log->damaged || r == -EBADMSG;
	hl_event_log_free(log);
	return says;
}

static void no_flipped_bit_reads_as_an_interrupted_writer(void **test)
{
	struct lab *lab = filled_lab(UINT64_C(1) << 30, 10);
	size_t file_count;
	struct hl_log_file *files = list_files(lab, &file_count);
	int fd = openat(lab->fd, files[0].name, O_RDWR);
	off_t size = lseek(fd, 0, SEEK_END), end = size - 40;
	uint8_t byte, flipped;

	(void)test;
	assert_false(says_damage(lab));
	for (off_t at = 0; at < size; at += at < 100 || at >= end ? 1 : STRIDE(499)) {
		for (unsigned bit = 0; bit < 8; bit++) {
			assert_int_equal(pread(fd, &byte, 1, at), 1);
			flipped = byte ^ (uint8_t)(1 << bit);
			assert_int_equal(pwrite(fd, &flipped, 1, at), 1);
			if (!says_damage(lab))
				fail_msg("bit %u of byte %ld of %ld", bit, (long)at, (long)size);
			assert_int_equal(pwrite(fd, &byte, 1, at), 1);
		}
		if (at < end && at + STRIDE(499) > end)
			at = end - 1;
	}
	close(fd);
	free(files);
	lab_free(lab);
}

/* As some file systems leave it when the power fails. */
static void events_whose_end_is_zeroed_are_cut_off(void **test)
{
	struct lab *lab = filled_lab(UINT64_C(1) << 30, 10);
	size_t file_count;
	struct hl_log_file *files = list_files(lab, &file_count);
	int fd = openat(lab->fd, files[0].name, O_RDWR);
	off_t size = lseek(fd, 0, SEEK_END);

	(void)test;
	for (off_t length = size - 8; length > size / 2; length -= 1 + (size - length) / 10) {
		assert_int_equal(ftruncate(fd, length), 0);
		assert_int_equal(ftruncate(fd, size), 0);
		struct hl_event_log *log = open_log(lab);
		assert_true(log->cut_off);
		assert_null(log->damaged);
		assert_true(compare(lab, log, 1) <= lab->entry_count);
		hl_event_log_free(log);
	}
	close(fd);
	free(files);
	lab_free(lab);
}

static void no_events_and_other_files_are_told_apart(void **test)
{
	struct lab *lab = lab_new(4096, 10);
	struct hl_event_log *log;
	struct hl_error err = {0};

	(void)test;
	finish(lab);
	assert_int_equal(open_events_in(lab->directory, PROCESS, NULL, &log, &err), 0);
	assert_int_equal(log->part_count, 1);
	hl_event_log_free(log);
	assert_int_equal(open_events_in(lab->directory, PROCESS + 1, NULL, &log, &err), -ENOENT);
	assert_non_null(strstr(err.text, "--events"));
	err.text[0] = '\0';
	int fd = openat(lab->fd, "events-4-20260101T000000-000001.hle", O_WRONLY | O_CREAT, 0600);
	for (int i = 0; i < 100; i++)
		assert_int_equal(write(fd, "#!/bin/sh\n", 10), 10);
	close(fd);
	assert_int_equal(open_events_in(lab->directory, PROCESS + 1, NULL, &log, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "not a file of events"));
	lab_free(lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_read_back_are_those_written_in_their_order),
		cmocka_unit_test(files_end_before_they_are_too_large),
		cmocka_unit_test(large_files_have_parts_that_are_read_alone),
		cmocka_unit_test(events_of_any_size_and_weight_come_back),
		cmocka_unit_test(many_short_runs_come_back),
		cmocka_unit_test(old_files_are_deleted_and_the_rest_is_read),
		cmocka_unit_test(files_that_came_after_a_place_was_opened_are_read),
		cmocka_unit_test(what_is_before_a_gap_is_left_out),
		cmocka_unit_test(a_file_cut_off_anywhere_is_read_up_to_its_last_whole_piece),
		cmocka_unit_test(damage_is_found_out),
		cmocka_unit_test(no_flipped_bit_reads_as_an_interrupted_writer),
		cmocka_unit_test(events_whose_end_is_zeroed_are_cut_off),
		cmocka_unit_test(no_events_and_other_files_are_told_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
