/* SPDX-License-Identifier: BSD-2-Clause */
/* What is in a log's segments: the state at a moment, and all intervals of a range. */
#include "log/log_reader.h"

#include "base/search.h"
#include "log/parallel.h"
#include "log/segment_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
