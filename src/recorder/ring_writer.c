/* SPDX-License-Identifier: BSD-2-Clause */
/* Room in rings: memory, waiting, and giving up when nobody reads; see region_map.h. */
#include "recorder/region_map.h"

#include "base/clock.h"
#include "recorder/sys.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <time.h>

/* The pause between looks at the ring is a part of the time waited so far, so that hundreds of
 * waiting threads do not take the processor from the collector that they wait for. */
#define WAIT_PART   16
#define WAIT_NS_MIN 50000
#define WAIT_NS_MAX 4000000

/* Without a tick for this long, check whether the collector still exists. */
#define SILENT_COLLECTOR_NS UINT64_C(1000000000)
/* While its process exists it is stopped or starved: wait no longer than this in all. */
#define DEAD_COLLECTOR_NS UINT64_C(10000000000)
/* From here on a wait without a tick is counted: a report tells of it. */
#define LONG_WAIT_NS UINT64_C(100000000)

/* Asked each time: a collector that leaves says so with this flag. */
static bool is_lossy(const struct hl_region_map *region)
{
	return atomic_load_explicit(&region->header->flags, memory_order_relaxed) & HL_REGION_LOSSY;
}

/* How many rings the area has. */
static uint32_t ring_count(const struct hl_region_map *region)
{
	return (uint32_t)(region->header->areas[HL_AREA_RINGS].capacity / HL_RING_STRIDE);
}

static void set_room(struct hl_ring_writer *writer, uint8_t *bytes, uint32_t capacity)
{
	writer->bytes = bytes;
	writer->mask = capacity - 1;
	atomic_store_explicit(&writer->ring->data, (uint64_t)(bytes - (uint8_t *)writer->ring),
			      memory_order_relaxed);
	atomic_store_explicit(&writer->ring->capacity, capacity, memory_order_relaxed);
}

/* Room of HL_RING_BYTES_MAX, of which the first ${capacity} are backed; there is one for each ring. NULL without
 * memory. */
static uint8_t *take_large(struct hl_region_map *region, uint32_t capacity)
{
	uint32_t count = ring_count(region), number = atomic_load(&region->large_rings);
	char *rings = atomic_load_explicit(&region->rings, memory_order_relaxed);

	do {
		if (number >= count)
			return NULL;
	} while (!atomic_compare_exchange_weak(&region->large_rings, &number, number + 1));
	char *start =
		rings + (uint64_t)count * HL_RING_SMALL + (uint64_t)number * HL_RING_BYTES_MAX;
	return hl_region_map_permit(start, HL_RING_BYTES_MAX) && hl_region_map_back(start, capacity)
		       ? (uint8_t *)start
		       : NULL;
}

/* In ordinary memory: forked children may not read it either. */
static _Atomic bool clock_is_forbidden;

void hl_ring_writer_forbid_clock(void)
{
	atomic_store(&clock_is_forbidden, true);
}

void hl_ring_writer_init(struct hl_ring_writer *writer, struct hl_region_map *region, uint32_t slot)
{
	if (writer->ring || writer->refused)
		return;
	char *rings = hl_region_map_rings(region);
	struct hl_ring *ring = rings ? hl_ring_at(rings, slot) : NULL;
	writer->refused =
		!ring || slot >= ring_count(region) || !hl_region_map_back_ring(region, slot);
	if (writer->refused)
		return;
	writer->ring = ring;
	/* One that never waits for the collector needs all its room from the beginning. */
	uint8_t *large = is_lossy(region) ? take_large(region, HL_RING_BYTES_MAX) : NULL;
	set_room(writer, large ? large : (uint8_t *)ring + HL_RING_DATA,
		 large ? HL_RING_BYTES_MAX : HL_RING_BYTES_MIN);
	writer->limit = writer->mask + 1;
	writer->name = slot + 1;
	writer->stamps = !atomic_load(&clock_is_forbidden) &&
			 atomic_load_explicit(&region->header->flags, memory_order_relaxed) &
				 HL_REGION_STAMPS;
	atomic_store(&region->threads[slot].has_ring, 1);
}

/* ---- rare records ---- */

void hl_ring_writer_put_stamp(struct hl_ring_writer *writer, uint64_t stamp)
{
	if (stamp <= writer->stamp)
		return;
	hl_ring_writer_put_word(writer, hl_ring_word(HL_RING_STAMP, stamp));
	writer->stamp = stamp;
}

/* Returns the tick that it is now, or was when the collector began to doze. */
static uint64_t wake_collector(struct hl_region_map *region, uint64_t tick)
{
	_Atomic uint64_t *place = &region->header->tick;

	if (atomic_compare_exchange_strong(place, &tick, tick & ~HL_TICK_DOZING))
		HL_SYS(SYS_futex, hl_tick_futex(place), FUTEX_WAKE, INT_MAX);
	return tick & ~HL_TICK_DOZING;
}

void hl_ring_writer_put_tick(struct hl_ring_writer *writer, struct hl_region_map *region,
			     uint64_t tick)
{
	if (HL_UNLIKELY(tick & HL_TICK_DOZING))
		tick = wake_collector(region, tick);
	if (tick == writer->tick)
		return;
	hl_ring_writer_put_word(writer, hl_ring_word(HL_RING_TICK, tick));
	writer->tick = tick;
	if (writer->stamps && hl_ring_order_see(&region->order, writer->name, tick) &&
	    hl_ring_order_begin_alone(&region->order, writer->name))
		hl_ring_writer_put_stamp(writer,
					 hl_machine_clock_after_exchange() >> HL_RING_STAMP_SHIFT);
}

void hl_ring_writer_put_many(struct hl_ring_writer *writer, uint32_t node, uint64_t bytes,
			     uint64_t objects, bool is_free)
{
	enum hl_ring_opcode opcode = is_free ? HL_RING_FREE_MANY : HL_RING_ALLOC_MANY;

	hl_ring_writer_put_word(writer, hl_ring_word(opcode, node));
	hl_ring_writer_put_word(writer, bytes);
	hl_ring_writer_put_word(writer, objects);
}

void hl_ring_writer_put_stamped(struct hl_ring_writer *writer, uint64_t stamp, uint32_t node,
				uint64_t bytes, uint64_t objects, bool is_free)
{
	enum hl_ring_opcode opcode = is_free ? HL_RING_FREE_LATER : HL_RING_ALLOC_LATER;
	uint64_t passed = stamp - writer->stamp;

	if (HL_UNLIKELY(passed > HL_RING_STAMP_MAX || objects != 1 ||
			bytes >> HL_RING_LATER_BITS)) {
		hl_ring_writer_put_stamp(writer, stamp);
		hl_ring_writer_put_event(writer, node, bytes, objects, is_free);
		return;
	}
	hl_ring_writer_put_word(writer, passed << HL_RING_STAMP_PLACE |
						bytes << HL_RING_SIZE_SHIFT |
						hl_ring_word(opcode, node));
	writer->stamp = stamp;
}

/* ---- room ---- */

static bool has_room(struct hl_ring_writer *writer)
{
	uint64_t tail = atomic_load_explicit(&writer->ring->tail, memory_order_acquire);

	writer->limit = tail + writer->mask + 1;
	return writer->head + HL_RING_ROOM <= writer->limit;
}

static bool is_empty(const struct hl_ring_writer *writer)
{
	return atomic_load_explicit(&writer->ring->tail, memory_order_acquire) == writer->head;
}

/* Doubles the capacity of the ring, which must be empty: the next records lie elsewhere. */
static void grow(struct hl_ring_writer *writer, struct hl_region_map *region)
{
	uint32_t capacity = (uint32_t)writer->mask + 1;

	if (capacity == HL_RING_BYTES_MIN) {
		uint8_t *large = take_large(region, 2 * capacity);
		if (large)
			set_room(writer, large, 2 * capacity);
	} else if (capacity < HL_RING_BYTES_MAX &&
		   hl_region_map_back(writer->bytes + capacity, capacity)) {
		set_room(writer, writer->bytes, 2 * capacity);
	}
}

static void sleep_a_little(uint64_t waited_ns)
{
	uint64_t part_ns = waited_ns / WAIT_PART;
	struct timespec pause = {.tv_nsec = WAIT_NS_MIN};

	if (part_ns > WAIT_NS_MIN)
		pause.tv_nsec = part_ns < WAIT_NS_MAX ? (long)part_ns : WAIT_NS_MAX;
	HL_SYS(SYS_nanosleep, &pause, NULL, 0);
}

static uint64_t tick_of(const struct hl_region_map *region)
{
	return atomic_load_explicit(&region->header->tick, memory_order_relaxed) & ~HL_TICK_DOZING;
}

static void note_silence(const struct hl_ring_writer *writer, struct hl_region_map *region,
			 uint64_t silent_ns)
{
	if (silent_ns >= LONG_WAIT_NS)
		region->threads[writer->name - 1].waited_ns += silent_ns;
}

/*
 * Waits until the collector has emptied the ring, which takes it a tick or two. False when it is
 * apparently dead, or in a region where nobody waits.
 */
static bool wait_until_empty(struct hl_ring_writer *writer, struct hl_region_map *region)
{
	uint64_t tick = tick_of(region), begin_ns = hl_clock_ns(HL_SYS_CLOCK), since_ns = begin_ns,
		 silent_ns = 0;
	bool emptied;

	while (!(emptied = is_empty(writer))) {
		/* After a wait in vain nobody waits again before ticks go on. */
		if (is_lossy(region) ||
		    atomic_load_explicit(&region->dead_tick, memory_order_relaxed) == tick + 1)
			break;
		uint64_t now_ns = hl_clock_ns(HL_SYS_CLOCK);
		if (tick_of(region) != tick) {
			note_silence(writer, region, silent_ns);
			tick = tick_of(region);
			since_ns = now_ns;
		}
		silent_ns = now_ns - since_ns;
		if (silent_ns > DEAD_COLLECTOR_NS ||
		    (silent_ns > SILENT_COLLECTOR_NS && !hl_region_map_collector_exists(region))) {
			atomic_store_explicit(&region->dead_tick, tick + 1, memory_order_relaxed);
			break;
		}
		sleep_a_little(now_ns - begin_ns);
	}
	note_silence(writer, region, silent_ns);
	return emptied;
}

bool hl_ring_writer_make_room(struct hl_ring_writer *writer, struct hl_region_map *region)
{
	if (has_room(writer))
		return true;
	if (!wait_until_empty(writer, region))
		return false;
	grow(writer, region);
	return has_room(writer);
}
