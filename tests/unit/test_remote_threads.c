/* SPDX-License-Identifier: BSD-2-Clause */
/* All threads are stopped, however many there are, come and go, and whoever shares their memory. */
#include "hook/remote.h"

#include "base/compiler.h"
#include "remote_target.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cmocka.h>

#define THREADS	    64
#define STACK_BYTES 262144

#define OTHER_CHILDREN 1500 /* their numbers take more than 4 KiB */

/* What a target has in its page of words: beside these, progress of each thread from COUNTERS on. */
enum { READY, GO_ON, BORN, CHILD, COUNTERS = 16 };

static struct hl_remote *enter(pid_t pid)
{
	struct hl_remote *remote = NULL;
	struct hl_error err = {0};

	if (hl_remote_open(pid, &remote, &err) < 0)
		fail_msg("%s", err.text);
	return remote;
}

/* A busy machine may need many tries. */
static void stop_with_retries(struct hl_remote *remote,
			      int (*try)(struct hl_remote *, struct hl_error *))
{
	uint64_t deadline = hl_clock_ns(CLOCK_MONOTONIC) + 60 * HL_NS_PER_SECOND;
	struct hl_error err = {0};
	int r;

	do {
		err.text[0] = '\0';
		r = try(remote, &err);
	} while (r == -EAGAIN && hl_clock_ns(CLOCK_MONOTONIC) < deadline);
	if (r < 0)
		fail_msg("%s", err.text);
}

static void stop_all(struct hl_remote *remote)
{
	stop_with_retries(remote, hl_remote_stop_all);
}

static long sum(const _Atomic long *words)
{
	long all = 0;

	for (int i = COUNTERS; i < SHARED_WORDS; i++)
		all += words[i];
	return all;
}

/* Nobody counts while all are stopped. */
static void check_stillness(const _Atomic long *words)
{
	long before = sum(words);

	sched_yield();
	usleep(50);
	assert_int_equal(sum(words), before);
}

static void check_policies(struct hl_remote *remote)
{
	pid_t *tids;
	size_t count;

	assert_int_equal(hl_remote_list(remote, &tids, &count), 0);
	for (size_t i = 0; i < count; i++) {
		int policy = sched_getscheduler(tids[i]);
		if (policy != SCHED_OTHER && !(policy < 0 && errno == ESRCH))
			fail_msg("thread %d has policy %d", tids[i], policy);
	}
	free(tids);
}

/* How often busy processes are stopped: HL_ROUNDS, which 'make quick' sets, for all their threads take the processors of other tests. */
static int rounds_wanted(void)
{
	const char *text = getenv("HL_ROUNDS");

	return text && atoi(text) > 0 ? atoi(text) : 200;
}

/* ---- threads that only compute and allocate ---- */

static void *storm(void *counter)
{
	_Atomic long *word = counter;

	for (;; ++*word)
		free(malloc((size_t)(*word % 1000)));
	return NULL;
}

static int start_storm(_Atomic long *words)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&thread, &attributes, storm, (void *)&words[COUNTERS + i]) != 0)
			return 1;
	words[READY] = 1;
	while (pause())
		;
	return 1;
}

static void threads_that_storm_are_stopped(void **state)
{
	_Atomic long *words = target_words();
	int rounds = rounds_wanted();
	uint32_t longest_us = 0;

	(void)state;

	pid_t pid = target_start(start_storm, words);
	target_await(&words[READY], 1);
	struct hl_remote *remote = enter(pid);
	for (int i = 0; i < rounds; i++) {
		size_t count;
		stop_all(remote);
		hl_remote_threads(remote, &count);
		assert_int_equal(count, THREADS + 1);
		check_stillness(words);
		if (i % 20 == 0)
			assert_int_equal(hl_remote_syscall(remote, SYS_getpid, 0, 0, 0, 0, 0, 0),
					 pid);
		hl_remote_continue(remote);
		if (hl_remote_stopped_us(remote) > longest_us)
			longest_us = hl_remote_stopped_us(remote);
	}
	check_policies(remote);
	hl_remote_free(remote);
	for (int i = 0; i < THREADS; i++)
		target_await(&words[COUNTERS + i], words[COUNTERS + i] + 1);
	print_message("stopped for at most %u us\n", longest_us);
	target_kill(pid);
}

/* A tool that has stopped a target which is then killed: it lets go, and stays. */
static int enter_and_stay(pid_t pid, _Atomic long *words)
{
	struct hl_remote *remote = NULL;

	if (hl_remote_open(pid, &remote, NULL) < 0)
		return 1;
	while (hl_remote_stop_all(remote, NULL) < 0)
		;
	words[GO_ON] = 1;
	target_await(&words[GO_ON], 2);
	hl_remote_continue(remote);
	target_await(&words[GO_ON], 3);
	hl_remote_free(remote);
	return 0;
}

static void a_process_that_is_killed_ends_before_the_tool_does(void **state)
{
	_Atomic long *words = target_words();

	(void)state;

	pid_t pid = target_start(start_storm, words);
	target_await(&words[READY], 1);
	pid_t tool = fork();
	if (tool == 0)
		_exit(enter_and_stay(pid, words));
	target_await(&words[GO_ON], 1);
	kill(pid, SIGKILL);
	words[GO_ON] = 2;
	pid_t ended = 0;
	for (int i = 0; i < 60000 && !ended; i++) {
		ended = waitpid(pid, NULL, WNOHANG);
		target_rest_ms(1);
	}
	assert_int_equal(ended, pid);
	words[GO_ON] = 3;
	assert_int_equal(target_end(tool), 0);
}

/* ---- threads that come and go ---- */

static void *live_shortly(void *counter)
{
	_Atomic long *word = counter;

	for (int i = 0; i < 100; i++)
		++*word;
	return NULL;
}

static void *bear(void *counter)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	while (pthread_create(&thread, &attributes, live_shortly, counter) == 0)
		pthread_join(thread, NULL);
	_exit(1);
}

static int start_births(_Atomic long *words)
{
	pthread_t thread;

	for (int i = 0; i < 8; i++)
		if (pthread_create(&thread, NULL, bear, (void *)&words[COUNTERS + i]) != 0)
			return 1;
	words[READY] = 1;
	while (pause())
		;
	return 1;
}

static void threads_that_come_and_go_are_stopped(void **state)
{
	_Atomic long *words = target_words();
	int rounds = rounds_wanted();

	(void)state;

	pid_t pid = target_start(start_births, words);
	target_await(&words[READY], 1);
	struct hl_remote *remote = enter(pid);
	for (int i = 0; i < rounds; i++) {
		stop_all(remote);
		check_stillness(words);
		hl_remote_continue(remote);
		stop_with_retries(remote, hl_remote_stop_one);
		assert_int_equal(hl_remote_syscall(remote, SYS_getpid, 0, 0, 0, 0, 0, 0), pid);
		hl_remote_continue(remote);
	}
	check_policies(remote);
	hl_remote_free(remote);
	for (int i = 0; i < 8; i++)
		target_await(&words[COUNTERS + i], words[COUNTERS + i] + 1);
	assert_int_equal(target_state(pid), 'S');
	target_kill(pid);
}

/* A thread that is stopped alone does not keep others, and may end meanwhile. */
static void threads_are_stopped_one_by_one(void **state)
{
	_Atomic long *words = target_words();

	(void)state;

	pid_t pid = target_start(start_births, words);
	target_await(&words[READY], 1);
	struct hl_remote *remote = enter(pid);
	int stopped = 0;
	for (int i = 0; i < 50 || stopped < 50; i++) {
		pid_t *tids;
		size_t count;
		assert_int_equal(hl_remote_list(remote, &tids, &count), 0);
		for (size_t j = 0; j < count; j++) {
			struct hl_remote_thread *thread;
			int r = hl_remote_stop_thread(remote, tids[j], &thread);
			assert_true(r == 0 || r == -ESRCH || r == -EAGAIN);
			stopped += r == 0;
			if (r == 0) {
				assert_int_equal(thread->tid, tids[j]);
				assert_true(thread->registers.rip != 0);
			}
			hl_remote_continue(remote);
		}
		free(tids);
	}
	check_policies(remote);
	hl_remote_free(remote);
	target_await(&words[COUNTERS], words[COUNTERS] + 1);
	target_kill(pid);
}

/* ---- other processes with the same memory ---- */

static int count_on(void *counter)
{
	_Atomic long *word = counter;

	for (;;)
		++*word;
	return 0;
}

static int start_sharer(_Atomic long *words)
{
	char *stack = malloc(STACK_BYTES);

	/* Children that nobody has waited for are listed, too: before the one that counts. */
	for (int i = 0; i < OTHER_CHILDREN; i++) {
		pid_t child = fork();
		if (child == 0)
			_exit(0);
	}
	words[CHILD] =
		clone(count_on, stack + STACK_BYTES, CLONE_VM | SIGCHLD, (void *)&words[COUNTERS]);
	prctl(PR_SET_NAME, "parent");
	words[READY] = 1;
	while (pause())
		;
	return 1;
}

static void processes_that_share_the_memory_are_stopped(void **state)
{
	_Atomic long *words = target_words();
	struct hl_remote *sharer = NULL;

	(void)state;

	pid_t pid = target_start(start_sharer, words);
	target_await(&words[READY], 1);
	target_await(&words[COUNTERS], 1);
	struct hl_remote *remote = enter(pid);
	for (int i = 0; i < 20; i++) {
		pid_t *tids;
		size_t count;
		stop_all(remote);
		hl_remote_threads(remote, &count);
		assert_int_equal(count, 2);
		check_stillness(words);
		hl_remote_continue(remote);
		assert_int_equal(hl_remote_list(remote, &tids, &count), 0);
		assert_int_equal(count, 2);
		assert_int_equal(tids[1], words[CHILD]);
		free(tids);
		target_await(&words[COUNTERS], words[COUNTERS] + 1);
	}
	assert_int_equal(hl_remote_open((pid_t)words[CHILD], &sharer, NULL), -EAGAIN);
	hl_remote_free(remote);
	kill((pid_t)words[CHILD], SIGKILL);
	target_kill(pid);
}

/* The parent by vfork() waits until word GO_ON is set. */
static void *vfork_and_wait(void *argument)
{
	_Atomic long *words = argument;
	pid_t child = vfork();

	if (child == 0) {
		words[CHILD] = getpid();
		words[READY] = 1;
		while (!words[GO_ON])
			;
		_exit(0);
	}
	waitpid(child, NULL, 0);
	words[BORN] = 1;
	while (pause())
		;
	return NULL;
}

static int start_vfork(_Atomic long *words)
{
	vfork_and_wait((void *)words);
	return 1;
}

static int start_vfork_in_thread(_Atomic long *words)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, vfork_and_wait, (void *)words) != 0)
		return 1;
	for (;; ++words[COUNTERS])
		sched_yield();
	return 1;
}

static void a_parent_by_vfork_is_not_waited_for_in_vain(void **state)
{
	(void)state;
	for (int is_thread = 0; is_thread < 2; is_thread++) {
		_Atomic long *words = target_words();
		struct hl_remote *child = NULL;
		struct hl_error err = {0};
		pid_t pid = target_start(is_thread ? start_vfork_in_thread : start_vfork, words);
		target_await(&words[READY], 1);
		struct hl_remote *remote = enter(pid);
		assert_int_equal(hl_remote_stop_all(remote, &err), -EAGAIN);
		assert_non_null(strstr(err.text, "vfork()"));
		err.text[0] = '\0';
		if (is_thread) {
			stop_with_retries(remote, hl_remote_stop_one);
			assert_int_equal(hl_remote_syscall(remote, SYS_getpid, 0, 0, 0, 0, 0, 0),
					 pid);
			hl_remote_continue(remote);
			target_await(&words[COUNTERS], words[COUNTERS] + 1);
		} else {
			assert_int_equal(hl_remote_stop_one(remote, &err), -EAGAIN);
			assert_non_null(strstr(err.text, "vfork()"));
		}
		assert_int_equal(hl_remote_open((pid_t)words[CHILD], &child, &err), -EAGAIN);
		assert_int_equal(words[BORN], 0);
		words[GO_ON] = 1;
		target_await(&words[BORN], 1);
		stop_all(remote);
		hl_remote_continue(remote);
		hl_remote_free(remote);
		target_kill(pid);
	}
}

/* Given up, it stops later, and must not be left like that. */
static void a_thread_that_stops_late_is_let_go(void **state)
{
	(void)state;
	for (int is_freed = 0; is_freed < 2; is_freed++) {
		_Atomic long *words = target_words();
		struct hl_remote_thread *thread;
		pid_t pid = target_start(start_vfork, words);
		target_await(&words[READY], 1);
		struct hl_remote *remote = enter(pid);
		assert_int_equal(hl_remote_stop_thread(remote, pid, &thread), -EAGAIN);
		words[GO_ON] = 1;
		target_await_state(pid, 't');
		if (!is_freed) {
			/* All is as usual then. */
			hl_remote_continue(remote);
			target_await(&words[BORN], 1);
			stop_all(remote);
			hl_remote_continue(remote);
		}
		hl_remote_free(remote);
		target_await(&words[BORN], 1);
		target_await_state(pid, 'S');
		target_kill(pid);
	}
}

/* ---- registers ---- */

/* Loops for ever at `loop_at`; beside it lies the way out. */
void loop_until_moved(void);
void loop_at(void);
void loop_out(void);
__asm__(".pushsection .text\n\t.type loop_until_moved, @function\n"
	"loop_until_moved:\nloop_at:\n\tjmp loop_at\n"
	"loop_out:\n\tret\n\t.size loop_until_moved, .-loop_until_moved\n\t.popsection");

static void *loop_in_thread(void *argument)
{
	loop_until_moved();
	return argument;
}

static int start_loops(_Atomic long *words)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		if (pthread_create(&threads[i], NULL, loop_in_thread, NULL) != 0)
			return 1;
	words[READY] = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	return 11;
}

static void threads_go_on_where_they_are_put(void **state)
{
	_Atomic long *words = target_words();
	int moved = 0;

	(void)state;

	pid_t pid = target_start(start_loops, words);
	target_await(&words[READY], 1);
	struct hl_remote *remote = enter(pid);
	while (moved < 4) {
		size_t count;
		stop_all(remote);
		struct hl_remote_thread *threads = hl_remote_threads(remote, &count);
		for (size_t i = 0; i < count; i++) {
			if (threads[i].registers.rip != (uint64_t)(uintptr_t)loop_at)
				continue;
			threads[i].registers.rip = (uint64_t)(uintptr_t)loop_out;
			threads[i].changed = true;
			moved++;
		}
		hl_remote_continue(remote);
	}
	hl_remote_free(remote);
	assert_int_equal(target_end(pid), 11);
}

/* ---- priorities ---- */

static int rest_for_ever(_Atomic long *words)
{
	words[READY] = 1;
	while (pause())
		;
	return 1;
}

/* What is started while a priority is lent does not inherit it. It goes on, too, as its parent did. */
static void priorities_are_not_inherited(void **state)
{
	_Atomic long *words = target_words();

	(void)state;

	pid_t pid = target_start(rest_for_ever, words);
	target_await(&words[READY], 1);
	struct hl_remote *remote = enter(pid);
	for (int i = 0; i < 20; i++) {
		stop_with_retries(remote, hl_remote_stop_one);
		if (sched_getscheduler(pid) == SCHED_OTHER) {
			print_message("priorities may not be changed here\n");
			hl_remote_free(remote);
			target_kill(pid);
			skip();
		}
		pid_t child = (pid_t)hl_remote_syscall(remote, SYS_fork, 0, 0, 0, 0, 0, 0);
		assert_true(child > 0);
		hl_remote_continue(remote);
		assert_int_equal(sched_getscheduler(child), SCHED_OTHER);
		target_await_state(child, 'S');
		kill(child, SIGKILL);
	}
	check_policies(remote);
	hl_remote_free(remote);
	target_kill(pid);
}

static int be_nice(_Atomic long *words)
{
	setpriority(PRIO_PROCESS, 0, 5);
	words[READY] = 1;
	for (;;)
		++words[COUNTERS];
	return 1;
}

static void niceness_stays(void **state)
{
	_Atomic long *words = target_words();
	const struct sched_param usual = {0};

	(void)state;

	pid_t pid = target_start(be_nice, words);
	target_await(&words[READY], 1);
	for (int policy = SCHED_OTHER; policy <= SCHED_BATCH; policy += SCHED_BATCH) {
		assert_int_equal(sched_setscheduler(pid, policy, &usual), 0);
		struct hl_remote *remote = enter(pid);
		for (int i = 0; i < 20; i++) {
			stop_all(remote);
			hl_remote_continue(remote);
			assert_int_equal(sched_getscheduler(pid), policy);
			assert_int_equal(getpriority(PRIO_PROCESS, (id_t)pid), 5);
		}
		hl_remote_free(remote);
		assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
	}
	target_kill(pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_that_storm_are_stopped),
		cmocka_unit_test(a_process_that_is_killed_ends_before_the_tool_does),
		cmocka_unit_test(threads_that_come_and_go_are_stopped),
		cmocka_unit_test(threads_are_stopped_one_by_one),
		cmocka_unit_test(processes_that_share_the_memory_are_stopped),
		cmocka_unit_test(a_parent_by_vfork_is_not_waited_for_in_vain),
		cmocka_unit_test(a_thread_that_stops_late_is_let_go),
		cmocka_unit_test(threads_go_on_where_they_are_put),
		cmocka_unit_test(priorities_are_not_inherited),
		cmocka_unit_test(niceness_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
