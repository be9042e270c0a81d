/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap as a list of named numbers. Reports have them as `total`, snapshots keep them, comparisons
 * use them, and limits are set on them. Names never change their meaning.
 */
#pragma once

#include "base/error.h"
#include "heap/heap.h"

#include <stdbool.h>
#include <stdint.h>

enum hl_heap_figure {
	HL_HEAP_RSS,
	HL_HEAP_SYSTEM,
	HL_HEAP_INUSE,
	HL_HEAP_INUSE_BLOCKS,
	HL_HEAP_TCACHE,
	HL_HEAP_FASTBIN,
	HL_HEAP_FREE_BYTES,
	HL_HEAP_FREE_RESIDENT,
	HL_HEAP_LARGEST_FREE,
	HL_HEAP_TOP,
	HL_HEAP_TRIMMABLE,
	HL_HEAP_UNSCANNED,
	HL_HEAP_OVERHEAD,
	HL_HEAP_MMAPPED,
	HL_HEAP_MMAPPED_BLOCKS,
	HL_HEAP_MMAPPED_UNLOCATED,
	HL_HEAP_ARENAS,
	HL_HEAP_CARRIERS,
	HL_HEAP_THREADS,
	HL_HEAP_RESIDENT_LIVE,
	HL_HEAP_RESIDENT_CACHED,
	HL_HEAP_RESIDENT_FREE,
	HL_HEAP_RESIDENT_OVERHEAD,
	HL_HEAP_RESIDENT_UNSCANNED,
	HL_HEAP_RESIDENT_OTHER_ALLOCATORS,
	HL_HEAP_RESIDENT_RECORDER,
	HL_HEAP_RESIDENT_STACKS,
	HL_HEAP_RESIDENT_FILES,
	HL_HEAP_RESIDENT_SHARED,
	HL_HEAP_RESIDENT_ANONYMOUS,
	HL_HEAP_FIGURE_COUNT,
};

/* "rss_bytes", "free_resident_bytes" ... by enum hl_heap_figure; counts end with another word. */
extern const char *const hl_heap_figure_names[HL_HEAP_FIGURE_COUNT];

struct hl_heap_figures {
	uint64_t numbers[HL_HEAP_FIGURE_COUNT];
	int64_t pid;
	char command[256], taken[32]; /* "2026-01-31T12:34:56Z"; "" unless read from a file */
};

void hl_heap_figures_of(const struct hl_heap *heap, struct hl_heap_figures *ret_figures);

/*
 * Reads them from ${path}, a report of `heapline heap` as JSON. 0; -EBADMSG when it is not one;
 * another negative errno when it cannot be read.
 */
int hl_heap_figures_read(const char *path, struct hl_heap_figures *ret_figures,
			 struct hl_error *err);

/* The figure of ${name}, also with dashes and without "_bytes": "free-resident". -EINVAL for
 * any other name. */
int hl_heap_figure_find(const char *name, size_t length);

/* Whether it is counted in bytes. */
bool hl_heap_figure_is_bytes(enum hl_heap_figure figure);
