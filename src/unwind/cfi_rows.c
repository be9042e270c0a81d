/* SPDX-License-Identifier: BSD-2-Clause */
/* Sorts, merges and searches compiled rows; see cfi.h. */
#include "base/compiler.h"
#include "unwind/arch.h"

/* By offset, then rows with information first, then as given (the number is in ${reserved}). */
static bool is_before(const struct hl_cfi_row *a, const struct hl_cfi_row *b)
{
	if (a->offset != b->offset)
		return a->offset < b->offset;
	bool a_none = a->rule == HL_RULE_NONE, b_none = b->rule == HL_RULE_NONE;
	if (a_none != b_none)
		return b_none;
	return a->reserved < b->reserved;
}

static void sift_down(struct hl_cfi_row *rows, size_t root, size_t count)
{
	struct hl_cfi_row moving = rows[root];

	for (size_t child; (child = 2 * root + 1) < count; root = child) {
		if (child + 1 < count && is_before(&rows[child], &rows[child + 1]))
			child++;
		if (!is_before(&moving, &rows[child]))
			break;
		rows[root] = rows[child];
	}
	rows[root] = moving;
}

/* Heapsort: qsort(3) may allocate. */
static void sort_rows(struct hl_cfi_row *rows, size_t count)
{
	for (size_t root = count / 2; root-- > 0;)
		sift_down(rows, root, count);
	for (size_t end = count; end-- > 1;) {
		struct hl_cfi_row greatest = rows[0];
		rows[0] = rows[end];
		rows[end] = greatest;
		sift_down(rows, 0, end);
	}
}

size_t hl_cfi_rows_finish(struct hl_cfi_row *rows, size_t count)
{
	size_t kept = 0;
	uint64_t last_offset = UINT64_MAX;

	for (size_t i = 0; i < count; i++)
		rows[i].reserved = (uint32_t)i;
	sort_rows(rows, count);
	for (size_t i = 0; i < count; i++) {
		bool is_shadowed = rows[i].offset == last_offset;
		bool is_repeated = kept > 0 && rows[i].rule == rows[kept - 1].rule;
		last_offset = rows[i].offset;
		if (!is_shadowed && !is_repeated)
			rows[kept++] = rows[i];
	}
	for (size_t i = 0; i < kept; i++)
		rows[i].reserved = 0;
	return kept;
}

hl_rule hl_cfi_rows_find(const struct hl_cfi_row *rows, size_t count, uint32_t offset)
{
	size_t at = HL_LOWER_BOUND(i, count, rows[i].offset <= offset);

	return at ? rows[at - 1].rule : HL_RULE_NONE;
}
