/* SPDX-License-Identifier: BSD-2-Clause */
/* Places of probes: by the beginnings of functions as distributions ship them, and made-up ones. */
#include "bpf/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 };

static void expect(const char *what, const uint8_t *code, size_t bytes, unsigned arguments,
		   struct hl_probe_place expected)
{
	struct hl_probe_place place = hl_probe_place(code, bytes, arguments);

	if (place.offset != expected.offset || place.emulated != expected.emulated)
		fail_msg("%s: +%u%s instead of +%u", what, place.offset,
			 place.emulated ? "" : " (slow)", expected.offset);
	for (unsigned i = 0; i < arguments; i++)
		if (place.arguments[i] != expected.arguments[i])
			fail_msg("%s: argument %u in register %u", what, i, place.arguments[i]);
}

#define EXPECT(what, arguments, at, fast, where, ...)                      \
	do {                                                               \
		static const uint8_t code[] = {__VA_ARGS__};               \
		expect(what, code, sizeof(code), arguments,                \
		       (struct hl_probe_place){at, fast, {UNPACK where}}); \
	} while (0)
#define UNPACK(...) __VA_ARGS__

static void functions_that_begin_with_a_push_are_probed_there(void **state)
{
	(void)state;
	/* push %r12; push %rbp; push %rbx; mov %rdi,%rbx */
	EXPECT("malloc of glibc 2.36", 1, 0, true, (RDI), 0x41, 0x54, 0x55, 0x53, 0x48, 0x89, 0xfb);
	EXPECT("malloc of musl 1.2.3", 1, 0, true, (RDI), 0xe9, 0x6b, 0x19, 0x00, 0x00);
}

static void comparisons_before_a_jump_are_skipped(void **state)
{
	(void)state;
	/* test %rdi,%rdi; je */
	EXPECT("free of glibc 2.36", 1, 3, true, (RDI), 0x48, 0x85, 0xff, 0x0f, 0x84, 0xbf, 0x00,
	       0x00, 0x00, 0x55);
	/* cmpb $0,...(%rip); push %r12 */
	EXPECT("posix_memalign of glibc 2.36", 3, 7, true, (RDI, RSI, RDX), 0x80, 0x3d, 0x01, 0x02,
	       0x14, 0x00, 0x00, 0x41, 0x54, 0x49, 0x89, 0xd4);
	/* cmp $0x1000,%rdi; ja */
	EXPECT("malloc of jemalloc 5.3", 1, 7, true, (RDI), 0x48, 0x81, 0xff, 0x00, 0x10, 0x00,
	       0x00, 0x0f, 0x87, 0x93, 0x00, 0x00, 0x00);
	/* mov ...(%rip),%rax; test %rax,%rax; jne */
	EXPECT("malloc of tcmalloc 2.10", 1, 10, true, (RDI), 0x48, 0x8b, 0x05, 0x59, 0xab, 0x00,
	       0x00, 0x48, 0x85, 0xc0, 0x75, 0x75);
	/* mov %rdi,%rcx; test %rdi,%rdi; je */
	EXPECT("free of mimalloc 2.0", 1, 6, true, (RDI), 0x48, 0x89, 0xf9, 0x48, 0x85, 0xff, 0x74,
	       0x5d);
	EXPECT("operator delete of libstdc++: endbr64; jmp", 1, 4, true, (RDI), 0xf3, 0x0f, 0x1e,
	       0xfa, 0xe9, 0x00, 0x01, 0x00, 0x00);
	EXPECT("free of jemalloc 5.3", 1, 48, true, (RDI), 0x48, 0x89, 0xf8, 0x48, 0x8b, 0x15, 0x0e,
	       0x53, 0x0a, 0x00, 0x48, 0x89, 0xf9, 0x48, 0xc1, 0xe8, 0x1a, 0x48, 0x81, 0xe1, 0x00,
	       0x00, 0x00, 0xc0, 0x25, 0xf0, 0x00, 0x00, 0x00, 0x64, 0x48, 0x03, 0x04, 0x25, 0x00,
	       0x00, 0x00, 0x00, 0x48, 0x01, 0xd0, 0x48, 0x3b, 0x88, 0xb0, 0x01, 0x00, 0x00, 0x0f,
	       0x85, 0x8a, 0x00, 0x00, 0x00);
}

static void arguments_are_found_where_they_were_moved(void **state)
{
	(void)state;
	/* mov ...(%rip),%rax; mov %rdi,%rsi; mov %fs:(%rax),%rdi; cmp $0x400,%rsi; ja */
	EXPECT("malloc of mimalloc 2.0", 1, 21, true, (RSI), 0x48, 0x8b, 0x05, 0x49, 0xb4, 0x00,
	       0x00, 0x48, 0x89, 0xfe, 0x64, 0x48, 0x8b, 0x38, 0x48, 0x81, 0xfe, 0x00, 0x04, 0x00,
	       0x00, 0x77, 0x29);
	/* mov ...(%rip),%rax; mov %rsi,%rdx; mov %rdi,%rsi; mov %fs:(%rax),%rax; mov %rax,%rdi; jmp
	 */
	EXPECT("realloc of mimalloc 2.0", 2, 20, true, (RSI, RDX), 0x48, 0x8b, 0x05, 0x49, 0xa9,
	       0x00, 0x00, 0x48, 0x89, 0xf2, 0x48, 0x89, 0xfe, 0x64, 0x48, 0x8b, 0x00, 0x48, 0x89,
	       0xc7, 0xe9, 0xf7, 0x4e, 0xff, 0xff);
	/* mov ...(%rip),%rdx; mov %rdi,%rax; mov %fs:(%rdx),%rdi; cmp $1,%rax; je */
	EXPECT("calloc of mimalloc 2.0", 2, 18, true, (RAX, RSI), 0x48, 0x8b, 0x15, 0xc9, 0xad,
	       0x00, 0x00, 0x48, 0x89, 0xf8, 0x64, 0x48, 0x8b, 0x3a, 0x48, 0x83, 0xf8, 0x01, 0x74,
	       0x08);
	/* mov %edi,%eax; xor %edi,%edi; je: half a register is not a copy */
	EXPECT("a copy of the lower half", 1, 0, false, (RDI), 0x89, 0xf8, 0x31, 0xff, 0x74, 0x00);
}

static void functions_without_a_better_place_are_probed_at_their_entry(void **state)
{
	(void)state;
	EXPECT("endbr64; sub $8,%rsp", 1, 0, false, (RDI), 0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec,
	       0x08, 0x74, 0x00);
	EXPECT("mov (%rdi),%rdi; push", 1, 0, false, (RDI), 0x48, 0x8b, 0x3f, 0x55);
	EXPECT("mov %rsp,%rbp; push", 1, 0, false, (RDI), 0x48, 0x89, 0xe5, 0x55);
	EXPECT("pop %rax; push: moves the stack", 1, 0, false, (RDI), 0x58, 0x55);
	EXPECT("mov %rax,(%rsp); push: overwrites the return address", 1, 0, false, (RDI), 0x48,
	       0x89, 0x04, 0x24, 0x55);
	EXPECT("ret; push: is not reached", 1, 0, false, (RDI), 0xc3, 0x55);
	EXPECT("jmp *%rax; push: nor is this", 1, 0, false, (RDI), 0xff, 0xe0, 0x55);
	EXPECT("syscall; push", 1, 0, false, (RDI), 0x0f, 0x05, 0x55);
	EXPECT("no instruction", 1, 0, false, (RDI), 0x06, 0x55);
}

static void code_behind_a_branch_is_no_place(void **state)
{
	(void)state;
	/* jrcxz is not emulated, and what is after it not always reached */
	EXPECT("jrcxz; push", 1, 0, false, (RDI), 0xe3, 0x10, 0x55);
	EXPECT("call *%rax; push", 1, 0, false, (RDI), 0xff, 0xd0, 0x55);
}

static void places_that_jumps_lead_to_are_not_taken(void **state)
{
	(void)state;
	/* test %rdi,%rdi; je +2; jmp back to the je: a loop hits it more than once */
	EXPECT("jump to the place itself", 1, 0, false, (RDI), 0x48, 0x85, 0xff, 0x74, 0x02, 0xeb,
	       0xfc);
	/* nopw (skipped); test; je +2; jmp to the test */
	EXPECT("jump to before the place", 1, 0, false, (RDI), 0x66, 0x0f, 0x1f, 0x00, 0x48, 0x85,
	       0xff, 0x74, 0x02, 0xeb, 0xf9);
	/* the same, to the entry: that is a call of its own */
	EXPECT("jump to the entry", 1, 3, true, (RDI), 0x48, 0x85, 0xff, 0x74, 0x02, 0xeb, 0xf9);
	/* the same, behind the place */
	EXPECT("jump after the place", 1, 3, true, (RDI), 0x48, 0x85, 0xff, 0x74, 0x00, 0xeb, 0xfe);
}

static void only_nops_of_one_byte_are_taken_for_emulated(void **state)
{
	(void)state;
	EXPECT("nop", 1, 0, true, (RDI), 0x90, 0xc3);
	EXPECT("xchg %rax,%r8 is not a nop", 1, 0, false, (RDI), 0x49, 0x90, 0xc3);
	/* nopl 0(%rax,%rax,1) of five bytes, at the entry and after it; then push */
	EXPECT("5-byte nop; push", 1, 5, true, (RDI), 0x0f, 0x1f, 0x44, 0x00, 0x00, 0x55);
	EXPECT("test; 5-byte nop; ret", 1, 0, false, (RDI), 0x48, 0x85, 0xff, 0x0f, 0x1f, 0x44,
	       0x00, 0x00, 0xc3);
	EXPECT("pushw is not emulated", 1, 0, false, (RDI), 0x66, 0x55, 0xc3);
	EXPECT("push $1 is not emulated", 1, 0, false, (RDI), 0x6a, 0x01, 0xc3);
}

static void code_that_is_cut_off_is_probed_at_its_entry(void **state)
{
	static const uint8_t code[] = {0x48, 0x85, 0xff, 0x0f, 0x84, 0xbf, 0x00, 0x00, 0x00};

	(void)state;
	for (size_t bytes = 0; bytes < sizeof(code); bytes++) {
		struct hl_probe_place place = hl_probe_place(code, bytes, 1);
		assert_int_equal(place.offset, 0);
		assert_false(place.emulated);
	}
}

static void code_too_far_from_the_entry_is_no_place(void **state)
{
	uint8_t code[128];

	(void)state;
	for (size_t i = 0; i < sizeof(code); i += 3) { /* test %rdi,%rdi */
		static const uint8_t test[] = {0x48, 0x85, 0xff};
		for (size_t k = 0; k < sizeof(test) && i + k < sizeof(code); k++)
			code[i + k] = test[k];
	}
	code[63] = 0x55;
	assert_int_equal(hl_probe_place(code, sizeof(code), 1).offset, 63);
	code[63] = 0x48;
	code[66] = 0x55;
	assert_int_equal(hl_probe_place(code, sizeof(code), 1).offset, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_that_begin_with_a_push_are_probed_there),
		cmocka_unit_test(comparisons_before_a_jump_are_skipped),
		cmocka_unit_test(arguments_are_found_where_they_were_moved),
		cmocka_unit_test(functions_without_a_better_place_are_probed_at_their_entry),
		cmocka_unit_test(code_behind_a_branch_is_no_place),
		cmocka_unit_test(places_that_jumps_lead_to_are_not_taken),
		cmocka_unit_test(only_nops_of_one_byte_are_taken_for_emulated),
		cmocka_unit_test(code_that_is_cut_off_is_probed_at_its_entry),
		cmocka_unit_test(code_too_far_from_the_entry_is_no_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
