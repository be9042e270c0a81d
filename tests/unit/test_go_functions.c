/* SPDX-License-Identifier: BSD-2-Clause */
/* Go's table of functions: what it says, and that damage is not a harm. */
#include "base/go_functions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT UINT64_C(0x401000)

/* As Go's linker lays it out, of two functions. */
struct table {
	uint32_t magic;
	uint8_t zero[2], quantum, pointer_bytes;
	uint64_t functions, files, text, names_at, units_at, file_names_at, pc_tables_at,
		entries_at;
	char names[24];
	struct {
		uint32_t start, about;
	} entries[2];
	uint32_t end;
	struct {
		uint32_t start, name;
	} about[2];
};

static struct table table_of_two(void)
{
	struct table table = {
		.magic = 0xfffffff1,
		.quantum = 1,
		.pointer_bytes = 8,
		.functions = 2,
		.text = TEXT,
		.names_at = offsetof(struct table, names),
		.entries_at = offsetof(struct table, entries),
		.names = "\0main.main\0main.call",
		.end = 0x50,
	};
	uint32_t about = offsetof(struct table, about) - offsetof(struct table, entries);

	table.entries[0].about = about;
	table.entries[1].start = 0x20;
	table.entries[1].about = about + sizeof(table.about[0]);
	table.about[0].name = 1;
	table.about[1].start = 0x20;
	table.about[1].name = 11;
	return table;
}

static const uint8_t *bytes_of(const struct table *table)
{
	return (const uint8_t *)table;
}

static void functions_are_found_by_address(void **state)
{
	struct table table = table_of_two();
	struct hl_go_functions functions;
	struct hl_go_function function;

	(void)state;
	for (uint32_t magic = 0xfffffff0; magic <= 0xfffffff1; magic++) {
		table.magic = magic;
		assert_true(hl_go_functions_open(bytes_of(&table), sizeof(table), &functions));
		assert_int_equal(functions.count, 2);
		for (uint64_t at = 0; at < 0x50; at++) {
			assert_true(hl_go_functions_find(&functions, TEXT + at, &function));
			assert_string_equal(function.name, at < 0x20 ? "main.main" : "main.call");
			assert_int_equal(function.start, at < 0x20 ? TEXT : TEXT + 0x20);
			assert_int_equal(function.end, at < 0x20 ? TEXT + 0x20 : TEXT + 0x50);
		}
		assert_false(hl_go_functions_find(&functions, TEXT - 1, &function));
		assert_false(hl_go_functions_find(&functions, TEXT + 0x50, &function));
	}
}

static void other_tables_are_refused(void **state)
{
	struct table table = table_of_two();
	struct hl_go_functions functions;

	(void)state;
	assert_false(hl_go_functions_open(NULL, 0, &functions));
	table.magic = 0xfffffffb; /* of Go 1.2 to 1.15 */
	assert_false(hl_go_functions_open(bytes_of(&table), sizeof(table), &functions));
	table = table_of_two();
	table.pointer_bytes = 4;
	assert_false(hl_go_functions_open(bytes_of(&table), sizeof(table), &functions));
	table = table_of_two();
	table.text = 0; /* the loader's to write */
	assert_false(hl_go_functions_open(bytes_of(&table), sizeof(table), &functions));
}

/* AddressSanitizer sees what is read outside. */
static void damage_is_no_harm(void **state)
{
	const struct table whole = table_of_two();

	(void)state;
	for (size_t size = 0; size <= sizeof(whole); size++)
		for (size_t damaged = 0; damaged < size; damaged += size == sizeof(whole) ? 1 : 8) {
			struct hl_go_functions functions;
			struct hl_go_function function;
			uint8_t *bytes = malloc(size);
			assert_non_null(bytes);
			memcpy(bytes, &whole, size);
			bytes[damaged] ^= 0xff;
			if (hl_go_functions_open(bytes, size, &functions))
				for (uint64_t at = 0; at < 0x60; at += 8)
					hl_go_functions_find(&functions, TEXT + at, &function);
			free(bytes);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_are_found_by_address),
		cmocka_unit_test(other_tables_are_refused),
		cmocka_unit_test(damage_is_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
