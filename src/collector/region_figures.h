/* SPDX-License-Identifier: BSD-2-Clause */
/* The sums of a region at a glance: what a process has, without its stacks. */
#pragma once

#include "collector/region_reader.h"

#include <stdint.h>

struct hl_region_figures {
	uint64_t alloc_objects, free_objects;
	int64_t inuse_bytes, inuse_objects;
	int64_t peak_bytes; /* within 1 %: of the last mark, or now when that is more */
	uint32_t stack_nodes;
	uint64_t lost_events;	  /* that could not be counted */
	uint64_t lost_log_events; /* counted, but not in the log */
};

/* Costs one pass over the cells. The layout fits the region: the collector made both. */
void hl_region_read_figures(const struct hl_region_view *view,
			    struct hl_region_figures *ret_figures);
