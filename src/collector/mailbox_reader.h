/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The collector's side of a program's mailbox. Never waits, and is bounded whatever the program's
 * own bugs write there.
 */
#pragma once

#include "base/error.h"
#include "region/mailbox.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- bells ---- */

/*
 * A bell wakes the collector when a program has put something into its mailbox, so that nobody need look there
 * ten times a second. A thread sleeps on the bells of all mailboxes at once (futex_waitv of Linux 5.16).
 */

/* The kernel's limit, less the one that wakes the thread itself. */
#define HL_BELLS_MAX 127u

struct hl_bell;

/* 0 or a negative errno; -ENOSYS where the kernel is too old. Nothing is listened to yet. */
int hl_bell_new(struct hl_bell **ret_bell);

void hl_bell_free(struct hl_bell *bell); /* NULL is fine; waits for the thread's end */

/* Readable (poll) once a mailbox has been rung, and at most each HL_MAILBOX_POLL_MS. */
int hl_bell_fd(const struct hl_bell *bell);

/* To be called before the mailboxes are read: what is posted from here on rings again. */
void hl_bell_answer(struct hl_bell *bell);

/*
 * Listens to ${count} mailboxes, at most HL_BELLS_MAX, instead of those before. What one of them holds
 * already rings. A mailbox may be unmapped once it is not listened to any more.
 */
void hl_bell_listen(struct hl_bell *bell, struct hl_mailbox *const *mailboxes, size_t count);

/* ---- mailboxes ---- */

struct hl_mailbox_reader {
	struct hl_mailbox *mailbox;
	uint64_t next;	       /* number of the next mark */
	uint32_t log_segments; /* as last seen or set */
	bool report_taken;     /* between taking a report and ending it */
};

/* ${log_segments}: how many are kept, 0 when there is no log. */
void hl_mailbox_reader_init(struct hl_mailbox_reader *reader, struct hl_mailbox *mailbox,
			    uint32_t log_segments);

/*
 * Takes the next complete mark. ${last}: the program has ended, so that marks which are not
 * complete are passed over; else they are waited for, as marks have an order.
 */
bool hl_mailbox_reader_take_mark(struct hl_mailbox_reader *reader, bool last, uint64_t *ret_time_ns,
				 char ret_text[HL_MARK_MAX + 1]);

/* Whether the program wants another number of segments kept than was last seen or set. */
bool hl_mailbox_reader_take_segments(struct hl_mailbox_reader *reader, uint32_t *ret_segments);

/* From now on ${count} are kept, because somebody else than the program wants so. */
void hl_mailbox_reader_tell_segments(struct hl_mailbox_reader *reader, uint32_t count);

/* Takes a report that is asked for, which is to be ended. */
bool hl_mailbox_reader_take_report(struct hl_mailbox_reader *reader,
				   char ret_path[HL_REPORT_PATH_BYTES]);

/* Tells the program that its report is done: 0 or a negative errno. */
void hl_mailbox_reader_end_report(struct hl_mailbox_reader *reader, int error);

/* Tells the program that nobody listens from here on. */
void hl_mailbox_reader_close(struct hl_mailbox_reader *reader);
