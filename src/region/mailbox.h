/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The mailbox in the region's header: a program's messages to the collector, through heapline.h.
 * Any thread posts, in signal handlers too; the collector believes nothing of it.
 *
 *   mark     a name and when it was set; mark number p lies in slot p % HL_MAILBOX_MARKS
 *   lap      times that all slots have been used: p / HL_MAILBOX_MARKS
 *   turn     of a slot: 2 * lap while it is free for that lap, + 1 once its mark is complete
 *   report   a request for a copy of the recording as it stands; one at a time
 *   bell     changes with everything that is posted; a futex that the collector sleeps on
 */
#pragma once

#include "base/names.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HL_MAILBOX_MARKS	64u /* more before the collector comes are refused */
#define HL_REPORT_PATH_BYTES	4096u
#define HL_LOG_SEGMENTS_MAX	1000000u
#define HL_MAILBOX_POLL_MS	100u
#define HL_MAILBOX_TURN(number) ((number) / HL_MAILBOX_MARKS * 2)

struct hl_mark_slot {
	_Atomic uint64_t turn;
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	char text[HL_MARK_MAX + 1];
};

static_assert(sizeof(struct hl_mark_slot) == 256, "format");

enum hl_report_state {
	HL_REPORT_NONE,
	HL_REPORT_WRITING, /* the program fills the path in */
	HL_REPORT_ASKED,   /* the collector's turn */
};

struct hl_mailbox {
	/* The program's. */
	_Alignas(64) _Atomic uint64_t mark_count; /* numbers given out */
	_Atomic uint64_t reports_asked;
	_Atomic uint32_t refused_marks; /* for want of a free slot */
	_Atomic uint32_t report_state;	/* enum hl_report_state */
	_Atomic uint32_t bell;
	/* The collector's. */
	_Alignas(64) _Atomic uint64_t reports_done;
	_Atomic int32_t report_error; /* of the last one done: 0 or a negative errno */
	_Atomic uint32_t closed;      /* nobody looks any more */
	/* Segments of the log that are kept; 0: there is no log. The last writer wins. */
	_Atomic uint32_t log_segments;
	char report_path[HL_REPORT_PATH_BYTES];
	struct hl_mark_slot marks[HL_MAILBOX_MARKS];
};

/*
 * What follows is lock-free, async-signal-safe and keeps errno. -ENOTCONN: the collector has left.
 */

/* Posts a mark, set at ${time_ns} of CLOCK_MONOTONIC. 0, what hl_mark_length() says of ${text}, or
 * -EAGAIN when there is no room. */
int hl_mailbox_mark(struct hl_mailbox *mailbox, uint64_t time_ns, const char *text);

/* Asks for a report. 0, -EINVAL for an empty path, -ENAMETOOLONG, -EBUSY: another one is due. */
int hl_mailbox_report(struct hl_mailbox *mailbox, const char *path);

/* How many segments are kept; -EOPNOTSUPP where there is no log. */
int hl_mailbox_segments(const struct hl_mailbox *mailbox);

/* Wants ${count}, 1 to HL_LOG_SEGMENTS_MAX (else -EINVAL); -EOPNOTSUPP where there is no log. */
int hl_mailbox_set_segments(struct hl_mailbox *mailbox, uint32_t count);
