/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The call graph: a node for each function, an edge where one calls another. A stack that passes a
 * node or an edge more than once counts once there. Light functions are left out, and stacks lead
 * past it: an edge that stands for calls through functions left out is residual.
 */
#pragma once

#include "profile/calltree.h"
#include "view/rows.h"

#define HL_GRAPH_NODES_DEFAULT 40

struct hl_graph_node {
	uint32_t function; /* of the profile */
	struct hl_keys_label label;
	struct hl_aggregate_figures flat, cum;
	bool heaviest; /* one of the five that allocated most themselves */
	bool stray;    /* all of its edges were left out */
};

struct hl_graph_edge {
	uint32_t from, to; /* indexes of nodes; equal where a function calls itself */
	struct hl_aggregate_figures figures;
	bool residual; /* some of it goes through functions that are left out */
};

struct hl_graph {
	struct hl_graph_node *nodes; /* heaviest first, by cum, then by flat */
	struct hl_graph_edge *edges; /* heaviest first */
	size_t node_count, edge_count, edge_capacity;
	struct hl_aggregate_figures total;

	/* total = flat of all nodes + left_out_flat + stackless */
	size_t left_out_count; /* functions */
	struct hl_aggregate_figures left_out_flat, stackless;
	size_t left_out_edges;
};

/*
 * The graph of options->value: the options->graph.node_limit (0: all) functions that show most, by cum,
 * flat and how calls branch there, and edges of at least options->graph.edge_threshold percent; all by
 * options->unit. 0 or -ENOMEM.
 */
int hl_graph_model_init(struct hl_graph *graph, const struct hl_profile *profile,
			const struct hl_view_options *options);

void hl_graph_model_release(struct hl_graph *graph);

/* Writes ${graph} in the language of graphviz, names escaped. Errors stay in ${out}. */
void hl_graph_dot_write(const struct hl_graph *graph, const struct hl_profile *profile,
			const struct hl_view_options *options, FILE *out);

/*
 * Has graphviz' program `dot` draw ${size} bytes of ${source} as "svg" or "png", and writes the
 * picture to ${out} once it is complete. 0 or a negative errno with a sentence.
 */
int hl_graphviz_draw(const char *source, size_t size, const char *format, FILE *out,
		     struct hl_error *err);
