/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions without call frame information, whose own instructions alone say how their frames are
 * left. Built with frame pointers.
 *
 * Usage: bare_frames SCENARIO
 */
#include "program.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCKS	    101
#define STACK_BYTES (256 * 1024)

/* call_elsewhere() keeps nothing in rbp and finds its stack again by what it stored on the other,
 * as runtime.asmcgocall of Go does; call_framed() has a frame pointer; call_handed() calls by what
 * jumps to a register, as that of Go 1.27 does. */
__asm__(".text\n"
	".type call_elsewhere, @function\n"
	"call_elsewhere:\n"
	"	mov %rsp, %rcx\n"
	"	lea -0x40(%rdx), %rsp\n"
	"	mov %rdx, 0x30(%rsp)\n"
	"	sub %rcx, %rdx\n"
	"	mov %rdx, 0x28(%rsp)\n"
	"	mov %rdi, %rax\n"
	"	mov %rsi, %rdi\n"
	"	call *%rax\n"
	"	mov 0x30(%rsp), %rsi\n"
	"	sub 0x28(%rsp), %rsi\n"
	"	mov %rsi, %rsp\n"
	"	ret\n"
	".size call_elsewhere, . - call_elsewhere\n"
	".type call_framed, @function\n"
	"call_framed:\n"
	"	push %rbp\n"
	"	mov %rsp, %rbp\n"
	"	mov %rdx, %rsp\n"
	"	mov %rdi, %rax\n"
	"	mov %rsi, %rdi\n"
	"	call *%rax\n"
	"	leave\n"
	"	ret\n"
	".size call_framed, . - call_framed\n"
	".type hand_on, @function\n"
	"hand_on:\n"
	"	mov %rsi, %rdi\n"
	"	jmp *%rax\n"
	".size hand_on, . - hand_on\n"
	".type call_handed, @function\n"
	"call_handed:\n"
	"	push %rbp\n"
	"	mov %rsp, %rbp\n"
	"	lea -0x10(%rdx), %rsp\n"
	"	mov %rbp, (%rsp)\n"
	"	mov %rdi, %rax\n"
	"	call hand_on\n"
	"	mov (%rsp), %rsi\n"
	"	mov %rsi, %rsp\n"
	"	pop %rbp\n"
	"	ret\n"
	".size call_handed, . - call_handed\n"
	/* As gcc schedules it for a vector of an argument; in another order; as Go up to 1.20. */
	".type call_mixed, @function\n"
	"call_mixed:\n"
	"	push %rbp\n"
	"	movd %edi, %xmm0\n"
	"	pshufd $0, %xmm0, %xmm0\n"
	"	mov %rsp, %rbp\n"
	"	push %rbx\n"
	"	sub $8, %rsp\n"
	"	call *%rsi\n"
	"	add $8, %rsp\n"
	"	pop %rbx\n"
	"	pop %rbp\n"
	"	ret\n"
	".size call_mixed, . - call_mixed\n"
	".type call_stored, @function\n"
	"call_stored:\n"
	"	sub $0x18, %rsp\n"
	"	mov %rbp, 0x10(%rsp)\n"
	"	lea 0x10(%rsp), %rbp\n"
	"	call *%rsi\n"
	"	mov 0x10(%rsp), %rbp\n"
	"	add $0x18, %rsp\n"
	"	ret\n"
	".size call_stored, . - call_stored\n"
	/* No frame pointer: the first push is of rbp all the same. */
	".type call_unframed, @function\n"
	"call_unframed:\n"
	"	push %rbp\n"
	"	push %rbx\n"
	"	mov %rsp, %rbp\n"
	"	sub $8, %rsp\n"
	"	mov $1, %ebp\n"
	"	call *%rsi\n"
	"	add $8, %rsp\n"
	"	pop %rbx\n"
	"	pop %rbp\n"
	"	ret\n"
	".size call_unframed, . - call_unframed\n");

/* A stack starts with a return address that no call has pushed: behind a jump, as with Boost's
 * make_fcontext; behind a function's first byte, as Go's goroutines. switch_to(stack pointer):
 * returns when somebody switches back. */
__asm__(".text\n"
	".type switch_to, @function\n"
	"switch_to:\n"
	"	.cfi_startproc\n"
	"	push %rbx\n"
	"	push %rbp\n"
	"	push %r12\n"
	"	push %r13\n"
	"	push %r14\n"
	"	push %r15\n"
	"	mov %rsp, other_side(%rip)\n"
	"	mov %rdi, %rsp\n"
	"	pop %r15\n"
	"	pop %r14\n"
	"	pop %r13\n"
	"	pop %r12\n"
	"	pop %rbp\n"
	"	pop %rbx\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size switch_to, . - switch_to\n"
	".type start_by_jump, @function\n"
	"start_by_jump:\n"
	"	ud2\n"
	"enter_by_jump:\n"
	"	push %rbp\n"
	"	jmp *%rbx\n"
	"return_behind_jump:\n"
	"	ud2\n"
	".size start_by_jump, . - start_by_jump\n"
	".type start_by_nop, @function\n"
	".p2align 4\n"
	"start_by_nop:\n"
	"	nop\n"
	"	call abort\n"
	".size start_by_nop, . - start_by_nop\n");

typedef void function(void *argument);

void call_elsewhere(function *call, void *argument, void *stack_end);
void call_framed(function *call, void *argument, void *stack_end);
void call_handed(function *call, void *argument, void *stack_end);
void call_mixed(int number, void (*call)(void));
void call_stored(int number, void (*call)(void));
void call_unframed(int number, void (*call)(void));
void switch_to(void *stack_pointer);
void enter_by_jump(void);
void return_behind_jump(void);
void start_by_nop(void);

void *other_side; /* the stack pointer of the side that does not run */

static SITE void bare_site(void)
{
	for (int i = 0; i < BLOCKS; i++) {
		void *block = malloc(64);
		KEEP(block);
	}
}

/* Above or below the stack that is in use, so that changes go both ways. */
static char *new_stack(uintptr_t address)
{
	char *stack = mmap((void *)address, STACK_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	REQUIRE(stack == (char *)address);
	return stack + STACK_BYTES;
}

/* --- other stacks ---------------------------------------------------------------------------- */

#define STACKS 3

static void (*call_on)(function *call, void *argument, void *stack_end);
static char *stack_ends[STACKS];

static void go_on(void *depth);

/* The function whose frame pointer is in force; call_elsewhere() has none, so that its caller is
 * left out. */
static SITE void wrapper(uintptr_t depth)
{
	call_on(go_on, (void *)(depth + 1), stack_ends[depth]);
	BARRIER();
}

static SITE void on_stack(uintptr_t depth)
{
	if (depth == STACKS)
		bare_site();
	else
		wrapper(depth);
	BARRIER();
}

static void go_on(void *depth)
{
	on_stack((uintptr_t)depth);
	BARRIER();
}

static void change_stacks(void)
{
	stack_ends[0] = new_stack(UINT64_C(0x200000000000));
	stack_ends[1] = new_stack(UINT64_C(0x300000000000));
	stack_ends[2] = new_stack(UINT64_C(0x100000000000));
	on_stack(0);
}

static void elsewhere(void)
{
	call_on = call_elsewhere;
	change_stacks();
}

static void framed(void)
{
	call_on = call_framed;
	change_stacks();
}

static void handed(void)
{
	call_on = call_handed;
	change_stacks();
}

/* --- frame pointers -------------------------------------------------------------------------- */

static SITE void middle(void)
{
	call_stored(1, bare_site);
	BARRIER();
}

static void mixed(void)
{
	call_mixed(1, middle);
}

static void unframed(void)
{
	call_unframed(1, bare_site);
}

/* --- where stacks start ---------------------------------------------------------------------- */

static SITE void coroutine(void)
{
	bare_site();
	switch_to(other_side);
}

static void started_by_jump(void)
{
	uintptr_t *top = (uintptr_t *)new_stack(UINT64_C(0x200000000000)) - 2;

	/* Like switch_to() pops them: r15 to r12, rbp, rbx, and where to. */
	uintptr_t registers[] = {0,
				 0,
				 0,
				 0,
				 (uintptr_t)return_behind_jump,
				 (uintptr_t)coroutine,
				 (uintptr_t)enter_by_jump};
	top -= sizeof(registers) / sizeof(*registers);
	memcpy(top, registers, sizeof(registers));
	switch_to(top);
}

static void started_by_nop(void)
{
	uintptr_t *top = (uintptr_t *)new_stack(UINT64_C(0x200000000000)) - 2;

	uintptr_t registers[] = {
		0, 0, 0, 0, 0, 0, (uintptr_t)coroutine, (uintptr_t)start_by_nop + 1};
	top -= sizeof(registers) / sizeof(*registers);
	memcpy(top, registers, sizeof(registers));
	switch_to(top);
}

static const struct {
	const char *name;
	void (*run)(void);
} scenarios[] = {
	{"elsewhere", elsewhere},
	{"framed", framed},
	{"handed", handed},
	{"mixed", mixed},
	{"unframed", unframed},
	{"started-by-jump", started_by_jump},
	{"started-by-nop", started_by_nop},
};

int main(int argc, char **argv)
{
	REQUIRE(argc == 2);
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++)
		if (!strcmp(scenarios[i].name, argv[1])) {
			scenarios[i].run();
			return 0;
		}
	fprintf(stderr, "bare_frames: no scenario '%s'\n", argv[1]);
	return 2;
}
