/* SPDX-License-Identifier: BSD-2-Clause */
/* Decodes the words of rings; see ring.h for what they mean. */
#include "log/ring_reader.h"

#include "base/compiler.h"

#include <errno.h>

/* What is unread, as far as it was published when it was looked up. */
struct span {
	const uint8_t *data;
	uint64_t mask; /* capacity - 1 */
	uint64_t end;
};

void hl_ring_reader_init(struct hl_ring_reader *reader, struct hl_ring *ring)
{
	*reader = (struct hl_ring_reader){.ring = ring};
}

static bool capacity_is_valid(uint64_t capacity)
{
	return capacity >= HL_RING_BYTES_MIN && capacity <= HL_RING_BYTES_MAX &&
	       !(capacity & (capacity - 1));
}

/* False when there is nothing to read. */
static bool find_unread(struct hl_ring_reader *reader, struct span *ret_span)
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
	*ret_span = (struct span){(const uint8_t *)reader->ring + HL_RING_DATA, capacity - 1, head};
	return true;
}

/* Words lie at even positions, so none straddles the ring's end. */
static uint16_t word_at(const struct span *span, uint64_t position)
{
	const volatile uint16_t *word = (const void *)(span->data + (position & span->mask));
	return *word;
}

static uint64_t words_at(const struct span *span, uint64_t position, unsigned count)
{
	uint64_t number = 0;

	for (unsigned i = 0; i < count; i++)
		number |= (uint64_t)word_at(span, position + 2 * i) << (16 * i);
	return number;
}

static unsigned words_of(unsigned opcode)
{
	static const uint8_t words[8] = {
		[HL_RING_ALLOC] = 1,	 [HL_RING_FREE] = 1,	     [HL_RING_ALLOC_NEW] = 4,
		[HL_RING_FREE_NEW] = 4,	 [HL_RING_TICK] = 1,	     [HL_RING_TICK_LONG] = 5,
		[HL_RING_EXTENDED] = 11, [HL_RING_EXTENDED + 1] = 0,
	};
	return words[opcode];
}

/* The event or tick record at the reader's position. */
struct record {
	unsigned opcode, argument, bytes;
};

/* False when the words make no sense, or end before the record does. */
static bool parse_record(const struct hl_ring_reader *reader, const struct span *span,
			 struct record *ret_record)
{
	uint16_t word = word_at(span, reader->position);
	unsigned opcode = word >> 13;

	*ret_record = (struct record){opcode, word & 0x1fff, 2 * words_of(opcode)};
	return ret_record->bytes && ret_record->bytes <= span->end - reader->position;
}

static bool is_tick(const struct record *record)
{
	return record->opcode == HL_RING_TICK || record->opcode == HL_RING_TICK_LONG;
}

static void take_tick(struct hl_ring_reader *reader, const struct span *span,
		      const struct record *record)
{
	uint64_t tick = record->opcode == HL_RING_TICK ? reader->tick + record->argument
						       : words_at(span, reader->position + 2, 4);
	if (tick > reader->tick)
		reader->tick = tick;
	reader->given_up |= reader->tick == UINT64_MAX; /* which would read as "no event" */
	reader->position += record->bytes;
}

/* The pair of a *_NEW event, which goes into its slot. */
static uint64_t take_new(struct hl_ring_reader *reader, const struct span *span,
			 const struct record *record)
{
	uint64_t pair = words_at(span, reader->position + 2, 3) | (uint64_t)record->argument << 48;
	reader->slots[hl_ring_slot(pair)] = pair;
	return pair;
}

static int give_pair(struct hl_ring_sink *sink, uint64_t pair, bool is_free)
{
	int64_t size = (int64_t)(pair >> 24);
	return sink->event(sink, pair & 0xffffff, is_free ? -size : size, is_free ? -1 : 1);
}

static int give_extended(const struct hl_ring_reader *reader, const struct span *span,
			 const struct record *record, struct hl_ring_sink *sink)
{
	uint32_t node = (uint32_t)words_at(span, reader->position + 2, 2);
	int64_t bytes = (int64_t)words_at(span, reader->position + 6, 4);
	int64_t objects = (int64_t)words_at(span, reader->position + 14, 4);
	bool is_free = record->argument & 1;

	return sink->event(sink, node, is_free ? -bytes : bytes, is_free ? -objects : objects);
}

static int give_event(struct hl_ring_reader *reader, const struct span *span,
		      const struct record *record, struct hl_ring_sink *sink)
{
	switch (record->opcode) {
	case HL_RING_ALLOC:
	case HL_RING_FREE:
		return give_pair(sink, reader->slots[record->argument & (HL_RING_SLOTS - 1)],
				 record->opcode == HL_RING_FREE);
	case HL_RING_ALLOC_NEW:
	case HL_RING_FREE_NEW:
		return give_pair(sink, take_new(reader, span, record),
				 record->opcode == HL_RING_FREE_NEW);
	default:
		return give_extended(reader, span, record, sink);
	}
}

static void give_room_back(struct hl_ring_reader *reader)
{
	atomic_store_explicit(&reader->ring->tail, reader->position, memory_order_release);
}

int hl_ring_read(struct hl_ring_reader *reader, uint64_t last_tick, struct hl_ring_sink *sink)
{
	struct span span;
	struct record record;
	int r = 0;

	if (!find_unread(reader, &span))
		return 0;
	while (reader->position != span.end) {
		if (!parse_record(reader, &span, &record)) {
			reader->given_up = true;
			return 0;
		}
		if (is_tick(&record)) {
			take_tick(reader, &span, &record);
			continue;
		}
		if (reader->tick > last_tick) {
			r = 1;
			break;
		}
		r = give_event(reader, &span, &record, sink);
		if (HL_UNLIKELY(r < 0))
			break;
		reader->position += record.bytes;
	}
	give_room_back(reader);
	return r;
}

uint64_t hl_ring_next_tick(struct hl_ring_reader *reader)
{
	struct span span;
	struct record record;

	if (!find_unread(reader, &span))
		return UINT64_MAX;
	while (reader->position != span.end) {
		if (!parse_record(reader, &span, &record)) {
			reader->given_up = true;
			break;
		}
		if (!is_tick(&record))
			return reader->tick;
		take_tick(reader, &span, &record);
	}
	return UINT64_MAX;
}
