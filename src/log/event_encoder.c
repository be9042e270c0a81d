/* SPDX-License-Identifier: BSD-2-Clause */
/* Encodes events as columns, sorted by thread and kind; see events.h. */
#include "log/events.h"

#include "base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_MASK ((UINT64_C(1) << HL_RING_SIZE_BITS) - 1)

int hl_event_encoder_checkpoint(struct hl_event_encoder *encoder, struct hl_byte_buffer *buffer,
				uint64_t next, uint64_t missing)
{
	if (encoder->last_size_capacity)
		memset(encoder->last_sizes, 0,
		       encoder->last_size_capacity * sizeof(*encoder->last_sizes));
	return hl_state_writer_put_checkpoint(&encoder->state, buffer, next, missing);
}

/* ---- events ---- */

static void follow(struct hl_state_node *node, bool is_free, uint64_t bytes, uint64_t objects)
{
	node->bytes += (int64_t)(is_free ? 0 - bytes : bytes);
	node->objects += (int64_t)(is_free ? 0 - objects : objects);
}

/* Whether the event's size goes among the sizes. */
static bool put_event(struct hl_event_encoder *encoder, const struct hl_event_batch *batch,
		      uint64_t event)
{
	bool is_free = event & HL_EVENT_FREE;
	struct hl_event_column *column = is_free ? &encoder->frees : &encoder->allocs;
	uint32_t node = event & HL_EVENT_NODE_MAX;
	uint64_t size = event >> 24 & SIZE_MASK;

	column->low[column->count] = (uint16_t)node;
	column->high[column->count++] = (uint8_t)(node >> 16);
	if (HL_UNLIKELY(event & HL_EVENT_EXTENDED)) {
		const struct hl_event_extended *extended = &batch->extended[size];
		follow(&encoder->state.nodes[node], is_free, extended->bytes, extended->objects);
		hl_byte_buffer_number(&column->sizes, 0);
		hl_byte_buffer_number(&column->sizes, extended->bytes);
		hl_byte_buffer_number(&column->sizes, extended->objects);
		return true;
	}
	follow(&encoder->state.nodes[node], is_free, size, 1);
	if (HL_LIKELY(encoder->last_sizes[node] == size + 1))
		return false;
	encoder->last_sizes[node] = size + 1;
	hl_byte_buffer_number(&column->sizes, size + 1);
	return true;
}

/* ---- runs ---- */

/* By thread; the runs of one thread stay in their order. */
static void sort_runs(struct hl_event_encoder *encoder, const struct hl_event_batch *batch)
{
	uint32_t before = 0;

	memset(encoder->places, 0, sizeof(encoder->places));
	for (uint32_t i = 0; i < batch->run_count; i++)
		encoder->places[batch->runs[i].thread]++;
	for (uint32_t i = 0; i < HL_THREADS_MAX; i++) {
		uint32_t runs = encoder->places[i];
		encoder->places[i] = before;
		before += runs;
	}
	for (uint32_t i = 0; i < batch->run_count; i++)
		encoder->sorted[encoder->places[batch->runs[i].thread]++] = i;
}

/* Makes room for the state of ${node}, and defines it if this round has not yet. 0 or -ENOMEM. */
static int know(struct hl_event_encoder *encoder, uint32_t node)
{
	const struct hl_state_writer *state = &encoder->state;

	if (HL_LIKELY(node < state->node_count && node < encoder->last_size_capacity &&
		      state->nodes[node].defined_in == state->round))
		return 0;
	if (HL_ARRAY_RESERVE_ZEROED(encoder->last_sizes, encoder->last_size_capacity,
				    (size_t)node + 1) < 0)
		return -ENOMEM;
	return hl_state_writer_define(&encoder->state, node);
}

/* Fills the columns. */
static int put_events(struct hl_event_encoder *encoder, const struct hl_event_batch *batch)
{
	uint32_t place = 0; /* among all events, sorted by thread */

	memset(encoder->is_free, 0, sizeof(encoder->is_free));
	memset(encoder->has_size, 0, sizeof(encoder->has_size));
	encoder->allocs.count = encoder->frees.count = 0;
	hl_byte_buffer_clear(&encoder->allocs.sizes);
	hl_byte_buffer_clear(&encoder->frees.sizes);
	sort_runs(encoder, batch);
	for (uint32_t i = 0; i < batch->run_count; i++) {
		uint32_t run = encoder->sorted[i], end = hl_event_batch_run_end(batch, run);
		for (uint32_t at = batch->runs[run].first; at < end; at++, place++) {
			uint64_t event = batch->events[at];
			if (HL_UNLIKELY(know(encoder, event & HL_EVENT_NODE_MAX) < 0))
				return -ENOMEM;
			bool has_size = put_event(encoder, batch, event);
			encoder->has_size[place / 8] |= (uint8_t)(has_size << place % 8);
			encoder->is_free[place / 8] |= (uint8_t)((event >> 63) << place % 8);
		}
	}
	return 0;
}

/* ---- the content of a piece ---- */

static void put_sizes(const struct hl_event_column *column, struct hl_byte_buffer *buffer)
{
	hl_byte_buffer_number(buffer, column->sizes.size);
	hl_byte_buffer_put(buffer, column->sizes.bytes, column->sizes.size);
	buffer->failed |= column->sizes.failed;
}

int hl_event_encoder_encode(struct hl_event_encoder *encoder, const struct hl_event_batch *batch,
			    struct hl_byte_buffer *buffer)
{
	const struct hl_event_column *allocs = &encoder->allocs, *frees = &encoder->frees;
	const struct hl_event_batch_run *runs = batch->runs;
	size_t bits = (batch->count + 7) / 8;

	if (put_events(encoder, batch) < 0)
		return -ENOMEM;
	hl_state_writer_put_names(&encoder->state, buffer);
	hl_byte_buffer_number(buffer, batch->run_count);
	for (uint32_t i = 0; i < batch->run_count; i++)
		hl_byte_buffer_number(buffer, (uint64_t)runs[i].thread << 1 | runs[i].unordered);
	for (uint32_t i = 0; i < batch->run_count; i++)
		hl_byte_buffer_number(buffer, runs[i].tick - (i ? runs[i - 1].tick : 0));
	for (uint32_t i = 0; i < batch->run_count; i++)
		hl_byte_buffer_number(buffer, hl_event_batch_run_end(batch, i) - runs[i].first);
	hl_byte_buffer_put(buffer, encoder->is_free, bits);
	hl_byte_buffer_put(buffer, encoder->has_size, bits);
	hl_byte_buffer_put(buffer, allocs->low, allocs->count * sizeof(*allocs->low));
	hl_byte_buffer_put(buffer, frees->low, frees->count * sizeof(*frees->low));
	hl_byte_buffer_put(buffer, allocs->high, allocs->count);
	hl_byte_buffer_put(buffer, frees->high, frees->count);
	put_sizes(allocs, buffer);
	put_sizes(frees, buffer);
	return 0;
}

void hl_event_encoder_release(struct hl_event_encoder *encoder)
{
	hl_state_writer_release(&encoder->state);
	hl_byte_buffer_release(&encoder->allocs.sizes);
	hl_byte_buffer_release(&encoder->frees.sizes);
	free(encoder->last_sizes);
	encoder->last_sizes = NULL;
	encoder->last_size_capacity = 0;
}
