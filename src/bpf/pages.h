/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pages of a process: who brought each of them in (page_table.c), which are in memory at one
 * moment, and what has become of them from one moment to another (page_snapshot.c).
 */
#pragma once

#include "base/machine.h"
#include "process/maps.h"
#include "process/process.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

/* ---- kinds ---- */

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

enum hl_page_class hl_page_balance_class_of(uint32_t kind);
uint64_t hl_page_balance_sum(const struct hl_page_counts *counts);

/* ---- who brought them in ---- */

/*
 * Which stack each page of a process came from: page -> stack id, 4 bytes a page.
 *
 * Learns what happens to pages in the order in which it happens: a page is touched, a range is
 * populated without a fault, moved, or gone. Whether a page is in memory is not known here; that is
 * for snapshots to say, see pages.h.
 */

/* A constant where a machine has one size of pages. */
#define HL_PAGE_BYTES ((uint64_t)(HL_PAGE_BYTES_MAX == 4096 ? 4096 : sysconf(_SC_PAGESIZE)))

/* Pages of one block, 2 MiB: with pages of 4 KiB all that one fault can bring in. */
#define HL_PAGE_BLOCK_SHIFT 21
#define HL_PAGE_BLOCK_BYTES (UINT64_C(1) << HL_PAGE_BLOCK_SHIFT)
#define HL_PAGE_BLOCK_PAGES (1u << (HL_PAGE_BLOCK_SHIFT - 12))

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

/* The pages in [${from}, ${from} + ${bytes}) are at ${to} now, instead of what was there. 0 or
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

/* ---- snapshots ---- */

/*
 * The pages that a process has in memory, at one moment: those that the kernel counts as its Rss in
 * /proc/PID/smaps_rollup, neither more nor less.
 */

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
int hl_page_snapshot_camera_new(pid_t pid, struct hl_page_camera **ret_camera,
				struct hl_error *err);

void hl_page_snapshot_camera_free(struct hl_page_camera *camera); /* NULL is fine */

/* Which method is used and what it knows. */
const struct hl_pagemap *hl_page_snapshot_camera_pagemap(const struct hl_page_camera *camera);

/* As on kernels without PAGEMAP_SCAN. */
void hl_page_snapshot_camera_avoid_scan(struct hl_page_camera *camera);

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

/* ---- balances ---- */

/*
 * What two snapshots of a process' pages differ in, by the stacks that brought the pages in.
 *
 * A page that is there only afterwards was gained: by the stack that owns it, or unattributed. One
 * that was there only before was released; who once touched it is not known. One that was there
 * both times is not counted, even if it was replaced by another, unless it changed its kind (a
 * page of a file that was written to became one of the process' own). So
 *
 *	sum of gains + unattributed - released = pages after - pages before
 *
 * in each kind, whatever is known of stacks.
 */

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
