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
#include <stdint.h>
#include <sys/types.h>

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

/* ---- reports ---- */

/*
 * The absolute path that process ${pid} means by ${wanted}, which may be relative to where the
 * process is. A program that runs with other rights than ours would write with our rights, so that
 * is refused: -EPERM. 0 or a negative errno with a sentence.
 */
int hl_program_report_path(pid_t pid, const char *wanted, char ret_path[PATH_MAX],
			   struct hl_error *err);
