/* SPDX-License-Identifier: BSD-2-Clause */
/* What can stand in a region. A program with a bug writes there as it writes into its own memory:
 * what its recorder cannot have counted is not shown as if it had. */
#pragma once

#include "collector/region_reader.h"

/* More events than this take longer than ${ns}: a bound of each count, and of their sum. */
uint64_t hl_region_most_events(const struct hl_region_view *view, uint64_t ns);

/* Whether a thread can have counted so: ${most} events at most, of blocks that fit into the address
 * space. */
bool hl_region_cell_can_be(const struct hl_cell *cell, uint64_t most);

/* Whether ${kin} tells of as many execs as there can be threads, and of namespaces of dlmopen()
 * that a program may ask for. */
bool hl_region_kin_can_be(const struct hl_region_kin *kin);

/* How many fields of the header differ that nobody changes, or cannot be. */
uint64_t hl_region_count_changed(const struct hl_region_view *view);

/* Whether the total in use that threads add to as they go is, within what they may still hold back,
 * ${inuse_bytes}, the sum of the counters of a process that has ended. */
bool hl_region_total_can_be(const struct hl_region_view *view, int64_t inuse_bytes);
