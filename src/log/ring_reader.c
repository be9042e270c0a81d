/* SPDX-License-Identifier: BSD-2-Clause */
/* Decodes the words of rings; see ring.h for what they mean. */
#include "log/ring_reader.h"

#include "base/compiler.h"

#include <errno.h>

void hl_ring_reader_init(struct hl_ring_reader *reader, struct hl_ring *ring)
{
	*reader = (struct hl_ring_reader){.ring = ring};
}

static bool capacity_is_valid(uint64_t capacity)
{
	return capacity >= HL_RING_BYTES_MIN && capacity <= HL_RING_BYTES_MAX &&
	       !(capacity & (capacity - 1));
}

/* Looks for what was published since the last time. False when there is nothing to read. */
static bool find_unread(struct hl_ring_reader *reader)
{
	if (reader->given_up)
		return false;
	uint64_t head = atomic_load_explicit(&reader->ring->head, memory_order_acquire);
	if (head == reader->position)
		return false;
	uint64_t capacity = atomic_load_explicit(&reader->ring->capacity, memory_order_relaxed);
	if (!capacity_is_valid(capacity) || head - reader->position > capacity || head & 1) {
		reader->given_up = true;
		return false;
	}
	reader->mask = capacity - 1;
	reader->end = head;
	return true;
}

/* Words lie at even positions, so none straddles the ring's end. */
static uint16_t word_at(const struct hl_ring_reader *reader, uint64_t position)
{
	const char *data = (const char *)reader->ring + HL_RING_DATA;
	const volatile uint16_t *word = (const void *)(data + (position & reader->mask));
	return *word;
}

/* ${count} words from the ${first}th of the record on. */
static uint64_t words_at(const struct hl_ring_reader *reader, unsigned first, unsigned count)
{
	uint64_t position = reader->position + 2 * first, number = 0;

	for (unsigned i = 0; i < count; i++)
		number |= (uint64_t)word_at(reader, position + 2 * i) << (16 * i);
	return number;
}

/* 0: there is no such record. */
static unsigned words_of(unsigned opcode, unsigned argument)
{
	static const uint8_t words[8] = {
		[HL_RING_ALLOC] = 1,	 [HL_RING_FREE] = 1,  [HL_RING_ALLOC_NEW] = 4,
		[HL_RING_FREE_NEW] = 4,	 [HL_RING_TICK] = 1,  [HL_RING_TICK_LONG] = 5,
		[HL_RING_EXTENDED] = 11, [HL_RING_STAMP] = 1,
	};
	if (opcode == HL_RING_STAMP && !argument)
		return 5;
	return opcode == HL_RING_EXTENDED && argument > 1 ? 0 : words[opcode];
}

/* The event, tick record or stamp at the reader's position. */
struct record {
	unsigned opcode, argument, bytes;
};

/* False when the words make no sense, or end before the record does. */
static bool parse_record(const struct hl_ring_reader *reader, struct record *ret_record)
{
	uint16_t word = word_at(reader, reader->position);
	unsigned opcode = word >> 13, argument = word & 0x1fff;

	*ret_record = (struct record){opcode, argument, 2 * words_of(opcode, argument)};
	return ret_record->bytes && ret_record->bytes <= reader->end - reader->position;
}

static void take_tick(struct hl_ring_reader *reader, uint64_t tick)
{
	if (tick > reader->tick)
		reader->tick = tick;
	reader->given_up |= reader->tick == UINT64_MAX; /* which would read as "no event" */
}

static void take_stamp(struct hl_ring_reader *reader, const struct record *record)
{
	uint64_t stamp =
		record->argument ? reader->stamp + record->argument : words_at(reader, 1, 4);
	if (stamp > reader->stamp)
		reader->stamp = stamp;
}

/* Whether the record is no event, but says when the next one was: then it has been read. */
static bool take_time(struct hl_ring_reader *reader, const struct record *record)
{
	if (HL_LIKELY(record->opcode <= HL_RING_FREE_NEW))
		return false;
	switch (record->opcode) {
	case HL_RING_TICK:
		take_tick(reader, reader->tick + record->argument);
		break;
	case HL_RING_TICK_LONG:
		take_tick(reader, words_at(reader, 1, 4));
		break;
	case HL_RING_STAMP:
		take_stamp(reader, record);
		break;
	default:
		return false;
	}
	reader->position += record->bytes;
	return true;
}

/* The pair of a *_NEW event, which goes into its slot. */
static uint64_t take_new(struct hl_ring_reader *reader, const struct record *record)
{
	uint64_t pair = words_at(reader, 1, 3) | (uint64_t)record->argument << 48;
	reader->slots[hl_ring_slot(pair)] = pair;
	return pair;
}

/* The lowest bit tells frees from allocations, without a branch that cannot be foreseen. */
#define IS_FREE 1u
static_assert((HL_RING_FREE & ~IS_FREE) == HL_RING_ALLOC, "by one bit");
static_assert((HL_RING_FREE_NEW & ~IS_FREE) == HL_RING_ALLOC_NEW, "by one bit");

static int give_pair(struct hl_ring_sink *sink, uint64_t pair, bool is_free)
{
	int64_t size = (int64_t)(pair >> 24);
	return sink->event(sink, pair & 0xffffff, is_free ? -size : size, is_free ? -1 : 1);
}

static int give_extended(const struct hl_ring_reader *reader, const struct record *record,
			 struct hl_ring_sink *sink)
{
	uint32_t node = (uint32_t)words_at(reader, 1, 2);
	int64_t bytes = (int64_t)words_at(reader, 3, 4);
	int64_t objects = (int64_t)words_at(reader, 7, 4);
	bool is_free = record->argument & 1;

	return sink->event(sink, node, is_free ? -bytes : bytes, is_free ? -objects : objects);
}

static int give_event(struct hl_ring_reader *reader, const struct record *record,
		      struct hl_ring_sink *sink)
{
	if (HL_UNLIKELY(record->opcode == HL_RING_EXTENDED))
		return give_extended(reader, record, sink);
	uint64_t pair = HL_LIKELY(record->opcode <= HL_RING_FREE)
				? reader->slots[record->argument & (HL_RING_SLOTS - 1)]
				: take_new(reader, record);
	return give_pair(sink, pair, record->opcode & IS_FREE);
}

static void give_room_back(struct hl_ring_reader *reader)
{
	atomic_store_explicit(&reader->ring->tail, reader->position, memory_order_release);
}

/* Most events of several threads have one. */
static inline bool pass_short_stamp(struct hl_ring_reader *reader)
{
	unsigned passed = word_at(reader, reader->position) - (HL_RING_STAMP << 13);

	if (passed - 1 >= HL_RING_STAMP_MAX)
		return false;
	reader->stamp += passed;
	reader->position += sizeof(uint16_t);
	return true;
}

/* Finds the next event among what is known to be published; takes the times before it. */
static inline __attribute__((always_inline)) bool find_event(struct hl_ring_reader *reader,
							     struct record *ret_record)
{
	while (reader->position != reader->end && !reader->given_up) {
		if (pass_short_stamp(reader))
			continue;
		if (HL_UNLIKELY(!parse_record(reader, ret_record)))
			reader->given_up = true;
		else if (!take_time(reader, ret_record))
			return !reader->given_up;
	}
	return false;
}

/* As hl_ring_read(), of what is known to be published. */
static int read_known(struct hl_ring_reader *reader, uint64_t last_tick, uint64_t last_stamp,
		      struct hl_ring_sink *sink)
{
	struct record record;

	while (find_event(reader, &record)) {
		if (reader->tick > last_tick || reader->stamp > last_stamp)
			return 1;
		int r = give_event(reader, &record, sink);
		if (HL_UNLIKELY(r < 0))
			return r;
		reader->position += record.bytes;
	}
	return 0;
}

int hl_ring_read(struct hl_ring_reader *reader, uint64_t last_tick, uint64_t last_stamp,
		 struct hl_ring_sink *sink)
{
	int r = read_known(reader, last_tick, last_stamp, sink);

	if (r == 0 && find_unread(reader))
		r = read_known(reader, last_tick, last_stamp, sink);
	if (!reader->given_up)
		give_room_back(reader);
	return r;
}

void hl_ring_peek(struct hl_ring_reader *ahead, uint64_t end, struct hl_ring_sink *sink)
{
	struct record record;

	find_unread(ahead);
	while (ahead->position < end && find_event(ahead, &record) && ahead->position < end) {
		if (give_event(ahead, &record, sink) < 0)
			return;
		ahead->position += record.bytes;
	}
}

uint64_t hl_ring_next_tick(struct hl_ring_reader *reader)
{
	struct record record;

	if (reader->position == reader->end && !find_unread(reader))
		return UINT64_MAX;
	return find_event(reader, &record) ? reader->tick : UINT64_MAX;
}
