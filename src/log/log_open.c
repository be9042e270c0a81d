/* SPDX-License-Identifier: BSD-2-Clause */
/* Segments opened as one log: which are used, and the timeline without gaps; see log_reader.h. */
#include "log/log_reader.h"

#include "base/array.h"
#include "log/log_files.h"
#include "log/segment_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A month of intervals; a damaged log must not take all memory. */
#define POINTS_MAX (UINT64_C(32) << 20)

/* ---- which segments are used ---- */

/* Whether segment ${index} is part of the log whose newest one is ${newest}. */
static bool is_usable(const struct hl_segment_run *run, size_t index, size_t newest)
{
	return run->files[index].result == 0 &&
	       run->files[index].segment.header.start_realtime_ns ==
		       run->files[newest].segment.header.start_realtime_ns;
}

/* A segment of which only the beginning is left, before its first interval. */
static bool is_empty(const struct hl_segment *segment)
{
	return segment->cut_off && !segment->index.point_count;
}

/*
 * Which of the opened segments are used: the newest run without one that is damaged or of another
 * recording. The newest ones may have nothing whole in them, yet or any more.
 */
static int use_segments(struct hl_log *log, struct hl_segment_run *run, struct hl_error *err)
{
	struct hl_segment_found *files = run->files;
	size_t last = run->count, first;

	log->segments = calloc(run->count, sizeof(*log->segments));
	if (!log->segments)
		return -ENOMEM;
	while (last > 1 && files[last - 1].result == -ENODATA)
		last--;
	for (first = last; first > 0 && is_usable(run, first - 1, last - 1); first--)
		continue;
	if (first == last)
		return hl_error_set(err, files[last - 1].result, "%s", files[last - 1].err.text);
	while (first + 1 < last && is_empty(&files[first].segment))
		first++;
	log->foreign_count = run->foreign_count;
	log->ignored_count = run->ignored_count + (uint32_t)first;
	log->cut_off = last < run->count || files[last - 1].segment.cut_off;
	for (size_t i = first; i < last; i++) {
		log->segments[log->segment_count++] = files[i].segment;
		files[i].segment = (struct hl_segment){.fd = -1};
	}
	return 0;
}

/* ---- the timeline ---- */

/* Intervals that were not written, up to ${next}; some of them are missing if ${next} says so. */
static void fill_gap(struct hl_log *log, const struct hl_log_point *next)
{
	const struct hl_log_point *before = &log->points[log->point_count - 1];
	struct hl_log_point gap = {
		.number = before->number,
		.max_bytes = before->end_bytes,
		.end_bytes = before->end_bytes,
		.rss_bytes = before->rss_bytes,
		.missing = next->missing,
	};

	while (++gap.number < next->number)
		log->points[log->point_count++] = gap;
}

/* A point that does not come after the one before, or comes after more than any log holds, can only
 * be damage, and is left out. */
static int add_point(struct hl_log *log, size_t *capacity, const struct hl_log_point *point)
{
	const struct hl_log_point *before =
		log->point_count ? &log->points[log->point_count - 1] : NULL;
	uint64_t step = before ? point->number - before->number : 1;

	if ((before && point->number <= before->number) || step > POINTS_MAX - log->point_count)
		return 0;
	if (HL_ARRAY_RESERVE(log->points, *capacity, log->point_count + step) < 0)
		return -ENOMEM;
	if (before)
		fill_gap(log, point);
	log->points[log->point_count] = *point;
	log->points[log->point_count++].missing = false;
	return 0;
}

/*
 * Segment ${index} is followed by another, and has no end. What is between what is left of it and
 * ${next} may have been in it, unless there was no room to write it, which has been counted.
 */
static void note_cut(struct hl_log *log, uint32_t index, struct hl_log_point *next)
{
	uint64_t before = log->point_count ? log->points[log->point_count - 1].number : UINT64_MAX;

	if (before >= next->number || next->number - before == 1 ||
	    next->number - before > POINTS_MAX)
		return;
	if (!next->missing)
		log->missing_count += next->number - before - 1;
	next->missing = true;
	log->cuts[log->cut_count++] =
		(struct hl_log_cut){log->segments[index].path, before + 1, next->number - 1};
}

/* Whether intervals are missing between segment ${index} and the one before, which the index of
 * one that was cut off would have said. */
static bool has_hole_before(const struct hl_log *log, uint32_t index)
{
	const struct hl_segment *segment = &log->segments[index];

	return segment->cut_off &&
	       segment->missing_before != log->segments[index - 1].index.missing_count;
}

static int collect_points(struct hl_log *log)
{
	size_t capacity = 0;
	int r = 0;

	for (uint32_t i = 0; i < log->segment_count; i++) {
		const struct hl_segment_index *index = &log->segments[i].index;
		for (size_t at = 0; r == 0 && at < index->point_count; at++) {
			struct hl_log_point point = index->points[at];
			if (at == 0 && i > 0)
				point.missing |= has_hole_before(log, i);
			if (at == 0 && i > 0 && log->segments[i - 1].cut_off)
				note_cut(log, i - 1, &point);
			r = add_point(log, &capacity, &point);
		}
	}
	return r;
}

static int collect_marks(struct hl_log *log)
{
	size_t count = 0;

	for (uint32_t i = 0; i < log->segment_count; i++)
		count += log->segments[i].index.mark_count;
	log->marks = calloc(count + 1, sizeof(*log->marks));
	if (!log->marks)
		return -ENOMEM;
	for (uint32_t i = 0; i < log->segment_count; i++) {
		const struct hl_segment_index *index = &log->segments[i].index;
		for (size_t at = 0; at < index->mark_count; at++) {
			struct hl_log_mark *mark = &log->marks[log->mark_count];
			*mark = (struct hl_log_mark){index->marks[at].tick,
						     strdup(index->marks[at].text)};
			if (!mark->text)
				return -ENOMEM;
			log->mark_count++;
		}
	}
	return 0;
}

static int earlier_first(const void *left, const void *right)
{
	const struct hl_log_mark *a = *(const struct hl_log_mark *const *)left;
	const struct hl_log_mark *b = *(const struct hl_log_mark *const *)right;

	if (a->tick != b->tick)
		return a->tick < b->tick ? -1 : 1;
	return (a > b) - (a < b);
}

/* A program's marks come to the collector later than those of heapline ctl. */
static int sort_marks(struct hl_log *log)
{
	struct hl_log_mark *sorted = calloc(log->mark_count + 1, sizeof(*sorted));
	const struct hl_log_mark **order = calloc(log->mark_count + 1, sizeof(*order));

	if (!sorted || !order) {
		free(sorted);
		free(order);
		return -ENOMEM;
	}
	for (size_t i = 0; i < log->mark_count; i++)
		order[i] = &log->marks[i];
	qsort(order, log->mark_count, sizeof(*order), earlier_first);
	for (size_t i = 0; i < log->mark_count; i++)
		sorted[i] = *order[i];
	free(order);
	free(log->marks);
	log->marks = sorted;
	return 0;
}

static int sum_up(struct hl_log *log)
{
	const struct hl_segment *newest = &log->segments[log->segment_count - 1];

	log->start_realtime_ns = newest->header.start_realtime_ns;
	log->lost_events = newest->index.lost_events;
	log->missing_count = newest->index.missing_count;
	log->cuts = calloc(log->segment_count, sizeof(*log->cuts));
	int r = log->cuts ? collect_points(log) : -ENOMEM;
	if (r == 0)
		r = collect_marks(log);
	return r < 0 ? r : sort_marks(log);
}

/* ---- the log ---- */

int hl_log_open(const struct hl_log_place *place, uint32_t process,
		const struct hl_log_options *options, struct hl_log **ret_log, struct hl_error *err)
{
	struct hl_segment_run run = {0};
	struct hl_log *log = calloc(1, sizeof(*log));

	int r = log ? hl_segment_run_open(&run, place, &hl_log_segments, process, options, err)
		    : -ENOMEM;
	if (r == 0) {
		log->process = process;
		r = use_segments(log, &run, err);
	}
	if (r == 0)
		r = sum_up(log);
	hl_segment_run_release(&run);
	if (r == 0) {
		*ret_log = log;
		return 0;
	}
	hl_log_free(log);
	return r == -ENOMEM ? hl_error_set(err, r, "cannot read the log in '%s': out of memory",
					   place->path)
			    : r;
}

void hl_log_free(struct hl_log *log)
{
	if (!log)
		return;
	for (uint32_t i = 0; i < log->segment_count; i++)
		hl_segment_release(&log->segments[i]);
	for (size_t i = 0; i < log->mark_count; i++)
		free(log->marks[i].text);
	free(log->segments);
	free(log->points);
	free(log->cuts);
	free(log->marks);
	free(log);
}
