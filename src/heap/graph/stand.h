/* SPDX-License-Identifier: BSD-2-Clause */
/* Stops a process to look at it, at a moment when no thread changes its heap. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct hl_glibc;
struct hl_heap;
struct hl_memory;

/* Whether a thread is changing an arena: chunks may then be in no list. Not where ${glibc} was not found. */
bool hl_stand_is_any_arena_locked(struct hl_memory *memory, const struct hl_glibc *glibc);

/*
 * Stops and lets go again until no arena is locked. After about a second it gives that up: the process stays stopped all the same,
 * and ${ret_is_locked} is true. 0, or as hl_memory_stop(): the process then runs. It goes on after 100 ms, see
 * hl_memory_keep_time(): a JVM has GiB to read. So what is most likely to change is to be read first: registers and stacks,
 * then the heap, then all other memory.
 */
int hl_stand_begin_outside_malloc(struct hl_memory *memory, const struct hl_glibc *glibc,
				  bool *ret_is_locked, struct hl_error *err);

/* Notes in ${heap} what was read after the process had gone on, and ${what} may be wrong; nothing, if nothing was. 0 or -ENOMEM. */
int hl_stand_note_late(const struct hl_memory *memory, struct hl_heap *heap, const char *what);
