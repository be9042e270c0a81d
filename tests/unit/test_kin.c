/* SPDX-License-Identifier: BSD-2-Clause */
/* What a forked child writes into its parent's region and inherits, and how threads wait for each other. */
#include "recorder/start.h"

#include "base/seccomp.h"
#include "recorder/hooks.h"
#include "recorder/recorder.h"
#include "recorder/spin.h"
#include "region/protocol.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* Of a recording that begins; none does here. */
bool hl_hooks_reach_program(void)
{
	return true;
}

void hl_hooks_mapping_record(bool wanted)
{
	(void)wanted;
}

static void a_child_whose_exec_failed_is_awaited_again(void **state)
{
	size_t bytes = HL_REGION_HEAD + 8192;
	struct hl_region_header *header =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_ptr_not_equal(header, MAP_FAILED);
	header->flags = HL_REGION_FOLLOW;
	header->pid = (uint32_t)getppid();
	hl_kin_take(header, bytes);
	hl_kin_count_forked();
	hl_kin_enter_child();
	for (int i = 0; i < 2; i++) {
		struct hl_kin_exec exec = hl_kin_begin_exec("program", -1);
		assert_int_equal(header->kin.awaited, 0);
		assert_int_equal(header->kin.started, 1);
		hl_kin_fail_exec(exec);
		assert_int_equal(header->kin.awaited, 1);
		assert_int_equal(header->kin.started, 0);
	}
	hl_kin_count_unrecorded();
	assert_int_equal(header->kin.awaited, 0);
	assert_int_equal(header->kin.unrecorded, 1);
}

static void a_child_makes_none_of_its_parent_s_calls(void **state)
{
	int status;
	char *environment[] = {HL_ENV_SOCKET "=none",
			       HL_ENV_TOKEN "=0123456789abcdef0123456789abcdef", NULL};

	(void)state;
	hl_start(environment);
	assert_non_null(hl_recorder);
	atomic_fetch_add(&hl_seccomp_calling, 3); /* of other threads */
	pid_t child = fork();
	if (child == 0)
		_exit(atomic_load(&hl_seccomp_calling) ? EXIT_FAILURE : EXIT_SUCCESS);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(atomic_load(&hl_seccomp_calling), 3);
}

static _Atomic uint32_t lock;
static _Atomic long waiter_tid;

static void *wait_for_lock(void *unused)
{
	(void)unused;
	atomic_store(&waiter_tid, syscall(SYS_gettid));
	hl_spin_lock(&lock);
	hl_spin_unlock(&lock);
	return NULL;
}

/* How often the kernel says that the waiter has slept; a yield is another kind of switch. */
static long sleeps_of_waiter(void)
{
	char path[64], line[256];
	long count = 0;

	snprintf(path, sizeof(path), "/proc/self/task/%ld/status", atomic_load(&waiter_tid));
	FILE *file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "voluntary_ctxt_switches: %ld", &count);
	if (file)
		fclose(file);
	return count;
}

/* Threads with a real-time priority yield to none that has less, and the holder may be one. */
static void who_waits_long_for_a_lock_sleeps(void **state)
{
	pthread_t waiter;

	(void)state;
	hl_spin_lock(&lock);
	assert_int_equal(pthread_create(&waiter, NULL, wait_for_lock, NULL), 0);
	for (time_t end = time(NULL) + 60; sleeps_of_waiter() < 100 && time(NULL) < end;)
		usleep(1000);
	long sleeps = sleeps_of_waiter();
	hl_spin_unlock(&lock);
	pthread_join(waiter, NULL);
	assert_true(sleeps >= 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_child_whose_exec_failed_is_awaited_again),
		cmocka_unit_test(a_child_makes_none_of_its_parent_s_calls),
		cmocka_unit_test(who_waits_long_for_a_lock_sleeps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
