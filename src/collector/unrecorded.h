/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counts the children that should have been recorded and were not. Recorded programs tell in their
 * regions which children started (recorder/kin.h); a child that is recorded says hello. The
 * difference ran unrecorded: in another network namespace, without memory, as a static program, or
 * while the collector was stopped.
 */
#pragma once

#include "collector/tracked.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_unrecorded {
	uint64_t started;  /* children with programs of their own, of processes that have ended */
	uint64_t forked;   /* children without a region, of processes that have ended */
	uint64_t arrived;  /* programs that were expected and said hello */
	uint32_t just_now; /* hl_unrecorded_steady()'s last count */
};

/*
 * Whether a program that says hello was told of when it was started. One that ${parent} started,
 * which is not recorded itself, was not: ${tracked} is that process, NULL where none is known.
 */
bool hl_unrecorded_was_expected(pid_t parent, const struct hl_tracked *tracked);

/* The region of ${tracked} is about to go. */
void hl_unrecorded_keep(struct hl_unrecorded *unrecorded, const struct hl_tracked *tracked);

/* How many there are, with those that the processes in the list ${running} tell of. */
uint32_t hl_unrecorded_count(const struct hl_unrecorded *unrecorded,
			     const struct hl_tracked *running);

/* The same while the recording goes on: without children that are just about to say hello. To be
 * called once a second. */
uint32_t hl_unrecorded_steady(struct hl_unrecorded *unrecorded, const struct hl_tracked *running);
