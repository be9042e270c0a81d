/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The event ring of a thread slot, in the region: written by the slot's thread, read by the
 * collector. It holds the changes of bytes in use and their times, in the order in which they
 *happened.
 *
 * Positions count bytes for ever; position p lies at p & (capacity - 1) of the ring's data. What is
 * between tail and head is unread. The capacity changes only while the ring is empty, before the
 * next head is published, so a reader that reads it after head reads with the right one; and so does the
 * place of the data.
 *
 * The content is a stream of little-endian u64 words; an event is one of them, or three. The lowest
 * 3 bits of the first are the opcode:
 *
 *	ALLOC, FREE		then 24 bits node, 37 bits size
 *	ALLOC_LATER, FREE_LATER	then 24 bits node, 24 bits size, 13 bits units of time since the
 *				ring's last stamp
 *	ALLOC_MANY, FREE_MANY	then the node; a word of bytes, and one of objects: samples,
 *				mappings, sizes of 2^37 and more
 *	TICK			then the tick
 *	STAMP			then the stamp
 *
 * An event has the last stamp up to it in its ring, or 0. In regions with HL_REGION_STAMPS, stamps put
 * the events of all rings in order: what happened because of an event has a larger stamp, or the
 * same one and stands in the same ring; see below. Elsewhere there are no stamps.
 */
#pragma once

#include "base/compiler.h"
#include "base/machine.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HL_RING_BYTES_MIN (UINT32_C(16) << 10)
#define HL_RING_BYTES_MAX (UINT32_C(1) << 20)
#define HL_RING_DATA	  4096u /* where the first data begin, from the ring's start */
/*
 * The area of rings has one after the other, each with its first data, and after all of them room for larger data,
 * which rings take in turn as they need it: so pages in use are next to each other, in few mappings.
 */
#define HL_RING_SMALL	  (HL_RING_DATA + HL_RING_BYTES_MIN) /* from a ring to the next */
#define HL_RING_STRIDE	  (HL_RING_SMALL + HL_RING_BYTES_MAX) /* what one takes of the area, in all */
#define HL_RING_EVENT_MAX 24u				      /* bytes of the longest event */
#define HL_RING_TICK_NS	  UINT64_C(1000000)
/* A stamp counts 2^this ticks of the clock: fewer than lie between an event and one that another thread brings about because of it. */
#define HL_RING_STAMP_SHIFT HL_MACHINE_STAMP_SHIFT

/* The fields of a word. */
#define HL_RING_OPCODE_BITS 3
#define HL_RING_NODE_BITS   24
#define HL_RING_SIZE_BITS   37 /* larger sizes are ALLOC_MANY */
#define HL_RING_LATER_BITS  24 /* of the size of an event with a time; larger ones follow a STAMP */
#define HL_RING_STAMP_MAX   ((1u << 13) - 1) /* longer times are STAMPs */
#define HL_RING_SIZE_SHIFT  (HL_RING_OPCODE_BITS + HL_RING_NODE_BITS)
#define HL_RING_STAMP_PLACE (HL_RING_SIZE_SHIFT + HL_RING_LATER_BITS)

/* The lowest bit tells frees from allocations. */
enum hl_ring_opcode {
	HL_RING_ALLOC,
	HL_RING_FREE,
	HL_RING_ALLOC_LATER,
	HL_RING_FREE_LATER,
	HL_RING_ALLOC_MANY,
	HL_RING_FREE_MANY,
	HL_RING_TICK,
	HL_RING_STAMP,
};

static inline uint64_t hl_ring_word(enum hl_ring_opcode opcode, uint64_t argument)
{
	return argument << HL_RING_OPCODE_BITS | opcode;
}

/* A bit of the head: positions are multiples of 8. */
#define HL_RING_IN_EVENT UINT64_C(1)

struct hl_ring {
	/* The owner's. With HL_RING_IN_EVENT while an event is counted and written: else the
	 * counters of its thread are those after the events up to head, and those that were lost. */
	_Atomic uint64_t head;
	_Atomic uint32_t capacity; /* 0: the ring has not been used; else a power of two */
	_Atomic uint64_t data;	   /* where they are, from the ring's start */
	/* The collector's. */
	_Alignas(64) _Atomic uint64_t tail;
};

static_assert(sizeof(struct hl_ring) <= HL_RING_DATA, "the data begins after it");

/* The ring of thread slot ${slot}. */
static inline struct hl_ring *hl_ring_at(char *rings, uint32_t slot)
{
	return (struct hl_ring *)(void *)(rings + (uint64_t)slot * HL_RING_SMALL);
}

/* What is before it has been published. */
static inline uint64_t hl_ring_head(const struct hl_ring *ring)
{
	return atomic_load_explicit(&ring->head, memory_order_acquire) & ~HL_RING_IN_EVENT;
}

/*
 * ---- the order of events of different threads: time stamps, where they are needed ----
 *
 * To read the time stamp counter costs more than all else that writes an event. So a thread that is
 * alone, because no other writes events, writes none: its events have the stamp at which it began
 * to be alone. Any other thread ends that before it writes its first event.
 *
 * Why the order is right. An event is written between its cause and its consequences: after the
 * real malloc and before the block is the program's; before the real free. In between, its thread
 *
 *	alone:	reads its own name in `alone`, and goes by the stamp S that it wrote after it
 *		had put the name there;
 *	else:	reads the clock, then reads in `alone` that nobody is; if somebody is, ends
 *		that, and begins again.
 *
 * The clock orders two stamps. An event of a thread that is alone comes after all events with
 *stamps below S: a thread that reads `alone` after S began has a stamp of at least S. It comes
 *before all others: their threads read `alone`, and then the clock for the last time, after the
 *time alone had ended, which is after each read in which the lone thread found its own name. The
 *order would break if a thread read the clock after `alone`, or before what precedes the event: an
 *address that depends on the clock prevents the former, hl_ring_clock() the latter. It would, too, if S were read before
 *others see the name, or `alone` before the program has got what it frees.
 */

#define HL_RING_NOBODY UINT32_C(0)

struct hl_ring_order {
	_Atomic uint32_t alone; /* name of the ring whose thread is; HL_RING_NOBODY */
	/* On a cache line of its own: `alone` is read for each event. */
	_Alignas(8) char padding[64];
	/* The last tick in which events were written, << 16 | name of the ring, or UINT16_MAX when
	 * there were several. Written once or twice a tick. */
	_Atomic uint64_t seen;
};

/* Cycles. Loads before it in the program have been done before the clock is read. */
static inline uint64_t hl_ring_clock(void)
{
	return hl_machine_clock();
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
	hl_machine_order_stamp();
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
