/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the pages in memory by PAGEMAP_SCAN or by reading /proc/PID/pagemap; see maps.h. */
#include "process/maps.h"

#include "base/array.h"
#include "base/compiler.h"
#include "base/machine.h"
#include "process/process.h"

#include <fcntl.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES (UINT64_C(2) << 20)

/* Runs that one ioctl may return: 96 KiB. */
#define SCAN_REGIONS 4096

/* Entries that one read takes: 256 KiB, 128 MiB of addresses. */
#define READ_ENTRIES 32768u

/* linux/fs.h of kernel 6.7; older headers lack it. */
struct scan_region {
	__u64 start, end, categories;
};

struct scan_arguments {
	__u64 size, flags, start, end, walk_end, vec, vec_len, max_pages;
	__u64 category_inverted, category_mask, category_anyof_mask, return_mask;
};

#define SCAN_IOCTL	 _IOWR('f', 16, struct scan_arguments)
#define CATEGORY_FILE	 (UINT64_C(1) << 2)
#define CATEGORY_PRESENT (UINT64_C(1) << 3)
#define CATEGORY_SWAPPED (UINT64_C(1) << 4)
#define CATEGORY_ZERO	 (UINT64_C(1) << 5)
#define CATEGORY_HUGE	 (UINT64_C(1) << 6)
#define CATEGORY_GUARD	 (UINT64_C(1) << 8) /* since kernel 6.15 */

/* An entry of pagemap: Documentation/admin-guide/mm/pagemap.rst of the kernel. */
#define ENTRY_FRAME   ((UINT64_C(1) << 55) - 1)
#define ENTRY_GUARD   (UINT64_C(1) << 58) /* since kernel 6.15 */
#define ENTRY_FILE    (UINT64_C(1) << 61)
#define ENTRY_SWAPPED (UINT64_C(1) << 62)
#define ENTRY_PRESENT (UINT64_C(1) << 63)

struct hl_pagemap {
	int fd;
	uint64_t page_bytes;
	bool scans; /* by PAGEMAP_SCAN */
	bool knows_zero_page;
	uint64_t guards;	  /* CATEGORY_GUARD where PAGEMAP_SCAN knows it */
	uint64_t zero_frame;	  /* 0: frame numbers are hidden */
	uint64_t huge_zero_frame; /* its first; 0: none */
	void *zero_pages;	  /* of our own; they hold the huge zero page where it is */
	union {
		struct scan_region *regions;
		uint64_t *entries;
		void *buffer;
	};
};

static int append(struct hl_pages *pages, const struct hl_pagemap *pagemap, struct hl_page_run run)
{
	pages->page_count += (run.end - run.start) / pagemap->page_bytes;
	struct hl_page_run *last = pages->count ? &pages->runs[pages->count - 1] : NULL;
	if (last && last->end == run.start && last->kind == run.kind) {
		last->end = run.end;
		return 0;
	}
	return HL_ARRAY_APPEND(pages->runs, pages->count, pages->capacity, run);
}

/* PAGEMAP_SCAN */

/* Which pages are asked for. */
enum wanted {
	WANTED_PRESENT, /* and not the zero page */
	WANTED_SWAPPED,
	WANTED_BOTH,
};

/* Asks for the first wanted pages: the number of their regions. Guards, as glibc 2.42 and later have
 * them at the end of stacks, hold nothing, but count as swapped. */
static int scan_some(const struct hl_pagemap *pagemap, int fd, enum wanted wanted, uint64_t start,
		     uint64_t end)
{
	uint64_t of_any = (wanted != WANTED_SWAPPED ? CATEGORY_PRESENT : 0) |
			  (wanted != WANTED_PRESENT ? CATEGORY_SWAPPED : 0);
	struct scan_arguments arguments = {
		.size = sizeof(arguments),
		.start = start,
		.end = end,
		.vec = (uintptr_t)pagemap->regions,
		.vec_len = SCAN_REGIONS,
		.category_inverted = CATEGORY_ZERO | pagemap->guards,
		.category_mask = CATEGORY_ZERO | pagemap->guards,
		.category_anyof_mask = of_any,
		.return_mask = CATEGORY_FILE | CATEGORY_HUGE,
	};
	int count = ioctl(fd, SCAN_IOCTL, &arguments);

	return count < 0 ? -errno : count;
}

/*
 * A call that fills less than its room has reached the end. walk_end does not say where it stopped:
 * kernels up to 6.18 at least leave it at the last of their own buffers, and a scan that goes on
 * from there gets regions twice.
 */
static int scan_by_ioctl(const struct hl_pagemap *pagemap, enum wanted wanted, uint64_t start,
			 uint64_t end, struct hl_pages *pages)
{
	for (int count = SCAN_REGIONS; count == SCAN_REGIONS && start < end;) {
		count = scan_some(pagemap, pagemap->fd, wanted, start, end);
		if (count < 0)
			return count;
		for (int i = 0; i < count; i++) {
			const struct scan_region *region = &pagemap->regions[i];
			uint32_t kind =
				region->categories & CATEGORY_FILE ? HL_PAGE_FILE : HL_PAGE_ANON;
			if (region->categories & CATEGORY_HUGE)
				kind |= HL_PAGE_HUGE;
			if (append(pages, pagemap,
				   (struct hl_page_run){region->start, region->end, kind}))
				return -ENOMEM;
			start = region->end;
		}
	}
	return 0;
}

/* pagemap */

/* The kind of page that ${entry} is of; 0: it is not wanted. */
static uint32_t kind_of_entry(const struct hl_pagemap *pagemap, enum wanted wanted, uint64_t entry)
{
	uint64_t frame = entry & ENTRY_FRAME, huge = pagemap->huge_zero_frame;

	if (entry & ENTRY_GUARD)
		return 0;
	if (entry & ENTRY_SWAPPED && wanted != WANTED_PRESENT)
		return HL_PAGE_ANON;
	if (!(entry & ENTRY_PRESENT) || wanted == WANTED_SWAPPED)
		return 0;
	if (pagemap->zero_frame && (frame == pagemap->zero_frame ||
				    (huge && frame - huge < HUGE_BYTES / pagemap->page_bytes)))
		return 0;
	return entry & ENTRY_FILE ? HL_PAGE_FILE : HL_PAGE_ANON;
}

/* Appends what ${count} entries from ${start} on say. */
static int append_entries(const struct hl_pagemap *pagemap, enum wanted wanted, uint64_t start,
			  size_t count, struct hl_pages *pages)
{
	const uint64_t *entries = pagemap->entries;

	for (size_t i = 0, first; i<count; i = i> first ? i : i + 1) {
		first = i;
		uint32_t kind = kind_of_entry(pagemap, wanted, entries[i]);
		if (!kind)
			continue;
		while (i < count && kind_of_entry(pagemap, wanted, entries[i]) == kind)
			i++;
		if (append(pages, pagemap,
			   (struct hl_page_run){start + first * pagemap->page_bytes,
						start + i * pagemap->page_bytes, kind}))
			return -ENOMEM;
	}
	return 0;
}

/* Reads entries for [${start}, ${end}): how many, 0 when the process has no memory any more. */
static ssize_t read_entries(const struct hl_pagemap *pagemap, uint64_t start, uint64_t end)
{
	uint64_t wanted = (end - start) / pagemap->page_bytes;
	size_t entries = wanted < READ_ENTRIES ? (size_t)wanted : READ_ENTRIES;
	ssize_t got = pread(pagemap->fd, pagemap->entries, entries * sizeof(*pagemap->entries),
			    (off_t)(start / pagemap->page_bytes * sizeof(*pagemap->entries)));

	return got < 0 ? -errno : got / (ssize_t)sizeof(*pagemap->entries);
}

static int scan_by_reading(const struct hl_pagemap *pagemap, enum wanted wanted, uint64_t start,
			   uint64_t end, struct hl_pages *pages)
{
	while (start < end) {
		ssize_t count = read_entries(pagemap, start, end);
		if (count <= 0)
			return count ? (int)count : -ESRCH;
		int r = append_entries(pagemap, wanted, start, (size_t)count, pages);
		if (r)
			return r;
		start += (uint64_t)count * pagemap->page_bytes;
	}
	return 0;
}

/* The zero pages, small and huge */

static uint64_t frame_of(int fd, const struct hl_pagemap *pagemap, uintptr_t address)
{
	uint64_t entry = 0;
	off_t offset = (off_t)(address / pagemap->page_bytes * sizeof(entry));

	if (pread(fd, &entry, sizeof(entry), offset) != sizeof(entry) || !(entry & ENTRY_PRESENT))
		return 0;
	return entry & ENTRY_FRAME;
}

static void read_byte(uintptr_t address)
{
	(void)*(const volatile char *)address;
}

/*
 * Learns the frame numbers from pages of our own that were only read; they are hidden from those
 * without CAP_SYS_ADMIN. While we map it, the huge zero page stays where it is. Returns whether
 * PAGEMAP_SCAN knows that one, too: not before kernel 6.17.
 */
static bool learn_zero_pages(struct hl_pagemap *pagemap, int self_fd)
{
	pagemap->zero_pages = mmap(NULL, 3 * HUGE_BYTES, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (pagemap->zero_pages == MAP_FAILED)
		return false;
	uintptr_t huge =
		((uintptr_t)pagemap->zero_pages + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
	uintptr_t small = huge + HUGE_BYTES;
	madvise((void *)huge, HUGE_BYTES, MADV_HUGEPAGE);
	madvise((void *)small, HUGE_BYTES, MADV_NOHUGEPAGE);
	read_byte(huge);
	read_byte(small);
	pagemap->zero_frame = frame_of(self_fd, pagemap, small);
	uint64_t frame = frame_of(self_fd, pagemap, huge);
	pagemap->huge_zero_frame = frame == pagemap->zero_frame ? 0 : frame;
	return scan_some(pagemap, self_fd, WANTED_PRESENT, huge, small) == 0;
}

/* Scans where that knows all zero pages, or where reading knows none. */
static void choose_method(struct hl_pagemap *pagemap)
{
	int self_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	pagemap->guards = CATEGORY_GUARD;
	if (scan_some(pagemap, pagemap->fd, WANTED_PRESENT, 0, 0) < 0)
		pagemap->guards = 0;
	bool scan_works = scan_some(pagemap, pagemap->fd, WANTED_PRESENT, 0, 0) >= 0;
	bool scan_knows = learn_zero_pages(pagemap, self_fd);
	bool frames_known = pagemap->zero_frame != 0;

	if (self_fd >= 0)
		close(self_fd);
	pagemap->scans = scan_works && (scan_knows || !frames_known);
	pagemap->knows_zero_page = scan_knows || frames_known;
}

static int open_error(pid_t pid, int code, struct hl_error *err)
{
	if (code == -ENOENT)
		code = -ESRCH;
	return hl_proc_error(pid, code, "the page map", err);
}

int hl_pagemap_open(pid_t pid, struct hl_pagemap **ret_pagemap, struct hl_error *err)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/pagemap", hl_proc_thread(pid));
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return open_error(pid, -errno, err);
	struct hl_pagemap *pagemap = calloc(1, sizeof(*pagemap));
	void *buffer = malloc(READ_ENTRIES * sizeof(uint64_t));
	if (!pagemap || !buffer) {
		free(buffer);
		free(pagemap);
		close(fd);
		return open_error(pid, -ENOMEM, err);
	}
	pagemap->fd = fd;
	pagemap->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	pagemap->zero_pages = MAP_FAILED;
	pagemap->buffer = buffer;
	choose_method(pagemap);
	*ret_pagemap = pagemap;
	return 0;
}

const char *hl_pagemap_method(const struct hl_pagemap *pagemap)
{
	return pagemap->scans ? "PAGEMAP_SCAN" : "pagemap";
}

bool hl_pagemap_passes_over_holes(const struct hl_pagemap *pagemap)
{
	return pagemap->scans;
}

void hl_pagemap_avoid_scan(struct hl_pagemap *pagemap)
{
	pagemap->scans = false;
	pagemap->knows_zero_page = pagemap->zero_frame != 0;
}

bool hl_pagemap_knows_zero_page(const struct hl_pagemap *pagemap)
{
	return pagemap->knows_zero_page;
}

static int scan(struct hl_pagemap *pagemap, enum wanted wanted, uint64_t start, uint64_t end,
		struct hl_pages *pages)
{
	if (end > HL_MAPPED_END)
		end = HL_MAPPED_END;
	if (start >= end)
		return 0;
	int r = pagemap->scans ? scan_by_ioctl(pagemap, wanted, start, end, pages)
			       : scan_by_reading(pagemap, wanted, start, end, pages);
	/* A process that has ended has no pages, which only reading shows. */
	return r == 0 && read_entries(pagemap, 0, pagemap->page_bytes) == 0 ? -ESRCH : r;
}

int hl_pagemap_scan(struct hl_pagemap *pagemap, uint64_t start, uint64_t end,
		    struct hl_pages *pages)
{
	return scan(pagemap, WANTED_PRESENT, start, end, pages);
}

int hl_pagemap_scan_swapped(struct hl_pagemap *pagemap, uint64_t start, uint64_t end,
			    struct hl_pages *pages)
{
	return scan(pagemap, WANTED_SWAPPED, start, end, pages);
}

int hl_pagemap_scan_with_swapped(struct hl_pagemap *pagemap, uint64_t start, uint64_t end,
				 struct hl_pages *pages)
{
	return scan(pagemap, WANTED_BOTH, start, end, pages);
}

void hl_pagemap_free(struct hl_pagemap *pagemap)
{
	if (!pagemap)
		return;
	if (pagemap->zero_pages != MAP_FAILED)
		munmap(pagemap->zero_pages, 3 * HUGE_BYTES);
	close(pagemap->fd);
	free(pagemap->buffer);
	free(pagemap);
}

/* ---- pages that were found ---- */

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
