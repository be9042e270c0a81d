/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline peaks: the highest hills of the timeline, and which stacks made them. */
#include "base/cleanup.h"
#include "open/history.h"
#include "profile/builder.h"
#include "profile/calltree.h"
#include "view/format.h"
#include "view/rows.h"
#include "view/summary.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PEAKS_MAX 100 /* more are not decoded: each is a search of its own */

/* A hill, and what grew on the way up to it. */
struct peak {
	struct hl_history_hill hill;
	uint64_t tick;	 /* of the maximum */
	int64_t *growth; /* since the valley, by node of the log; later by node of the call tree */
	int64_t *bytes;	 /* at the maximum, likewise */
	size_t node_count;
};

struct peaks {
	struct hl_history *history;
	const struct hl_view_options *options;
	struct hl_history_hill *hills; /* highest first */
	size_t hill_count;
	struct peak peaks[PEAKS_MAX]; /* the first of them */
	size_t peak_count;
	struct hl_calltree tree;
	struct hl_stack_path path;
};

static const struct hl_log_point *point_of(const struct peaks *peaks, const struct peak *peak)
{
	return &peaks->history->points[peak->hill.point];
}

/* ---- hills ---- */

static int higher_first(const void *left, const void *right, void *context)
{
	const struct hl_history_hill *a = left, *b = right;
	const struct hl_history *history = context;
	int64_t a_bytes = history->points[a->point].max_bytes;
	int64_t b_bytes = history->points[b->point].max_bytes;

	if (a_bytes != b_bytes)
		return a_bytes < b_bytes ? 1 : -1;
	return (a->point > b->point) - (a->point < b->point);
}

/* ---- what made them ---- */

static int read_peak(struct peaks *peaks, struct peak *peak, struct hl_log_state *names,
		     struct hl_error *err)
{
	const struct hl_history *history = peaks->history;
	const struct hl_log_point *point = point_of(peaks, peak), *before = NULL;
	uint64_t first = hl_history_head_ms(point); /* before it: nothing happened since then */
	struct hl_log_state *top = NULL, *valley = NULL;

	int r = hl_log_state_at(history->log, point->number, HL_LOG_AT_MAX, &top, err);
	/* Where nothing is known before the hill, the process began then, or it is not known. */
	if (peak->hill.valley != SIZE_MAX)
		before = &history->points[peak->hill.valley];
	else if (history->points != history->log->points)
		before = history->points - 1;
	if (r == 0 && before)
		r = hl_log_state_at(history->log, before->number, HL_LOG_AT_END, &valley, err);
	if (r == 0)
		r = hl_history_names_add(names, top);
	if (r == 0) {
		peak->tick = top->tick > first ? top->tick : first;
		peak->node_count = top->node_count;
		peak->growth = calloc(top->node_count + 1, sizeof(*peak->growth));
		peak->bytes = calloc(top->node_count + 1, sizeof(*peak->bytes));
		r = peak->growth && peak->bytes ? 0 : -ENOMEM;
	}
	for (size_t i = 1; r == 0 && i < peak->node_count; i++) {
		peak->bytes[i] = top->bytes[i];
		peak->growth[i] =
			top->bytes[i] - (valley && i < valley->node_count ? valley->bytes[i] : 0);
	}
	hl_log_state_free(top);
	hl_log_state_free(valley);
	return r;
}

/* Adds up ${figures}, by node of the log, by node of the call tree. */
static int sum_by_stack(const struct peaks *peaks, int64_t **figures, size_t count)
{
	int64_t *sums = calloc(peaks->tree.count, sizeof(*sums));

	if (!sums)
		return -ENOMEM;
	for (size_t i = 1; i < count; i++) {
		uint32_t node = peaks->history->profile_nodes[i];
		if (node != HL_NODE_LEFT_OUT)
			sums[peaks->tree.node_of[node]] += (*figures)[i];
	}
	free(*figures);
	*figures = sums;
	return 0;
}

static int read_peaks(struct peaks *peaks, struct hl_error *err)
{
	struct hl_history *history = peaks->history;
	uint64_t limit = peaks->options->row_limit;
	struct hl_log_state *names = calloc(1, sizeof(*names));

	int r = names ? hl_history_hills(history, peaks->options->peaks.valley, &peaks->hills,
					 &peaks->hill_count)
		      : -ENOMEM;
	if (r == 0) {
		qsort_r(peaks->hills, peaks->hill_count, sizeof(*peaks->hills), higher_first,
			history);
		if (!limit || limit > PEAKS_MAX)
			limit = PEAKS_MAX;
		peaks->peak_count = limit < peaks->hill_count ? (size_t)limit : peaks->hill_count;
	}
	for (size_t i = 0; r == 0 && i < peaks->peak_count; i++) {
		hl_progress_report(history->reading.progress, "reading peaks", i,
				   peaks->peak_count);
		peaks->peaks[i].hill = peaks->hills[i];
		r = read_peak(peaks, &peaks->peaks[i], names, err);
	}
	if (r == 0)
		r = hl_history_name(history, names, err);
	if (r == 0)
		r = hl_calltree_init(&peaks->tree, history->profile, HL_VALUE_INUSE, HL_UNIT_BYTES);
	for (size_t i = 0; r == 0 && i < peaks->peak_count; i++) {
		struct peak *peak = &peaks->peaks[i];
		r = sum_by_stack(peaks, &peak->growth, peak->node_count);
		if (r == 0)
			r = sum_by_stack(peaks, &peak->bytes, peak->node_count);
	}
	if (r == 0)
		r = hl_stack_path_init(&peaks->path, history->profile, &peaks->tree);
	peaks->path.full = peaks->options->full;
	hl_log_state_free(names);
	return r;
}

/* ---- writing ---- */

struct stack {
	uint32_t node;
	int64_t growth, bytes;
};

static int more_growth_first(const void *left, const void *right)
{
	const struct stack *a = left, *b = right;

	if (a->growth != b->growth)
		return a->growth < b->growth ? 1 : -1;
	return (a->node > b->node) - (a->node < b->node);
}

/* Facts of the table. */
enum {
	SHORTENS = 1,
	FULL = 2,
};

#define MEMBER(name) HL_MEMBER(struct stack, name)
#define STACK(what)  HL_MEMBER_CELL(struct stack, node, hl_stack_path_cell_##what)
#define NAME	     HL_COLUMN_SHORTENED | HL_COLUMN_NAMES

static const struct hl_column columns[] = {
	{"growth_bytes", "grew by", HL_COLUMN_BYTES, MEMBER(growth)},
	{NULL, "share", HL_COLUMN_SHARE, MEMBER(growth)},
	{"bytes", "to", HL_COLUMN_BYTES, MEMBER(bytes)},
	{NULL, "stack, from its leaf", HL_COLUMN_TEXT, STACK(line), .flags = NAME,
	 .shown_if = SHORTENS},
	{NULL, "stack, from its leaf", HL_COLUMN_TEXT, STACK(line), .shown_if = FULL},
	{"stack", NULL, HL_COLUMN_STACK, STACK(names)},
	{"frames", NULL, HL_COLUMN_FRAMES, STACK(frames)},
};

static void write_peak(struct hl_emit *emit, struct peaks *peaks, const struct peak *peak)
{
	const struct hl_log_point *point = point_of(peaks, peak);
	const struct hl_history *history = peaks->history;
	int64_t valley = peak->hill.valley_bytes, since;
	char bytes[HL_FORMAT_MAX], rss[HL_FORMAT_MAX], low[HL_FORMAT_MAX];
	HL_FREED struct stack *stacks = calloc(peaks->tree.count, sizeof(*stacks));
	size_t count = 0;

	if (peak->hill.valley == SIZE_MAX)
		since = (int64_t)hl_history_start_ms(history);
	else /* when its interval ended */
		since = (int64_t)hl_history_head_ms(&history->points[peak->hill.valley]) +
			HL_INTERVAL_TICKS;
	hl_emit_object(emit, NULL);
	hl_emit_integer(emit, "ms", peak->tick);
	hl_emit_integer(emit, "bytes", point->max_bytes);
	if (point->rss_bytes)
		hl_emit_integer(emit, "rss_bytes", point->rss_bytes);
	else
		hl_emit_unknown(emit, "rss_bytes");
	hl_emit_integer(emit, "valley_ms", since);
	hl_emit_integer(emit, "valley_bytes", valley);
	hl_emit_boolean(emit, "valley_is_known", peak->hill.valley_is_known);
	hl_emit_blank(emit);
	hl_emit_line(emit, "%s at %llu ms (RSS %s), %s%s at %lld ms",
		     hl_format_bytes(point->max_bytes, bytes), (unsigned long long)peak->tick,
		     point->rss_bytes ? hl_format_bytes(point->rss_bytes, rss) : "unknown",
		     peak->hill.valley_is_known ? "from " : "from what is not known",
		     peak->hill.valley_is_known ? hl_format_bytes(valley, low) : "",
		     (long long)since);
	if (!stacks)
		hl_emit_fail(emit, -ENOMEM);
	for (uint32_t i = 0; stacks && i < peaks->tree.count; i++)
		if (peak->growth[i] > 0)
			stacks[count++] = (struct stack){i, peak->growth[i], peak->bytes[i]};
	if (count)
		qsort(stacks, count, sizeof(*stacks), more_growth_first);
	size_t shown = hl_emit_shown(emit, peaks->options->stack_limit, 0, count);
	hl_stack_path_begin_table(&peaks->path);
	for (size_t i = 0; i < shown; i++)
		if (hl_stack_path_add(&peaks->path, stacks[i].node) < 0)
			hl_emit_fail(emit, -ENOMEM);
	hl_table_write(emit,
		       &(struct hl_table){HL_TABLE("stacks", columns), .context = &peaks->path,
					  .facts = peaks->options->full ? FULL : SHORTENS,
					  .sum = point->max_bytes - valley},
		       stacks, shown, sizeof(*stacks));
	hl_emit_more(emit, count - shown, "--stacks");
	hl_emit_object_end(emit);
}

static void release(struct peaks *peaks)
{
	for (size_t i = 0; i < peaks->peak_count; i++) {
		free(peaks->peaks[i].growth);
		free(peaks->peaks[i].bytes);
	}
	free(peaks->hills);
	hl_stack_path_release(&peaks->path);
	hl_calltree_release(&peaks->tree);
}

int hl_peaks_view(struct hl_history *history, const struct hl_view_options *options,
		  struct hl_error *err)
{
	HL_CLEANUP(release) struct peaks peaks = {.history = history, .options = options};
	struct hl_emit *emit;

	int r = read_peaks(&peaks, err);
	if (r < 0)
		return r == -ENOMEM ? hl_error_set(err, r, "cannot show '%s': out of memory",
						   history->path)
				    : r;
	r = hl_history_head_begin(history, options, "peaks/1", &emit);
	if (r < 0)
		return hl_history_head_fail(history, r, err);
	hl_emit_integer(emit, "hills", peaks.hill_count);
	hl_emit_array(emit, "rows");
	for (size_t i = 0; i < peaks.peak_count; i++)
		write_peak(emit, &peaks, &peaks.peaks[i]);
	hl_emit_array_end(emit);
	if (peaks.peak_count < peaks.hill_count)
		hl_emit_line(emit, "... and %zu more%s", peaks.hill_count - peaks.peak_count,
			     peaks.peak_count < PEAKS_MAX ? "; -n 0 shows all" : "");
	r = hl_emit_finish(emit);
	return r < 0 ? hl_history_head_fail(history, r, err) : 0;
}
