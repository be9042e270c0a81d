/* SPDX-License-Identifier: BSD-2-Clause */
/* Decodes the words of rings; see ring.h for what they mean. */
#include "log/ring_reader.h"

#include "base/compiler.h"

#include <errno.h>

void hl_ring_reader_init(struct hl_ring_reader *reader, struct hl_ring *ring, uint64_t room)
{
	*reader = (struct hl_ring_reader){.ring = ring, .room = room};
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
	uint64_t data = atomic_load_explicit(&reader->ring->data, memory_order_relaxed);
	if (capacity < HL_RING_BYTES_MIN || capacity > HL_RING_BYTES_MAX ||
	    capacity & (capacity - 1) || head - reader->position > capacity ||
	    head % sizeof(uint64_t) || data % sizeof(uint64_t) || data < HL_RING_DATA ||
	    data > reader->room || capacity > reader->room - data) {
		reader->given_up = true;
		return false;
	}
	reader->data = (const char *)reader->ring + data;
	reader->mask = capacity - 1;
	reader->end = head;
	return true;
}

/* Words lie at multiples of their size, so none straddles the ring's end. */
static uint64_t word_at(const struct hl_ring_reader *reader, uint64_t position)
{
	const volatile uint64_t *word = (const void *)(reader->data + (position & reader->mask));

	return *word;
}

/* The lowest ${bits} of ${word} from ${first} on. */
static inline uint64_t field(uint64_t word, unsigned first, unsigned bits)
{
	return word >> first & ((UINT64_C(1) << bits) - 1);
}

/* An event as the ring has it. */
struct event {
	uint32_t node, length; /* bytes in the ring */
	int64_t bytes, objects;
};

/* The opcode's lowest bit tells frees from allocations, without a branch that cannot be foreseen. */
static inline int64_t with_sign(uint64_t word, uint64_t number)
{
	uint64_t minus = 0 - (word & 1);

	return (int64_t)((number ^ minus) - minus);
}

/* Whether the record is not an event, but says when the next one was: then it has been read. */
static bool take_time(struct hl_ring_reader *reader, uint64_t word)
{
	uint64_t number = word >> HL_RING_OPCODE_BITS;

	switch (field(word, 0, HL_RING_OPCODE_BITS)) {
	case HL_RING_TICK:
		if (number > reader->tick)
			reader->tick = number;
		break;
	case HL_RING_STAMP:
		if (number > reader->last_stamp)
			reader->last_stamp = number;
		break;
	default:
		return false;
	}
	reader->position += sizeof(word);
	return true;
}

/* False when it ends before its three words do. */
static bool take_many(const struct hl_ring_reader *reader, uint64_t word, struct event *ret_event)
{
	if (reader->end - reader->position < HL_RING_EVENT_MAX)
		return false;
	ret_event->length = HL_RING_EVENT_MAX;
	ret_event->bytes = with_sign(word, word_at(reader, reader->position + sizeof(word)));
	ret_event->objects = with_sign(word, word_at(reader, reader->position + 2 * sizeof(word)));
	return true;
}

/* Finds the next event among what is known to be published; takes the times before it. */
static inline __attribute__((always_inline)) bool find_event(struct hl_ring_reader *reader,
							     struct event *ret_event)
{
	while (reader->position != reader->end && !reader->given_up) {
		uint64_t word = word_at(reader, reader->position);
		uint64_t opcode = field(word, 0, HL_RING_OPCODE_BITS);
		uint64_t size = word >> HL_RING_SIZE_SHIFT;
		ret_event->node = (uint32_t)field(word, HL_RING_OPCODE_BITS, HL_RING_NODE_BITS);
		ret_event->objects = with_sign(word, 1);
		ret_event->length = sizeof(word);
		reader->stamp = reader->last_stamp;
		if (opcode >= HL_RING_ALLOC_LATER && opcode <= HL_RING_FREE_LATER) {
			reader->stamp += size >> HL_RING_LATER_BITS;
			size = field(size, 0, HL_RING_LATER_BITS);
		} else if (HL_UNLIKELY(opcode > HL_RING_FREE_LATER)) {
			if (take_time(reader, word))
				continue;
			reader->given_up = !take_many(reader, word, ret_event);
			return !reader->given_up;
		}
		ret_event->bytes = with_sign(word, size);
		return true;
	}
	return false;
}

/* Gives ${sink} the event that find_event() has found. */
static inline int give_event(struct hl_ring_reader *reader, const struct event *event,
			     struct hl_ring_sink *sink)
{
	int r = sink->event(sink, event->node, event->bytes, event->objects);

	if (HL_UNLIKELY(r < 0))
		return r;
	reader->position += event->length;
	reader->last_stamp = reader->stamp;
	return 0;
}

/* Like hl_ring_reader_read(), of what is known to be published. */
static int read_known(struct hl_ring_reader *reader, uint64_t last_tick, uint64_t last_stamp,
		      struct hl_ring_sink *sink)
{
	struct event event;

	while (find_event(reader, &event)) {
		if (reader->tick > last_tick || reader->stamp > last_stamp)
			return 1;
		int r = give_event(reader, &event, sink);
		if (HL_UNLIKELY(r < 0))
			return r;
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
	struct event event;

	find_unread(ahead);
	while (ahead->position < end && find_event(ahead, &event) && ahead->position < end)
		if (give_event(ahead, &event, sink) < 0)
			return;
}

uint64_t hl_ring_reader_next_tick(struct hl_ring_reader *reader)
{
	struct event event;

	if (reader->position == reader->end && !find_unread(reader))
		return UINT64_MAX;
	return find_event(reader, &event) ? reader->tick : UINT64_MAX;
}
