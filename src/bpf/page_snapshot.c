/* SPDX-License-Identifier: BSD-2-Clause */
/* Snapshots of pages, mapping by mapping, each by the rules of its kind; and what two of them differ in; see pages.h. */
#include "bpf/pages.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifndef MFD_HUGE_SHIFT /* linux/memfd.h */
#define MFD_HUGE_SHIFT 26
#endif

/*
 * How long a moment is looked for at which the pages are those of Rss. They are not while the
 * process goes on, nor while the kernel moves pages about in memory, which may take it some
 * milliseconds on a busy machine: so there are pauses between the takes.
 */
#define TAKES_DURATION_NS (HL_NS_PER_SECOND / 10)
#define FIRST_PAUSE_US	  500

/* How the kernel counts the pages of a mapping. */
enum rule {
	RULE_ORDINARY,
	RULE_SHMEM,	  /* pages of its file are shared memory */
	RULE_DEVICE,	  /* pages of its file are no memory */
	RULE_NOT_COUNTED, /* hugetlb has an account of its own; [vvar] is the kernel's */
};

struct device {
	uint32_t major, minor;
	enum rule rule;
};

struct hl_page_camera {
	pid_t pid;
	struct hl_pagemap *pagemap;
	struct device *devices; /* those that are not ordinary */
	size_t device_count, device_capacity;
};

/* ---- devices: what kind of file system a mapped file is of ---- */

static int add_device(struct hl_page_camera *camera, uint32_t major, uint32_t minor, enum rule rule)
{
	return HL_ARRAY_APPEND(camera->devices, camera->device_count, camera->device_capacity,
			       (struct device){major, minor, rule});
}

/* Where memory without a file has its files. A kernel without such files maps none of them. */
static int add_device_of_memfd(struct hl_page_camera *camera, unsigned flags, enum rule rule)
{
	int fd = memfd_create("heapline", MFD_CLOEXEC | flags), r = 0;
	struct stat status;

	if (fd < 0)
		return 0;
	if (fstat(fd, &status) == 0)
		r = add_device(camera, major(status.st_dev), minor(status.st_dev), rule);
	close(fd);
	return r;
}

static int add_mounts(struct hl_page_camera *camera)
{
	static const struct {
		const char *type;
		enum rule rule;
	} rules[] = {
		{"tmpfs", RULE_SHMEM},
		{"devtmpfs", RULE_DEVICE},
		{"hugetlbfs", RULE_NOT_COUNTED},
	};
	HL_FREED char *text = NULL;
	struct hl_mount mount;
	size_t length;
	int r = hl_proc_read_all(camera->pid, "mountinfo", &text, &length);

	if (r < 0) /* a process that ends; the page map has the sentence */
		return r == -ENOMEM ? r : 0;
	for (const char *rest = text; r == 0 && hl_mount_next(&rest, &mount);)
		for (size_t i = 0; r == 0 && i < HL_COUNT_OF(rules); i++)
			if (!strcmp(mount.type, rules[i].type))
				r = add_device(camera, mount.dev_major, mount.dev_minor,
					       rules[i].rule);
	return r;
}

static int add_devices(struct hl_page_camera *camera)
{
	static const unsigned huge_page_shifts[] = {21, 30};
	int r = add_device_of_memfd(camera, 0, RULE_SHMEM);

	for (size_t i = 0; r == 0 && i < HL_COUNT_OF(huge_page_shifts); i++)
		r = add_device_of_memfd(camera, MFD_HUGETLB | huge_page_shifts[i] << MFD_HUGE_SHIFT,
					RULE_NOT_COUNTED);
	return r < 0 ? r : add_mounts(camera);
}

static enum rule rule_of(const struct hl_page_camera *camera, const struct hl_map *map)
{
	if (!strncmp(map->path, "[vvar", 5) || !strcmp(map->path, "[vsyscall]"))
		return RULE_NOT_COUNTED;
	for (size_t i = 0; map->inode && i < camera->device_count; i++)
		if (camera->devices[i].major == map->dev_major &&
		    camera->devices[i].minor == map->dev_minor)
			return camera->devices[i].rule;
	return RULE_ORDINARY;
}

/* ---- the camera ---- */

int hl_page_snapshot_camera_new(pid_t pid, struct hl_page_camera **ret_camera, struct hl_error *err)
{
	struct hl_page_camera *camera = calloc(1, sizeof(*camera));

	if (!camera)
		return hl_error_set(err, -ENOMEM, "cannot look at the pages of '%d': out of memory",
				    pid);
	camera->pid = pid;
	int r = hl_pagemap_open(pid, &camera->pagemap, err);
	if (r == 0) {
		r = add_devices(camera);
		if (r < 0)
			hl_error_set(err, r, "cannot look at the pages of '%d': %s", pid,
				     strerror(-r));
	}
	if (r < 0) {
		hl_page_snapshot_camera_free(camera);
		return r;
	}
	*ret_camera = camera;
	return 0;
}

void hl_page_snapshot_camera_free(struct hl_page_camera *camera)
{
	if (!camera)
		return;
	hl_pagemap_free(camera->pagemap);
	free(camera->devices);
	free(camera);
}

const struct hl_pagemap *hl_page_snapshot_camera_pagemap(const struct hl_page_camera *camera)
{
	return camera->pagemap;
}

void hl_page_snapshot_camera_avoid_scan(struct hl_page_camera *camera)
{
	hl_pagemap_avoid_scan(camera->pagemap);
}

/* ---- snapshots ---- */

/* Takes over what ${found} holds of mappings of one rule. */
static int append_by_rule(struct hl_pages *pages, const struct hl_pages *found, enum rule rule)
{
	for (size_t i = 0; i < found->count; i++) {
		struct hl_page_run run = found->runs[i];
		if (run.kind & HL_PAGE_FILE && rule == RULE_DEVICE)
			continue;
		if (run.kind & HL_PAGE_FILE && rule == RULE_SHMEM)
			run.kind |= HL_PAGE_SHMEM;
		if (HL_ARRAY_APPEND(pages->runs, pages->count, pages->capacity, run) < 0)
			return -ENOMEM;
		pages->page_count += (run.end - run.start) / HL_PAGE_BYTES;
	}
	return 0;
}

static int scan_maps(struct hl_page_camera *camera, const struct hl_maps *maps,
		     struct hl_pages *pages)
{
	struct hl_pages found = {0};
	int r = 0;

	for (size_t i = 0, end; r == 0 && i < maps->count; i = end) {
		enum rule rule = rule_of(camera, &maps->maps[i]);
		/* Mappings that lie side by side and follow one rule are scanned at once. */
		for (end = i + 1; end < maps->count; end++)
			if (maps->maps[end].start != maps->maps[end - 1].end ||
			    rule_of(camera, &maps->maps[end]) != rule)
				break;
		if (rule == RULE_NOT_COUNTED)
			continue;
		found.count = 0;
		found.page_count = 0;
		r = hl_pagemap_scan(camera->pagemap, maps->maps[i].start, maps->maps[end - 1].end,
				    &found);
		if (r == 0)
			r = append_by_rule(pages, &found, rule);
	}
	hl_pages_release(&found);
	return r;
}

/* By how many pages it is not what Rss says: 0 when nothing changed meanwhile. */
static uint64_t mismatch(const struct hl_page_snapshot *snapshot)
{
	uint64_t pages = snapshot->pages.page_count, rss = snapshot->rss.rss_pages;

	return pages > rss ? pages - rss : rss - pages;
}

static int take_timed(struct hl_page_camera *camera, enum hl_page_snapshot_depth depth,
		      struct hl_page_snapshot *ret_snapshot, struct hl_error *err)
{
	struct hl_page_snapshot snapshot = {0};
	uint64_t start_ns = hl_clock_ns(CLOCK_MONOTONIC);
	int r = hl_maps_read(camera->pid, &snapshot.maps, err);

	if (r == 0) {
		r = scan_maps(camera, &snapshot.maps, &snapshot.pages);
		if (r < 0)
			hl_error_set(err, r, "cannot look at the pages of '%d': %s", camera->pid,
				     strerror(-r));
	}
	snapshot.rss.rss_pages = snapshot.pages.page_count;
	if (r == 0 && depth == HL_PAGE_SNAPSHOT_RSS)
		r = hl_process_rss_read(camera->pid, &snapshot.rss, err);
	if (r < 0) {
		hl_page_snapshot_release(&snapshot);
		return r;
	}
	snapshot.taken_ns = hl_clock_ns(CLOCK_MONOTONIC);
	snapshot.cost_ns = snapshot.taken_ns - start_ns;
	*ret_snapshot = snapshot;
	return 0;
}

int hl_page_snapshot_take(struct hl_page_camera *camera, enum hl_page_snapshot_depth depth,
			  struct hl_page_snapshot *ret_snapshot, struct hl_error *err)
{
	struct hl_page_snapshot best, other;
	int r = take_timed(camera, depth, &best, err);

	if (r < 0)
		return r;
	uint64_t end_ns = best.taken_ns + TAKES_DURATION_NS;
	for (useconds_t pause_us = FIRST_PAUSE_US; mismatch(&best) != 0; pause_us *= 2) {
		if (hl_clock_ns(CLOCK_MONOTONIC) + pause_us * UINT64_C(1000) > end_ns)
			break;
		usleep(pause_us);
		if (take_timed(camera, HL_PAGE_SNAPSHOT_RSS, &other, NULL) < 0)
			break; /* there is nothing to see any more */
		bool is_better = mismatch(&other) <= mismatch(&best);
		hl_page_snapshot_release(is_better ? &best : &other);
		if (is_better)
			best = other;
	}
	*ret_snapshot = best;
	return 0;
}

void hl_page_snapshot_release(struct hl_page_snapshot *snapshot)
{
	hl_maps_release(&snapshot->maps);
	hl_pages_release(&snapshot->pages);
	*snapshot = (struct hl_page_snapshot){0};
}

/* ---- balances ---- */

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

/* ---- one sweep over the runs of both: pieces of the address space that are alike in both snapshots ---- */

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
		uint32_t owner = view->owners[(page - block) / HL_PAGE_BYTES];
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
	uint64_t pages = (piece->end - piece->start) / HL_PAGE_BYTES;
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
