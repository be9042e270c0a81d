/* SPDX-License-Identifier: BSD-2-Clause */
/* What is done to a recording that goes on: answers, marks, snapshots, orders to its log. */
#include "collector/collector.h"
#include "collector/control.h"
#include "collector/drain.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "fail_allocations.h"
#include "temporary.h"

/* ---- a recording ---- */

struct fixture {
	char directory[64];
	struct hl_archive archive;
	struct hl_tracked *tracked;
	struct hl_log_limits limits;
	enum hl_mode mode;
	struct hl_control_subject subject;
};

static void path_in(const struct fixture *fixture, const char *name, char path[256])
{
	snprintf(path, 256, "%s/%s", fixture->directory, name);
}

static int setup(void **state)
{
	static char *command[] = {"program", "two \xff words", NULL};
	static const struct hl_collector_settings settings = {.region = {.mode = HL_MODE_MEM_FAST},
							      .command = command};
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	char path[256];

	if (make_temporary(fixture->directory) < 0)
		return -1;
	setenv("XDG_RUNTIME_DIR", fixture->directory, 1);
	path_in(fixture, "test.hl", path);
	if (hl_archive_init(&fixture->archive, path, false, &settings, NULL) < 0)
		return -1;
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (hl_tracked_new(getpid(), pidfd, &settings.region, NULL, UINT64_MAX, -1,
			   &fixture->tracked) < 0)
		return -1;
	atomic_store(&fixture->tracked->region.header->state, HL_REGION_RUNNING);
	fixture->mode = HL_MODE_MEM_FAST;
	fixture->limits = (struct hl_log_limits){.segment_bytes = 1 << 20, .segments_kept = 2};
	fixture->subject = (struct hl_control_subject){
		.archive = &fixture->archive,
		.tracked = &fixture->tracked,
		.limits = &fixture->limits,
		.mode = &fixture->mode,
	};
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;

	hl_tracked_free(fixture->tracked);
	hl_archive_release(&fixture->archive);
	int r = remove_temporary(fixture->directory);
	free(fixture);
	return r;
}

/* The answer to a request, which the caller decrefs. */
static json_t *act(struct fixture *fixture, const char *line)
{
	struct hl_control_request request;

	assert_int_equal(hl_control_protocol_parse(line, strlen(line), &request, NULL), 0);
	char *text = hl_control_actions_act(&fixture->subject, &request);
	assert_non_null(text);
	assert_int_equal(text[strlen(text) - 1], '\n');
	json_t *answer = json_loads(text, 0, NULL);
	assert_true(json_is_object(answer));
	free(text);
	return answer;
}

static void assert_done(struct fixture *fixture, const char *line)
{
	json_t *answer = act(fixture, line);

	assert_true(json_is_true(json_object_get(answer, "done")));
	json_decref(answer);
}

static void assert_error(struct fixture *fixture, const char *line, const char *part)
{
	json_t *answer = act(fixture, line);
	const char *sentence = json_string_value(json_object_get(answer, "error"));

	assert_non_null(sentence);
	assert_non_null(strstr(sentence, part));
	json_decref(answer);
}

static void status_escapes_what_is_no_text(void **state)
{
	struct fixture *fixture = *state;
	json_t *answer = act(fixture, "heapline/1 status 0");
	json_t *command = json_object_get(answer, "command");

	assert_string_equal(json_string_value(json_array_get(command, 1)), "two %FF words");
	json_t *process = json_array_get(json_object_get(answer, "processes"), 0);
	assert_int_equal(json_integer_value(json_object_get(process, "pid")), getpid());
	assert_null(json_object_get(process, "log_segments"));
	json_decref(answer);
}

/* The status without the time, which passes; NULL for want of memory. */
static char *make_status(struct fixture *fixture)
{
	char *text = hl_control_answer_status(&fixture->subject);
	char *time = text ? strstr(text, "\"ms\"") : NULL, *rest = time ? strchr(time, ',') : NULL;

	if (rest)
		memmove(time, rest, strlen(rest) + 1);
	return text;
}

static int compare_status(struct fixture *fixture, const char *whole)
{
	char *text = make_status(fixture);
	int r = !text ? -ENOMEM : strcmp(text, whole) ? -EINVAL : 0;

	free(text);
	return r;
}

static void status_is_whole_or_fails_for_want_of_memory(void **state)
{
	struct fixture *fixture = *state;
	char *whole = make_status(fixture);

	assert_non_null(whole);
	json_set_alloc_funcs(__wrap_malloc, free);
	/* Jansson 2.15 keeps a longer buffer where it cannot have a shorter one. */
	FOR_EACH_FAILING_ALLOCATION(r, compare_status(fixture, whole))
	assert_true(r == -ENOMEM || r == 0);
	json_set_alloc_funcs(__real_malloc, free);
	free(whole);
}

static void switch_to(struct fixture *fixture, enum hl_mode mode)
{
	char line[64];

	snprintf(line, sizeof(line), "heapline/1 mode %d %s", getpid(), hl_mode_names[mode]);
	assert_done(fixture, line);
	uint32_t now = atomic_load(&fixture->tracked->region.header->mode);
	assert_int_equal(hl_mode_of(now), mode);
	if (mode != HL_MODE_CLOSED)
		assert_int_equal(!!(now & HL_MODE_LOGGING), hl_mode_logs(mode));
	assert_true(fixture->tracked->log || !hl_mode_logs(mode));
}

static void any_mode_follows_any_other(void **state)
{
	struct fixture *fixture = *state;

	for (enum hl_mode from = 0; from < HL_MODE_COUNT; from++)
		for (enum hl_mode to = 0; to < HL_MODE_COUNT; to++) {
			switch_to(fixture, from);
			switch_to(fixture, to);
		}
	assert_error(fixture, "heapline/1 mode 1 mem-fast", "not recorded here");
	assert_int_equal(fixture->mode, HL_MODE_MEM_FAST);
	assert_done(fixture, "heapline/1 mode 0 off");
	assert_int_equal(hl_mode_of(atomic_load(&fixture->tracked->region.header->mode)),
			 HL_MODE_CLOSED);
	assert_int_equal(fixture->mode, HL_MODE_CLOSED);
}

static void nothing_is_done_to_processes_that_have_ended(void **state)
{
	struct fixture *fixture = *state;
	char line[64];

	snprintf(line, sizeof(line), "heapline/1 mark %d x", getpid());
	assert_done(fixture, line);
	hl_tracked_set_end(fixture->tracked, HL_END_EXITED);
	assert_error(fixture, line, "ended");
	assert_error(fixture, "heapline/1 mark 0 x", "no process");
	json_t *answer = act(fixture, "heapline/1 status 0");
	assert_int_equal(json_array_size(json_object_get(answer, "processes")), 0);
	json_decref(answer);
	assert_int_equal(fixture->archive.meta.mark_count, 1);
}

static void logs_are_kept_only_where_there_are_any(void **state)
{
	struct fixture *fixture = *state;

	assert_error(fixture, "heapline/1 log-segments 0 3", "no log");
	assert_int_equal(fixture->limits.segments_kept, 3);
}

static void a_reset_is_marked_and_saved(void **state)
{
	struct fixture *fixture = *state;
	struct hl_tracked *tracked = fixture->tracked;

	hl_tracked_has_changed(tracked);
	tracked->saved = true;
	tracked->saved_activity = tracked->activity;
	assert_false(hl_tracked_has_changed(tracked));
	assert_error(fixture, "heapline/1 reset 1", "not recorded here");
	assert_int_equal(tracked->reset_ns, 0);
	assert_done(fixture, "heapline/1 reset 0");
	assert_true(tracked->reset_ns > 0);
	assert_true(fixture->archive.meta_is_stale);
	assert_int_equal(fixture->archive.meta.mark_count, 1);
	assert_string_equal(fixture->archive.meta.marks[0].name, "reset");
	assert_true(hl_tracked_has_changed(tracked));
}

static void a_recorder_is_taken_out_only_where_it_was_brought_in(void **state)
{
	struct fixture *fixture = *state;
	struct hl_error err = {0};

	assert_int_equal(hl_control_actions_check_detach(&fixture->subject, getpid(), &err),
			 -EOPNOTSUPP);
	assert_non_null(strstr(err.text, "mode closed"));
	assert_done(fixture, "heapline/1 ask-allocator 0");
	fixture->tracked->attached = true;
	fixture->tracked->ran_before = true;
	assert_done(fixture, "heapline/1 ask-allocator 0");
	assert_int_equal(hl_control_actions_check_detach(&fixture->subject, 0, &err), 0);
	assert_int_equal(hl_control_actions_check_detach(&fixture->subject, 1, &err), -ESRCH);
	hl_tracked_set_end(fixture->tracked, HL_END_EXITED);
	assert_int_equal(hl_control_actions_check_detach(&fixture->subject, 0, &err), -ESRCH);
}

static void a_recording_takes_so_many_marks_and_no_more(void **state)
{
	struct fixture *fixture = *state;
	int r = 0;

	while (r == 0)
		r = hl_archive_mark(&fixture->archive, 1, 2, "mark");
	assert_int_equal(r, -EAGAIN);
	assert_error(fixture, "heapline/1 mark 0 x", "too many");
}

static int mark_twenty_times(struct fixture *fixture)
{
	int r = 0;

	for (int i = 0; r == 0 && i < 20; i++)
		r = hl_archive_mark(&fixture->archive, 1, 2, "mark");
	return r;
}

static void marks_fail_cleanly_for_want_of_memory(void **state)
{
	struct fixture *fixture = *state;

	FOR_EACH_FAILING_ALLOCATION(r, mark_twenty_times(fixture))
	assert_int_equal(r, -ENOMEM);
}

/* ---- snapshots ---- */

static int make_snapshot(struct fixture *fixture, const char *name, bool replace,
			 struct hl_error *err)
{
	struct hl_snapshot *snapshot;
	char path[256];

	path_in(fixture, name, path);
	int r = hl_snapshot_begin(&fixture->archive, fixture->tracked, path, replace, &snapshot,
				  err);
	return r < 0 ? r : hl_snapshot_end(snapshot, err);
}

static void a_snapshot_opens_as_a_recording(void **state)
{
	struct fixture *fixture = *state;
	struct hl_recording *recording;
	char path[256];

	assert_int_equal(hl_archive_mark(&fixture->archive, 1, 2, "mark"), 0);
	assert_int_equal(make_snapshot(fixture, "snapshot.hl", false, NULL), 0);
	path_in(fixture, "snapshot.hl", path);
	assert_int_equal(hl_recording_open(path, &recording, NULL), 0);
	assert_false(recording->complete);
	assert_int_equal(recording->process_count, 1);
	assert_false(recording->processes[0].complete);
	assert_int_equal(recording->mark_count, 1);
	assert_string_equal(recording->marks[0].name, "mark");
	hl_recording_free(recording);
}

static void a_snapshot_copies_what_lies_there(void **state)
{
	struct fixture *fixture = *state;
	char path[256];
	struct stat status;

	static const struct {
		const char *name;
		bool is_copied;
	} files[] = {{"process-7-4711.hlp", true},
		     {"memlog-7-20260101T000000-000001.hll", true},
		     {"events-7-20260101T000000-000001.hle", true},
		     {".process-7-4711.hlp.tmp", false},
		     {"other", false}};
	for (size_t i = 0; i < HL_COUNT_OF(files); i++) {
		int fd = openat(fixture->archive.directory.fd, files[i].name, O_CREAT | O_WRONLY,
				0600);
		assert_int_equal(write(fd, "1234567", 7), 7);
		close(fd);
	}
	assert_int_equal(make_snapshot(fixture, "snapshot.hl", false, NULL), 0);
	for (size_t i = 0; i < HL_COUNT_OF(files); i++) {
		char name[80];
		snprintf(name, sizeof(name), "snapshot.hl/%s", files[i].name);
		path_in(fixture, name, path);
		assert_int_equal(stat(path, &status) == 0, files[i].is_copied);
		if (files[i].is_copied)
			assert_int_equal(status.st_size, 7);
	}
}

static void a_recording_is_not_replaced_by_its_snapshot(void **state)
{
	struct fixture *fixture = *state;
	struct hl_error err = {0};

	assert_int_equal(make_snapshot(fixture, "test.hl", true, &err), -EEXIST);
	assert_non_null(strstr(err.text, "the recording itself"));
	assert_int_equal(faccessat(fixture->archive.directory.fd, "recording.hlm", F_OK, 0), 0);
}

static void a_snapshot_leaves_nothing_for_want_of_memory(void **state)
{
	struct fixture *fixture = *state;
	char path[256];

	path_in(fixture, "snapshot.hl", path);
	FOR_EACH_FAILING_ALLOCATION(r, make_snapshot(fixture, "snapshot.hl", false, NULL))
	{
		assert_int_equal(r, -ENOMEM);
		assert_int_equal(access(path, F_OK), -1);
	}
	assert_int_equal(access(path, F_OK), 0);
}

static int open_control(struct fixture *fixture)
{
	struct hl_control *control;

	int r = hl_control_new(&fixture->subject, &control);
	if (r < 0)
		return r;
	r = hl_control_open(control);
	hl_control_free(control);
	return r;
}

static void control_fails_cleanly_for_want_of_memory(void **state)
{
	struct fixture *fixture = *state;

	FOR_EACH_FAILING_ALLOCATION(r, open_control(fixture))
	assert_int_equal(r, -ENOMEM);
}

/* ---- orders ---- */

static bool no_node(const struct hl_log_names *names, uint32_t node, uint64_t *ret_frame,
		    uint32_t *ret_parent)
{
	(void)names, (void)node, (void)ret_frame, (void)ret_parent;
	return false;
}

static uint32_t no_modules(const struct hl_log_names *names)
{
	(void)names;
	return 0;
}

static const struct hl_log_names no_names = {.node = no_node, .module_count = no_modules};

static struct hl_log_writer *new_writer(const struct fixture *fixture)
{
	struct hl_log_settings settings = {
		.directory_fd = fixture->archive.directory.fd,
		.segment_bytes = 1 << 20,
		.segments_kept = 10,
		.names = &no_names,
	};
	struct hl_log_writer *writer;

	assert_int_equal(hl_log_writer_new(&settings, &writer), 0);
	return writer;
}

static void marks_wait_until_the_log_has_begun(void **state)
{
	struct fixture *fixture = *state;
	struct hl_log_writer *writer = new_writer(fixture);
	struct hl_drain_orders orders;

	hl_drain_orders_init(&orders);
	assert_int_equal(hl_drain_orders_mark(&orders, 3, "first"), 0);
	assert_int_equal(hl_drain_orders_mark(&orders, 5, "second"), 0);
	hl_drain_orders_obey(&orders, writer, false);
	assert_int_equal(orders.mark_count, 2);
	struct hl_log_interval interval = {.events = 1};
	assert_int_equal(hl_log_writer_interval(writer, &interval, 0, 0), 0);
	hl_drain_orders_obey(&orders, writer, false);
	assert_int_equal(orders.mark_count, 0);
	assert_int_equal(orders.lost_marks, 0);
	assert_false(atomic_load(&orders.any));
	hl_drain_orders_release(&orders);
	hl_log_writer_finish(writer);
}

static void marks_are_lost_where_the_log_never_began(void **state)
{
	struct fixture *fixture = *state;
	struct hl_log_writer *writer = new_writer(fixture);
	struct hl_drain_orders orders;

	hl_drain_orders_init(&orders);
	assert_int_equal(hl_drain_orders_mark(&orders, 3, "first"), 0);
	hl_drain_orders_obey(&orders, writer, true);
	assert_int_equal(orders.lost_marks, 1);
	assert_int_equal(orders.mark_count, 0);
	hl_drain_orders_release(&orders);
	hl_log_writer_finish(writer);
}

static void marks_that_wait_are_bounded(void **state)
{
	struct hl_drain_orders orders;
	int r = 0;

	(void)state;
	hl_drain_orders_init(&orders);
	while (r == 0)
		r = hl_drain_orders_mark(&orders, 1, "mark");
	assert_int_equal(r, -EAGAIN);
	assert_int_equal(WITH_ALLOCATIONS(0, hl_drain_orders_mark(&orders, 1, "mark")), -ENOMEM);
	hl_drain_orders_release(&orders);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(marks_that_wait_are_bounded),
#define TEST_WITH_RECORDING(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
		TEST_WITH_RECORDING(status_escapes_what_is_no_text),
		TEST_WITH_RECORDING(status_is_whole_or_fails_for_want_of_memory),
		TEST_WITH_RECORDING(any_mode_follows_any_other),
		TEST_WITH_RECORDING(nothing_is_done_to_processes_that_have_ended),
		TEST_WITH_RECORDING(logs_are_kept_only_where_there_are_any),
		TEST_WITH_RECORDING(a_reset_is_marked_and_saved),
		TEST_WITH_RECORDING(a_recorder_is_taken_out_only_where_it_was_brought_in),
		TEST_WITH_RECORDING(a_recording_takes_so_many_marks_and_no_more),
		TEST_WITH_RECORDING(marks_fail_cleanly_for_want_of_memory),
		TEST_WITH_RECORDING(a_snapshot_opens_as_a_recording),
		TEST_WITH_RECORDING(a_snapshot_copies_what_lies_there),
		TEST_WITH_RECORDING(a_recording_is_not_replaced_by_its_snapshot),
		TEST_WITH_RECORDING(a_snapshot_leaves_nothing_for_want_of_memory),
		TEST_WITH_RECORDING(control_fails_cleanly_for_want_of_memory),
		TEST_WITH_RECORDING(marks_wait_until_the_log_has_begun),
		TEST_WITH_RECORDING(marks_are_lost_where_the_log_never_began),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
