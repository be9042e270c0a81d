/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The format of files of events, as docs/format.md tells it: the header and the pieces of
 * segment.h. A file begins with a checkpoint (as a segment's, with missing events in place of
 * missing intervals); others follow, each before the first event of an interval. What lies from
 * one checkpoint to the next is a part, and read alone. Events follow in pieces of up to
 * HL_EVENTS_MAX, by kind and by thread, so that like stands beside like:
 *
 *	names	      new modules and nodes, as in an interval of the log
 *	runs	      their number; then of each its thread slot, twice, plus 1 where its order
 *		      among other threads' is not known; of each the ticks since the run before
 *		      (the first: since tick 0); of each its number of events
 *
 * and then of all events, first those of the lowest thread slot in their order, and so on:
 *
 *	is free	      one bit for each event, from the lowest of each byte on
 *	has size      one bit for each: its size stands among the sizes, else it is the one before
 *		      at its node, in this part
 *	nodes	      of allocations, then of frees: the lower 16 bits of each, then bits 16 to 23
 *	sizes	      of allocations, then of frees, each after its length in bytes: size + 1; or
 *0, bytes and objects, where that is no single block, nor the node's next size
 */
#pragma once

#include "base/compiler.h"
#include "log/byte_buffer.h"
#include "log/segment_format.h"
#include "log/state_writer.h"
#include "region/region.h"
#include "region/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hl_event_piece_kind {
	HL_PIECE_EVENTS = HL_SEGMENT_FOURCC('E', 'V', 'N', 'T'),
	HL_PIECE_END =
		HL_SEGMENT_FOURCC('E', 'N', 'D', 'E'), /* missing events so far, as a number */
};

#define HL_EVENTS_MAX	  65536u /* in a piece */
#define HL_EVENT_NODE_MAX ((UINT32_C(1) << 24) - 1)

/* ---- batches: events on their way from the rings to a file, as they were merged ---- */

#define HL_EVENT_RUNS_MAX     (HL_EVENTS_MAX / 2)
#define HL_EVENT_EXTENDED_MAX 1024u

/* An event as a word: its node, its size from bit 24 on; see also HL_EVENT_EXTENDED. */
#define HL_EVENT_FREE	  (UINT64_C(1) << 63)
#define HL_EVENT_EXTENDED (UINT64_C(1) << 62) /* in place of the size: an index of extended */

/* Events of one thread and tick; up to where the next run begins. */
struct hl_event_batch_run {
	uint64_t tick;
	uint32_t first;	 /* event */
	uint16_t thread; /* slot */
	bool unordered;	 /* see hl_intervals_run() */
};

struct hl_event_extended {
	uint64_t bytes, objects;
};

#define HL_EVENT_NO_INTERVAL UINT64_MAX

struct hl_event_batch {
	uint64_t interval; /* the one that begins with it, or HL_EVENT_NO_INTERVAL */
	uint32_t count, run_count, extended_count;
	uint64_t events[HL_EVENTS_MAX];
	struct hl_event_batch_run runs[HL_EVENT_RUNS_MAX];
	struct hl_event_extended extended[HL_EVENT_EXTENDED_MAX];
};

static inline bool hl_event_batch_is_full(const struct hl_event_batch *batch)
{
	return batch->count == HL_EVENTS_MAX || batch->extended_count == HL_EVENT_EXTENDED_MAX;
}

static inline uint32_t hl_event_batch_run_end(const struct hl_event_batch *batch, uint32_t run)
{
	return run + 1 < batch->run_count ? batch->runs[run + 1].first : batch->count;
}

/* Adds an event to the last run; the batch must not be full. Negative figures are a free's. */
static inline void hl_event_batch_add(struct hl_event_batch *batch, uint32_t node, int64_t bytes,
				      int64_t objects)
{
	bool is_free = bytes < 0 || objects < 0;
	uint64_t size = is_free ? 0 - (uint64_t)bytes : (uint64_t)bytes;
	uint64_t count = is_free ? 0 - (uint64_t)objects : (uint64_t)objects;
	uint64_t word = node | (is_free ? HL_EVENT_FREE : 0);

	if (HL_UNLIKELY(count != 1 || size >> HL_RING_SIZE_BITS)) {
		batch->extended[batch->extended_count] = (struct hl_event_extended){size, count};
		word |= HL_EVENT_EXTENDED;
		size = batch->extended_count++;
	}
	batch->events[batch->count++] = word | size << 24;
}

/* ---- encoding: turns batches into the content of pieces, follows what they leave in use ---- */

/* What one kind of event fills. */
struct hl_event_column {
	uint32_t count;
	uint16_t low[HL_EVENTS_MAX];
	uint8_t high[HL_EVENTS_MAX];
	struct hl_byte_buffer sizes;
};

/* Set state.names and zero the rest; release in any case. Large: not for the stack. */
struct hl_event_encoder {
	struct hl_state_writer state;
	uint64_t *last_sizes; /* of each node, + 1; 0: none since the checkpoint */
	size_t last_size_capacity;
	uint32_t places[HL_THREADS_MAX];    /* of each thread's next run in sorted */
	uint32_t sorted[HL_EVENT_RUNS_MAX]; /* runs of the batch, by thread */
	uint8_t is_free[HL_EVENTS_MAX / 8], has_size[HL_EVENTS_MAX / 8];
	struct hl_event_column allocs, frees;
};

/* Writes the state before interval ${next} to ${buffer}. 0 or -ENOMEM. */
int hl_event_encoder_checkpoint(struct hl_event_encoder *encoder, struct hl_byte_buffer *buffer,
				uint64_t next, uint64_t missing);

/* Writes ${batch} to ${buffer}, whose failure is to be looked at. 0; or -ENOMEM, and then the state
 * is wrong for good. */
int hl_event_encoder_encode(struct hl_event_encoder *encoder, const struct hl_event_batch *batch,
			    struct hl_byte_buffer *buffer);

void hl_event_encoder_release(struct hl_event_encoder *encoder);

/* ---- decoding: takes pieces apart, trusts nothing ---- */

struct hl_event {
	int64_t bytes, objects; /* negative, or 0, for a free */
	uint32_t node;		/* 1 .. HL_EVENT_NODE_MAX */
	bool is_free;
};

/* Some events of one thread and tick, one after another. */
struct hl_event_run {
	uint64_t tick;
	uint32_t thread; /* slot, below HL_THREADS_MAX */
	bool unordered;	 /* see hl_intervals_run() */
	const struct hl_event *events;
	size_t count; /* at least 1 */
};

/* Zero-initialize; release in any case. Large: not for the stack. */
struct hl_event_decoder {
	uint64_t *last_sizes; /* of each node */
	size_t last_size_capacity;
	uint32_t places[HL_THREADS_MAX];       /* of each thread's next event in events */
	struct hl_event events[HL_EVENTS_MAX]; /* of a piece, by thread */
};

/* A checkpoint has been read: a part begins. */
void hl_event_decoder_begin(struct hl_event_decoder *decoder);

/* Gets the runs of a piece, one after another. Non-zero ends the reading. */
typedef int hl_event_visit(void *context, const struct hl_event_run *run);

/* Reads what follows the names in a piece. 0, -ENOMEM, -EBADMSG, or what ${visit} returned. */
int hl_event_decoder_read(struct hl_event_decoder *decoder, struct hl_byte_reader *content,
			  hl_event_visit *visit, void *context);

void hl_event_decoder_release(struct hl_event_decoder *decoder);
