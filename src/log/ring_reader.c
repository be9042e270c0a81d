/* SPDX-License-Identifier: BSD-2-Clause */
/* Decodes the words of rings, and takes the events of several in order; see region/ring.h for what they mean. */
#include "log/ring_reader.h"

#include "base/compiler.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

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

/* ---- sets: a heap of rings, the earliest next event on top ---- */

/* A ring that has events of the tick, and the stamp of the next one. */
struct hl_ring_turn {
	uint64_t stamp;
	uint32_t ring;
};

static void sift_down(struct hl_ring_turn *turns, size_t count, size_t at)
{
	struct hl_ring_turn turn = turns[at];

	for (size_t child; (child = 2 * at + 1) < count; at = child) {
		child += child + 1 < count && turns[child + 1].stamp < turns[child].stamp;
		if (turn.stamp <= turns[child].stamp)
			break;
		turns[at] = turns[child];
	}
	turns[at] = turn;
}

static size_t reader_bytes(uint32_t max)
{
	return (max + (size_t)1) * sizeof(struct hl_ring_reader);
}

/* RLIMIT_DATA counts private memory by what is reserved; that of shared mappings is free. */
int hl_ring_set_init(struct hl_ring_set *set, uint32_t max)
{
	void *readers = mmap(NULL, reader_bytes(max), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	set->max = max;
	set->readers = readers == MAP_FAILED ? NULL : readers;
	set->next_ticks = calloc(max + (size_t)1, sizeof(*set->next_ticks));
	set->turns = calloc(max + (size_t)1, sizeof(*set->turns));
	return set->readers && set->next_ticks && set->turns ? 0 : -ENOMEM;
}

/* The next tick of a ring. One that is given up is emptied, or its thread would wait for ever. */
static uint64_t look_at_ring(struct hl_ring_reader *reader, uint64_t now)
{
	if (!reader->ring)
		return UINT64_MAX;
	uint64_t next = hl_ring_reader_next_tick(reader);
	reader->given_up |= next > now && next != UINT64_MAX;
	if (HL_LIKELY(!reader->given_up)) {
		/* All was read. The program can write the tail: a wrong one would have its thread
		 * wait for ever. */
		if (next == UINT64_MAX &&
		    atomic_load_explicit(&reader->ring->tail, memory_order_relaxed) !=
			    reader->position)
			atomic_store_explicit(&reader->ring->tail, reader->position,
					      memory_order_release);
		return next;
	}
	atomic_store_explicit(&reader->ring->tail, hl_ring_head(reader->ring),
			      memory_order_relaxed);
	return UINT64_MAX;
}

static uint64_t earliest_of(const struct hl_ring_set *set)
{
	uint64_t earliest = UINT64_MAX;

	for (uint32_t i = 0; i < set->count; i++)
		if (set->next_ticks[i] < earliest)
			earliest = set->next_ticks[i];
	return earliest;
}

uint64_t hl_ring_set_look(struct hl_ring_set *set, uint64_t now)
{
	for (uint32_t i = 0; i < set->count; i++)
		set->next_ticks[i] = look_at_ring(&set->readers[i], now);
	return earliest_of(set);
}

bool hl_ring_set_several(const struct hl_ring_set *set, uint64_t tick)
{
	uint32_t rings = 0;

	for (uint32_t i = 0; i < set->count && rings < 2; i++)
		rings += set->next_ticks[i] <= tick;
	return rings > 1;
}

/* Reads the ring on top as long as it stays on top. Whether it has events of the tick left. */
static bool take_turn(struct hl_ring_set *set, size_t count, uint64_t tick,
		      struct hl_ring_sink *sink)
{
	struct hl_ring_turn *top = set->turns;
	struct hl_ring_reader *reader = &set->readers[top->ring];
	uint64_t second = count > 1 ? top[1].stamp : UINT64_MAX;

	if (count > 2 && top[2].stamp < second)
		second = top[2].stamp;
	if (sink->run)
		sink->run(sink, top->ring);
	int r = hl_ring_reader_read(reader, tick, second, sink);
	top->stamp = reader->stamp;
	set->next_ticks[top->ring] = r > 0 ? reader->tick : UINT64_MAX;
	return r > 0 && reader->tick <= tick;
}

uint64_t hl_ring_set_read(struct hl_ring_set *set, uint64_t tick, struct hl_ring_sink *sink)
{
	size_t count = 0;

	for (uint32_t i = 0; i < set->count; i++)
		if (set->next_ticks[i] <= tick)
			set->turns[count++] = (struct hl_ring_turn){set->readers[i].stamp, i};
	for (size_t i = count / 2; i-- > 0;)
		sift_down(set->turns, count, i);
	while (count) {
		if (!take_turn(set, count, tick, sink))
			set->turns[0] = set->turns[--count];
		sift_down(set->turns, count, 0);
	}
	return earliest_of(set);
}

void hl_ring_set_release(struct hl_ring_set *set)
{
	if (set->readers)
		munmap(set->readers, reader_bytes(set->max));
	free(set->next_ticks);
	free(set->turns);
}
