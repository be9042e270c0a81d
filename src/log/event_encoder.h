/* SPDX-License-Identifier: BSD-2-Clause */
/* Turns batches of events into the content of pieces, and follows what they leave in use; see
 * event_format.h. */
#pragma once

#include "log/event_batch.h"
#include "log/state_writer.h"
#include "region/region.h"

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
