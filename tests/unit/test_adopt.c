/* SPDX-License-Identifier: BSD-2-Clause */
/* The collector and a process that ran before it: the recorder comes in with a memfd, not a hello. */
#include "collecting.h"

#include "base/clock.h"
#include "collector/collector.h"
#include "collector/control_ask.h"

#include <errno.h>
#include <limits.h>
#include <sys/personality.h>
#include <sys/stat.h>

/* What a child would be given: it has it from its birth on. */
static int memfd;

static void map_region(struct recorder *recorder)
{
	off_t bytes = lseek(memfd, 0, SEEK_END);

	recorder->header = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	atomic_store(&recorder->header->state, HL_REGION_RUNNING);
}

static int be_joined(struct recorder *recorder)
{
	pause_child(recorder);
	map_region(recorder);
	return 0;
}

static int allocate_when_joined(struct recorder *recorder)
{
	be_joined(recorder);
	allocate(recorder, 100);
	pause_child(recorder);
	return hl_mode_of(atomic_load(&recorder->header->mode)) == HL_MODE_CLOSED ? 4 : 5;
}

static int exec_when_joined(struct recorder *recorder)
{
	be_joined(recorder);
	allocate(recorder, 100);
	execl("/proc/self/exe", "again", "wait", NULL);
	return 97;
}

/* A child that runs already is adopted, and goes on with a recorder in it. */
static void join(struct fixture *fixture, child_fn *run)
{
	struct hl_error err = {0};
	uint64_t bytes = 0;

	memfd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(memfd >= 0);
	start(fixture, run);
	await_pause(fixture);
	int fd = fcntl(memfd, F_DUPFD_CLOEXEC, 0);
	if (hl_collector_adopt(fixture->collector, fixture->child, fd, true, &bytes, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(bytes > 0 && lseek(memfd, 0, SEEK_END) == (off_t)bytes);
	assert_true(fcntl(memfd, F_GET_SEALS) & F_SEAL_SHRINK);
	let_go(fixture);
}

static void a_process_that_runs_is_recorded_from_then_on(void **state)
{
	struct fixture *fixture = *state;

	join(fixture, allocate_when_joined);
	await_pause(fixture);
	assert_true(hl_collector_has_running(fixture->collector));
	const struct hl_recording *recording = finish(fixture);
	assert_true(recording->attached);
	assert_int_equal(recording->process_count, 1);
	assert_int_equal(recording->processes[0].pid, fixture->child);
	assert_int_equal(recording->processes[0].end, HL_END_RUNNING);
	assert_int_equal(recording->processes[0].values[0].alloc_bytes, 100);
	assert_int_equal(fixture->summary.running, 1);
	let_go(fixture);
	int status;
	assert_int_equal(waitpid(fixture->child, &status, 0), fixture->child);
	assert_int_equal(WEXITSTATUS(status), 4);
}

static void its_end_is_seen(void **state)
{
	struct fixture *fixture = *state;

	join(fixture, allocate_when_joined);
	await_pause(fixture);
	kill(fixture->child, SIGKILL);
	await_end(fixture);
	assert_false(hl_collector_has_running(fixture->collector));
	const struct hl_recording *recording = finish(fixture);
	assert_int_equal(recording->processes[0].end, HL_END_SIGNALED);
	assert_int_equal(fixture->summary.running, 0);
}

static void an_exec_of_the_same_program_ends_the_recording(void **state)
{
	struct fixture *fixture = *state;

	if (personality(0xffffffff) & ADDR_NO_RANDOMIZE)
		skip();
	join(fixture, exec_when_joined);
	for (int i = 0; hl_collector_has_running(fixture->collector); i++) {
		struct pollfd poller = {hl_collector_fd(fixture->collector), POLLIN, 0};
		assert_true(poll(&poller, 1, 60000) == 1 && i < 1000);
		hl_collector_dispatch(fixture->collector);
	}
	const struct hl_recording *recording = finish(fixture);
	assert_int_equal(recording->processes[0].end, HL_END_EXEC);
	assert_int_equal(recording->processes[0].values[0].alloc_bytes, 100);
	assert_int_equal(fixture->summary.replaced, 1);
	kill(fixture->child, SIGKILL);
	waitpid(fixture->child, NULL, 0);
}

/* ---- a program that is started ---- */

/* Its memory is heapline's until then: a dump of it would end heapline, too, before Linux 5.16. */
static void a_signal_before_the_program_is_there_dumps_no_memory(void **state)
{
	struct hl_launch launch;
	struct hl_error err;
	siginfo_t info;
	sigset_t before;
	char *argv[] = {"true", NULL};
	const struct {
		int number, status;
	} signals[] = {{SIGQUIT, 128 + SIGQUIT}, {SIGTERM, SIGTERM}};

	(void)state;
#ifdef __SANITIZE_THREAD__
	skip(); /* the child begins on a stack that it does not know of */
#endif
	signal(SIGQUIT, SIG_DFL); /* a shell ignores it in what it begins in the background */
	sigprocmask(SIG_BLOCK, NULL, &before);
	for (size_t i = 0; i < HL_COUNT_OF(signals); i++) {
		bool dumps = signals[i].number == SIGQUIT;
		assert_int_equal(hl_launch_init(&launch, argv, environ, false, &err), 0);
		kill(launch.pid, signals[i].number); /* held back until it goes */
		assert_int_equal(hl_launch_go(&launch), 0);
		assert_int_equal(waitid(P_PID, (id_t)launch.pid, &info, WEXITED), 0);
		assert_int_equal(info.si_code, dumps ? CLD_EXITED : CLD_KILLED);
		assert_int_equal(info.si_status, signals[i].status);
		launch.pid = 0;
		hl_launch_release(&launch);
		sigprocmask(SIG_SETMASK, &before, NULL);
	}
}

/* ---- how it ends ---- */

static void it_ends_when_the_time_is_up(void **state)
{
	struct fixture *fixture = *state;

	join(fixture, allocate_when_joined);
	await_pause(fixture);
	uint64_t end_ns = hl_clock_ns(CLOCK_MONOTONIC) + 50000000;
	assert_int_equal(hl_launch_attend(fixture->collector, end_ns), 0);
	assert_true(hl_clock_ns(CLOCK_MONOTONIC) >= end_ns);
	assert_true(hl_collector_has_running(fixture->collector));
	let_go(fixture);
	await_end(fixture);
}

static void a_signal_ends_it(void **state)
{
	struct fixture *fixture = *state;
	sigset_t before;

	sigprocmask(SIG_BLOCK, NULL, &before);
	join(fixture, allocate_when_joined);
	await_pause(fixture);
	hl_launch_defer_signals();
	raise(SIGTERM);
	assert_int_equal(hl_launch_attend(fixture->collector, UINT64_MAX), 0);
	assert_true(hl_collector_has_running(fixture->collector));
	const struct timespec at_once = {0};
	sigset_t term;
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigtimedwait(&term, NULL, &at_once);
	sigprocmask(SIG_SETMASK, &before, NULL);
	let_go(fixture);
	await_end(fixture);
}

/* As 'heapline ctl detach' does; when it is answered the recording must be complete. */
static int ask_to_detach(const struct fixture *fixture, const char *wanted)
{
	const struct hl_control_request request = {.verb = HL_CONTROL_DETACH,
						   .pid = fixture->child};
	struct hl_control_peers peers;
	struct hl_recording *recording;
	struct hl_error err = {0};
	json_t *answer;

	alarm(60);
	if (hl_control_ask_search(fixture->child, &peers) < 0 || peers.count != 1)
		return 90;
	int r = hl_control_ask(&peers.peers[0], &request, &answer, &err);
	if (r < 0)
		return wanted && strstr(err.text, wanted) ? 0 : 91;
	if (wanted || hl_recording_open(fixture->path, &recording, &err) < 0)
		return 92;
	return recording->complete && recording->attached ? 0 : 93;
}

static void ask_and_end(struct fixture *fixture, const char *problem)
{
	setenv("XDG_RUNTIME_DIR", fixture->directory, 1);
	begin_again(fixture, HL_MODE_MEM_FAST, false);
	join(fixture, allocate_when_joined);
	await_pause(fixture);
	pid_t asker = fork();
	if (asker == 0)
		_exit(ask_to_detach(fixture, problem));
	assert_int_equal(hl_launch_attend(fixture->collector, UINT64_MAX), 0);
	assert_true(hl_collector_is_to_detach(fixture->collector));
	finish(fixture);
	hl_collector_tell_detached(fixture->collector, problem);
	assert_false(hl_collector_is_to_detach(fixture->collector));
	int status;
	assert_int_equal(waitpid(asker, &status, 0), asker);
	assert_int_equal(status, 0);
	let_go(fixture);
	assert_int_equal(waitpid(fixture->child, &status, 0), fixture->child);
}

static void who_asks_to_detach_is_answered_when_all_is_on_disk(void **state)
{
	ask_and_end(*state, NULL);
}

static void who_asks_to_detach_is_told_why_it_failed(void **state)
{
	ask_and_end(*state, "a thread is still inside");
}

static void a_region_that_cannot_be_made_is_refused(void **state)
{
	struct fixture *fixture = *state;
	struct hl_error err = {0};
	uint64_t bytes;

	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_true(hl_collector_adopt(fixture->collector, getpid(), fd, true, &bytes, &err) < 0);
	assert_non_null(strstr(err.text, "cannot record process"));
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	assert_false(hl_collector_has_running(fixture->collector));
}

static void expect_not_adopted(const struct fixture *fixture, int fd)
{
	struct hl_error err = {0};
	uint64_t bytes;

	assert_true(fd >= 0);
	assert_int_equal(hl_collector_adopt(fixture->collector, getpid(), fd, true, &bytes, &err),
			 -EBADFD);
	assert_non_null(strstr(err.text, "sealed or replaced"));
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	assert_false(hl_collector_has_running(fixture->collector));
}

static void a_memfd_that_can_still_shrink_is_refused(void **state)
{
	static const int seals[] = {F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW};

	for (size_t i = 0; i < sizeof(seals) / sizeof(*seals); i++) {
		int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals[i]), 0);
		expect_not_adopted(*state, fd);
	}
	expect_not_adopted(*state, memfd_create("test", MFD_CLOEXEC)); /* sealed from the start */
}

static void a_file_in_place_of_the_memfd_stays_as_it_is(void **state)
{
	struct fixture *fixture = *state;
	char path[PATH_MAX];
	struct stat status;

	snprintf(path, sizeof(path), "%s/a file", fixture->directory);
	for (unsigned bytes = 0; bytes < 2; bytes++) {
		int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		assert_int_equal(ftruncate(file, bytes), 0);
		expect_not_adopted(fixture, file);
		assert_int_equal(stat(path, &status), 0);
		assert_int_equal(status.st_size, bytes);
	}
	unlink(path);
	int used = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(used, 1), 0);
	expect_not_adopted(fixture, used);
	int huge = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	if (huge >= 0) /* where the kernel has them */
		expect_not_adopted(fixture, huge);
}

static int end(void **state)
{
	close(memfd);
	return teardown(state);
}

#undef TEST
#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, end)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_process_that_runs_is_recorded_from_then_on),
		TEST(its_end_is_seen),
		TEST(an_exec_of_the_same_program_ends_the_recording),
		TEST(it_ends_when_the_time_is_up),
		TEST(a_signal_ends_it),
		TEST(who_asks_to_detach_is_answered_when_all_is_on_disk),
		TEST(who_asks_to_detach_is_told_why_it_failed),
		TEST(a_region_that_cannot_be_made_is_refused),
		TEST(a_memfd_that_can_still_shrink_is_refused),
		TEST(a_file_in_place_of_the_memfd_stays_as_it_is),
		cmocka_unit_test(a_signal_before_the_program_is_there_dumps_no_memory),
	};

	(void)argv;
	if (argc > 1) { /* begun again, by a child */
		alarm(60);
		pause();
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
