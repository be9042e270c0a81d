/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that is entered lives on, whenever the tool that entered it is killed: before and after
 * each request to the kernel, and at random times.
 */
#include "hook/remote.h"

#include "../e2e/kill_steps.h"
#include "remote_target.h"
#include "sanitized.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include <cmocka.h>

#define STACK_BYTES  65536
#define RANDOM_KILLS 100

/* What a target has in its page of words: progress of its threads first. */
enum { SLEEPER, COMPUTER, SWITCHER, MAIN, THREADS_END, WRONG, READY, IS_MAIN_BUSY, PATCHED };

/* ---- the tool ---- */

/* In the target, on a stack that was mapped there. */
__attribute__((no_sanitize("all"), noinline)) static long call_kernel(long argument)
{
	__asm__ volatile("vzeroall" ::: "memory");
	for (int i = 0; i < 3; i++) {
		long result;
		__asm__ volatile("syscall"
				 : "=a"(result)
				 : "0"(SYS_getpid)
				 : "rcx", "r11", "memory");
		argument += result > 0;
	}
	return argument;
}

static int make_calls(struct hl_remote *remote)
{
	int32_t result = 0;

	if (hl_remote_stop_one(remote, NULL) < 0)
		return 2;
	long stack = hl_remote_syscall(remote, SYS_mmap, 0, STACK_BYTES, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack < 0)
		return 3;
	if (hl_remote_call(remote, (uint64_t)(uintptr_t)call_kernel, 5,
			   (uint64_t)stack + STACK_BYTES, &result) < 0 ||
	    result != 8)
		return 4;
	if (hl_remote_syscall(remote, SYS_munmap, stack, STACK_BYTES, 0, 0, 0, 0) != 0)
		return 5;
	hl_remote_continue(remote);
	return 0;
}

/* What becomes of a process that is entered: 0 when all of it worked. */
static int use(pid_t pid, _Atomic long *words)
{
	struct hl_remote *remote = NULL;
	pid_t *tids = NULL;
	size_t count = 0;
	const long patch = 1;

	if (hl_remote_open(pid, &remote, NULL) < 0)
		return 1;
	int r = make_calls(remote);
	if (r)
		return r;
	if (hl_remote_stop_all(remote, NULL) < 0)
		return 6;
	struct hl_remote_thread *threads = hl_remote_threads(remote, &count);
	for (size_t i = 0; i < count; i++)
		threads[i].changed = i % 2;
	if (!hl_remote_write(remote, (uint64_t)(uintptr_t)&words[PATCHED], &patch, sizeof(patch)))
		return 7;
	hl_remote_continue(remote);
	if (hl_remote_list(remote, &tids, &count) < 0)
		return 8;
	for (size_t i = 0; i < count; i++) {
		struct hl_remote_thread *thread;
		if (hl_remote_stop_thread(remote, tids[i], &thread) < 0)
			return 9;
		hl_remote_continue(remote);
	}
	free(tids);
	hl_remote_free(remote);
	return 0;
}

/* ---- the target ---- */

static void *sleep_again_and_again(void *argument)
{
	_Atomic long *words = argument;

	for (;; ++words[SLEEPER])
		if (nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL) != 0)
			++words[WRONG];
	return NULL;
}

/* A value of registers of both kinds. */
__attribute__((noinline)) static double compute(uint64_t *hash)
{
	double sum = 1;

	for (int i = 0; i < 20000; i++) {
		sum = sum * 1.000001 + 0.5;
		*hash = *hash * 31 + (uint64_t)i;
	}
	return sum;
}

static void compute_again_and_again(_Atomic long *words, int progress)
{
	uint64_t hash = 5;
	const double expected = compute(&hash);

	for (;; ++words[progress]) {
		uint64_t again = 5;
		/* Bits are compared, so that any change is seen. */
		double sum = compute(&again);
		if (memcmp(&sum, &expected, sizeof(sum)) != 0 || again != hash)
			++words[WRONG];
		sched_yield();
	}
}

static void *compute_in_thread(void *argument)
{
	compute_again_and_again(argument, COMPUTER);
	return NULL;
}

static void *pass_in_thread(void *argument)
{
	_Atomic long *words = argument;
	int ends[2];
	char byte = 'x';

	if (pipe(ends) != 0)
		++words[WRONG];
	for (;; ++words[SWITCHER]) {
		if (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1)
			++words[WRONG];
		sched_yield();
	}
	return NULL;
}

static int live(_Atomic long *words)
{
	pthread_t thread;
	int ends[2];
	char byte;

	if (pthread_create(&thread, NULL, sleep_again_and_again, (void *)words) != 0 ||
	    pthread_create(&thread, NULL, compute_in_thread, (void *)words) != 0 ||
	    pthread_create(&thread, NULL, pass_in_thread, (void *)words) != 0 || pipe(ends) != 0)
		return 1;
	words[READY] = 1;
	if (words[IS_MAIN_BUSY])
		compute_again_and_again(words, MAIN);
	/* Nothing ends this. */
	if (read(ends[0], &byte, 1) != 1)
		++words[WRONG];
	return 1;
}

/* ---- after a kill ---- */

static long kill_at; /* the step of the tool at which it is killed; 0: none */

static void check_thread(pid_t tid)
{
	char state = 0;
	int policy = 0;

	/* The guardian comes a moment later. */
	for (int i = 0; i < 60000; i++) {
		state = target_state(tid);
		policy = sched_getscheduler(tid);
		if (strchr("RSD", state) && policy == SCHED_OTHER)
			return;
		target_rest_ms(1);
	}
	fail_msg("step %ld: thread %d has state %c, policy %d", kill_at, tid, state, policy);
}

static void check_target(pid_t pid, _Atomic long *words)
{
	pid_t *tids;
	size_t count;
	long before[THREADS_END];

	assert_int_equal(hl_process_threads(pid, &tids, &count), 0);
	assert_int_equal(count, 4);
	for (size_t i = 0; i < count; i++)
		check_thread(tids[i]);
	free(tids);
	for (int i = 0; i < THREADS_END; i++)
		before[i] = words[i];
	for (int i = 0; i < THREADS_END; i++)
		if (i != MAIN || words[IS_MAIN_BUSY])
			target_await(&words[i], before[i] + 1);
	if (words[WRONG])
		fail_msg("step %ld: the target went wrong", kill_at);
}

/* Enters the target in a process of its own. Its exit status, or -1 when it was killed. */
static int run_tool(pid_t pid, _Atomic long *words, long kill_after_us)
{
	pid_t tool = fork();

	if (tool == 0) {
		kill_at_step(kill_at);
		_exit(use(pid, words));
	}
	if (kill_after_us) {
		usleep((useconds_t)kill_after_us);
		kill(tool, SIGKILL);
	}
	return target_end(tool);
}

static void kill_at_each_step(long is_main_busy)
{
	_Atomic long *words = target_words();
	int status = -1;

	words[IS_MAIN_BUSY] = is_main_busy;
	pid_t pid = target_start(live, words);
	target_await(&words[READY], 1);
	for (kill_at = 1; status == -1; kill_at += IS_SANITIZED ? 7 : 1) {
		status = run_tool(pid, words, 0);
		check_target(pid, words);
	}
	assert_int_equal(status, 0);
	assert_true(kill_at > 100);
	print_message("%ld steps\n", kill_at - 1);
	kill_at = 0;
	for (int i = 0; i < RANDOM_KILLS; i++) {
		status = run_tool(pid, words, 1 + i * 7919 % 5000);
		assert_true(status == -1 || status == 0);
		check_target(pid, words);
	}
	assert_int_equal(run_tool(pid, words, 0), 0);
	assert_int_equal(words[PATCHED], 1);
	check_target(pid, words);
	target_kill(pid);
}

static void a_target_that_waits_outlives_the_tool(void **state)
{
	(void)state;
	kill_at_each_step(0);
}

static void a_target_that_computes_outlives_the_tool(void **state)
{
	(void)state;
	kill_at_each_step(1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_target_that_waits_outlives_the_tool),
		cmocka_unit_test(a_target_that_computes_outlives_the_tool),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
