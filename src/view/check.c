/* SPDX-License-Identifier: BSD-2-Clause */
/* Limits on figures of a recording and on figures over time: the table of them, how they are judged, and the report; see check.h. */
#include "view/check.h"

#include "base/cleanup.h"
#include "base/encode.h"
#include "open/open.h"
#include "profile/profile.h"
#include "recording/recording.h"
#include "view/growth.h"
#include "view/rows.h"
#include "view/summary.h"
#include "view/table.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HL_CHECK_DAMAGED "is damaged"

#define SECONDS_PER_MINUTE 60

const char *const hl_check_names[HL_CHECK_COUNT] = {
	"peak", "inuse-at-end", "allocs", "leak-per-stack", "growth", "rss", "lost"};

static const struct figure {
	enum hl_value value;
	enum hl_unit unit;
} figures[HL_CHECK_COUNT] = {
	[HL_CHECK_PEAK] = {HL_VALUE_PEAK, HL_UNIT_BYTES},
	[HL_CHECK_INUSE] = {HL_VALUE_INUSE, HL_UNIT_BYTES},
	[HL_CHECK_ALLOCS] = {HL_VALUE_ALLOC, HL_UNIT_OBJECTS},
	[HL_CHECK_PER_STACK] = {HL_VALUE_INUSE, HL_UNIT_BYTES},
	[HL_CHECK_LOST] = {HL_VALUE_INUSE, HL_UNIT_BYTES},
};

/* The recording as limits with one focus need it; each part is opened when the first of them asks. */
struct opened {
	const char *focus;
	struct hl_profile *profile, *joined; /* to its baseline */
	struct hl_history *history;
	struct hl_filter filter; /* of the history */
};

struct checking {
	const struct hl_check_settings *settings;
	struct hl_check *check;
	struct opened *opened; /* one for each focus */
	size_t opened_count;
	struct hl_error *err;
};

/* Less than nothing is in use where blocks were freed that had been allocated before. */
static uint64_t at_least_nothing(int64_t figure)
{
	return figure > 0 ? (uint64_t)figure : 0;
}

/* ---- figures of a profile ---- */

/* Says in the check what is left out of the first, which is the recording. */
static int open_profile(struct checking *checking, const char *path, const char *focus,
			struct hl_profile **ret_profile)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	const struct hl_filter filter = {.focus = {focus}, .fold_plumbing = true};

	int r = hl_open_profile(path, NULL, &profile, checking->err);
	if (r < 0)
		return r;
	struct hl_check_left_out others[HL_CHECK_LEFT_OUT_MAX] = {0};
	hl_check_leave_out(profile, checking->check->profile ? others : checking->check->left_out);
	r = hl_filter_apply(&filter, profile, NULL, checking->err);
	if (r == 0)
		*ret_profile = HL_TAKE(profile);
	return r;
}

/* Names the stack of ${node} of the tree of ${keys}. */
static int blame(struct hl_check_verdict *verdict, const struct hl_profile *profile,
		 const struct hl_keys *keys, uint32_t node, int64_t figure)
{
	HL_CLEANUP(hl_stack_path_release) struct hl_stack_path path = {0};

	int r = hl_stack_path_init(&path, profile, &keys->tree);
	if (r < 0)
		return r;
	verdict->blame = hl_stack_path_line(&path, node);
	verdict->blame_figure = figure;
	return verdict->blame ? 0 : -ENOMEM;
}

/* Blames the stack that has most of the figure, or beside a baseline grew most; *${ret_most} is how
 * much that is. */
static int blame_heaviest(struct hl_check_verdict *verdict, const struct hl_profile *profile,
			  const struct figure *of, int64_t *ret_most)
{
	HL_CLEANUP(hl_keys_release) struct hl_keys keys = {0};
	HL_FREED int64_t *sums = NULL;
	uint32_t heaviest = 0;

	int r = hl_keys_init(&keys, profile, HL_VIEW_BY_STACK, of->value, of->unit, true);
	if (r == 0)
		sums = calloc(keys.count, sizeof(*sums));
	if (r < 0 || !sums)
		return -ENOMEM;
	for (uint32_t i = 0; i < profile->node_count; i++) {
		int64_t *sum = &sums[hl_keys_of_node(&keys, profile, i)];
		*sum += hl_profile_figure(&profile->counters[i], of->value, of->unit);
		if (profile->base)
			*sum -= hl_profile_figure(&profile->base[i], of->value, of->unit);
	}
	for (uint32_t key = 1; key < keys.count; key++)
		if (sums[key] > sums[heaviest])
			heaviest = key;
	*ret_most = sums[heaviest];
	return *ret_most > 0 ? blame(verdict, profile, &keys, heaviest, *ret_most) : 0;
}

/* What ${profile}, which was joined to its baseline where there is one, has of the limit. */
static int judge_profile(struct hl_check_verdict *verdict, const struct hl_profile *profile,
			 double allow_percent, struct hl_error *err)
{
	struct hl_check_limit *limit = &verdict->limit;
	const struct figure *of = &figures[limit->kind];

	if (!hl_profile_knows(profile, of->value, of->unit))
		return hl_error_set(err, -ENODATA, "cannot check '%s': '%s' does not tell it",
				    hl_check_names[limit->kind],
				    hl_profile_text(profile, profile->name));
	verdict->figure = at_least_nothing(hl_profile_figure(&profile->total, of->value, of->unit));
	if (profile->base) {
		int64_t before = hl_profile_figure(&profile->base_total, of->value, of->unit);
		limit->most = (uint64_t)llround((double)at_least_nothing(before) *
						(1 + allow_percent / 100));
	}
	int64_t most = 0;
	int r = blame_heaviest(verdict, profile, of, &most);
	if (limit->kind == HL_CHECK_PER_STACK)
		verdict->figure = at_least_nothing(most);
	return r < 0 ? hl_error_set(err, r, "out of memory") : 0;
}

/* ---- figures over time ---- */

static int judge_growth(struct hl_check_verdict *verdict, struct hl_history *history,
			struct hl_error *err)
{
	const struct hl_view_options options = {.by = HL_VIEW_BY_STACK};
	HL_CLEANUP(hl_growth_rows_release) struct hl_growth_rows rows = {0};

	int r = hl_growth_rows_init(&rows, history, &options, err);
	if (r < 0)
		return r;
	const struct hl_growth_row *first = rows.rows;
	if (rows.bucket_count < HL_GROWTH_BUCKETS_MIN)
		return hl_error_set(err, -ENODATA,
				    "cannot check 'growth': the program ran for less than a "
				    "second, which is too short to tell growth from its start");
	/* What goes up and down again is not growth, however it ends. */
	if (rows.score >= HL_GROWTH_STEADY)
		verdict->figure = (uint64_t)llround(rows.slope * SECONDS_PER_MINUTE);
	else if (rows.count && first->score >= HL_GROWTH_STEADY)
		verdict->figure = (uint64_t)llround(first->slope * SECONDS_PER_MINUTE);
	if (!verdict->figure || !rows.count)
		return 0;
	r = blame(verdict, history->profile, &rows.keys, first->id,
		  llround(first->slope * SECONDS_PER_MINUTE));
	return r < 0 ? hl_error_set(err, r, "out of memory") : 0;
}

static int judge_rss(struct hl_check_verdict *verdict, const struct hl_history *history,
		     const char *path, struct hl_error *err)
{
	for (size_t i = 0; i < history->point_count; i++)
		if (history->points[i].rss_bytes > verdict->figure)
			verdict->figure = history->points[i].rss_bytes;
	if (!verdict->figure)
		return hl_error_set(err, -ENODATA, "cannot check 'rss': '%s' does not tell it",
				    path);
	return 0;
}

/* ---- what limits are judged by ---- */

/* ${path} is that of ${profile}. Figures of one that goes on, or of a moment of it, are what was asked for. */
static void note_flaw(struct hl_check *check, const char *path, const struct hl_profile *profile)
{
	bool is_whole =
		profile->complete || profile->running || profile->snapshot || profile->imported;

	check->is_damaged |= profile->lost.damaged > 0;
	check->is_interrupted |= !is_whole;
	if (check->flawed || (is_whole && !profile->lost.damaged))
		return;
	check->flawed = path;
	check->flaw = profile->lost.damaged ? HL_CHECK_DAMAGED : "was interrupted";
}

static struct opened *find_opened(struct checking *checking, const char *focus)
{
	struct opened *opened = checking->opened;

	while (opened < checking->opened + checking->opened_count &&
	       (!opened->focus != !focus || (focus && strcmp(opened->focus, focus) != 0)))
		opened++;
	if (opened == checking->opened + checking->opened_count) {
		*opened = (struct opened){.focus = focus};
		checking->opened_count++;
	}
	return opened;
}

static int open_history(struct checking *checking, struct opened *opened, enum hl_check_kind kind)
{
	const struct hl_profile_selection all = {0};
	const char *path = checking->settings->path;

	if (opened->history)
		return 0;
	opened->filter = (struct hl_filter){.focus = {opened->focus}, .fold_plumbing = true};
	int r = hl_history_open(path, &all, &HL_HISTORY_ALL, &opened->filter, &opened->history,
				checking->err);
	if (r == -ENOENT)
		return hl_error_set(checking->err, r,
				    "cannot check '%s': '%s' has no log; record it with '--mode "
				    "log-fast'",
				    hl_check_names[kind], path);
	if (r == 0 && opened->history->log->damaged) {
		checking->check->flawed = path;
		checking->check->flaw = HL_CHECK_DAMAGED;
		checking->check->is_damaged = true;
	}
	return r;
}

static int open_figures(struct checking *checking, struct opened *opened, bool with_baseline)
{
	const struct hl_check_settings *settings = checking->settings;
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *before = NULL;
	int r = opened->profile
			? 0
			: open_profile(checking, settings->path, opened->focus, &opened->profile);

	if (r < 0 || !with_baseline || opened->joined)
		return r;
	r = open_profile(checking, settings->baseline, opened->focus, &before);
	if (r == 0)
		r = hl_profile_join(before, opened->profile, false, &opened->joined, checking->err);
	if (r == 0)
		note_flaw(checking->check, settings->baseline, before);
	return r;
}

/* What one process had lost when it exited is added to ${verdict}, which gets the heaviest stack of all. */
static int add_lost(struct checking *checking, struct hl_check_verdict *verdict,
		    const struct hl_profile_process *process)
{
	const char *path = checking->settings->path;
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	HL_FREED char *lost = hl_recording_lost_path(path, process->sequence);
	struct hl_check_verdict one = {.limit = verdict->limit};

	if (!lost)
		return hl_error_set(checking->err, -ENOMEM, "out of memory");
	int r = hl_recording_is_there(lost)
			? open_profile(checking, lost, verdict->limit.focus, &profile)
			: -ENOENT;
	if (r == -ENOENT || (r == 0 && profile->processes[0].pid != process->pid))
		return hl_error_set(
			checking->err, -ENODATA,
			"cannot check 'lost' of process %u (%s): nobody has looked for its lost "
			"blocks; 'heapline record --leaks' looks when a process exits, but not in "
			"static programs and those with their own malloc; 'heapline leaks -p PID "
			"-o "
			"NAME.hl' looks in a running process",
			process->pid, hl_profile_text(checking->check->profile, process->end));
	if (r == 0)
		r = judge_profile(&one, profile, 0, checking->err);
	if (r < 0)
		return r;
	verdict->figure += one.figure;
	if (one.blame && (!verdict->blame || one.blame_figure > verdict->blame_figure)) {
		free(verdict->blame);
		verdict->blame = HL_TAKE(one.blame);
		verdict->blame_figure = one.blame_figure;
	}
	free(one.blame);
	return 0;
}

/* Of all processes but those that went on as other programs, which took their memory away. */
static int judge_lost(struct checking *checking, struct hl_check_verdict *verdict)
{
	const struct hl_profile *profile = checking->check->profile;
	int r = profile->process_count ? 0
				       : hl_error_set(checking->err, -ENODATA,
						      "cannot check 'lost': '%s' does not tell it",
						      checking->settings->path);

	for (size_t i = 0; r == 0 && i < profile->process_count; i++)
		if (!hl_profile_was_replaced(profile, &profile->processes[i]))
			r = add_lost(checking, verdict, &profile->processes[i]);
	return r;
}

static int judge(struct checking *checking, struct hl_check_verdict *verdict)
{
	const struct hl_check_settings *settings = checking->settings;
	const struct hl_check_limit *limit = &verdict->limit;
	struct opened *opened = find_opened(checking, limit->focus);
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(checking->check->profile);
	int r;

	if (limit->kind == HL_CHECK_LOST && (!kind || strcmp(kind->verb, "leaks") != 0))
		return judge_lost(checking, verdict);
	if (hl_check_needs_log(limit->kind)) {
		r = open_history(checking, opened, limit->kind);
		if (r < 0)
			return r;
		return limit->kind == HL_CHECK_GROWTH
			       ? judge_growth(verdict, opened->history, checking->err)
			       : judge_rss(verdict, opened->history, settings->path, checking->err);
	}
	r = open_figures(checking, opened, limit->is_of_baseline);
	return r < 0 ? r
		     : judge_profile(verdict,
				     limit->is_of_baseline ? opened->joined : opened->profile,
				     settings->allow_percent, checking->err);
}

/* ---- all limits ---- */

static int judge_all(struct checking *checking)
{
	const struct hl_check_settings *settings = checking->settings;
	struct hl_check *check = checking->check;
	/* What has no focus is all of the recording, which reports begin with. */
	struct opened *whole = find_opened(checking, NULL);
	int r = open_figures(checking, whole, false);

	if (r < 0)
		return r;
	check->profile = whole->profile;
	/* Nobody finds its path when this is read. */
	if (!check->is_kept &&
	    hl_strings_intern(&check->profile->strings, "this run", &check->profile->name) < 0)
		return hl_error_set(checking->err, -ENOMEM, "out of memory");
	note_flaw(check, settings->path, check->profile);
	for (size_t i = 0; i < settings->limit_count && r == 0; i++) {
		struct hl_check_verdict *verdict = &check->verdicts[check->count++];
		verdict->limit = settings->limits[i];
		r = judge(checking, verdict);
		verdict->is_crossed = verdict->figure > verdict->limit.most;
		check->crossed += verdict->is_crossed;
	}
	return r;
}

static void release(struct checking *checking)
{
	for (size_t i = 0; i < checking->opened_count; i++) {
		struct opened *opened = &checking->opened[i];
		if (opened->profile != checking->check->profile)
			hl_profile_free(opened->profile);
		hl_profile_free(opened->joined);
		hl_history_free(opened->history);
	}
	free(checking->opened);
}

HL_DEFINE_FREE_AT(struct hl_check, hl_check_free)

int hl_check_run(const struct hl_check_settings *settings, struct hl_check **ret_check,
		 struct hl_error *err)
{
	HL_CLEANUP(hl_check_free_at) struct hl_check *check = calloc(1, sizeof(*check));
	struct checking checking = {.settings = settings, .check = check, .err = err};

	if (check) {
		check->verdicts = calloc(settings->limit_count, sizeof(*check->verdicts));
		checking.opened = calloc(settings->limit_count + 1, sizeof(*checking.opened));
	}
	if (!check || !check->verdicts || !checking.opened) {
		free(checking.opened);
		return hl_error_set(err, -ENOMEM, "out of memory");
	}
	check->is_kept = settings->is_kept;
	int r = judge_all(&checking);
	release(&checking);
	if (r == 0)
		*ret_check = HL_TAKE(check);
	return r;
}

void hl_check_free(struct hl_check *check)
{
	if (!check)
		return;
	for (size_t i = 0; i < check->count; i++)
		free(check->verdicts[i].blame);
	free(check->verdicts);
	hl_profile_free(check->profile);
	free(check);
}

/* ---- words ---- */

static const char *const units[HL_CHECK_COUNT] = {
	[HL_CHECK_PEAK] = "bytes",	 [HL_CHECK_INUSE] = "bytes",
	[HL_CHECK_ALLOCS] = "objects",	 [HL_CHECK_PER_STACK] = "bytes",
	[HL_CHECK_GROWTH] = "bytes/min", [HL_CHECK_RSS] = "bytes",
	[HL_CHECK_LOST] = "bytes",
};

const char *hl_check_format(enum hl_check_kind kind, uint64_t number,
			    char buffer[HL_CHECK_FORMAT_MAX])
{
	int64_t shown = number > INT64_MAX ? INT64_MAX : (int64_t)number;

	hl_format_figure(shown, kind != HL_CHECK_ALLOCS, buffer);
	return kind == HL_CHECK_GROWTH ? strcat(buffer, "/min") : buffer;
}

void hl_check_format_both(const struct hl_check_verdict *verdict, char figure[HL_CHECK_FORMAT_MAX],
			  char most[HL_CHECK_FORMAT_MAX])
{
	const struct hl_check_limit *limit = &verdict->limit;
	char number[HL_GROUPED_MAX];
	const char *unit = limit->kind == HL_CHECK_GROWTH ? "B/min" : "B";

	hl_check_format(limit->kind, verdict->figure, figure);
	hl_check_format(limit->kind, limit->most, most);
	if (verdict->figure == limit->most || strcmp(figure, most) != 0)
		return;
	snprintf(figure, HL_CHECK_FORMAT_MAX, "%s %s", hl_grouped(number, verdict->figure), unit);
	snprintf(most, HL_CHECK_FORMAT_MAX, "%s %s", hl_grouped(number, limit->most), unit);
}

void hl_check_put_name(FILE *out, const struct hl_check_limit *limit)
{
	fputs(hl_check_names[limit->kind], out);
	if (limit->is_of_baseline)
		fputs(" of the baseline", out);
	if (limit->title)
		fprintf(out, " (%s)", limit->title);
}

/* ---- the table ---- */

static void limit_name(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_check_verdict *verdict = row;
	char *text = NULL;
	size_t size;

	(void)context;
	FILE *out = open_memstream(&text, &size);
	if (out) {
		hl_check_put_name(out, &verdict->limit);
		fclose(out);
	}
	if (text)
		hl_cell_text(emit, text);
	else
		hl_emit_fail(emit, -ENOMEM);
	free(text);
}

static void figure(struct hl_emit *emit, const void *row, const void *context)
{
	char text[HL_CHECK_FORMAT_MAX], other[HL_CHECK_FORMAT_MAX];

	(void)context;
	hl_check_format_both(row, text, other);
	hl_cell_text(emit, text);
}

static void most(struct hl_emit *emit, const void *row, const void *context)
{
	char text[HL_CHECK_FORMAT_MAX], other[HL_CHECK_FORMAT_MAX];

	(void)context;
	hl_check_format_both(row, other, text);
	hl_cell_text(emit, text);
}

static void outcome(struct hl_emit *emit, const void *row, const void *context)
{
	(void)context;
	hl_cell_text(emit, ((const struct hl_check_verdict *)row)->is_crossed ? "CROSSED" : "ok");
}

static void blamed(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_check_verdict *verdict = row;

	(void)context;
	hl_cell_text(emit, verdict->is_crossed && verdict->blame ? verdict->blame : "");
}

static void members(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_check_verdict *verdict = row;
	const struct hl_check_limit *limit = &verdict->limit;

	(void)context;
	hl_emit_text(emit, "limit", hl_check_names[limit->kind]);
	if (limit->title)
		hl_emit_text(emit, "title", limit->title);
	if (limit->focus)
		hl_emit_text(emit, "focus", limit->focus);
	hl_emit_text(emit, "unit", units[limit->kind]);
	hl_emit_unsigned(emit, "figure", verdict->figure);
	hl_emit_unsigned(emit, "most", limit->most);
	hl_emit_boolean(emit, "baseline", limit->is_of_baseline);
	hl_emit_boolean(emit, "crossed", verdict->is_crossed);
	if (verdict->blame) {
		hl_emit_text(emit, "stack", verdict->blame);
		hl_emit_integer(emit, "stack_figure", verdict->blame_figure);
	}
}

static const struct hl_column columns[] = {
	{NULL, "", HL_COLUMN_TEXT, .cell = outcome},
	{NULL, "limit", HL_COLUMN_TEXT, .cell = limit_name, .flags = HL_COLUMN_ESSENTIAL},
	{NULL, "figure", HL_COLUMN_TEXT, .cell = figure, .flags = HL_COLUMN_ESSENTIAL},
	{NULL, "at most", HL_COLUMN_TEXT, .cell = most, .flags = HL_COLUMN_ESSENTIAL},
	{NULL, "most of it by", HL_COLUMN_TEXT, .cell = blamed,
	 .flags = HL_COLUMN_SHORTENED | HL_COLUMN_NAMES | HL_COLUMN_KEY},
	{"members", NULL, HL_COLUMN_MEMBERS, .cell = members},
};

static uint64_t left_out_bytes(const struct hl_check *check)
{
	uint64_t bytes = 0;

	for (const struct hl_check_left_out *part = check->left_out; part->what; part++)
		bytes += part->bytes;
	return bytes;
}

static void write_left_out(struct hl_emit *emit, const struct hl_check *check)
{
	char bytes[HL_FORMAT_MAX];

	for (const struct hl_check_left_out *part = check->left_out; part->what; part++)
		hl_emit_line(emit, "%s of %s left out",
			     hl_format_bytes((int64_t)part->bytes, bytes), part->what);
}

int hl_check_view(const struct hl_check *check, const struct hl_emit_options *options)
{
	struct hl_notices notices = {0};
	struct hl_emit *emit;

	int r = hl_emit_open(options, "check/1", &emit);
	if (r < 0)
		return r;
	hl_summary_members(emit, check->profile, NULL);
	hl_emit_unsigned(emit, "crossed", check->crossed);
	hl_emit_boolean(emit, "damaged", check->is_damaged);
	hl_emit_boolean(emit, "interrupted", check->is_interrupted);
	hl_emit_unsigned(emit, "left_out_bytes", left_out_bytes(check));
	hl_summary_facts(emit, check->profile);
	hl_notices_of_profile(&notices, check->profile);
	hl_notices_emit(&notices, emit);
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns)});
	for (size_t i = 0; i < check->count; i++)
		hl_table_row(emit, &check->verdicts[i],
			     check->verdicts[i].is_crossed ? HL_EMIT_HEAVIEST : 0);
	hl_table_end(emit);
	hl_emit_blank(emit);
	write_left_out(emit, check);
	if (!check->crossed)
		hl_emit_line(emit, "no limit of %zu was crossed%s", check->count,
			     check->flawed ? ", but figures may be too small" : "");
	else if (check->is_kept)
		hl_emit_line(emit, "%zu of %zu limits crossed; see 'heapline top %s'",
			     check->crossed, check->count,
			     hl_profile_text(check->profile, check->profile->name));
	else
		hl_emit_line(emit,
			     "%zu of %zu limits crossed; '--recording NAME.hl' keeps the recording",
			     check->crossed, check->count);
	return hl_emit_finish(emit);
}
