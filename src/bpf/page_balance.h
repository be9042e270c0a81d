/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What two snapshots of a process' pages differ in, by the stacks that brought the pages in.
 *
 * A page that is there only afterwards was gained: by the stack that owns it, or unattributed. One
 * that was there only before was released; who once touched it is not known. One that was there
 * both times counts for nobody, even if it is another one by now, unless it changed its kind (a
 * page of a file that was written to became one of the process' own). So
 *
 *	sum of gains + unattributed - released = pages after - pages before
 *
 * in each kind, whatever is known of stacks.
 */
#pragma once

#include "bpf/page_table.h"
#include "process/maps.h"
#include "process/pagemap.h"

/* Besides enum hl_page_kind: pages of shared memory are of a file, but not in any file system that
 * would keep them. */
#define HL_PAGE_SHMEM (UINT32_C(1) << 8)

/* How pages are told apart in reports. */
enum hl_page_class {
	HL_PAGE_CLASS_ANON,
	HL_PAGE_CLASS_FILE,
	HL_PAGE_CLASS_SHMEM,
	HL_PAGE_CLASSES,
};

/* Numbers of pages by class. */
struct hl_page_counts {
	uint64_t of[HL_PAGE_CLASSES];
};

/* Zero-initialize for an empty one. */
struct hl_page_balance {
	struct hl_page_counts before, after;
	struct hl_page_counts released;	    /* there before, gone afterwards */
	struct hl_page_counts unattributed; /* there afterwards only, and nobody known owns it */
	struct hl_page_counts *gains;	    /* gains[index - 1]: of a stack of the table */
	uint32_t stack_count;
};

/* Compares; ${maps} are those of the snapshot ${after}. 0 or -ENOMEM. ${ret_balance} is to be
 * released. */
int hl_page_balance_compare(const struct hl_pages *before, const struct hl_pages *after,
			    const struct hl_maps *maps, const struct hl_page_table *table,
			    struct hl_page_balance *ret_balance);

void hl_page_balance_release(struct hl_page_balance *balance);

enum hl_page_class hl_page_class_of(uint32_t kind);
uint64_t hl_page_counts_sum(const struct hl_page_counts *counts);
