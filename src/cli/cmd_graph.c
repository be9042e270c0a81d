/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline graph: the call graph as a picture. */
#include "cli/view_options.h"
#include "view/pictures/graph.h"

/* By enum hl_view_picture. */
static const char *const format_words[] = {"dot", "svg", "png", NULL};

static const struct hl_view_request defaults = {
	HL_VIEW_DEFAULTS,
	.view = hl_graph_view,
	.formats = format_words,
	.options.graph = {.node_limit = HL_GRAPH_NODES_DEFAULT, .edge_threshold = 0.5},
};

static const struct hl_option options[] = {
	{"format", 0, "FORMAT", "dot, svg or png (default: as FILE is named, else dot)",
	 HL_OPTION_CHOICE, HL_VIEW_AT(format), format_words},
	{"nodes", 'n', "N", "the N most informative functions; 0: all (default: 40)",
	 HL_OPTION_COUNT, HL_VIEW_AT(options.graph.node_limit), NULL},
	{"edge-threshold", 0, "PERCENT", "leave out edges of less than PERCENT (default: 0.5)",
	 HL_OPTION_PERCENT, HL_VIEW_AT(options.graph.edge_threshold), NULL},
	{0},
};

static int run_graph(void *parsed, int argc, char **argv)
{
	static const char *const json_word[] = {"json", NULL};
	struct hl_view_request *request = parsed;
	const struct hl_view_output *output = &request->output;
	bool is_json = output->json || hl_view_output_format_of(output->path, json_word) >= 0;

	int format =
		hl_view_options_choose_format(request, output->path && !is_json ? -1 : HL_VIEW_DOT);
	if (format < 0)
		return hl_cli_usage_error(&hl_verb_graph,
					  "cannot tell the format from the name '%s': end it in "
					  ".dot, .svg or .png, or use --format",
					  output->path);
	request->binary = format == HL_VIEW_PNG;
	request->options.graph.picture = (enum hl_view_picture)format;
	return hl_view_run(&hl_verb_graph, argc, argv, request);
}

const struct hl_verb hl_verb_graph = {
	.name = "graph",
	.group = HL_GROUP_LOOK,
	.arguments = "[NAME.hl]",
	.summary = "draw who calls whom: a box for each function",
	.options = options,
	.shared_options = {HL_VIEW_PICTURE_OPTIONS},
	HL_REQUEST(defaults),
	.run = run_graph,
};
