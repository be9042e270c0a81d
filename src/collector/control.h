/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lets a recording be asked and changed while it goes on: by `heapline ctl` over a socket, and by
 * the recorded programs through their mailboxes. Never waits for either.
 */
#pragma once

#include "base/error.h"
#include "collector/control_ask.h"
#include "collector/tracked.h"

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>

/* ---- control actions ---- */

/* What can be asked of a recording that goes on, but for snapshots, which take their time. */

/* What is controlled; the collector's. */
struct hl_control_subject {
	struct hl_archive *archive;
	struct hl_tracked **tracked;  /* the first of the list */
	struct hl_log_limits *limits; /* of processes to come */
	enum hl_mode *mode;	      /* the same */
};

/* Notes the mark ${name} at ${tick} of the process in the recording and, if it has one, in its log.
 * 0, or a negative errno: -EAGAIN when there are too many. */
int hl_control_actions_mark(const struct hl_control_subject *subject, struct hl_tracked *tracked,
			    uint64_t tick, const char *name);

/* From now on ${segments} of the process' log are kept. False: it has none. */
bool hl_control_actions_keep(struct hl_tracked *tracked, uint32_t segments);

/* Begins the log of a process that has none, now. 0, or a negative errno with a sentence. */
int hl_control_actions_begin_log(const struct hl_control_subject *subject,
				 struct hl_tracked *tracked, struct hl_error *err);

/* Whether the recorder can be taken out of process ${pid}, or with 0 of one of the recording. 0, or a
 * negative errno with a sentence. */
int hl_control_actions_check_detach(const struct hl_control_subject *subject, pid_t pid,
				    struct hl_error *err);

/* The present tick of a process. */
uint64_t hl_control_actions_tick(const struct hl_tracked *tracked);

/* Does what a checked request asks for. The answer, which the caller frees; NULL for want of
 * memory. Not for snapshots. */
char *hl_control_actions_act(const struct hl_control_subject *subject,
			     const struct hl_control_request *request);

/* The answer that is an error sentence. As above. */
char *hl_control_answer_error(const char *sentence);

/* The answer that something was done. As above. */
char *hl_control_answer_done(void);

/* ---- answers, as lines of JSON ---- */

/* The same without `recorded`, then `mode`, `ended`, `marks` (their number), and
 * `processes`: those that run. */
char *hl_control_answer_status(const struct hl_control_subject *subject);

/* ---- control ---- */

struct hl_control;

/* Nobody is listened to yet. 0 or a negative errno. */
int hl_control_new(const struct hl_control_subject *subject, struct hl_control **ret_control);

/* Listens to nobody any more: ends a snapshot that is being made, and removes the socket. Mailboxes
 * can still be read, and hl_control_tell_detached() be called. */
void hl_control_close(struct hl_control *control);

void hl_control_free(struct hl_control *control); /* NULL is fine; closes */

/* Listens at a socket, see control_ask.h. 0, or a negative errno: there is no control, which
 * need not keep a recording. */
int hl_control_open(struct hl_control *control);

/* Readable (poll) when there is something to do. */
int hl_control_fd(const struct hl_control *control);

/* Does all that there is to do now. */
void hl_control_dispatch(struct hl_control *control);

/* Whether somebody asked for the recorder to be taken out, and waits for it. */
bool hl_control_is_to_detach(const struct hl_control *control);

/* Answers all who did: it has been, or ${problem}, a sentence (NULL if there is none). */
void hl_control_tell_detached(struct hl_control *control, const char *problem);

/* To be called when a process has come to the list. A moment later its mailbox is listened to: one that ends sooner costs no wake. */
void hl_control_enter(struct hl_control *control);

/* To be called before the region of ${tracked} is unmapped, when it is not on the list any more. */
void hl_control_forget(struct hl_control *control, const struct hl_tracked *tracked);

/* Does what the process' mailbox asks for. ${last}: the process has ended. */
void hl_control_read_mailbox(struct hl_control *control, struct hl_tracked *tracked, bool last);

/* ---- report child ---- */

/*
 * A report that a program asks for while it is recorded, as heapline itself writes it: by another process, since to
 * find the names of lines takes a while, memory, and reading files that may be damaged.
 */

/*
 * The absolute path that process ${pid} means by ${wanted}, which may be relative to where the
 * process is. A program that runs with other rights than ours would write with our rights, so that
 * is refused: -EPERM. 0 or a negative errno with a sentence.
 */
int hl_program_report_path(pid_t pid, const char *wanted, char ret_path[PATH_MAX],
			   struct hl_error *err);

struct hl_report_child;

/* Saves the process of a checked request, LINES, TIMES or LEAKS, and begins the report; that of LEAKS is a recording, see
 * recording/recording_files.h. 0 or a negative errno with a sentence. */
int hl_report_child_begin(const struct hl_control_subject *subject,
			  const struct hl_control_request *request,
			  struct hl_report_child **ret_child, struct hl_error *err);

/* Readable (poll) when the report is done. */
int hl_report_child_fd(const struct hl_report_child *child);

/* Ends it when it has taken too long; for every now and then. */
void hl_report_child_check(struct hl_report_child *child, uint64_t now_ns);

/* Whether it looks for lost blocks, which nobody asked for at a terminal. */
bool hl_report_child_is_of_leaks(const struct hl_report_child *child);

/* Of a report that is done: its text, which the caller frees. 0, or a negative errno with the sentence that heapline
 * gave. */
int hl_report_child_end(const struct hl_report_child *child, char **ret_text, struct hl_error *err);

/* Ends one that is not done. NULL is fine. */
void hl_report_child_free(struct hl_report_child *child);

/* ---- snapshot ---- */

/*
 * A snapshot: a copy of a recording as it stands, made while it goes on. Counters are written at
 * once, through the same code as saves; what lies in the recording's directory already (processes
 * that have ended, logs) is copied by a thread, because that may take a while.
 */

struct hl_snapshot;

/*
 * Begins a snapshot in a new directory at ${path} (see hl_directory_init for ${replace}). 0 or a
 * negative errno with a sentence; nothing is left at ${path} then.
 */
int hl_snapshot_begin(const struct hl_archive *archive, const struct hl_tracked *tracked,
		      const char *path, bool replace, struct hl_snapshot **ret_snapshot,
		      struct hl_error *err);

/* Readable (poll) when the rest has been copied. */
int hl_snapshot_fd(const struct hl_snapshot *snapshot);

/* Whether it is. */
bool hl_snapshot_is_done(const struct hl_snapshot *snapshot);

/* Waits for the rest and frees the snapshot. As hl_snapshot_begin(). */
int hl_snapshot_end(struct hl_snapshot *snapshot, struct hl_error *err);

/* Moves the snapshot at ${path}, that another user's collector has written, into ${directory},
 * where that user may not write. 0 or a negative errno with a sentence. */
int hl_snapshot_fetch(const char *path, const struct hl_directory *directory, struct hl_error *err);
