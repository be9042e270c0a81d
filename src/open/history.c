/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens a log as the history of its process, and names what is in it; see history.h. */
#include "open/history.h"

#include "open/moment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the range ---- */

static int choose_range(struct hl_history *history, const struct hl_history_range *range,
			struct hl_error *err)
{
	const struct hl_log *log = history->log;

	uint64_t log_first = log->points[0].number;
	uint64_t log_last = log->points[log->point_count - 1].number;
	uint64_t first = range->first_ms / HL_INTERVAL_TICKS;
	uint64_t last = range->last_ms / HL_INTERVAL_TICKS;
	if (first > log_last || last < log_first)
		return hl_error_set(err, -ERANGE,
				    "%llu to %llu ms are not in the log of '%s', which holds %llu "
				    "to %llu ms",
				    (unsigned long long)range->first_ms,
				    (unsigned long long)range->last_ms, history->path,
				    (unsigned long long)log_first * HL_INTERVAL_TICKS,
				    (unsigned long long)(log_last + 1) * HL_INTERVAL_TICKS - 1);
	if (first < log_first)
		first = log_first;
	if (last > log_last)
		last = log_last;
	history->points = &log->points[first - log_first];
	history->point_count = (size_t)(last - first + 1);
	return 0;
}

/* ---- the profile ---- */

int hl_history_name(struct hl_history *history, const struct hl_log_state *state,
		    struct hl_error *err)
{
	struct hl_profile_selection selection = {.progress = history->reading.progress};
	struct hl_profile_counters total = {0};
	struct hl_profile *profile;
	uint32_t *nodes;

	int r = hl_moment_profile(&history->source, history->process, state, &selection, &profile,
				  &nodes, err);
	if (r < 0)
		return r;
	const struct hl_node_ids follow = {nodes, state->node_count};
	r = history->filter ? hl_filter_apply(history->filter, profile, &follow, err) : 0;
	if (r == 0 && history->profile) /* it may have been given another name than its path */
		r = hl_strings_intern(&profile->strings,
				      hl_profile_text(history->profile, history->profile->name),
				      &profile->name);
	if (r < 0) {
		hl_profile_free(profile);
		free(nodes);
		return r;
	}
	hl_profile_free(history->profile);
	free(history->profile_nodes);
	history->profile = profile;
	history->profile_nodes = nodes;
	history->log_node_count = state->node_count;
	hl_progress_report(history->reading.progress, "naming functions", 1, 1);
	/* Of the memory in use, the timeline tells the bytes alone. */
	for (size_t i = 0; i < history->point_count; i++)
		if (history->points[i].max_bytes > total.peak_bytes)
			total.peak_bytes = history->points[i].max_bytes;
	total.alloc_bytes = history->points[history->point_count - 1].end_bytes;
	profile->total = profile->unfiltered_total = total;
	memset(profile->known, 0, sizeof(profile->known));
	profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES] = true;
	profile->known[HL_VALUE_PEAK][HL_UNIT_BYTES] = true;
	profile->lost_log_events = history->log->lost_events;
	return 0;
}

/* ---- opening ---- */

int hl_history_open(const char *path, const struct hl_profile_selection *selection,
		    const struct hl_history_range *range, const struct hl_filter *filter,
		    struct hl_history **ret_history, struct hl_error *err)
{
	const struct hl_log_state nothing = {0};
	struct hl_history *history = calloc(1, sizeof(*history));
	char *copy = strdup(path);

	if (!history || !copy) {
		free(history);
		free(copy);
		return hl_error_set(err, -ENOMEM, "cannot read '%s': out of memory", path);
	}
	history->path = copy;
	history->filter = filter;
	history->source = HL_LOG_SOURCE_NONE;
	history->reading =
		(struct hl_log_options){.jobs = selection->jobs, .progress = selection->progress};
	int r = hl_log_source_open(&history->source, path, err);
	if (r == 0)
		r = hl_moment_open_log(&history->source, selection, &history->process,
				       &history->log, err);
	if (r == 0)
		r = choose_range(history, range, err);
	if (r == 0)
		r = hl_history_name(history, &nothing, err);
	if (r < 0) {
		hl_history_free(history);
		return r;
	}
	history->reading.start_realtime_ns = history->process->start_realtime_ns;
	*ret_history = history;
	return 0;
}

void hl_history_free(struct hl_history *history)
{
	if (!history)
		return;
	hl_profile_free(history->profile);
	free(history->profile_nodes);
	hl_log_free(history->log);
	hl_log_source_release(&history->source);
	free(history->path);
	free(history);
}
