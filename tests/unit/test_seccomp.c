/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel says of random filters and calls what the interpreter says; filters of processes are
 * read, and do not stand in the way of remote calls. */
#include "base/seccomp.h"
#include "hook/remote.h"

#include "base/compiler.h"
#include "recorder/sys.h"
#include "remote_target.h"

#include <linux/audit.h>
#include <linux/prctl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include <cmocka.h>

#define NO_SUCH_CALL 1000 /* a filter is asked before the kernel looks for it */
#define LENGTH	     40u
#define PROGRAMS     300
#define CALLS	     20

static uint64_t seed = 4711;

static uint32_t draw(uint32_t below)
{
	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(seed >> 33) % below;
}

/* Small numbers meet each other more often than large ones. */
static uint32_t draw_operand(void)
{
	return draw(2) ? draw(8) : draw(UINT32_MAX);
}

/* Nothing reads the address of the call, which the test does not know. */
static uint32_t draw_offset(void)
{
	static const uint32_t offsets[] = {0, 4, 16, 20, 24, 28, 32, 40, 60};

	return offsets[draw(HL_COUNT_OF(offsets))];
}

static struct sock_filter draw_instruction(uint32_t left)
{
	static const uint16_t operations[] = {BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_OR,
					      BPF_AND, BPF_XOR, BPF_LSH, BPF_RSH, BPF_NEG};
	static const uint16_t conditions[] = {BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET};
	uint16_t source = draw(2) ? BPF_X : BPF_K, operation;

	switch (draw(left > 2 ? 10 : 8)) {
	case 0:
	case 1:
		return (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, draw_offset());
	case 2:
		return (struct sock_filter)BPF_STMT(BPF_LD | BPF_IMM, draw_operand());
	case 3:
		return (struct sock_filter)BPF_STMT(
			draw(2) ? BPF_LD | BPF_W | BPF_LEN : BPF_LDX | BPF_W | BPF_LEN, 0);
	case 4:
		return (struct sock_filter)BPF_STMT(draw(2) ? BPF_ST : BPF_STX, draw(BPF_MEMWORDS));
	case 5:
		return (struct sock_filter)BPF_STMT(BPF_LDX | BPF_IMM, draw_operand());
	case 6:
		return (struct sock_filter)BPF_STMT(
			draw(2) ? BPF_MISC | BPF_TAX : BPF_MISC | BPF_TXA, 0);
	case 7:
		operation = operations[draw(HL_COUNT_OF(operations))];
		/* The kernel refuses constants that are never right. */
		if (operation == BPF_LSH || operation == BPF_RSH)
			return (struct sock_filter)BPF_STMT(BPF_ALU | operation | BPF_K, draw(32));
		if (operation == BPF_DIV)
			return (struct sock_filter)BPF_STMT(BPF_ALU | operation | BPF_K,
							    draw(1000) + 1);
		if (operation == BPF_NEG)
			source = BPF_K;
		return (struct sock_filter)BPF_STMT(BPF_ALU | operation | source, draw_operand());
	case 8:
		return (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, draw(left - 1));
	default:
		operation = conditions[draw(HL_COUNT_OF(conditions))];
		return (struct sock_filter)BPF_JUMP(BPF_JMP | operation | source, draw_operand(),
						    (uint8_t)draw(left - 1),
						    (uint8_t)draw(left - 1));
	}
}

/* Memory words are written before anything, as the kernel demands of those that are read. Ends by
 * failing the call with an error made of the accumulator, if it is not that of the tests. */
static void draw_filter(struct sock_filter *filter)
{
	static const struct sock_filter end[] = {
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x7ff),
		BPF_STMT(BPF_ALU | BPF_OR | BPF_K, SECCOMP_RET_ERRNO),
		BPF_STMT(BPF_RET | BPF_A, 0),
	};
	/* Only the call of the tests; others, such as exit_group(), go on. */
	static const struct sock_filter begin[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NO_SUCH_CALL, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_ST, 3),
		BPF_STMT(BPF_STX, 5),
	};
	uint32_t at = 0;

	memcpy(filter, begin, sizeof(begin));
	for (at = HL_COUNT_OF(begin); at < LENGTH - HL_COUNT_OF(end); at++) {
		filter[at] = draw_instruction(LENGTH - (uint32_t)HL_COUNT_OF(end) - at);
		if (draw(8) == 0)
			filter[at] = (struct sock_filter)BPF_STMT(
				draw(2) ? BPF_LD | BPF_MEM : BPF_LDX | BPF_MEM, draw(2) ? 3 : 5);
	}
	memcpy(filter + at, end, sizeof(end));
}

static int install(const struct sock_filter *filter, size_t length)
{
	const struct sock_fprog program = {.len = (unsigned short)length,
					   .filter = (struct sock_filter *)(uintptr_t)filter};

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

/* Runs in a child: the number of the first call of which kernel and interpreter differ, or 0. */
static int compare(const struct sock_filter *filter)
{
	if (install(filter, LENGTH) < 0)
		return 200;
	for (int i = 1; i <= CALLS; i++) {
		struct seccomp_data data = {.nr = NO_SUCH_CALL, .arch = AUDIT_ARCH_X86_64};
		uint32_t action = 0;
		for (size_t j = 0; j < HL_COUNT_OF(data.args); j++)
			data.args[j] = (uint64_t)draw_operand() << 32 | draw_operand();
		if (hl_seccomp_run(filter, LENGTH, &data, &action) < 0)
			return i;
		errno = 0;
		long r = syscall(NO_SUCH_CALL, data.args[0], data.args[1], data.args[2],
				 data.args[3], data.args[4], data.args[5]);
		uint32_t expected = action & SECCOMP_RET_DATA;
		if (expected ? errno != (int)expected || r != -1 : r != 0)
			return i;
	}
	return 0;
}

static void filters_say_what_the_kernel_says(void **state)
{
	(void)state;
	for (int i = 0; i < PROGRAMS; i++) {
		struct sock_filter filter[LENGTH];
		draw_filter(filter);
		pid_t child = fork();
		if (child == 0)
			_exit(compare(filter));
		int differs = target_end(child);
		if (differs)
			fail_msg("filter %d, call %d", i, differs);
	}
}

static void filters_without_sense_are_refused(void **state)
{
	static const struct sock_filter filters[][2] = {
		{BPF_STMT(BPF_LD | BPF_IMM, 1), BPF_STMT(BPF_LD | BPF_IMM, 1)}, /* without end */
		{BPF_STMT(BPF_JMP | BPF_JA, 1), BPF_STMT(BPF_RET | BPF_K, 1)},	/* beyond it */
		{BPF_STMT(BPF_JMP | BPF_JA, UINT32_MAX), BPF_STMT(BPF_RET | BPF_K, 1)},
		{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64), BPF_STMT(BPF_RET | BPF_K, 1)},
		{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, UINT32_MAX), BPF_STMT(BPF_RET | BPF_K, 1)},
		{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 3), BPF_STMT(BPF_RET | BPF_K, 1)},
		{BPF_STMT(BPF_LD | BPF_MEM, 16), BPF_STMT(BPF_RET | BPF_K, 1)},
		{BPF_STMT(BPF_ST, 16), BPF_STMT(BPF_RET | BPF_K, 1)},
		{BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, 1)},
		{BPF_STMT(BPF_ALU | 0xb0, 0), BPF_STMT(BPF_RET | BPF_K, 1)},
		{BPF_STMT(BPF_JMP | 0x60, 0), BPF_STMT(BPF_RET | BPF_K, 1)},
		{BPF_STMT(BPF_LD | BPF_IND, 0), BPF_STMT(BPF_RET | BPF_K, 1)},
	};
	const struct seccomp_data data = {0};
	uint32_t action = 5;

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(filters); i++)
		assert_int_equal(hl_seccomp_run(filters[i], 2, &data, &action), -EINVAL);
	assert_int_equal(hl_seccomp_run(NULL, 0, &data, &action), -EINVAL);
	assert_int_equal(action, 5);
}

/* ---- processes ---- */

#define FORBID(number, action)                                       \
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),                       \
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, (action)), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static const struct sock_filter no_mremap[] = {FORBID(SYS_mremap, SECCOMP_RET_ERRNO | ENOSYS)};
static const struct sock_filter no_getpid[] = {FORBID(SYS_getpid, SECCOMP_RET_KILL_PROCESS)};
static const struct sock_filter no_sigreturn[] = {
	FORBID(SYS_rt_sigreturn, SECCOMP_RET_KILL_PROCESS)};
static const struct sock_filter log_gettid[] = {FORBID(SYS_gettid, SECCOMP_RET_LOG)};

static int sleep_here(_Atomic long *words)
{
	words[0] = 1;
	for (;;)
		pause();
	return 1;
}

static int sleep_filtered(_Atomic long *words)
{
	install(no_getpid, HL_COUNT_OF(no_getpid));
	install(log_gettid, HL_COUNT_OF(log_gettid));
	words[0] = 1;
	for (;;)
		target_rest_ms(1);
	return 1;
}

static void *sleep_thread(void *words)
{
	install(no_mremap, HL_COUNT_OF(no_mremap));
	sleep_filtered(words);
	return NULL;
}

/* Only one thread has a filter against mremap(). */
static int sleep_filtered_by_threads(_Atomic long *words)
{
	pthread_t thread;

	pthread_create(&thread, NULL, sleep_thread, (void *)words);
	for (;;)
		pause();
	return 1;
}

static int sleep_strictly(_Atomic long *words)
{
	words[0] = 1;
	target_rest_ms(1);
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	char byte;
	return (int)read((int)words[1], &byte, 1);
}

static const struct hl_seccomp_call calls[] = {
	{.name = "mmap", .number = SYS_mmap},
	{.name = "gettid", .number = SYS_gettid},
	{.name = "mremap", .number = SYS_mremap},
};

static void need_root(void)
{
	struct hl_process_condition own;

	if (geteuid() != 0 || hl_process_condition_read(getpid(), &own, NULL) < 0 ||
	    own.seccomp_mode)
		skip();
}

static void a_filter_does_not_judge_remote_calls(void **state)
{
	_Atomic long *words = target_words();
	struct hl_remote *remote = NULL;
	struct hl_error err = {0};

	(void)state;
	need_root();
	pid_t pid = target_start(sleep_filtered, words);
	target_await(&words[0], 1);
	if (hl_remote_open(pid, &remote, &err) < 0)
		fail_msg("%s", err.text);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(i % 2 ? hl_remote_stop_all(remote, NULL)
				       : hl_remote_stop_one(remote, NULL),
				 0);
		assert_int_equal(hl_remote_syscall(remote, SYS_getpid, 0, 0, 0, 0, 0, 0), pid);
		hl_remote_continue(remote);
	}
	assert_int_equal(hl_remote_check_calls(remote, calls, HL_COUNT_OF(calls), &err), 0);
	static const struct hl_seccomp_call getpid_call = {.name = "getpid", .number = SYS_getpid};
	assert_int_equal(hl_remote_check_calls(remote, &getpid_call, 1, &err), -EPERM);
	assert_non_null(strstr(err.text, " getpid()"));
	hl_remote_free(remote);
	target_await_state(pid, 'S');
	target_kill(pid);
}

#define STACK_BYTES 65536

static const struct sock_filter no_socket[] = {FORBID(SYS_socket, SECCOMP_RET_ERRNO | EPERM)};

static int sleep_without_socket(_Atomic long *words)
{
	install(no_socket, HL_COUNT_OF(no_socket));
	return sleep_here(words);
}

__attribute__((noinline)) static long call_socket(void)
{
	return hl_sys6(SYS_socket, 1, 1, 0, 0, 0, 0);
}

/* Code of the target runs there, which could do then what the filter forbids. */
static void functions_are_called_under_the_filter(void **state)
{
	_Atomic long *words = target_words();
	struct hl_remote *remote = NULL;
	int32_t result = 0;

	(void)state;
	need_root();
	char *stack =
		mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pid_t pid = target_start(sleep_without_socket, words);
	target_await(&words[0], 1);
	assert_int_equal(hl_remote_open(pid, &remote, NULL), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(hl_remote_stop_one(remote, NULL), 0);
		assert_int_equal(hl_remote_call(remote, (uint64_t)(uintptr_t)call_socket, 0,
						(uint64_t)(uintptr_t)stack + STACK_BYTES, &result),
				 0);
		assert_int_equal(result, -EPERM);
		/* Not so what is called afterwards. */
		long fd = hl_remote_syscall(remote, SYS_socket, 1, 1, 0, 0, 0, 0);
		assert_true(fd >= 0);
		assert_int_equal(hl_remote_syscall(remote, SYS_close, fd, 0, 0, 0, 0, 0), 0);
		hl_remote_continue(remote);
	}
	hl_remote_free(remote);
	target_await_state(pid, 'S');
	target_kill(pid);
	munmap(stack, STACK_BYTES);
}

/* The code that makes system calls lies in memory of the target, which may change it. */
static void another_system_call_than_the_given_is_not_made(void **state)
{
	_Atomic long *words = target_words();
	struct hl_remote *remote = NULL;
	static const uint8_t exit_instead[] = {0xb0, SYS_exit, 0x0f, 0x05, 0xc3};

	(void)state;
	need_root();
	for (int is_filtered = 0; is_filtered < 2; is_filtered++) {
		words[0] = 0;
		pid_t pid = target_start(is_filtered ? sleep_without_socket : sleep_here, words);
		target_await(&words[0], 1);
		assert_int_equal(hl_remote_open(pid, &remote, NULL), 0);
		assert_int_equal(hl_remote_stop_one(remote, NULL), 0);
		assert_true(hl_remote_write(remote, remote->gadgets.syscall, exit_instead,
					    sizeof(exit_instead)));
		assert_int_equal(hl_remote_syscall(remote, SYS_getpid, 0, 0, 0, 0, 0, 0), -ENOEXEC);
		hl_remote_continue(remote);
		hl_remote_free(remote);
		target_await_state(pid, 'S');
		target_kill(pid);
	}
}

static int sleep_without_sigreturn(_Atomic long *words)
{
	install(no_sigreturn, HL_COUNT_OF(no_sigreturn));
	return sleep_filtered(words);
}

static void the_way_back_must_be_permitted(void **state)
{
	_Atomic long *words = target_words();
	struct hl_remote *remote = NULL;
	struct hl_error err = {0};

	(void)state;
	need_root();
	pid_t pid = target_start(sleep_without_sigreturn, words);
	target_await(&words[0], 1);
	assert_int_equal(hl_remote_open(pid, &remote, &err), 0);
	assert_int_equal(hl_remote_check_calls(remote, calls, 1, &err), -EPERM);
	assert_non_null(strstr(err.text, " rt_sigreturn()"));
	hl_remote_free(remote);
	target_kill(pid);
}

static void filters_of_any_thread_count(void **state)
{
	_Atomic long *words = target_words();
	struct hl_remote *remote = NULL;
	struct hl_error err = {0};

	(void)state;
	need_root();
	pid_t pid = target_start(sleep_filtered_by_threads, words);
	target_await(&words[0], 1);
	assert_int_equal(hl_remote_open(pid, &remote, &err), 0);
	assert_int_equal(hl_remote_check_calls(remote, calls, 2, &err), 0);
	assert_int_equal(hl_remote_check_calls(remote, calls, 3, &err), -EPERM);
	assert_non_null(strstr(err.text, " mremap()"));
	hl_remote_free(remote);
	target_kill(pid);
}

static void strict_mode_is_refused(void **state)
{
	_Atomic long *words = target_words();
	struct hl_remote *remote = NULL;
	struct hl_process_condition condition = {0};
	struct hl_error err = {0};
	int ends[2];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	words[1] = ends[0];
	pid_t pid = target_start(sleep_strictly, words);
	target_await(&words[0], 1);
	for (int i = 0; i < 60000 && condition.seccomp_mode != 1; i++)
		hl_process_condition_read(pid, &condition, NULL);
	assert_int_equal(hl_remote_open(pid, &remote, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "seccomp, strict"));
	target_kill(pid);
	close(ends[0]);
	close(ends[1]);
}

/* Whoever could not suspend the filter would have it kill the process. */
static void without_the_capability_a_filter_is_refused(void **state)
{
	_Atomic long *words = target_words();

	(void)state;
	need_root();
	pid_t pid = target_start(sleep_filtered, words);
	target_await(&words[0], 1);
	pid_t tool = fork();
	if (tool == 0) {
		struct hl_remote *remote = NULL;
		struct hl_error err = {0};
		install(log_gettid, HL_COUNT_OF(log_gettid)); /* in a sandbox of its own */
		int r = hl_remote_open(pid, &remote, &err);
		_exit(r == -ENOTSUP && strstr(err.text, "CAP_SYS_ADMIN") ? 0 : 1);
	}
	assert_int_equal(target_end(tool), 0);
	target_await_state(pid, 'S');
	target_kill(pid);
}

static bool may_getpid(void)
{
	return hl_seccomp_may_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

static void every_filter_that_was_noted_is_asked(void **state)
{
	enum { LONGEST = 4096 };
	static struct sock_filter allow_all[LONGEST];

	(void)state;
	for (size_t i = 0; i < LONGEST; i++)
		allow_all[i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	assert_true(may_getpid());
	assert_int_equal(hl_seccomp_note(log_gettid, HL_COUNT_OF(log_gettid)).before, 0);
	assert_true(may_getpid());
	assert_true(hl_sys_gettid() > 0);
	struct hl_seccomp_change change = hl_seccomp_note(no_getpid, HL_COUNT_OF(no_getpid));
	assert_false(may_getpid());
	assert_int_equal(HL_SYS(SYS_getpid, 0, 0, 0), -EPERM);
	assert_true(hl_sys_gettid() > 0);
	assert_true(hl_seccomp_forget(change));
	assert_int_equal(HL_SYS(SYS_getpid, 0, 0, 0), getpid());
	/* Where there is no room for it nothing is known to be permitted, until the kernel refuses it. */
	assert_int_equal(hl_seccomp_note(allow_all, LONGEST).before, 1);
	assert_true(may_getpid());
	change = hl_seccomp_note(allow_all, LONGEST);
	assert_false(may_getpid());
	assert_true(hl_seccomp_forget(change));
	assert_true(may_getpid());
	/* Not if another one has come meanwhile. */
	change = hl_seccomp_note(allow_all, LONGEST);
	hl_seccomp_note(log_gettid, HL_COUNT_OF(log_gettid));
	assert_false(hl_seccomp_forget(change));
	assert_false(may_getpid());
	assert_int_equal(hl_sys_gettid(), 0);
	assert_int_equal(hl_seccomp_calling, 0);
	atomic_store(&hl_seccomp_noted, 0);
}

/* What the kernel would do with the call once it has the filter. */
static _Atomic bool has_kernel, is_killed, is_over;

static void *call_getpid(void *unused)
{
	while (!atomic_load(&is_over))
		if (hl_seccomp_enter(SYS_getpid, 0, 0, 0, 0, 0, 0)) {
			if (atomic_load(&has_kernel))
				atomic_store(&is_killed, true);
			hl_seccomp_leave();
		}
	return unused;
}

static void a_thread_that_has_looked_is_waited_for(void **state)
{
	pthread_t other;

	(void)state;
	assert_int_equal(pthread_create(&other, NULL, call_getpid, NULL), 0);
	for (int i = 0; i < 2000; i++) {
		struct hl_seccomp_change change =
			hl_seccomp_note(no_getpid, HL_COUNT_OF(no_getpid));
		while (atomic_load(&hl_seccomp_calling))
			sched_yield();
		atomic_store(&has_kernel, true);
		sched_yield();
		atomic_store(&has_kernel, false);
		assert_true(hl_seccomp_forget(change));
	}
	atomic_store(&is_over, true);
	pthread_join(other, NULL);
	assert_false(atomic_load(&is_killed));
}

static pthread_barrier_t together;

static void *note_at_once(void *filter)
{
	pthread_barrier_wait(&together);
	hl_seccomp_note(filter, 4096);
	return NULL;
}

static void no_filter_of_two_that_come_at_once_is_missed(void **state)
{
	static struct sock_filter allow_all[4096];

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(allow_all); i++)
		allow_all[i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	pthread_barrier_init(&together, NULL, 2);
	for (int i = 0; i < 2000; i++) {
		pthread_t other;
		atomic_store(&hl_seccomp_noted, 0);
		assert_int_equal(pthread_create(&other, NULL, note_at_once, allow_all), 0);
		note_at_once(allow_all);
		pthread_join(other, NULL);
		uint32_t noted = atomic_load(&hl_seccomp_noted);
		assert_true(noted == 2 || noted >= HL_SECCOMP_NONE_IS_PERMITTED);
	}
	pthread_barrier_destroy(&together);
	atomic_store(&hl_seccomp_noted, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(filters_say_what_the_kernel_says),
		cmocka_unit_test(filters_without_sense_are_refused),
		cmocka_unit_test(a_filter_does_not_judge_remote_calls),
		cmocka_unit_test(functions_are_called_under_the_filter),
		cmocka_unit_test(another_system_call_than_the_given_is_not_made),
		cmocka_unit_test(the_way_back_must_be_permitted),
		cmocka_unit_test(filters_of_any_thread_count),
		cmocka_unit_test(strict_mode_is_refused),
		cmocka_unit_test(without_the_capability_a_filter_is_refused),
		/* The last ones: between them this process makes no call by sys.h. */
		cmocka_unit_test(every_filter_that_was_noted_is_asked),
		cmocka_unit_test(a_thread_that_has_looked_is_waited_for),
		cmocka_unit_test(no_filter_of_two_that_come_at_once_is_missed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
