/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline graph: the call graph as a picture, or as JSON. */
#include "view/pictures/graph.h"

#include "base/cleanup.h"
#include "view/pictures/svg.h"
#include "view/summary.h"
#include "view/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
