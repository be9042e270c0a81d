/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which pages of a process are in memory.
 *
 * PAGEMAP_SCAN (kernel 6.7) passes over addresses without pages at once and knows the zero page
 * (the huge one since 6.17); where it is missing /proc/PID/pagemap is read, and the zero page is
 * known only with CAP_SYS_ADMIN. Either takes about 5 ms for a GiB of which half is in memory, most
 * of it to tell pages of files from others. Neither faults a page in, nor changes anything in the
 * target.
 */
#pragma once

#include "base/error.h"
#include "process/maps.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hl_page_kind {
	HL_PAGE_ANON = 1 << 0,
	HL_PAGE_FILE = 1 << 1, /* of a file, or shared memory that is one */
	HL_PAGE_HUGE = 1 << 2,
	HL_PAGE_BESIDE_RSS =
		1 << 3, /* of hugetlbfs, which RSS does not count; set by readers of memory */
};

/* A run of pages that are in memory and alike; the zero page is not in memory. */
struct hl_page_run {
	uint64_t start, end; /* addresses */
	uint32_t kind;	     /* enum hl_page_kind */
};

/* Present pages in rising order. Zero-initialize for an empty one. */
struct hl_pages {
	struct hl_page_run *runs;
	size_t count, capacity;
	uint64_t page_count;
};

struct hl_pagemap;

/* Opens the page map of ${pid}. -EACCES, -ESRCH, -ENOMEM with a sentence. One thread at a time. */
int hl_pagemap_open(pid_t pid, struct hl_pagemap **ret_pagemap, struct hl_error *err);

/* "PAGEMAP_SCAN" or "pagemap". */
const char *hl_pagemap_method(const struct hl_pagemap *pagemap);

/* Whether addresses without pages take next to no time; otherwise a TiB of them takes seconds. */
bool hl_pagemap_passes_over_holes(const struct hl_pagemap *pagemap);

/* Reads pagemap from now on, as on kernels without PAGEMAP_SCAN. Runs are never HL_PAGE_HUGE then.
 */
void hl_pagemap_avoid_scan(struct hl_pagemap *pagemap);

/* Whether the zero page can be told from others; else it counts as present. */
bool hl_pagemap_knows_zero_page(const struct hl_pagemap *pagemap);

/* Appends the present pages in [${start}, ${end}), page-aligned and after what is there. 0,
 * -ESRCH when the process has ended, or a negative errno. */
int hl_pagemap_scan(struct hl_pagemap *pagemap, uint64_t start, uint64_t end,
		    struct hl_pages *pages);

/* Appends in the same way the pages that were swapped out, all of them HL_PAGE_ANON. */
int hl_pagemap_scan_swapped(struct hl_pagemap *pagemap, uint64_t start, uint64_t end,
			    struct hl_pages *pages);

/* Appends both. */
int hl_pagemap_scan_with_swapped(struct hl_pagemap *pagemap, uint64_t start, uint64_t end,
				 struct hl_pages *pages);

/* Whether the page at ${address} is among them. Binary search. */
bool hl_pages_contain(const struct hl_pages *pages, uint64_t address);

/* Present pages within [${start}, ${end}). */
uint64_t hl_pages_count_in(const struct hl_pages *pages, uint64_t start, uint64_t end);

/* Bytes of [${start}, ${end}) that lie on present pages. ${cursor}, 0 at first, is where the last
 * call found its place: calls in rising order of address cost next to nothing. */
uint64_t hl_pages_bytes_in(const struct hl_pages *pages, uint64_t start, uint64_t end,
			   size_t *cursor);

void hl_pages_release(struct hl_pages *pages);
void hl_pagemap_free(struct hl_pagemap *pagemap); /* NULL is fine */
