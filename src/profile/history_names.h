/* SPDX-License-Identifier: BSD-2-Clause */
/* Names from several states of a log, put together. */
#pragma once

#include "log/log_reader.h"

/*
 * Adds the nodes and modules that ${state} defines to ${names}, which was allocated all zero and
 * goes to hl_log_state_free(). All states of a log agree about what they define. Figures of new
 * nodes are 0. 0 or -ENOMEM.
 */
int hl_history_names_add(struct hl_log_state *names, const struct hl_log_state *state);
