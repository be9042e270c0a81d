/* SPDX-License-Identifier: BSD-2-Clause */
/* Room beside code: near enough, free, and out of the way of heap and stack. */
#include "hook/attach_parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MEBIBYTE (UINT64_C(1) << 20)

static const char own_map[] = "00400000-00500000 r-xp 00000000 08:01 5 /bin/program\n"
			      "00600000-00700000 rw-p 00000000 00:00 0 [heap]\n"
			      "7f0000000000-7f0000200000 r-xp 00000000 08:01 6 /lib/libc.so.6\n"
			      "7f0000200000-7f0000300000 rw-p 00000000 00:00 0 \n"
			      "7ffffff00000-7ffffffff000 rw-p 00000000 00:00 0 [stack]\n";

static uint64_t find(uint64_t near, uint64_t size)
{
	struct hl_maps maps;
	struct hl_error err;

	assert_int_equal(hl_maps_parse(own_map, sizeof(own_map) - 1, &maps, &err), 0);
	uint64_t found = hl_room_find(&maps, near, size);
	for (size_t i = 0; found && i < maps.count; i++)
		assert_true(found + size < maps.maps[i].start || found > maps.maps[i].end);
	hl_maps_release(&maps);
	return found;
}

static void room_is_next_to_the_code(void **state)
{
	(void)state;
	assert_int_equal(find(0x7f0000100000, MEBIBYTE), 0x7f0000000000 - 4096 - MEBIBYTE);
	assert_int_equal(find(0x401000, MEBIBYTE), 0x400000 - 4096 - MEBIBYTE);
}

static void the_heap_may_still_grow(void **state)
{
	(void)state;
	/* Below the program there are 4 MiB. */
	uint64_t found = find(0x401000, 8 * MEBIBYTE);
	assert_true(found >= 0x700000 + (UINT64_C(1) << 30));
	assert_true(hl_room_reaches(found, 8 * MEBIBYTE, 0x401000));
}

static void the_stack_may_still_grow(void **state)
{
	(void)state;
	uint64_t found = find(0x7ffffff00000, MEBIBYTE);
	assert_true(found + MEBIBYTE <= 0x7ffffff00000 - (UINT64_C(1) << 26));
}

static void there_is_none_out_of_reach(void **state)
{
	(void)state;
	assert_int_equal(find(0x401000, UINT64_C(3) << 30), 0);
	assert_false(hl_room_reaches(0x7f0000000000, 4096, 0x401000));
	assert_true(hl_room_reaches(0x400000, 4096, 0x401000));
	assert_true(hl_room_reaches(0x402000, 4096, 0x401000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(room_is_next_to_the_code),
		cmocka_unit_test(the_heap_may_still_grow),
		cmocka_unit_test(the_stack_may_still_grow),
		cmocka_unit_test(there_is_none_out_of_reach),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
