/* SPDX-License-Identifier: BSD-2-Clause */
/* Stops a process to look at it, at a moment when no thread changes its heap, and adds up the time. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct hl_glibc;
struct hl_memory;

struct hl_stand {
	uint64_t began_ns;   /* 0: the process runs */
	uint64_t stopped_ns; /* all in all, of stops that have ended */
};

/* As hl_memory_stop(). */
int hl_stand_begin(struct hl_stand *stand, struct hl_memory *memory, struct hl_error *err);

/* Lets the process go on, if it does not yet: ${went_on_ns} is when it did, 0 for now. */
void hl_stand_end(struct hl_stand *stand, struct hl_memory *memory, uint64_t went_on_ns);

/* Whether a thread is changing an arena: chunks may then be in no list. */
bool hl_stand_is_any_arena_locked(struct hl_memory *memory, const struct hl_glibc *glibc);

/*
 * Stops and lets go again until no arena is locked. After about a second it gives that up: the process stands still all the same,
 * and ${ret_is_locked} is true. 0, or as hl_memory_stop(): the process then runs.
 */
int hl_stand_begin_outside_malloc(struct hl_stand *stand, struct hl_memory *memory,
				  const struct hl_glibc *glibc, bool *ret_is_locked,
				  struct hl_error *err);
