/* SPDX-License-Identifier: BSD-2-Clause */
/* Logs: which segments are used, the timeline without gaps, states and ranges; see log.h. */
#include "log/log.h"

#include "base/array.h"
#include "base/search.h"
#include "log/log_files.h"
#include "log/parallel.h"
#include "log/segment.h"

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

/* ---- reading on from a checkpoint ---- */

/* A segment that is being read: the state, and the interval that comes next. */
struct reading {
	const struct hl_segment *segment;
	struct hl_segment_cursor cursor;
	struct hl_log_state *state;
	struct hl_segment_interval next;
	uint64_t missing_count; /* intervals, up to the last checkpoint */
	bool after_hole;	/* some are missing before `next` */
	size_t visited;		/* intervals that were handed on */
};

static const struct hl_segment_checkpoint *checkpoint_before(const struct hl_segment *segment,
							     uint64_t number)
{
	const struct hl_segment_index *index = &segment->index;
	size_t i = index->checkpoint_count;

	while (i > 1 && index->checkpoints[i - 1].next_interval > number)
		i--;
	return &index->checkpoints[i - 1];
}

/* 1 with the next interval read, 0 at the segment's end, or a negative errno. */
static int read_on(struct reading *reading)
{
	struct hl_byte_reader content;
	struct hl_segment_checkpoint_head head;
	uint32_t kind;
	int r;

	while ((r = hl_segment_next(&reading->cursor, &kind, &content)) > 0) {
		if (kind == HL_PIECE_INTERVAL) {
			r = hl_segment_read_interval(&content, reading->state, &reading->next);
			return r < 0 ? r : 1;
		}
		if (kind != HL_PIECE_CHECKPOINT)
			continue;
		r = hl_segment_read_checkpoint(&content, reading->state, &head);
		if (r < 0)
			return r;
		reading->after_hole |= head.missing_count != reading->missing_count;
		reading->missing_count = head.missing_count;
	}
	return r;
}

/* Begins with the state before interval ${number}, or the first one after it. As read_on(). */
static int begin_reading(struct reading *reading, const struct hl_segment *segment, uint64_t number)
{
	*reading = (struct reading){.segment = segment};
	int r = hl_log_state_new(&reading->state);
	if (r < 0)
		return r;
	hl_segment_cursor_init(&reading->cursor, segment,
			       checkpoint_before(segment, number)->offset);
	while ((r = read_on(reading)) > 0 && reading->next.interval.number < number) {
		r = hl_segment_apply(reading->state, &reading->next.interval, HL_LOG_AT_MAX);
		if (r == 0)
			r = hl_segment_apply(reading->state, &reading->next.interval,
					     HL_LOG_AT_END);
		if (r < 0)
			return r;
	}
	return r;
}

static void end_reading(struct reading *reading)
{
	hl_segment_cursor_release(&reading->cursor);
	hl_log_state_free(reading->state);
	free(reading->next.changes);
}

static int fail(const struct hl_segment *segment, int code, struct hl_error *err)
{
	if (code == -ENOMEM)
		return hl_error_set(err, code, "cannot read '%s': out of memory", segment->path);
	return hl_error_set(err, code, "cannot read '%s': %s", segment->path,
			    code == -EBADMSG ? "it contradicts itself; the log is damaged"
					     : strerror(-code));
}

/* ---- the state at a moment ---- */

/* The last written point that is not after ${number}: its segment and itself. */
static const struct hl_segment *find_point(const struct hl_log *log, uint64_t number,
					   const struct hl_log_point **ret_point)
{
	for (uint32_t i = log->segment_count; i-- > 0;) {
		const struct hl_segment_index *index = &log->segments[i].index;
		size_t at =
			HL_LOWER_BOUND(p, index->point_count, index->points[p].number <= number);

		if (at) {
			*ret_point = &index->points[at - 1];
			return &log->segments[i];
		}
	}
	return NULL;
}

static int read_state(const struct hl_segment *segment, uint64_t number, enum hl_log_moment moment,
		      struct hl_log_state **ret_state)
{
	struct reading reading;

	int r = begin_reading(&reading, segment, number);
	if (r == 0 || (r > 0 && reading.next.interval.number != number))
		r = -EBADMSG; /* the index promised it */
	if (r > 0)
		r = hl_segment_apply(reading.state, &reading.next.interval, HL_LOG_AT_MAX);
	if (r == 0 && moment == HL_LOG_AT_END)
		r = hl_segment_apply(reading.state, &reading.next.interval, HL_LOG_AT_END);
	if (r == 0) {
		reading.state->tick = moment == HL_LOG_AT_MAX
					      ? reading.next.interval.max_tick
					      : (number + 1) * HL_INTERVAL_TICKS - 1;
		*ret_state = reading.state;
		reading.state = NULL;
	}
	end_reading(&reading);
	return r;
}

int hl_log_state_at(const struct hl_log *log, uint64_t number, enum hl_log_moment moment,
		    struct hl_log_state **ret_state, struct hl_error *err)
{
	const struct hl_log_point *point;
	const struct hl_segment *segment = find_point(log, number, &point);

	if (!segment)
		return hl_error_set(err, -ERANGE, "the log begins later: at %llu ms",
				    log->point_count ? (unsigned long long)log->points[0].number *
							       HL_INTERVAL_TICKS
						     : 0ull);
	/* Nothing happened in an interval that was not written: it is as the one before ended. */
	if (point->number != number)
		moment = HL_LOG_AT_END;
	int r = read_state(segment, point->number, moment, ret_state);
	return r < 0 ? fail(segment, r, err) : 0;
}

/* ---- all intervals of a range ---- */

struct range_reading {
	const struct hl_log *log;
	uint64_t first, last;
	const struct hl_log_fold *fold;
	int *results; /* of each segment: 0, or why it ended */
};

/* How many intervals from ${first} to ${last} the index says there are. */
static size_t count_promised(const struct hl_segment_index *index, uint64_t first, uint64_t last)
{
	size_t count = 0;

	for (size_t i = 0; i < index->point_count; i++)
		count += index->points[i].number >= first && index->points[i].number <= last;
	return count;
}

static int fold_interval(const struct range_reading *range, size_t part, struct reading *reading)
{
	const struct hl_log_interval *interval = &reading->next.interval;

	reading->visited++;
	int r = range->fold->visit(range->fold->context, part, interval);
	if (r == 0)
		r = hl_segment_apply(reading->state, interval, HL_LOG_AT_MAX);
	if (r == 0)
		r = hl_segment_apply(reading->state, interval, HL_LOG_AT_END);
	return r;
}

static int fold_intervals(const struct range_reading *range, size_t part, struct reading *reading)
{
	const struct hl_log_fold *fold = range->fold;
	int r = begin_reading(reading, &range->log->segments[part], range->first);

	if (r <= 0 || reading->next.interval.number > range->last)
		return r < 0 ? r : 0;
	int folded = fold->begin(fold->context, part, reading->state);
	reading->after_hole = false;
	while (folded == 0 && r > 0 && reading->next.interval.number <= range->last) {
		if (reading->after_hole)
			folded = fold->begin(fold->context, part, reading->state);
		reading->after_hole = false;
		if (folded == 0)
			folded = fold_interval(range, part, reading);
		if (folded == 0)
			r = read_on(reading);
	}
	if (folded == 0 && r >= 0)
		folded = fold->end(fold->context, part, reading->state);
	return folded ? folded : r < 0 ? r : 0;
}

/* Where a piece is damaged, reading ends before what the index promised: what came out is stale. */
static int fold_segment(const struct range_reading *range, size_t part, struct reading *reading)
{
	const struct hl_segment_index *index = &range->log->segments[part].index;
	int r = fold_intervals(range, part, reading);

	if (r == 0 && reading->visited < count_promised(index, range->first, range->last))
		r = -EBADMSG;
	return r;
}

static int fold_part(void *context, size_t part)
{
	struct range_reading *range = context;
	struct reading reading;

	range->results[part] = fold_segment(range, part, &reading);
	end_reading(&reading);
	return range->results[part];
}

int hl_log_read(const struct hl_log *log, uint64_t first, uint64_t last,
		const struct hl_log_options *options, const struct hl_log_fold *fold,
		struct hl_error *err)
{
	struct range_reading range = {log, first, last, fold,
				      calloc(log->segment_count, sizeof(*range.results))};

	if (!range.results)
		return hl_error_set(err, -ENOMEM, "cannot read the log: out of memory");
	hl_parallel(log->segment_count, options, "reading the log", fold_part, &range);
	int r = 0;
	for (uint32_t i = 0; r == 0 && i < log->segment_count; i++)
		if (range.results[i])
			r = range.results[i] < 0 ? fail(&log->segments[i], range.results[i], err)
						 : range.results[i];
	free(range.results);
	return r;
}
