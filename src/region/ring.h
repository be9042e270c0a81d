/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The event ring of a thread slot, in the region: written by the slot's thread, read by the
 * collector. It holds what changed bytes in use, and when, in the order in which it happened.
 *
 * Positions count bytes for ever; position p lies at p & (capacity - 1) of the ring's data. What is
 * between tail and head is unread. The capacity changes only while the ring is empty, before the
 * next head is published, so a reader that reads it after head reads with the right one.
 *
 * The content is a stream of little-endian u16 words; an event is one to eleven of them. The first
 * holds the opcode in its upper 3 bits and an argument in the lower 13:
 *
 *	ALLOC, FREE		argument = slot: what that slot holds happens again
 *	ALLOC_NEW, FREE_NEW	argument = bits 48..60 of a pair, then its three lower words; the
 *				pair goes into its slot
 *	TICK			argument = ticks since the last tick record of the ring
 *	TICK_LONG		then four words: the tick
 *	EXTENDED		argument = 1 for a free; then the node (two words), bytes (four),
 *				objects (four): samples, mappings, sizes of 2^37 and more
 *	STAMP			argument = units of time since the ring's last stamp; 0: then four
 *				words, the stamp
 *
 * A pair is a node and a size, see hl_ring_pair(). Both sides keep the slots, which begin zeroed
 * and belong to the ring for good.
 *
 * An event has the stamp before it in its ring, or 0. In regions with HL_REGION_STAMPS, stamps put
 * the events of all rings in order: what happened because of an event has a larger stamp, or the
 * same one and stands in the same ring; see ring_order.h. Elsewhere there are no stamps.
 */
#pragma once

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#define HL_RING_BYTES_MIN (UINT32_C(16) << 10)
#define HL_RING_BYTES_MAX (UINT32_C(1) << 20)
#define HL_RING_DATA	  4096u /* where the data begins, from the ring's start */
#define HL_RING_STRIDE	  (HL_RING_DATA + HL_RING_BYTES_MAX)
#define HL_RING_SLOT_BITS 10
#define HL_RING_SLOTS	  (1u << HL_RING_SLOT_BITS)
#define HL_RING_EVENT_MAX 22u		   /* bytes of the longest event */
#define HL_RING_TIME_MAX  10u		   /* of a whole tick, or of a whole stamp */
#define HL_RING_SIZE_BITS 37		   /* larger sizes are EXTENDED */
#define HL_RING_TICK_MAX  ((1u << 13) - 1) /* more ticks at once are TICK_LONG */
#define HL_RING_TICK_NS	  UINT64_C(1000000)
/* A stamp counts 16 cycles of the time stamp counter: fewer than lie between an event and one
 * that another thread brings about because of it. */
#define HL_RING_STAMP_SHIFT 4
#define HL_RING_STAMP_MAX   ((1u << 13) - 1) /* longer times are whole stamps */

enum hl_ring_opcode {
	HL_RING_ALLOC,
	HL_RING_FREE,
	HL_RING_ALLOC_NEW,
	HL_RING_FREE_NEW,
	HL_RING_TICK,
	HL_RING_TICK_LONG,
	HL_RING_EXTENDED,
	HL_RING_STAMP,
};

struct hl_ring {
	/* The owner's. */
	_Atomic uint64_t head;
	_Atomic uint32_t capacity; /* 0: the ring has not been used; else a power of two */
	/* Odd while an event is counted and written: else the counters of its thread are those
	 * after the events up to head, and those that were lost. */
	_Atomic uint32_t sequence;
	/* The collector's. */
	_Alignas(64) _Atomic uint64_t tail;
};

static_assert(sizeof(struct hl_ring) <= HL_RING_DATA, "the data begins after it");

/* Size above node; below 2^61, and never 0, as no event is at the root. */
static inline uint64_t hl_ring_pair(uint32_t node, uint64_t size)
{
	return size << 24 | node;
}

static inline uint32_t hl_ring_slot(uint64_t pair)
{
	return (uint32_t)(pair * UINT64_C(0x9e3779b97f4a7c15) >> (64 - HL_RING_SLOT_BITS));
}
