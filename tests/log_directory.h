/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens the log, or the events, of a process in a recording's directory, as hl_log_open(). */
#pragma once

#include "base/cleanup.h"
#include "log/events.h"
#include "log/log.h"

static inline int open_log_in(const char *directory, uint32_t process,
			      const struct hl_log_options *options, struct hl_log **ret_log,
			      struct hl_error *err)
{
	HL_CLEANUP(hl_log_place_release) struct hl_log_place place = HL_LOG_PLACE_NONE;
	int r = hl_log_place_open_directory(&place, directory, err);

	return r < 0 ? r : hl_log_open(&place, process, options, ret_log, err);
}

static inline int open_events_in(const char *directory, uint32_t process,
				 const struct hl_log_options *options,
				 struct hl_event_log **ret_log, struct hl_error *err)
{
	HL_CLEANUP(hl_log_place_release) struct hl_log_place place = HL_LOG_PLACE_NONE;
	int r = hl_log_place_open_directory(&place, directory, err);

	return r < 0 ? r : hl_event_log_open(&place, process, options, ret_log, err);
}
