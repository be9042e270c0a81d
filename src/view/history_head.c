/* SPDX-License-Identifier: BSD-2-Clause */
/* Head and notes of timeline, peaks and growth; see history_head.h. */
#include "view/history_head.h"

#include "view/format.h"
#include "view/summary.h"

#include <langinfo.h>
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

void hl_history_head_members(struct hl_emit *emit, const struct hl_history *history)
{
	const struct hl_log *log = history->log;
	uint64_t start = hl_history_start_ms(history);
	struct hole hole = {0};
	char time[HL_FORMAT_MAX];

	hl_summary_members(emit, history->profile, NULL);
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
	hl_emit_array(emit, "holes");
	while (next_hole(history, hole.end, &hole)) {
		const char *cut = cut_segment(history, hole);
		hl_emit_object(emit, NULL);
		hl_emit_integer(emit, "first_ms", (int64_t)hole_first_ms(history, hole));
		hl_emit_integer(emit, "last_ms", (int64_t)hole_last_ms(history, hole));
		if (cut)
			hl_emit_text(emit, "cut_segment", cut);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	hl_emit_boolean(emit, "complete", !log->cut_off && !early_end_ms(history));
	hl_emit_object_end(emit);
	hl_emit_array(emit, "marks");
	for (size_t i = 0; i < log->mark_count; i++) {
		hl_emit_object(emit, NULL);
		hl_emit_integer(emit, "ms", (int64_t)log->marks[i].tick);
		hl_emit_text(emit, "text", log->marks[i].text);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
}

/* ---- text ---- */

void hl_history_head_unused(struct hl_notices *notices, uint32_t foreign, const char *foreign_name,
			    uint32_t ignored, const char *noun)
{
	if (foreign == 1)
		hl_notices_warn(notices, "FOREIGN: '%s' is of another recording and is not used",
				foreign_name);
	else if (foreign)
		hl_notices_warn(notices,
				"FOREIGN: '%s' and %u more files are of another recording and are "
				"not used",
				foreign_name, foreign - 1);
	if (ignored)
		hl_notices_warn(notices,
				"GAP: %u older %s%s left out, because what comes after %s is "
				"missing or damaged",
				ignored, noun, ignored == 1 ? " is" : "s are",
				ignored == 1 ? "it" : "them");
}

void hl_history_head_notices(struct hl_notices *notices, const struct hl_history *history)
{
	const struct hl_log *log = history->log;
	uint64_t early_ms = early_end_ms(history);
	struct hole hole = {0};
	size_t hole_count = 0;
	char duration[HL_FORMAT_MAX], more[HL_FORMAT_MAX];

	while (next_hole(history, hole.end, &hole)) {
		const char *cut = cut_segment(history, hole);
		if (hole_count++ >= HOLES_SHOWN)
			continue;
		hl_notices_warn(notices,
				"HOLE: intervals from %llu to %llu ms %s%s%s; of what happened "
				"then, only the outcome is known",
				hole_first_ms(history, hole), hole_last_ms(history, hole),
				cut ? "are missing, because '" : "could not be written",
				cut ? cut : "", cut ? "' was cut off" : "");
	}
	if (hole_count > HOLES_SHOWN)
		hl_notices_warn(notices, "HOLE: and %s more; --json lists them",
				hl_format_count((int64_t)(hole_count - HOLES_SHOWN), more));
	if (log->damaged)
		hl_notices_warn(notices,
				"DAMAGED: '%s' is damaged; the last intervals may be missing",
				log->damaged);
	hl_history_head_unused(notices, log->foreign_count, log->foreign_name, log->ignored_count,
			       "log segment");
	if (early_ms)
		hl_notices_warn(notices,
				"GAP: the log ends %s before the process did: its newest segments "
				"are missing%s",
				hl_format_duration(early_ms * NS_PER_MS, duration),
				log->cut_off ? " or cut off" : "");
	else if (log->cut_off && !log->damaged && !history->source.log.recording->snapshot)
		hl_notices_add(notices, "note: the log has no end: it is still being written, or "
					"its writer was killed");
}

/* ---- begin and end ---- */

#define SPARKLINE_COLUMNS 72
#define SPARKLINE_LEVELS  8

/* The range in one line of text; each column is the highest maximum of its share of the range. */
static void put_sparkline(struct hl_emit *emit, const struct hl_history *history)
{
	static const char *const blocks[SPARKLINE_LEVELS] = {"▁", "▂", "▃", "▄",
							     "▅", "▆", "▇", "█"};
	static const char *const letters[SPARKLINE_LEVELS] = {"_", ".", "-", "~",
							      "=", "+", "*", "#"};

	const char *const *signs = strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? blocks : letters;
	size_t count = history->point_count, width = hl_emit_width(emit);
	size_t columns = width && width < SPARKLINE_COLUMNS ? width : SPARKLINE_COLUMNS;
	char text[3 * SPARKLINE_COLUMNS + 1] = "", *at = text;
	int64_t bytes[SPARKLINE_COLUMNS] = {0}, most = 0;

	if (count < columns)
		columns = count;
	for (size_t i = 0; i < count; i++) {
		int64_t *column = &bytes[((i + 1) * columns - 1) / count];
		if (history->points[i].max_bytes > *column)
			*column = history->points[i].max_bytes;
		if (*column > most)
			most = *column;
	}
	for (size_t i = 0; i < columns; i++) {
		double height = most ? (double)bytes[i] / (double)most : 0;
		at = stpcpy(at, signs[(size_t)(height * (SPARKLINE_LEVELS - 1) + 0.5)]);
	}
	hl_emit_line(emit, "%s", text);
}

int hl_history_head_begin(const struct hl_history *history, const struct hl_view_options *options,
			  const char *schema, struct hl_emit **ret_emit)
{
	const struct hl_emit_options how = {
		.out = options->out, .json = options->json, .color = options->color};
	const struct hl_log_point *peak = hl_history_head_peak(history);
	uint64_t start = hl_history_start_ms(history), length = hl_history_length_ms(history);
	struct hl_notices notices = {0};
	char duration[HL_FORMAT_MAX], time[HL_FORMAT_MAX];
	struct hl_emit *emit;

	int r = hl_emit_open(&how, schema, &emit);
	if (r < 0)
		return r;
	hl_history_head_members(emit, history);
	hl_summary_lines(emit, history->profile);
	hl_history_head_notices(&notices, history);
	hl_notices_emit(&notices, emit);
	hl_emit_line(emit, "log from %llu to %llu ms (%s), since %s, highest at %llu ms",
		     (unsigned long long)start, (unsigned long long)(start + length - 1),
		     hl_format_duration(length * NS_PER_MS, duration),
		     hl_format_time(history->log->start_realtime_ns + start * NS_PER_MS, time),
		     (unsigned long long)hl_history_head_ms(peak));
	put_sparkline(emit, history);
	*ret_emit = emit;
	return 0;
}

int hl_history_head_fail(const struct hl_history *history, int code, struct hl_error *err)
{
	return hl_error_set(err, code, "cannot show '%s': %s", history->path, strerror(-code));
}

int hl_history_head_note(const struct hl_history *history, const struct hl_view_options *options)
{
	struct hl_notices notices = {0};

	hl_summary_notices(&notices, history->profile);
	hl_history_head_notices(&notices, history);
	return hl_notices_put(&notices, options->notes);
}
