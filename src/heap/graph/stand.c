/* SPDX-License-Identifier: BSD-2-Clause */
/* Stopping a process to look at it; see stand.h. */
#include "heap/graph/stand.h"

#include "heap/glibc.h"
#include "heap/memory.h"

#include <unistd.h>

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
			return 0;
		}
		hl_memory_go_on(memory);
		usleep(STOP_PAUSE_US);
	}
}
