/* SPDX-License-Identifier: BSD-2-Clause */
/* Events, sorted by thread and kind; see event_codec.h. */
#include "log/event_codec.h"

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

/* ---- nodes ---- */

static int reserve_last_size(struct hl_event_encoder *encoder, uint32_t node)
{
	return HL_ARRAY_RESERVE_ZEROED(encoder->last_sizes, encoder->last_size_capacity,
				       (size_t)node + 1);
}

static bool is_known(const struct hl_event_encoder *encoder, uint32_t node)
{
	return node < encoder->state.node_count && node < encoder->last_size_capacity &&
	       encoder->state.nodes[node].defined_in == encoder->state.round;
}

/* Makes the node one that events of this part may have. */
static int introduce(struct hl_event_encoder *encoder, uint32_t node)
{
	int r = reserve_last_size(encoder, node);

	return r < 0 ? r : hl_state_writer_define(&encoder->state, node);
}

/* ---- events ---- */

static void put_extended(struct hl_event_column *column, const struct hl_event_extended *extended)
{
	hl_byte_buffer_number(&column->sizes, 0);
	hl_byte_buffer_number(&column->sizes, extended->bytes);
	hl_byte_buffer_number(&column->sizes, extended->objects);
}

/* Whether the event's size stands among the sizes. */
static bool put_size(struct hl_event_encoder *encoder, struct hl_event_column *column,
		     uint32_t node, uint64_t size)
{
	if (HL_LIKELY(encoder->last_sizes[node] == size + 1))
		return false;
	encoder->last_sizes[node] = size + 1;
	hl_byte_buffer_number(&column->sizes, size + 1);
	return true;
}

static void follow(struct hl_state_node *node, bool is_free, uint64_t bytes, uint64_t objects)
{
	node->bytes += (int64_t)(is_free ? 0 - bytes : bytes);
	node->objects += (int64_t)(is_free ? 0 - objects : objects);
}

/* Whether the event's size stands among the sizes. */
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
		put_extended(column, extended);
		return true;
	}
	follow(&encoder->state.nodes[node], is_free, size, 1);
	return put_size(encoder, column, node, size);
}

/* ---- sorted ---- */

static void begin(struct hl_event_encoder *encoder)
{
	memset(encoder->is_free, 0, sizeof(encoder->is_free));
	memset(encoder->has_size, 0, sizeof(encoder->has_size));
	encoder->allocs.count = encoder->frees.count = 0;
	hl_byte_buffer_clear(&encoder->allocs.sizes);
	hl_byte_buffer_clear(&encoder->frees.sizes);
}

/* Those of one thread in their order. */
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

/* ${place} is that of the run's first event among all, by thread. */
static int put_run(struct hl_event_encoder *encoder, const struct hl_event_batch *batch,
		   uint32_t run, uint32_t place)
{
	uint32_t end = hl_event_batch_run_end(batch, run);

	for (uint32_t i = batch->runs[run].first; i < end; i++, place++) {
		uint64_t event = batch->events[i];
		uint32_t node = event & HL_EVENT_NODE_MAX;
		if (HL_UNLIKELY(!is_known(encoder, node)) && introduce(encoder, node) < 0)
			return -ENOMEM;
		bool has_size = put_event(encoder, batch, event);
		encoder->has_size[place / 8] |= (uint8_t)(has_size << place % 8);
		encoder->is_free[place / 8] |= (uint8_t)((event >> 63) << place % 8);
	}
	return 0;
}

static int sort_events(struct hl_event_encoder *encoder, const struct hl_event_batch *batch)
{
	uint32_t place = 0;

	begin(encoder);
	sort_runs(encoder, batch);
	for (uint32_t i = 0; i < batch->run_count; i++) {
		uint32_t run = encoder->sorted[i];
		if (put_run(encoder, batch, run, place) < 0)
			return -ENOMEM;
		place += hl_event_batch_run_end(batch, run) - batch->runs[run].first;
	}
	return 0;
}

/* ---- the content of a piece ---- */

static void put_runs(const struct hl_event_batch *batch, struct hl_byte_buffer *buffer)
{
	const struct hl_event_batch_run *runs = batch->runs;

	hl_byte_buffer_number(buffer, batch->run_count);
	for (uint32_t i = 0; i < batch->run_count; i++)
		hl_byte_buffer_number(buffer, (uint64_t)runs[i].thread << 1 | runs[i].unordered);
	for (uint32_t i = 0; i < batch->run_count; i++)
		hl_byte_buffer_number(buffer, runs[i].tick - (i ? runs[i - 1].tick : 0));
	for (uint32_t i = 0; i < batch->run_count; i++)
		hl_byte_buffer_number(buffer, hl_event_batch_run_end(batch, i) - runs[i].first);
}

static void put_nodes(const struct hl_event_column *column, struct hl_byte_buffer *buffer)
{
	hl_byte_buffer_put(buffer, column->low, column->count * sizeof(*column->low));
}

static void put_sizes(const struct hl_event_column *column, struct hl_byte_buffer *buffer)
{
	hl_byte_buffer_number(buffer, column->sizes.size);
	hl_byte_buffer_put(buffer, column->sizes.bytes, column->sizes.size);
	buffer->failed |= column->sizes.failed;
}

int hl_event_encoder_encode(struct hl_event_encoder *encoder, const struct hl_event_batch *batch,
			    struct hl_byte_buffer *buffer)
{
	size_t bits = (batch->count + 7) / 8;

	if (sort_events(encoder, batch) < 0)
		return -ENOMEM;
	hl_state_writer_put_names(&encoder->state, buffer);
	put_runs(batch, buffer);
	hl_byte_buffer_put(buffer, encoder->is_free, bits);
	hl_byte_buffer_put(buffer, encoder->has_size, bits);
	put_nodes(&encoder->allocs, buffer);
	put_nodes(&encoder->frees, buffer);
	hl_byte_buffer_put(buffer, encoder->allocs.high, encoder->allocs.count);
	hl_byte_buffer_put(buffer, encoder->frees.high, encoder->frees.count);
	put_sizes(&encoder->allocs, buffer);
	put_sizes(&encoder->frees, buffer);
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
