/* SPDX-License-Identifier: BSD-2-Clause */
/* Profiles of a moment: what was in use then, read from the log of one process. */
#pragma once

#include "log/log.h"
#include "open/log_source.h"

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
