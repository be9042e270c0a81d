/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What puts the events of different threads in order: time stamps, where they are needed.
 *
 * To read the time stamp counter costs more than all else that writes an event. So a thread that is
 * alone, because no other writes events, writes none: its events have the stamp at which it began
 * to be alone. Any other thread ends that before it writes its first event.
 *
 * Why the order is right. An event is written between its cause and its consequences: behind the
 * real malloc and before the block is the program's; before the real free. In between, its thread
 *
 *	alone:	reads its own name in `alone`, and goes by the stamp S that it wrote after it
 *		had put the name there;
 *	else:	reads the clock, then reads in `alone` that nobody is; if somebody is, ends
 *		that, and begins again.
 *
 * Of two stamps the clock tells which was earlier. An event of a thread that is alone comes after
 * all events with stamps below S: theirs is S at the earliest who read `alone` after S began. And
 * before all others: these read `alone`, and so the clock at last, after the end of being alone,
 * which is after all that was read by its thread as its own name. Who reads the clock late for what
 * it read in `alone`, or early for what came before it, would break that: hl_ring_clock() prevents
 * the latter, and the former is prevented by an address that depends on the clock.
 */
#pragma once

#include "base/compiler.h"
#include "region/ring.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HL_RING_NOBODY UINT32_C(0)

struct hl_ring_order {
	_Atomic uint32_t alone; /* name of the ring whose thread is; HL_RING_NOBODY */
	/* The last tick in which events were written, << 16 | name of the ring, or that there were
	 * several. Written once or twice a tick; apart from what is read for each event. */
	_Alignas(8) char apart[64];
	_Atomic uint64_t seen;
};

/* Cycles. Loads before it in the program have been done before the clock is read. */
static inline uint64_t hl_ring_clock(void)
{
	__builtin_ia32_lfence();
	return __builtin_ia32_rdtsc();
}

/* Ring ${name} has an event in ${tick}, for the first time. Whether no other had one in the last
 * tick in which there were any, nor has one in this. */
static inline bool hl_ring_order_see(struct hl_ring_order *order, uint32_t name, uint64_t tick)
{
	const uint64_t several = tick << 16 | UINT16_MAX, mine = tick << 16 | name;
	uint64_t seen = atomic_load_explicit(&order->seen, memory_order_relaxed), next;

	do
		next = seen >> 16 == mine >> 16 && seen != mine ? several : mine;
	while (seen != next && !atomic_compare_exchange_weak(&order->seen, &seen, next));
	return !seen || (uint16_t)seen == name;
}

/* Makes ring ${name} alone if nobody is. */
static inline bool hl_ring_order_begin_alone(struct hl_ring_order *order, uint32_t name)
{
	uint32_t nobody = HL_RING_NOBODY;

	return atomic_compare_exchange_strong(&order->alone, &nobody, name);
}

static inline bool hl_ring_is_alone(const struct hl_ring_order *order, uint32_t name)
{
	return atomic_load_explicit(&order->alone, memory_order_acquire) == name;
}

/* The stamp of an event of a thread that is not alone. Nobody is, then. */
static inline uint64_t hl_ring_order_stamp(struct hl_ring_order *order)
{
	for (;;) {
		uint64_t clock = hl_ring_clock();
		/* Never above 2^63, which takes a century; the processor does not know. */
		_Atomic uint32_t *alone = &order->alone + (clock >> 63);
		uint32_t name = atomic_load_explicit(alone, memory_order_acquire);
		if (HL_LIKELY(name == HL_RING_NOBODY))
			return clock >> HL_RING_STAMP_SHIFT;
		atomic_compare_exchange_strong(&order->alone, &name, HL_RING_NOBODY);
	}
}
