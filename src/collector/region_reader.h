/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Turns a region into the tables of a recording. Works while the target writes and after its death;
 * trusts nothing in the region, because the target's own bugs can write there.
 */
#pragma once

#include "base/error.h"
#include "recording/recording.h"
#include "region/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A mapped region. */
struct hl_region_view {
	const void *base;
	size_t bytes;
	const struct hl_region_header *layout; /* as laid out at first; only areas[].offset and
						  .capacity are used. The copy in the region is
						  not believed */
	const int *fd; /* the region's memfd, which knows how much of it is backed by memory; NULL:
			  the region is believed */
};

/* CLOCK_MONOTONIC, to place the peak in time. */
struct hl_region_times {
	uint64_t start_ns; /* when the region was handed over */
	uint64_t now_ns;
};

/*
 * Fills modules, nodes, values, threads, lost, own_malloc and peak_mark_ns of ${process}, which
 * must not own any yet. Nodes that occur twice become one; a parent's id is smaller than its
 * children's. What cannot be is left out and counted as damaged; of a process that is complete that
 * includes stacks of which more was freed than allocated.
 * Returns 0, -ENOMEM, or -EINVAL when the layout does not fit the region; ${process} then owns
 * nothing new.
 */
int hl_region_read(const struct hl_region_view *view, const struct hl_region_times *times,
		   struct hl_recording_process *process, struct hl_error *err);

/* A number that differs when the counters have changed since (but for a wrap of 64 bits). Costs one
 * pass over the cells. */
uint64_t hl_region_activity(const struct hl_region_view *view);

/* Single modules and nodes, for a caller that reads while the target runs. The counts cover what is
 * published and backed by memory: module indexes are below the first, node ids 1 to the second. */
uint32_t hl_region_module_count(const struct hl_region_view *view);
uint32_t hl_region_node_count(const struct hl_region_view *view);

/* Chunks of cells that are given out and backed by memory. */
uint32_t hl_region_chunk_count(const struct hl_region_view *view);

/* 0, or -ENOMEM. The path is the caller's to free; the main program's is empty. */
int hl_region_read_module(const struct hl_region_view *view, uint32_t index,
			  struct hl_recording_module *ret_module);

/* As it stands: frame 0 when it is not there yet, any parent. */
struct hl_recording_node hl_region_read_node(const struct hl_region_view *view, uint32_t id);

/* The dynamic loader gives the program itself no name. */
static inline bool hl_region_module_is_main(const struct hl_recording_module *module)
{
	return module->path[0] == '\0' && module->end;
}
