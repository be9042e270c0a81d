/* SPDX-License-Identifier: BSD-2-Clause */
/* Stopping a process to look at it; see stand.h. */
#include "heap/graph/stand.h"

#include "base/clock.h"
#include "heap/glibc.h"
#include "heap/heap.h"
#include "heap/memory.h"

#include <unistd.h>

#define STOP_MS	      100u
#define STOPS_MAX     1000u
#define STOP_PAUSE_US 200
#define ARENAS_MAX    16384u /* more are a damaged list; glibc makes 8 for each processor */

bool hl_stand_is_any_arena_locked(struct hl_memory *memory, const struct hl_glibc *glibc)
{
	uint64_t address = glibc->main_arena;
	struct hl_glibc_arena arena;

	for (uint32_t i = 0; i < ARENAS_MAX && glibc->layout; i++) {
		if (hl_glibc_state_arena(memory, glibc, address, &arena) < 0)
			return false; /* damaged: it will not get better */
		if (arena.is_locked)
			return true;
		address = arena.next;
		if (address == glibc->main_arena)
			break;
	}
	return false;
}

int hl_stand_begin_outside_malloc(struct hl_memory *memory, const struct hl_glibc *glibc,
				  bool *ret_is_locked, struct hl_error *err)
{
	for (unsigned tries = 1;; tries++) {
		int r = hl_memory_stop(memory, err);
		if (r < 0)
			return r;
		bool is_locked = hl_stand_is_any_arena_locked(memory, glibc);
		if (!is_locked || tries == STOPS_MAX) {
			*ret_is_locked = is_locked;
			memory->still_until_ns =
				hl_clock_ns(CLOCK_MONOTONIC) + STOP_MS * HL_NS_PER_SECOND / 1000;
			/* What the stop before this one was too short for is read again. */
			memory->is_late = false;
			memory->late_bytes = memory->block_bytes = 0;
			return 0;
		}
		hl_memory_go_on(memory);
		usleep(STOP_PAUSE_US);
	}
}

int hl_stand_note_late(const struct hl_memory *memory, struct hl_heap *heap, const char *what)
{
	if (!memory->late_bytes)
		return 0;
	return hl_heap_note(heap,
			    "the process goes on after %u ms, and the last %llu MiB were "
			    "read while it ran: %s",
			    STOP_MS, (unsigned long long)(memory->late_bytes + (1 << 20) - 1) >> 20,
			    what);
}
