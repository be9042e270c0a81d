/* SPDX-License-Identifier: BSD-2-Clause */
/* The writing end of a thread's event ring: in the modes with a log, each change of bytes in use is
 * written there, as ring.h describes. */
#pragma once

#include "base/compiler.h"
#include "recorder/region_map.h"
#include "region/ring.h"

#include <stdbool.h>

/* All that may be written at once: a tick, the stamp at which the thread began to be alone, another
 * one because it is alone no more, and the event. */
#define HL_RING_ROOM (3 * HL_RING_TIME_MAX + HL_RING_EVENT_MAX)

/* Zero-initialize; used by the slot's owner only, and kept when the slot gets another owner. */
struct hl_ring_writer {
	struct hl_ring *ring; /* NULL: no log */
	uint8_t *bytes;	      /* its data */
	uint64_t mask;	      /* capacity - 1 */
	uint64_t head;
	uint64_t limit; /* head may not pass it: the collector's tail, as last seen, + capacity */
	uint64_t tick;
	uint64_t stamp;		       /* the last one written */
	uint32_t name;		       /* in hl_ring_order: the thread slot + 1 */
	bool stamps;		       /* the region has them */
	bool refused;		       /* there is no ring for this slot, or no memory */
	uint64_t slots[HL_RING_SLOTS]; /* pairs */
};

/* Gives thread slot ${slot} its ring, if the region has one for it and there is memory. Tries
 * once. */
void hl_ring_writer_init(struct hl_ring_writer *writer, struct hl_region_map *region,
			 uint32_t slot);

/* Makes room for one event of any kind, waiting if need be. False: the event is lost. */
bool hl_ring_writer_make_room(struct hl_ring_writer *writer, struct hl_region_map *region);

/* Writes an event that has no short form: of a sample, a mapping, an enormous block. */
void hl_ring_writer_put_extended(struct hl_ring_writer *writer, uint32_t node, uint64_t bytes,
				 uint64_t objects, bool is_free);

/* Notes that header.tick is another than at the last event: it is ${tick}. */
void hl_ring_writer_put_tick(struct hl_ring_writer *writer, struct hl_region_map *region,
			     uint64_t tick);

/* Stores ${words} at the head, where the ring ends in between. The head stays. */
void hl_ring_writer_wrap(struct hl_ring_writer *writer, uint64_t words);

/* Writes a stamp that is too far from the last one for one word, if it is later. */
void hl_ring_writer_put_long_stamp(struct hl_ring_writer *writer, uint64_t stamp);

static inline void hl_ring_writer_put_word(struct hl_ring_writer *writer, uint64_t word)
{
	*(uint16_t *)(void *)(writer->bytes + (writer->head & writer->mask)) = (uint16_t)word;
	writer->head += sizeof(uint16_t);
}

/* Four words, at any place for one. */
typedef uint64_t __attribute__((aligned(sizeof(uint16_t)), may_alias)) hl_ring_words;

/* Without branches that depend on whether the pair is in its slot: in programs whose events vary
 * that cannot be predicted. What is stored beyond a short event is in the room, and unread. */
static inline void hl_ring_writer_put_pair(struct hl_ring_writer *writer, uint64_t pair,
					   bool is_free)
{
	uint32_t slot = hl_ring_slot(pair);
	uint64_t opcode = is_free ? HL_RING_FREE : HL_RING_ALLOC;
	bool known = writer->slots[slot] == pair;

	writer->slots[slot] = pair;
	uint64_t first = known ? opcode << 13 | slot
			       : (opcode + HL_RING_ALLOC_NEW - HL_RING_ALLOC) << 13 | pair >> 48;
	uint64_t words = first | pair << 16;
	uint64_t place = writer->head & writer->mask;
	if (HL_UNLIKELY(place + sizeof(words) > writer->mask + 1))
		hl_ring_writer_wrap(writer, words);
	else
		*(hl_ring_words *)(void *)(writer->bytes + place) = words;
	writer->head += known ? sizeof(uint16_t) : sizeof(words);
}

/*
 * Begins an event, before anything of it is counted. hl_ring_writer_put() ends it, and if that
 * fails, once the loss has been counted, hl_ring_writer_end(). Stores of one thread are seen in
 * their order.
 */
static inline void hl_ring_writer_begin(struct hl_ring_writer *writer)
{
	if (HL_UNLIKELY(!writer->ring))
		return;
	atomic_store_explicit(&writer->ring->head, writer->head | HL_RING_IN_EVENT,
			      memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst); /* x86-64 shows stores in their order */
}

static inline void hl_ring_writer_end(struct hl_ring_writer *writer)
{
	if (HL_LIKELY(writer->ring))
		atomic_store_explicit(&writer->ring->head, writer->head, memory_order_release);
}

/* Processors whose clocks differ, or the same unit of time: the event has the last stamp. */
static inline void hl_ring_writer_put_stamp(struct hl_ring_writer *writer, uint64_t stamp)
{
	uint64_t passed = stamp - writer->stamp;

	if (HL_UNLIKELY(passed - 1 >= HL_RING_STAMP_MAX)) {
		hl_ring_writer_put_long_stamp(writer, stamp);
		return;
	}
	hl_ring_writer_put_word(writer, HL_RING_STAMP << 13 | passed);
	writer->stamp = stamp;
}

/*
 * Writes that ${bytes} in ${objects} blocks were allocated, or freed, at ${node}. False: they are
 * not in the log, because the ring was full and stayed so. Waits otherwise, for as long as the
 * collector lives.
 */
static inline bool hl_ring_writer_put(struct hl_ring_writer *writer, struct hl_region_map *region,
				      uint32_t node, uint64_t bytes, uint64_t objects, bool is_free)
{
	if (HL_UNLIKELY(writer->head + HL_RING_ROOM > writer->limit) &&
	    !hl_ring_writer_make_room(writer, region))
		return false;
	uint64_t tick = atomic_load_explicit(&region->header->tick, memory_order_relaxed);
	if (HL_UNLIKELY(tick != writer->tick))
		hl_ring_writer_put_tick(writer, region, tick);
	if (writer->stamps && !hl_ring_is_alone(&region->order, writer->name))
		hl_ring_writer_put_stamp(writer, hl_ring_order_stamp(&region->order));
	if (HL_LIKELY(objects == 1 && bytes >> HL_RING_SIZE_BITS == 0))
		hl_ring_writer_put_pair(writer, hl_ring_pair(node, bytes), is_free);
	else
		hl_ring_writer_put_extended(writer, node, bytes, objects, is_free);
	/* Counters and words before the head that publishes them. */
	atomic_store_explicit(&writer->ring->head, writer->head, memory_order_release);
	return true;
}
