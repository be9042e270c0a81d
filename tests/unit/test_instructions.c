/* SPDX-License-Identifier: BSD-2-Clause */
/* What instructions say of frames: right where it is sure, nothing where it is not. */
#include "unwind/rule_cache.h"

#include "base/compiler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct code {
	const char *text;
	size_t bytes;
	uint8_t code[64];
};

/* The text of an assembler and the bytes that it made of it. */
#define CODE(text_, ...)                                                                          \
	{                                                                                         \
		.text = text_, .bytes = sizeof((uint8_t[]){__VA_ARGS__}), .code = { __VA_ARGS__ } \
	}

static void lengths_are_those_of_the_assembler(void **state)
{
	static const struct code cases[] = {
		CODE("push %rbp", 0x55),
		CODE("push %r12", 0x41, 0x54),
		CODE("ret", 0xc3),
		CODE("ret $8", 0xc2, 0x08, 0x00),
		CODE("endbr64", 0xf3, 0x0f, 0x1e, 0xfa),
		CODE("enter $16,$0", 0xc8, 0x10, 0x00, 0x00),
		CODE("call .+5", 0xe8, 0x00, 0x00, 0x00, 0x00),
		CODE("jne .+6", 0x0f, 0x85, 0x00, 0x00, 0x00, 0x00),
		CODE("mov $1,%ax", 0x66, 0xb8, 0x01, 0x00),
		CODE("mov $1,%eax", 0xb8, 0x01, 0x00, 0x00, 0x00),
		CODE("movabs $1,%rax", 0x48, 0xb8, 1, 0, 0, 0, 0, 0, 0, 0),
		CODE("movabs 0x1,%al", 0xa0, 1, 0, 0, 0, 0, 0, 0, 0),
		CODE("mov %fs:-8,%rdi", 0x64, 0x48, 0x8b, 0x3c, 0x25, 0xf8, 0xff, 0xff, 0xff),
		CODE("lea 0x12(%rip),%rax", 0x48, 0x8d, 0x05, 0x12, 0, 0, 0),
		CODE("mov 0x28(%rsp),%rsi", 0x48, 0x8b, 0x74, 0x24, 0x28),
		CODE("mov (%r12),%rax", 0x49, 0x8b, 0x04, 0x24),
		CODE("mov 0(%r13),%rax", 0x49, 0x8b, 0x45, 0x00),
		CODE("cmpl $0,0x10(%rdi,%rsi,8)", 0x83, 0x7c, 0xf7, 0x10, 0x00),
		CODE("movw $1,(%rax)", 0x66, 0xc7, 0x00, 0x01, 0x00),
		CODE("testb $1,(%rax)", 0xf6, 0x00, 0x01),
		CODE("test $1,%edx", 0xf7, 0xc2, 0x01, 0x00, 0x00, 0x00),
		CODE("not %edx", 0xf7, 0xd2),
		CODE("sub $0x1000,%rsp", 0x48, 0x81, 0xec, 0x00, 0x10, 0x00, 0x00),
		CODE("movd %edi,%xmm0", 0x66, 0x0f, 0x6e, 0xc7),
		CODE("pshufd $0,%xmm0,%xmm0", 0x66, 0x0f, 0x70, 0xc0, 0x00),
		CODE("pinsrd $1,%esi,%xmm0", 0x66, 0x0f, 0x3a, 0x22, 0xc6, 0x01),
		CODE("pshufb %xmm1,%xmm0", 0x66, 0x0f, 0x38, 0x00, 0xc1),
		CODE("vzeroupper", 0xc5, 0xf8, 0x77),
		CODE("vpxor %xmm0,%xmm0,%xmm0", 0xc5, 0xf9, 0xef, 0xc0),
		CODE("vpbroadcastd %xmm0,%ymm0", 0xc4, 0xe2, 0x7d, 0x58, 0xc0),
		CODE("vinserti128 $1,%xmm0,%ymm0,%ymm0", 0xc4, 0xe3, 0x7d, 0x38, 0xc0, 0x01),
		CODE("vmovdqu64 0x40(%rsp),%zmm0", 0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x44, 0x24, 0x01),
		CODE("nopw %cs:0(%rax,%rax,1)", 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0),
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		size_t length = hl_instructions_length(cases[i].code, sizeof(cases[i].code));
		if (length != cases[i].bytes)
			fail_msg("'%s' has %zu bytes, not %zu", cases[i].text, cases[i].bytes,
				 length);
		for (size_t bytes = 0; bytes < cases[i].bytes; bytes++)
			assert_int_equal(hl_instructions_length(cases[i].code, bytes), 0);
	}
	static const uint8_t invalid[8] = {0x06};
	assert_int_equal(hl_instructions_length(invalid, sizeof(invalid)), 0);
}

static void frame_pointers_are_seen_where_they_are_made(void **state)
{
	static const struct {
		struct code function;
		size_t made;
	} cases[] = {
		{CODE("push %rbp; mov %rsp,%rbp", 0x55, 0x48, 0x89, 0xe5), 4},
		{CODE("the other encoding of mov", 0x55, 0x48, 0x8b, 0xec), 4},
		{CODE("endbr64 before", 0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5), 8},
		{CODE("movd between", 0x55, 0x66, 0x0f, 0x6e, 0xc7, 0x48, 0x89, 0xe5), 8},
		{CODE("Go: sub $0x18,%rsp; mov %rbp,0x10(%rsp); lea 0x10(%rsp),%rbp", 0x48, 0x83,
		      0xec, 0x18, 0x48, 0x89, 0x6c, 0x24, 0x10, 0x48, 0x8d, 0x6c, 0x24, 0x10),
		 14},
		{CODE("lea of another word", 0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0x6c, 0x24, 0x10,
		      0x48, 0x8d, 0x6c, 0x24, 0x08),
		 0},
		{CODE("push %rbx between", 0x55, 0x53, 0x48, 0x89, 0xe5), 0},
		{CODE("sub $8,%rsp between", 0x55, 0x48, 0x83, 0xec, 0x08, 0x48, 0x89, 0xe5), 0},
		{CODE("no push", 0x53, 0x48, 0x89, 0xe5), 0},
		{CODE("mov %rdi,%rbp", 0x55, 0x48, 0x89, 0xfd, 0x48, 0x89, 0xe5), 0},
		{CODE("the bytes inside another instruction: movabs", 0x48, 0xb8, 0x55, 0x48, 0x89,
		      0xe5, 0, 0, 0, 0),
		 0},
		{CODE("cut off", 0x55, 0x48, 0x89), 0},
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		const struct code *function = &cases[i].function;
		size_t made = hl_instructions_frame_pointer_made(function->code, function->bytes);
		if (made != cases[i].made)
			fail_msg("'%s': %zu instead of %zu", function->text, made, cases[i].made);
	}
}

/* Code around a return address: ${call} ends before it. */
struct place {
	uint8_t bytes[HL_CALL_BYTES + HL_RETURN_BYTES];
};

static struct place place_of(const struct code *call, const struct code *after)
{
	struct place place = {0};

	memcpy(place.bytes + HL_CALL_BYTES - call->bytes, call->code, call->bytes);
	memcpy(place.bytes + HL_CALL_BYTES, after->code, after->bytes);
	return place;
}

static void calls_on_other_stacks_are_seen_by_what_follows(void **state)
{
	static const struct code call = CODE("call *%rax", 0xff, 0xd0);
	static const struct code yes[] = {
		CODE("asmcgocall: mov 0x30(%rsp),%rdi; mov 8(%rdi),%rsi; sub 0x28(%rsp),%rsi; "
		     "mov %rdi,%fs:-8; mov %rsi,%rsp",
		     0x48, 0x8b, 0x7c, 0x24, 0x30, 0x48, 0x8b, 0x77, 0x08, 0x48, 0x2b, 0x74, 0x24,
		     0x28, 0x64, 0x48, 0x89, 0x3c, 0x25, 0xf8, 0xff, 0xff, 0xff, 0x48, 0x89, 0xf4),
		CODE("mov 0x38(%rax),%rsp", 0x48, 0x8b, 0x60, 0x38),
		CODE("pop %rsp", 0x5c),
		CODE("leave", 0xc9),
	};
	static const struct code no[] = {
		CODE("add $8,%rsp; ret; mov %rsi,%rsp", 0x48, 0x83, 0xc4, 0x08, 0xc3, 0x48, 0x89,
		     0xf4),
		CODE("jne .+2; mov %rsi,%rsp", 0x75, 0x00, 0x48, 0x89, 0xf4),
		CODE("pop %rbp; mov %rsi,%rsp", 0x5d, 0x48, 0x89, 0xf4),
		CODE("mov %rsp,%rsi; ret", 0x48, 0x89, 0xe6, 0xc3),
		CODE("mov %esi,%esp is not a pointer", 0x89, 0xf4, 0xc3),
		CODE("mov %rsi,%r12", 0x49, 0x89, 0xf4, 0xc3),
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(yes); i++) {
		struct place place = place_of(&call, &yes[i]);
		const uint8_t *code = place.bytes + HL_CALL_BYTES;
		if (!hl_instructions_leave_stack(code, HL_RETURN_BYTES))
			fail_msg("'%s' is not seen", yes[i].text);
		assert_false(hl_instructions_leave_stack(code, yes[i].bytes - 1));
	}
	for (size_t i = 0; i < HL_COUNT_OF(no); i++) {
		struct place place = place_of(&call, &no[i]);
		if (hl_instructions_leave_stack(place.bytes + HL_CALL_BYTES, HL_RETURN_BYTES))
			fail_msg("'%s' is mistaken for a change of stacks", no[i].text);
	}
}

static void calls_of_registers_are_seen_where_they_are_handed_on(void **state)
{
	static const struct code after = CODE("leave", 0xc9);
	static const struct code of_register = CODE("call *%r12", 0x41, 0xff, 0xd4);
	static const struct code others[] = {CODE("call .-0x7f", 0xe8, 0x7c, 0xff, 0xff, 0xff),
					     CODE("call *8(%rax)", 0xff, 0x50, 0x08)};
	static const struct code hand_on[] = {
		CODE("Go's asmcgocall_landingpad: mov %rbx,%rdi; jmp *%rax", 0x48, 0x89, 0xdf, 0xff,
		     0xe0),
		CODE("jmp *%r11", 0x41, 0xff, 0xe3)};
	static const struct code do_not[] = {
		CODE("jmp *8(%rip), as tables of calls do", 0xff, 0x25, 8, 0, 0, 0),
		CODE("push %rax; jmp *%rax", 0x50, 0xff, 0xe0),
		CODE("mov %rsp,%rbp; jmp *%rax", 0x48, 0x89, 0xe5, 0xff, 0xe0),
		CODE("ret; jmp *%rax", 0xc3, 0xff, 0xe0), CODE("call *%rax", 0xff, 0xd0)};

	(void)state;
	struct place place = place_of(&of_register, &after);
	assert_true(hl_instructions_follow_call_of_register(place.bytes + HL_CALL_BYTES));
	assert_int_equal(hl_instructions_called(place.bytes + HL_CALL_BYTES, 0x47cfa4), 0);
	for (size_t i = 0; i < HL_COUNT_OF(others); i++) {
		place = place_of(&others[i], &after);
		assert_false(hl_instructions_follow_call_of_register(place.bytes + HL_CALL_BYTES));
		assert_int_equal(hl_instructions_called(place.bytes + HL_CALL_BYTES, 0x47cfa4),
				 i == 0 ? 0x47cf20 : 0);
	}
	for (size_t i = 0; i < HL_COUNT_OF(hand_on); i++)
		for (size_t bytes = 0; bytes <= hand_on[i].bytes; bytes++)
			assert_int_equal(hl_instructions_jump_to_register(hand_on[i].code, bytes),
					 bytes == hand_on[i].bytes);
	for (size_t i = 0; i < HL_COUNT_OF(do_not); i++)
		if (hl_instructions_jump_to_register(do_not[i].code, do_not[i].bytes))
			fail_msg("'%s' hands nothing on", do_not[i].text);
}

static bool starts_stack(const struct code *before, const struct code *after, uint64_t address)
{
	struct place place = place_of(before, after);

	return hl_instructions_start_stack(place.bytes + HL_CALL_BYTES, address);
}

static void calls_of_every_kind_are_seen_before_a_return_address(void **state)
{
	static const struct code after = CODE("mov %rsp,%rsi", 0x48, 0x89, 0xe6);
	static const struct code calls[] = {
		CODE("call .+5", 0xe8, 0, 0, 0, 0), CODE("call *%r12", 0x41, 0xff, 0xd4),
		CODE("call *8(%rax)", 0xff, 0x50, 0x08),
		CODE("call *0x1000(%r13)", 0x41, 0xff, 0x95, 0x00, 0x10, 0, 0)};
	static const struct code others[] = {CODE("jmp *%rbx", 0xff, 0xe3), CODE("nop", 0x90),
					     CODE("push 8(%rax)", 0xff, 0x70, 0x08)};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(calls); i++)
		assert_true(hl_instructions_follow_call(place_of(&calls[i], &after).bytes +
							HL_CALL_BYTES));
	for (size_t i = 0; i < HL_COUNT_OF(others); i++)
		assert_false(hl_instructions_follow_call(place_of(&others[i], &after).bytes +
							 HL_CALL_BYTES));
}

static void stacks_start_where_no_call_can_return(void **state)
{
	static const struct code jump = CODE("jmp *%rbx", 0xff, 0xe3), nop = CODE("nop", 0x90);
	static const struct code call = CODE("call .+5", 0xe8, 0, 0, 0, 0);
	static const struct code add = CODE("add %rax,%rax", 0x48, 0x01, 0xc0);
	static const struct code calls[] = {
		CODE("call that ends like a jump", 0xe8, 0x00, 0x00, 0xff, 0xe3),
		CODE("call *-0x1d000001(%rip)", 0xff, 0x15, 0x00, 0x00, 0xff, 0xe3),
		CODE("call *-0x1d000001(%r12)", 0x41, 0xff, 0x94, 0x24, 0x00, 0x00, 0xff, 0xe3),
		CODE("call *-0x1d(%rdi,%rdi,8)", 0xff, 0x54, 0xff, 0xe3),
		CODE("call *%rax", 0xff, 0xd0),
	};
	static const struct code nop_calls[] = {
		CODE("call that ends like a nop", 0xe8, 0x00, 0x00, 0x00, 0x90),
		CODE("call *-0x70(%rax)", 0xff, 0x50, 0x90),
	};

	(void)state;
	assert_true(starts_stack(&jump, &add, 7));
	assert_true(starts_stack(&nop, &call, 33));
	assert_false(starts_stack(&nop, &call, 34)); /* not a function's second byte */
	assert_false(starts_stack(&nop, &add, 33));
	assert_false(starts_stack(&add, &call, 33));
	for (size_t i = 0; i < HL_COUNT_OF(calls); i++)
		if (starts_stack(&calls[i], &add, 7))
			fail_msg("'%s' is mistaken for a jump", calls[i].text);
	for (size_t i = 0; i < HL_COUNT_OF(nop_calls); i++)
		if (starts_stack(&nop_calls[i], &call, 33))
			fail_msg("'%s' is mistaken for a nop", nop_calls[i].text);
}

static void padding_does_nothing(void **state)
{
	const uint8_t nops[] = {0x90, 0x66, 0x90, 0x0f, 0x1f, 0x00, 0x0f, 0x1f, 0x40,
				0x00, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00,
				0x00, 0x00, 0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00};
	const uint8_t exchange[] = {0x90, 0x41, 0x90}; /* of rax and r8 */
	const uint8_t trap[] = {0x90, 0xcc};

	(void)state;
	assert_true(hl_instructions_are_padding(nops, sizeof(nops)));
	assert_true(hl_instructions_are_padding(nops, 0));
	assert_false(hl_instructions_are_padding(nops, sizeof(nops) - 1)); /* cut off */
	assert_false(hl_instructions_are_padding(exchange, sizeof(exchange)));
	assert_false(hl_instructions_are_padding(trap, sizeof(trap)));
}

static void parts_end_behind_returns_and_jumps(void **state)
{
	const uint8_t code[] = {
		0x90, 0xcc,			 /* padding */
		0x48, 0x01, 0xc0, 0xc3,		 /* add %rax,%rax; ret */
		0x66, 0x90,			 /* padding */
		0x55, 0xeb, 0x00,		 /* push %rbp; jmp .+2 */
		0x5d, 0xff, 0xe0,		 /* pop %rbp; jmp *%rax */
		0x74, 0x00, 0xe8, 0,	0, 0, 0, /* je .+2; call .+5 */
	};
	const struct hl_instructions_part expected[] = {{2, 6}, {8, 11}, {11, 14}, {14, 21}};
	const uint8_t invalid[32] = {0x06}, padding[] = {0x90, 0x90};
	struct hl_instructions_part part = {0};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(expected); i++) {
		assert_true(hl_instructions_next_part(code, sizeof(code), &part));
		assert_int_equal(part.start, expected[i].start);
		assert_int_equal(part.end, expected[i].end);
	}
	part = expected[2];
	assert_true(hl_instructions_next_part(code, sizeof(code) - 2, &part)); /* cut off */
	assert_int_equal(part.end, sizeof(code) - 2);
	assert_false(hl_instructions_next_part(code, sizeof(code) - 2, &part));
	part = (struct hl_instructions_part){0};
	assert_false(hl_instructions_next_part(invalid, sizeof(invalid), &part));
	assert_false(hl_instructions_next_part(padding, sizeof(padding), &part));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(padding_does_nothing),
		cmocka_unit_test(parts_end_behind_returns_and_jumps),
		cmocka_unit_test(lengths_are_those_of_the_assembler),
		cmocka_unit_test(frame_pointers_are_seen_where_they_are_made),
		cmocka_unit_test(calls_on_other_stacks_are_seen_by_what_follows),
		cmocka_unit_test(calls_of_registers_are_seen_where_they_are_handed_on),
		cmocka_unit_test(calls_of_every_kind_are_seen_before_a_return_address),
		cmocka_unit_test(stacks_start_where_no_call_can_return),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
