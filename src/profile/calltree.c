/* SPDX-License-Identifier: BSD-2-Clause */
/* Merges nodes by name, sorts siblings, lays them out in preorder; see calltree.h. */
#include "profile/calltree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A merged node before it has its place in preorder; parents come before their children. */
struct group {
	uint32_t parent, name;
	int64_t self;
};

struct merging {
	const struct hl_profile *profile;
	struct group *groups;
	size_t count;
	uint32_t *group_of; /* by node of the profile */
	uint32_t *ranks;    /* by string id: the place of the text in order */
	struct hl_index index;
};

/* ---- groups ---- */

static uint32_t name_of(const struct hl_profile *profile, uint32_t node)
{
	return profile->functions[profile->frames[profile->nodes[node].frame].function].name;
}

static int intern_group(struct merging *merging, uint32_t parent, uint32_t name, uint32_t *ret_id)
{
	uint32_t hash = hl_hash_pair(name, parent), at = hash, id;

	while ((id = hl_index_next(&merging->index, hash, &at)))
		if (merging->groups[id].parent == parent && merging->groups[id].name == name) {
			*ret_id = id;
			return 0;
		}
	int r = hl_index_add(&merging->index, hash, (uint32_t)merging->count);
	if (r < 0)
		return r;
	merging->groups[merging->count] = (struct group){.parent = parent, .name = name};
	*ret_id = (uint32_t)merging->count++;
	return 0;
}

static int merge(struct merging *merging, enum hl_value value, enum hl_unit unit)
{
	const struct hl_profile *profile = merging->profile;

	merging->groups = calloc(profile->node_count, sizeof(*merging->groups));
	merging->group_of = calloc(profile->node_count, sizeof(*merging->group_of));
	if (!merging->groups || !merging->group_of)
		return -ENOMEM;
	merging->count = 1;
	for (uint32_t i = 0; i < profile->node_count; i++) {
		if (i) {
			uint32_t parent = merging->group_of[profile->nodes[i].parent];
			int r = intern_group(merging, parent, name_of(profile, i),
					     &merging->group_of[i]);
			if (r < 0)
				return r;
		}
		merging->groups[merging->group_of[i]].self +=
			hl_profile_figure(&profile->counters[i], value, unit);
	}
	return 0;
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

/* Comparing ranks instead of texts makes sorting a million siblings cheap. */
static int rank_names(struct merging *merging)
{
	const struct hl_profile *profile = merging->profile;
	struct ranked *names = calloc(profile->function_count, sizeof(*names));

	merging->ranks = calloc(profile->strings.count + 1, sizeof(*merging->ranks));
	if (!names || !merging->ranks) {
		free(names);
		return -ENOMEM;
	}
	for (size_t i = 0; i < profile->function_count; i++) {
		uint32_t id = profile->functions[i].name;
		names[i] = (struct ranked){hl_profile_text(profile, id), id};
	}
	qsort(names, profile->function_count, sizeof(*names), by_text);
	for (size_t i = 0; i < profile->function_count; i++)
		merging->ranks[names[i].id] = (uint32_t)i;
	free(names);
	return 0;
}

/* A group in the order in which preorder takes it. */
struct place {
	uint64_t key; /* parent, then rank of the name */
	uint32_t group;
};

static int by_key(const void *left, const void *right)
{
	const struct place *a = left, *b = right;
	return (a->key > b->key) - (a->key < b->key);
}

static struct place *sort_groups(const struct merging *merging)
{
	struct place *places = calloc(merging->count, sizeof(*places));

	if (!places)
		return NULL;
	for (uint32_t i = 1; i < merging->count; i++) {
		const struct group *group = &merging->groups[i];
		places[i] = (struct place){
			(uint64_t)group->parent << 32 | merging->ranks[group->name], i};
	}
	if (merging->count > 2)
		qsort(places + 1, merging->count - 1, sizeof(*places), by_key);
	return places;
}

/* As place_nodes() of builder.c: sorted by parent, a parent's place is known before its children's,
 * because groups were numbered from the root outward. */
static void lay_out(struct hl_calltree *tree, const struct merging *merging,
		    const struct place *places, const uint32_t *sizes, uint32_t *next_free,
		    uint32_t *final_ids)
{
	tree->nodes[0] = (struct hl_calltree_node){
		.end = sizes[0], .self = merging->groups[0].self, .sum = merging->groups[0].self};
	next_free[0] = 1;
	for (size_t i = 1; i < merging->count; i++) {
		uint32_t group = places[i].group, parent = merging->groups[group].parent;
		uint32_t id = next_free[parent];
		next_free[parent] += sizes[group];
		next_free[group] = id + 1;
		final_ids[group] = id;
		tree->nodes[id] = (struct hl_calltree_node){
			.parent = final_ids[parent],
			.end = id + sizes[group],
			.depth = tree->nodes[final_ids[parent]].depth + 1,
			.name = merging->groups[group].name,
			.self = merging->groups[group].self,
			.sum = merging->groups[group].self,
		};
	}
}

static void sum_up(struct hl_calltree *tree)
{
	for (size_t i = tree->count; i-- > 1;) {
		tree->nodes[tree->nodes[i].parent].sum += tree->nodes[i].sum;
		if (tree->nodes[i].depth > tree->depth_max)
			tree->depth_max = tree->nodes[i].depth;
	}
}

static int arrange(struct hl_calltree *tree, const struct merging *merging)
{
	size_t count = merging->count;
	struct place *places = sort_groups(merging);
	uint32_t *sizes = calloc(count, sizeof(*sizes));
	uint32_t *next_free = calloc(count, sizeof(*next_free));
	uint32_t *final_ids = calloc(count, sizeof(*final_ids));
	int r = -ENOMEM;

	tree->nodes = calloc(count, sizeof(*tree->nodes));
	if (places && sizes && next_free && final_ids && tree->nodes) {
		for (size_t i = count; i-- > 0;) {
			sizes[i] += 1;
			if (i)
				sizes[merging->groups[i].parent] += sizes[i];
		}
		lay_out(tree, merging, places, sizes, next_free, final_ids);
		tree->count = count;
		sum_up(tree);
		r = 0;
	}
	free(places);
	free(sizes);
	free(next_free);
	free(final_ids);
	return r;
}

int hl_calltree_init(struct hl_calltree *tree, const struct hl_profile *profile,
		     enum hl_value value, enum hl_unit unit)
{
	struct merging merging = {.profile = profile};

	*tree = (struct hl_calltree){0};
	int r = merge(&merging, value, unit);
	if (r == 0)
		r = rank_names(&merging);
	if (r == 0)
		r = arrange(tree, &merging);
	free(merging.groups);
	free(merging.group_of);
	free(merging.ranks);
	hl_index_release(&merging.index);
	if (r < 0)
		hl_calltree_release(tree);
	return r;
}

void hl_calltree_release(struct hl_calltree *tree)
{
	free(tree->nodes);
	*tree = (struct hl_calltree){0};
}
