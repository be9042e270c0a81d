/* SPDX-License-Identifier: BSD-2-Clause */
/* What the programs of tests say in the words of their machine. */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

/* A system call past the C library, where no hook can be. */
static inline long call_by_instruction(long number, long a, long b, long c)
{
#ifdef __x86_64__
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return result;
#else
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b,
			 x2 __asm__("x2") = c;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return x0;
#endif
}

/* Of a context: where a signal interrupted it, and where the function returns to that makecontext() made it of. */
#ifdef __x86_64__
#define CONTEXT_PC(context)	((uint64_t)(context)->uc_mcontext.gregs[REG_RIP])
#define CONTEXT_RETURN(context) (*(const uint64_t *)(context)->uc_mcontext.gregs[REG_RSP])
#else
#define CONTEXT_PC(context)	((context)->uc_mcontext.pc)
#define CONTEXT_RETURN(context) ((context)->uc_mcontext.regs[30])
#endif

/* struct hl_thread_registers with these, as an initializer */
#ifdef __x86_64__
#define REGISTERS_OF(STACK, THREAD, VALUE)                    \
	{                                                     \
		.rsp = STACK, .fs_base = THREAD, .rax = VALUE \
	}
#else
#define REGISTERS_OF(STACK, THREAD, VALUE)                    \
	{                                                     \
		.sp = STACK, .thread = THREAD, .x = { VALUE } \
	}
#endif

/* A function (function, number) that calls with the number, which is in the frame pointer's register, too. And one (function, argument)
 * that calls with the argument and 0, below an array of 256 bytes: on aarch64, where gcc puts one that it protects, below the frame record. */
#ifdef __x86_64__
#define CALL_WITH_NUMBER                                                                        \
	"push %rbp\n\t.cfi_adjust_cfa_offset 8\n\t.cfi_rel_offset rbp, 0\n\tmov %esi, %ebp\n\t" \
	"mov %rdi, %rax\n\tmov %esi, %edi\n\tcall *%rax\n\tpop %rbp\n\t"                        \
	".cfi_adjust_cfa_offset -8\n\t.cfi_restore rbp"
#define CALL_ABOVE_ARRAY                                                                       \
	"sub $264, %rsp\n\t.cfi_adjust_cfa_offset 264\n\tmov %rdi, %rax\n\tmov %rsi, %rdi\n\t" \
	"xor %esi, %esi\n\tcall *%rax\n\tadd $264, %rsp\n\t.cfi_adjust_cfa_offset -264"
#define FORCE_ALIGNED __attribute__((force_align_arg_pointer))
#else
#define CALL_WITH_NUMBER                                                                \
	"stp x29, x30, [sp, -16]!\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset 29, -16\n\t" \
	".cfi_offset 30, -8\n\tmov w29, w1\n\tmov x9, x0\n\tmov w0, w1\n\tblr x9\n\t"   \
	"ldp x29, x30, [sp], 16\n\t.cfi_def_cfa_offset 0\n\t.cfi_restore 29\n\t.cfi_restore 30"
#define CALL_ABOVE_ARRAY                                                                      \
	"sub sp, sp, 272\n\t.cfi_def_cfa_offset 272\n\tstp x29, x30, [sp, 256]\n\t"           \
	".cfi_offset 29, -16\n\t.cfi_offset 30, -8\n\tadd x29, sp, 256\n\tmov x9, x0\n\t"     \
	"mov x0, x1\n\tmov x1, 0\n\tblr x9\n\tldp x29, x30, [sp, 256]\n\tadd sp, sp, 272\n\t" \
	".cfi_def_cfa_offset 0\n\t.cfi_restore 29\n\t.cfi_restore 30"
#define FORCE_ALIGNED
#endif

/* Of libgcc: the stack pointer of an interrupted frame. */
#ifdef __x86_64__
#define INTERRUPTED_SP(context) _Unwind_GetCFA(context)
#else
#define INTERRUPTED_SP(context) _Unwind_GetGR(context, 31)
#endif

/* Functions (function, number) that call with a frame pointer, and with the number in its register; where the call ends. */
#ifdef __x86_64__
#define CODE_WITH_FRAME_POINTER	    "\x55\x48\x89\xe5\xff\xd7\x5d\xc3"
#define CODE_WITH_ODD_FRAME_POINTER "\x55\x48\x89\xf5\xff\xd7\x5d\xc3"
#define CODE_CALL_END		    6
#else
/* stp x29, x30, [sp, -16]!; mov x29, sp or x1; blr x0; ldp x29, x30, [sp], 16; ret */
#define CODE_AROUND(moves) \
	"\xfd\x7b\xbf\xa9" moves "\x00\x00\x3f\xd6\xfd\x7b\xc1\xa8\xc0\x03\x5f\xd6"
#define CODE_WITH_FRAME_POINTER	    CODE_AROUND("\xfd\x03\x00\x91")
#define CODE_WITH_ODD_FRAME_POINTER CODE_AROUND("\xfd\x03\x01\xaa")
#define CODE_CALL_END		    12
#endif

/* The instructions that a signal handler returns to. */
#ifdef __x86_64__
#define SIGNAL_RETURN "\x48\xc7\xc0\x0f\0\0\0\x0f\x05" /* mov $SYS_rt_sigreturn,%rax; syscall */
#else
#define SIGNAL_RETURN "\x68\x11\x80\xd2\x01\0\0\xd4" /* mov x8, SYS_rt_sigreturn; svc 0 */
#endif

/* A thread of x86-64 alone can have itself interrupted at each instruction, from a handler of the breakpoint's signal on. */
#ifdef __x86_64__
#define CAN_STEP	      1
#define BREAKPOINT()	      __asm__ volatile("int3" ::: "memory")
#define TOGGLE_STEPS(context) ((context)->uc_mcontext.gregs[REG_EFL] ^= 0x100)
#else
#define CAN_STEP	      0
#define BREAKPOINT()	      abort()
#define TOGGLE_STEPS(context) abort()
#endif

/* Clears the registers that functions keep, but the frame pointer; and of x86-64 all others, too. */
#ifdef __x86_64__
#define CLEAR_REGISTERS()                                                                        \
	__asm__ volatile("xor %%ebx, %%ebx\n\txor %%r12d, %%r12d\n\txor %%r13d, %%r13d\n\t"      \
			 "xor %%r14d, %%r14d\n\txor %%r15d, %%r15d"                              \
			 :                                                                       \
			 :                                                                       \
			 : "rbx", "r12", "r13", "r14", "r15", "rax", "rcx", "rdx", "rsi", "rdi", \
			   "r8", "r9", "r10", "r11", "memory")
#else
#define CLEAR_REGISTERS()                                                                         \
	__asm__ volatile("mov x19, 0\n\tmov x20, 0\n\tmov x21, 0\n\tmov x22, 0\n\tmov x23, 0\n\t" \
			 "mov x24, 0\n\tmov x25, 0\n\tmov x26, 0\n\tmov x27, 0\n\tmov x28, 0"     \
			 :                                                                        \
			 :                                                                        \
			 : "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28",  \
			   "memory")
#endif

/* Wait for ever with the only copy of ${pointer} in a register that calls preserve: in pause() (of aarch64 ppoll()), with what
 * calls have left in x86-64's red zone cleared, or counting without a system call. */
static inline void wait_with_register(void *pointer)
{
	long written;

#ifdef __x86_64__
	__asm__ volatile("mov %1, %%rbx\n\txor %1, %1\n\t"
			 ".set place, 8\n\t.rept 16\n\tmovq $0, -place(%%rsp)\n\t"
			 ".set place, place + 8\n\t.endr\n"
			 "1:\n\tmov $34, %%eax\n\tsyscall\n\tjmp 1b"
			 : "=a"(written), "+r"(pointer)
			 :
			 : "rbx", "rcx", "r11", "memory");
#else
	__asm__ volatile("mov x19, %1\n\tmov %1, xzr\n1:\n\tmov x0, xzr\n\tmov x1, xzr\n\t"
			 "mov x2, xzr\n\tmov x3, xzr\n\tmov x8, 73\n\tsvc 0\n\tb 1b"
			 : "=&r"(written), "+r"(pointer)
			 :
			 : "x0", "x1", "x2", "x3", "x8", "x19", "memory");
#endif
}

static inline void spin_with_register(void *pointer)
{
	unsigned long count = 0;

#ifdef __x86_64__
	__asm__ volatile("mov %1, %%r12\n\txor %1, %1\n1:\tadd $1, %0\n\tjmp 1b"
			 : "+r"(count), "+r"(pointer)
			 :
			 : "r12", "memory");
#else
	__asm__ volatile("mov x20, %1\n\tmov %1, xzr\n1:\tadd %0, %0, 1\n\tb 1b"
			 : "+r"(count), "+r"(pointer)
			 :
			 : "x20", "memory");
#endif
}
