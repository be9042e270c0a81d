/* SPDX-License-Identifier: BSD-2-Clause */
/* Takes pieces of events apart; see event_format.h. Trusts nothing. */
#pragma once

#include "log/byte_buffer.h"
#include "log/event_format.h"
#include "region/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
