/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums nodes by key, and merges them by name, sorts siblings, lays them out in preorder; see calltree.h. */
#include "profile/calltree.h"

#include "base/array.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- sums by key: one backward pass sums subtrees, one forward pass gives them to keys ---- */

struct hl_aggregate_figures hl_aggregate_figures_of(const struct hl_profile_counters *counters,
						    enum hl_value value)
{
	return (struct hl_aggregate_figures){
		.bytes = hl_profile_figure(counters, value, HL_UNIT_BYTES),
		.objects = hl_profile_figure(counters, value, HL_UNIT_OBJECTS),
	};
}

int hl_aggregate_init(struct hl_aggregate *aggregate, const struct hl_profile *profile,
		      enum hl_value value, const uint32_t *keys, size_t key_count)
{
	if (!keys)
		key_count = profile->function_count;
	HL_FREED struct hl_aggregate_figures *sums = calloc(profile->node_count, sizeof(*sums));
	HL_FREED uint32_t *covered_until = calloc(key_count + 1, sizeof(*covered_until));
	*aggregate = (struct hl_aggregate){
		.flat = calloc(key_count + 1, sizeof(*aggregate->flat)),
		.cum = calloc(key_count + 1, sizeof(*aggregate->cum)),
		.key_count = key_count,
	};
	if (!sums || !covered_until || !aggregate->flat || !aggregate->cum) {
		hl_aggregate_release(aggregate);
		return -ENOMEM;
	}
	for (size_t i = 0; i < profile->node_count; i++)
		sums[i] = hl_aggregate_figures_of(&profile->counters[i], value);
	/* Parents come before their children, so going backwards every subtree is ready in time. */
	for (size_t i = profile->node_count; i-- > 1;)
		hl_aggregate_add(&sums[profile->nodes[i].parent], sums[i]);
	aggregate->total = sums[0];
	/*
	 * A node adds its subtree to its key unless the key already holds a subtree around it: the
	 * nodes up to covered_until[key] lie below a node of the same key.
	 */
	for (uint32_t i = 1; i < profile->node_count; i++) {
		uint32_t frame = profile->nodes[i].frame;
		uint32_t key = keys ? keys[frame] : profile->frames[frame].function;
		hl_aggregate_add(&aggregate->flat[key],
				 hl_aggregate_figures_of(&profile->counters[i], value));
		if (i < covered_until[key])
			continue;
		covered_until[key] = profile->nodes[i].end;
		hl_aggregate_add(&aggregate->cum[key], sums[i]);
	}
	return 0;
}

void hl_aggregate_release(struct hl_aggregate *aggregate)
{
	free(aggregate->flat);
	free(aggregate->cum);
	*aggregate = (struct hl_aggregate){0};
}

/* ---- the tree ---- */

/* A merged node before it has its place in preorder; parents come before their children. */
struct group {
	uint32_t parent, name, frame;
	bool several_lines;
	int64_t self, base, other; /* without descendants */
};

struct merging {
	const struct hl_profile *profile;
	bool by_line; /* calls from different lines of a function are not merged */
	struct group *groups;
	size_t count, capacity;
	uint32_t *group_of; /* by node of the profile; NULL when reversed */
	uint32_t *heaviest; /* by group: a node of the profile; as above */
	struct hl_index index;
};

static void release_merging(struct merging *merging)
{
	free(merging->groups);
	free(merging->group_of);
	free(merging->heaviest);
	hl_index_release(&merging->index);
}

/* ---- lines ---- */

static bool is_same_line(const struct hl_profile *profile, uint32_t a, uint32_t b)
{
	const struct hl_profile_frame *frames = profile->frames;

	return a == b || (frames[a].file == frames[b].file && frames[a].line == frames[b].line);
}

static uint32_t hash_line(const struct hl_profile *profile, uint32_t frame, uint32_t other)
{
	const struct hl_profile_frame *frames = profile->frames;

	return hl_hash_pair(hl_hash_pair(frames[frame].file, frames[frame].line), other);
}

/* ---- groups ---- */

static int add_group(struct merging *merging, struct group group, uint32_t *ret_id)
{
	if (merging->count >= UINT32_MAX ||
	    HL_ARRAY_RESERVE(merging->groups, merging->capacity, merging->count + 1) < 0)
		return -ENOMEM;
	merging->groups[merging->count] = group;
	*ret_id = (uint32_t)merging->count++;
	return 0;
}

/* The group below ${parent} whose name, and by line whose line, is that of ${frame}. */
static int intern_group(struct merging *merging, uint32_t parent, uint32_t frame, uint32_t *ret_id)
{
	const struct hl_profile *profile = merging->profile;
	struct group group = {
		.parent = parent,
		.name = profile->functions[profile->frames[frame].function].label,
		.frame = frame,
	};
	uint32_t hash = hl_hash_pair(group.name, parent), at, id;

	if (merging->by_line)
		hash = hash_line(profile, frame, hash);
	at = hash;
	while ((id = hl_index_next(&merging->index, hash, &at))) {
		struct group *found = &merging->groups[id];
		if (found->parent != parent || found->name != group.name)
			continue;
		bool same_line = is_same_line(profile, found->frame, frame);
		if (merging->by_line && !same_line)
			continue;
		found->several_lines |= !same_line;
		*ret_id = id;
		return 0;
	}
	int r = add_group(merging, group, &id);
	if (r == 0)
		r = hl_index_add(&merging->index, hash, id);
	if (r == 0)
		*ret_id = id;
	return r;
}

/* Makes the root, and room. */
static int begin_merging(struct merging *merging, size_t expected_count)
{
	uint32_t root;

	if (HL_ARRAY_RESERVE(merging->groups, merging->capacity, expected_count) < 0 ||
	    hl_index_reserve(&merging->index, expected_count) < 0)
		return -ENOMEM;
	return add_group(merging, (struct group){0}, &root);
}

static void add_figures(struct merging *merging, uint32_t node, enum hl_value value,
			enum hl_unit unit)
{
	const struct hl_profile *profile = merging->profile;
	struct group *group = &merging->groups[merging->group_of[node]];

	group->self += hl_profile_figure(&profile->counters[node], value, unit);
	group->other += hl_profile_figure(&profile->counters[node], value, hl_unit_other(unit));
	if (profile->base)
		group->base += hl_profile_figure(&profile->base[node], value, unit);
}

/* A line of a group of which there are several. */
struct line {
	uint32_t group, frame;
	int64_t sum, base; /* with what it calls */
};

struct lines {
	struct line *lines;
	size_t count, capacity;
	struct hl_index index;
};

static int add_to_line(struct lines *lines, const struct hl_profile *profile, struct line line)
{
	uint32_t hash = hash_line(profile, line.frame, line.group), at = hash, id;

	while ((id = hl_index_next(&lines->index, hash, &at))) {
		struct line *found = &lines->lines[id - 1];
		if (found->group == line.group && is_same_line(profile, found->frame, line.frame)) {
			found->sum += line.sum;
			found->base += line.base;
			return 0;
		}
	}
	int r = HL_ARRAY_RESERVE(lines->lines, lines->capacity, lines->count + 1);
	if (r == 0)
		r = hl_index_add(&lines->index, hash, (uint32_t)lines->count + 1);
	if (r == 0)
		lines->lines[lines->count++] = line;
	return r;
}

/* Gives each group with calls from several lines the frame of the heaviest of them. Of two profiles that are compared
 * the later one has the say, but for groups that only the earlier one has. */
static int choose_lines(struct merging *merging, enum hl_value value, enum hl_unit unit,
			struct lines *lines)
{
	const struct hl_profile *profile = merging->profile;
	HL_FREED int64_t *sums = calloc(profile->node_count, sizeof(*sums));
	HL_FREED int64_t *base = calloc(profile->node_count, sizeof(*base));
	HL_FREED int64_t *heaviest = calloc(merging->count, sizeof(*heaviest)); /* by group */
	HL_FREED bool *has_sum = calloc(merging->count, sizeof(*has_sum));

	if (!sums || !base || !heaviest || !has_sum)
		return -ENOMEM;
	for (size_t i = profile->node_count; i-- > 1;) {
		uint32_t group = merging->group_of[i];
		sums[i] += hl_profile_figure(&profile->counters[i], value, unit);
		sums[profile->nodes[i].parent] += sums[i];
		if (profile->base)
			base[i] += hl_profile_figure(&profile->base[i], value, unit);
		base[profile->nodes[i].parent] += base[i];
		if (merging->groups[group].several_lines &&
		    add_to_line(lines, profile,
				(struct line){group, profile->nodes[i].frame, sums[i], base[i]}) <
			    0)
			return -ENOMEM;
	}
	for (size_t i = 0; i < lines->count; i++) {
		const struct line *line = &lines->lines[i];
		/* Lines without any do not count. */
		merging->groups[line->group].several_lines = false;
		has_sum[line->group] |= line->sum != 0;
	}
	/* Of equal ones the first in the profile wins. */
	for (size_t i = 0; i < lines->count; i++) {
		const struct line *line = &lines->lines[i];
		struct group *group = &merging->groups[line->group];
		int64_t weight = has_sum[line->group] ? line->sum : line->base;
		group->several_lines |= weight && heaviest[line->group];
		if (!weight || (heaviest[line->group] && weight < heaviest[line->group]))
			continue;
		heaviest[line->group] = weight;
		group->frame = line->frame;
	}
	return 0;
}

static int merge(struct merging *merging, enum hl_value value, enum hl_unit unit)
{
	const struct hl_profile *profile = merging->profile;
	struct lines lines = {0};

	merging->group_of = calloc(profile->node_count, sizeof(*merging->group_of));
	if (!merging->group_of || begin_merging(merging, profile->node_count) < 0)
		return -ENOMEM;
	add_figures(merging, 0, value, unit);
	for (uint32_t i = 1; i < profile->node_count; i++) {
		const struct hl_profile_node *node = &profile->nodes[i];
		if (intern_group(merging, merging->group_of[node->parent], node->frame,
				 &merging->group_of[i]) < 0)
			return -ENOMEM;
		add_figures(merging, i, value, unit);
	}
	merging->heaviest = calloc(merging->count, sizeof(*merging->heaviest));
	if (!merging->heaviest)
		return -ENOMEM;
	for (uint32_t i = 1; i < profile->node_count; i++) {
		uint32_t *heaviest = &merging->heaviest[merging->group_of[i]];
		if (!*heaviest ||
		    hl_profile_figure(&profile->counters[i], value, unit) >
			    hl_profile_figure(&profile->counters[*heaviest], value, unit))
			*heaviest = i;
	}
	if (merging->by_line)
		return 0;
	int r = choose_lines(merging, value, unit, &lines);
	free(lines.lines);
	hl_index_release(&lines.index);
	return r;
}

/* ---- groups, reversed ---- */

/* A stack on its way from its leaf to the root; both are groups of the upright tree. */
struct climber {
	uint32_t leaf, at;
	uint32_t group; /* reversed: what lies below `at` */
};

static void arrive(struct merging *merging, const struct merging *upright,
		   const struct climber *climber)
{
	const struct group *leaf = &upright->groups[climber->leaf];
	struct group *group = &merging->groups[climber->group];

	group->self += leaf->self;
	group->base += leaf->base;
	group->other += leaf->other;
}

static int heavier_first(const void *left, const void *right, void *context)
{
	const struct climber *a = left, *b = right;
	const struct merging *upright = context;
	int64_t a_self = upright->groups[a->leaf].self, b_self = upright->groups[b->leaf].self;

	if (a_self != b_self)
		return a_self < b_self ? 1 : -1;
	return (a->leaf > b->leaf) - (a->leaf < b->leaf);
}

/* Merged from the root first, far fewer stacks are left to follow than the profile has nodes. */
static int merge_reversed(struct merging *merging, enum hl_value value, enum hl_unit unit)
{
	HL_CLEANUP(release_merging)
	struct merging upright = {.profile = merging->profile, .by_line = true};
	HL_FREED struct climber *climbers = NULL;
	size_t count = 0;

	if (merge(&upright, value, unit) < 0 || begin_merging(merging, 1) < 0)
		return -ENOMEM;
	climbers = calloc(upright.count, sizeof(*climbers));
	if (!climbers)
		return -ENOMEM;
	arrive(merging, &upright, &(struct climber){0}); /* what has no stack */
	for (uint32_t i = 1; i < upright.count; i++) {
		const struct group *group = &upright.groups[i];
		if (group->self || group->base || group->other)
			climbers[count++] = (struct climber){.leaf = i, .at = i};
	}
	/* A group's frame is that of the first stack to reach it. */
	qsort_r(climbers, count, sizeof(*climbers), heavier_first, &upright);
	/* Each round takes every climber up by one frame. All groups that it makes are of one depth,
	 * so that the index need hold no others and stays small. */
	int r = 0;
	while (r == 0 && count) {
		size_t left = 0;
		hl_index_release(&merging->index);
		r = hl_index_reserve(&merging->index, count);
		for (size_t i = 0; r == 0 && i < count; i++) {
			struct climber climber = climbers[i];
			const struct group *from = &upright.groups[climber.at];
			r = intern_group(merging, climber.group, from->frame, &climber.group);
			climber.at = from->parent;
			if (climber.at)
				climbers[left++] = climber;
			else if (r == 0)
				arrive(merging, &upright, &climber);
		}
		count = left;
	}
	return r;
}

/* ---- order ---- */

struct ranked {
	const char *text;
	uint32_t id;
};

static int by_text(const void *left, const void *right)
{
	return strcmp(((const struct ranked *)left)->text, ((const struct ranked *)right)->text);
}

/* The place of each function's label in order, by string id, to be freed in any case. Sorting groups
 * by number is cheap. */
static int rank_names(const struct hl_profile *profile, uint32_t **ret_ranks)
{
	HL_FREED struct ranked *names = calloc(profile->function_count, sizeof(*names));
	uint32_t *ranks = calloc(profile->strings.count + 1, sizeof(*ranks));

	*ret_ranks = ranks;
	if (!names || !ranks)
		return -ENOMEM;
	for (size_t i = 0; i < profile->function_count; i++) {
		uint32_t id = profile->functions[i].label;
		names[i] = (struct ranked){hl_profile_text(profile, id), id};
	}
	qsort(names, profile->function_count, sizeof(*names), by_text);
	for (size_t i = 0; i < profile->function_count; i++)
		ranks[names[i].id] = (uint32_t)i;
	return 0;
}

/* What groups are sorted by: their parent, or the rank of their name. */
static uint32_t sort_key(const struct group *group, const uint32_t *ranks)
{
	return ranks ? ranks[group->name] : group->parent;
}

/*
 * One pass of a radix sort: counts keys below ${key_count}, then moves the groups ${from} to
 * ${to}, keeping the order of equal ones. ${starts} has room for key_count + 1.
 */
static void sort_pass(const struct merging *merging, const uint32_t *ranks, size_t key_count,
		      const uint32_t *from, uint32_t *to, uint32_t *starts)
{
	memset(starts, 0, (key_count + 1) * sizeof(*starts));
	for (size_t i = 1; i < merging->count; i++)
		starts[sort_key(&merging->groups[i], ranks) + 1]++;
	for (size_t i = 0; i < key_count; i++)
		starts[i + 1] += starts[i];
	for (size_t i = 0; i + 1 < merging->count; i++)
		to[starts[sort_key(&merging->groups[from[i]], ranks)]++] = from[i];
}

/* All groups but the root, by parent and then by name, in ${ret_order}. */
static int sort_groups(const struct merging *merging, uint32_t **ret_order)
{
	size_t functions = merging->profile->function_count, count = merging->count;
	HL_FREED uint32_t *order = calloc(count, sizeof(*order));
	HL_FREED uint32_t *by_name = calloc(count, sizeof(*by_name));
	HL_FREED uint32_t *starts =
		calloc((functions > count ? functions : count) + 1, sizeof(*starts));
	HL_FREED uint32_t *ranks = NULL;

	if (!order || !by_name || !starts || rank_names(merging->profile, &ranks) < 0)
		return -ENOMEM;
	for (uint32_t i = 1; i < count; i++)
		order[i - 1] = i;
	sort_pass(merging, ranks, functions, order, by_name, starts);
	sort_pass(merging, NULL, count, by_name, order, starts);
	*ret_order = HL_TAKE(order);
	return 0;
}

/* ---- layout ---- */

struct layout {
	uint32_t *order;
	uint32_t *sizes;     /* by group: of its subtree */
	uint32_t *next_free; /* by group: the place of its next child */
	uint32_t *final_ids; /* by group */
};

static void release_layout(struct layout *layout)
{
	free(layout->order);
	free(layout->sizes);
	free(layout->next_free);
	free(layout->final_ids);
}

static void place_group(struct hl_calltree *tree, const struct merging *merging,
			const struct layout *layout, uint32_t id)
{
	const struct group *group = &merging->groups[id];
	uint32_t place = layout->final_ids[id], parent = layout->final_ids[group->parent];

	layout->next_free[id] = place + 1;
	tree->nodes[place] = (struct hl_calltree_node){
		.parent = parent,
		.end = place + layout->sizes[id],
		.depth = id ? tree->nodes[parent].depth + 1 : 0,
		.name = group->name,
		.frame = group->frame,
		.several_lines = group->several_lines,
		.self = group->self,
		.sum = group->self,
		.base = group->base,
		.other = group->other,
	};
}

/* Like place_nodes() of builder.c: sorted by parent, a parent's place is known before its children's,
 * because groups were numbered from the root outward. */
static void lay_out(struct hl_calltree *tree, const struct merging *merging,
		    const struct layout *layout)
{
	for (size_t i = merging->count; i-- > 0;) {
		layout->sizes[i] += 1;
		if (i)
			layout->sizes[merging->groups[i].parent] += layout->sizes[i];
	}
	place_group(tree, merging, layout, 0);
	for (size_t i = 0; i + 1 < merging->count; i++) {
		uint32_t id = layout->order[i], parent = merging->groups[id].parent;
		layout->final_ids[id] = layout->next_free[parent];
		layout->next_free[parent] += layout->sizes[id];
		place_group(tree, merging, layout, id);
	}
	for (size_t i = tree->count; i-- > 1;) {
		struct hl_calltree_node *node = &tree->nodes[i],
					*parent = &tree->nodes[node->parent];
		parent->sum += node->sum;
		parent->base += node->base;
		parent->other += node->other;
		if (node->depth > tree->depth_max)
			tree->depth_max = node->depth;
	}
}

static int arrange(struct hl_calltree *tree, struct merging *merging)
{
	size_t count = merging->count;

	HL_CLEANUP(release_layout)
	struct layout layout = {
		.sizes = calloc(count, sizeof(*layout.sizes)),
		.next_free = calloc(count, sizeof(*layout.next_free)),
		.final_ids = calloc(count, sizeof(*layout.final_ids)),
	};

	tree->nodes = calloc(count, sizeof(*tree->nodes));
	if (!layout.sizes || !layout.next_free || !layout.final_ids || !tree->nodes ||
	    sort_groups(merging, &layout.order) < 0)
		return -ENOMEM;
	tree->count = count;
	lay_out(tree, merging, &layout);
	if (!merging->group_of)
		return 0;
	tree->heaviest = calloc(count, sizeof(*tree->heaviest));
	if (!tree->heaviest)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		tree->heaviest[layout.final_ids[i]] = merging->heaviest[i];
	for (size_t i = 0; i < merging->profile->node_count; i++)
		merging->group_of[i] = layout.final_ids[merging->group_of[i]];
	tree->node_of = HL_TAKE(merging->group_of);
	return 0;
}

static int build(struct hl_calltree *tree, struct merging *merging, enum hl_value value,
		 enum hl_unit unit,
		 int (*merge_nodes)(struct merging *, enum hl_value, enum hl_unit))
{
	*tree = (struct hl_calltree){0};
	int r = merge_nodes(merging, value, unit);
	if (r == 0)
		r = arrange(tree, merging);
	release_merging(merging);
	if (r < 0)
		hl_calltree_release(tree);
	return r;
}

int hl_calltree_init(struct hl_calltree *tree, const struct hl_profile *profile,
		     enum hl_value value, enum hl_unit unit)
{
	struct merging merging = {.profile = profile};

	return build(tree, &merging, value, unit, merge);
}

int hl_calltree_init_by_line(struct hl_calltree *tree, const struct hl_profile *profile,
			     enum hl_value value, enum hl_unit unit)
{
	struct merging merging = {.profile = profile, .by_line = true};

	return build(tree, &merging, value, unit, merge);
}

int hl_calltree_init_reversed(struct hl_calltree *tree, const struct hl_profile *profile,
			      enum hl_value value, enum hl_unit unit)
{
	struct merging merging = {.profile = profile};

	return build(tree, &merging, value, unit, merge_reversed);
}

void hl_calltree_release(struct hl_calltree *tree)
{
	free(tree->nodes);
	free(tree->node_of);
	free(tree->heaviest);
	*tree = (struct hl_calltree){0};
}
