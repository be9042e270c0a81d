/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes a timeline as a page reads it; see report.h. */
#include "view/page/report.h"

/* ---- the object ---- */

static uint64_t point_start_ms(const struct hl_report_history *report, size_t point)
{
	return hl_history_start_ms(report->history) +
	       point * report->point_intervals * HL_INTERVAL_TICKS;
}

static uint64_t point_end_ms(const struct hl_report_history *report, size_t point)
{
	uint64_t end = point_start_ms(report, point + 1);
	uint64_t log_end =
		hl_history_start_ms(report->history) + hl_history_length_ms(report->history);

	return end < log_end ? end : log_end;
}

static void emit_marks(struct hl_emit *emit, const struct hl_history *history)
{
	const struct hl_log *log = history->log;
	uint64_t start = hl_history_start_ms(history);

	hl_emit_array(emit, "marks");
	for (size_t i = 0; i < log->mark_count; i++) {
		const struct hl_log_mark *mark = &log->marks[i];
		if (mark->tick < start || mark->tick - start >= hl_history_length_ms(history))
			continue;
		hl_emit_object(emit, NULL);
		hl_emit_integer(emit, "ms", (int64_t)mark->tick);
		hl_emit_text(emit, "text", mark->text);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
}

static void emit_holes(struct hl_emit *emit, const struct hl_report_history *report)
{
	const struct hl_report_point *points = report->points;
	size_t count = report->point_count, first = 0;

	hl_emit_array(emit, "holes");
	for (size_t i = 0; i < count; i++) {
		if (!points[i].missing)
			first = i + 1;
		if (!points[i].missing || (i + 1 < count && points[i + 1].missing))
			continue;
		hl_emit_object(emit, NULL);
		hl_emit_integer(emit, "first_ms", (int64_t)point_start_ms(report, first));
		hl_emit_integer(emit, "last_ms", (int64_t)point_end_ms(report, i) - 1);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
}

void hl_report_timeline_members(struct hl_emit *emit, const struct hl_report_history *report)
{
	const struct hl_history *history = report->history;
	const struct hl_profile_process *process = history->profile->processes;

	hl_emit_object(emit, "timeline");
	hl_emit_integer(emit, "pid", process->pid);
	hl_emit_text(emit, "command", hl_profile_text(history->profile, process->command));
	hl_emit_integer(emit, "first_ms", (int64_t)hl_history_start_ms(history));
	hl_emit_integer(emit, "interval_ms", HL_INTERVAL_TICKS);
	hl_emit_integer(emit, "intervals", (int64_t)history->point_count);
	hl_emit_integer(emit, "point_intervals", (int64_t)report->point_intervals);
	hl_emit_integer(emit, "moment_points", (int64_t)report->moment_points);
	hl_emit_integer(emit, "points", (int64_t)report->point_count);
	hl_emit_integer(emit, "moments", (int64_t)report->moment_count);
	size_t changes = 0;
	for (size_t i = 0; i < report->moment_count; i++)
		changes += report->moments[i].change_count;
	hl_emit_integer(emit, "changes", (int64_t)changes);
	emit_marks(emit, history);
	emit_holes(emit, report);
	hl_emit_object_end(emit);
}

/* ---- the columns ---- */

void hl_report_timeline_columns(const struct hl_report_history *report, const uint32_t *leaf_of,
				FILE *out)
{
	const struct hl_report_point *points = report->points;
	const struct hl_report_moment *moments = report->moments;
	const struct hl_report_change *changes = report->changes;

	for (size_t i = 0; i < report->point_count; i++)
		hl_report_put_unsigned(out, points[i].ms - point_start_ms(report, i));
	for (size_t i = 0; i < report->point_count; i++)
		hl_report_put_signed(out, points[i].bytes);
	for (size_t i = 0; i < report->point_count; i++)
		hl_report_put_unsigned(out, points[i].rss_bytes);
	for (size_t i = 0; i < report->moment_count; i++)
		hl_report_put_unsigned(out, moments[i].point - i * report->moment_points);
	for (size_t i = 0; i < report->moment_count; i++)
		hl_report_put_unsigned(out, moments[i].change_count);
	for (size_t i = 0; i < report->moment_count; i++) {
		uint32_t before = 0;
		for (size_t j = 0; j < moments[i].change_count; j++) {
			uint32_t leaf = leaf_of[changes[moments[i].first_change + j].node];
			hl_report_put_unsigned(out, leaf - before);
			before = leaf;
		}
	}
	for (size_t i = 0; i < report->moment_count; i++)
		for (size_t j = 0; j < moments[i].change_count; j++)
			hl_report_put_signed(out, changes[moments[i].first_change + j].bytes);
	for (size_t i = 0; i < report->moment_count; i++)
		for (size_t j = 0; j < moments[i].change_count; j++)
			hl_report_put_signed(out, changes[moments[i].first_change + j].objects);
}
