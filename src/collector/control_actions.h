/* SPDX-License-Identifier: BSD-2-Clause */
/* What can be asked of a recording that goes on, but for snapshots, which take their time. */
#pragma once

#include "collector/archive.h"
#include "collector/control_protocol.h"
#include "collector/tracked.h"

#include <jansson.h>

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
