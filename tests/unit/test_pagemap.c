/* SPDX-License-Identifier: BSD-2-Clause */
/* Which pages are in memory: both methods against what the test itself touched. */
#include "process/maps.h"
#include "process/process.h"

#include "base/compiler.h"
#include "fail_allocations.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "still.h"

#define PAGE 4096u
#define HUGE ((size_t)2 << 20)

/* A page map of our own process, and memory to look at; each test runs with both methods. */
struct lab {
	bool avoid_scan;
	struct hl_pagemap *pagemap;
	struct hl_pages pages;
	char *memory;
	size_t bytes;
};

static int open_pagemap(struct lab *lab, pid_t pid)
{
	struct hl_error err = {0};

	int r = hl_pagemap_open(pid, &lab->pagemap, &err);
	if (r)
		print_error("%s\n", err.text);
	else if (lab->avoid_scan)
		hl_pagemap_avoid_scan(lab->pagemap);
	return r;
}

static int lab_setup(void **state, bool avoid_scan)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	lab->avoid_scan = avoid_scan;
	*state = lab;
	return open_pagemap(lab, getpid());
}

static int setup_scan(void **state)
{
	return lab_setup(state, false);
}

static int setup_read(void **state)
{
	return lab_setup(state, true);
}

static int lab_teardown(void **state)
{
	struct lab *lab = *state;

	if (lab->memory)
		munmap(lab->memory, lab->bytes);
	hl_pages_release(&lab->pages);
	hl_pagemap_free(lab->pagemap);
	free(lab);
	return 0;
}

/* Private memory without huge pages that nothing has touched. */
static char *map_memory(struct lab *lab, size_t bytes)
{
	lab->bytes = bytes;
	lab->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(lab->memory, MAP_FAILED);
	madvise(lab->memory, bytes, MADV_NOHUGEPAGE);
	return lab->memory;
}

static void touch(char *memory, size_t first, size_t count)
{
	for (size_t i = first; i < first + count; i++)
		((volatile char *)memory)[i * PAGE] = 1;
}

static void read_pages(const char *memory, size_t first, size_t count)
{
	for (size_t i = first; i < first + count; i++)
		(void)((const volatile char *)memory)[i * PAGE];
}

static void scan(struct lab *lab)
{
	uint64_t start = (uintptr_t)lab->memory;

	hl_pages_release(&lab->pages);
	assert_int_equal(hl_pagemap_scan(lab->pagemap, start, start + lab->bytes, &lab->pages), 0);
}

static void assert_run(const struct lab *lab, size_t index, size_t first, size_t count,
		       uint32_t kind)
{
	assert_true(index < lab->pages.count);
	const struct hl_page_run *run = &lab->pages.runs[index];
	assert_int_equal(run->start, (uintptr_t)lab->memory + first * PAGE);
	assert_int_equal(run->end, (uintptr_t)lab->memory + (first + count) * PAGE);
	assert_int_equal(run->kind, kind);
}

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* since kernel 6.13 */
#endif

static void guards_are_neither_present_nor_swapped(void **state)
{
	struct lab *lab = *state;
	char *memory = map_memory(lab, 8 * PAGE);
	uint64_t start = (uintptr_t)memory, entry = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	touch(memory, 0, 8);
	if (madvise(memory + 2 * PAGE, 3 * PAGE, MADV_GUARD_INSTALL) < 0)
		skip();
	assert_int_equal(pread(fd, &entry, sizeof(entry), (off_t)((start / PAGE + 2) * 8)),
			 sizeof(entry));
	close(fd);
	if (!(entry & UINT64_C(1) << 58))
		skip(); /* the kernel does not tell them before 6.15 */
	assert_int_equal(
		hl_pagemap_scan_with_swapped(lab->pagemap, start, start + lab->bytes, &lab->pages),
		0);
	assert_int_equal(lab->pages.count, 2);
	assert_run(lab, 0, 0, 2, HL_PAGE_ANON);
	assert_run(lab, 1, 5, 3, HL_PAGE_ANON);
}

static void touched_pages_are_found(void **state)
{
	struct lab *lab = *state;
	char *memory = map_memory(lab, 64 * PAGE);

	touch(memory, 0, 1);
	touch(memory, 5, 3);
	touch(memory, 63, 1);
	scan(lab);
	assert_int_equal(lab->pages.count, 3);
	assert_int_equal(lab->pages.page_count, 5);
	assert_run(lab, 0, 0, 1, HL_PAGE_ANON);
	assert_run(lab, 1, 5, 3, HL_PAGE_ANON);
	assert_run(lab, 2, 63, 1, HL_PAGE_ANON);
}

static void memory_that_nobody_touched_has_no_pages(void **state)
{
	struct lab *lab = *state;

	map_memory(lab, (size_t)1 << 40);
	scan(lab);
	assert_int_equal(lab->pages.count, 0);
	assert_int_equal(lab->pages.page_count, 0);
}

static void pages_that_were_given_back_are_gone(void **state)
{
	struct lab *lab = *state;
	char *memory = map_memory(lab, 64 * PAGE);

	touch(memory, 0, 64);
	madvise(memory + 8 * PAGE, 16 * PAGE, MADV_DONTNEED);
	scan(lab);
	assert_int_equal(lab->pages.page_count, 48);
	assert_run(lab, 0, 0, 8, HL_PAGE_ANON);
	assert_run(lab, 1, 24, 40, HL_PAGE_ANON);
}

static void many_holes_are_all_found(void **state)
{
	struct lab *lab = *state;
	size_t count = 40000; /* more than one call of either method returns */
	char *memory = map_memory(lab, count * PAGE);

	for (size_t i = 0; i < count; i += 2)
		touch(memory, i, 1);
	scan(lab);
	assert_int_equal(lab->pages.count, count / 2);
	assert_int_equal(lab->pages.page_count, count / 2);
	for (size_t i = 0; i < count / 2; i++)
		assert_run(lab, i, i * 2, 1, HL_PAGE_ANON);
}

static void the_zero_page_is_not_in_memory(void **state)
{
	struct lab *lab = *state;
	char *memory = map_memory(lab, 64 * PAGE);

	read_pages(memory, 0, 64);
	touch(memory, 10, 2);
	scan(lab);
	if (!hl_pagemap_knows_zero_page(lab->pagemap)) {
		assert_int_equal(lab->pages.page_count, 64);
		print_message("skipped: frame numbers are hidden from this user\n");
		skip();
	}
	assert_int_equal(lab->pages.page_count, 2);
	assert_run(lab, 0, 10, 2, HL_PAGE_ANON);
}

static char *align_huge(char *memory)
{
	return (char *)(((uintptr_t)memory + HUGE - 1) / HUGE * HUGE);
}

/* What AnonHugePages of the whole process is, in KiB. */
static unsigned long anon_huge_kib(void)
{
	char line[256];
	unsigned long kib = 0;

	FILE *rollup = fopen("/proc/self/smaps_rollup", "r");
	while (fgets(line, sizeof(line), rollup))
		sscanf(line, "AnonHugePages: %lu", &kib);
	fclose(rollup);
	return kib;
}

static void huge_pages_are_pages(void **state)
{
	struct lab *lab = *state;
	char *memory = align_huge(map_memory(lab, 3 * HUGE));
	unsigned long before = anon_huge_kib();

	madvise(memory, HUGE, MADV_HUGEPAGE);
	memory[0] = 1;
	if (anon_huge_kib() - before != HUGE / 1024) {
		print_message("skipped: no huge page to be had\n");
		skip();
	}
	scan(lab);
	bool scans = !strcmp(hl_pagemap_method(lab->pagemap), "PAGEMAP_SCAN");
	assert_int_equal(lab->pages.page_count, HUGE / PAGE);
	assert_int_equal(lab->pages.count, 1);
	assert_int_equal(lab->pages.runs[0].kind, HL_PAGE_ANON | (scans ? HL_PAGE_HUGE : 0u));
}

static void the_huge_zero_page_is_not_in_memory(void **state)
{
	struct lab *lab = *state;
	char *memory = align_huge(map_memory(lab, 3 * HUGE));

	madvise(memory, HUGE, MADV_HUGEPAGE);
	read_pages(memory, 0, 1);
	scan(lab);
	if (!hl_pagemap_knows_zero_page(lab->pagemap)) {
		print_message("skipped: frame numbers are hidden from this user\n");
		skip();
	}
	assert_int_equal(lab->pages.page_count, 0);
}

static void pages_of_files_and_their_copies_are_told_apart(void **state)
{
	struct lab *lab = *state;
	int fd = memfd_create("pages", MFD_CLOEXEC);

	assert_int_equal(ftruncate(fd, 64 * PAGE), 0);
	lab->bytes = 64 * PAGE;
	lab->memory = mmap(NULL, lab->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	touch(lab->memory, 0, 64);
	munmap(lab->memory, lab->bytes);
	lab->memory = mmap(NULL, lab->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	close(fd);
	madvise(lab->memory, lab->bytes, MADV_RANDOM); /* no fault-around */
	read_pages(lab->memory, 0, 64);
	touch(lab->memory, 4, 2);
	scan(lab);
	assert_int_equal(lab->pages.page_count, 64);
	assert_run(lab, 0, 0, 4, HL_PAGE_FILE);
	assert_run(lab, 1, 4, 2, HL_PAGE_ANON);
	assert_run(lab, 2, 6, 58, HL_PAGE_FILE);
}

static void scans_append_and_join(void **state)
{
	struct lab *lab = *state;
	char *memory = map_memory(lab, 64 * PAGE);
	uint64_t start = (uintptr_t)memory;

	touch(memory, 0, 64);
	assert_int_equal(hl_pagemap_scan(lab->pagemap, start, start + 8 * PAGE, &lab->pages), 0);
	assert_int_equal(
		hl_pagemap_scan(lab->pagemap, start + 8 * PAGE, start + 16 * PAGE, &lab->pages), 0);
	assert_int_equal(
		hl_pagemap_scan(lab->pagemap, start + 32 * PAGE, start + 33 * PAGE, &lab->pages),
		0);
	assert_int_equal(lab->pages.count, 2);
	assert_int_equal(lab->pages.page_count, 17);
	assert_run(lab, 0, 0, 16, HL_PAGE_ANON);
	assert_run(lab, 1, 32, 1, HL_PAGE_ANON);
}

static void addresses_of_the_kernel_have_no_pages(void **state)
{
	struct lab *lab = *state;

	assert_int_equal(hl_pagemap_scan(lab->pagemap, UINT64_C(0xffffffffff600000),
					 UINT64_C(0xffffffffff601000), &lab->pages),
			 0);
	assert_int_equal(lab->pages.count, 0);
}

static uint64_t rss_pages(pid_t pid)
{
	struct hl_process_rss rss;

	assert_int_equal(hl_process_rss_read(pid, &rss, NULL), 0);
	return rss.rss_pages;
}

/* Scans all of ${pid} while the kernel, which moves and reclaims pages at times, leaves it alone.
 * Returns its Rss. */
static uint64_t scan_process(struct lab *lab, pid_t pid)
{
	struct hl_maps maps;
	uint64_t rss;
	unsigned tries = 0;

	assert_int_equal(hl_maps_read(pid, &maps, NULL), 0);
	do {
		hl_pages_release(&lab->pages);
		rss = rss_pages(pid);
		for (size_t i = 0; i < maps.count; i++)
			assert_int_equal(hl_pagemap_scan(lab->pagemap, maps.maps[i].start,
							 maps.maps[i].end, &lab->pages),
					 0);
	} while (lab->pages.page_count != rss && ++tries < 50);
	hl_maps_release(&maps);
	return rss;
}

static void the_pages_of_a_process_are_its_rss(void **state)
{
	struct lab *lab = *state;
	struct still_areas areas;
	pid_t pid = still_start(&areas);

	assert_true(pid > 0);
	hl_pagemap_free(lab->pagemap);
	assert_int_equal(open_pagemap(lab, pid), 0);
	uint64_t rss = scan_process(lab, pid);
	still_end(pid);
	if (!hl_pagemap_knows_zero_page(lab->pagemap)) {
		print_message("skipped: frame numbers are hidden from this user\n");
		skip();
	}
	assert_int_equal(lab->pages.page_count, rss);
}

static void a_process_that_has_ended_has_no_pages(void **state)
{
	struct lab *lab = *state;
	struct still_areas areas;
	pid_t pid = still_start(&areas);

	assert_true(pid > 0);
	hl_pagemap_free(lab->pagemap);
	assert_int_equal(open_pagemap(lab, pid), 0);
	still_end(pid);
	assert_int_equal(hl_pagemap_scan(lab->pagemap, 0x10000, 0x7fff00000000, &lab->pages),
			 -ESRCH);
}

static int scan_again(struct lab *lab)
{
	uint64_t start = (uintptr_t)lab->memory;

	hl_pages_release(&lab->pages);
	return hl_pagemap_scan(lab->pagemap, start, start + lab->bytes, &lab->pages);
}

static void want_of_memory_in_a_scan_is_an_error(void **state)
{
	struct lab *lab = *state;
	char *memory = map_memory(lab, 64 * PAGE);

	for (size_t i = 0; i < 64; i += 2)
		touch(memory, i, 1);
	FOR_EACH_FAILING_ALLOCATION(r, scan_again(lab))
	assert_int_equal(r, -ENOMEM);
	assert_int_equal(lab->pages.page_count, 32);
}

static int open_and_free(void)
{
	struct hl_pagemap *pagemap;

	int r = hl_pagemap_open(getpid(), &pagemap, NULL);
	if (!r)
		hl_pagemap_free(pagemap);
	return r;
}

static void want_of_memory_when_opening_is_an_error(void **state)
{
	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, open_and_free())
	assert_int_equal(r, -ENOMEM);
}

static void the_page_map_of_no_process_is_an_error(void **state)
{
	struct hl_pagemap *pagemap = NULL;
	struct hl_error err = {0};
	pid_t pid = fork();
	char expected[64];

	(void)state;
	if (!pid)
		_exit(0);
	waitpid(pid, NULL, 0);
	snprintf(expected, sizeof(expected), "there is no process '%d'; it may have ended", pid);
	assert_int_equal(hl_pagemap_open(pid, &pagemap, &err), -ESRCH);
	assert_string_equal(err.text, expected);
	assert_null(pagemap);
}

static void sets_of_pages_tell_what_is_in_them(void **state)
{
	struct hl_page_run runs[] = {
		{0x10000, 0x14000, HL_PAGE_ANON},
		{0x14000, 0x15000, HL_PAGE_FILE},
		{0x20000, 0x21000, HL_PAGE_ANON},
	};
	struct hl_pages pages = {.runs = runs, .count = 3, .page_count = 6}, none = {0};

	(void)state;
	assert_false(hl_pages_contain(&pages, 0xffff));
	assert_true(hl_pages_contain(&pages, 0x10000));
	assert_true(hl_pages_contain(&pages, 0x14fff));
	assert_false(hl_pages_contain(&pages, 0x15000));
	assert_true(hl_pages_contain(&pages, 0x20000));
	assert_false(hl_pages_contain(&pages, 0x21000));
	assert_int_equal(hl_pages_count_in(&pages, 0, UINT64_MAX), 6);
	assert_int_equal(hl_pages_count_in(&pages, 0x12000, 0x20000), 3);
	assert_int_equal(hl_pages_count_in(&pages, 0x15000, 0x20000), 0);
	assert_false(hl_pages_contain(&none, 0));
	assert_int_equal(hl_pages_count_in(&none, 0, UINT64_MAX), 0);
}

#define BOTH_METHODS(f)                                            \
	{#f " (PAGEMAP_SCAN)", f, setup_scan, lab_teardown, NULL}, \
	{                                                          \
#f " (pagemap)", f, setup_read, lab_teardown, NULL \
	}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		BOTH_METHODS(guards_are_neither_present_nor_swapped),
		BOTH_METHODS(touched_pages_are_found),
		BOTH_METHODS(memory_that_nobody_touched_has_no_pages),
		BOTH_METHODS(pages_that_were_given_back_are_gone),
		BOTH_METHODS(many_holes_are_all_found),
		BOTH_METHODS(the_zero_page_is_not_in_memory),
		BOTH_METHODS(huge_pages_are_pages),
		BOTH_METHODS(the_huge_zero_page_is_not_in_memory),
		BOTH_METHODS(pages_of_files_and_their_copies_are_told_apart),
		BOTH_METHODS(scans_append_and_join),
		BOTH_METHODS(addresses_of_the_kernel_have_no_pages),
		BOTH_METHODS(the_pages_of_a_process_are_its_rss),
		BOTH_METHODS(a_process_that_has_ended_has_no_pages),
		BOTH_METHODS(want_of_memory_in_a_scan_is_an_error),
		cmocka_unit_test(want_of_memory_when_opening_is_an_error),
		cmocka_unit_test(the_page_map_of_no_process_is_an_error),
		cmocka_unit_test(sets_of_pages_tell_what_is_in_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
