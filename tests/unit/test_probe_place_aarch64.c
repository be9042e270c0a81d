/* SPDX-License-Identifier: BSD-2-Clause */
/* What code of aarch64 says about probes, on any machine. */
#include "bpf/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#define BYTES(words) (const uint8_t *)(words), sizeof(words)

struct targets {
	int64_t at[8];
	size_t count, wanted;
};

static bool keep(int64_t target, void *context)
{
	struct targets *targets = context;

	targets->at[targets->count++] = target;
	return targets->count == targets->wanted;
}

static void branches_lead_to_their_targets(void **state)
{
	static const uint32_t code[] = {
		0x94000004, /* bl +16 */
		0x17fffffe, /* b -8 */
		0xd503201f, /* nop */
		0x54000060, /* b.eq +12 */
		0xb4000040, /* cbz x0, +8 */
		0x37ffffc1, /* tbnz w1, #31, -8 */
		0xd63f0020, /* blr x1 */
		0xd65f03c0, /* ret */
	};
	const int64_t expected[] = {16, -4, 24, 24, 12};
	struct targets all = {.wanted = 8}, two = {.wanted = 2};

	(void)state;
	assert_false(hl_probe_place_visit_branches(BYTES(code), keep, &all));
	assert_int_equal(all.count, 5);
	for (size_t i = 0; i < all.count; i++)
		assert_int_equal(all.at[i], expected[i]);
	assert_true(hl_probe_place_visit_branches(BYTES(code), keep, &two));
	assert_int_equal(two.count, 2);
}

static void probes_go_to_the_entry(void **state)
{
	static const uint32_t code[] = {0xb4000040, 0xd65f03c0}; /* cbz x0, +8; ret */
	struct hl_probe_place place = hl_probe_place(BYTES(code), 4);

	(void)state;
	assert_int_equal(place.offset, 0);
	for (uint8_t i = 0; i < HL_PROBE_ARGUMENTS_MAX; i++)
		assert_int_equal(place.arguments[i], i);
	assert_int_equal(hl_probe_place_after_call(BYTES(code), 1), 0);
}

static void jumps_that_are_always_taken_have_a_length(void **state)
{
	static const uint32_t jump[] = {0x14000010}, call[] = {0x94000010};

	(void)state;
	assert_int_equal(hl_probe_place_jump_bytes(BYTES(jump)), 4);
	assert_int_equal(hl_probe_place_jump_bytes((const uint8_t *)jump, 3), 0);
	assert_int_equal(hl_probe_place_jump_bytes(BYTES(call)), 0);
}

static void stubs_name_the_word_that_they_jump_by(void **state)
{
	/* adrp x16, +31 pages; ldr x17, [x16, #0xf98]; the same with 1 page less than none, and behind bti c */
	static const uint32_t stub[] = {0xf00000f0, 0xf947ce11}, other[] = {0xf00000f0, 0xd503201f};
	static const uint32_t marked[] = {0xd503245f, 0xf0fffff0, 0xf947ce11};

	(void)state;
	assert_int_equal(hl_probe_place_stub_slot(BYTES(stub), 0x1230), 0x20f98);
	assert_int_equal(hl_probe_place_stub_slot(BYTES(marked), 0x1230), 0xf98);
	assert_int_equal(hl_probe_place_stub_slot(BYTES(other), 0x1230), 0);
	assert_int_equal(hl_probe_place_stub_slot((const uint8_t *)stub, 7, 0x1230), 0);
	assert_int_equal(hl_probe_place_stub_slot((const uint8_t *)stub, 0, 0x1230), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(branches_lead_to_their_targets),
		cmocka_unit_test(probes_go_to_the_entry),
		cmocka_unit_test(jumps_that_are_always_taken_have_a_length),
		cmocka_unit_test(stubs_name_the_word_that_they_jump_by),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
