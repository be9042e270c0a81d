/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A spin lock for the recorder's own short critical sections (tens of ns; never held across a call
 * of the target's code): a word that is 1 while it is held. It must lie in memory that a forked
 * child sees as zero (private_map.h), so that a child never inherits it locked.
 */
#pragma once

#include "base/machine.h"
#include "recorder/self.h"
#include "recorder/sys.h"

#include <stdatomic.h>
#include <stdint.h>

static inline int hl_spin_try(_Atomic uint32_t *lock)
{
	return !atomic_exchange_explicit(lock, 1, memory_order_acquire);
}

#define HL_SPIN_TRIES  256u /* before each yield */
#define HL_SPIN_YIELDS 64u  /* before the thread sleeps */

/* Waits while ${yields} waits before this one did not help: a thread with a real-time priority yields to none that has less, and the holder
 * may be one. */
static inline void hl_spin_wait(unsigned yields)
{
	const struct timespec a_little = {.tv_nsec = 50000};

	if (yields < HL_SPIN_YIELDS || HL_SYS(SYS_nanosleep, &a_little, 0, 0) < 0)
		hl_sys_yield();
}

static inline void hl_spin_lock(_Atomic uint32_t *lock)
{
	for (unsigned tries = 1; !hl_spin_try(lock); tries++) {
		if (tries % HL_SPIN_TRIES != 0)
			hl_machine_pause();
		else if (hl_self_is_forked())
			return; /* the holder is not in this process */
		else
			hl_spin_wait(tries / HL_SPIN_TRIES); /* the holder has lost its core */
	}
}

static inline void hl_spin_unlock(_Atomic uint32_t *lock)
{
	atomic_store_explicit(lock, 0, memory_order_release);
}
