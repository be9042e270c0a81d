/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moves the beginnings of functions of all kinds, and executes them: as they are, through a hook and
 * a trampoline near and far, and from each instruction on that a thread may stand at.
 */
#include "relocate_lab.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>

#define MEMORY_WORDS  4
#define FUNCTION_ROOM 64u

typedef uint64_t function(uint64_t a, uint64_t b, const void *helper, uint64_t *memory);

uint64_t heads_memory[MEMORY_WORDS];
extern uint8_t heads_begin[], heads_end[];
function head_helper, head_helper_back;
uint64_t heads_trap(uint64_t a, uint64_t b, const void *helper, uint64_t *memory, function *called);

#define SECTION ".pushsection .text.heads,\"ax\",@progbits\n"

__asm__(SECTION ".balign 4096\n"
		"heads_begin:\n"
		"	.skip 64, 0x90\n"
		/* Returns what is on the stack: where it will return to. */
		"head_helper:\n"
		"	mov	(%rsp), %rax\n"
		"	ret\n"
		/* Calls the fifth argument with the trap flag set. */
		"heads_trap:\n"
		"	pushfq\n"
		"	orl	$0x100, (%rsp)\n"
		"	popfq\n"
		"	jmp	*%r8\n"
		"head_helper_back:\n"
		"	lea	(%rdi,%rsi,2), %rax\n"
		"	ret\n"
		".popsection\n"
		".pushsection .data; helper_pointer: .quad head_helper_back; .popsection");

struct head {
	const char *name;
	function *begin;
	const uint8_t *end;
	uint64_t traits;
};

#define TRAIT_STAYS_NEAR   1 /* it cannot be moved far */
#define TRAIT_CALLS_ITSELF 2
#define TRAIT_NEEDS_AVX	   4

/* All heads, in this order. */
extern const struct head __start_heads_table[], __stop_heads_table[];

/* Defines a function of the instructions given, and its row of the table. */
#define HEAD(name, body)	      HEAD_WITH(0, name, body)
#define HEAD_WITH(traits, name, body) HEAD_OF(traits, #name, body)
#define HEAD_OF(traits, name, body)                                                                \
	__asm__(SECTION ".balign 64\nhead_" name ":\n" body "\nend_" name ":\n.popsection\n"       \
			".pushsection .rodata\nname_" name ": .string \"" name "\"\n.popsection\n" \
			".pushsection heads_table, \"aw\"\n.quad name_" name ", head_" name        \
			", end_" name ", " TEXT_OF(traits) "\n.popsection\n");
#define TEXT_OF(value) TEXT(value)
#define TEXT(value)    #value

HEAD(endbr64, "endbr64; lea (%rdi,%rsi), %rax; ret")
HEAD(pushes, "push %r12; push %rbp; push %rbx; mov %rdi,%rbx; lea 7(%rbx),%rax; pop %rbx; pop %rbp;"
	     "pop %r12; ret")
HEAD(thread_pointer, "mov %fs:0, %rax; xor %rdi, %rax; ret")
HEAD(load, "mov heads_memory(%rip), %rax; add %rdi, %rax; ret")
HEAD(load_rbp, "push %rbp; mov heads_memory+8(%rip), %rbp; lea (%rbp,%rsi), %rax; pop %rbp; ret")
HEAD(load_r12, "push %r12; mov heads_memory+8(%rip), %r12; lea (%r12,%rsi), %rax; pop %r12; ret")
HEAD(load_byte, "movzbl heads_memory+1(%rip), %eax; add %rdi, %rax; ret")
HEAD_WITH(TRAIT_STAYS_NEAR, load_high_byte,
	  "mov heads_memory+1(%rip), %ah; and $0xff00, %eax; add %rdi, %rax; ret")
HEAD_WITH(TRAIT_STAYS_NEAR, load_r11, "mov heads_memory(%rip), %r11; lea (%rdi,%r11), %rax; ret")
HEAD(load_sse, "movdqu heads_memory(%rip), %xmm0; movq %xmm0, %rax; ret")
HEAD_WITH(TRAIT_NEEDS_AVX, load_avx, "vmovdqu heads_memory(%rip), %xmm9; vmovq %xmm9, %rax; ret")
HEAD(store, "mov %rdi, heads_memory+8(%rip); mov %rsi, %rax; ret")
HEAD(store_twice,
     "mov %dil, heads_memory+9(%rip); mov %rsi, heads_memory+16(%rip); mov $1,%eax; ret")
HEAD(add_immediate, "addq $0x12345678, heads_memory(%rip); sbb %rax, %rax; ret")
HEAD(locked, "lock xadd %rdi, heads_memory(%rip); mov %rdi, %rax; ret")
HEAD(compare, "cmpb $0x40, heads_memory(%rip); ja 1f; mov $5, %eax; ret; 1: lea 1(%rdi), %rax; ret")
HEAD(compare_last, "cmp %dil, heads_memory(%rip); setb %al; movzbl %al, %eax; ret")
HEAD(address, "lea heads_memory(%rip), %rax; mov 8(%rax), %rax; add %rsi, %rax; ret")
HEAD(address_of_itself,
     "lea head_address_of_itself(%rip), %rax; lea 1f(%rip), %rdx; sub %rdx, %rax;"
     "1: ret")
HEAD(push_memory, "push heads_memory(%rip); pop %rax; sub %rdi, %rax; ret")
HEAD(jump_memory, "jmp *helper_pointer(%rip)")
HEAD(jump_argument, "mov %rdi, %rax; jmp *(%rcx)")
HEAD(jump_short, "jmp 1f; .byte 0xcc, 0xcc, 0xcc, 0xcc; 1: lea 3(%rdi), %rax; ret")
HEAD(jump_near, "jmp head_helper_back")
HEAD(jump_in_two, "mov %rdi, %rsi; jmp 1f; nop; 1: lea 3(%rsi), %rax; ret")
HEAD(call, "call head_helper_back; add %rdi, %rax; ret")
HEAD(call_after_push, "push %rbx; call head_helper; mov %rax, %rbx; mov %rbx, %rax; pop %rbx; ret")
HEAD(call_next, "call 1f; 1: pop %rax; lea (%rax,%rdi), %rax; ret")
HEAD(call_memory, "call *helper_pointer(%rip); add %rsi, %rax; ret")
HEAD(call_register, "push %rbx; nop; nop; call *%rdx; pop %rbx; ret")
HEAD(call_r10, "mov %rdx, %r10; call *%r10; ret")
HEAD(call_argument, "mov %rdx, (%rcx); call *(%rcx); ret")
HEAD(jrcxz, "mov %rdi, %rcx; jrcxz 1f; lea 5(%rdi), %rax; ret; 1: mov $9, %eax; ret")
HEAD(jecxz, "mov %edi, %ecx; jecxz 1f; lea 5(%rdi), %rax; ret; 1: mov $9, %eax; ret")
HEAD(loop, "mov %rdi, %rcx; loop 1f; lea 5(%rcx), %rax; ret; 1: lea 9(%rcx), %rax; ret")
HEAD(loopl, "mov %edi, %ecx; addr32 loop 1f; lea 5(%rcx), %rax; ret; 1: lea 9(%rcx), %rax; ret")
HEAD(loope, "mov %rdi, %rcx; cmp %edi, %esi; loope 1f; lea 5(%rcx), %rax; ret;"
	    "1: lea 9(%rcx), %rax; ret")
HEAD(loopne_early,
     "cmp %edi, %esi; loopne 1f; nop; lea 5(%rdi), %rax; ret; 1: lea 9(%rdi), %rax; ret")
HEAD(jump_within, "clc; jrcxz 1f; stc; 1: sbb %rax, %rax; lea (%rax,%rdi), %rax; ret")
HEAD(condition_within, "cmp %esi, %edi; jb 1f; 1: sbb %eax, %eax; sub %edi, %eax; ret")
HEAD(loop_near_begin, "xor %eax, %eax; 1: add $3, %rax; shr %rdi; jnz 1b; ret")
HEAD(loop_to_begin, "1: inc %rsi; shr %rdi; jnz 1b; mov %rsi, %rax; ret")
HEAD(loop_from_condition, "jmp 1f; 2: inc %rsi; 1: shr %rdi; jnz 2b; mov %rsi, %rax; ret")
HEAD(loop_from_behind, "jmp 3f; 1: add $3, %rsi; 2: shr %rdi; jnz 1b; mov %rsi, %rax; ret;"
		       "3: inc %rsi; jmp 2b")
HEAD_WITH(TRAIT_CALLS_ITSELF, own_call,
	  "test %edi, %edi; jz 1f; mov $1, %eax; ret; 1: mov $1, %edi; call head_own_call; ret")
HEAD(early_return, "xor %eax, %eax; ret")
HEAD(return_pops_prefix, "mov %edi, %eax; repz ret")
HEAD(condition_long, "test %rdi, %rdi; {disp32} jz 1f; mov $1, %eax; ret; 1: mov $2, %eax; ret")

#define CONDITION(cc)                                                                           \
	HEAD(condition_##cc, "cmp %rsi, %rdi; j" #cc " 1f; mov $1, %eax; ret; 1: mov $2, %eax;" \
			     "mov %rdi, heads_memory(%rip); ret")
CONDITION(o)
CONDITION(no)
CONDITION(b)
CONDITION(ae)
CONDITION(e)
CONDITION(ne)
CONDITION(be)
CONDITION(a)
CONDITION(s)
CONDITION(ns)
CONDITION(p)
CONDITION(np)
CONDITION(l)
CONDITION(ge)
CONDITION(le)
CONDITION(g)

__asm__(SECTION "heads_end:\n.popsection\n");

#define FOR_EACH_HEAD(head) \
	for (const struct head *head = __start_heads_table; head < __stop_heads_table; head++)

/* ---- calls ---- */

#define INPUTS_MAX 1024u

struct outcome {
	uint64_t result, memory[MEMORY_WORDS];
};

static const uint64_t edges[] = {
	0,
	1,
	2,
	3,
	0x3f,
	0x40,
	0x41,
	0x7f,
	0x80,
	0xff,
	0x1000,
	INT32_MAX,
	UINT64_C(1) << 31,
	UINT32_MAX,
	UINT64_C(1) << 32,
	INT64_MAX,
	UINT64_C(1) << 63,
	UINT64_MAX - 1,
	UINT64_MAX,
};
#define EDGES (sizeof(edges) / sizeof(*edges))

/* Every pair of edges, and some of any bits. */
static void make_input(unsigned number, uint64_t *ret_a, uint64_t *ret_b)
{
	if (number < EDGES * EDGES) {
		*ret_a = edges[number / EDGES];
		*ret_b = edges[number % EDGES];
		return;
	}
	*ret_a = number * UINT64_C(0x9e3779b97f4a7c15);
	*ret_b = (*ret_a ^ *ret_a >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
}

static function *trampoline;
static unsigned hooked;

static uint64_t hook(uint64_t a, uint64_t b, const void *helper, uint64_t *memory)
{
	hooked++;
	return trampoline(a, b, helper, memory);
}

static void call(function *called, unsigned number, bool traps, struct outcome *ret_outcome)
{
	uint64_t a, b;

	make_input(number, &a, &b);
	for (unsigned i = 0; i < MEMORY_WORDS; i++)
		heads_memory[i] = (b + i) * UINT64_C(0x2545f4914f6cdd1d);
	uint64_t *words = heads_memory + MEMORY_WORDS - 1;
	*words = (uint64_t)head_helper_back;
	ret_outcome->result = traps ? heads_trap(a, b, (const void *)head_helper, words, called)
				    : called(a, b, (const void *)head_helper, words);
	memcpy(ret_outcome->memory, heads_memory, sizeof(heads_memory));
}

/* ---- tests ---- */

static bool can_run(const struct head *head)
{
	return !(head->traits & TRAIT_NEEDS_AVX) || __builtin_cpu_supports("avx");
}

static int relocate(const struct head *head, const uint8_t *to, struct hl_relocated *ret_relocated,
		    struct hl_error *err)
{
	uint64_t address = (uint64_t)head->begin;

	*err = (struct hl_error){0};
	return hl_relocate((const uint8_t *)head->begin, FUNCTION_ROOM, address,
			   (uint64_t)head->end - address, (uint64_t)to, ret_relocated, err);
}

static void expect_same(const struct head *head, const struct outcome *expected)
{
	for (unsigned i = 0; i < INPUTS_MAX; i++) {
		struct outcome outcome;
		hooked = 0;
		call(head->begin, i, false, &outcome);
		if (memcmp(&outcome, expected + i, sizeof(outcome)) != 0)
			fail_msg("%s: input %u gives %#lx instead of %#lx", head->name, i,
				 outcome.result, expected[i].result);
		if (hooked != 1 && !(head->traits & TRAIT_CALLS_ITSELF))
			fail_msg("%s: hooked %u times", head->name, hooked);
	}
}

static void compare_patched(uint64_t distance)
{
	static struct outcome expected[INPUTS_MAX];
	uint8_t *stub = lab_map(heads_begin, 0), *area = lab_map(heads_begin, distance);

	lab_write_stub(stub, (const void *)hook);
	FOR_EACH_HEAD(head)
	{
		struct hl_relocated relocated;
		struct hl_error err;
		if (!can_run(head))
			continue;
		int r = relocate(head, area, &relocated, &err);
		if (distance && head->traits & TRAIT_STAYS_NEAR) {
			assert_int_equal(r, -ENOTSUP);
			assert_non_null(strstr(err.text, "too far away"));
			continue;
		}
		if (r < 0)
			fail_msg("%s: %s", head->name, err.text);
		memcpy(area, relocated.code, relocated.code_bytes);
		trampoline = (function *)area;
		for (unsigned i = 0; i < INPUTS_MAX; i++)
			call(head->begin, i, false, &expected[i]);
		struct lab_patch patch = lab_patch((void *)head->begin, stub);
		expect_same(head, expected);
		lab_unpatch(&patch);
	}
	lab_unmap(stub);
	lab_unmap(area);
}

static void functions_do_the_same_through_a_near_trampoline(void **state)
{
	(void)state;
	compare_patched(0);
}

static void functions_do_the_same_through_a_far_trampoline(void **state)
{
	(void)state;
	compare_patched(LAB_FAR_BYTES);
}

/* A thread that stands at `from` goes on at `to`. */
static struct {
	uint64_t from, to;
	bool happened;
} step;

static void on_trap(int signal_number, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)signal_number;
	(void)info;
	if ((uint64_t)registers[REG_RIP] != step.from)
		return;
	registers[REG_RIP] = (greg_t)step.to;
	registers[REG_EFL] &= ~0x100;
	step.happened = true;
}

static void expect_same_from_twin(const struct head *head, unsigned offset, const uint8_t *twin)
{
	bool happened = false;

	for (unsigned i = 0; i < INPUTS_MAX; i += 37) {
		struct outcome expected, outcome;
		call(head->begin, i, false, &expected);
		step.from = (uint64_t)head->begin + offset;
		step.to = (uint64_t)twin;
		step.happened = false;
		call(head->begin, i, true, &outcome);
		happened |= step.happened;
		if (memcmp(&outcome, &expected, sizeof(outcome)) != 0)
			fail_msg("%s: from +%u on, input %u gives %#lx instead of %#lx", head->name,
				 offset, i, outcome.result, expected.result);
	}
	if (!happened)
		fail_msg("%s: +%u is never reached", head->name, offset);
}

static void threads_go_on_at_the_twin_of_where_they_stand(void **state)
{
	struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO}, before;
	uint8_t *area = lab_map(heads_begin, LAB_FAR_BYTES);

	(void)state;
	assert_int_equal(sigaction(SIGTRAP, &action, &before), 0);
	FOR_EACH_HEAD(head)
	{
		struct hl_relocated relocated;
		struct hl_error err;
		if (!can_run(head) || relocate(head, area, &relocated, &err) < 0)
			continue;
		memcpy(area, relocated.code, relocated.code_bytes);
		assert_int_equal(relocated.twin[0], 0);
		for (unsigned offset = 0; offset < HL_ENTRY_MAX; offset++)
			if (relocated.twin[offset] != HL_RELOCATE_NO_TWIN)
				expect_same_from_twin(head, offset, area + relocated.twin[offset]);
	}
	assert_int_equal(sigaction(SIGTRAP, &before, NULL), 0);
	lab_unmap(area);
}

/* ---- what is refused ---- */

#define ADDRESS UINT64_C(0x401000)

static void expect_refused(const char *reason, const uint8_t *code, size_t bytes,
			   uint64_t function_bytes)
{
	struct hl_relocated relocated = {.entry_bytes = 77};
	struct hl_error err = {0};

	int r = hl_relocate(code, bytes, ADDRESS, function_bytes, ADDRESS + 0x10000, &relocated,
			    &err);
	if (r != -ENOTSUP || !strstr(err.text, reason))
		fail_msg("'%s' instead of '%s'", r < 0 ? err.text : "moved", reason);
	assert_non_null(strstr(err.text, "0x401000"));
	assert_int_equal(relocated.entry_bytes, 77);
}

/* ${size}: of the function; the rest is what stands after it. */
#define REFUSED(reason, size, ...)                                  \
	do {                                                        \
		static const uint8_t given[] = {__VA_ARGS__};       \
		expect_refused(reason, given, sizeof(given), size); \
	} while (0)

static void what_cannot_be_moved_is_refused_with_a_reason(void **state)
{
	(void)state;
	REFUSED("trap", 6, 0xcc, 0x41, 0x54, 0x41, 0x55, 0xc3);	 /* int3 */
	REFUSED("trap", 6, 0x90, 0xf4, 0x90, 0x90, 0x90, 0xc3);	 /* hlt */
	REFUSED("trap", 6, 0x31, 0xc0, 0x0f, 0x05, 0x90, 0xc3);	 /* syscall */
	REFUSED("trap", 6, 0xcd, 0x80, 0x90, 0x90, 0x90, 0xc3);	 /* int $0x80 */
	REFUSED("go on", 6, 0x31, 0xc0, 0x0f, 0x0b, 0x90, 0xc3); /* ud2 */
	REFUSED("not instructions", 6, 0x55, 0x06, 0x90, 0x90, 0x90, 0xc3);
	REFUSED("not instructions", 6, 0x55, 0x48, 0x8b);	      /* the end is not known */
	REFUSED("returns to", 6, 0xff, 0xd0, 0x90, 0x90, 0x90, 0xc3); /* call *%rax */
	REFUSED("kind", 7, 0x55, 0x90, 0xff, 0x54, 0x24, 0x08, 0xc3); /* call *8(%rsp) */
	REFUSED("kind", 7, 0x66, 0xe8, 0, 0, 0, 0, 0xc3);	      /* data16 call */
	REFUSED("kind", 7, 0xc7, 0xf8, 0, 0, 0, 0, 0xc3);	      /* xbegin */
	REFUSED("32 bits", 8, 0x67, 0x8b, 0x05, 0, 0, 0, 0, 0xc3);    /* mov (%eip), %eax */
}

static void functions_shorter_than_the_patch_need_padding_after_them(void **state)
{
	static const uint8_t padded[] = {0x31, 0xc0, 0xc3, 0xcc, 0x0f, 0x1f, 0x44, 0, 0};
	struct hl_relocated relocated;
	struct hl_error err = {0};

	(void)state;
	REFUSED("too short", 3, 0x31, 0xc0, 0xc3, 0x31, 0xc0, 0xc3);
	REFUSED("too short", 3, 0x31, 0xc0, 0xc3);
	REFUSED("too short", 3, 0x31, 0xc0, 0xc3, 0x90); /* the rest is not known */
	REFUSED("too short", 0, 0x31, 0xc0, 0xc3, 0x31, 0xc0, 0xc3);
	REFUSED("too short", 2, 0x31, 0xc0, 0x31, 0xdb, 0x31, 0xc9); /* goes on in the next */
	assert_int_equal(
		hl_relocate(padded, sizeof(padded), ADDRESS, 3, ADDRESS + 64, &relocated, &err), 0);
	assert_int_equal(relocated.code_bytes, 3);
	assert_memory_equal(relocated.code, padded, 3);
	assert_int_equal(relocated.entry_bytes, 9);
	/* The same function right before a multiple of 16: then the nop is the next function's. */
	assert_int_equal(hl_relocate(padded, sizeof(padded), ADDRESS + 13, 3, ADDRESS + 64,
				     &relocated, &err),
			 -ENOTSUP);
}

static void jumps_into_the_patch_are_refused(void **state)
{
	(void)state;
	/* push %rbp; mov %rsp,%rbp; push %rbx; 30 nops; jmp to the mov */
	static const uint8_t loop[40] = {0x55, 0x48, 0x89, 0xe5, 0x53, [35] = 0xeb, 0xdc, 0xc3};
	static uint8_t code[sizeof(loop)];

	memcpy(code, loop, sizeof(loop));
	memset(code + 5, 0x90, 30);
	expect_refused("jumps back", code, sizeof(code), sizeof(code));
	code[36] = 0xdb; /* to the entry itself */
	expect_refused("jumps back", code, sizeof(code), sizeof(code));
	/* jmp into the mov, near enough to be moved with it */
	REFUSED("between", 8, 0x55, 0x48, 0x89, 0xe5, 0x53, 0xeb, 0xfb, 0xc3);
	/* call +1 */
	REFUSED("between", 11, 0x31, 0xc0, 0x31, 0xd2, 0x31, 0xc9, 0xe8, 0xf6, 0xff, 0xff, 0xff);
}

static void jumps_into_a_moved_loop_are_refused(void **state)
{
	/* push %rbx; 1: push %rbp; pop %rbp; sub $1,%rsi; 2: dec %ecx; jg 1b; pop %rbx; ret */
	static const uint8_t loop[32] = {0x53, 0x55, 0x5d, 0x48, 0x83, 0xee, 0x01,
					 0xff, 0xc9, 0x7f, 0xf6, 0x5b, 0xc3};
	uint8_t code[sizeof(loop)];
	struct hl_relocated relocated;
	struct hl_error err = {0};

	(void)state;
	memcpy(code, loop, sizeof(loop));
	memset(code + 13, 0x90, sizeof(code) - 13);
	code[28] = 0xeb; /* jmp 2b */
	code[29] = 0xe9;
	expect_refused("jumps back", code, sizeof(code), sizeof(code));
	code[29] = 0xed; /* to behind the loop */
	assert_int_equal(hl_relocate(code, sizeof(code), ADDRESS, sizeof(code), ADDRESS + 0x10000,
				     &relocated, &err),
			 0);
	/* push %rbx; 1: push %rbp; pop %rbp; nop; call far behind; dec %ecx; jg 1b; pop %rbx; ret */
	REFUSED("jumps back", 15, 0x53, 0x55, 0x5d, 0x90, 0xe8, 0, 1, 0, 0, 0xff, 0xc9, 0x7f, 0xf4,
		0x5b, 0xc3);
}

static void trampolines_that_become_too_long_are_refused(void **state)
{
	uint8_t code[HL_ENTRY_MAX + 1];
	struct hl_relocated relocated;
	struct hl_error err = {0};

	(void)state;
	for (unsigned i = 0; i < HL_ENTRY_MAX; i += 2) {
		code[i] = 0x74; /* je far behind */
		code[i + 1] = 0x60;
	}
	code[HL_ENTRY_MAX - 1] = (uint8_t)-HL_ENTRY_MAX; /* and the last to the first */
	code[HL_ENTRY_MAX] = 0xc3;
	assert_int_equal(hl_relocate(code, sizeof(code), ADDRESS, sizeof(code),
				     ADDRESS + LAB_FAR_BYTES, &relocated, &err),
			 -ENOTSUP);
	assert_non_null(strstr(err.text, "too long"));
	assert_int_equal(hl_relocate(code, sizeof(code), ADDRESS, sizeof(code), ADDRESS + 4096,
				     &relocated, &err),
			 0);
}

static void patches_reach_two_gigabytes(void **state)
{
	const uint64_t address = UINT64_C(0x7f0000000000), next = address + HL_PATCH_BYTES;
	uint8_t code[HL_PATCH_BYTES];

	(void)state;
	assert_int_equal(hl_relocate_jump(address, next + INT32_MAX, code), 0);
	assert_memory_equal(code, ((uint8_t[]){0xe9, 0xff, 0xff, 0xff, 0x7f}), sizeof(code));
	assert_int_equal(hl_relocate_jump(address, next - (UINT64_C(1) << 31), code), 0);
	assert_memory_equal(code, ((uint8_t[]){0xe9, 0, 0, 0, 0x80}), sizeof(code));
	assert_int_equal(hl_relocate_jump(address, next + (UINT64_C(1) << 31), code), -ERANGE);
	assert_int_equal(hl_relocate_jump(address, next - (UINT64_C(1) << 31) - 1, code), -ERANGE);
	assert_memory_equal(code, ((uint8_t[]){0xe9, 0, 0, 0, 0x80}), sizeof(code));
}

static void patches_may_stand_behind_instructions_that_can_be_undone(void **state)
{
	static const struct {
		const char *what;
		uint8_t bytes, first;
		int32_t stack_bytes;
		uint8_t code[16];
	} functions[] = {
		{"push %rbx", 8, 1, 8, {0x53}},
		{"push %r12", 8, 2, 8, {0x41, 0x54}},
		{"endbr64", 8, 4, 0, {0xf3, 0x0f, 0x1e, 0xfa}},
		{"test %rdi, %rdi", 8, 3, 0, {0x48, 0x85, 0xff}},
		{"sub $24, %rsp", 8, 4, 24, {0x48, 0x83, 0xec, 24}},
		{"sub $0x118, %rsp", 12, 7, 0x118, {0x48, 0x81, 0xec, 0x18, 1, 0, 0}},
		{"push %r12 of unknown length", 0, 2, 8, {0x41, 0x54}},
		{"push %r12 that is all", 2, 0, 0, {0x41, 0x54}},
		{"sub $8, %rdi", 8, 0, 0, {0x48, 0x83, 0xef, 8}},
		{"sub %rax, %rsp", 8, 0, 0, {0x48, 0x29, 0xc4}},
		{"push $1", 8, 0, 0, {0x6a, 1}},
		{"mov %rdi, %rax", 8, 0, 0, {0x48, 0x89, 0xf8}},
		{"cmpb $0, 16(%rip)", 12, 0, 0, {0x80, 0x3d, 16, 0, 0, 0, 0}},
		{"push %rbx that is jumped to",
		 8,
		 0,
		 0,
		 {0x53, 0x90, 0x90, 0x90, 0x90, 0x90, 0xeb, 0xf8}},
		{"push %rbx behind which is jumped to",
		 8,
		 1,
		 8,
		 {0x53, 0x90, 0x90, 0x90, 0x90, 0x90, 0xeb, 0xf9}},
		{"a breakpoint", 8, 0, 0, {0xcc, 0x54}},
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(functions); i++) {
		uint8_t code[sizeof(functions[i].code)];
		int32_t stack_bytes = -1;
		memcpy(code, functions[i].code, sizeof(code));
		for (size_t at = sizeof(code); at > 0 && !code[at - 1] && at > functions[i].first;
		     at--)
			code[at - 1] = 0x90;
		size_t first = hl_relocate_first(code, sizeof(code), ADDRESS, functions[i].bytes,
						 &stack_bytes);
		if (first != functions[i].first ||
		    (first && stack_bytes != functions[i].stack_bytes))
			fail_msg("%s: %zu, %d", functions[i].what, first, stack_bytes);
	}
}

static int make_writable(void **state)
{
	(void)state;
	lab_unlock(heads_begin, (size_t)(heads_end - heads_begin));
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_do_the_same_through_a_near_trampoline),
		cmocka_unit_test(functions_do_the_same_through_a_far_trampoline),
		cmocka_unit_test(threads_go_on_at_the_twin_of_where_they_stand),
		cmocka_unit_test(what_cannot_be_moved_is_refused_with_a_reason),
		cmocka_unit_test(functions_shorter_than_the_patch_need_padding_after_them),
		cmocka_unit_test(jumps_into_the_patch_are_refused),
		cmocka_unit_test(jumps_into_a_moved_loop_are_refused),
		cmocka_unit_test(trampolines_that_become_too_long_are_refused),
		cmocka_unit_test(patches_reach_two_gigabytes),
		cmocka_unit_test(patches_may_stand_behind_instructions_that_can_be_undone),
	};

	return cmocka_run_group_tests(tests, make_writable, NULL);
}
