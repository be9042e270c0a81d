/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline graph: the call graph as a picture, or as JSON. */
#include "view/pictures/graph.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/index.h"
#include "view/pictures/svg.h"
#include "view/summary.h"
#include "view/table.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the functions and edges of a call graph ---- */

#define HEAVIEST_COUNT 5
#define FLAT_BITS      4 /* what flat weighs in the choice of functions, against bits of cum */

/* ---- nodes ---- */

static bool is_nothing(struct hl_aggregate_figures figures)
{
	return !figures.bytes && !figures.objects;
}

static int heavier_first(struct hl_aggregate_figures a, struct hl_aggregate_figures b,
			 enum hl_unit unit)
{
	int64_t left = hl_aggregate_figure(a, unit), right = hl_aggregate_figure(b, unit);

	return (left < right) - (left > right);
}

static int by_cum_then_flat(const void *left, const void *right, void *unit)
{
	const struct hl_graph_node *a = left, *b = right;
	int by_cum = heavier_first(a->cum, b->cum, *(enum hl_unit *)unit);
	int by_flat = heavier_first(a->flat, b->flat, *(enum hl_unit *)unit);

	if (by_cum || by_flat)
		return by_cum ? by_cum : by_flat;
	return (a->function > b->function) - (a->function < b->function);
}

/* Leaves out all nodes but the first ${count}. */
static void cut_nodes(struct hl_graph *graph, size_t count)
{
	for (size_t i = count; i < graph->node_count; i++)
		hl_aggregate_add(&graph->left_out_flat, graph->nodes[i].flat);
	graph->left_out_count += graph->node_count - count;
	graph->node_count = count;
}

/* The least figure of an edge; a node of less would stand alone. */
static double least_figure(const struct hl_graph *graph, const struct hl_view_options *options)
{
	int64_t total = hl_aggregate_figure(graph->total, options->unit);

	return (double)total * options->graph.edge_threshold / 100;
}

/* All functions that could have an edge, in order. */
static int collect_nodes(struct hl_graph *graph, const struct hl_aggregate *sums,
			 const struct hl_view_options *options)
{
	enum hl_unit unit = options->unit;
	size_t count = 0;

	graph->nodes = calloc(sums->key_count + 1, sizeof(*graph->nodes));
	if (!graph->nodes)
		return -ENOMEM;
	for (uint32_t i = 1; i < sums->key_count; i++)
		if (!is_nothing(sums->cum[i]) || !is_nothing(sums->flat[i]))
			graph->nodes[count++] = (struct hl_graph_node){
				.function = i, .flat = sums->flat[i], .cum = sums->cum[i]};
	qsort_r(graph->nodes, count, sizeof(*graph->nodes), by_cum_then_flat, &unit);
	graph->node_count = count;
	graph->total = sums->total;
	double least = least_figure(graph, options);
	while (count && (double)hl_aggregate_figure(graph->nodes[count - 1].cum, unit) < least)
		count--;
	cut_nodes(graph, count);
	return 0;
}

static void mark_heaviest(struct hl_graph *graph, enum hl_unit unit)
{
	for (int count = 0; count < HEAVIEST_COUNT; count++) {
		struct hl_graph_node *best = NULL;
		for (size_t i = 0; i < graph->node_count; i++) {
			struct hl_graph_node *node = &graph->nodes[i];
			if (!node->heaviest && hl_aggregate_figure(node->flat, unit) > 0 &&
			    (!best || heavier_first(node->flat, best->flat, unit) < 0))
				best = node;
		}
		if (best)
			best->heaviest = true;
	}
}

/* ---- edges ---- */

/* How far the walk over the tree has come; arrays are by node of the profile unless noted. */
struct walk {
	const struct hl_profile *profile;
	uint32_t *shown;		  /* by function: index of its node + 1, or 0 */
	struct hl_aggregate_figures *sum; /* of the subtree */
	uint32_t *nearest;	 /* the innermost shown function down to here, as shown[] */
	bool *gap;		 /* functions between that and here are left out */
	uint32_t *covered_until; /* by edge: nodes below this id already count in it */
	size_t covered_capacity;
	struct hl_index edges;
};

static void release_walk(struct walk *walk)
{
	free(walk->shown);
	free(walk->sum);
	free(walk->nearest);
	free(walk->gap);
	free(walk->covered_until);
	hl_index_release(&walk->edges);
}

/* Adds the subtree of ${node} to the edge that leads into it. */
static int follow(struct walk *walk, struct hl_graph *graph, uint32_t node)
{
	const struct hl_profile *profile = walk->profile;
	uint32_t parent = profile->nodes[node].parent, from = walk->nearest[parent];
	uint32_t to = walk->shown[profile->frames[profile->nodes[node].frame].function];

	walk->nearest[node] = to ? to : from;
	walk->gap[node] = !to;
	if (!to || !from)
		return 0;
	uint32_t hash = hl_hash_pair(from - 1, to - 1), at = hash, id;
	while ((id = hl_index_next(&walk->edges, hash, &at)))
		if (graph->edges[id - 1].from == from - 1 && graph->edges[id - 1].to == to - 1)
			break;
	if (!id) {
		size_t count = graph->edge_count;
		id = (uint32_t)count + 1;
		if (HL_ARRAY_RESERVE(graph->edges, graph->edge_capacity, id) < 0 ||
		    HL_ARRAY_RESERVE(walk->covered_until, walk->covered_capacity, id) < 0 ||
		    hl_index_add(&walk->edges, hash, id) < 0)
			return -ENOMEM;
		graph->edges[count] = (struct hl_graph_edge){.from = from - 1, .to = to - 1};
		walk->covered_until[count] = 0;
		graph->edge_count++;
	}
	struct hl_graph_edge *edge = &graph->edges[id - 1];
	edge->residual |= walk->gap[parent];
	if (node < walk->covered_until[id - 1]) /* within a subtree that counts there already */
		return 0;
	walk->covered_until[id - 1] = profile->nodes[node].end;
	hl_aggregate_add(&edge->figures, walk->sum[node]);
	return 0;
}

static int by_weight(const void *left, const void *right, void *unit)
{
	const struct hl_graph_edge *a = left, *b = right;
	int by_figure = heavier_first(a->figures, b->figures, *(enum hl_unit *)unit);
	int by_from = (a->from > b->from) - (a->from < b->from);

	if (by_figure || by_from)
		return by_figure ? by_figure : by_from;
	return (a->to > b->to) - (a->to < b->to);
}

/* Leaves out edges below the threshold, and those that carry nothing. */
static void trim_edges(struct hl_graph *graph, const struct hl_view_options *options)
{
	enum hl_unit unit = options->unit;
	double least = least_figure(graph, options);
	size_t count = 0;

	if (graph->edge_count)
		qsort_r(graph->edges, graph->edge_count, sizeof(*graph->edges), by_weight, &unit);
	while (count < graph->edge_count) {
		int64_t figure = hl_aggregate_figure(graph->edges[count].figures, unit);
		if (figure <= 0 || (double)figure < least)
			break;
		count++;
	}
	for (size_t i = graph->edge_count; i-- > 0;) {
		const struct hl_graph_edge *edge = &graph->edges[i];
		if (edge->from != edge->to)
			graph->nodes[edge->from].stray = graph->nodes[edge->to].stray = i >= count;
	}
	graph->left_out_edges = graph->edge_count - count;
	graph->edge_count = count;
}

static int connect_nodes(struct hl_graph *graph, const struct hl_profile *profile,
			 enum hl_value value)
{
	const size_t count = profile->node_count;

	HL_CLEANUP(release_walk)
	struct walk walk = {
		.profile = profile,
		.shown = calloc(profile->function_count + 1, sizeof(*walk.shown)),
		.sum = calloc(count, sizeof(*walk.sum)),
		.nearest = calloc(count, sizeof(*walk.nearest)),
		.gap = calloc(count, sizeof(*walk.gap)),
	};
	int r = 0;

	if (!walk.shown || !walk.sum || !walk.nearest || !walk.gap)
		return -ENOMEM;
	for (uint32_t i = 0; i < graph->node_count; i++)
		walk.shown[graph->nodes[i].function] = i + 1;
	for (size_t i = count; i-- > 0;) {
		hl_aggregate_add(&walk.sum[i],
				 hl_aggregate_figures_of(&profile->counters[i], value));
		if (i)
			hl_aggregate_add(&walk.sum[profile->nodes[i].parent], walk.sum[i]);
	}
	for (uint32_t i = 1; r == 0 && i < count; i++)
		r = follow(&walk, graph, i);
	return r;
}

/* ---- which nodes to show ---- */

/* What a node passes on, or takes in, and how it is spread: sums over its edges. */
struct spread {
	double sum, weighted; /* of w, and of w * log2(w) */
};

static void add_to_spread(struct spread *spread, int64_t figure)
{
	double weight = (double)figure;

	if (weight <= 0)
		return;
	spread->sum += weight;
	spread->weighted += weight * log2(weight);
}

/* Shannon's entropy: 0 of a single edge, 1 of two equal ones. */
static double entropy_of(const struct spread *spread)
{
	return spread->sum > 0 ? log2(spread->sum) - spread->weighted / spread->sum : 0;
}

struct candidate {
	struct hl_graph_node node;
	struct spread in, out;
	double score;
};

static int by_score(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;

	return (a->score < b->score) - (a->score > b->score);
}

/*
 * Cuts the nodes of the whole graph down to ${limit}; its edges are then void.
 *
 * By cum alone, the chain of functions through which a program starts would leave no room for
 * those where it branches. So cum is weighted by the information at a node, in bits: where
 * the calls come from and where the memory goes. Where stacks begin or end counts as one bit, and
 * what is allocated right there more than all that, because it is what one looks for.
 */
static int choose_nodes(struct hl_graph *graph, size_t limit, enum hl_unit unit)
{
	const size_t count = graph->node_count;
	HL_FREED struct candidate *candidates = calloc(count, sizeof(*candidates));

	if (!candidates)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		candidates[i].node = graph->nodes[i];
	for (size_t i = 0; i < graph->edge_count; i++) {
		const struct hl_graph_edge *edge = &graph->edges[i];
		int64_t figure = hl_aggregate_figure(edge->figures, unit);
		if (edge->from == edge->to)
			continue;
		add_to_spread(&candidates[edge->from].out, figure);
		add_to_spread(&candidates[edge->to].in, figure);
	}
	for (size_t i = 0; i < count; i++) {
		struct candidate *candidate = &candidates[i];
		double flat = (double)hl_aggregate_figure(candidate->node.flat, unit);
		double cum = (double)hl_aggregate_figure(candidate->node.cum, unit);
		double bits = candidate->in.sum > 0 ? entropy_of(&candidate->in) : 1;
		if (candidate->out.sum > 0)
			add_to_spread(&candidate->out, (int64_t)flat);
		bits += candidate->out.sum > 0 ? entropy_of(&candidate->out) : 1;
		candidate->score =
			candidate->node.heaviest ? INFINITY : FLAT_BITS * flat + cum * bits;
	}
	qsort(candidates, count, sizeof(*candidates), by_score);
	for (size_t i = 0; i < count; i++)
		graph->nodes[i] = candidates[i].node;
	cut_nodes(graph, limit);
	qsort_r(graph->nodes, limit, sizeof(*graph->nodes), by_cum_then_flat, &unit);
	graph->edge_count = 0;
	return 0;
}

/* ---- words ---- */

/* A function is labelled with the line by which most came. */
static int label_nodes(struct hl_graph *graph, const struct hl_profile *profile,
		       const struct hl_view_options *options)
{
	HL_FREED uint32_t *key_of = calloc(profile->function_count + 1, sizeof(*key_of));
	HL_CLEANUP(hl_keys_release) struct hl_keys keys = {0};

	int r = key_of ? hl_keys_init(&keys, profile, HL_VIEW_BY_FUNCTION, options->value,
				      options->unit, false)
		       : -ENOMEM;
	if (r < 0)
		return r;
	for (uint32_t key = 1; key < keys.count; key++)
		key_of[profile->frames[keys.frames[key]].function] = key;
	for (size_t i = 0; i < graph->node_count; i++)
		graph->nodes[i].label =
			hl_keys_label(&keys, profile, key_of[graph->nodes[i].function]);
	return 0;
}

/* ---- all of it ---- */

int hl_graph_model_init(struct hl_graph *graph, const struct hl_profile *profile,
			const struct hl_view_options *options)
{
	uint64_t limit = options->graph.node_limit;
	HL_CLEANUP(hl_aggregate_release) struct hl_aggregate sums = {0};

	*graph = (struct hl_graph){
		.stackless = hl_aggregate_figures_of(&profile->counters[0], options->value)};
	int r = hl_aggregate_init(&sums, profile, options->value, NULL, 0);
	if (r == 0)
		r = collect_nodes(graph, &sums, options);
	if (r == 0) {
		mark_heaviest(graph, options->unit);
		r = connect_nodes(graph, profile, options->value);
	}
	if (r == 0 && limit && graph->node_count > limit) {
		r = choose_nodes(graph, limit, options->unit);
		if (r == 0)
			r = connect_nodes(graph, profile, options->value);
	}
	if (r == 0) {
		trim_edges(graph, options);
		r = label_nodes(graph, profile, options);
	}
	if (r < 0)
		hl_graph_model_release(graph);
	return r;
}

void hl_graph_model_release(struct hl_graph *graph)
{
	free(graph->nodes);
	free(graph->edges);
	*graph = (struct hl_graph){0};
}

/* ---- JSON ---- */

static void id(struct hl_emit *emit, const void *node, const void *graph)
{
	hl_cell_integer(emit, (const struct hl_graph_node *)node -
				      ((const struct hl_graph *)graph)->nodes + 1);
}

#define MEMBER(name) HL_MEMBER(struct hl_graph_node, name)

static const struct hl_column columns[] = {
	{"id", NULL, HL_COLUMN_COUNT, .cell = id},
	{"name", NULL, HL_COLUMN_TEXT, MEMBER(label.name)},
	{"file", NULL, HL_COLUMN_TEXT, MEMBER(label.file)},
	{"line", NULL, HL_COLUMN_COUNT, MEMBER(label.line)},
	{"module", NULL, HL_COLUMN_TEXT, MEMBER(label.module)},
	{"flat_bytes", NULL, HL_COLUMN_BYTES, MEMBER(flat.bytes)},
	{"flat_objects", NULL, HL_COLUMN_COUNT, MEMBER(flat.objects)},
	{"cum_bytes", NULL, HL_COLUMN_BYTES, MEMBER(cum.bytes)},
	{"cum_objects", NULL, HL_COLUMN_COUNT, MEMBER(cum.objects)},
};

static int write_json(const struct hl_graph *graph, const struct hl_profile *profile,
		      const struct hl_view_options *options)
{
	struct hl_emit *emit;

	int r = hl_emit_new(options->out, HL_EMIT_JSON, false, "graph/1", &emit);
	if (r < 0)
		return r;
	hl_summary_members(emit, profile, options);
	hl_emit_object(emit, "left_out");
	hl_emit_integer(emit, "functions", (int64_t)graph->left_out_count);
	hl_emit_integer(emit, "edges", (int64_t)graph->left_out_edges);
	hl_emit_integer(emit, "flat_bytes", graph->left_out_flat.bytes);
	hl_emit_integer(emit, "flat_objects", graph->left_out_flat.objects);
	hl_emit_integer(emit, "stackless_bytes", graph->stackless.bytes);
	hl_emit_integer(emit, "stackless_objects", graph->stackless.objects);
	hl_emit_object_end(emit);
	hl_table_write(emit, &(struct hl_table){HL_TABLE("rows", columns), .context = graph},
		       graph->nodes, graph->node_count, sizeof(*graph->nodes));
	hl_emit_array(emit, "edges");
	for (size_t i = 0; i < graph->edge_count; i++) {
		const struct hl_graph_edge *edge = &graph->edges[i];
		hl_emit_object(emit, NULL);
		hl_emit_integer(emit, "from", edge->from + 1);
		hl_emit_integer(emit, "to", edge->to + 1);
		hl_emit_integer(emit, "bytes", edge->figures.bytes);
		hl_emit_integer(emit, "objects", edge->figures.objects);
		hl_emit_boolean(emit, "residual", edge->residual);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	return hl_emit_finish(emit);
}

/* ---- pictures ---- */

/* The colours of graph_dot.c, on a dark background. */
static const char dark_style[] =
	"\n<style>@media (prefers-color-scheme:dark){"
	"[fill='#ffffff']{fill:" HL_SVG_DARK_PAPER "}text{fill:" HL_SVG_DARK_TEXT "}"
	"text[fill='#57606a']{fill:" HL_SVG_DARK_MUTED "}"
	"[fill='#f9c6bf']{fill:#7a2e26}[fill='#dde3ea']{fill:#3a4350}[fill='#e9edf2']{fill:#2d333b}"
	"[fill='#f6f8fa']{fill:#24272c}[stroke='#6e7781']{stroke:" HL_SVG_DARK_MUTED "}}</style>";

/* An SVG of graphviz gets a style that follows the reader's theme. */
static int draw(const struct hl_graph *graph, const struct hl_profile *profile,
		const struct hl_view_options *options, struct hl_error *err)
{
	HL_FREED char *source = NULL, *picture = NULL;
	size_t size, picture_size = 0;
	FILE *out = open_memstream(&source, &size);

	if (!out)
		return -ENOMEM;
	hl_graph_dot_write(graph, profile, options, out);
	if (fclose(out) != 0)
		return -ENOMEM;
	if (options->graph.picture == HL_VIEW_PNG)
		return hl_graphviz_draw(source, size, "png", options->out, err);
	out = open_memstream(&picture, &picture_size);
	int r = out ? hl_graphviz_draw(source, size, "svg", out, err) : -ENOMEM;
	if (out && fclose(out) != 0)
		r = -ENOMEM;
	if (r < 0)
		return r;
	const char *root = memmem(picture, picture_size, "<svg", 4);
	const char *end = root ? memchr(root, '>', picture_size - (size_t)(root - picture)) : NULL;
	size_t head = end ? (size_t)(end + 1 - picture) : 0;
	fwrite(picture, 1, head, options->out);
	fputs(head ? dark_style : "", options->out);
	fwrite(picture + head, 1, picture_size - head, options->out);
	return 0;
}

int hl_graph_view(const struct hl_profile *profile, const struct hl_view_options *options,
		  struct hl_error *err)
{
	struct hl_graph graph;

	int r = hl_graph_model_init(&graph, profile, options);
	if (r == 0 && options->json) {
		r = write_json(&graph, profile, options);
	} else if (r == 0) {
		if (options->graph.picture == HL_VIEW_DOT)
			hl_graph_dot_write(&graph, profile, options, options->out);
		else
			r = draw(&graph, profile, options, err);
		if (r == 0)
			r = ferror(options->out) ? -EIO : hl_summary_note(profile, options);
	}
	hl_graph_model_release(&graph);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
