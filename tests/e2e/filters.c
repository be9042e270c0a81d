/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Forbids itself system calls, and allocates on.
 *
 *	filters WAY ACTION WHAT [wait]
 *
 * WAY: prctl, thread (the same, on a small stack, below which others can be read), syscall (seccomp(2)), tsync (the same for all threads), syscall-prctl, instruction (libc is not asked), or none, where only filters that the kernel
 * refuses are tried. ACTION: kill, trap
 * or errno. WHAT: memory (calls for memory but brk(2), and gettid(2)), most (all but what this program needs), strict (the mode without a
 * filter; needs ACTION kill). With another thread that waits from before on, and, unless WHAT is strict, one that begins afterwards.
 *
 * Writes "ready", waits for a line on its standard input, and allocates by before(), after(), deep() and by_thread(), in
 * BEFORE, AFTER, DEEP and BY_THREAD blocks. With the last word it writes "installed" and waits once more in between. Ends without a byte in use but those of before(). The exit status is that of a
 * program whose calls all did what they should.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "machine.h"
#include "program.h"

#define BEFORE	    1000
#define AFTER	    40000
#define DEPTH	    300
#define BY_THREAD   2000
#define STACK_BYTES (1 << 20)
#define SMALL_BYTES (64 << 10)
#define GUARD_BYTES 4096
#define HEAP_BYTES  (64 << 20)

static void *blocks[AFTER];
static sem_t go, done, never;

static SITE void before(void)
{
	for (int i = 0; i < BEFORE; i++)
		blocks[i] = malloc(64);
	BARRIER();
}

static SITE void after(void)
{
	for (int i = 0; i < AFTER; i++)
		blocks[i] = malloc(100 + (size_t)i % 1000);
	for (int i = 0; i < AFTER; i++)
		free(blocks[i]);
	BARRIER();
}

/* Each depth is a stack that was not seen before. */
static SITE void deep(int depth)
{
	void *block = malloc(32);

	if (depth)
		deep(depth - 1);
	free(block);
	BARRIER();
}

static SITE void by_thread(void)
{
	for (int i = 0; i < BY_THREAD; i++)
		free(malloc(48));
	BARRIER();
}

static void *run_early(void *unused)
{
	void *block = malloc(1);

	sem_post(&done);
	sem_wait(&go);
	free(block);
	by_thread();
	sem_post(&done);
	/* As it ended it would give its stack back. */
	sem_wait(&never);
	return unused;
}

static void *run_late(void *unused)
{
	by_thread();
	return unused;
}

#define CALL(number, verdict) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##number, 0, 1), BPF_STMT(BPF_RET | BPF_K, verdict)
#define PERMIT(number) CALL(number, SECCOMP_RET_ALLOW)

static long install_by(const char *way, struct sock_filter *code, unsigned short length)
{
	struct sock_fprog program = {length, code};

	if (!strcmp(way, "prctl") || !strcmp(way, "thread"))
		return prctl(PR_SET_SECCOMP, code ? SECCOMP_MODE_FILTER : SECCOMP_MODE_STRICT,
			     &program);
	unsigned operation = code ? SECCOMP_SET_MODE_FILTER : SECCOMP_SET_MODE_STRICT;
	if (!strcmp(way, "syscall-prctl"))
		return syscall(SYS_prctl, PR_SET_SECCOMP,
			       code ? SECCOMP_MODE_FILTER : SECCOMP_MODE_STRICT, &program, 0, 0);
	if (strcmp(way, "instruction") != 0)
		return syscall(SYS_seccomp, operation,
			       strcmp(way, "tsync") ? 0 : SECCOMP_FILTER_FLAG_TSYNC,
			       code ? &program : NULL);
	return call_by_instruction(SYS_seccomp, operation, 0, (long)(code ? &program : NULL));
}

static void install(const char *way, unsigned verdict, const char *what)
{
	struct sock_filter memory[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		CALL(mmap, verdict),
		CALL(munmap, verdict),
		CALL(mremap, verdict),
		CALL(mprotect, verdict),
		CALL(madvise, verdict),
		CALL(gettid, verdict),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_filter most[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		PERMIT(read),
		PERMIT(write),
		PERMIT(brk),
		PERMIT(futex),
		PERMIT(exit),
		PERMIT(exit_group),
		PERMIT(clone),
		PERMIT(clone3),
		PERMIT(rseq),
		PERMIT(set_robust_list),
		PERMIT(rt_sigprocmask),
		BPF_STMT(BPF_RET | BPF_K, verdict),
	};

	/* What a program asks to learn whether the kernel knows filters; and a filter that it refuses. */
	REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) < 0 && errno == EFAULT);
	REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER,
		      &(struct sock_fprog){1, &(struct sock_filter){.code = 0xffff}}) < 0);
	if (!strcmp(way, "none"))
		return;
	REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (!strcmp(what, "strict"))
		REQUIRE(install_by(way, NULL, 0) == 0);
	else if (!strcmp(what, "memory"))
		REQUIRE(install_by(way, memory, sizeof(memory) / sizeof(memory[0])) == 0);
	else
		REQUIRE(install_by(way, most, sizeof(most) / sizeof(most[0])) == 0);
}

static void *run_filtered(void *what)
{
	install("thread", SECCOMP_RET_KILL_PROCESS, what);
	after();
	deep(DEPTH);
	syscall(SYS_exit, 0);
	return NULL;
}

static void run_on_small_stack(char *stack_end, void *what)
{
	pthread_attr_t small_stack;
	pthread_t thread;

	REQUIRE(mprotect(stack_end - SMALL_BYTES - GUARD_BYTES, GUARD_BYTES, PROT_NONE) == 0);
	pthread_attr_init(&small_stack);
	pthread_attr_setstack(&small_stack, stack_end - SMALL_BYTES, SMALL_BYTES);
	REQUIRE(pthread_create(&thread, &small_stack, run_filtered, what) == 0);
	pthread_join(thread, NULL);
	syscall(SYS_exit_group, 0);
}

int main(int argc, char **argv)
{
	static char stack[STACK_BYTES] __attribute__((aligned(4096)));
	bool is_strict = argc >= 4 && !strcmp(argv[3], "strict");
	pthread_attr_t own_stack;
	pthread_t early, late;
	char line;

	REQUIRE(argc >= 4);
	unsigned verdict = !strcmp(argv[2], "kill")   ? SECCOMP_RET_KILL_PROCESS
			   : !strcmp(argv[2], "trap") ? SECCOMP_RET_TRAP
						      : SECCOMP_RET_ERRNO | EPERM;
	/* All from one heap, which is large already. */
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, 2 * HEAP_BYTES);
	mallopt(M_TRIM_THRESHOLD, 2 * HEAP_BYTES);
	free(malloc(HEAP_BYTES));
	pthread_attr_init(&own_stack);
	pthread_attr_setstack(&own_stack, stack, sizeof(stack));
	sem_init(&go, 0, 0);
	sem_init(&done, 0, 0);
	sem_init(&never, 0, 0);
	pthread_create(&early, NULL, run_early, NULL);
	sem_wait(&done);
	REQUIRE(write(STDOUT_FILENO, "ready\n", 6) == 6);
	REQUIRE(read(STDIN_FILENO, &line, 1) == 1);
	before();
	if (is_strict) { /* it could not be ended */
		sem_post(&go);
		sem_post(&never);
		pthread_join(early, NULL);
	}
	if (!strcmp(argv[1], "thread"))
		run_on_small_stack(stack + sizeof(stack), argv[3]);
	install(argv[1], verdict, argv[3]);
	if (argc > 4) {
		REQUIRE(write(STDOUT_FILENO, "installed\n", 10) == 10);
		REQUIRE(read(STDIN_FILENO, &line, 1) == 1);
	}
	after();
	deep(DEPTH);
	if (!is_strict) {
		REQUIRE(pthread_create(&late, &own_stack, run_late, NULL) == 0);
		pthread_join(late, NULL);
		sem_post(&go);
		sem_wait(&done);
	}
	syscall(is_strict ? SYS_exit : SYS_exit_group, 0);
}
