/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keeps recorders from being what a program is killed for: watches how much memory they use, and how much is
 * left to the control groups of their processes, and has them go on by samples before it is too late.
 *
 * Until then a recording is exact. HL_MODE_SAMPLED (region/region.h) says what the recorder does then: it gives back the
 * array of its block table, most of what it uses.
 */
#pragma once

#include "region/region.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_budget_settings {
	uint64_t most_bytes; /* of a recorder; 0: no bound but the group's */
	uint64_t
		most_percent; /* of the group's limit or, without one, of the machine's memory; instead of these bytes */
};

struct hl_budget;	/* of a collector; thread-safe */
struct hl_budget_watch; /* of a process */

/* Why a recorder samples. */
struct hl_budget_verdict {
	uint64_t clock_ns;	/* CLOCK_MONOTONIC when it was told to */
	int64_t left, limit;	/* of the group then; limit 0: not for that reason */
	int64_t recorder_bytes; /* of the recorder then; 0: not for that reason */
};

/* NULL without memory. */
struct hl_budget *hl_budget_new(const struct hl_budget_settings *settings);
void hl_budget_free(struct hl_budget *budget); /* NULL is fine; after all watches */

/* Looks at the group of ${pid} before it is recorded; a limit may still be set later. NULL without memory. */
struct hl_budget_watch *hl_budget_watch_new(struct hl_budget *budget, pid_t pid);

/* For header.spare_sample_bytes: a compromise between what samples tell apart and the memory that they take. 0
 * without ${watch}. */
uint64_t hl_budget_sample_bytes(const struct hl_budget_watch *watch);

/* From here on ${header} is told, if need be at once; it must stay until hl_budget_watch_free(). ${watch}: NULL is fine. */
void hl_budget_begin(struct hl_budget_watch *watch, struct hl_region_header *header);

/* Whether the recorder was told to sample. ${watch}: NULL is fine. */
bool hl_budget_has_told(struct hl_budget_watch *watch, struct hl_budget_verdict *ret_verdict);

void hl_budget_watch_free(struct hl_budget_watch *watch); /* NULL is fine */
