/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzz target: call frame information of any bytes gives rows or an error, reads nothing outside of
 * them, and its rows are what cfi.h says.
 *
 * The first byte of an input says what the others are: 0 .eh_frame, 1 .debug_frame, 2 memory that
 * begins with .eh_frame_hdr. The kept corpus are sections of small libraries.
 */
#include "unwind/cfi.h"

#include <errno.h>
#include <stdlib.h>

#define ROWS_MAX 4096u
#define RULE_END (UINT64_C(1) << 48)
/* Where the sections are said to lie: code up to 2 GiB before and after them can have rows. */
#define SECTION_ADDRESS UINT64_C(0x80003000)

enum input_kind { INPUT_EH_FRAME, INPUT_DEBUG_FRAME, INPUT_MEMORY, INPUT_KINDS };

struct row_list {
	struct hl_cfi_row rows[ROWS_MAX];
	size_t count;
};

static void require(bool holds)
{
	if (!holds)
		abort();
}

static int add_row(void *context, const struct hl_cfi_row *row)
{
	struct row_list *list = context;

	require(row->rule < RULE_END);
	if (list->count == ROWS_MAX)
		return -ENOSPC;
	list->rows[list->count++] = *row;
	return 0;
}

static void require_error_or_rule(int result, hl_rule rule)
{
	require(result == -ENOENT || result == -EINVAL || (result == 0 && rule < RULE_END));
}

static void check_rows(const struct row_list *list)
{
	const struct hl_cfi_row *rows = list->rows;

	for (size_t i = 0; i < list->count; i++) {
		require(!i ||
			(rows[i].offset > rows[i - 1].offset && rows[i].rule != rows[i - 1].rule));
		require(hl_cfi_rows_find(rows, list->count, rows[i].offset) == rows[i].rule);
	}
}

static void check_section(const uint8_t *bytes, size_t size, bool is_debug_frame)
{
	static struct row_list list;
	const struct hl_cfi_section section = {
		.bytes = bytes,
		.size = size,
		.address = SECTION_ADDRESS,
		.is_debug_frame = is_debug_frame,
	};

	list.count = 0;
	int result = hl_cfi_compile(&section, 0, add_row, &list);
	require(result == 0 || result == -EINVAL || result == -ENOSPC);
	list.count = hl_cfi_rows_finish(list.rows, list.count);
	check_rows(&list);
	for (size_t i = 0; i < list.count && i < 16; i++) {
		hl_rule rule = 0;
		result = hl_cfi_find(&section, list.rows[i].offset, &rule);
		require_error_or_rule(result, rule);
	}
}

/* The module's code is looked for before and after the bytes, as linkers place it. */
static void check_memory(const uint8_t *bytes, size_t size)
{
	uint64_t start = (uint64_t)bytes;

	for (int64_t distance = -8192; distance <= 8192; distance += 512) {
		hl_rule rule = 0;
		int result = hl_cfi_find_in_memory(bytes, start, start + size,
						   start + (uint64_t)distance, &rule);
		require_error_or_rule(result, rule);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	if (!size || input[0] >= INPUT_KINDS)
		return -1;
	if (input[0] == INPUT_MEMORY)
		check_memory(input + 1, size - 1);
	else
		check_section(input + 1, size - 1, input[0] == INPUT_DEBUG_FRAME);
	return 0;
}
