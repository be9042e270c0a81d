/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline flame: a flame graph, as an SVG that answers to mouse and keyboard. */
#include "view/pictures/flame.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "profile/profile.h"
#include "view/rows.h"
#include "view/summary.h"
#include "view/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- a call tree as frames side by side ---- */

/* The call tree with a width for each node, all by node of the tree. */
struct widths {
	struct hl_calltree tree;
	int64_t *values;    /* sums of the positive figures */
	uint32_t *frame_of; /* frame of the layout; 0 for nodes that were left out */
	int64_t light_max;  /* nodes up to this are left out, */
	size_t ties_end;    /* but those before this that have just as much */
};

static void release_widths(struct widths *widths)
{
	hl_calltree_release(&widths->tree);
	free(widths->values);
	free(widths->frame_of);
}

/* Figures of damaged files may be anything, and sums of them must stay in order. */
static int64_t saturating_sum(int64_t a, int64_t b)
{
	int64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/* ---- choice of frames ---- */

static int heavier_first(const void *left, const void *right)
{
	int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

	return (a < b) - (a > b);
}

/* A caller is never lighter than what it calls, nor after it, so kept nodes keep their callers. */
static int choose_light_max(struct widths *widths, size_t count_max)
{
	size_t count = widths->tree.count;

	if (count <= count_max)
		return 0;
	HL_FREED int64_t *sorted = calloc(count, sizeof(*sorted));
	if (!sorted)
		return -ENOMEM;
	memcpy(sorted, widths->values, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), heavier_first);
	widths->light_max = sorted[count_max];
	size_t room = 0; /* for nodes with just as much, the first ones */
	while (room < count_max && sorted[count_max - room - 1] == widths->light_max)
		room++;
	size_t node = 0;
	for (; node < count; node++)
		if (widths->values[node] == widths->light_max && room-- == 0)
			break;
	widths->ties_end = node;
	return 0;
}

static bool is_kept(const struct widths *widths, size_t node)
{
	int64_t value = widths->values[node];

	return node == 0 || value > widths->light_max ||
	       (value > 0 && value == widths->light_max && node < widths->ties_end);
}

static void count_left_out(const struct widths *widths, struct hl_flame_layout *layout, size_t node)
{
	const struct hl_calltree_node *nodes = widths->tree.nodes;

	if (widths->values[node] > 0) {
		layout->light_count++;
		layout->light_max = widths->light_max;
	} else if (nodes[node].base > 0 && nodes[node].sum <= 0) {
		layout->vanished_count++;
		if (widths->values[nodes[node].parent] > 0 || !nodes[node].parent)
			layout->vanished_sum += nodes[node].base;
	}
}

/* ---- frames ---- */

static int place_frames(struct hl_flame_layout *layout, const struct widths *widths,
			const struct hl_profile *profile)
{
	size_t kept = 0;

	for (size_t i = 0; i < widths->tree.count; i++)
		if (is_kept(widths, i))
			kept++;
		else
			count_left_out(widths, layout, i);
	HL_FREED int64_t *next_start = calloc(kept, sizeof(*next_start));
	layout->frames = calloc(kept, sizeof(*layout->frames));
	if (!next_start || !layout->frames)
		return -ENOMEM;
	for (size_t i = 0; i < widths->tree.count; i++) {
		const struct hl_calltree_node *node = &widths->tree.nodes[i];
		if (!is_kept(widths, i))
			continue;
		uint32_t id = (uint32_t)layout->count++, parent = widths->frame_of[node->parent];
		widths->frame_of[i] = id;
		layout->frames[id] = (struct hl_flame_frame){
			.parent = parent,
			.end = id + 1,
			.depth = node->depth,
			.function = i ? profile->frames[node->frame].function : 0,
			.frame = i ? node->frame : 0,
			.start = i ? next_start[parent] : 0,
			.value = widths->values[i],
			.self = node->self > 0 ? node->self : 0,
			.other = node->other,
			.base = node->base,
		};
		next_start[id] = layout->frames[id].start;
		if (i)
			next_start[parent] += widths->values[i];
	}
	for (size_t i = layout->count; i-- > 1;) {
		struct hl_flame_frame *parent = &layout->frames[layout->frames[i].parent];
		if (parent->end < layout->frames[i].end)
			parent->end = layout->frames[i].end;
	}
	return 0;
}

int hl_flame_layout_init(struct hl_flame_layout *layout, const struct hl_profile *profile,
			 const struct hl_view_options *options, size_t count_max)
{
	HL_CLEANUP(release_widths) struct widths widths = {0};

	*layout = (struct hl_flame_layout){0};
	int r = options->reversed
			? hl_calltree_init_reversed(&widths.tree, profile, options->value,
						    options->unit)
			: hl_calltree_init(&widths.tree, profile, options->value, options->unit);
	if (r < 0)
		return r;
	widths.values = calloc(widths.tree.count, sizeof(*widths.values));
	widths.frame_of = calloc(widths.tree.count, sizeof(*widths.frame_of));
	if (!widths.values || !widths.frame_of)
		return -ENOMEM;
	/* Negative values would make callers narrower than what they called. */
	const struct hl_calltree_node *nodes = widths.tree.nodes;
	for (size_t i = widths.tree.count; i-- > 0;) {
		int64_t self = nodes[i].self;
		if (self < 0) {
			layout->negative_count++;
			layout->negative_sum += self;
			self = 0;
		}
		widths.values[i] = saturating_sum(widths.values[i], self);
		if (i) {
			int64_t *caller = &widths.values[nodes[i].parent];
			*caller = saturating_sum(*caller, widths.values[i]);
		}
	}
	r = choose_light_max(&widths, count_max);
	if (r == 0)
		r = place_frames(layout, &widths, profile);
	if (r < 0)
		hl_flame_layout_release(layout);
	return r;
}

void hl_flame_layout_release(struct hl_flame_layout *layout)
{
	free(layout->frames);
	*layout = (struct hl_flame_layout){0};
}

/* ---- the lines above the picture ---- */

#define CONTINUATIONS_MAX 2 /* a command can be very long; what follows is cut off */

/* ---- texts ---- */

static void write_notes(struct hl_emit *emit, const struct hl_profile *profile,
			const struct hl_view_options *options, const struct hl_flame_layout *layout,
			size_t narrow_count)
{
	const struct hl_flame_frame *root = &layout->frames[0];
	char before[HL_FORMAT_MAX], after[HL_FORMAT_MAX], growth[HL_FORMAT_MAX];
	char count[HL_FORMAT_MAX], sum[HL_FORMAT_MAX];

	if (profile->base)
		hl_emit_line(emit, "%s before, %s now: %s%s",
			     hl_flame_head_figure(root->base, options, before),
			     hl_flame_head_figure(root->value, options, after),
			     root->value > root->base ? "+" : "",
			     hl_flame_head_figure(root->value - root->base, options, growth));
	if (profile->base && layout->vanished_count)
		hl_emit_line(emit, "nothing is left of %s frame%s that held %s before",
			     hl_format_count((int64_t)layout->vanished_count, count),
			     hl_format_plural(layout->vanished_count),
			     hl_flame_head_figure(layout->vanished_sum, options, sum));
	if (layout->negative_count)
		hl_emit_line(emit, "%s stack%s with less than nothing left out: %s in all",
			     hl_format_count((int64_t)layout->negative_count, count),
			     hl_format_plural(layout->negative_count),
			     hl_flame_head_figure(layout->negative_sum, options, sum));
	if (layout->light_count)
		hl_emit_line(emit, "%s frame%s of %s or less left out of this file",
			     hl_format_count((int64_t)layout->light_count, count),
			     hl_format_plural(layout->light_count),
			     hl_flame_head_figure(layout->light_max, options, sum));
	if (narrow_count)
		hl_emit_line(emit, "%s frame%s too narrow to draw; zoom in to see %s",
			     hl_format_count((int64_t)narrow_count, count),
			     narrow_count == 1 ? " is" : "s are",
			     narrow_count == 1 ? "it" : "them");
	hl_summary_names(emit, profile);
}

const char *hl_flame_head_unit(const struct hl_profile *profile, enum hl_unit unit)
{
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);

	if (unit == HL_UNIT_BYTES)
		return "bytes";
	return kind ? kind->nouns : "blocks";
}

const char *hl_flame_head_figure(int64_t figure, const struct hl_view_options *options,
				 char buffer[HL_FORMAT_MAX])
{
	return hl_format_figure(figure, options->unit == HL_UNIT_BYTES && !options->flame.countname,
				buffer);
}

/* "after.hl compared with before.hl: allocated bytes, by callers"; to be freed. */
static char *default_title(const struct hl_profile *profile, const struct hl_view_options *options)
{
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);
	const char *unit = hl_flame_head_unit(profile, options->unit);
	const char *before = "", *after = "";
	char *title;

	if (options->flame.countname)
		unit = options->flame.countname;
	else if (kind)
		after = kind->word;
	else
		before = hl_value_words[options->value];
	if (asprintf(&title, "%s%s%s: %s%s%s%s%s%s", hl_profile_text(profile, profile->name),
		     profile->base ? " compared with " : "",
		     profile->base ? hl_profile_text(profile, profile->base_name) : "", before,
		     *before ? " " : "", unit, *after ? " " : "", after,
		     options->reversed ? ", by callers" : "") < 0)
		return NULL;
	return title;
}

/* ---- lines ---- */

/* Adds the lines of ${text} and breaks them, in place. */
static int add_lines(struct hl_flame_head *head, char *text, bool is_warning)
{
	size_t capacity = head->line_count;

	for (char *line; (line = strsep(&text, "\n"));) {
		for (int i = 0; line && *line; i++) {
			char *space = NULL;
			if (i < CONTINUATIONS_MAX && strlen(line) > HL_FLAME_HEAD_CELLS)
				space = memrchr(line, ' ', HL_FLAME_HEAD_CELLS + 1);
			if (space)
				*space = '\0';
			if (hl_array_reserve(&head->lines, &capacity, head->line_count + 1,
					     sizeof(*head->lines)) < 0)
				return -ENOMEM;
			head->lines[head->line_count++] = (struct hl_flame_line){line, is_warning};
			line = space ? space + 1 : NULL;
		}
	}
	return 0;
}

/* Either warnings or what is merely worth knowing. */
static void write_notices(struct hl_emit *emit, const struct hl_notices *notices, bool warnings)
{
	for (size_t i = 0; i < notices->count; i++)
		if (notices->notices[i].is_warning == warnings)
			hl_emit_line(emit, "%s", notices->notices[i].text);
}

int hl_flame_head_init(struct hl_flame_head *head, const struct hl_profile *profile,
		       const struct hl_view_options *options, const struct hl_flame_layout *layout,
		       size_t narrow_count)
{
	struct hl_notices notices = {0};
	struct hl_emit *emit;
	size_t size, facts_end = 0, warnings_end = 0;

	*head = (struct hl_flame_head){
		.title = options->flame.title ? strdup(options->flame.title)
					      : default_title(profile, options),
	};
	FILE *out = head->title ? open_memstream(&head->text, &size) : NULL;
	if (!out)
		return -ENOMEM;
	int r = hl_emit_new(out, HL_EMIT_TABLE, false, NULL, &emit);
	if (r == 0) {
		if (!options->flame.countname)
			hl_summary_value_line(emit, profile, options);
		hl_summary_facts(emit, profile);
		putc('\0', out);
		facts_end = (size_t)ftello(out);
		hl_notices_of_profile(&notices, profile);
		write_notices(emit, &notices, true);
		putc('\0', out);
		warnings_end = (size_t)ftello(out);
		write_notices(emit, &notices, false);
		if (notices.error)
			hl_emit_fail(emit, notices.error);
		hl_notices_release(&notices);
		write_notes(emit, profile, options, layout, narrow_count);
		r = hl_emit_finish(emit);
	}
	if (fclose(out) != 0 || r < 0)
		return -ENOMEM;
	r = add_lines(head, head->text, false);
	if (r == 0)
		r = add_lines(head, head->text + facts_end, true);
	return r < 0 ? r : add_lines(head, head->text + warnings_end, false);
}

void hl_flame_head_release(struct hl_flame_head *head)
{
	free(head->title);
	free(head->lines);
	free(head->text);
	*head = (struct hl_flame_head){0};
}

/* ---- the view ---- */

/* In a picture: about 8 bytes each, of 3 MB that browsers open at once. */
#define FRAMES_MAX 200000

struct row {
	struct hl_keys_label label;
	uint32_t depth;
	int64_t value, self, start, base;
};

#define MEMBER(name) HL_MEMBER(struct row, name)

enum {
	IN_BYTES = 1,
	IN_OBJECTS = 2,
	HAS_BASE = 4,
};

static const struct hl_column columns[] = {
	{"name", NULL, HL_COLUMN_TEXT, MEMBER(label.name)},
	{"file", NULL, HL_COLUMN_TEXT, MEMBER(label.file)},
	{"line", NULL, HL_COLUMN_COUNT, MEMBER(label.line)},
	{"module", NULL, HL_COLUMN_TEXT, MEMBER(label.module)},
	{"depth", NULL, HL_COLUMN_COUNT, MEMBER(depth)},
	{"bytes", NULL, HL_COLUMN_COUNT, MEMBER(value), .shown_if = IN_BYTES},
	{"objects", NULL, HL_COLUMN_COUNT, MEMBER(value), .shown_if = IN_OBJECTS},
	{"self", NULL, HL_COLUMN_COUNT, MEMBER(self)},
	{"start", NULL, HL_COLUMN_COUNT, MEMBER(start)},
	{"base", NULL, HL_COLUMN_COUNT, MEMBER(base), .shown_if = HAS_BASE},
};

static int write_json(const struct hl_profile *profile, const struct hl_view_options *options,
		      const struct hl_flame_layout *layout)
{
	unsigned unit = options->unit == HL_UNIT_BYTES ? IN_BYTES : IN_OBJECTS;
	struct hl_emit *emit;

	int r = hl_emit_new(options->out, HL_EMIT_JSON, false, "flame/1", &emit);
	if (r < 0)
		return r;
	hl_summary_members(emit, profile, options);
	hl_emit_object(emit, "left_out");
	hl_emit_integer(emit, "negative_stacks", (int64_t)layout->negative_count);
	hl_emit_integer(emit, "negative", layout->negative_sum);
	hl_emit_integer(emit, "vanished_frames", (int64_t)layout->vanished_count);
	hl_emit_integer(emit, "vanished", layout->vanished_sum);
	hl_emit_object_end(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns),
						.facts = unit | (profile->base ? HAS_BASE : 0)});
	for (size_t i = 0; i < layout->count; i++) {
		const struct hl_flame_frame *frame = &layout->frames[i];
		struct row row = {hl_keys_frame_label(profile, frame->frame),
				  frame->depth,
				  frame->value,
				  frame->self,
				  frame->start,
				  frame->base};
		if (!frame->depth)
			row.label.name = "all";
		hl_table_row(emit, &row, 0);
	}
	hl_table_end(emit);
	return hl_emit_finish(emit);
}

int hl_flame_view(const struct hl_profile *profile, const struct hl_view_options *options,
		  struct hl_error *err)
{
	struct hl_flame_layout layout;

	if (options->flame.palette == HL_VIEW_PALETTE_DIFF && !profile->base)
		return hl_error_set(err, -EINVAL,
				    "cannot colour '%s' by growth: there is nothing to compare it "
				    "with; name an earlier profile first",
				    hl_profile_text(profile, profile->name));
	int r = hl_flame_layout_init(&layout, profile, options,
				     options->json ? SIZE_MAX : FRAMES_MAX);
	if (r == 0)
		r = options->json ? write_json(profile, options, &layout)
				  : hl_flame_svg_write(profile, options, &layout);
	hl_flame_layout_release(&layout);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
