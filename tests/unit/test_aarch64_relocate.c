/* SPDX-License-Identifier: BSD-2-Clause */
/* Moving an instruction of aarch64 elsewhere, on any machine: words as the assembler makes them. */
#include "base/compiler.h"
#include "hook/relocate.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define FUNCTION   UINT64_C(0xffff90001000)
#define TRAMPOLINE UINT64_C(0xffff8f000000)
#define FAR	   UINT64_C(0xffff80000000) /* of no branch from there */
#define NOP	   0xd503201fu
#define RET	   0xd65f03c0u
#define PACIASP	   0xd503233fu
#define BTI_C	   0xd503245fu

/* b from the trampoline, ${at} bytes into it, to that offset of the function. */
static uint32_t jump_to(size_t at, uint64_t target)
{
	return 0x14000000 | ((uint32_t)((target - TRAMPOLINE - at) / 4) & 0x3ffffff);
}

static struct hl_relocated move_at(uint32_t word, uint64_t address, uint64_t trampoline)
{
	const uint32_t code[] = {word, NOP, NOP, RET};
	struct hl_relocated moved;
	struct hl_error err = {0};

	assert_int_equal(hl_relocate((const uint8_t *)code, sizeof(code), address, sizeof(code),
				     trampoline, &moved, &err),
			 0);
	assert_int_equal(moved.entry_bytes, 4);
	assert_int_equal(moved.twin[0], 0);
	return moved;
}

static void assert_words(const struct hl_relocated *moved, const uint32_t *words, size_t bytes)
{
	assert_int_equal(moved->code_bytes, bytes);
	assert_memory_equal(moved->code, words, bytes);
}

#define LOW(value)  (uint32_t)(value)
#define HIGH(value) (uint32_t)((value) >> 32)

static void plain_instructions_stay_what_they_are(void **state)
{
	static const uint32_t plain[] = {0xa9bf7bfd, 0xd10083ff, 0xaa0003e1, 0xf9400260,
					 0xd53bd041, 0x9e670000, RET,	     0xd61f0220};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(plain); i++) {
		struct hl_relocated moved = move_at(plain[i], FUNCTION, TRAMPOLINE);
		const uint32_t words[] = {plain[i], jump_to(4, FUNCTION + 4)};
		assert_words(&moved, words, sizeof(words));
	}
}

/* ldr xN, of 8 bytes from here; b over these. */
#define VALUE(number, value) 0x58000040 | (number), 0x14000003, LOW(value), HIGH(value)

static void addresses_become_values(void **state)
{
	const struct {
		uint32_t word;
		uint64_t value;
		uint32_t number;
	} cases[] = {
		{0x10000003, FUNCTION, 3},		      /* adr x3, . */
		{0x30ffffe5, FUNCTION - 3, 5},		      /* adr x5, .-3 */
		{0x507ffff0, FUNCTION + 0xffffe, 16},	      /* adr x16, .+1 MiB - 2 */
		{0x90000000, FUNCTION & ~UINT64_C(0xfff), 0}, /* adrp x0, . */
		{0xb0000010, (FUNCTION & ~UINT64_C(0xfff)) + 0x1000, 16},
		{0xf0ffffe1, (FUNCTION & ~UINT64_C(0xfff)) - 0x1000, 1},
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		struct hl_relocated moved = move_at(cases[i].word, FUNCTION, TRAMPOLINE);
		const uint32_t words[] = {VALUE(cases[i].number, cases[i].value),
					  jump_to(16, FUNCTION + 4)};
		assert_words(&moved, words, sizeof(words));
	}
}

static void literals_are_loaded_through_a_register(void **state)
{
	static const uint32_t cases[][2] = {
		{0x18000065, 0xb9400225}, /* ldr w5 */ {0x58000065, 0xf9400225},   /* ldr x5 */
		{0x98000065, 0xb9800225}, /* ldrsw x5 */ {0x1c000065, 0xbd400225}, /* ldr s5 */
		{0x5c000065, 0xfd400225}, /* ldr d5 */ {0x9c000065, 0x3dc00225},   /* ldr q5 */
	};
	const uint32_t none[] = {jump_to(0, FUNCTION + 4)};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		struct hl_relocated moved = move_at(cases[i][0], FUNCTION, TRAMPOLINE);
		const uint32_t words[] = {VALUE(17, FUNCTION + 12), cases[i][1],
					  jump_to(20, FUNCTION + 4)};
		assert_words(&moved, words, sizeof(words));
	}
	struct hl_relocated moved = move_at(0xd8000060, FUNCTION, TRAMPOLINE); /* prfm */
	assert_words(&moved, none, sizeof(none));
}

static void branches_lead_where_they_did(void **state)
{
	static const uint32_t conditional[] = {0x54000000, 0x5400000b, 0xb4000003,
					       0x35000004, 0xb6080005, 0x37f80006};

	(void)state;
	struct hl_relocated moved = move_at(0x14000040, FUNCTION, TRAMPOLINE);
	const uint32_t jump[] = {jump_to(0, FUNCTION + 0x100)};
	assert_words(&moved, jump, sizeof(jump));
	moved = move_at(0x97ffffc0, FUNCTION, TRAMPOLINE); /* a call returns to the function */
	const uint32_t call[] = {VALUE(30, FUNCTION + 4), jump_to(16, FUNCTION - 0x100)};
	assert_words(&moved, call, sizeof(call));
	for (size_t i = 0; i < HL_COUNT_OF(conditional); i++) {
		moved = move_at(conditional[i] | 0x40 << 5, FUNCTION, TRAMPOLINE);
		const uint32_t words[] = {conditional[i] | 2 << 5, jump_to(4, FUNCTION + 4),
					  jump_to(8, FUNCTION + 0x100)};
		assert_words(&moved, words, sizeof(words));
	}
}

/* By ret, which needs no landing pad where it leads to. */
static void far_targets_are_reached_through_a_register(void **state)
{
	const uint64_t target = FUNCTION + 0x7fffffc;

	(void)state;
	struct hl_relocated moved = move_at(0x15ffffff, FUNCTION, TRAMPOLINE);
	const uint32_t words[] = {0x58000050, 0xd65f0200, LOW(target), HIGH(target)};
	assert_words(&moved, words, sizeof(words));
}

static void assert_refused(const uint32_t *code, size_t bytes, uint64_t trampoline,
			   const char *reason)
{
	struct hl_relocated moved;
	struct hl_error err = {0};

	assert_int_equal(hl_relocate((const uint8_t *)code, bytes, FUNCTION, bytes, trampoline,
				     &moved, &err),
			 -ENOTSUP);
	assert_non_null(strstr(err.text, reason));
}

static void what_cannot_be_moved_is_refused(void **state)
{
	const struct {
		uint32_t code[3];
		const char *reason;
	} cases[] = {
		{{BTI_C, NOP, RET}, "landing pad"},
		{{0xd50324df, NOP, RET}, "landing pad"},
		{{PACIASP, NOP, RET}, "landing pad"},
		{{0xd4000001, NOP, RET}, "a system call"},
		{{0xd63f0260, NOP, RET}, "a branch"}, /* blr x19 */
		{{0, NOP, RET}, "not instructions"},
		{{NOP, NOP, 0x17fffffe}, "jumps back"},
		{{NOP, 0x54ffffe1, RET}, "jumps back"},
		{{0xa9bf7bfd, 0xb7ffffe0, RET}, "jumps back"},
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++)
		assert_refused(cases[i].code, sizeof(cases[i].code), TRAMPOLINE, cases[i].reason);
	const uint32_t plain[] = {NOP, NOP, RET};
	assert_refused(plain, sizeof(plain), FAR, "too far");
}

/* The first instruction stays where the way to the hook can undo it. */
static void a_patch_stands_behind_what_can_be_undone(void **state)
{
	const struct {
		uint32_t word;
		int32_t undone;
		uint32_t undo;
	} cases[] = {
		{BTI_C, 0, 0},
		{PACIASP, -1, 0xd50323bf},	 /* autiasp */
		{0xd503237f, -2, 0xd50323ff},	 /* pacibsp, autibsp */
		{0xa9bd7bfd, 48, 0x9100c3ff},	 /* stp x29, x30, [sp, #-48]! */
		{0xd10803ff, 0x200, 0x910803ff}, /* sub sp, sp, #512 */
	};
	static const uint32_t others[] = {0xa9007bfd, 0xa8c17bfd, 0x910003fd, 0xaa0003e1,
					  0xf81f0ffe, 0xd14003ff, 0xa9817bfd};
	uint8_t way[HL_WAY_MAX];
	uint32_t words[2];
	int32_t undone;

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		const uint32_t code[] = {cases[i].word, NOP, RET};
		assert_int_equal(hl_relocate_first((const uint8_t *)code, sizeof(code), FUNCTION,
						   sizeof(code), &undone),
				 4);
		assert_int_equal(undone, cases[i].undone);
		size_t bytes = hl_relocate_way(TRAMPOLINE, undone, FUNCTION, way);
		assert_int_equal(bytes, undone ? 8 : 4);
		memcpy(words, way, sizeof(words));
		assert_int_equal(words[undone != 0], jump_to(undone ? 4 : 0, FUNCTION));
		if (undone)
			assert_int_equal(words[0], cases[i].undo);
	}
	for (size_t i = 0; i < HL_COUNT_OF(others); i++) {
		const uint32_t code[] = {others[i], NOP, RET};
		assert_int_equal(hl_relocate_first((const uint8_t *)code, sizeof(code), FUNCTION,
						   sizeof(code), &undone),
				 0);
	}
	const uint32_t back[] = {BTI_C, 0x54ffffe1, RET}, alone[] = {BTI_C};
	assert_int_equal(hl_relocate_first((const uint8_t *)back, 12, FUNCTION, 12, &undone), 0);
	assert_int_equal(hl_relocate_first((const uint8_t *)alone, 4, FUNCTION, 4, &undone), 0);
}

static void jumps_reach_128_MiB(void **state)
{
	uint8_t code[HL_WAY_MAX];
	const uint64_t far = FUNCTION + HL_PATCH_REACH;
	const uint32_t way[] = {0x58000050, 0xd61f0200, LOW(far), HIGH(far)};
	uint32_t word;

	(void)state;
	assert_int_equal(hl_relocate_jump(FUNCTION, far - 4, code), 0);
	memcpy(&word, code, sizeof(word));
	assert_int_equal(word, 0x15ffffff);
	assert_int_equal(hl_relocate_jump(FUNCTION, FUNCTION - HL_PATCH_REACH, code), 0);
	memcpy(&word, code, sizeof(word));
	assert_int_equal(word, 0x16000000);
	assert_int_equal(hl_relocate_jump(FUNCTION, far, code), -ERANGE);
	assert_int_equal(hl_relocate_way(FUNCTION, 0, far, code), sizeof(way));
	assert_memory_equal(code, way, sizeof(way));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_instructions_stay_what_they_are),
		cmocka_unit_test(addresses_become_values),
		cmocka_unit_test(literals_are_loaded_through_a_register),
		cmocka_unit_test(branches_lead_where_they_did),
		cmocka_unit_test(far_targets_are_reached_through_a_register),
		cmocka_unit_test(what_cannot_be_moved_is_refused),
		cmocka_unit_test(a_patch_stands_behind_what_can_be_undone),
		cmocka_unit_test(jumps_reach_128_MiB),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
