/* SPDX-License-Identifier: BSD-2-Clause */
/* What `heapline push` keeps between rounds, and how looks reach the sink: at once, in a batch, or by the spool. */
#pragma once

#include "push/push.h"
#include "push/sink.h"
#include "push/spool.h"

struct hl_push {
	const struct hl_push_settings *settings;
	struct hl_push_sink *sink;
	struct hl_push_spool *spool;
	struct hl_push_session **sessions;
	size_t count, capacity;
	struct hl_push_stacks told;
	struct hl_push_look
		*looks; /* of this round, to be sent together; their labels are the sessions' */
	size_t look_count, look_capacity, look_rows;
	uint32_t *done; /* of the one recording: sequence numbers of processes that have ended */
	size_t done_count, done_capacity;
	int64_t last_ms;	  /* of the round before; 0: none */
	int64_t away_ms;	  /* since when the sink does not answer; 0: it does */
	int64_t pause_ms, try_ms; /* the next attempt is at try_ms */
	size_t backlog;		  /* windows that waited in the spool when the round began */
	bool is_last;  /* the round at hand: what is not sent in it is only in the spool */
	bool is_tried; /* while away: the next window, or question, will tell */
	struct hl_push_figures_sent sent;
	bool was_refused; /* and that was said */
	bool is_shared;	  /* somebody else sends the same processes, and that was said */
};

/* Says a sentence to whoever called push. */
void hl_push_say(struct hl_push *push, const char *format, ...) HL_PRINTF(2, 3);

/* CLOCK_REALTIME. */
int64_t hl_push_now_ms(void);

/* Whether the sink did not answer when it was tried last, and is not to be tried now. */
bool hl_push_is_away(const struct hl_push *push);

/* Says that the sink does not answer, because of ${why}, and what follows, a clause; once for each outage. */
void hl_push_note_away(struct hl_push *push, const struct hl_error *why, const char *consequence);

/* Counts a window that the sink refused for good, says so once, and has sessions ask what it has. */
void hl_push_note_refused(struct hl_push *push, const struct hl_error *why);

/* Sends what waits, until the sink does not answer. */
void hl_push_empty_spool(struct hl_push *push);

/* Sends ${look}, now or with the batch, or keeps it in the spool. Takes it over, or leaves it. 0 or -ENOMEM. */
int hl_push_deliver(struct hl_push *push, struct hl_push_look *look);

/* Sends the looks that were taken together. Where that fails, each goes its own way: one may be refused, and the others not. 0 or -ENOMEM. */
int hl_push_send_batch(struct hl_push *push);
