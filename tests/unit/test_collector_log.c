/* SPDX-License-Identifier: BSD-2-Clause */
/* The collector of processes that have a log. */
#include "../log_directory.h"
#include "collecting.h"
#include "recorder/region_map.h"

#include <glob.h>

/* Counts an allocation of ${bytes} and writes it into the ring of the one thread that there is. */
static void allocate_with_log(struct recorder *recorder, uint64_t bytes)
{
	static struct hl_region_map region;
	static struct hl_ring_writer writer;

	if (region.header != recorder->header) {
		memset(&writer, 0, sizeof(writer));
		hl_region_map_init(&region, recorder->header, recorder->header->region_bytes);
		hl_ring_writer_init(&writer, &region, 0);
		atomic_store(&recorder->header->thread_count, 1);
	}
	allocate(recorder, bytes);
	hl_ring_writer_put(&writer, &region, 1, bytes, 1, false);
}

static int log_and_exit(struct recorder *recorder)
{
	greet(recorder);
	for (int i = 0; i < 1000; i++)
		allocate_with_log(recorder, 100);
	return 3;
}

/* What the log of a process has in use in the end; -1 when there is none. */
static int64_t logged_bytes(const struct fixture *fixture, uint32_t sequence)
{
	struct hl_log *log;
	struct hl_error err = {0};

	if (open_log_in(fixture->path, sequence, &(struct hl_log_options){0}, &log, &err) < 0)
		return -1;
	assert_false(log->cut_off);
	int64_t bytes = log->points[log->point_count - 1].end_bytes;
	hl_log_free(log);
	return bytes;
}

static void a_process_has_a_log_in_modes_with_one(void **state)
{
	struct fixture *fixture = *state;

	begin_again(fixture, HL_MODE_LOG_FAST, true);
	start(fixture, log_and_exit);
	await_end(fixture);
	const struct hl_recording *recording = finish(fixture);
	assert_string_equal(recording->mode, "log-fast");
	assert_null(recording->warnings[0]);
	assert_int_equal(recording->processes[0].values[0].alloc_bytes, 100000);
	assert_int_equal(logged_bytes(fixture, 0), 100000);
}

static int log_twice(struct recorder *recorder)
{
	log_and_exit(recorder);
	greet(recorder);
	allocate_with_log(recorder, 7);
	return 0;
}

static void each_program_of_a_process_has_a_log_of_its_own(void **state)
{
	struct fixture *fixture = *state;

	begin_again(fixture, HL_MODE_LOG_RECORD, true);
	start(fixture, log_twice);
	await_end(fixture);
	assert_int_equal(finish(fixture)->process_count, 2);
	assert_int_equal(logged_bytes(fixture, 0), 100000);
	assert_int_equal(logged_bytes(fixture, 1), 7);
}

static int log_and_outlive(struct recorder *recorder)
{
	log_and_exit(recorder);
	pause_child(recorder);
	uint32_t flags = atomic_load(&recorder->header->flags);
	return flags & HL_REGION_LOSSY ? 6 : 7;
}

static void who_outlives_the_recording_is_told_not_to_wait(void **state)
{
	struct fixture *fixture = *state;

	begin_again(fixture, HL_MODE_LOG_FAST, true);
	start(fixture, log_and_outlive);
	await_pause(fixture);
	assert_int_equal(finish(fixture)->processes[0].end, HL_END_RUNNING);
	assert_int_equal(logged_bytes(fixture, 0), 100000);
	let_go(fixture);
	int status;
	assert_int_equal(waitpid(fixture->child, &status, 0), fixture->child);
	assert_int_equal(WEXITSTATUS(status), 6);
}

static void a_region_that_was_never_taken_has_no_log(void **state)
{
	struct fixture *fixture = *state;

	begin_again(fixture, HL_MODE_LOG_FAST, true);
	start(fixture, take_no_region);
	await_end(fixture);
	assert_int_equal(finish(fixture)->process_count, 0);
	assert_int_equal(logged_bytes(fixture, 0), -1);
}

static int damage_a_ring(struct recorder *recorder)
{
	log_and_exit(recorder);
	struct hl_region_header *header = recorder->header;
	struct hl_ring *ring = (void *)((char *)header + header->areas[HL_AREA_RINGS].offset);
	atomic_store(&ring->capacity, 12345);
	allocate_with_log(recorder, 100);
	return 0;
}

static void what_a_log_lacks_is_said(void **state)
{
	struct fixture *fixture = *state;

	begin_again(fixture, HL_MODE_LOG_FAST, true);
	start(fixture, damage_a_ring);
	await_end(fixture);
	const struct hl_recording *recording = finish(fixture);
	assert_true(warns(recording, "lacks the events of 1 thread: the process has damaged"));
	assert_int_equal(recording->processes[0].values[0].alloc_bytes, 100100);
}

static int log_before_and_after(struct recorder *recorder)
{
	log_and_exit(recorder);
	pause_child(recorder);
	allocate_with_log(recorder, 7);
	pause_child(recorder);
	return 0;
}

/* Serves until a file of that pattern is there. */
static void serve_until_there(struct fixture *fixture, const char *pattern)
{
	char path[160];
	glob_t found;

	snprintf(path, sizeof(path), "%s/%s", fixture->path, pattern);
	for (int i = 0; glob(path, 0, NULL, &found) != 0; i++) {
		struct pollfd poller = {hl_collector_fd(fixture->collector), POLLIN, 0};
		assert_true(poll(&poller, 1, 2000) >= 0 && i < 100);
		hl_collector_dispatch(fixture->collector);
	}
	globfree(&found);
}

static void a_log_goes_on_in_the_directory_that_is_made_again(void **state)
{
	struct fixture *fixture = *state;

	begin_again(fixture, HL_MODE_LOG_FAST, true);
	start(fixture, log_before_and_after);
	await_pause(fixture);
	serve_until_there(fixture, "memlog-0-*");
	remove_recording(fixture);
	let_go(fixture);
	await_pause(fixture);
	serve_until_there(fixture, "memlog-0-*");
	let_go(fixture);
	await_end(fixture);
	const struct hl_recording *recording = finish(fixture);
	assert_true(warns(recording, "vanished while recording"));
	assert_int_equal(logged_bytes(fixture, 0), 100007);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_process_has_a_log_in_modes_with_one),
		TEST(each_program_of_a_process_has_a_log_of_its_own),
		TEST(who_outlives_the_recording_is_told_not_to_wait),
		TEST(a_region_that_was_never_taken_has_no_log),
		TEST(what_a_log_lacks_is_said),
		TEST(a_log_goes_on_in_the_directory_that_is_made_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
