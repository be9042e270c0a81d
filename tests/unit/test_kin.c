/* SPDX-License-Identifier: BSD-2-Clause */
/* What a forked child writes into its parent's region. */
#include "recorder/start.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static void a_child_whose_exec_failed_is_awaited_again(void **state)
{
	size_t bytes = sizeof(struct hl_region_header) + 8192;
	struct hl_region_header *header =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_ptr_not_equal(header, MAP_FAILED);
	header->flags = HL_REGION_FOLLOW;
	header->pid = (uint32_t)getppid();
	hl_kin_take(header, bytes);
	hl_kin_count_forked();
	hl_kin_enter_child();
	for (int i = 0; i < 2; i++) {
		struct hl_kin_exec exec = hl_kin_begin_exec("program", -1);
		assert_int_equal(header->kin.awaited, 0);
		assert_int_equal(header->kin.started, 1);
		hl_kin_fail_exec(exec);
		assert_int_equal(header->kin.awaited, 1);
		assert_int_equal(header->kin.started, 0);
	}
	hl_kin_count_unrecorded();
	assert_int_equal(header->kin.awaited, 0);
	assert_int_equal(header->kin.unrecorded, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_child_whose_exec_failed_is_awaited_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
