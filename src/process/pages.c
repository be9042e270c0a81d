/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks pages up among those that were found in memory; see pagemap.h. */
#include "base/compiler.h"
#include "process/pagemap.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

/* The first run that ends after ${address}. */
static size_t first_after(const struct hl_pages *pages, uint64_t address)
{
	return HL_LOWER_BOUND(i, pages->count, pages->runs[i].end <= address);
}

bool hl_pages_contain(const struct hl_pages *pages, uint64_t address)
{
	size_t at = first_after(pages, address);

	return at < pages->count && pages->runs[at].start <= address;
}

uint64_t hl_pages_bytes_in(const struct hl_pages *pages, uint64_t start, uint64_t end,
			   size_t *cursor)
{
	const struct hl_page_run *runs = pages->runs;
	size_t at = *cursor;
	uint64_t bytes = 0;

	bool is_near =
		at < pages->count && runs[at].end > start && (at == 0 || runs[at - 1].end <= start);
	if (!is_near)
		at = first_after(pages, start);
	*cursor = at;
	for (; at < pages->count && runs[at].start < end; at++)
		bytes += (runs[at].end < end ? runs[at].end : end) -
			 (runs[at].start > start ? runs[at].start : start);
	return bytes;
}

uint64_t hl_pages_count_in(const struct hl_pages *pages, uint64_t start, uint64_t end)
{
	size_t cursor = 0;

	return hl_pages_bytes_in(pages, start, end, &cursor) / (uint64_t)sysconf(_SC_PAGESIZE);
}

void hl_pages_release(struct hl_pages *pages)
{
	free(pages->runs);
	*pages = (struct hl_pages){0};
}
