/* SPDX-License-Identifier: BSD-2-Clause */
/* Semi-NCA; see holder_parts.h. All but the search itself works with numbers instead of nodes. */
#include "heap/graph/holder_parts.h"

#include "base/array.h"
#include "base/compiler.h"

#include <stdbool.h>
#include <sys/mman.h>

/* How many edges before its use memory is asked for. */
#define AHEAD 16u

#define HUGE_BYTES (UINT64_C(2) << 20)

/* A node in the forest of those that were looked at. */
struct link {
	uint32_t ancestor; /* in the tree of the search; further up once paths were compressed */
	uint32_t least;	   /* semidominator on the path up to that ancestor, without it */
};

struct finder {
	struct hl_digraph *graph;
	struct hl_dominators *found;
	uint32_t *sources_at; /* by number, and one more: where its predecessors begin */
	uint32_t *sources;    /* numbers */
	struct link *links;
	uint32_t *semi;
	uint32_t *path; /* nodes whose path is compressed */
	size_t path_capacity;
};

void *hl_dominators_array(uint64_t count, uint64_t size)
{
	void *array = NULL;
	uint64_t bytes = count * size;

	if (bytes < HUGE_BYTES)
		return calloc(bytes ? bytes : 1, 1);
	if (posix_memalign(&array, HUGE_BYTES, bytes) != 0)
		return NULL;
	madvise(array, bytes, MADV_HUGEPAGE); /* small pages do as well */
	return array;
}

/* ---- the search ---- */

/* Numbers what the root leads to; dominators are at first the parents in the tree of the search. */
static void search(struct finder *finder)
{
	struct hl_digraph_node *nodes = finder->graph->nodes;
	const uint32_t *targets = finder->graph->targets;
	uint32_t *order = finder->found->order, *parent = finder->found->dominator;
	uint32_t *at_edge = finder->semi, at = 0, count = 1;

	for (uint32_t i = 0; i <= finder->graph->count; i++)
		nodes[i].number = HL_DOMINATORS_NONE;
	nodes[0].number = order[0] = parent[0] = 0;
	at_edge[0] = nodes[0].first;
	for (;;) {
		uint32_t end = nodes[order[at] + 1].first;
		bool is_found = false;
		while (at_edge[at] < end && !is_found) {
			uint32_t node = targets[at_edge[at]++];
			if (nodes[node].number != HL_DOMINATORS_NONE)
				continue;
			is_found = true;
			nodes[node].number = count;
			order[count] = node;
			parent[count] = at;
			at_edge[count] = nodes[node].first;
			for (uint32_t i = nodes[node].first;
			     i < nodes[node + 1].first && i < nodes[node].first + AHEAD; i++)
				__builtin_prefetch(&nodes[targets[i]]);
			at = count++;
		}
		if (is_found)
			continue;
		if (at == 0)
			break;
		at = parent[at];
	}
	finder->found->count = count;
}

/* ---- edges, turned round ---- */

static void count_sources(struct finder *finder, uint32_t edge_count)
{
	const struct hl_digraph *graph = finder->graph;
	uint32_t *counts = finder->sources_at;

	memset(counts, 0, (finder->found->count + UINT64_C(1)) * sizeof(*counts));
	for (uint32_t node = 0; node < graph->count; node++) {
		if (graph->nodes[node].number == HL_DOMINATORS_NONE)
			continue;
		for (uint32_t i = graph->nodes[node].first; i < graph->nodes[node + 1].first; i++) {
			if (i + 2 * AHEAD < edge_count)
				__builtin_prefetch(&graph->nodes[graph->targets[i + 2 * AHEAD]]);
			if (i + AHEAD < edge_count) {
				uint32_t later = graph->nodes[graph->targets[i + AHEAD]].number;
				__builtin_prefetch(&counts[later == HL_DOMINATORS_NONE ? 0 : later],
						   1);
			}
			counts[graph->nodes[graph->targets[i]].number]++;
		}
	}
}

/* Each predecessor goes before those that are there; places begin at the end of each part. */
static void put_sources(struct finder *finder, uint32_t edge_count)
{
	const struct hl_digraph *graph = finder->graph;
	uint32_t *ends = finder->sources_at, *sources = finder->sources;

	for (uint32_t node = 0; node < graph->count; node++) {
		uint32_t number = graph->nodes[node].number;
		if (number == HL_DOMINATORS_NONE)
			continue;
		for (uint32_t i = graph->nodes[node].first; i < graph->nodes[node + 1].first; i++) {
			if (i + 3 * AHEAD < edge_count)
				__builtin_prefetch(&graph->nodes[graph->targets[i + 3 * AHEAD]]);
			if (i + 2 * AHEAD < edge_count) {
				uint32_t later = graph->nodes[graph->targets[i + 2 * AHEAD]].number;
				__builtin_prefetch(&ends[later == HL_DOMINATORS_NONE ? 0 : later],
						   1);
			}
			if (i + AHEAD < edge_count) {
				uint32_t later = graph->nodes[graph->targets[i + AHEAD]].number;
				uint32_t end = ends[later == HL_DOMINATORS_NONE ? 0 : later];
				__builtin_prefetch(&sources[end ? end - 1 : 0], 1);
			}
			sources[--ends[graph->nodes[graph->targets[i]].number]] = number;
		}
	}
}

static int turn_round(struct finder *finder)
{
	uint32_t edge_count = finder->graph->nodes[finder->graph->count].first, sum = 0;

	count_sources(finder, edge_count);
	for (uint32_t i = 0; i <= finder->found->count; i++) {
		sum += finder->sources_at[i];
		finder->sources_at[i] = sum;
	}
	finder->sources = hl_dominators_array(sum, sizeof(*finder->sources));
	if (!finder->sources)
		return -ENOMEM;
	put_sources(finder, edge_count);
	return 0;
}

/* ---- semidominators ---- */

/* The least semidominator on the path from ${node} up to what was not looked at yet, that is up to
 * ${last}. -ENOMEM: there is no room for the path. */
static int find_least(struct finder *finder, uint32_t node, uint32_t last, uint32_t *ret_least)
{
	struct link *links = finder->links;
	size_t length = 0;

	for (; links[node].ancestor > last; node = links[node].ancestor) {
		if (HL_ARRAY_RESERVE(finder->path, finder->path_capacity, length + 1) < 0)
			return -ENOMEM;
		finder->path[length++] = node;
	}
	while (length) {
		uint32_t below = finder->path[--length];
		if (links[node].least < links[below].least)
			links[below].least = links[node].least;
		links[below].ancestor = links[node].ancestor;
		node = below;
	}
	*ret_least = links[node].least;
	return 0;
}

static int find_semidominators(struct finder *finder)
{
	struct link *links = finder->links;
	uint32_t count = finder->found->count, least;

	for (uint32_t i = 0; i < count; i++)
		links[i] = (struct link){finder->found->dominator[i], i};
	for (uint32_t i = count - 1; i > 0; i--) {
		uint32_t semi = finder->found->dominator[i];
		for (uint32_t k = finder->sources_at[i]; k < finder->sources_at[i + 1]; k++) {
			if (k >= AHEAD)
				__builtin_prefetch(&links[finder->sources[k - AHEAD]]);
			if (find_least(finder, finder->sources[k], i, &least) < 0)
				return -ENOMEM;
			semi = least < semi ? least : semi;
		}
		links[i].least = finder->semi[i] = semi;
	}
	return 0;
}

/* The dominator is the nearest common ancestor of the semidominator and the parent. */
static void find_dominators(struct finder *finder)
{
	uint32_t *dominator = finder->found->dominator;

	for (uint32_t i = 1; i < finder->found->count; i++) {
		uint32_t candidate = dominator[i];
		while (candidate > finder->semi[i])
			candidate = dominator[candidate];
		dominator[i] = candidate;
	}
}

/* ---- all ---- */

static int find(struct finder *finder)
{
	uint32_t nodes = finder->graph->count;

	finder->found->order = hl_dominators_array(nodes, sizeof(*finder->found->order));
	finder->found->dominator = hl_dominators_array(nodes, sizeof(*finder->found->dominator));
	finder->semi = hl_dominators_array(nodes, sizeof(*finder->semi));
	if (!finder->found->order || !finder->found->dominator || !finder->semi)
		return -ENOMEM;
	search(finder);
	uint64_t count = finder->found->count;
	finder->sources_at = hl_dominators_array(count + 1, sizeof(*finder->sources_at));
	if (!finder->sources_at || turn_round(finder) < 0)
		return -ENOMEM;
	finder->links = hl_dominators_array(count, sizeof(*finder->links));
	if (!finder->links || find_semidominators(finder) < 0)
		return -ENOMEM;
	find_dominators(finder);
	return 0;
}

int hl_dominators_find(struct hl_digraph *graph, struct hl_dominators *ret_dominators)
{
	struct hl_dominators found = {0};
	struct finder finder = {.graph = graph, .found = &found};
	int r = find(&finder);

	free(finder.sources_at);
	free(finder.sources);
	free(finder.links);
	free(finder.semi);
	free(finder.path);
	if (r < 0)
		hl_dominators_release(&found);
	else
		*ret_dominators = found;
	return r;
}

void hl_dominators_release(struct hl_dominators *dominators)
{
	free(dominators->order);
	free(dominators->dominator);
	*dominators = (struct hl_dominators){0};
}
