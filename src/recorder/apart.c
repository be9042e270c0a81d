/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes that thread by raw system calls; see apart.h. */
#include "recorder/apart.h"

#include "recorder/sys.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>

#define STACK_BYTES  (UINT64_C(64) << 10)
#define SIGSET_BYTES 8 /* the kernel's, of which libc's is a longer form */

/* All of a thread but CLONE_FILES; CLONE_VFORK lets us wait for its end. */
#define CLONE_FLAGS \
	(CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_VFORK)

/* The thread begins after the system call with nothing on its stack, and ends before it would come
 * to what is here only for us. */
static long clone_and_call(void *stack_end, hl_apart_fn *run, void *argument)
{
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;
	register hl_apart_fn *r12 __asm__("r12") = run;
	register void *r13 __asm__("r13") = argument;
	long result;
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t" /* the end of the stack, for those who unwind it */
			 "mov %%r13, %%rdi\n\t"
			 "call *%%r12\n\t"
			 "xor %%edi, %%edi\n\t"
			 "mov %[exit], %%eax\n\t"
			 "syscall\n"
			 "1:"
			 : "=a"(result)
			 : "a"(SYS_clone), "D"(CLONE_FLAGS), "S"(stack_end), "d"(0), "r"(r10),
			   "r"(r8), "r"(r12), "r"(r13), [exit] "i"(SYS_exit)
			 : "rcx", "r11", "memory");
	return result;
}

int hl_apart_run(hl_apart_fn *run, void *argument)
{
	uint64_t all = UINT64_MAX, before;
	uint8_t *stack = hl_sys_mmap(STACK_BYTES, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	if (!stack)
		return -ENOMEM;
	hl_sys6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&before, SIGSET_BYTES, 0, 0);
	long result = clone_and_call(stack + STACK_BYTES, run, argument);
	hl_sys6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&before, 0, SIGSET_BYTES, 0, 0);
	hl_sys_munmap(stack, STACK_BYTES);
	return result < 0 ? (int)result : 0;
}
