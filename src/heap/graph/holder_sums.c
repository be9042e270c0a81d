/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums of holders and their branches; see holder_parts.h. */
#include "heap/graph/holder_parts.h"

#include "base/array.h"

/* Branches; what hangs further out counts in the last one. */
#define DEPTH_MAX    48u
#define BRANCHES_MAX 500000u

/* How far up a branch looks for one of its own label, so that lists and trees of the same blocks are one
 * branch. */
#define FOLD_MAX 4u

#define SET_NONE 0u /* of the empty set */
#define SET_MANY 1u /* of all sets that are too large */

/* Holders that lead to a block, by number, sorted. */
struct set {
	uint32_t members[HL_HOLDER_MEMBERS_MAX];
	uint32_t count;
	uint32_t holder; /* that stands for it, its index + 1; 0: not made yet */
};

struct pair {
	uint32_t left, right, set;
};

struct branch_key {
	uint32_t label; /* + 1; 0: of a holder */
	uint32_t depth;
};

struct summer {
	struct hl_holders *holders;
	struct hl_block_edges *edges;
	const struct hl_digraph *graph;
	const struct hl_dominators *dominators;
	int (*is_selected)(void *context, uint32_t node, uint64_t block, uint64_t usable_bytes);
	void *context;

	/* Tops are the children of the root in the tree of dominators: holders, and blocks that
	 * several of them share. */
	uint32_t *tops;	   /* by number: its top, a number; then its branch */
	uint32_t *sets_of; /* by number, of tops; NULL: nothing is shared */
	struct set *sets;  /* by id - 2 */
	size_t set_count, set_capacity;
	struct hl_index set_index;
	struct pair *pairs; /* unions that were made */
	size_t pair_count, pair_capacity;
	struct hl_index pair_index;

	struct branch_key *keys; /* of branches */
	size_t key_capacity;
	struct hl_index branch_index;
	uint32_t lost_branch; /* 0: nothing is lost */
};

/* ---- sets of holders ---- */

static int find_set(struct summer *summer, const struct set *wanted, uint32_t *ret_set)
{
	size_t bytes = wanted->count * sizeof(wanted->members[0]);
	uint32_t hash = hl_hash_bytes(wanted->members, bytes), at = hash, id;

	while ((id = hl_index_next(&summer->set_index, hash, &at))) {
		const struct set *set = &summer->sets[id - 2];
		if (set->count == wanted->count &&
		    memcmp(set->members, wanted->members, bytes) == 0) {
			*ret_set = id;
			return 0;
		}
	}
	int r = HL_ARRAY_APPEND(summer->sets, summer->set_count, summer->set_capacity, *wanted);
	*ret_set = (uint32_t)summer->set_count + 1;
	return r == 0 ? hl_index_add(&summer->set_index, hash, *ret_set) : r;
}

static int make_union(struct summer *summer, uint32_t left, uint32_t right, uint32_t *ret_set)
{
	const struct set *a = &summer->sets[left - 2], *b = &summer->sets[right - 2];
	struct set sum = {0};

	*ret_set = SET_MANY;
	for (uint32_t i = 0, k = 0; i < a->count || k < b->count;) {
		uint32_t from_a = i < a->count ? a->members[i] : UINT32_MAX;
		uint32_t from_b = k < b->count ? b->members[k] : UINT32_MAX;
		if (sum.count == HL_HOLDER_MEMBERS_MAX)
			return 0;
		sum.members[sum.count++] = from_a < from_b ? from_a : from_b;
		i += from_a <= from_b;
		k += from_b <= from_a;
	}
	return find_set(summer, &sum, ret_set);
}

/* The union of two sets; what was made once is looked up. */
static int find_union(struct summer *summer, uint32_t left, uint32_t right, uint32_t *ret_set)
{
	uint32_t hash = hl_hash_pair(left, right), at = hash, id;
	struct pair made = {left, right, 0};

	*ret_set = left == SET_NONE ? right : left;
	if (left == right || left == SET_NONE || right == SET_NONE || left == SET_MANY)
		return 0;
	*ret_set = SET_MANY;
	if (right == SET_MANY)
		return 0;
	while ((id = hl_index_next(&summer->pair_index, hash, &at)))
		if (summer->pairs[id - 1].left == left && summer->pairs[id - 1].right == right) {
			*ret_set = summer->pairs[id - 1].set;
			return 0;
		}
	int r = make_union(summer, left, right, &made.set);
	if (r == 0)
		r = HL_ARRAY_APPEND(summer->pairs, summer->pair_count, summer->pair_capacity, made);
	if (r == 0)
		r = hl_index_add(&summer->pair_index, hash, (uint32_t)summer->pair_count);
	*ret_set = made.set;
	return r;
}

/* ---- what is shared ---- */

/* Edges between tops: those of top n are targets[at[n] .. at[n + 1]). */
struct crossings {
	uint32_t *at, *targets;
};

static void cross(struct summer *summer, struct crossings *crossings, bool fills)
{
	const struct hl_digraph *graph = summer->graph;

	for (uint32_t node = 1; node < graph->count; node++) {
		uint32_t number = graph->nodes[node].number;
		if (number == HL_DOMINATORS_NONE)
			continue;
		uint32_t top = summer->tops[number];
		for (uint32_t i = graph->nodes[node].first; i < graph->nodes[node + 1].first; i++) {
			uint32_t other = summer->tops[graph->nodes[graph->targets[i]].number];
			if (other == top)
				continue;
			if (fills)
				crossings->targets[--crossings->at[top]] = other;
			else
				crossings->at[top]++;
		}
	}
}

static int find_crossings(struct summer *summer, struct crossings *crossings)
{
	uint32_t count = summer->dominators->count, sum = 0;

	crossings->at = hl_dominators_array(count + UINT64_C(1), sizeof(*crossings->at));
	if (!crossings->at)
		return -ENOMEM;
	memset(crossings->at, 0, (count + UINT64_C(1)) * sizeof(*crossings->at));
	cross(summer, crossings, false);
	for (uint32_t i = 0; i <= count; i++)
		crossings->at[i] = sum += crossings->at[i];
	crossings->targets = hl_dominators_array(sum, sizeof(*crossings->targets));
	if (!crossings->targets)
		return -ENOMEM;
	cross(summer, crossings, true);
	return 0;
}

/* Hands the holders of each top on to those that it leads to, until nothing changes: the sets of a top
 * grow, at most to SET_MANY. */
static int spread(struct summer *summer, const struct crossings *crossings)
{
	uint32_t *waiting = NULL, set;
	size_t count = 0, capacity = 0;
	int r = 0;

	for (uint32_t i = 1; i < summer->dominators->count && r == 0; i++)
		if (summer->sets_of[i])
			r = HL_ARRAY_APPEND(waiting, count, capacity, i);
	while (count && r == 0) {
		uint32_t from = waiting[--count];
		for (uint32_t i = crossings->at[from]; i < crossings->at[from + 1] && r == 0; i++) {
			uint32_t to = crossings->targets[i];
			r = find_union(summer, summer->sets_of[to], summer->sets_of[from], &set);
			if (r < 0 || set == summer->sets_of[to])
				continue;
			summer->sets_of[to] = set;
			r = HL_ARRAY_APPEND(waiting, count, capacity, to);
		}
	}
	free(waiting);
	return r;
}

static int find_sharers(struct summer *summer)
{
	const struct hl_dominators *dominators = summer->dominators;
	struct crossings crossings = {0};
	bool is_shared = false;
	int r = 0;

	summer->tops = hl_dominators_array(dominators->count, sizeof(*summer->tops));
	if (!summer->tops)
		return -ENOMEM;
	summer->tops[0] = 0;
	for (uint32_t i = 1; i < dominators->count; i++) {
		bool is_top = dominators->dominator[i] == 0;
		summer->tops[i] = is_top ? i : summer->tops[dominators->dominator[i]];
		is_shared = is_shared || (is_top && dominators->order[i] <= summer->edges->blocks);
	}
	if (!is_shared)
		return 0;
	summer->sets_of = hl_dominators_array(dominators->count, sizeof(*summer->sets_of));
	if (!summer->sets_of)
		return -ENOMEM;
	memset(summer->sets_of, 0, dominators->count * sizeof(*summer->sets_of));
	for (uint32_t i = 0; i < summer->edges->holders && r == 0; i++)
		r = find_set(summer, &(struct set){.members = {i}, .count = 1},
			     &summer->sets_of[summer->graph->nodes[summer->edges->blocks + 1 + i]
						      .number]);
	if (r == 0)
		r = find_crossings(summer, &crossings);
	if (r == 0)
		r = spread(summer, &crossings);
	free(crossings.at);
	free(crossings.targets);
	return r;
}

/* ---- branches ---- */

static int add_branch(struct summer *summer, const struct hl_holder_branch *branch,
		      struct branch_key key, uint32_t *ret_branch)
{
	struct hl_holders *holders = summer->holders;
	int r = HL_ARRAY_RESERVE(summer->keys, summer->key_capacity, holders->branch_count + 1);

	if (r == 0)
		r = HL_ARRAY_APPEND(holders->branches, holders->branch_count,
				    holders->branch_capacity, *branch);
	if (r < 0)
		return r;
	*ret_branch = (uint32_t)holders->branch_count - 1;
	summer->keys[*ret_branch] = key;
	return 0;
}

static int add_holder_branch(struct summer *summer, uint32_t holder, uint32_t *ret_branch)
{
	int r = add_branch(summer, &(struct hl_holder_branch){.holder = holder + 1},
			   (struct branch_key){0, 1}, ret_branch);

	if (r == 0)
		summer->holders->holders[holder].branch = *ret_branch;
	return r;
}

/* The branch of blocks of ${label} that hang on ${parent}. */
static int find_branch(struct summer *summer, uint32_t parent, uint32_t label, uint32_t *ret_branch)
{
	struct hl_holders *holders = summer->holders;
	const struct hl_block_label *like = &summer->edges->labels[label];
	uint32_t hash = hl_hash_pair(parent, label), at = hash, id;

	*ret_branch = parent;
	for (uint32_t up = parent, i = 0; i < FOLD_MAX && summer->keys[up].label;
	     up = holders->branches[up].parent, i++)
		if (summer->keys[up].label == label + 1) {
			*ret_branch = up;
			return 0;
		}
	while ((id = hl_index_next(&summer->branch_index, hash, &at)))
		if (holders->branches[id].parent == parent && summer->keys[id].label == label + 1) {
			*ret_branch = id;
			return 0;
		}
	if (summer->keys[parent].depth >= DEPTH_MAX || holders->branch_count >= BRANCHES_MAX)
		return 0;
	int r = add_branch(summer,
			   &(struct hl_holder_branch){.parent = parent,
						      .type = like->type,
						      .size_min = like->size_min,
						      .size_max = like->size_max},
			   (struct branch_key){label + 1, summer->keys[parent].depth + 1},
			   ret_branch);
	return r == 0 ? hl_index_add(&summer->branch_index, hash, *ret_branch) : r;
}

static int add_shared_holder(struct summer *summer, uint32_t set, uint32_t *ret_holder)
{
	struct hl_holders *holders = summer->holders;
	struct hl_holder added = {.kind = HL_HOLDER_SHARED};

	if (set != SET_MANY) {
		const struct set *members = &summer->sets[set - 2];
		memcpy(added.members, members->members, sizeof(added.members));
		added.member_count = members->count;
	}
	*ret_holder = (uint32_t)holders->holder_count;
	return HL_ARRAY_APPEND(holders->holders, holders->holder_count, holders->holder_capacity,
			       added);
}

/* The branch of what the holders of ${set} share. */
static int find_shared_branch(struct summer *summer, uint32_t set, uint32_t *many_holder,
			      uint32_t *ret_branch)
{
	uint32_t *holder = set == SET_MANY ? many_holder : &summer->sets[set - 2].holder;
	int r;

	if (*holder) {
		*ret_branch = summer->holders->holders[*holder - 1].branch;
		return 0;
	}
	r = add_shared_holder(summer, set, holder);
	if (r == 0)
		r = add_holder_branch(summer, (*holder)++, ret_branch);
	return r;
}

/* Turns the tops into branches; a dominator comes before what it dominates. */
static int make_branches(struct summer *summer)
{
	const struct hl_dominators *dominators = summer->dominators;
	uint32_t *branch_of = summer->tops, parent, many_holder = 0;
	int r = add_branch(summer, &(struct hl_holder_branch){0}, (struct branch_key){0}, &parent);

	for (uint32_t i = 1; i < dominators->count && r == 0; i++) {
		uint32_t node = dominators->order[i];
		if (node > summer->edges->blocks) {
			r = add_holder_branch(summer, node - summer->edges->blocks - 1,
					      &branch_of[i]);
			continue;
		}
		if (dominators->dominator[i])
			parent = branch_of[dominators->dominator[i]];
		else
			r = find_shared_branch(summer, summer->sets_of[i], &many_holder, &parent);
		if (r == 0)
			r = find_branch(summer, parent, summer->edges->block_labels[node],
					&branch_of[i]);
	}
	return r;
}

static int find_lost_branch(struct summer *summer, uint32_t label, uint32_t *ret_branch)
{
	struct hl_holders *holders = summer->holders;
	int r = 0;

	if (!summer->lost_branch) {
		r = HL_ARRAY_APPEND(holders->holders, holders->holder_count,
				    holders->holder_capacity,
				    (struct hl_holder){.kind = HL_HOLDER_LOST});
		if (r == 0)
			r = add_holder_branch(summer, (uint32_t)holders->holder_count - 1,
					      &summer->lost_branch);
	}
	return r == 0 ? find_branch(summer, summer->lost_branch, label, ret_branch) : r;
}

static int add_block(void *context, uint32_t node, uint64_t block)
{
	struct summer *summer = context;
	uint32_t number = summer->graph->nodes[node].number, branch;
	uint64_t usable = hl_graph_usable(summer->edges->graph, block);
	int r = summer->is_selected ? summer->is_selected(summer->context, node, block, usable) : 1;

	if (r != 1)
		return r;
	if (number == HL_DOMINATORS_NONE)
		r = find_lost_branch(summer, summer->edges->block_labels[node], &branch);
	else
		branch = summer->tops[number];
	if (r < 0)
		return r;
	summer->holders->branches[branch].own.blocks++;
	summer->holders->branches[branch].own.bytes +=
		hl_graph_counted(summer->edges->graph, block);
	return 0;
}

/* ---- sums ---- */

static void add_sum(struct hl_leak_sum *sum, const struct hl_leak_sum *other)
{
	sum->blocks += other->blocks;
	sum->bytes += other->bytes;
}

/* A branch comes after its parent. */
static void add_up(struct hl_holders *holders)
{
	for (size_t i = holders->branch_count; i-- > 0;) {
		struct hl_holder_branch *branch = &holders->branches[i];
		add_sum(&branch->held, &branch->own);
		if (i)
			add_sum(&holders->branches[branch->parent].held, &branch->held);
	}
	holders->selected = holders->branches[0].held;
	for (size_t i = 0; i < holders->holder_count; i++)
		holders->holders[i].held = holders->branches[holders->holders[i].branch].held;
	for (size_t i = 0; i < holders->holder_count; i++)
		for (uint32_t k = 0; k < holders->holders[i].member_count; k++)
			add_sum(&holders->holders[holders->holders[i].members[k]].shared,
				&holders->holders[i].held);
}

static int compare_children(const void *left, const void *right, void *context)
{
	const struct hl_holders *holders = context;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	const struct hl_holder_branch *of_a = &holders->branches[a], *of_b = &holders->branches[b];

	if (of_a->parent != of_b->parent)
		return of_a->parent < of_b->parent ? -1 : 1;
	if (of_a->held.bytes != of_b->held.bytes)
		return of_a->held.bytes > of_b->held.bytes ? -1 : 1;
	return (a > b) - (a < b);
}

/* Lists the children of each branch that hold anything. */
static int list_children(struct hl_holders *holders)
{
	size_t count = 0;

	holders->children = calloc(holders->branch_count, sizeof(*holders->children));
	if (!holders->children)
		return -ENOMEM;
	for (uint32_t i = 1; i < holders->branch_count; i++)
		if (holders->branches[i].held.blocks)
			holders->children[count++] = i;
	qsort_r(holders->children, count, sizeof(*holders->children), compare_children, holders);
	for (uint32_t i = 0; i < count; i++) {
		struct hl_holder_branch *parent =
			&holders->branches[holders->branches[holders->children[i]].parent];
		if (!parent->child_count++)
			parent->children = i;
	}
	return 0;
}

static int make(struct summer *summer)
{
	int r = find_sharers(summer);

	if (r == 0)
		r = make_branches(summer);
	if (r == 0)
		r = hl_block_edges_each(summer->edges, add_block, summer);
	if (r < 0)
		return r;
	add_up(summer->holders);
	return list_children(summer->holders);
}

int hl_holder_sums_make(struct hl_holders *holders, struct hl_block_edges *edges,
			const struct hl_digraph *graph, const struct hl_dominators *dominators,
			int (*is_selected)(void *context, uint32_t node, uint64_t block,
					   uint64_t usable_bytes),
			void *context)
{
	struct summer summer = {.holders = holders,
				.edges = edges,
				.graph = graph,
				.dominators = dominators,
				.is_selected = is_selected,
				.context = context};
	int r = make(&summer);

	free(summer.tops);
	free(summer.sets_of);
	free(summer.sets);
	hl_index_release(&summer.set_index);
	free(summer.pairs);
	hl_index_release(&summer.pair_index);
	free(summer.keys);
	hl_index_release(&summer.branch_index);
	return r;
}
