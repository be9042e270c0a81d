/* SPDX-License-Identifier: BSD-2-Clause */
/* What can be asked of a recording that goes on, but for snapshots, which take their time. */
#pragma once

#include "collector/archive.h"
#include "collector/control_protocol.h"
#include "collector/tracked.h"

/* What is controlled; the collector's. */
struct hl_control_subject {
	struct hl_archive *archive;
	struct hl_tracked **tracked;  /* the first of the list */
	struct hl_log_limits *limits; /* of processes to come */
	enum hl_mode *mode;	      /* the same */
};

/* The process of that PID that runs and is recorded, or NULL. */
struct hl_tracked *hl_control_find(const struct hl_control_subject *subject, pid_t pid);

/* Notes the mark ${name} at ${tick} of the process in the recording and, if it has one, in its log.
 * 0, or a negative errno: -EAGAIN when there are too many. */
int hl_control_mark(const struct hl_control_subject *subject, struct hl_tracked *tracked,
		    uint64_t tick, const char *name);

/* From now on ${segments} of the process' log are kept. False: it has none. */
bool hl_control_keep(struct hl_tracked *tracked, uint32_t segments);

/* Begins the log of a process that has none, now. 0, or a negative errno with a sentence. */
int hl_control_begin_log(const struct hl_control_subject *subject, struct hl_tracked *tracked,
			 struct hl_error *err);

/* The present tick of a process. */
uint64_t hl_control_tick(const struct hl_tracked *tracked);

/* Does what a checked request asks for. The answer, which the caller frees; NULL for want of
 * memory. Not for snapshots. */
char *hl_control_act(const struct hl_control_subject *subject,
		     const struct hl_control_request *request);

/* The answer that is an error sentence. As above. */
char *hl_control_error(const char *sentence);

/* The answer that something was done. As above. */
char *hl_control_done(void);
