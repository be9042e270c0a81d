/* SPDX-License-Identifier: BSD-2-Clause */
/* One sweep over the runs of both snapshots; see pages.h. */
#include "bpf/pages.h"

#include <errno.h>
#include <stdlib.h>

enum hl_page_class hl_page_balance_class_of(uint32_t kind)
{
	if (kind & HL_PAGE_ANON)
		return HL_PAGE_CLASS_ANON;
	return kind & HL_PAGE_SHMEM ? HL_PAGE_CLASS_SHMEM : HL_PAGE_CLASS_FILE;
}

uint64_t hl_page_balance_sum(const struct hl_page_counts *counts)
{
	uint64_t sum = 0;

	for (int page_class = 0; page_class < HL_PAGE_CLASSES; page_class++)
		sum += counts->of[page_class];
	return sum;
}

/* ---- the sweep: pieces of the address space that are alike in both snapshots ---- */

struct piece {
	uint64_t start, end;
	uint32_t kind_before, kind_after; /* 0: not in memory */
};

struct sweep {
	const struct hl_page_run *before, *before_end; /* those not passed yet */
	const struct hl_page_run *after, *after_end;
	uint64_t at;
};

static void pass_run(const struct hl_page_run **run, const struct hl_page_run *end, uint64_t at)
{
	while (*run < end && (*run)->end <= at)
		(*run)++;
}

/* Where what is so at ${at} ends, at the latest at ${limit}, and what it is. */
static uint32_t kind_at(const struct hl_page_run *run, const struct hl_page_run *end, uint64_t at,
			uint64_t *limit)
{
	if (run == end)
		return 0;
	uint64_t change = run->start > at ? run->start : run->end;
	if (change < *limit)
		*limit = change;
	return run->start > at ? 0 : run->kind;
}

/* The next piece that is in memory before or after; false after the last. */
static bool next_piece(struct sweep *sweep, struct piece *ret_piece)
{
	struct piece piece;

	do {
		pass_run(&sweep->before, sweep->before_end, sweep->at);
		pass_run(&sweep->after, sweep->after_end, sweep->at);
		if (sweep->before == sweep->before_end && sweep->after == sweep->after_end)
			return false;
		piece = (struct piece){.start = sweep->at, .end = UINT64_MAX};
		piece.kind_before =
			kind_at(sweep->before, sweep->before_end, piece.start, &piece.end);
		piece.kind_after = kind_at(sweep->after, sweep->after_end, piece.start, &piece.end);
		sweep->at = piece.end;
	} while (!piece.kind_before && !piece.kind_after);
	*ret_piece = piece;
	return true;
}

/* ---- gains ---- */

/* The owners of the pages of one block, as seen from one mapping; the last one looked at. */
struct block_view {
	uint64_t block, low, high;
	bool valid;
	uint32_t owners[HL_PAGE_BLOCK_PAGES];
};

struct comparison {
	const struct hl_maps *maps;
	const struct hl_page_table *table;
	struct hl_page_balance *balance;
	size_t map; /* index of the first mapping that ends after the piece's start */
	struct block_view view;
};

/* Pages gained that are all in one block and in the mapping [${low}, ${high}). */
static void gain_in_block(struct comparison *comparison, uint64_t start, uint64_t end,
			  enum hl_page_class page_class, uint64_t low, uint64_t high)
{
	struct block_view *view = &comparison->view;
	uint64_t block = start & ~(HL_PAGE_BLOCK_BYTES - 1);

	if (!view->valid || view->block != block || view->low != low || view->high != high) {
		hl_page_table_owners(comparison->table, block, low, high, view->owners);
		view->block = block;
		view->low = low;
		view->high = high;
		view->valid = true;
	}
	for (uint64_t page = start; page < end; page += HL_PAGE_BYTES) {
		uint32_t owner = view->owners[(page - block) >> HL_PAGE_SHIFT];
		struct hl_page_counts *counts = owner ? &comparison->balance->gains[owner - 1]
						      : &comparison->balance->unattributed;
		counts->of[page_class]++;
	}
}

/* Whether a fault may once have brought in pages of both: parts of what was one mapping. */
static bool may_be_one(const struct hl_map *a, const struct hl_map *b)
{
	return a->inode == b->inode && a->dev_major == b->dev_major && a->dev_minor == b->dev_minor;
}

/* The mapping that holds ${address}, with what is like it in the same block, holes included. */
static void bounds_of_mapping(struct comparison *comparison, uint64_t address, uint64_t *ret_low,
			      uint64_t *ret_high)
{
	const struct hl_map *maps = comparison->maps->maps;
	size_t count = comparison->maps->count, first = comparison->map, last;
	uint64_t block = address & ~(HL_PAGE_BLOCK_BYTES - 1);

	while (first < count && maps[first].end <= address)
		first++;
	comparison->map = last = first;
	if (first == count) {
		*ret_low = 0;
		*ret_high = UINT64_MAX;
		return;
	}
	while (first > 0 && maps[first].start > block && may_be_one(&maps[first - 1], &maps[first]))
		first--;
	while (last + 1 < count && maps[last].end < block + HL_PAGE_BLOCK_BYTES &&
	       may_be_one(&maps[last], &maps[last + 1]))
		last++;
	*ret_low = first ? maps[first - 1].end : 0;
	*ret_high = last + 1 < count ? maps[last + 1].start : UINT64_MAX;
}

static void count_piece(struct comparison *comparison, const struct piece *piece)
{
	struct hl_page_balance *balance = comparison->balance;
	uint64_t pages = (piece->end - piece->start) >> HL_PAGE_SHIFT;
	enum hl_page_class class_before = hl_page_balance_class_of(piece->kind_before);
	enum hl_page_class class_after = hl_page_balance_class_of(piece->kind_after);

	if (piece->kind_before)
		balance->before.of[class_before] += pages;
	if (piece->kind_after)
		balance->after.of[class_after] += pages;
	if (piece->kind_before && piece->kind_after && class_before == class_after)
		return;
	if (piece->kind_before)
		balance->released.of[class_before] += pages;
	for (uint64_t at = piece->start, end; piece->kind_after && at < piece->end; at = end) {
		uint64_t low, high;
		bounds_of_mapping(comparison, at, &low, &high);
		end = (at | (HL_PAGE_BLOCK_BYTES - 1)) + 1;
		if (end > piece->end)
			end = piece->end;
		if (end > high)
			end = high;
		gain_in_block(comparison, at, end, class_after, low, high);
	}
}

int hl_page_balance_compare(const struct hl_pages *before, const struct hl_pages *after,
			    const struct hl_maps *maps, const struct hl_page_table *table,
			    struct hl_page_balance *ret_balance)
{
	struct hl_page_balance balance = {.stack_count = hl_page_table_stack_count(table)};
	struct comparison comparison = {.maps = maps, .table = table, .balance = &balance};
	struct sweep sweep = {
		.before = before->runs,
		.before_end = before->runs ? before->runs + before->count : NULL,
		.after = after->runs,
		.after_end = after->runs ? after->runs + after->count : NULL,
	};
	struct piece piece;

	balance.gains = calloc((size_t)balance.stack_count + 1, sizeof(*balance.gains));
	if (!balance.gains)
		return -ENOMEM;
	while (next_piece(&sweep, &piece))
		count_piece(&comparison, &piece);
	*ret_balance = balance;
	return 0;
}

void hl_page_balance_release(struct hl_page_balance *balance)
{
	free(balance->gains);
	*balance = (struct hl_page_balance){0};
}
