/* SPDX-License-Identifier: BSD-2-Clause */
/* Names that are known from elsewhere than files of symbols: from a profile, or from a log. */
#pragma once

#include "log/log.h"
#include "profile/profile.h"
#include "recording/recording.h"

/* ---- what a profile named addresses, for profiles of the same modules without files ---- */

/* Zero-initialize; release in any case. */
struct hl_known_names {
	const struct hl_profile *profile; /* the caller's, which must stay */
	struct hl_index places;		  /* the first frame of each address, the outermost */
};

/* ${profile} is a recording's, or was packed from one. 0 or -ENOMEM. */
int hl_known_names_init(struct hl_known_names *names, const struct hl_profile *profile);
void hl_known_names_release(struct hl_known_names *names);

/*
 * The frames at ${address} of ${module}, whose path is ${path}: how many, and in ${ret_first} the
 * first, the outermost; 0: they are not known.
 */
uint32_t hl_known_names_find(const struct hl_known_names *names,
			     const struct hl_profile_module *module, const char *path,
			     uint64_t address, uint32_t *ret_first);

struct hl_event_log;
struct hl_event_range;

/* ---- names from several states of a log, put together ---- */

/*
 * Adds the nodes and modules that ${state} defines to ${names}, which was allocated all zero and
 * goes to hl_log_state_free(). All states of a log agree about what they define. Figures of new
 * nodes are 0. 0 or -ENOMEM.
 */
int hl_history_names_add(struct hl_log_state *names, const struct hl_log_state *state);

/* All that ${log} names, in a state that the caller frees. As hl_log_read(). */
int hl_history_names_read(const struct hl_log *log, const struct hl_log_options *options,
			  struct hl_log_state **ret_names, struct hl_error *err);

/* The same of the events in ${range}. As hl_event_log_read(). */
int hl_history_names_read_events(const struct hl_event_log *log, const struct hl_event_range *range,
				 const struct hl_log_options *options,
				 struct hl_log_state **ret_names, struct hl_error *err);

/*
 * The fingerprint of module ${index} of a log, from 0, of ${recorded}: logs do not keep them, the
 * recording, which has the same modules, does. All zero where it does not know the module.
 */
struct hl_file_print hl_history_names_print(const struct hl_recording_process *recorded,
					    size_t index, const struct hl_log_module *module);
