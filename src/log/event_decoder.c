/* SPDX-License-Identifier: BSD-2-Clause */
/* Decodes columns into events; see events.h. */
#include "log/events.h"

#include "base/array.h"
#include "base/compiler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What is left to read of the allocations, or of the frees. */
struct column {
	const uint8_t *low, *high;
	struct hl_byte_reader sizes;
};

struct columns {
	uint32_t count;				      /* events in all */
	struct hl_byte_reader threads, ticks, counts; /* of runs; checked */
	uint64_t run_count;
	const uint8_t *is_free, *has_size;
	struct column of[2]; /* [1]: frees */
};

/* ---- finding the columns ---- */

/* Skips a column of ${count} numbers below ${limit}. */
static int pass_numbers(struct hl_byte_reader *content, uint64_t count, uint64_t limit)
{
	for (uint64_t i = 0; i < count; i++)
		if (hl_byte_reader_number(content) >= limit || content->failed)
			return -EBADMSG;
	return 0;
}

/* How many of the first ${count} bits are set. */
static uint32_t count_bits(const uint8_t *bits, uint32_t count)
{
	uint32_t set = 0;

	for (uint32_t i = 0; i < count / 8; i++)
		set += (uint32_t)__builtin_popcount(bits[i]);
	if (count % 8)
		set += (uint32_t)__builtin_popcount(bits[count / 8] & ((1u << count % 8) - 1));
	return set;
}

static void find_sizes(struct hl_byte_reader *content, struct column *column)
{
	uint64_t bytes = hl_byte_reader_number(content);
	const uint8_t *sizes = hl_byte_reader_bytes(content, bytes);

	if (sizes)
		column->sizes = (struct hl_byte_reader){.at = sizes, .end = sizes + bytes};
}

static int find_columns(struct hl_byte_reader *content, struct columns *columns)
{
	columns->run_count = hl_byte_reader_number(content);
	columns->threads = *content;
	if (pass_numbers(content, columns->run_count, 2 * HL_THREADS_MAX) < 0)
		return -EBADMSG;
	columns->ticks = *content;
	if (pass_numbers(content, columns->run_count, UINT64_MAX) < 0)
		return -EBADMSG;
	columns->counts = *content;
	for (uint64_t i = 0; i < columns->run_count; i++) {
		uint64_t events = hl_byte_reader_number(content);
		if (content->failed || events > HL_EVENTS_MAX - columns->count)
			return -EBADMSG;
		columns->count += (uint32_t)events;
	}
	if (content->failed)
		return -EBADMSG;
	uint32_t bits = (columns->count + 7) / 8;
	columns->is_free = hl_byte_reader_bytes(content, bits);
	columns->has_size = hl_byte_reader_bytes(content, bits);
	if (content->failed)
		return -EBADMSG;
	uint32_t frees = count_bits(columns->is_free, columns->count);
	uint32_t allocs = columns->count - frees;
	columns->of[0].low = hl_byte_reader_bytes(content, 2 * (uint64_t)allocs);
	columns->of[1].low = hl_byte_reader_bytes(content, 2 * (uint64_t)frees);
	columns->of[0].high = hl_byte_reader_bytes(content, allocs);
	columns->of[1].high = hl_byte_reader_bytes(content, frees);
	find_sizes(content, &columns->of[0]);
	find_sizes(content, &columns->of[1]);
	return content->failed ? -EBADMSG : 0;
}

/* ---- events ---- */

/* Takes the size from among the sizes; the node's next event has it, too. */
static int take_size(struct column *column, uint64_t *last_size, struct hl_event *event)
{
	uint64_t size = hl_byte_reader_number(&column->sizes);

	if (size) {
		*last_size = size - 1;
		event->bytes = (int64_t)(size - 1);
	} else {
		event->bytes = (int64_t)hl_byte_reader_number(&column->sizes);
		event->objects = (int64_t)hl_byte_reader_number(&column->sizes);
	}
	return column->sizes.failed || event->bytes < 0 || event->objects < 0 ? -EBADMSG : 0;
}

static bool bit_at(const uint8_t *bits, uint32_t index)
{
	return bits[index / 8] >> index % 8 & 1;
}

static inline int take_event(struct hl_event_decoder *decoder, struct columns *columns,
			     uint32_t index, struct hl_event *event)
{
	bool is_free = bit_at(columns->is_free, index);
	struct column *column = &columns->of[is_free];
	uint16_t low;

	memcpy(&low, column->low, sizeof(low));
	column->low += sizeof(low);
	uint32_t node = (uint32_t)*column->high++ << 16 | low;
	if (HL_UNLIKELY(node >= decoder->last_size_capacity) &&
	    HL_ARRAY_RESERVE_ZEROED(decoder->last_sizes, decoder->last_size_capacity,
				    (size_t)node + 1) < 0)
		return -ENOMEM;
	uint64_t *last_size = &decoder->last_sizes[node];
	*event = (struct hl_event){(int64_t)*last_size, 1, node, is_free};
	if (bit_at(columns->has_size, index) && take_size(column, last_size, event) < 0)
		return -EBADMSG;
	if (is_free) {
		event->bytes = -event->bytes;
		event->objects = -event->objects;
	}
	return HL_LIKELY(node) ? 0 : -EBADMSG;
}

/* ---- runs ---- */

/* The next run of all; its events are counted to its thread. */
static void take_run(struct hl_event_decoder *decoder, struct columns *columns,
		     struct hl_event_run *run)
{
	uint64_t thread = hl_byte_reader_number(&columns->threads);

	run->thread = (uint32_t)(thread >> 1);
	run->unordered = thread & 1;
	run->tick += hl_byte_reader_number(&columns->ticks);
	run->count = hl_byte_reader_number(&columns->counts);
	run->events = decoder->events + decoder->places[run->thread];
	decoder->places[run->thread] += (uint32_t)run->count;
}

/* Finds where the events of each thread begin. ${columns} by value: the runs are taken again. */
static void find_places(struct hl_event_decoder *decoder, struct columns columns)
{
	struct hl_event_run run = {0};
	uint32_t before = 0;

	memset(decoder->places, 0, sizeof(decoder->places));
	for (uint64_t i = 0; i < columns.run_count; i++)
		take_run(decoder, &columns, &run);
	for (uint32_t i = 0; i < HL_THREADS_MAX; i++) {
		uint32_t events = decoder->places[i];
		decoder->places[i] = before;
		before += events;
	}
}

int hl_event_decoder_read(struct hl_event_decoder *decoder, struct hl_byte_reader *content,
			  hl_event_visit *visit, void *context)
{
	struct columns columns = {0};
	struct hl_event_run run = {0};
	int r = find_columns(content, &columns);

	for (uint32_t i = 0; r == 0 && i < columns.count; i++)
		r = take_event(decoder, &columns, i, &decoder->events[i]);
	if (r < 0)
		return r;
	find_places(decoder, columns);
	for (uint64_t i = 0; r == 0 && i < columns.run_count; i++) {
		take_run(decoder, &columns, &run);
		if (run.count)
			r = visit(context, &run);
	}
	return r;
}

void hl_event_decoder_begin(struct hl_event_decoder *decoder)
{
	if (decoder->last_size_capacity)
		memset(decoder->last_sizes, 0,
		       decoder->last_size_capacity * sizeof(*decoder->last_sizes));
}

void hl_event_decoder_release(struct hl_event_decoder *decoder)
{
	free(decoder->last_sizes);
	decoder->last_sizes = NULL;
	decoder->last_size_capacity = 0;
}
