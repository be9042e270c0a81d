/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What recorder and collector say to each other: hello and welcome over a socket, and the mailbox in the
 * region's header.
 */
#pragma once

#include "base/names.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- protocol ---- */

/*
 * How a recorder gets its region: it connects to the collector's SEQPACKET socket (abstract
 * namespace, name in HEAPLINE_SOCKET, without the leading NUL), sends one hello, and receives one
 * welcome that carries the memfd as SCM_RIGHTS. The collector takes pid and uid from SO_PEERCRED
 * and refuses users other than its own and root, unless the caller descends from a recorded
 * process; the recorder refuses a collector of any other user. A forked child asks again, at its
 * first event; an exec'ed program likewise, from its environment.
 *
 * While the collector is stopped or hangs, only the first hello waits for it. Its recorder then
 * listens at the name HL_SILENCE_PREFIX + the first digits of the token and sends that socket along
 * the connection (SCM_RIGHTS): the name stays bound while that connection waits to be read, whoever
 * ends meanwhile. Recorders that can connect to it, and whose own user or root listens there, go on
 * unrecorded at once. The collector drops the socket with the connection when it comes to it.
 */

#define HL_ENV_SOCKET "HEAPLINE_SOCKET" /* name of the collector's socket */
#define HL_ENV_TOKEN  "HEAPLINE_TOKEN"	/* 32 hexadecimal digits that the hello must repeat */

/* Without a collector: has the recorder start one. Options of `heapline record`, parted by spaces. */
#define HL_ENV_RECORD  "HEAPLINE_RECORD"
#define HL_ENV_PROGRAM "HEAPLINE_PROGRAM" /* where heapline is, if not beside the recorder */

/* Where another recorder listens, the collector did not answer it. All users can read the name then
 * (/proc/net/unix) and can bind it: only SO_PEERCRED tells who listens. The digits of the token that
 * are not in the name stay secret. */
#define HL_SILENCE_PREFIX "heapline-silent-"
#define HL_SILENCE_DIGITS 16

#define HL_HELLO_MAGIC	 UINT64_C(0x31304f4c4c45484c) /* "LHELLO01" */
#define HL_WELCOME_MAGIC UINT64_C(0x3130454d4f434c57)
#define HL_HELLO_WAIT_MS \
	2000 /* a collector that does not answer in this time counts as dead: the target runs \
		unrecorded; one that is stopped is not waited for as long */

enum hl_hello_kind {
	HL_HELLO_START, /* a program started with the recorder preloaded, by record or by exec */
	HL_HELLO_FORK,	/* a forked child */
};

struct hl_hello {
	uint64_t magic;
	uint32_t region_version;
	uint32_t kind;
	uint32_t pid; /* as the target sees it; the collector believes SO_PEERCRED */
	uint32_t parent_pid;
	uint64_t address_space_limit; /* RLIMIT_AS, UINT64_MAX when there is none: the region is
					 laid out within an eighth */
	char token[32];
};

/* What a collector that the recorder started sends over the socket pair (SEQPACKET) that it was
 * started with: the two variables above. */
struct hl_invitation {
	char socket[96]; /* NUL-terminated */
	char token[33];
};

#define HL_WELCOME_PAGE_BYTES UINT64_C(4096)

/* Instead of an errno: another recorder, which sees more, was brought in, and this one passes all calls on; or another answer follows in
 * HL_ENTER_WAIT_MS, after which, or once the collector has ended or stopped, the program runs on unrecorded. */
#define HL_WELCOME_ENTERED (-1)
#define HL_WELCOME_WAIT	   (-2)
#define HL_ENTER_WAIT_MS   60000

struct hl_welcome {
	uint64_t magic;
	int32_t error;	      /* 0, or the errno for which there is no region */
	uint32_t first_pages; /* what to map of the region at first; 0: all */
	uint64_t region_bytes;
};

/* ---- mailbox ---- */

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
