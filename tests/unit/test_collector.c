/* SPDX-License-Identifier: BSD-2-Clause */
/* The collector: processes from their hello to their end, and callers that it turns away. */
#include "collecting.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/resource.h>

/* ---- processes ---- */

static void a_process_is_complete_when_it_has_exited(void **state)
{
	struct fixture *fixture = *state;

	start(fixture, allocate_and_exit);
	assert_int_equal(WEXITSTATUS(await_end(fixture)), 3);
	const struct hl_recording *recording = finish(fixture);
	assert_true(recording->complete);
	assert_string_equal(recording->mode, "mem-fast");
	assert_string_equal(recording->command[1], "argument");
	assert_int_equal(recording->process_count, 1);
	const struct hl_recording_process *process = &recording->processes[0];
	assert_int_equal(process->pid, fixture->child);
	assert_int_equal(process->parent_pid, getpid());
	/* Where an emulator runs it, that is the program, and the first word of the command. */
	assert_true(strstr(process->executable, "test_collector") ||
		    strstr(process->executable, "qemu-"));
	char *const *last = process->command;
	while (last[1])
		last++;
	assert_non_null(strstr(*last, "test_collector"));
	assert_true(process->complete);
	assert_int_equal(process->end, HL_END_EXITED);
	assert_int_equal(process->end_status, 3);
	assert_int_equal(process->values[0].alloc_bytes, 100);
	assert_int_equal(process->values[0].peak_bytes, 100);
	assert_int_equal(fixture->summary.processes, 1);
	assert_int_equal(fixture->summary.allocations, 1);
	assert_int_equal(fixture->summary.peak_bytes, 100);
	assert_false(fixture->summary.incomplete);
}

static void a_killed_process_is_complete(void **state)
{
	struct fixture *fixture = *state;

	start(fixture, allocate_and_pause);
	await_pause(fixture);
	kill(fixture->child, SIGKILL);
	await_end(fixture);
	const struct hl_recording_process *process = finish(fixture)->processes;
	assert_true(process->complete);
	assert_int_equal(process->end, HL_END_SIGNALED);
	assert_int_equal(process->end_status, SIGKILL);
	assert_int_equal(process->values[0].alloc_bytes, 100);
}

static void a_process_that_runs_on_is_closed_and_kept_as_it_stands(void **state)
{
	struct fixture *fixture = *state;

	start(fixture, allocate_and_pause);
	await_pause(fixture);
	const struct hl_recording_process *process = finish(fixture)->processes;
	assert_int_equal(process->end, HL_END_RUNNING);
	assert_true(process->complete);
	assert_int_equal(process->values[0].alloc_bytes, 100);
	assert_int_equal(fixture->summary.running, 1);
	let_go(fixture);
	int status;
	assert_int_equal(waitpid(fixture->child, &status, 0), fixture->child);
	assert_int_equal(WEXITSTATUS(status), 4);
}

static int greet_twice(struct recorder *recorder)
{
	allocate_and_exit(recorder);
	greet(recorder);
	allocate(recorder, 7);
	return 0;
}

static void a_second_hello_is_another_program_in_the_same_process(void **state)
{
	struct fixture *fixture = *state;

	start(fixture, greet_twice);
	await_end(fixture);
	const struct hl_recording *recording = finish(fixture);
	assert_int_equal(recording->process_count, 2);
	assert_int_equal(recording->processes[0].end, HL_END_EXEC);
	assert_int_equal(recording->processes[0].values[0].alloc_bytes, 100);
	assert_int_equal(recording->processes[1].end, HL_END_EXITED);
	assert_int_equal(recording->processes[1].values[0].alloc_bytes, 7);
}

static void a_region_that_was_never_taken_is_a_warning_and_no_entry(void **state)
{
	struct fixture *fixture = *state;

	start(fixture, take_no_region);
	await_end(fixture);
	const struct hl_recording *recording = finish(fixture);
	assert_int_equal(recording->process_count, 0);
	assert_int_equal(fixture->summary.processes, 0);
	assert_true(warns(recording, "no memory or address space"));
}

static void processes_that_are_refused_for_one_reason_are_one_sentence(void **state)
{
	struct fixture *fixture = *state;

	for (int i = 0; i < 5; i++) {
		start(fixture, take_no_region);
		await_end(fixture);
	}
	const struct hl_recording *recording = finish(fixture);
	assert_null(recording->warnings[1]);
	assert_true(warns(recording, "5 processes ("));
	assert_true(warns(recording, " ...) were not recorded: it had no memory"));
}

static int map_little(struct recorder *recorder)
{
	struct hl_hello hello = make_hello(recorder->collector);

	hello.address_space_limit = UINT64_C(512) << 20;
	say_hello(recorder, &hello);
	return recorder->header->region_bytes <= UINT64_C(64) << 20 ? 0 : 1;
}

static void a_region_takes_an_eighth_of_a_limited_address_space(void **state)
{
	struct fixture *fixture = *state;

	start(fixture, map_little);
	assert_int_equal(WEXITSTATUS(await_end(fixture)), 0);
}

/* ---- callers ---- */

static int greet_with_wrong_token(struct recorder *recorder)
{
	struct hl_hello hello = make_hello(recorder->collector);

	hello.token[0] ^= 1;
	say_hello(recorder, &hello);
	return recorder->error == -1 && !recorder->header ? 0 : 1;
}

static int greet_in_another_version(struct recorder *recorder)
{
	struct hl_hello hello = make_hello(recorder->collector);

	hello.region_version++;
	say_hello(recorder, &hello);
	return recorder->error == -1 && !recorder->header ? 0 : 1;
}

static int send_nonsense(struct recorder *recorder)
{
	char bytes[4096] = {0};

	for (size_t size = 1; size <= sizeof(bytes); size *= 4) {
		int fd = connect_to(recorder->collector);
		send(fd, bytes, size, MSG_NOSIGNAL);
		if (recv(fd, bytes, sizeof(bytes), 0) != 0)
			return 1;
		close(fd);
	}
	return 0;
}

static void callers_without_a_proper_hello_are_turned_away(void **state)
{
	struct fixture *fixture = *state;
	static child_fn *const children[] = {greet_with_wrong_token, greet_in_another_version,
					     send_nonsense, allocate_and_exit};
	static const int expected[] = {0, 0, 0, 3};

	for (size_t i = 0; i < HL_COUNT_OF(children); i++) {
		start(fixture, children[i]);
		assert_int_equal(WEXITSTATUS(await_end(fixture)), expected[i]);
	}
	const struct hl_recording *recording = finish(fixture);
	assert_int_equal(recording->process_count, 1);
	assert_true(warns(recording, "turned away 9 times"));
	assert_false(warns(recording, "--wait"));
}

static void waiting_is_advised_where_the_program_is_a_child(void **state)
{
	struct fixture *fixture = *state;
	pid_t program = fork();

	if (program == 0)
		for (;;)
			pause();
	hl_collector_abandon(fixture->collector);
	hl_collector_free(fixture->collector);
	begin_with(fixture, HL_MODE_MEM_FAST, true, program);
	kill(program, SIGKILL);
	waitpid(program, NULL, 0);
	start(fixture, greet_with_wrong_token);
	await_end(fixture);
	assert_true(warns(finish(fixture), "ended ('--wait' helps), or"));
}

/* ---- callers of another user ---- */

enum { OTHER_USER = 65534 };

static void become_other_user(void)
{
	if (setresuid(OTHER_USER, OTHER_USER, OTHER_USER) < 0)
		_exit(97);
}

static void skip_unless_another_user_can_be(void)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		become_other_user();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (status != 0) {
		print_message("skipped: needs root, and a namespace with another user\n");
		skip();
	}
}

static int change_user_and_allocate(struct recorder *recorder)
{
	become_other_user();
	return allocate_and_exit(recorder);
}

static void a_descendant_that_has_become_another_user_is_recorded(void **state)
{
	struct fixture *fixture = *state;

	skip_unless_another_user_can_be();
	start(fixture, change_user_and_allocate);
	assert_int_equal(WEXITSTATUS(await_end(fixture)), 3);
	const struct hl_recording *recording = finish(fixture);
	assert_int_equal(recording->process_count, 1);
	assert_int_equal(recording->processes[0].values[0].alloc_bytes, 100);
	assert_null(recording->warnings[0]);
}

static int change_user_and_guess(struct recorder *recorder)
{
	become_other_user();
	return greet_with_wrong_token(recorder);
}

/* With the token, from a process that is below neither the collector nor a recorded one. */
static int change_user_as_an_orphan(struct recorder *recorder)
{
	pid_t parent = getpid();

	if (fork() != 0)
		return 0;
	become_other_user();
	while (getppid() == parent)
		usleep(1000);
	greet(recorder);
	return 0;
}

static void a_stranger_of_another_user_is_turned_away(void **state)
{
	struct fixture *fixture = *state;

	skip_unless_another_user_can_be();
	start(fixture, change_user_and_guess);
	assert_int_equal(WEXITSTATUS(await_end(fixture)), 0);
	start(fixture, change_user_as_an_orphan);
	assert_int_equal(WEXITSTATUS(await_end(fixture)), 0);
	const struct hl_recording *recording = finish(fixture);
	assert_int_equal(recording->process_count, 0);
	assert_true(warns(recording, "turned away 2 times"));
}

static int expect_refusal(struct recorder *recorder)
{
	greet(recorder);
	return recorder->header ? 0 : recorder->error;
}

static void without_follow_children_are_refused(void **state)
{
	struct fixture *fixture = *state;

	begin_again(fixture, HL_MODE_MEM_FAST, false);
	start(fixture, expect_refusal);
	assert_int_equal(WEXITSTATUS(await_end(fixture)), EPERM);
	assert_int_equal(finish(fixture)->process_count, 0);
}

/* More silent callers than may wait, then a recorder. */
static int crowd_and_greet(struct recorder *recorder)
{
	for (int i = 0; i < 100; i++)
		if (connect_to(recorder->collector) < 0)
			return 1;
	greet(recorder);
	return recorder->error;
}

static void a_crowd_of_silent_callers_is_kept_small(void **state)
{
	struct fixture *fixture = *state;

	start(fixture, crowd_and_greet);
	assert_int_equal(WEXITSTATUS(await_end(fixture)), 255); /* hung up on */
	start(fixture, allocate_and_exit);			/* the crowd has gone */
	assert_int_equal(WEXITSTATUS(await_end(fixture)), 3);
	assert_int_equal(finish(fixture)->process_count, 1);
}

static int greet_after_pause(struct recorder *recorder)
{
	pause_child(recorder);
	return expect_refusal(recorder);
}

static void a_collector_without_descriptors_refuses_and_goes_on(void **state)
{
	struct fixture *fixture = *state;

	start(fixture, greet_after_pause);
	await_pause(fixture);
	struct rlimit limit, few;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = limit;
	int lowest = dup(0);
	close(lowest);
	few.rlim_cur = (rlim_t)lowest;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	let_go(fixture);
	int status = await_end(fixture);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(WEXITSTATUS(status), 255); /* hung up on */
	start(fixture, allocate_and_exit);
	assert_int_equal(WEXITSTATUS(await_end(fixture)), 3);
	const struct hl_recording *recording = finish(fixture);
	assert_int_equal(recording->process_count, 1);
	assert_true(warns(recording, "file descriptors"));
}

/* ---- reports ---- */

static bool no_more_watches; /* as under fs.epoll.max_user_watches */
static char report_path[128];

int __real_epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event);

int __wrap_epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event)
{
	if (no_more_watches && operation == EPOLL_CTL_ADD) {
		errno = ENOSPC;
		return -1;
	}
	return __real_epoll_ctl(epoll_fd, operation, fd, event);
}

static int ask_for_a_report(struct recorder *recorder)
{
	allocate_and_exit(recorder);
	struct hl_mailbox *mailbox = &recorder->header->mailbox;
	pause_child(recorder);
	if (hl_mailbox_report(mailbox, report_path) < 0)
		return 1;
	for (int polls = 0; polls < 600 && !atomic_load(&mailbox->reports_done); polls++)
		usleep(HL_MAILBOX_POLL_MS * 1000);
	return atomic_load(&mailbox->reports_done) && !atomic_load(&mailbox->report_error) ? 0 : 2;
}

static void a_report_whose_end_cannot_be_watched_is_made(void **state)
{
	struct fixture *fixture = *state;

	snprintf(report_path, sizeof(report_path), "%s/report.hl", fixture->directory);
	start(fixture, ask_for_a_report);
	await_pause(fixture);
	no_more_watches = true;
	let_go(fixture);
	int status = await_end(fixture);
	no_more_watches = false;
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(remove_temporary(report_path), 0);
}

/* ---- the end ---- */

/* What happens the first time that the collector waits; NULL once it has, or where nothing does. */
static void (*on_wait)(struct fixture *fixture);
static struct fixture *waiting_fixture;

int __real_poll(struct pollfd *pollers, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *pollers, nfds_t count, int timeout_ms);

int __wrap_poll(struct pollfd *pollers, nfds_t count, int timeout_ms)
{
	void (*now)(struct fixture *) = timeout_ms ? on_wait : NULL;

	if (now) {
		on_wait = NULL;
		now(waiting_fixture);
	}
	return __real_poll(pollers, count, timeout_ms);
}

static int fork_and_exit(struct recorder *recorder)
{
	int status = allocate_and_exit(recorder);

	/* Itself, of whom nobody told, and another. */
	atomic_store(&recorder->header->kin.awaited, 2);
	return status;
}

static int greet_late(struct recorder *recorder)
{
	struct hl_hello hello = make_hello(recorder->collector);
	struct hl_welcome answer;

	hello.kind = HL_HELLO_FORK;
	pause_child(recorder);
	int fd = connect_to(recorder->collector);
	if (fd < 0 || send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) < 0)
		return 1;
	pause_child(recorder);
	int region_fd = receive_welcome(fd, &answer, &recorder->error);
	if (region_fd < 0)
		return 2;
	recorder->header =
		mmap(NULL, answer.region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region_fd, 0);
	atomic_store(&recorder->header->state, HL_REGION_RUNNING);
	return 0;
}

static void have_the_child_greet(struct fixture *fixture)
{
	char byte;

	let_go(fixture);
	assert_int_equal(read(fixture->ready, &byte, 1), 1);
	let_go(fixture);
}

static void a_child_that_comes_as_the_recording_ends_is_recorded_or_named(void **state)
{
	struct fixture *fixture = *state;

	start(fixture, fork_and_exit);
	await_end(fixture);
	start(fixture, greet_late);
	await_pause(fixture);
	waiting_fixture = fixture;
	on_wait = have_the_child_greet;
	const struct hl_recording *recording = finish(fixture);
	kill(fixture->child, SIGKILL);
	waitpid(fixture->child, NULL, 0);
	assert_null(on_wait);
	/* On a busy machine it may not come as far as to take its region. */
	assert_true(recording->process_count == 2 || warns(recording, "ended while it started"));
}

static void nobody_is_waited_for_when_no_child_is_to_come(void **state)
{
	struct fixture *fixture = *state;

	start(fixture, allocate_and_exit);
	await_end(fixture);
	waiting_fixture = fixture;
	on_wait = have_the_child_greet;
	assert_int_equal(finish(fixture)->process_count, 1);
	assert_non_null(on_wait);
	on_wait = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_process_is_complete_when_it_has_exited),
		TEST(a_killed_process_is_complete),
		TEST(a_process_that_runs_on_is_closed_and_kept_as_it_stands),
		TEST(a_second_hello_is_another_program_in_the_same_process),
		TEST(a_region_that_was_never_taken_is_a_warning_and_no_entry),
		TEST(processes_that_are_refused_for_one_reason_are_one_sentence),
		TEST(a_region_takes_an_eighth_of_a_limited_address_space),
		TEST(callers_without_a_proper_hello_are_turned_away),
		TEST(waiting_is_advised_where_the_program_is_a_child),
		TEST(a_descendant_that_has_become_another_user_is_recorded),
		TEST(a_stranger_of_another_user_is_turned_away),
		TEST(without_follow_children_are_refused),
		TEST(a_crowd_of_silent_callers_is_kept_small),
		TEST(a_collector_without_descriptors_refuses_and_goes_on),
		TEST(a_report_whose_end_cannot_be_watched_is_made),
		TEST(a_child_that_comes_as_the_recording_ends_is_recorded_or_named),
		TEST(nobody_is_waited_for_when_no_child_is_to_come),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
