/* SPDX-License-Identifier: BSD-2-Clause */
/* Adds events up, each part alone, then the parts in order of time; see event_reports.h. */
#include "profile/event_reports.h"

#include "base/array.h"
#include "base/compiler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- figures ---- */

static void add_figures(struct hl_event_figures *sum, const struct hl_event_figures *more)
{
	sum->events += more->events;
	sum->allocations += more->allocations;
	sum->frees += more->frees;
	sum->alloc_bytes += more->alloc_bytes;
	sum->free_bytes += more->free_bytes;
}

static int add_to_thread(struct hl_event_summary *summary, uint32_t thread,
			 const struct hl_event_figures *figures)
{
	if (HL_ARRAY_RESERVE_ZEROED(summary->threads, summary->thread_capacity,
				    (size_t)thread + 1) < 0)
		return -ENOMEM;
	if (thread >= summary->thread_count)
		summary->thread_count = (size_t)thread + 1;
	add_figures(&summary->threads[thread], figures);
	return 0;
}

/* ---- the busiest ticks ---- */

static void rank_tick(struct hl_event_summary *summary, const struct hl_event_tick *tick)
{
	size_t at = summary->tick_count;

	for (; at > 0; at--) {
		const struct hl_event_tick *other = &summary->ticks[at - 1];
		if (other->figures.events > tick->figures.events ||
		    (other->figures.events == tick->figures.events && other->tick <= tick->tick))
			break;
	}
	if (at == HL_EVENT_TICKS_MAX)
		return;
	if (summary->tick_count < HL_EVENT_TICKS_MAX)
		summary->tick_count++;
	memmove(&summary->ticks[at + 1], &summary->ticks[at],
		(summary->tick_count - at - 1) * sizeof(*summary->ticks));
	summary->ticks[at] = *tick;
}

/* ---- parts ---- */

/* No tick is in two parts, as a part ends with an interval. */
struct part {
	struct hl_event_summary summary;
	struct hl_event_tick tick; /* the last one */
};

struct summing {
	const struct hl_event_range *range;
	struct part *parts;
};

static int add_run(void *context, size_t index, const struct hl_event_run *run)
{
	const struct summing *summing = context;
	struct part *part = &summing->parts[index];

	if (run->tick < summing->range->first || run->tick >= summing->range->end)
		return 0;
	if (run->tick != part->tick.tick || !part->tick.figures.events) {
		if (part->tick.figures.events)
			rank_tick(&part->summary, &part->tick);
		else
			part->summary.first_tick = run->tick;
		part->tick = (struct hl_event_tick){.tick = run->tick};
		part->summary.last_tick = run->tick;
	}
	int64_t bytes[2] = {0}, objects[2] = {0}; /* allocated, freed */
	for (size_t i = 0; i < run->count; i++) {
		bytes[run->events[i].is_free] += run->events[i].bytes;
		objects[run->events[i].is_free] += run->events[i].objects;
	}
	const struct hl_event_figures figures = {
		.events = run->count,
		.allocations = objects[0],
		.frees = -objects[1],
		.alloc_bytes = bytes[0],
		.free_bytes = -bytes[1],
	};
	add_figures(&part->tick.figures, &figures);
	add_figures(&part->summary.total, &figures);
	return add_to_thread(&part->summary, run->thread, &figures);
}

static int end_part(void *context, size_t index, const struct hl_log_state *state)
{
	struct part *part = &((const struct summing *)context)->parts[index];

	(void)state;
	if (part->tick.figures.events)
		rank_tick(&part->summary, &part->tick);
	return 0;
}

int hl_event_summary_read(struct hl_event_summary *summary, const struct hl_event_log *log,
			  const struct hl_event_range *range, const struct hl_log_options *options,
			  struct hl_error *err)
{
	struct summing summing = {range, calloc(log->part_count, sizeof(*summing.parts))};
	const struct hl_event_fold fold = {&summing, NULL, add_run, end_part};

	int r = summing.parts ? hl_event_log_read_range(log, range, options, &fold, err) : -ENOMEM;
	for (size_t i = 0; r == 0 && i < log->part_count; i++) {
		const struct hl_event_summary *part = &summing.parts[i].summary;
		if (!part->total.events)
			continue;
		if (!summary->total.events)
			summary->first_tick = part->first_tick;
		summary->last_tick = part->last_tick;
		add_figures(&summary->total, &part->total);
		for (uint32_t thread = 0; r == 0 && thread < part->thread_count; thread++)
			r = add_to_thread(summary, thread, &part->threads[thread]);
		for (size_t tick = 0; tick < part->tick_count; tick++)
			rank_tick(summary, &part->ticks[tick]);
	}
	for (size_t i = 0; summing.parts && i < log->part_count; i++)
		hl_event_summary_release(&summing.parts[i].summary);
	free(summing.parts);
	return r < 0 ? hl_error_set(err, r, "cannot add events up: out of memory") : 0;
}

void hl_event_summary_release(struct hl_event_summary *summary)
{
	free(summary->threads);
	summary->threads = NULL;
	summary->thread_count = summary->thread_capacity = 0;
}
