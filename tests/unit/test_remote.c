/* SPDX-License-Identifier: BSD-2-Clause */
/* Remote calls leave a process as it was: registers, signals, stops, stacks, its end. */
#include "hook/remote.h"

#include "remote_target.h"
#include "sanitized.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <cmocka.h>

#define STACK_BYTES 65536

static _Atomic long *words;

static struct hl_remote *enter(pid_t pid)
{
	struct hl_remote *remote = NULL;
	struct hl_error err = {0};

	if (hl_remote_open(pid, &remote, &err) < 0)
		fail_msg("%s", err.text);
	return remote;
}

static long call_getpid(struct hl_remote *remote)
{
	return hl_remote_syscall(remote, SYS_getpid, 0, 0, 0, 0, 0, 0);
}

static int rest_for_ever(_Atomic long *shared)
{
	shared[0] = 1;
	while (pause())
		;
	return 1;
}

static pid_t start_resting(void)
{
	words[0] = 0;
	pid_t pid = target_start(rest_for_ever, words);
	target_await(&words[0], 1);
	target_await_state(pid, 'S');
	return pid;
}

/* ---- registers ---- */

struct spin_state {
	uint64_t general[14]; /* all but rsp, and rsi, which has the address of the flag */
	uint64_t flags, unused;
	uint8_t vectors[16][32];
	uint32_t mxcsr, end;
};

/* Fills all registers, waits until *${flag} is not 0 without changing any, and stores them. */
void spin(const struct spin_state *from, struct spin_state *to, const _Atomic long *flag);

/* clang-format off */
__asm__(".pushsection .text\n\t.type spin, @function\nspin:\n\t"
	"pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
	"pushq %rsi\n\tpushq %rdx\n\tmovq %rdi, %rsi\n\t"
	"ldmxcsr 640(%rsi)\n\tpushq 112(%rsi)\n\tpopfq\n\t"
	"vmovdqu 128(%rsi), %ymm0\n\tvmovdqu 160(%rsi), %ymm1\n\t"
	"vmovdqu 192(%rsi), %ymm2\n\tvmovdqu 224(%rsi), %ymm3\n\t"
	"vmovdqu 256(%rsi), %ymm4\n\tvmovdqu 288(%rsi), %ymm5\n\t"
	"vmovdqu 320(%rsi), %ymm6\n\tvmovdqu 352(%rsi), %ymm7\n\t"
	"vmovdqu 384(%rsi), %ymm8\n\tvmovdqu 416(%rsi), %ymm9\n\t"
	"vmovdqu 448(%rsi), %ymm10\n\tvmovdqu 480(%rsi), %ymm11\n\t"
	"vmovdqu 512(%rsi), %ymm12\n\tvmovdqu 544(%rsi), %ymm13\n\t"
	"vmovdqu 576(%rsi), %ymm14\n\tvmovdqu 608(%rsi), %ymm15\n\t"
	"movq 0(%rsi), %rax\n\tmovq 8(%rsi), %rbx\n\t"
	"movq 16(%rsi), %rcx\n\tmovq 24(%rsi), %rdx\n\t"
	"movq 32(%rsi), %rdi\n\tmovq 40(%rsi), %rbp\n\t"
	"movq 48(%rsi), %r8\n\tmovq 56(%rsi), %r9\n\t"
	"movq 64(%rsi), %r10\n\tmovq 72(%rsi), %r11\n\t"
	"movq 80(%rsi), %r12\n\tmovq 88(%rsi), %r13\n\t"
	"movq 96(%rsi), %r14\n\tmovq 104(%rsi), %r15\n\t"
	"movq (%rsp), %rsi\n"
	/* No flag is changed from here on. A word lies below the stack, in the red zone. */
	"1:\n\tmovq %rcx, -16(%rsp)\n\tmovq (%rsi), %rcx\n\tjrcxz 2f\n\t"
	"movq -16(%rsp), %rcx\n\tjmp 3f\n"
	"2:\n\tmovq -16(%rsp), %rcx\n\tjmp 1b\n"
	"3:\n\tmovq 8(%rsp), %rsi\n\t"
	"movq %rax, 0(%rsi)\n\tmovq %rbx, 8(%rsi)\n\t"
	"movq %rcx, 16(%rsi)\n\tmovq %rdx, 24(%rsi)\n\t"
	"movq %rdi, 32(%rsi)\n\tmovq %rbp, 40(%rsi)\n\t"
	"movq %r8, 48(%rsi)\n\tmovq %r9, 56(%rsi)\n\t"
	"movq %r10, 64(%rsi)\n\tmovq %r11, 72(%rsi)\n\t"
	"movq %r12, 80(%rsi)\n\tmovq %r13, 88(%rsi)\n\t"
	"movq %r14, 96(%rsi)\n\tmovq %r15, 104(%rsi)\n\t"
	"pushfq\n\tpopq 112(%rsi)\n\tcld\n\t"
	"vmovdqu %ymm0, 128(%rsi)\n\tvmovdqu %ymm1, 160(%rsi)\n\t"
	"vmovdqu %ymm2, 192(%rsi)\n\tvmovdqu %ymm3, 224(%rsi)\n\t"
	"vmovdqu %ymm4, 256(%rsi)\n\tvmovdqu %ymm5, 288(%rsi)\n\t"
	"vmovdqu %ymm6, 320(%rsi)\n\tvmovdqu %ymm7, 352(%rsi)\n\t"
	"vmovdqu %ymm8, 384(%rsi)\n\tvmovdqu %ymm9, 416(%rsi)\n\t"
	"vmovdqu %ymm10, 448(%rsi)\n\tvmovdqu %ymm11, 480(%rsi)\n\t"
	"vmovdqu %ymm12, 512(%rsi)\n\tvmovdqu %ymm13, 544(%rsi)\n\t"
	"vmovdqu %ymm14, 576(%rsi)\n\tvmovdqu %ymm15, 608(%rsi)\n\t"
	"stmxcsr 640(%rsi)\n\tvzeroupper\n\taddq $16, %rsp\n\t"
	"popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tret\n\t"
	".size spin, .-spin\n\t.popsection");
/* clang-format on */

static struct spin_state spin_before;

static int spin_and_compare(_Atomic long *shared)
{
	struct spin_state after = {0};
	uint8_t *bytes = (uint8_t *)&spin_before;

	for (size_t i = 0; i < sizeof(spin_before); i++)
		bytes[i] = (uint8_t)(i * 37 + 11);
	spin_before.flags = 0xed7; /* all that a program may set but the trap flag */
	spin_before.unused = 0;
	spin_before.mxcsr = 0xffbf; /* flush to zero, round to zero, all exceptions seen */
	shared[0] = 1;
	spin(&spin_before, &after, &shared[1]);
	return memcmp(&spin_before, &after, offsetof(struct spin_state, end)) != 0;
}

/* Called in the target, it leaves no register that it may change as it was. */
__attribute__((noinline)) static long change_registers(long argument)
{
	__asm__ volatile("vzeroall\n\tmovq $-1, %%rax\n\tmovq %%rax, %%xmm3\n\tfninit" ::
				 : "rax", "memory");
	return argument * -3;
}

static void registers_are_the_same_after_calls(void **state)
{
	(void)state;
	if (!__builtin_cpu_supports("avx"))
		skip();
	words[0] = words[1] = 0;
	void *stack =
		mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(stack != MAP_FAILED);
	pid_t pid = target_start(spin_and_compare, words);
	target_await(&words[0], 1);
	struct hl_remote *remote = enter(pid);
	for (int i = 0; i < 1000; i++) {
		int32_t result = 0;
		assert_int_equal(hl_remote_stop_one(remote, NULL), 0);
		assert_int_equal(call_getpid(remote), pid);
		assert_int_equal(hl_remote_call(remote, (uint64_t)(uintptr_t)change_registers, 7,
						(uint64_t)(uintptr_t)stack + STACK_BYTES, &result),
				 0);
		assert_int_equal(result, -21);
		assert_int_equal(call_getpid(remote), pid);
		hl_remote_continue(remote);
		assert_int_equal(hl_remote_stop_all(remote, NULL), 0);
		hl_remote_continue(remote);
	}
	hl_remote_free(remote);
	words[1] = 1;
	assert_int_equal(target_end(pid), 0);
	munmap(stack, STACK_BYTES);
}

/* Of the frame that a thread is left with when heapline dies. */
static void a_thread_restores_itself(void **state)
{
	(void)state;
	if (!__builtin_cpu_supports("avx"))
		skip();
	void *stack =
		mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int kind = 0; kind < 4; kind++) {
		words[0] = words[1] = 0;
		pid_t pid = target_start(spin_and_compare, words);
		target_await(&words[0], 1);
		pid_t tool = fork();
		if (tool == 0) {
			struct hl_remote *remote = NULL;
			int32_t result;
			if (hl_remote_open(pid, &remote, NULL) < 0 ||
			    hl_remote_stop_one(remote, NULL) < 0)
				_exit(1);
			if (kind & 1)
				call_getpid(remote);
			if (kind & 2)
				hl_remote_call(remote, (uint64_t)(uintptr_t)change_registers, 7,
					       (uint64_t)(uintptr_t)stack + STACK_BYTES, &result);
			kill(getpid(), SIGKILL);
		}
		assert_int_equal(target_end(tool), -1);
		target_rest_ms(20);
		words[1] = 1;
		assert_int_equal(target_end(pid), 0);
	}
	munmap(stack, STACK_BYTES);
}

/* ---- calls ---- */

static void calls_return_what_the_kernel_says(void **state)
{
	(void)state;
	pid_t pid = start_resting();
	struct hl_remote *remote = enter(pid);
	assert_int_equal(hl_remote_stop_one(remote, NULL), 0);
	assert_int_equal(call_getpid(remote), pid);
	assert_int_equal(hl_remote_syscall(remote, SYS_close, -1, 0, 0, 0, 0, 0), -EBADF);
	assert_int_equal(hl_remote_syscall(remote, SYS_prctl, PR_SET_NAME, 1, 0, 0, 0, 0), -EFAULT);
	assert_int_equal(hl_remote_syscall(remote, 1000, 0, 0, 0, 0, 0, 0), -ENOSYS);
	long address = hl_remote_syscall(remote, SYS_mmap, 0, STACK_BYTES, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(address > 0);
	assert_true(hl_remote_write(remote, (uint64_t)address, "name", 5));
	assert_int_equal(hl_remote_syscall(remote, SYS_prctl, PR_SET_NAME, address, 0, 0, 0, 0), 0);
	assert_int_equal(hl_remote_syscall(remote, SYS_munmap, address, STACK_BYTES, 0, 0, 0, 0),
			 0);
	assert_false(hl_remote_write(remote, (uint64_t)address, "name", 5));
	hl_remote_continue(remote);
	assert_true(hl_remote_stopped_us(remote) > 0);
	hl_remote_free(remote);
	struct hl_process_facts facts;
	assert_int_equal(hl_process_facts_read(pid, &facts, NULL), 0);
	assert_string_equal(facts.comm, "name");
	hl_process_facts_release(&facts);
	target_kill(pid);
}

__attribute__((no_sanitize("all"), noinline)) static long crash(long argument)
{
	*(volatile long *)argument = 1;
	return 1;
}

static int recover_from_fault(_Atomic long *shared);

static void functions_that_crash_are_ended(void **state)
{
	(void)state;
	words[0] = words[1] = words[2] = words[3] = 0;
	pid_t pid = target_start(recover_from_fault, words);
	target_await(&words[0], 1);
	struct hl_remote *remote = enter(pid);
	int32_t result = 5;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(hl_remote_stop_one(remote, NULL), 0);
		long stack =
			hl_remote_syscall(remote, SYS_mmap, 0, STACK_BYTES, PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert_true(stack > 0);
		assert_int_equal(hl_remote_call(remote, (uint64_t)(uintptr_t)crash, 8,
						(uint64_t)stack + STACK_BYTES, &result),
				 -EFAULT);
		assert_int_equal(result, 5);
		assert_int_equal(call_getpid(remote), pid);
		hl_remote_continue(remote);
	}
	hl_remote_free(remote);
	assert_int_equal(words[2], 0);
	words[1] = 1;
	assert_int_equal(target_end(pid), 0);
	assert_int_equal(words[2], 1);
}

static sigjmp_buf recovery;
static _Atomic long *caught;

static void catch_fault(int number)
{
	(void)number;
	++*caught;
	siglongjmp(recovery, 1);
}

/* Waits for word 1, and then takes a fault of its own: its handler must be there still. */
static int recover_from_fault(_Atomic long *shared)
{
	caught = &shared[2];
	signal(SIGSEGV, catch_fault);
	shared[0] = 1;
	while (!shared[1])
		target_rest_ms(1);
	if (sigsetjmp(recovery, 1) == 0)
		crash(8 + shared[3]);
	return shared[2] != 1;
}

/* ---- signals ---- */

static _Atomic long *received;

static void receive(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	/* In order, and none twice. */
	if (info->si_value.sival_int == received[2])
		++received[2];
	else
		++received[3];
}

static int receive_signals(_Atomic long *shared)
{
	struct sigaction action = {.sa_sigaction = receive, .sa_flags = SA_SIGINFO};

	received = shared;
	sigaction(SIGRTMIN, &action, NULL);
	shared[0] = 1;
	while (!shared[1])
		poll(NULL, 0, 1);
	return 0;
}

static void signals_are_received_once_and_in_order(void **state)
{
	enum { COUNT = 300 };

	(void)state;
	for (int i = 0; i < 4; i++)
		words[i] = 0;
	pid_t pid = target_start(receive_signals, words);
	target_await(&words[0], 1);
	struct hl_remote *remote = enter(pid);
	for (int i = 0; i < COUNT; i++) {
		const union sigval value = {.sival_int = i};
		if (i % 3 == 0)
			sigqueue(pid, SIGRTMIN, value);
		assert_int_equal(i % 2 ? hl_remote_stop_one(remote, NULL)
				       : hl_remote_stop_all(remote, NULL),
				 0);
		if (i % 3 == 1)
			sigqueue(pid, SIGRTMIN, value);
		assert_int_equal(call_getpid(remote), pid);
		if (i % 3 == 2)
			sigqueue(pid, SIGRTMIN, value);
		assert_int_equal(call_getpid(remote), pid);
		hl_remote_continue(remote);
	}
	hl_remote_free(remote);
	target_await(&words[2], COUNT);
	assert_int_equal(words[3], 0);
	words[1] = 1;
	assert_int_equal(target_end(pid), 0);
}

/* A process that stopped before, one that stops meanwhile, and one that is continued meanwhile. */
static void stops_by_signal_are_kept(void **state)
{
	(void)state;
	pid_t pid = start_resting();
	struct hl_remote *remote = enter(pid);
	for (int i = 0; i < 50; i++) {
		assert_int_equal(i % 2 ? hl_remote_stop_one(remote, NULL)
				       : hl_remote_stop_all(remote, NULL),
				 0);
		kill(pid, SIGSTOP);
		assert_int_equal(call_getpid(remote), pid);
		hl_remote_continue(remote);
		target_await_state(pid, 'T');
		assert_int_equal(hl_remote_stop_one(remote, NULL), 0);
		assert_int_equal(call_getpid(remote), pid);
		hl_remote_continue(remote);
		target_await_state(pid, 'T');
		assert_int_equal(hl_remote_stop_all(remote, NULL), 0);
		assert_int_equal(call_getpid(remote), pid);
		if (i % 4 < 2)
			kill(pid, SIGCONT);
		hl_remote_continue(remote);
		if (i % 4 >= 2)
			kill(pid, SIGCONT);
		target_await_state(pid, 'S');
	}
	hl_remote_free(remote);
	target_kill(pid);
}

/* ---- ends ---- */

static int exit_soon(_Atomic long *shared)
{
	shared[0] = 1;
	while (!shared[1])
		target_rest_ms(1);
	return 42;
}

int __real_hl_remote_check_state(pid_t tid);
int __wrap_hl_remote_check_state(pid_t tid);
static int refusals, refusal, looks;

int __wrap_hl_remote_check_state(pid_t tid)
{
	return looks++ < refusals ? refusal : __real_hl_remote_check_state(tid);
}

static void a_thread_with_a_shadow_stack_is_stopped_once(void **state)
{
	struct hl_error err = {0};

	(void)state;
	pid_t pid = start_resting();
	struct hl_remote *remote = enter(pid);
	refusals = INT32_MAX, refusal = -ENOTSUP, looks = 0;
	assert_int_equal(hl_remote_stop_one(remote, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "shadow stacks"));
	assert_int_equal(looks, 1);
	refusals = 2, refusal = -EINPROGRESS, looks = 0; /* streaming mode ends */
	assert_int_equal(hl_remote_stop_one(remote, NULL), 0);
	assert_int_equal(looks, 3);
	refusals = 0;
	hl_remote_continue(remote);
	hl_remote_free(remote);
	target_kill(pid);
}

static void the_end_of_a_process_is_noticed(void **state)
{
	struct hl_error err = {0};

	(void)state;
	pid_t pid = start_resting();
	struct hl_remote *remote = enter(pid);
	assert_int_equal(hl_remote_stop_one(remote, NULL), 0);
	kill(pid, SIGKILL);
	assert_int_equal(call_getpid(remote), -ESRCH);
	hl_remote_continue(remote);
	assert_int_equal(hl_remote_stop_one(remote, &err), -ESRCH);
	assert_non_null(strstr(err.text, "has ended"));
	assert_int_equal(hl_remote_stop_all(remote, NULL), -ESRCH);
	hl_remote_free(remote);
	assert_int_equal(target_end(pid), -1);

	/* Whoever started it learns its status, though we traced it. */
	words[0] = words[1] = 0;
	pid = target_start(exit_soon, words);
	target_await(&words[0], 1);
	remote = enter(pid);
	assert_int_equal(hl_remote_stop_all(remote, NULL), 0);
	words[1] = 1;
	hl_remote_continue(remote);
	hl_remote_free(remote);
	assert_int_equal(target_end(pid), 42);
}

static int become_sleep(_Atomic long *shared)
{
	shared[0] = 1;
	while (!shared[1])
		target_rest_ms(1);
	execl("/bin/sleep", "sleep", "600", NULL);
	return 1;
}

static void another_program_is_not_touched(void **state)
{
	uint64_t word;

	(void)state;
	words[0] = words[1] = 0;
	pid_t pid = target_start(become_sleep, words);
	target_await(&words[0], 1);
	struct hl_remote *remote = enter(pid);
	assert_true(hl_remote_read(remote, (uint64_t)(uintptr_t)words, &word, sizeof(word)));
	words[1] = 1;
	struct hl_process_facts facts = {0};
	for (int i = 0; i < 60000 && strcmp(facts.comm, "sleep") != 0; i++) {
		hl_process_facts_release(&facts);
		assert_int_equal(hl_process_facts_read(pid, &facts, NULL), 0);
	}
	hl_process_facts_release(&facts);
	target_await_state(pid, 'S');
	assert_false(hl_remote_read(remote, (uint64_t)(uintptr_t)words, &word, sizeof(word)));
	assert_true(hl_remote_stop_one(remote, NULL) < 0);
	hl_remote_free(remote);
	target_await_state(pid, 'S');
	target_kill(pid);
}

/* ---- stacks ---- */

#define COROUTINE_BYTES (IS_SANITIZED ? 65536 : 8192)

static _Atomic long *coroutine_words;
static ucontext_t coroutine_caller;
static uint8_t *coroutine_stack;

/* Leaves bytes below its stack that a frame there would change. */
static void coroutine(void)
{
	coroutine_words[0] = 1;
	while (!coroutine_words[1])
		;
}

static int run_coroutine(_Atomic long *shared)
{
	ucontext_t context;

	coroutine_words = shared;
	coroutine_stack = mmap(NULL, 3 * COROUTINE_BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(coroutine_stack, 0xaa, 3 * COROUTINE_BYTES);
	getcontext(&context);
	context.uc_stack.ss_sp = coroutine_stack + COROUTINE_BYTES;
	context.uc_stack.ss_size = COROUTINE_BYTES;
	context.uc_link = &coroutine_caller;
	makecontext(&context, coroutine, 0);
	swapcontext(&coroutine_caller, &context);
	/* All but what the coroutine itself used, at the top of its stack. */
	for (size_t i = 0; i < 2 * COROUTINE_BYTES - 1024; i++)
		if (coroutine_stack[i] != 0xaa)
			return 1;
	return 0;
}

static void stacks_of_coroutines_are_not_used(void **state)
{
	(void)state;
	words[0] = words[1] = 0;
	pid_t pid = target_start(run_coroutine, words);
	target_await(&words[0], 1);
	struct hl_remote *remote = enter(pid);
	for (int i = 0; i < 20; i++) {
		struct hl_error err = {0};
		if (hl_remote_stop_one(remote, &err) < 0)
			fail_msg("%s", err.text);
		assert_int_equal(call_getpid(remote), pid);
		hl_remote_continue(remote);
	}
	hl_remote_free(remote);
	words[1] = 1;
	assert_int_equal(target_end(pid), 0);
}

/* ---- restartable sequences ---- */

#if defined(__GLIBC__) && __has_include(<sys/rseq.h>)
#include <sys/rseq.h>

/* Stays in a critical section, whose address it sets, until the kernel aborts that. */
void stay_in_section(uint64_t *rseq_cs);
__asm__(".pushsection .data.rel.ro, \"aw\"\n\t.align 32\n"
	"section_of_test:\n\t.long 0, 0\n\t.quad 1f, 2f - 1f, 3f\n\t.popsection\n\t"
	".pushsection .text\n\t.type stay_in_section, @function\n"
	"stay_in_section:\n\tleaq section_of_test(%rip), %rax\n\tmovq %rax, (%rdi)\n"
	"1:\n\tpause\n\tjmp 1b\n"
	"2:\n\t.byte 0x0f, 0xb9, 0x3d\n\t.long 0x53053053\n" /* its signature, see rseq(2) */
	"3:\n\tret\n\t.size stay_in_section, .-stay_in_section\n\t.popsection");

static int enter_sections(_Atomic long *shared)
{
	char *rseq = (char *)__builtin_thread_pointer() + __rseq_offset;

	for (shared[0] = 1;; ++shared[1])
		stay_in_section((uint64_t *)(void *)(rseq + offsetof(struct rseq, rseq_cs)));
	return 1;
}

/* The kernel forgets the section once the thread has run elsewhere: without our help it would stay
 * there for ever. */
static void critical_sections_are_aborted(void **state)
{
	(void)state;
	if (!__rseq_size)
		skip();
	words[0] = words[1] = 0;
	pid_t pid = target_start(enter_sections, words);
	target_await(&words[0], 1);
	struct hl_remote *remote = enter(pid);
	for (int i = 0; i < 50; i++) {
		assert_int_equal(hl_remote_stop_one(remote, NULL), 0);
		assert_int_equal(call_getpid(remote), pid);
		hl_remote_continue(remote);
		target_await(&words[1], words[1] + 1);
	}
	hl_remote_free(remote);
	target_kill(pid);
}
#else
static void critical_sections_are_aborted(void **state)
{
	(void)state;
	skip();
}
#endif

/* ---- what cannot be entered ---- */

static int protect_itself(_Atomic long *shared)
{
	prctl(PR_SET_DUMPABLE, 0);
	return rest_for_ever(shared);
}

static void root_enters_what_is_protected(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	words[0] = 0;
	pid_t pid = target_start(protect_itself, words);
	target_await(&words[0], 1);
	struct hl_remote *remote = enter(pid);
	assert_int_equal(hl_remote_stop_one(remote, NULL), 0);
	assert_int_equal(call_getpid(remote), pid);
	hl_remote_free(remote);
	target_await_state(pid, 'S');
	target_kill(pid);
}

static void what_cannot_be_entered_is_refused(void **state)
{
	struct hl_remote *remote = NULL;
	struct hl_error err = {0};

	(void)state;
	assert_int_equal(hl_remote_open(getpid(), &remote, &err), -EINVAL);
	err.text[0] = '\0';
	assert_int_equal(hl_remote_open(INT32_MAX, &remote, &err), -ESRCH);
	assert_null(remote);
	hl_remote_free(NULL);
}

static int set_up(void **state)
{
	(void)state;
	words = target_words();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registers_are_the_same_after_calls),
		cmocka_unit_test(a_thread_restores_itself),
		cmocka_unit_test(calls_return_what_the_kernel_says),
		cmocka_unit_test(functions_that_crash_are_ended),
		cmocka_unit_test(signals_are_received_once_and_in_order),
		cmocka_unit_test(stops_by_signal_are_kept),
		cmocka_unit_test(a_thread_with_a_shadow_stack_is_stopped_once),
		cmocka_unit_test(the_end_of_a_process_is_noticed),
		cmocka_unit_test(another_program_is_not_touched),
		cmocka_unit_test(stacks_of_coroutines_are_not_used),
		cmocka_unit_test(critical_sections_are_aborted),
		cmocka_unit_test(root_enters_what_is_protected),
		cmocka_unit_test(what_cannot_be_entered_is_refused),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
