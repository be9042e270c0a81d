/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks pages up among those that were found in memory; see pagemap.h. */
#include "base/compiler.h"
#include "process/pagemap.h"

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

uint64_t hl_pages_count_in(const struct hl_pages *pages, uint64_t start, uint64_t end)
{
	uint64_t bytes = 0;

	for (size_t i = first_after(pages, start); i < pages->count && pages->runs[i].start < end;
	     i++) {
		const struct hl_page_run *run = &pages->runs[i];
		bytes += (run->end < end ? run->end : end) -
			 (run->start > start ? run->start : start);
	}
	return bytes / (uint64_t)sysconf(_SC_PAGESIZE);
}

void hl_pages_release(struct hl_pages *pages)
{
	free(pages->runs);
	*pages = (struct hl_pages){0};
}
