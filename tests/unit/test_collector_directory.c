/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the collector writes to: what it makes, replaces and leaves alone, and disks that fail. */
#include "collecting.h"

#include <errno.h>
#include <sys/stat.h>

/* ---- disks ---- */

static void a_vanished_directory_is_made_again(void **state)
{
	struct fixture *fixture = *state;

	start(fixture, allocate_and_exit);
	await_end(fixture);
	start(fixture, allocate_and_pause);
	await_pause(fixture);
	remove_recording(fixture);
	let_go(fixture);
	await_end(fixture);
	const struct hl_recording *recording = finish(fixture);
	assert_int_equal(recording->process_count, 1);
	assert_int_equal(recording->processes[0].sequence, 1);
	assert_true(warns(recording, "vanished while recording; 1 process"));
	assert_false(fixture->summary.incomplete);
}

static void another_directory_in_its_place_is_left_alone(void **state)
{
	struct fixture *fixture = *state;

	start(fixture, allocate_and_pause);
	await_pause(fixture);
	remove_recording(fixture);
	assert_int_equal(mkdir(fixture->path, 0700), 0);
	char file[128];
	snprintf(file, sizeof(file), "%s/letter", fixture->path);
	close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	let_go(fixture);
	await_end(fixture);
	hl_collector_finish(fixture->collector, &fixture->summary);
	assert_true(fixture->summary.incomplete);
	assert_non_null(strstr(fixture->summary.failure, "cannot write"));
	assert_int_equal(access(file, F_OK), 0);
}

/* A directory where the temporary file should be: root cannot write there either. */
static void block_writes(const struct fixture *fixture, char blocker[160])
{
	snprintf(blocker, 160, "%s/.process-0-%d.hlp.tmp", fixture->path, fixture->child);
	assert_int_equal(mkdir(blocker, 0700), 0);
}

static void an_ended_process_is_saved_as_soon_as_the_disk_takes_it(void **state)
{
	struct fixture *fixture = *state;
	char blocker[160];

	start(fixture, allocate_and_pause);
	await_pause(fixture);
	block_writes(fixture, blocker);
	kill(fixture->child, SIGKILL);
	await_end(fixture);
	assert_int_equal(rmdir(blocker), 0);
	const struct hl_recording *recording = finish(fixture);
	assert_false(fixture->summary.incomplete);
	assert_int_equal(recording->process_count, 1);
	assert_int_equal(recording->processes[0].end, HL_END_SIGNALED);
	assert_int_equal(recording->processes[0].values[0].alloc_bytes, 100);
	assert_true(warns(recording, "cannot write"));
}

static void a_disk_that_never_takes_it_is_told_in_the_end(void **state)
{
	struct fixture *fixture = *state;
	char blocker[160];

	start(fixture, allocate_and_pause);
	await_pause(fixture);
	block_writes(fixture, blocker);
	let_go(fixture);
	await_end(fixture);
	hl_collector_finish(fixture->collector, &fixture->summary);
	assert_true(fixture->summary.incomplete);
	assert_non_null(strstr(fixture->summary.failure, "cannot write 'process-0-"));
}

static int pause_long_enough_to_be_saved(struct recorder *recorder)
{
	allocate_and_exit(recorder);
	pause_child(recorder);
	return 0;
}

static void a_running_process_is_saved_every_second(void **state)
{
	struct fixture *fixture = *state;

	start(fixture, pause_long_enough_to_be_saved);
	await_pause(fixture);
	char file[128];
	snprintf(file, sizeof(file), "%s/process-0-%d.hlp", fixture->path, fixture->child);
	for (int i = 0; access(file, F_OK) < 0; i++) {
		struct pollfd poller = {hl_collector_fd(fixture->collector), POLLIN, 0};
		assert_true(poll(&poller, 1, 60000) == 1 && i < 100);
		hl_collector_dispatch(fixture->collector);
	}
	struct hl_error err = {0};
	assert_int_equal(hl_recording_open(fixture->path, &fixture->recording, &err), 0);
	const struct hl_recording *recording = fixture->recording;
	assert_false(recording->complete);
	assert_false(recording->processes[0].complete);
	assert_int_equal(recording->processes[0].end, HL_END_RUNNING);
	assert_int_equal(recording->processes[0].values[0].alloc_bytes, 100);
	let_go(fixture);
	await_end(fixture);
}

/* ---- the directory ---- */

static struct hl_collector *make_collector(void)
{
	static char *command[] = {"program", NULL};
	struct hl_collector_settings settings = {.region.mode = HL_MODE_MEM_FAST,
						 .command = command};
	struct hl_collector *collector;
	struct hl_error err = {0};

	assert_int_equal(hl_collector_new(&settings, &collector, &err), 0);
	return collector;
}

static int begin_at(const char *path, bool replace, struct hl_error *err)
{
	struct hl_collector *collector = make_collector();

	int r = hl_collector_begin(collector, path, replace, getpid(), err);
	hl_collector_free(collector);
	return r;
}

/* From here on the directory is nobody's. */
static void end(struct fixture *fixture)
{
	hl_collector_free(fixture->collector);
	fixture->collector = NULL;
}

static void an_existing_recording_is_replaced_only_when_asked_to(void **state)
{
	struct fixture *fixture = *state;
	struct hl_error err = {0};

	start(fixture, allocate_and_exit);
	await_end(fixture);
	finish(fixture);
	end(fixture);
	assert_int_equal(begin_at(fixture->path, false, &err), -EEXIST);
	assert_non_null(strstr(err.text, "use --force"));
	err.text[0] = '\0';
	assert_int_equal(begin_at(fixture->path, true, &err), 0);
	hl_recording_free(fixture->recording);
	assert_int_equal(hl_recording_open(fixture->path, &fixture->recording, &err), 0);
	assert_int_equal(fixture->recording->process_count, 0);
}

/* A recording of one process, at ${fixture->path}. */
static void make_older(struct fixture *fixture)
{
	start(fixture, allocate_and_exit);
	await_end(fixture);
	finish(fixture);
	end(fixture);
}

static void assert_older_is_back(struct fixture *fixture)
{
	struct hl_error err = {0};
	char older[128];

	snprintf(older, sizeof(older), "%s/.older", fixture->path);
	assert_int_equal(access(older, F_OK), -1);
	hl_recording_free(fixture->recording);
	fixture->recording = NULL;
	assert_int_equal(hl_recording_open(fixture->path, &fixture->recording, &err), 0);
	assert_int_equal(fixture->recording->process_count, 1);
	assert_true(fixture->recording->complete);
}

/* Replaces the recording in vain. */
static void abandon_at(const char *path)
{
	struct hl_collector *collector = make_collector();
	struct hl_error err = {0};

	assert_int_equal(hl_collector_begin(collector, path, true, getpid(), &err), 0);
	hl_collector_abandon(collector);
	hl_collector_free(collector);
}

static void an_abandoned_recording_brings_back_the_one_that_it_replaced(void **state)
{
	struct fixture *fixture = *state;

	make_older(fixture);
	abandon_at(fixture->path);
	assert_older_is_back(fixture);
}

static void a_recording_that_has_begun_keeps_nothing_of_the_one_that_it_replaced(void **state)
{
	struct fixture *fixture = *state;
	struct hl_collector *collector = make_collector();
	struct hl_error err = {0};
	char older[128];

	make_older(fixture);
	snprintf(older, sizeof(older), "%s/.older", fixture->path);
	assert_int_equal(hl_collector_begin(collector, fixture->path, true, getpid(), &err), 0);
	assert_int_equal(access(older, F_OK), 0);
	hl_collector_keep(collector);
	assert_int_equal(access(older, F_OK), -1);
	hl_collector_free(collector);
	hl_recording_free(fixture->recording);
	assert_int_equal(hl_recording_open(fixture->path, &fixture->recording, &err), 0);
	assert_int_equal(fixture->recording->process_count, 0);
}

static void what_a_killed_collector_set_aside_is_brought_back_by_the_next(void **state)
{
	struct fixture *fixture = *state;
	int status;

	make_older(fixture);
	pid_t child = fork();
	if (child == 0) {
		struct hl_error err = {0};
		hl_collector_begin(make_collector(), fixture->path, true, getpid(), &err);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	char file[160];
	snprintf(file, sizeof(file), "%s/.older/recording.hlm", fixture->path);
	assert_int_equal(access(file, F_OK), 0);
	abandon_at(fixture->path);
	assert_older_is_back(fixture);
}

static void a_recording_that_was_half_set_aside_is_whole_again(void **state)
{
	struct fixture *fixture = *state;
	char file[128], aside[160];

	make_older(fixture);
	snprintf(aside, sizeof(aside), "%s/.older", fixture->path);
	assert_int_equal(mkdir(aside, 0700), 0);
	abandon_at(fixture->path); /* before its first file */
	assert_older_is_back(fixture);
	assert_int_equal(mkdir(aside, 0700), 0);
	snprintf(file, sizeof(file), "%s/recording.hlm", fixture->path);
	snprintf(aside, sizeof(aside), "%s/.older/recording.hlm", fixture->path);
	assert_int_equal(rename(file, aside), 0);
	abandon_at(fixture->path);
	assert_older_is_back(fixture);
}

/* Its files as they were before. */
static void assert_untouched(struct fixture *fixture)
{
	const struct hl_recording *recording = finish(fixture);

	assert_int_equal(recording->process_count, 1);
	assert_false(fixture->summary.incomplete);
}

static void a_recording_that_goes_on_is_not_replaced(void **state)
{
	struct fixture *fixture = *state;

	start(fixture, allocate_and_exit);
	await_end(fixture);
	for (int replace = 0; replace < 2; replace++) {
		struct hl_error err = {0};
		assert_int_equal(begin_at(fixture->path, replace, &err), -EBUSY);
		assert_non_null(strstr(err.text, "is still being recorded"));
	}
	assert_untouched(fixture);
}

static void nothing_that_is_no_recording_is_ever_replaced(void **state)
{
	struct fixture *fixture = *state;

	end(fixture);
	struct hl_error err = {0};
	char file[160];
	snprintf(file, sizeof(file), "%s/letter", fixture->path);
	close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	assert_int_equal(begin_at(fixture->path, true, &err), -EEXIST);
	assert_non_null(strstr(err.text, "not a recording"));
	err.text[0] = '\0';
	assert_int_equal(begin_at(file, true, &err), -EEXIST);
	assert_non_null(strstr(err.text, "not a recording"));
	assert_int_equal(access(file, F_OK), 0);
}

static void nothing_that_is_no_recording_is_removed_from_what_was_set_aside(void **state)
{
	struct fixture *fixture = *state;
	struct hl_error err = {0};
	char file[160];

	make_older(fixture);
	snprintf(file, sizeof(file), "%s/.older", fixture->path);
	assert_int_equal(mkdir(file, 0700), 0);
	snprintf(file, sizeof(file), "%s/.older/letter", fixture->path);
	close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	assert_int_equal(begin_at(fixture->path, true, &err), -EEXIST);
	assert_int_equal(access(file, F_OK), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_vanished_directory_is_made_again),
		TEST(another_directory_in_its_place_is_left_alone),
		TEST(an_ended_process_is_saved_as_soon_as_the_disk_takes_it),
		TEST(a_disk_that_never_takes_it_is_told_in_the_end),
		TEST(a_running_process_is_saved_every_second),
		TEST(an_existing_recording_is_replaced_only_when_asked_to),
		TEST(an_abandoned_recording_brings_back_the_one_that_it_replaced),
		TEST(a_recording_that_has_begun_keeps_nothing_of_the_one_that_it_replaced),
		TEST(what_a_killed_collector_set_aside_is_brought_back_by_the_next),
		TEST(a_recording_that_was_half_set_aside_is_whole_again),
		TEST(a_recording_that_goes_on_is_not_replaced),
		TEST(nothing_that_is_no_recording_is_ever_replaced),
		TEST(nothing_that_is_no_recording_is_removed_from_what_was_set_aside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
