/* SPDX-License-Identifier: BSD-2-Clause */
/* Logs: which segments are used, the timeline without gaps, states and ranges; see log.h. */
#include "log/log.h"

#include "base/array.h"
#include "base/compiler.h"
#include "log/segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- states: read from checkpoints, changed by intervals ---- */

#define NODE_MAX   ((1u << 24) - 1)
#define MODULE_MAX 65534u

int hl_log_state_new(struct hl_log_state **ret_state)
{
	struct hl_log_state *state = calloc(1, sizeof(*state));

	if (!state)
		return -ENOMEM;
	*ret_state = state;
	return 0;
}

void hl_log_state_free(struct hl_log_state *state)
{
	if (!state)
		return;
	for (size_t i = 0; i < state->module_count; i++)
		free((char *)state->modules[i].path);
	for (size_t i = 0; i < state->site_count; i++) {
		free((char *)state->sites[i].function);
		free((char *)state->sites[i].source);
	}
	free(state->sites);
	free(state->modules);
	free(state->nodes);
	free(state->bytes);
	free(state->objects);
	free(state);
}

/* ---- nodes ---- */

static int reserve_node(struct hl_log_state *state, uint64_t id)
{
	if (id < state->node_count)
		return 0;
	if (id > NODE_MAX)
		return -EBADMSG;
	size_t count = (size_t)id + 1;
	/* The arrays have one capacity, which counts once all three have it. */
	size_t bytes = state->node_capacity, objects = bytes, nodes = bytes;
	if (HL_ARRAY_RESERVE_ZEROED(state->bytes, bytes, count) < 0 ||
	    HL_ARRAY_RESERVE_ZEROED(state->objects, objects, count) < 0 ||
	    HL_ARRAY_RESERVE_ZEROED(state->nodes, nodes, count) < 0)
		return -ENOMEM;
	state->node_capacity = nodes;
	state->node_count = count;
	return 0;
}

/* By id, ascending: the difference from the one before, that from its parent, the frame. */
static int read_definitions(struct hl_byte_reader *content, struct hl_log_state *state)
{
	uint64_t count = hl_byte_reader_number(content), id = 0;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t gap = hl_byte_reader_number(content);
		id += gap;
		uint64_t parent = id - (uint64_t)hl_byte_reader_signed(content);
		uint64_t module = hl_byte_reader_number(content);
		uint64_t low = hl_byte_reader_number(content);
		if (content->failed || !gap || gap > NODE_MAX || parent > NODE_MAX ||
		    module > 0xffff || low >> 48)
			return -EBADMSG;
		int r = reserve_node(state, id > parent ? id : parent);
		if (r < 0)
			return r;
		state->nodes[id] = (struct hl_log_node){module << 48 | low, (uint32_t)parent, true};
	}
	return content->failed ? -EBADMSG : 0;
}

/* ---- modules ---- */

/* A text of its own, to be freed. 0, -ENOMEM or -EBADMSG. */
static int read_text(struct hl_byte_reader *content, char **ret_text)
{
	uint64_t length = hl_byte_reader_number(content);
	const uint8_t *bytes = hl_byte_reader_bytes(content, length);
	char *text = bytes ? strndup((const char *)bytes, (size_t)length) : NULL;

	if (!text)
		return bytes ? -ENOMEM : -EBADMSG;
	*ret_text = text;
	return 0;
}

static int read_module(struct hl_byte_reader *content, struct hl_log_module *module)
{
	HL_FREED char *path = NULL;
	int r = read_text(content, &path);

	if (r < 0)
		return r;
	*module = (struct hl_log_module){
		.start = hl_byte_reader_number(content),
		.end = hl_byte_reader_number(content),
		.load_bias = hl_byte_reader_number(content),
	};
	uint64_t bytes = hl_byte_reader_number(content);
	const uint8_t *build_id = hl_byte_reader_bytes(content, bytes);
	if (!build_id || bytes > sizeof(module->build_id))
		return -EBADMSG;
	memcpy(module->build_id, build_id, bytes);
	module->build_id_bytes = (uint32_t)bytes;
	module->path = HL_TAKE(path);
	return 0;
}

/* Modules that are known already are skipped. */
static int read_modules(struct hl_byte_reader *content, struct hl_log_state *state)
{
	uint64_t first = hl_byte_reader_number(content);
	uint64_t count = hl_byte_reader_number(content);

	if (content->failed || first > state->module_count || count > MODULE_MAX ||
	    first + count > MODULE_MAX)
		return -EBADMSG;
	for (uint64_t i = first; i < first + count; i++) {
		struct hl_log_module module;
		int r = read_module(content, &module);
		if (r < 0)
			return r;
		if (i >= state->module_count)
			r = HL_ARRAY_APPEND(state->modules, state->module_count,
					    state->module_capacity, module);
		else
			free((char *)module.path);
		if (r < 0) {
			free((char *)module.path);
			return r;
		}
	}
	return 0;
}

int hl_log_state_read_names(struct hl_byte_reader *content, struct hl_log_state *state)
{
	int r = read_modules(content, state);

	return r < 0 ? r : read_definitions(content, state);
}

/* ---- places in scripts ---- */

static int read_providers(struct hl_byte_reader *content, struct hl_log_state *state)
{
	uint64_t count = hl_byte_reader_number(content);

	if (content->failed || count > HL_SCRIPT_PROVIDERS_MAX)
		return -EBADMSG;
	for (uint64_t i = 0; i < count; i++) {
		HL_FREED char *name = NULL;
		int r = read_text(content, &name);
		if (r < 0)
			return r;
		struct hl_region_provider provider = {
			.eval_start = hl_byte_reader_number(content),
			.eval_end = hl_byte_reader_number(content),
			.cold_start = hl_byte_reader_number(content),
			.cold_end = hl_byte_reader_number(content),
			.text_start = hl_byte_reader_number(content),
			.text_end = hl_byte_reader_number(content),
			.alloc_start = hl_byte_reader_number(content),
			.alloc_end = hl_byte_reader_number(content),
		};
		strncpy(provider.name, name, sizeof(provider.name) - 1);
		state->providers[i] = provider;
	}
	if (count > state->provider_count)
		state->provider_count = (uint32_t)count;
	return content->failed ? -EBADMSG : 0;
}

static int read_site(struct hl_byte_reader *content, struct hl_log_state *state)
{
	HL_FREED char *function = NULL, *source = NULL;
	uint64_t number = hl_byte_reader_number(content);
	struct hl_log_site site = {
		.provider = (uint32_t)hl_byte_reader_number(content),
		.line = (uint32_t)hl_byte_reader_number(content),
		.first_line = (uint32_t)hl_byte_reader_number(content),
	};
	int r = read_text(content, &function);

	if (r == 0)
		r = read_text(content, &source);
	if (r < 0)
		return r;
	if (!number || number > HL_SITES_MAX || site.provider >= HL_SCRIPT_PROVIDERS_MAX ||
	    site.provider >= state->provider_count)
		return -EBADMSG;
	if (HL_ARRAY_RESERVE_ZEROED(state->sites, state->site_capacity, (size_t)number + 1) < 0)
		return -ENOMEM;
	if (number >= state->site_count)
		state->site_count = (size_t)number + 1;
	if (state->sites[number].function) /* it is defined again after each checkpoint */
		return 0;
	site.function = HL_TAKE(function);
	site.source = HL_TAKE(source);
	state->sites[number] = site;
	return 0;
}

/* They end a piece, if new ones are used in it; older versions wrote none. */
static int read_sites(struct hl_byte_reader *content, struct hl_log_state *state)
{
	if (content->failed || content->at == content->end)
		return content->failed ? -EBADMSG : 0;
	int r = read_providers(content, state);
	uint64_t count = r == 0 ? hl_byte_reader_number(content) : 0;
	for (uint64_t i = 0; r == 0 && i < count; i++)
		r = read_site(content, state);
	return r < 0 || !content->failed ? r : -EBADMSG;
}

/* ---- checkpoints ---- */

static int add(struct hl_log_state *state, uint64_t id, int64_t bytes, int64_t objects)
{
	int r = reserve_node(state, id);

	if (r < 0)
		return r;
	state->bytes[id] += bytes;
	state->objects[id] += objects;
	state->total_bytes += bytes;
	state->total_objects += objects;
	return 0;
}

int hl_log_state_read_checkpoint(struct hl_byte_reader *content, struct hl_log_state *state,
				 struct hl_segment_checkpoint_head *ret_head)
{
	struct hl_segment_checkpoint_head head = {hl_byte_reader_number(content),
						  hl_byte_reader_number(content)};

	if (state->node_count) {
		memset(state->bytes, 0, state->node_count * sizeof(*state->bytes));
		memset(state->objects, 0, state->node_count * sizeof(*state->objects));
	}
	state->total_bytes = state->total_objects = 0;
	int r = hl_log_state_read_names(content, state);
	if (r < 0)
		return r;
	uint64_t count = hl_byte_reader_number(content), id = 0;
	for (uint64_t i = 0; i < count; i++) {
		uint64_t gap = hl_byte_reader_number(content);
		int64_t bytes = hl_byte_reader_signed(content);
		int64_t objects = hl_byte_reader_signed(content);
		id += gap;
		if (content->failed || !gap || gap > NODE_MAX)
			return -EBADMSG;
		r = add(state, id, bytes, objects);
		if (r < 0)
			return r;
	}
	r = read_sites(content, state);
	if (r < 0)
		return r;
	*ret_head = head;
	return 0;
}

/* ---- intervals ---- */

int hl_log_state_read_interval(struct hl_byte_reader *content, struct hl_log_state *state,
			       struct hl_segment_interval *interval)
{
	interval->interval = (struct hl_log_interval){
		.number = hl_byte_reader_number(content),
		.max_tick = hl_byte_reader_number(content),
		.max_bytes = hl_byte_reader_signed(content),
		.max_objects = hl_byte_reader_signed(content),
		.end_bytes = hl_byte_reader_signed(content),
		.end_objects = hl_byte_reader_signed(content),
	};
	interval->rss_bytes = hl_byte_reader_number(content);
	interval->interval.events = hl_byte_reader_number(content);
	interval->lost_events = hl_byte_reader_number(content);
	int r = hl_log_state_read_names(content, state);
	if (r < 0)
		return r;
	uint64_t count = hl_byte_reader_number(content), id = 0;
	/* Each change takes five bytes at least: the content bounds what is allocated. */
	if (content->failed || count > (uint64_t)(content->end - content->at))
		return -EBADMSG;
	if (HL_ARRAY_RESERVE(interval->changes, interval->change_capacity, (size_t)count + 1) < 0)
		return -ENOMEM;
	for (uint64_t i = 0; i < count; i++) {
		uint64_t gap = hl_byte_reader_number(content);
		id += gap;
		interval->changes[i] = (struct hl_log_change){
			.node = (uint32_t)id,
			.max_bytes = hl_byte_reader_signed(content),
			.max_objects = hl_byte_reader_signed(content),
			.rest_bytes = hl_byte_reader_signed(content),
			.rest_objects = hl_byte_reader_signed(content),
		};
		if (content->failed || !gap || gap > NODE_MAX || id > NODE_MAX)
			return -EBADMSG;
	}
	interval->interval.changes = interval->changes;
	interval->interval.change_count = (size_t)count;
	return read_sites(content, state);
}

/* Adds the changes to the maximum, or those from there to the end, to ${state}. 0 or -ENOMEM. */
static int state_apply(struct hl_log_state *state, const struct hl_log_interval *interval,
		       enum hl_log_moment part)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < interval->change_count; i++) {
		const struct hl_log_change *change = &interval->changes[i];
		if (part == HL_LOG_AT_MAX)
			r = add(state, change->node, change->max_bytes, change->max_objects);
		else
			r = add(state, change->node, change->rest_bytes, change->rest_objects);
	}
	return r;
}

/* A month of intervals; a damaged log must not take all memory. */
#define POINTS_MAX (UINT64_C(32) << 20)

/* ---- which segments are used ---- */

/*
 * Uses the newest run of segments in which none is damaged or of another recording. The newest ones
 * may hold nothing whole yet, or nothing any more, and are left out.
 */
static int use_segments(struct hl_log *log, struct hl_segment_run *run, struct hl_error *err)
{
	struct hl_segment_found *files = run->files;
	size_t last = run->count, first;

	log->segments = calloc(run->count, sizeof(*log->segments));
	log->cuts = calloc(run->count, sizeof(*log->cuts));
	if (!log->segments || !log->cuts)
		return -ENOMEM;
	while (last > 1 && files[last - 1].result == -ENODATA)
		last--;
	uint64_t start_ns = files[last - 1].segment.header.start_realtime_ns;
	for (first = last; first > 0; first--)
		if (files[first - 1].result < 0 ||
		    files[first - 1].segment.header.start_realtime_ns != start_ns)
			break;
	if (first == last)
		return hl_error_set(err, files[last - 1].result, "%s", files[last - 1].err.text);
	/* An old segment that was cut off before its first interval says nothing. */
	while (first + 1 < last && files[first].segment.cut_off &&
	       !files[first].segment.index.point_count)
		first++;
	log->foreign_count = run->foreign_count;
	strcpy(log->foreign_name, run->foreign_name);
	log->ignored_count = run->ignored_count + (uint32_t)first;
	log->cut_off = last < run->count || files[last - 1].segment.cut_off;
	log->damaged = files[last - 1].segment.damaged ? files[last - 1].segment.path : NULL;
	log->start_realtime_ns = start_ns;
	log->lost_events = files[last - 1].segment.index.lost_events;
	log->missing_count = files[last - 1].segment.index.missing_count;
	for (size_t i = first; i < last; i++) {
		log->segments[log->segment_count++] = files[i].segment;
		files[i].segment = (struct hl_segment){.fd = -1};
	}
	return 0;
}

/* ---- the timeline ---- */

/* Adds a point, and before it those of intervals that were not written: some of these are missing
 * if the point says so. A point that does not come after the one before, or comes after more than
 * any log holds, can only be damage, and is left out. */
static int add_point(struct hl_log *log, size_t *capacity, const struct hl_log_point *point)
{
	const struct hl_log_point *before =
		log->point_count ? &log->points[log->point_count - 1] : NULL;
	uint64_t step = before ? point->number - before->number : 1;

	if ((before && point->number <= before->number) || step > POINTS_MAX - log->point_count)
		return 0;
	if (HL_ARRAY_RESERVE(log->points, *capacity, log->point_count + step) < 0)
		return -ENOMEM;
	if (log->point_count) {
		struct hl_log_point gap = log->points[log->point_count - 1];
		gap.max_bytes = gap.end_bytes;
		gap.missing = point->missing;
		while (++gap.number < point->number)
			log->points[log->point_count++] = gap;
	}
	log->points[log->point_count] = *point;
	log->points[log->point_count++].missing = false;
	return 0;
}

/*
 * Segment ${index} has no end, but another one follows. The intervals between the last one that is
 * left of it and ${next} may have been in it, unless they could not be written, which was counted.
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

static int collect_points(struct hl_log *log)
{
	size_t capacity = 0;
	int r = 0;

	for (uint32_t i = 0; i < log->segment_count; i++) {
		const struct hl_segment *segment = &log->segments[i];
		const struct hl_segment_index *index = &segment->index;
		for (size_t at = 0; r == 0 && at < index->point_count; at++) {
			struct hl_log_point point = index->points[at];
			/* The index of a segment that was cut off would have said what is missing
			 * before it. */
			if (at == 0 && i > 0 && segment->cut_off)
				point.missing |=
					segment->missing_before != segment[-1].index.missing_count;
			if (at == 0 && i > 0 && segment[-1].cut_off)
				note_cut(log, i - 1, &point);
			r = add_point(log, &capacity, &point);
		}
	}
	return r;
}

static int earlier_first(const void *left, const void *right)
{
	const struct hl_log_mark *a = *(const struct hl_log_mark *const *)left;
	const struct hl_log_mark *b = *(const struct hl_log_mark *const *)right;

	if (a->tick != b->tick)
		return a->tick < b->tick ? -1 : 1;
	return (a > b) - (a < b);
}

/* A program's marks come to the collector later than those of heapline ctl. Their texts stay the
 * segments'. */
static int collect_marks(struct hl_log *log)
{
	size_t count = 0, at = 0;

	for (uint32_t i = 0; i < log->segment_count; i++)
		count += log->segments[i].index.mark_count;
	HL_FREED const struct hl_log_mark **order = calloc(count + 1, sizeof(*order));
	HL_FREED struct hl_log_mark *written = calloc(count + 1, sizeof(*written));
	log->marks = calloc(count + 1, sizeof(*log->marks));
	if (!order || !written || !log->marks)
		return -ENOMEM;
	for (uint32_t i = 0; i < log->segment_count; i++) {
		const struct hl_segment_index *index = &log->segments[i].index;
		for (size_t mark = 0; mark < index->mark_count; mark++, at++) {
			written[at] = index->marks[mark];
			order[at] = &written[at];
		}
	}
	if (count > 1)
		qsort(order, count, sizeof(*order), earlier_first);
	for (size_t i = 0; i < count; i++)
		log->marks[i] = *order[i];
	log->mark_count = count;
	return 0;
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
		r = collect_points(log);
	if (r == 0)
		r = collect_marks(log);
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
};

/* 1 with the next interval read, 0 at the segment's end, or a negative errno. */
static int read_on(struct reading *reading)
{
	struct hl_byte_reader content;
	struct hl_segment_checkpoint_head head;
	uint32_t kind;
	int r;

	while ((r = hl_segment_next(&reading->cursor, &kind, &content)) > 0) {
		if (kind == HL_PIECE_INTERVAL) {
			r = hl_log_state_read_interval(&content, reading->state, &reading->next);
			return r < 0 ? r : 1;
		}
		if (kind != HL_PIECE_CHECKPOINT)
			continue;
		r = hl_log_state_read_checkpoint(&content, reading->state, &head);
		if (r < 0)
			return r;
		reading->after_hole |= head.missing_count != reading->missing_count;
		reading->missing_count = head.missing_count;
	}
	return r;
}

static int apply_interval(struct reading *reading)
{
	int r = state_apply(reading->state, &reading->next.interval, HL_LOG_AT_MAX);

	return r < 0 ? r : state_apply(reading->state, &reading->next.interval, HL_LOG_AT_END);
}

/* Begins with the state before interval ${number}, or the first one after it. As read_on(). */
static int begin_reading(struct reading *reading, const struct hl_segment *segment, uint64_t number)
{
	const struct hl_segment_index *index = &segment->index;
	size_t i = index->checkpoint_count - 1;

	while (i > 0 && index->checkpoints[i].next_interval > number)
		i--;
	*reading = (struct reading){.segment = segment};
	int r = hl_log_state_new(&reading->state);
	if (r < 0)
		return r;
	hl_segment_cursor_init(&reading->cursor, segment, index->checkpoints[i].offset);
	while ((r = read_on(reading)) > 0 && reading->next.interval.number < number) {
		r = apply_interval(reading);
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

int hl_log_state_at(const struct hl_log *log, uint64_t number, enum hl_log_moment moment,
		    struct hl_log_state **ret_state, struct hl_error *err)
{
	const struct hl_log_point *point;
	const struct hl_segment *segment = find_point(log, number, &point);
	struct reading reading;

	if (!segment)
		return hl_error_set(err, -ERANGE, "the log begins later: at %llu ms",
				    log->point_count ? (unsigned long long)log->points[0].number *
							       HL_INTERVAL_TICKS
						     : 0ull);
	/* Nothing happened in an interval that was not written: it is as the one before ended. */
	if (point->number != number)
		moment = HL_LOG_AT_END;
	int r = begin_reading(&reading, segment, point->number);
	const struct hl_log_interval *interval = &reading.next.interval;
	if (r == 0 || (r > 0 && interval->number != point->number))
		r = -EBADMSG; /* the index promised it */
	if (r > 0)
		r = state_apply(reading.state, interval, HL_LOG_AT_MAX);
	if (r == 0 && moment == HL_LOG_AT_END)
		r = state_apply(reading.state, interval, HL_LOG_AT_END);
	if (r == 0) {
		reading.state->tick = moment == HL_LOG_AT_MAX
					      ? interval->max_tick
					      : (point->number + 1) * HL_INTERVAL_TICKS - 1;
		*ret_state = HL_TAKE(reading.state);
	}
	end_reading(&reading);
	return r < 0 ? fail(segment, r, err) : 0;
}

/* ---- all intervals of a range ---- */

struct range_reading {
	const struct hl_log *log;
	uint64_t first, last;
	struct hl_log_fold fold;
	int *results; /* of each segment: 0, or why it ended */
};

static int pass_state(void *context, size_t part, const struct hl_log_state *state)
{
	(void)context, (void)part, (void)state;
	return 0;
}

static int pass_interval(void *context, size_t part, const struct hl_log_interval *interval)
{
	(void)context, (void)part, (void)interval;
	return 0;
}

/* A damaged piece ends the reading before all intervals came that the index promised: that is an
 * error, as the figures would be stale. */
static int fold_part(void *context, size_t part)
{
	struct range_reading *range = context;
	const struct hl_log_fold *fold = &range->fold;
	const struct hl_segment *segment = &range->log->segments[part];
	const struct hl_log_point *points = segment->index.points;
	struct reading reading;
	size_t promised = 0, visited = 0;
	int folded = 0;

	for (size_t i = 0; i < segment->index.point_count; i++)
		promised += points[i].number >= range->first && points[i].number <= range->last;
	int r = begin_reading(&reading, segment, range->first);
	bool has_any = r > 0 && reading.next.interval.number <= range->last;
	if (has_any)
		folded = fold->begin(fold->context, part, reading.state);
	reading.after_hole = false;
	while (folded == 0 && r > 0 && reading.next.interval.number <= range->last) {
		if (reading.after_hole)
			folded = fold->begin(fold->context, part, reading.state);
		reading.after_hole = false;
		visited += folded == 0;
		if (folded == 0)
			folded = fold->visit(fold->context, part, &reading.next.interval);
		if (folded == 0)
			folded = apply_interval(&reading);
		if (folded == 0)
			r = read_on(&reading);
	}
	if (has_any && folded == 0 && r >= 0)
		folded = fold->end(fold->context, part, reading.state);
	if (folded == 0 && r >= 0 && visited < promised)
		r = -EBADMSG;
	end_reading(&reading);
	range->results[part] = folded ? folded : r < 0 ? r : 0;
	return range->results[part];
}

int hl_log_read(const struct hl_log *log, uint64_t first, uint64_t last,
		const struct hl_log_options *options, const struct hl_log_fold *fold,
		struct hl_error *err)
{
	HL_CLEANUP(hl_log_state_free_at) struct hl_log_state *state = NULL;
	HL_FREED int *results = calloc(log->segment_count, sizeof(*results));
	struct range_reading range = {log, first, last, *fold, results};
	const struct hl_log_point *point;

	if (!results)
		return hl_error_set(err, -ENOMEM, "cannot read the log: out of memory");
	range.fold.begin = fold->begin ?: pass_state;
	range.fold.visit = fold->visit ?: pass_interval;
	range.fold.end = fold->end ?: pass_state;
	hl_parallel(log->segment_count, options, "reading the log", fold_part, &range);
	for (uint32_t i = 0; i < log->segment_count; i++)
		if (results[i])
			return results[i] < 0 ? fail(&log->segments[i], results[i], err)
					      : results[i];
	if (!find_point(log, last, &point) || point->number >= first)
		return 0;
	/* The range has no interval that was written: it is as the one before it ended. */
	int r = hl_log_state_at(log, first, HL_LOG_AT_END, &state, err);
	if (r == 0)
		r = range.fold.begin(fold->context, 0, state);
	return r ? r : range.fold.end(fold->context, 0, state);
}
