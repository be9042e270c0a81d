/* SPDX-License-Identifier: BSD-2-Clause */
/* Names from several states of a log, put together. */
#pragma once

#include "log/log.h"
#include "recording/recording.h"

/*
 * Adds the nodes and modules that ${state} defines to ${names}, which was allocated all zero and
 * goes to hl_log_state_free(). All states of a log agree about what they define. Figures of new
 * nodes are 0. 0 or -ENOMEM.
 */
int hl_history_names_add(struct hl_log_state *names, const struct hl_log_state *state);

/* All that ${log} names, in a state that the caller frees. As hl_log_read(). */
int hl_history_names_read(const struct hl_log *log, const struct hl_log_options *options,
			  struct hl_log_state **ret_names, struct hl_error *err);

/*
 * The fingerprint of module ${index} of a log, from 0, of ${recorded}: logs do not keep them, the
 * recording, which has the same modules, does. All zero where it does not know the module.
 */
struct hl_file_print hl_history_names_print(const struct hl_recording_process *recorded,
					    size_t index, const struct hl_log_module *module);
