/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opens anything that holds logs of processes: a recording, a packed recording, a directory with
 * segments alone, or one segment. A process that is in no recording is known by its log alone.
 */
#pragma once

#include "log/log.h"
#include "open/input.h"
#include "pack/pack.h"
#include "profile/known_names.h"

struct hl_log_source {
	struct hl_pack_log log;	     /* its recording's processes need not have any nodes */
	struct hl_profile *packed;   /* of a packed recording: it has the names */
	struct hl_known_names names; /* in it */
};

#define HL_LOG_SOURCE_NONE ((struct hl_log_source){.log.place = HL_LOG_PLACE_NONE})

/* Opens ${path}, "-" is standard input. 0 or a negative errno with a sentence. Release in any
 * case. */
int hl_log_source_open(struct hl_log_source *source, const char *path, struct hl_error *err);

/* The same of ${path} that is open at ${input}, which may be closed afterwards. */
int hl_log_source_open_input(struct hl_log_source *source, struct hl_input *input,
			     struct hl_error *err);

void hl_log_source_release(struct hl_log_source *source);

/* The error of reading ${name}, a file of events, without its recording. */
int hl_log_source_refuse_events(const char *name, struct hl_error *err);

/* Whether ${input} is a segment of a log. */
bool hl_log_source_is_segment(const struct hl_input *input);

/* ---- profiles of a moment: what was in use then ---- */

/*
 * The process whose log is shown: the one that ${selection} names, else of those with a log the one
 * with the highest peak; and its log, which has intervals. 0 or a negative errno with a sentence.
 */
int hl_moment_open_log(const struct hl_log_source *source,
		       const struct hl_profile_selection *selection,
		       const struct hl_recording_process **ret_process, struct hl_log **ret_log,
		       struct hl_error *err);

/*
 * The profile of ${state}, a state of the log of ${process} of ${source}. *${ret_nodes}, unless
 * NULL, is the node of the profile of each of the state's nodes; the caller frees it. As
 * hl_profile_load().
 */
int hl_moment_profile(const struct hl_log_source *source,
		      const struct hl_recording_process *process, const struct hl_log_state *state,
		      const struct hl_profile_selection *selection, struct hl_profile **ret_profile,
		      uint32_t **ret_nodes, struct hl_error *err);

/* The profile at selection->at, which is not HL_MOMENT_NONE. As hl_profile_load(). */
int hl_moment_load(const struct hl_log_source *source, const struct hl_profile_selection *selection,
		   struct hl_profile **ret_profile, struct hl_error *err);
