/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The recorder's side of its region: areas as pointers, memory for them on demand, and the writing end of event
 * rings.
 */
#pragma once

#include "base/compiler.h"
#include "region/region.h"
#include "region/ring.h"

#include <stdbool.h>

/* ---- the recorder's view of its region: areas as pointers, and memory for them on demand ---- */

struct hl_region_map {
	struct hl_region_header *header;
	struct hl_region_module *modules;
	char *strings;
	struct hl_region_site *sites;
	char *names;
	struct hl_region_thread *threads;
	struct hl_region_node *nodes; /* by id; nodes[0] is the root and stays zero */
	_Atomic uint32_t *index;
	/* How many slots of the index table before have been moved into the table of 2^bits slots. */
	_Atomic uint32_t moved[HL_INDEX_BITS_MAX + 1];
	struct hl_cell_chunk *chunks;
	/* Bytes of each area that this process may touch. A forked child that goes on with a hook shares the
	 * region with its parent, but not what the parent makes accessible from then on. */
	_Atomic uint64_t accessible[HL_AREA_COUNT];
	_Atomic uint64_t permitted[HL_AREA_COUNT]; /* no mprotect() is needed up to here */
	_Atomic uint32_t index_bits;  /* of the largest table of the index that it may */
	_Atomic(char *) rings;	      /* NULL: not mapped yet; see hl_region_map_rings() */
	_Atomic uint32_t large_rings; /* rings that have had more room */
	int32_t collector_pid;	      /* 0: unknown in this pid namespace */
	_Atomic uint64_t dead_tick; /* at which the collector was found to be dead, + 1; 0: never */
	struct hl_ring_order order;
};

/*
 * Maps the region of ${fd}; *${bytes}, all of it, becomes how much. Where there is no log to begin
 * with, of the rings only the first page, from which hl_region_map_rings() maps the rest when there
 * is one: a program that limits its own address space has all the more. ${first_bytes} are as many, 0 where that is not known. NULL when
 * it is not a region.
 */
void *hl_region_map_open(int fd, size_t first_bytes, size_t *bytes);

/* Points ${region} into the region at ${base}, of which ${bytes} are mapped. */
void hl_region_map_init(struct hl_region_map *region, void *base, size_t bytes);

/* The rings, mapped if they are not yet; NULL without any, or without address space for them. As
 * hl_region_map_commit(). */
char *hl_region_map_rings(struct hl_region_map *region);

/* After that no area has room, nor anything to be read. */
void hl_region_map_close(struct hl_region_map *region);

/*
 * Makes sure that bytes [0, end) of an area are accessible and backed by memory, so that touching
 * them cannot fail. False when the area is full or the system has no memory. Thread-safe, async-signal-safe;
 * errno is kept.
 */
bool hl_region_map_commit(struct hl_region_map *region, enum hl_area_id area, uint64_t end);

/* Before the program forbids itself system calls: permits more of each area than is in use, so that hl_region_map_commit() can do
 * without calls for as long. */
void hl_region_map_prepare(struct hl_region_map *region);

/* The same for ${bytes} from ${start} on, whole pages of an area that is not filled in order. */
bool hl_region_map_back(void *start, uint64_t bytes);

/* The same for the ring of thread slot ${slot} as it is at first; the rings are mapped. */
bool hl_region_map_back_ring(struct hl_region_map *region, uint32_t slot);

/* Has them be accessible, without memory so far. */
bool hl_region_map_permit(void *start, uint64_t bytes);

/* False also when its number is not known here, in another PID namespace. Async-signal-safe. */
bool hl_region_map_collector_exists(const struct hl_region_map *region);

static inline bool hl_region_map_has(const struct hl_region_map *region, enum hl_area_id area,
				     uint64_t end)
{
	return HL_LIKELY(end <=
			 atomic_load_explicit(&region->accessible[area], memory_order_acquire));
}

/* ---- ring writer ---- */

/* The writing end of a thread's event ring: in the modes with a log, each change of bytes in use is
 * written there, as ring.h describes. */

/* All that may be written at once: a tick, the stamp at which the thread began to be alone, another
 * one because it is alone no more, and the event. */
#define HL_RING_ROOM (3 * sizeof(uint64_t) + HL_RING_EVENT_MAX)

/* Zero-initialize; used by the slot's owner only, and kept when the slot gets another owner. */
struct hl_ring_writer {
	struct hl_ring *ring; /* NULL: no log */
	uint8_t *bytes;	      /* its data */
	uint64_t mask;	      /* capacity - 1 */
	uint64_t head;
	uint64_t limit; /* head may not pass it: the collector's tail, as last seen, + capacity */
	uint64_t tick;
	uint64_t stamp; /* the last one written */
	uint32_t name;	/* in hl_ring_order: the thread slot + 1 */
	bool stamps;	/* the region has them */
	bool refused;	/* there is no ring for this slot, or no memory */
};

/* Gives thread slot ${slot} its ring, if the region has one for it and there is memory. Tries
 * once. */
void hl_ring_writer_init(struct hl_ring_writer *writer, struct hl_region_map *region,
			 uint32_t slot);

/* Rings that are made from here on have no stamps: to read the time stamp counter kills. */
void hl_ring_writer_forbid_clock(void);

/* Makes room for one event of any kind, waiting if need be. False: the event is lost. */
bool hl_ring_writer_make_room(struct hl_ring_writer *writer, struct hl_region_map *region);

/* Writes an event that has no short form: of a sample, a mapping, an enormous block. */
void hl_ring_writer_put_many(struct hl_ring_writer *writer, uint32_t node, uint64_t bytes,
			     uint64_t objects, bool is_free);

/* Writes an event with the stamp ${stamp}, or with the last one if that is later. */
void hl_ring_writer_put_stamped(struct hl_ring_writer *writer, uint64_t stamp, uint32_t node,
				uint64_t bytes, uint64_t objects, bool is_free);

/* Notes that header.tick is another than at the last event: it is ${tick}. */
void hl_ring_writer_put_tick(struct hl_ring_writer *writer, struct hl_region_map *region,
			     uint64_t tick);

/* Writes a stamp if it is later than the last: the clocks of processors may differ. */
void hl_ring_writer_put_stamp(struct hl_ring_writer *writer, uint64_t stamp);

static inline void hl_ring_writer_put_word(struct hl_ring_writer *writer, uint64_t word)
{
	*(uint64_t *)(void *)(writer->bytes + (writer->head & writer->mask)) = word;
	writer->head += sizeof(word);
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
	atomic_thread_fence(memory_order_release);
}

static inline void hl_ring_writer_end(struct hl_ring_writer *writer)
{
	if (HL_LIKELY(writer->ring))
		atomic_store_explicit(&writer->ring->head, writer->head, memory_order_release);
}

/* What comes before an event: room, and the tick if it is another. False: the event is not to be
 * written, because the ring was full and stayed so. */
static inline bool hl_ring_writer_prepare(struct hl_ring_writer *writer,
					  struct hl_region_map *region)
{
	if (HL_UNLIKELY(writer->head + HL_RING_ROOM > writer->limit) &&
	    !hl_ring_writer_make_room(writer, region))
		return false;
	uint64_t tick = atomic_load_explicit(&region->header->tick, memory_order_relaxed);
	if (HL_UNLIKELY(tick != writer->tick))
		hl_ring_writer_put_tick(writer, region, tick);
	return true;
}

/* Writes an event with the last stamp. */
static inline void hl_ring_writer_put_event(struct hl_ring_writer *writer, uint32_t node,
					    uint64_t bytes, uint64_t objects, bool is_free)
{
	enum hl_ring_opcode opcode = is_free ? HL_RING_FREE : HL_RING_ALLOC;

	if (HL_LIKELY(objects == 1 && bytes >> HL_RING_SIZE_BITS == 0))
		hl_ring_writer_put_word(writer,
					bytes << HL_RING_SIZE_SHIFT | hl_ring_word(opcode, node));
	else
		hl_ring_writer_put_many(writer, node, bytes, objects, is_free);
}

/*
 * Writes that ${bytes} in ${objects} blocks were allocated, or freed, at ${node}. False: they are
 * not in the log, because the ring was full and stayed so. Waits otherwise, for as long as the
 * collector lives.
 */
static inline bool hl_ring_writer_put(struct hl_ring_writer *writer, struct hl_region_map *region,
				      uint32_t node, uint64_t bytes, uint64_t objects, bool is_free)
{
	if (HL_UNLIKELY(!hl_ring_writer_prepare(writer, region)))
		return false;
	if (writer->stamps && !hl_ring_is_alone(&region->order, writer->name))
		hl_ring_writer_put_stamped(writer, hl_ring_order_stamp(&region->order), node, bytes,
					   objects, is_free);
	else
		hl_ring_writer_put_event(writer, node, bytes, objects, is_free);
	/* Counters and words before the head that publishes them. */
	atomic_store_explicit(&writer->ring->head, writer->head, memory_order_release);
	return true;
}
