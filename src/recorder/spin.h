/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A spin lock for the recorder's own short critical sections (tens of ns; never held across a call
 * of the target's code). It must lie in memory that a forked child sees as zero (private.h), so
 * that a child never inherits it locked.
 */
#pragma once

#include "recorder/sys.h"

#include <stdatomic.h>
#include <stdint.h>

struct hl_spin {
	_Atomic uint32_t locked;
};

static inline int hl_spin_try(struct hl_spin *spin)
{
	return !atomic_exchange_explicit(&spin->locked, 1, memory_order_acquire);
}

static inline void hl_spin_lock(struct hl_spin *spin)
{
	for (unsigned tries = 1; !hl_spin_try(spin); tries++) {
		if (tries % 256 == 0)
			hl_sys_yield(); /* the holder has lost its core */
		else
			__builtin_ia32_pause();
	}
}

static inline void hl_spin_unlock(struct hl_spin *spin)
{
	atomic_store_explicit(&spin->locked, 0, memory_order_release);
}
