/* SPDX-License-Identifier: BSD-2-Clause */
/* Turns a call tree into frames side by side; see flame.h. */
#include "base/cleanup.h"
#include "view/pictures/flame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
