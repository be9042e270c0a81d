/* SPDX-License-Identifier: BSD-2-Clause */
/* Snapshots of the pages of a child at rest, and where a C library has the calls that bring pages
 * in.
 */
#include "bpf/page_trace.h"
#include "bpf/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fail_allocations.h"
#include "still.h"

/* The kind of the run at ${address}; 0: not in memory. */
static uint32_t kind_at(const struct hl_page_snapshot *snapshot, const char *address)
{
	for (size_t i = 0; i < snapshot->pages.count; i++) {
		const struct hl_page_run *run = &snapshot->pages.runs[i];
		if ((uintptr_t)address >= run->start && (uintptr_t)address < run->end)
			return run->kind;
	}
	return 0;
}

static void a_snapshot_has_the_pages_of_rss_by_kind(void **state)
{
	(void)state;
	struct still_areas areas;
	pid_t pid = still_start(&areas);

	assert_true(pid > 0);
	for (int scans = 0; scans < 2; scans++) {
		struct hl_page_camera *camera;
		struct hl_page_snapshot snapshot;
		assert_int_equal(hl_page_snapshot_camera_new(pid, &camera, NULL), 0);
		if (!scans)
			hl_page_snapshot_camera_avoid_scan(camera);
		assert_int_equal(
			hl_page_snapshot_take(camera, HL_PAGE_SNAPSHOT_RSS, &snapshot, NULL), 0);
		if (hl_pagemap_knows_zero_page(hl_page_snapshot_camera_pagemap(camera)))
			assert_int_equal(snapshot.pages.page_count, snapshot.rss.rss_pages);
		assert_int_equal(hl_page_balance_class_of(kind_at(&snapshot, areas.own)),
				 HL_PAGE_CLASS_ANON);
		assert_int_equal(hl_page_balance_class_of(kind_at(&snapshot, areas.shared)),
				 HL_PAGE_CLASS_SHMEM);
		assert_int_equal(kind_at(&snapshot, areas.own + STILL_AREA_BYTES / 2), 0);
		hl_page_snapshot_release(&snapshot);
		hl_page_snapshot_camera_free(camera);
	}
	still_end(pid);
}

static void a_process_that_has_ended_has_no_pages(void **state)
{
	(void)state;
	struct still_areas areas;
	pid_t pid = still_start(&areas);

	assert_true(pid > 0);
	struct hl_page_camera *camera;
	struct hl_page_snapshot snapshot;
	struct hl_error err = {0};

	assert_int_equal(hl_page_snapshot_camera_new(pid, &camera, NULL), 0);
	still_end(pid);
	assert_int_equal(hl_page_snapshot_take(camera, HL_PAGE_SNAPSHOT_PAGES, &snapshot, &err),
			 -ESRCH);
	assert_string_not_equal(err.text, "");
	hl_page_snapshot_camera_free(camera);
	assert_true(hl_page_snapshot_camera_new(pid, &camera, &err) < 0);
}

static int take_one(pid_t pid)
{
	struct hl_page_camera *camera = NULL;
	struct hl_page_snapshot snapshot = {0};
	int r = hl_page_snapshot_camera_new(pid, &camera, NULL);

	if (r == 0)
		r = hl_page_snapshot_take(camera, HL_PAGE_SNAPSHOT_PAGES, &snapshot, NULL);
	hl_page_snapshot_release(&snapshot);
	hl_page_snapshot_camera_free(camera);
	return r;
}

static void want_of_memory_is_told(void **state)
{
	(void)state;
	struct still_areas areas;
	pid_t pid = still_start(&areas);

	assert_true(pid > 0);
	FOR_EACH_FAILING_ALLOCATION(r, take_one(pid))
	assert_true(r < 0);
	still_end(pid);
}

/* ---- calls ---- */

static struct hl_page_calls calls_in(const char *path)
{
	struct hl_page_calls calls;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	hl_page_calls_read(fd, &calls);
	close(fd);
	return calls;
}

static void the_c_library_has_every_call_once(void **state)
{
	(void)state;
	struct hl_maps maps;
	struct hl_page_calls calls;
	size_t times[HL_PAGE_CALLS_END] = {0};

	assert_int_equal(hl_maps_read(getpid(), &maps, NULL), 0);
	assert_non_null(hl_page_calls_find(getpid(), &maps, &calls));
	for (size_t i = 0; i < calls.count; i++)
		times[calls.sites[i].call]++;
	for (int call = HL_PAGE_CALL_MMAP; call < HL_PAGE_CALLS_END; call++)
		assert_int_equal(times[call], 1);
	hl_maps_release(&maps);
}

/* As src/bpf/probe.c has it. */
static bool is_cheap(const uint8_t *code)
{
	return (code[0] & 0xf8) == 0x50 || (code[0] & 0xf0) == 0x70 || code[0] == 0xe9 ||
	       code[0] == 0xeb || (code[0] == 0x41 && (code[1] & 0xf8) == 0x50) ||
	       (code[0] == 0x0f && (code[1] & 0xf0) == 0x80);
}

static void calls_that_programs_make_often_have_cheap_probes(void **state)
{
	(void)state;
	struct hl_maps maps;
	struct hl_page_calls calls;
	uint8_t code[2];

	assert_int_equal(hl_maps_read(getpid(), &maps, NULL), 0);
	int fd = hl_maps_open_file(getpid(), hl_page_calls_find(getpid(), &maps, &calls));
	assert_true(fd >= 0);
	for (size_t i = 0; i < calls.count; i++) {
		enum hl_page_call call = calls.sites[i].call;
		assert_int_equal(pread(fd, code, 2, (off_t)calls.sites[i].offset), 2);
		if (call == HL_PAGE_CALL_MMAP || call == HL_PAGE_CALL_MADVISE)
			assert_true(is_cheap(code));
	}
	close(fd);
	hl_maps_release(&maps);
}

static void files_that_are_no_c_library_have_no_calls(void **state)
{
	(void)state;
	assert_int_equal(calls_in("/proc/self/exe").count, 0);
	assert_int_equal(calls_in("/proc/self/maps").count, 0);
	assert_int_equal(calls_in("/dev/null").count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_snapshot_has_the_pages_of_rss_by_kind),
		cmocka_unit_test(a_process_that_has_ended_has_no_pages),
		cmocka_unit_test(want_of_memory_is_told),
		cmocka_unit_test(the_c_library_has_every_call_once),
		cmocka_unit_test(calls_that_programs_make_often_have_cheap_probes),
		cmocka_unit_test(files_that_are_no_c_library_have_no_calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
