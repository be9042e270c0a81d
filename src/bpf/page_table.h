/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which stack each page of a process came from: page -> stack id, 4 bytes a page.
 *
 * Learns what happens to pages in the order in which it happens: a page is touched, a range is
 * populated without a fault, moved, or gone. Whether a page is in memory is not known here; that is
 * for snapshots to say, see bpf/page_balance.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HL_PAGE_SHIFT 12
#define HL_PAGE_BYTES (UINT64_C(1) << HL_PAGE_SHIFT)

/* Pages of one block, 2 MiB: what one fault can bring in at most. */
#define HL_PAGE_BLOCK_SHIFT 21
#define HL_PAGE_BLOCK_BYTES (UINT64_C(1) << HL_PAGE_BLOCK_SHIFT)
#define HL_PAGE_BLOCK_PAGES (1u << (HL_PAGE_BLOCK_SHIFT - HL_PAGE_SHIFT))

/* What one fault brings in besides its own page more often: fault-around, and small large folios.
 */
#define HL_PAGE_GROUP_PAGES 16u

enum hl_page_touch {
	HL_PAGE_TOUCH_WRITE = 1 << 0,
	/* Something was there, but it could not be used so: a copy on write, or the zero page. */
	HL_PAGE_TOUCH_PRESENT = 1 << 1,
};

struct hl_page_table;

/* 0 or -ENOMEM. */
int hl_page_table_new(struct hl_page_table **ret_table);

void hl_page_table_free(struct hl_page_table *table); /* NULL is fine */

/*
 * The page at ${address} was touched by the code of ${stack}; 0 is a stack that is not known. The
 * first to touch a page owns it. A touch of what was present (enum hl_page_touch) changes this only
 * when all before it were reads: then there was the zero page, or a page of a file that nobody
 * changed. 0 or -ENOMEM with the table unchanged.
 */
int hl_page_table_touch(struct hl_page_table *table, uint64_t address, uint64_t stack,
			uint32_t touch);

/* All pages in the range were brought in by ${stack}, those that somebody owns excepted. The range
 * grows outward to whole pages. 0, -ENOMEM, or -E2BIG when it would take too much to remember. */
int hl_page_table_populate(struct hl_page_table *table, uint64_t start, uint64_t end,
			   uint64_t stack);

/* Nobody owns the pages in the range any more, and nothing is left of what was there: it is mapped
 * again. */
void hl_page_table_forget(struct hl_page_table *table, uint64_t start, uint64_t end);

/* The pages in the range are gone; those around it that came with them stay as they are. */
void hl_page_table_discard(struct hl_page_table *table, uint64_t start, uint64_t end);

/* The pages in [${from}, ${from} + ${bytes}) are at ${to} now, in place of what was there. 0 or
 * -ENOMEM: some have not moved. */
int hl_page_table_move(struct hl_page_table *table, uint64_t from, uint64_t to, uint64_t bytes);

/*
 * The stacks that brought in the pages of the block at ${block}, as indices for
 * hl_page_table_stack(); 0: not known. A page that was not touched itself came with the nearest
 * that was in its group of 64 KiB, else in its block, within the mapping [${low}, ${high}): faults
 * bring in neighbours, but never of another mapping.
 */
void hl_page_table_owners(const struct hl_page_table *table, uint64_t block, uint64_t low,
			  uint64_t high, uint32_t ret_owners[HL_PAGE_BLOCK_PAGES]);

/* Indices are 1 .. hl_page_table_stack_count(). */
uint64_t hl_page_table_stack(const struct hl_page_table *table, uint32_t index);
uint32_t hl_page_table_stack_count(const struct hl_page_table *table);
