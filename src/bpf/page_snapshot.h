/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pages that a process has in memory, at one moment: those that the kernel counts as its Rss in
 * /proc/PID/smaps_rollup, neither more nor less.
 */
#pragma once

#include "bpf/page_balance.h"
#include "process/maps.h"
#include "process/pagemap.h"
#include "process/process.h"

/* Zero-initialize for an empty one. */
struct hl_page_snapshot {
	struct hl_maps maps;
	struct hl_pages pages; /* kinds: enum hl_page_kind and HL_PAGE_SHMEM */
	struct hl_process_rss rss;
	uint64_t taken_ns; /* CLOCK_MONOTONIC */
	uint64_t cost_ns;  /* how long it took */
};

struct hl_page_camera;

/*
 * For snapshots of ${pid}. Holds on to its present memory: when it has become another program,
 * there is nothing to see any more. 0 or a negative errno with a sentence.
 */
int hl_page_camera_new(pid_t pid, struct hl_page_camera **ret_camera, struct hl_error *err);

void hl_page_camera_free(struct hl_page_camera *camera); /* NULL is fine */

/* Which method is used and what it knows. */
const struct hl_pagemap *hl_page_camera_pagemap(const struct hl_page_camera *camera);

/* As on kernels without PAGEMAP_SCAN. */
void hl_page_camera_avoid_scan(struct hl_page_camera *camera);

enum hl_page_snapshot_depth {
	/* Pages alone: a tenth of the time. Rss is then as the pages have it. */
	HL_PAGE_SNAPSHOT_PAGES,
	/* And what smaps_rollup says. While the process goes on, a few are taken, to have one that
	 * agrees with it. */
	HL_PAGE_SNAPSHOT_RSS,
};

/* Takes one. 0; -ESRCH when the memory is gone; or another negative errno with a sentence.
 * ${ret_snapshot} is to be released. */
int hl_page_snapshot_take(struct hl_page_camera *camera, enum hl_page_snapshot_depth depth,
			  struct hl_page_snapshot *ret_snapshot, struct hl_error *err);

void hl_page_snapshot_release(struct hl_page_snapshot *snapshot);
