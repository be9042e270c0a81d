/* SPDX-License-Identifier: BSD-2-Clause */
/* Head and notes of timeline, peaks and growth; see history_head.h. */
#include "view/history_head.h"

#include "view/format.h"
#include "view/sparkline.h"
#include "view/summary.h"

#include <string.h>

#define HOLES_SHOWN 3
#define NS_PER_MS   UINT64_C(1000000)

/* A whole log may end that much before its process does, which is told apart no more. */
#define EARLY_END_MS 1000

/* A run of points that could not be written or read. */
struct hole {
	size_t first, end;
};

/* The first hole from point ${from} on; false when there is none. */
static bool next_hole(const struct hl_history *history, size_t from, struct hole *ret_hole)
{
	size_t first = from, end;

	while (first < history->point_count && !history->points[first].missing)
		first++;
	for (end = first; end < history->point_count && history->points[end].missing; end++)
		continue;
	*ret_hole = (struct hole){first, end};
	return first < end;
}

static unsigned long long hole_first_ms(const struct hl_history *history, struct hole hole)
{
	return hl_history_head_ms(&history->points[hole.first]);
}

static unsigned long long hole_last_ms(const struct hl_history *history, struct hole hole)
{
	return hl_history_head_ms(&history->points[hole.end - 1]) + HL_INTERVAL_TICKS - 1;
}

/* The segment that was cut off in ${hole}, or the first of them; NULL: none. */
static const char *cut_segment(const struct hl_history *history, struct hole hole)
{
	const struct hl_log *log = history->log;

	for (size_t i = 0; i < log->cut_count; i++)
		if (log->cuts[i].first <= history->points[hole.end - 1].number &&
		    log->cuts[i].last >= history->points[hole.first].number)
			return log->cuts[i].name;
	return NULL;
}

/* By how much the log of a process that was recorded to its end stops before that; else 0. Idle
 * ends are written, too. */
static uint64_t early_end_ms(const struct hl_history *history)
{
	const struct hl_log_point *last = &history->log->points[history->log->point_count - 1];
	uint64_t end = hl_history_head_ms(last) + HL_INTERVAL_TICKS;
	uint64_t duration = history->process->duration_ns / NS_PER_MS;

	if (!history->source.log.recording->complete || !history->process->complete ||
	    duration <= end + EARLY_END_MS)
		return 0;
	return duration - end;
}

const struct hl_log_point *hl_history_head_peak(const struct hl_history *history)
{
	const struct hl_log_point *peak = history->points;

	for (size_t i = 1; i < history->point_count; i++)
		if (history->points[i].max_bytes > peak->max_bytes)
			peak = &history->points[i];
	return peak;
}

/* ---- JSON ---- */

static void emit_holes(struct hl_emit *emit, const struct hl_history *history)
{
	struct hole hole = {0};

	hl_emit_array(emit, "holes");
	while (next_hole(history, hole.end, &hole)) {
		hl_emit_object(emit, NULL);
		hl_emit_integer(emit, "first_ms", (int64_t)hole_first_ms(history, hole));
		hl_emit_integer(emit, "last_ms", (int64_t)hole_last_ms(history, hole));
		if (cut_segment(history, hole))
			hl_emit_text(emit, "cut_segment", cut_segment(history, hole));
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
}

static void emit_log(struct hl_emit *emit, const struct hl_history *history)
{
	const struct hl_log *log = history->log;
	uint64_t start = hl_history_start_ms(history);
	char time[HL_FORMAT_MAX];

	hl_emit_object(emit, "log");
	hl_emit_text(emit, "start",
		     hl_format_time(log->start_realtime_ns + start * NS_PER_MS, time));
	hl_emit_integer(emit, "first_ms", start);
	hl_emit_integer(emit, "last_ms", (int64_t)(start + hl_history_length_ms(history) - 1));
	hl_emit_integer(emit, "interval_ms", HL_INTERVAL_TICKS);
	hl_emit_integer(emit, "segments", log->segment_count);
	hl_emit_integer(emit, "ignored_segments", log->ignored_count);
	hl_emit_integer(emit, "foreign_segments", log->foreign_count);
	hl_emit_integer(emit, "lost_events", log->lost_events);
	hl_emit_integer(emit, "missing_intervals", log->missing_count);
	emit_holes(emit, history);
	hl_emit_boolean(emit, "complete", !log->cut_off && !early_end_ms(history));
	hl_emit_object_end(emit);
}

void hl_history_head_members(struct hl_emit *emit, const struct hl_history *history)
{
	hl_summary_members(emit, history->profile, NULL);
	emit_log(emit, history);
	hl_emit_array(emit, "marks");
	for (size_t i = 0; i < history->log->mark_count; i++) {
		hl_emit_object(emit, NULL);
		hl_emit_integer(emit, "ms", (int64_t)history->log->marks[i].tick);
		hl_emit_text(emit, "text", history->log->marks[i].text);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
}

/* ---- text ---- */

static void warn_of_hole(struct hl_emit *emit, const struct hl_history *history, struct hole hole)
{
	const char *cut = cut_segment(history, hole);

	if (cut)
		hl_emit_warning(emit,
				"HOLE: intervals from %llu to %llu ms are missing, because '%s' "
				"was cut off; of what happened then, only the outcome is known",
				hole_first_ms(history, hole), hole_last_ms(history, hole), cut);
	else
		hl_emit_warning(emit,
				"HOLE: intervals from %llu to %llu ms could not be written; of "
				"what happened then, only the outcome is known",
				hole_first_ms(history, hole), hole_last_ms(history, hole));
}

static void warn_of_holes(struct hl_emit *emit, const struct hl_history *history)
{
	struct hole hole = {0};
	char more[HL_FORMAT_MAX];
	size_t count = 0;

	while (next_hole(history, hole.end, &hole))
		if (count++ < HOLES_SHOWN)
			warn_of_hole(emit, history, hole);
	if (count > HOLES_SHOWN)
		hl_emit_warning(emit, "HOLE: and %s more; --json lists them",
				hl_format_count((int64_t)(count - HOLES_SHOWN), more));
}

static void warn_of_early_end(struct hl_emit *emit, const struct hl_history *history)
{
	char duration[HL_FORMAT_MAX];

	hl_emit_warning(emit,
			"GAP: the log ends %s before the process did: its newest segments are "
			"missing%s",
			hl_format_duration(early_end_ms(history) * NS_PER_MS, duration),
			history->log->cut_off ? " or cut off" : "");
}

void hl_history_head_foreign(struct hl_emit *emit, uint32_t count)
{
	if (count)
		hl_emit_warning(emit,
				"FOREIGN: %u file%s of another recording lie%s among those of this "
				"one, and %s not used",
				count, count == 1 ? "" : "s", count == 1 ? "s" : "",
				count == 1 ? "is" : "are");
}

void hl_history_head_warnings(struct hl_emit *emit, const struct hl_history *history)
{
	const struct hl_log *log = history->log;

	warn_of_holes(emit, history);
	hl_history_head_foreign(emit, log->foreign_count);
	if (log->ignored_count)
		hl_emit_warning(emit,
				"GAP: %u older segment%s of the log left out, because what comes "
				"after %s missing or damaged",
				log->ignored_count, log->ignored_count == 1 ? "" : "s",
				log->ignored_count == 1 ? "it is" : "them is");
	if (early_end_ms(history))
		warn_of_early_end(emit, history);
	else if (log->cut_off && !history->source.log.recording->snapshot)
		hl_emit_line(emit, "note: the log has no end: it is still being written, or its "
				   "writer was killed");
}

static void put_range_line(struct hl_emit *emit, const struct hl_history *history)
{
	const struct hl_log_point *peak = hl_history_head_peak(history);
	uint64_t start = hl_history_start_ms(history);
	char duration[HL_FORMAT_MAX];

	hl_emit_line(emit, "log from %llu to %llu ms (%s), highest at %llu ms",
		     (unsigned long long)start,
		     (unsigned long long)(start + hl_history_length_ms(history) - 1),
		     hl_format_duration(hl_history_length_ms(history) * NS_PER_MS, duration),
		     (unsigned long long)hl_history_head_ms(peak));
}

static void put_lines(struct hl_emit *emit, const struct hl_history *history)
{
	char sparkline[HL_SPARKLINE_MAX];

	hl_summary_lines(emit, history->profile);
	hl_history_head_warnings(emit, history);
	put_range_line(emit, history);
	hl_emit_line(emit, "%s", hl_sparkline(history, hl_emit_width(emit), sparkline));
}

/* ---- begin and end ---- */

int hl_history_head_begin(const struct hl_history *history, const struct hl_view_options *options,
			  const char *schema, struct hl_emit **ret_emit)
{
	const struct hl_emit_options how = {
		.out = options->out, .json = options->json, .color = options->color};

	int r = hl_emit_open(&how, schema, ret_emit);
	if (r < 0)
		return r;
	hl_history_head_members(*ret_emit, history);
	put_lines(*ret_emit, history);
	return 0;
}

int hl_history_head_fail(const struct hl_history *history, int code, struct hl_error *err)
{
	return hl_error_set(err, code, "cannot show '%s': %s", history->path, strerror(-code));
}

/* ---- notes ---- */

int hl_history_head_note(const struct hl_history *history, const struct hl_view_options *options)
{
	struct hl_emit *emit;

	int r = hl_emit_new(options->notes, HL_EMIT_TABLE, false, &emit);
	if (r < 0)
		return r;
	hl_summary_process_line(emit, history->profile);
	hl_summary_warnings(emit, history->profile);
	hl_history_head_warnings(emit, history);
	return hl_emit_finish(emit);
}
