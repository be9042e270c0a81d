/* SPDX-License-Identifier: BSD-2-Clause */
/* Decodes the words of rings; see ring.h for what they mean. */
#include "log/ring_reader.h"

#include "base/compiler.h"

#include <errno.h>

void hl_ring_reader_init(struct hl_ring_reader *reader, struct hl_ring *ring)
{
	*reader = (struct hl_ring_reader){.ring = ring};
}

/* Looks for events published since the last time. False when there is nothing to read. */
static bool find_unread(struct hl_ring_reader *reader)
{
	if (reader->given_up)
		return false;
	uint64_t head = hl_ring_head(reader->ring);
	if (head == reader->position)
		return false;
	uint64_t capacity = atomic_load_explicit(&reader->ring->capacity, memory_order_relaxed);
	if (capacity < HL_RING_BYTES_MIN || capacity > HL_RING_BYTES_MAX ||
	    capacity & (capacity - 1) || head - reader->position > capacity) {
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

/* The event, tick record or stamp at the reader's position. */
struct record {
	unsigned opcode, argument, bytes;
};

/* False when the words make no sense, or end before the record does. */
static bool parse_record(const struct hl_ring_reader *reader, struct record *ret_record)
{
	static const uint8_t words_of[8] = {
		[HL_RING_ALLOC] = 1,	 [HL_RING_FREE] = 1,  [HL_RING_ALLOC_NEW] = 4,
		[HL_RING_FREE_NEW] = 4,	 [HL_RING_TICK] = 1,  [HL_RING_TICK_LONG] = 5,
		[HL_RING_EXTENDED] = 11, [HL_RING_STAMP] = 1,
	};
	uint16_t word = word_at(reader, reader->position);
	unsigned opcode = word >> 13, argument = word & 0x1fff;
	unsigned words = opcode == HL_RING_STAMP && !argument ? 5 : words_of[opcode];

	*ret_record = (struct record){opcode, argument, 2 * words};
	if (opcode == HL_RING_EXTENDED && argument > 1)
		return false;
	return ret_record->bytes <= reader->end - reader->position;
}

static void take_tick(struct hl_ring_reader *reader, uint64_t tick)
{
	if (tick > reader->tick)
		reader->tick = tick;
	reader->given_up |= reader->tick == UINT64_MAX; /* which would read as "no event" */
}

/* Whether the record is no event, but says when the next one was: then it has been read. */
static bool take_time(struct hl_ring_reader *reader, const struct record *record)
{
	uint64_t stamp;

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
		stamp = record->argument ? reader->stamp + record->argument
					 : words_at(reader, 1, 4);
		if (stamp > reader->stamp)
			reader->stamp = stamp;
		break;
	default:
		return false;
	}
	reader->position += record->bytes;
	return true;
}

/* The lowest bit tells frees from allocations, without a branch that cannot be foreseen. */
#define IS_FREE 1u
static_assert((HL_RING_FREE & ~IS_FREE) == HL_RING_ALLOC, "by one bit");
static_assert((HL_RING_FREE_NEW & ~IS_FREE) == HL_RING_ALLOC_NEW, "by one bit");

static int give_event(struct hl_ring_reader *reader, const struct record *record,
		      struct hl_ring_sink *sink)
{
	uint64_t pair;

	if (HL_UNLIKELY(record->opcode == HL_RING_EXTENDED)) {
		int64_t sign = record->argument & 1 ? -1 : 1;
		return sink->event(sink, (uint32_t)words_at(reader, 1, 2),
				   sign * (int64_t)words_at(reader, 3, 4),
				   sign * (int64_t)words_at(reader, 7, 4));
	}
	if (HL_LIKELY(record->opcode <= HL_RING_FREE)) {
		pair = reader->slots[record->argument & (HL_RING_SLOTS - 1)];
	} else { /* the pair of a *_NEW event goes into its slot */
		pair = words_at(reader, 1, 3) | (uint64_t)record->argument << 48;
		reader->slots[hl_ring_slot(pair)] = pair;
	}
	bool is_free = record->opcode & IS_FREE;
	int64_t size = (int64_t)(pair >> 24);
	return sink->event(sink, pair & 0xffffff, is_free ? -size : size, is_free ? -1 : 1);
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

/* As hl_ring_reader_read(), of what is known to be published. */
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

int hl_ring_reader_read(struct hl_ring_reader *reader, uint64_t last_tick, uint64_t last_stamp,
			struct hl_ring_sink *sink)
{
	int r = read_known(reader, last_tick, last_stamp, sink);

	if (r == 0 && find_unread(reader))
		r = read_known(reader, last_tick, last_stamp, sink);
	if (!reader->given_up) /* gives room back */
		atomic_store_explicit(&reader->ring->tail, reader->position, memory_order_release);
	return r;
}

void hl_ring_reader_peek(struct hl_ring_reader *ahead, uint64_t end, struct hl_ring_sink *sink)
{
	struct record record;

	find_unread(ahead);
	while (ahead->position < end && find_event(ahead, &record) && ahead->position < end) {
		if (give_event(ahead, &record, sink) < 0)
			return;
		ahead->position += record.bytes;
	}
}

uint64_t hl_ring_reader_next_tick(struct hl_ring_reader *reader)
{
	struct record record;

	if (reader->position == reader->end && !find_unread(reader))
		return UINT64_MAX;
	return find_event(reader, &record) ? reader->tick : UINT64_MAX;
}
