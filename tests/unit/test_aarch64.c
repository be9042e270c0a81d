/* SPDX-License-Identifier: BSD-2-Clause */
/* What unwinding knows of aarch64, on any machine: call frame information, steps over stacks made here, instructions. */
#include "base/compiler.h"
#include "base/machine.h"
#include "cfi_builder.h"
#include "unwind/rule.h"
#include "unwind/rule_cache.h"
#include "unwind/saved.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

/* All memory of this test can be read. */
bool hl_memory_page_is_readable(uint64_t page)
{
	return page != 0;
}

bool hl_memory_prove_readable(struct hl_walk *walk, uint64_t address)
{
	(void)walk;
	return address >= 4096;
}

#define CODE UINT64_C(0x2000)

/* The rule ${at} bytes into a function with that program, which begins with CFA = sp. */
static hl_rule rule_at(const uint8_t *program, size_t bytes, uint64_t at)
{
	static const struct cie_shape shape = {
		.encoding = 0x1b, .code_align = 4, .return_register = 30, .is_bare = true};
	struct builder builder = {.address = 0x1000};
	uint8_t whole[64] = {0x0c, 31, 0};
	hl_rule rule;

	memcpy(whole + 3, program, bytes);
	size_t cie = put_cie(&builder, &shape);
	put_fde(&builder, cie, &shape, CODE, 256, whole, bytes + 3);
	struct hl_cfi_section section = {builder.bytes, builder.size, builder.address, false, 0};
	return hl_cfi_find(&section, CODE + at, &rule) ? HL_RULE_NONE : rule;
}

#define RULE(AT, ...) rule_at((const uint8_t[]){__VA_ARGS__}, sizeof((uint8_t[]){__VA_ARGS__}), AT)

/* stp x29, x30, [sp, #-32]! : the record at the bottom, as gcc has it */
#define GCC_FRAME 0x41, 0x0e, 32, 0x9d, 4, 0x9e, 3
/* and add x29, sp, #16 after sub sp, sp, #48: the record on top, as clang has it */
#define CLANG_FRAME 0x42, 0x0c, 29, 16, 0x9e, 1, 0x9d, 2

static void rules_find_both_registers_of_a_record(void **state)
{
	(void)state;
	hl_rule gcc = RULE(8, GCC_FRAME), clang = RULE(8, CLANG_FRAME);

	assert_int_equal(hl_rule_kind_of(gcc), HL_RULE_SP);
	assert_int_equal(hl_rule_cfa_offset(gcc), 32);
	assert_true(hl_arch_is_plain(gcc));
	struct hl_arch_plain step = hl_arch_plain_step(gcc, 1000, 0);
	assert_int_equal(step.cfa, 1032);
	assert_true(step.bp_saved);
	assert_int_equal(step.bp_at, 1000);
	assert_int_equal(step.ra_at, 1008);
	assert_int_equal(hl_rule_kind_of(clang), HL_RULE_BP);
	assert_true(hl_arch_is_plain(clang));
	step = hl_arch_plain_step(clang, 1000, 2000);
	assert_int_equal(step.cfa, 2016);
	assert_int_equal(step.bp_at, 2000);
	assert_int_equal(step.ra_at, 2008);
}

static void rules_of_a_function_that_keeps_x29(void **state)
{
	(void)state;
	/* str x30, [sp, #-16]! */
	hl_rule rule = RULE(4, 0x41, 0x0e, 16, 0x9e, 2);

	assert_true(hl_arch_is_plain(rule));
	struct hl_arch_plain step = hl_arch_plain_step(rule, 1000, 77);
	assert_int_equal(step.cfa, 1016);
	assert_false(step.bp_saved);
	assert_int_equal(step.ra_at, 1000);
}

static void marks_of_signed_addresses_change_nothing(void **state)
{
	(void)state;
	/* paciasp before, autiasp behind: DW_CFA_AARCH64_negate_ra_state, and the one of PAuth_LR */
	assert_int_equal(RULE(8, 0x2d, GCC_FRAME), RULE(8, GCC_FRAME));
	assert_int_equal(RULE(8, 0x2c, GCC_FRAME), RULE(8, GCC_FRAME));
}

static void rules_that_are_not_known_are_refused(void **state)
{
	(void)state;
	assert_int_equal(RULE(0, 0x07, 30), HL_RULE_END);			/* undefined x30 */
	assert_int_equal(RULE(0, 0x0c, 19, 16), HL_RULE_UNSUPPORTED);		/* CFA by x19 */
	assert_int_equal(RULE(0, 0x0e, 16, 0x09, 30, 17), HL_RULE_UNSUPPORTED); /* x30 in x17 */
	assert_int_equal(RULE(0, 0x0e, 12, 0x9e, 1), HL_RULE_UNSUPPORTED);	/* not a word */
	assert_int_equal(hl_cfi_tracked(28), HL_SAVED_X19 + 9);
	assert_int_equal(hl_cfi_tracked(34), -1); /* RA_SIGN_STATE */
}

static enum hl_arch_outcome step(hl_rule rule, struct hl_arch_frame *frame, uint64_t *context)
{
	static struct hl_walk walk;
	struct hl_arch_reads reads = {0};

	return hl_step(&walk, rule, frame, context, &reads);
}

#define SIGNED(address) ((address) | UINT64_C(0x3a5) << 48)

static void steps_drop_signatures(void **state)
{
	(void)state;
	uint64_t stack[4] = {0x7777, SIGNED(UINT64_C(0x4004)), 0, 0}, context = 0;
	struct hl_arch_frame frame = {.pc = 0x3003, .sp = (uint64_t)stack, .bp = (uint64_t)stack};

	assert_int_equal(step(RULE(8, GCC_FRAME), &frame, &context), HL_STEP_OUT);
	assert_int_equal(frame.pc, 0x4003);
	assert_int_equal(frame.sp, (uint64_t)(stack + 4));
	assert_int_equal(frame.bp, 0x7777);
}

static void frames_may_be_larger_than_rules_reach_from_their_ends(void **state)
{
	(void)state;
	static uint64_t stack[3000];
	uint64_t context = 0;
	struct hl_arch_frame frame = {.pc = 0x3003, .sp = (uint64_t)stack};
	/* 20,016 bytes, the record at the bottom */
	hl_rule rule = RULE(8, 0x41, 0x0e, 0xb0, 0x9c, 1, 0x9d, 0xc6, 0x13, 0x9e, 0xc5, 0x13);

	stack[0] = 0x7777;
	stack[1] = 0x4004;
	assert_false(hl_arch_is_plain(rule));
	assert_int_equal(step(rule, &frame, &context), HL_STEP_OUT);
	assert_int_equal(frame.pc, 0x4003);
	assert_int_equal(frame.sp, (uint64_t)stack + 20016);
	assert_int_equal(frame.bp, 0x7777);
}

static void frames_of_generated_code_have_their_record_at_the_end(void **state)
{
	(void)state;
	uint64_t stack[8] = {[4] = 0x7777, [5] = 0x4004}, context = 0;
	hl_rule rules[] = {hl_arch_rule_of_frame(48), HL_RULE_OUTER_RECORD};

	for (size_t i = 0; i < HL_COUNT_OF(rules); i++) {
		struct hl_arch_frame frame = {
			.pc = 0x3003, .sp = (uint64_t)stack, .bp = (uint64_t)(stack + 4)};
		assert_true(hl_arch_is_plain(rules[i]));
		assert_int_equal(step(rules[i], &frame, &context), HL_STEP_OUT);
		assert_int_equal(frame.pc, 0x4003);
		assert_int_equal(frame.sp, (uint64_t)(stack + 6));
		assert_int_equal(frame.bp, 0x7777);
	}
}

static void steps_leave_code_without_rules_by_records(void **state)
{
	(void)state;
	uint64_t stack[8] = {0}, context = 0;
	struct hl_arch_frame frame = {
		.pc = 0x3003, .sp = (uint64_t)stack, .bp = (uint64_t)(stack + 2)};

	stack[2] = (uint64_t)(stack + 6);
	stack[3] = 0x4004;
	assert_int_equal(step(HL_RULE_FRAME_POINTER, &frame, &context), HL_STEP_OUT);
	assert_int_equal(frame.pc, 0x4003);
	assert_int_equal(frame.bp, (uint64_t)(stack + 6));
	assert_int_equal(frame.sp, (uint64_t)(stack + 6)); /* gcc's caller has its record there */
	/* The outermost record is of zeros. */
	assert_int_equal(step(HL_RULE_NONE, &frame, &context), HL_STEP_END);
}

static void stack_pointers_beyond_records_are_corrected_by_rules(void **state)
{
	(void)state;
	/* sub sp, sp, #272; stp x29, x30, [sp, #256]; and the same by 20,032 bytes, the record too far from their end */
	hl_rule above = RULE(8, 0x41, 0x0e, 0x90, 0x02, 0x9d, 2, 0x9e, 1);
	hl_rule large = RULE(8, 0x41, 0x0e, 0xc0, 0x9c, 1, 0x9d, 0xc6, 0x13, 0x9e, 0xc5, 0x13);
	const struct {
		hl_rule rule;
		uint64_t sp, bp, expected;
	} cases[] = {
		{above, 5000, 5000, 5000 - 256},
		{large, 5000, 5000, 5000 - 16},
		{RULE(8, GCC_FRAME), 5000, 5000, 5000},
		{RULE(8, CLANG_FRAME), 5000, 5000, 5000},
		{above, 4016 + 256, 4016 + 256, 4016},
		{above, 4016 + 248, 4016 + 248, 4016 + 248}, /* no room: x29 is data */
		{above, 4016, 7, 4016},			     /* as is this */
		{HL_RULE_NONE, 5000, 5000, 5000},
	};

	assert_true(HL_ARCH_GUESSES_SP(HL_RULE_NONE) && HL_ARCH_GUESSES_SP(HL_RULE_FRAME_POINTER) &&
		    HL_ARCH_GUESSES_SP(HL_RULE_OTHER_STACK));
	assert_false(HL_ARCH_GUESSES_SP(above) || HL_ARCH_GUESSES_SP(RULE(8, CLANG_FRAME)) ||
		     HL_ARCH_GUESSES_SP(HL_RULE_SIGNAL));
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		struct hl_arch_frame frame = {.sp = cases[i].sp, .bp = cases[i].bp};
		hl_rule_correct_sp(cases[i].rule, 4000, &frame);
		assert_int_equal(frame.sp, cases[i].expected);
	}
}

static void steps_through_a_signal_into_a_function_without_a_frame(void **state)
{
	(void)state;
	_Alignas(16) uint64_t stack[128] = {0};
	uint64_t context = 0, outer = (uint64_t)(stack + 100);
	struct hl_arch_frame frame = {.sp = (uint64_t)stack};

	stack[HL_UCONTEXT_RBP / 8] = 0x7777;
	stack[HL_UCONTEXT_X30 / 8] = 0x5008;
	stack[HL_UCONTEXT_RSP / 8] = outer;
	stack[HL_UCONTEXT_RIP / 8] = 0x4000;
	assert_int_equal(step(HL_RULE_SIGNAL, &frame, &context), HL_STEP_OUT);
	assert_int_equal(frame.pc, 0x4000);
	assert_int_equal(frame.sp, outer);
	assert_int_equal(frame.bp, 0x7777);
	uint64_t without = 0;
	struct hl_arch_frame called = frame;
	assert_int_equal(step(RULE(0, 0), &called, &without), HL_STEP_LOST);
	assert_int_equal(step(RULE(0, 0), &frame, &context), HL_STEP_OUT);
	assert_int_equal(frame.pc, 0x5007);
	assert_int_equal(frame.sp, outer);
	assert_int_equal(context, 0);
}

static void trampolines_of_signals_are_known(void **state)
{
	(void)state;
	static const uint32_t code[] = {0xd503201f, 0xd2801168, 0xd4000001, 0xd503201f};

	assert_true(hl_arch_returns_from_signal((uint64_t)(code + 1)));
	assert_false(hl_arch_returns_from_signal((uint64_t)code));
}

static void instructions_say_what_functions_do(void **state)
{
	(void)state;
	static const uint32_t prologue[] = {0xd503233f /* paciasp */,
					    0xa9be7bfd /* stp x29, x30, [sp, #-32]! */,
					    0x910003fd /* mov x29, sp */, 0xd65f03c0};
	static const uint32_t calls[] = {0x94000010 /* bl .+64 */,
					 0xd63f0260 /* blr x19 */,
					 0x910003bf /* mov sp, x29 */,
					 0xd65f03c0 /* ret */,
					 0xd503201f,
					 0xd503201f,
					 0x14000004 /* b .+16 */,
					 0x54000061 /* b.ne .+12 */,
					 0xb4ffffe0 /* cbz x0, .-4 */,
					 0x36000040 /* tbz w0, #0, .+8 */};
	static const uint32_t exits[] = {0xd2800ba8 /* mov x8, #93 */, 0xd4000001 /* svc #0 */};
	const uint8_t *code = (const uint8_t *)calls;
	struct hl_instructions_part part = {0};

	assert_int_equal(
		hl_instructions_frame_pointer_made((const uint8_t *)prologue, sizeof(prologue)),
		12);
	assert_int_equal(hl_instructions_frame_pointer_made(code, sizeof(calls)), 0);
	assert_int_equal(hl_instructions_called(code + 4, 0x1004), 0x1040);
	assert_true(hl_instructions_follow_call(code + 4));
	assert_false(hl_instructions_follow_call_of_register(code + 4));
	assert_true(hl_instructions_follow_call_of_register(code + 8));
	assert_true(hl_instructions_leave_stack(code + 8, 8));
	assert_false(hl_instructions_leave_stack(code + 12, 8));
	assert_true(hl_instructions_start_stack((const uint8_t *)exits, 0x1004));
	assert_false(hl_instructions_start_stack(code + 16, 0x1004));
	assert_true(hl_instructions_are_padding(code + 15, 9)); /* from the next instruction on */
	assert_false(hl_instructions_are_padding(code + 12, 12));
	assert_int_equal(hl_instructions_jump_target(code + 24), (uint64_t)code + 24 + 16);
	assert_int_equal(hl_instructions_jump_target(code + 28), (uint64_t)code + 28 + 12);
	assert_int_equal(hl_instructions_jump_target(code + 32), (uint64_t)code + 32 - 4);
	assert_int_equal(hl_instructions_jump_target(code + 36), (uint64_t)code + 36 + 8);
	assert_int_equal(hl_instructions_jump_target(code), 0);
	assert_int_equal(hl_instructions_jump_target(code + 25), 0);
	assert_true(hl_instructions_next_part(code, sizeof(calls), &part));
	assert_int_equal(part.start, 0);
	assert_int_equal(part.end, 16);
	assert_true(hl_instructions_next_part(code, sizeof(calls), &part));
	assert_int_equal(part.start, 24);
}

/* What GNU ld writes with -z lazy or now, -z force-bti and -z pac-plt. */
static void stubs_and_beginnings_of_functions_have_no_frame(void **state)
{
	static const uint32_t stubs[] = {
		/* the first one, which stores two registers */
		0xd503245f, 0xa9bf7bf0, 0xf00000f0, 0xf947fe11, 0x913fe210, 0xd61f0220, 0xd503201f,
		0xd503201f,
		/* 8: plain */
		0x90000110, 0xf9400211, 0x91000210, 0xd61f0220,
		/* 12: that signs */
		0x90000110, 0xf9400611, 0x91002210, 0xd503219f, 0xd61f0220, 0xd503201f,
		/* 18: that begins with bti c */
		0xd503245f, 0x90000110, 0xf9400a11, 0x91004210, 0xd61f0220, 0xd503201f};
	/* bti c; mov x0, x1; stp x29, x30, [sp, #-16]!; mov x29, sp */
	static const uint32_t function[] = {0,		0xd503201f, 0xd503201f, 0xd503201f,
					    0xd503245f, 0xaa0103e0, 0xa9bf7bfd, 0x910003fd};

	(void)state;
	for (size_t i = 4; i < HL_COUNT_OF(stubs) - 1; i++)
		if (hl_arch_has_no_frame((uint64_t)&stubs[i]) != (i >= 8 && i != 17))
			fail_msg("word %zu of the stubs", i);
	assert_false(hl_arch_has_no_frame((uint64_t)&stubs[9] + 1));
	assert_true(hl_arch_has_no_frame((uint64_t)&function[5]));
	assert_true(hl_arch_has_no_frame((uint64_t)&function[6]));
	assert_false(hl_arch_has_no_frame((uint64_t)&function[7]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rules_find_both_registers_of_a_record),
		cmocka_unit_test(rules_of_a_function_that_keeps_x29),
		cmocka_unit_test(marks_of_signed_addresses_change_nothing),
		cmocka_unit_test(rules_that_are_not_known_are_refused),
		cmocka_unit_test(steps_drop_signatures),
		cmocka_unit_test(frames_may_be_larger_than_rules_reach_from_their_ends),
		cmocka_unit_test(frames_of_generated_code_have_their_record_at_the_end),
		cmocka_unit_test(steps_leave_code_without_rules_by_records),
		cmocka_unit_test(stack_pointers_beyond_records_are_corrected_by_rules),
		cmocka_unit_test(steps_through_a_signal_into_a_function_without_a_frame),
		cmocka_unit_test(trampolines_of_signals_are_known),
		cmocka_unit_test(instructions_say_what_functions_do),
		cmocka_unit_test(stubs_and_beginnings_of_functions_have_no_frame),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
