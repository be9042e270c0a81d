/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline peaks: the highest hills of the timeline, and which stacks made them. */
#include "open/history_hills.h"
#include "profile/calltree.h"
#include "profile/history_names.h"
#include "view/format.h"
#include "view/history_head.h"
#include "view/stack_path.h"

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

static int find_hills(struct peaks *peaks)
{
	uint64_t limit = peaks->options->row_limit;

	int r = hl_history_hills(peaks->history, peaks->options->valley, &peaks->hills,
				 &peaks->hill_count);
	if (r < 0)
		return r;
	qsort_r(peaks->hills, peaks->hill_count, sizeof(*peaks->hills), higher_first,
		peaks->history);
	if (!limit || limit > PEAKS_MAX)
		limit = PEAKS_MAX;
	peaks->peak_count = limit < peaks->hill_count ? (size_t)limit : peaks->hill_count;
	for (size_t i = 0; i < peaks->peak_count; i++)
		peaks->peaks[i].hill = peaks->hills[i];
	return 0;
}

/* ---- what made them ---- */

/* What was in use in the valley before the hill; NULL where nothing is known before it. */
static int read_valley(const struct peaks *peaks, const struct peak *peak,
		       struct hl_log_state **ret_state, struct hl_error *err)
{
	const struct hl_history *history = peaks->history;
	const struct hl_log_point *points = history->points;
	size_t valley = peak->hill.valley;

	*ret_state = NULL;
	if (valley == SIZE_MAX && points == history->log->points)
		return 0; /* the process began then, or it is not known */
	return hl_log_state_at(history->log,
			       valley == SIZE_MAX ? points[-1].number : points[valley].number,
			       HL_LOG_AT_END, ret_state, err);
}

static int subtract(struct peak *peak, const struct hl_log_state *top,
		    const struct hl_log_state *valley)
{
	peak->node_count = top->node_count;
	peak->growth = calloc(top->node_count + 1, sizeof(*peak->growth));
	peak->bytes = calloc(top->node_count + 1, sizeof(*peak->bytes));
	if (!peak->growth || !peak->bytes)
		return -ENOMEM;
	for (size_t i = 1; i < top->node_count; i++) {
		peak->bytes[i] = top->bytes[i];
		peak->growth[i] =
			top->bytes[i] - (valley && i < valley->node_count ? valley->bytes[i] : 0);
	}
	return 0;
}

static int read_peak(struct peaks *peaks, struct peak *peak, struct hl_log_state *names,
		     struct hl_error *err)
{
	const struct hl_log_point *point = point_of(peaks, peak);
	uint64_t first = hl_history_head_ms(point); /* before it: nothing happened since then */
	struct hl_log_state *top = NULL, *valley = NULL;

	int r = hl_log_state_at(peaks->history->log, point->number, HL_LOG_AT_MAX, &top, err);
	if (r == 0)
		r = read_valley(peaks, peak, &valley, err);
	if (r == 0)
		r = subtract(peak, top, valley);
	if (r == 0)
		r = hl_history_names_add(names, top);
	if (r == 0)
		peak->tick = top->tick > first ? top->tick : first;
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

static int name_stacks(struct peaks *peaks, const struct hl_log_state *names, struct hl_error *err)
{
	int r = hl_history_name(peaks->history, names, err);

	if (r == 0)
		r = hl_calltree_init(&peaks->tree, peaks->history->profile, HL_VALUE_INUSE,
				     HL_UNIT_BYTES);
	for (size_t i = 0; r == 0 && i < peaks->peak_count; i++) {
		struct peak *peak = &peaks->peaks[i];
		r = sum_by_stack(peaks, &peak->growth, peak->node_count);
		if (r == 0)
			r = sum_by_stack(peaks, &peak->bytes, peak->node_count);
	}
	if (r == 0)
		r = hl_stack_path_init(&peaks->path, peaks->history->profile, &peaks->tree);
	peaks->path.full = peaks->options->full;
	return r;
}

static int read_peaks(struct peaks *peaks, struct hl_error *err)
{
	struct hl_log_state *names = calloc(1, sizeof(*names));
	int r = names ? find_hills(peaks) : -ENOMEM;

	for (size_t i = 0; r == 0 && i < peaks->peak_count; i++) {
		hl_progress_report(peaks->history->reading.progress, "reading peaks", i,
				   peaks->peak_count);
		r = read_peak(peaks, &peaks->peaks[i], names, err);
	}
	if (r == 0)
		r = name_stacks(peaks, names, err);
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

/* The stacks that grew, those that grew most first; to be freed. */
static struct stack *sort_stacks(const struct peaks *peaks, const struct peak *peak,
				 size_t *ret_count)
{
	struct stack *stacks = calloc(peaks->tree.count, sizeof(*stacks));
	size_t count = 0;

	if (!stacks)
		return NULL;
	for (uint32_t i = 0; i < peaks->tree.count; i++)
		if (peak->growth[i] > 0)
			stacks[count++] = (struct stack){i, peak->growth[i], peak->bytes[i]};
	qsort(stacks, count, sizeof(*stacks), more_growth_first);
	*ret_count = count;
	return stacks;
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

static void write_stacks(struct hl_emit *emit, struct peaks *peaks, const struct peak *peak)
{
	size_t count = 0;
	struct stack *stacks = sort_stacks(peaks, peak, &count);
	size_t shown = hl_emit_shown(emit, peaks->options->stack_limit, 0, count);

	if (!stacks)
		hl_emit_fail(emit, -ENOMEM);
	hl_stack_path_begin_table(&peaks->path);
	for (size_t i = 0; i < shown; i++)
		if (hl_stack_path_add(&peaks->path, stacks[i].node) < 0)
			hl_emit_fail(emit, -ENOMEM);
	hl_table_begin(emit,
		       &(struct hl_table){HL_TABLE("stacks", columns), .context = &peaks->path,
					  .facts = peaks->options->full ? FULL : SHORTENS,
					  .sum = point_of(peaks, peak)->max_bytes -
						 peak->hill.valley_bytes});
	for (size_t i = 0; i < shown; i++)
		hl_table_row(emit, &stacks[i], 0);
	hl_table_end(emit);
	hl_emit_more(emit, count - shown, "--stacks");
	free(stacks);
}

/* When the valley's interval ended. */
static int64_t valley_ms(const struct peaks *peaks, const struct peak *peak)
{
	const struct hl_history *history = peaks->history;

	if (peak->hill.valley == SIZE_MAX)
		return (int64_t)hl_history_start_ms(history);
	return (int64_t)hl_history_head_ms(&history->points[peak->hill.valley]) + HL_INTERVAL_TICKS;
}

static void write_head_of(struct hl_emit *emit, const struct peaks *peaks, const struct peak *peak)
{
	const struct hl_log_point *point = point_of(peaks, peak);
	int64_t since = valley_ms(peaks, peak), valley = peak->hill.valley_bytes;
	char bytes[HL_FORMAT_MAX], rss[HL_FORMAT_MAX], low[HL_FORMAT_MAX];

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
}

static int write_report(struct peaks *peaks)
{
	struct hl_emit *emit;

	int r = hl_history_head_begin(peaks->history, peaks->options, "peaks/1", &emit);
	if (r < 0)
		return r;
	hl_emit_integer(emit, "hills", peaks->hill_count);
	hl_emit_array(emit, "rows");
	for (size_t i = 0; i < peaks->peak_count; i++) {
		hl_emit_object(emit, NULL);
		write_head_of(emit, peaks, &peaks->peaks[i]);
		write_stacks(emit, peaks, &peaks->peaks[i]);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	if (peaks->peak_count < peaks->hill_count)
		hl_emit_line(emit, "... and %zu more%s", peaks->hill_count - peaks->peak_count,
			     peaks->peak_count < PEAKS_MAX ? "; -n 0 shows all" : "");
	return hl_emit_finish(emit);
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

int hl_view_peaks(struct hl_history *history, const struct hl_view_options *options,
		  struct hl_error *err)
{
	struct peaks peaks = {.history = history, .options = options};

	int r = read_peaks(&peaks, err);
	if (r < 0) {
		release(&peaks);
		return r == -ENOMEM ? hl_error_set(err, r, "cannot show '%s': out of memory",
						   history->path)
				    : r;
	}
	r = write_report(&peaks);
	release(&peaks);
	return r < 0 ? hl_history_head_fail(history, r, err) : 0;
}
