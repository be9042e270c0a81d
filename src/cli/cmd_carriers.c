/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline carriers: the segments that a process' allocator got from the system. */
#include "cli/heap_target.h"
#include "cli/report_output.h"
#include "view/carriers.h"
#include "view/heap.h"
#include "view/slabs.h"

#include <string.h>

#define STRIP_PARTS 512 /* as fine as a picture shows */

static uint64_t histogram_start = 512, histogram_width = 14;
static uint64_t row_limit = HL_EMIT_ROWS_DEFAULT;
static bool term, ask;

static const struct hl_option options[] = {
	{"histogram-start", 0, "BYTES", "where histograms begin (default: 512)", HL_OPTION_BYTES,
	 &histogram_start, NULL},
	{"histogram-width", 0, "N", "slots of histograms (default: 14)", HL_OPTION_COUNT,
	 &histogram_width, NULL},
	{"rows", 'n', "N", "at most N rows; 0: all (default: 40, in JSON all)", HL_OPTION_COUNT,
	 &row_limit, NULL},
	{"ask", 0, NULL,
	 "ask jemalloc, mimalloc or tcmalloc itself, through the recorder in the process",
	 HL_OPTION_FLAG, &ask, NULL},
	{"term", 0, NULL, "write a term of Erlang", HL_OPTION_FLAG, &term, NULL},
	{0},
};

static bool is_picture(void)
{
	const struct hl_view_output output = hl_view_options_parse_output();
	const char *dot = output.path ? strrchr(output.path, '.') : NULL;
	return dot && strcmp(dot, ".svg") == 0;
}

static int write_report(const struct hl_report_output *output, const struct hl_heap *heap)
{
	const struct hl_emit_options how = hl_report_output_emit(output, row_limit);
	struct hl_emit *emit;

	int r = hl_emit_open(&how, "carriers/1", &emit);
	if (r < 0)
		return r;
	hl_heap_emit_head(emit, heap);
	r = hl_carriers_emit(emit, &heap->carriers, row_limit);
	hl_heap_emit_notes(emit, heap);
	int finished = hl_emit_finish(emit);
	return r < 0 ? r : finished;
}

static int write_form(const struct hl_report_output *output, const struct hl_heap *heap)
{
	char title[128];
	if (term) {
		hl_carriers_write_term(output->out, &heap->carriers);
		return 0;
	}
	if (!is_picture())
		return write_report(output, heap);
	snprintf(title, sizeof(title), "%s (pid %d), %s", heap->process.comm, heap->process.pid,
		 heap->allocator);
	return hl_carriers_write_svg(output->out, &heap->carriers, title);
}

static int write_carriers(struct hl_heap_settings *settings, struct hl_error *err)
{
	struct hl_report_output output;
	struct hl_heap *heap = NULL;
	int r = hl_report_output_check(err);
	if (r == 0)
		r = hl_heap_target_read(settings, &heap, err);
	if (r == 0)
		r = hl_report_output_open(&output, !term, err);
	if (r == 0)
		r = hl_report_output_close(&output, write_form(&output, heap), err);
	hl_heap_free(heap);
	return r;
}

static int write_slabs(struct hl_error *err)
{
	struct hl_slabs slabs;
	struct hl_report_output output;
	int r = hl_report_output_check(err);
	if (r == 0)
		r = hl_slabs_ask(hl_heap_target_pid(), &slabs, err);
	if (r == 0)
		r = hl_report_output_open(&output, true, err);
	if (r < 0)
		return r;
	const struct hl_emit_options how = hl_report_output_emit(&output, 0);
	return hl_report_output_close(&output, hl_view_slabs(&slabs, hl_heap_target_pid(), &how),
				      err);
}

static int check_form(void)
{
	const struct hl_view_output output = hl_view_options_parse_output();
	if (ask && (term || is_picture() || !hl_heap_target_pid()))
		return hl_cli_usage_error(
			&hl_verb_carriers,
			"--ask cannot be combined with --term, --core or a picture");
	if (term && output.json)
		return hl_cli_usage_error(&hl_verb_carriers,
					  "--term and --json exclude each other");
	if (is_picture() && (term || output.json))
		return hl_cli_usage_error(
			&hl_verb_carriers,
			"'%s' is named as a picture, but --term and --json write text",
			output.path);
	return HL_EXIT_DONE;
}

static int run_carriers(int argc, char **argv)
{
	struct hl_heap_settings settings = {0};
	struct hl_error err = {0};
	int status = hl_heap_target_check(&hl_verb_carriers, argc, argv);
	if (status == HL_EXIT_DONE)
		status = check_form();
	if (status == HL_EXIT_DONE)
		status = hl_heap_target_shape(&hl_verb_carriers, histogram_start, histogram_width,
					      &settings.free_shape);
	if (status != HL_EXIT_DONE)
		return status;
	if (ask)
		return write_slabs(&err) < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
	settings.strip_count = is_picture() ? STRIP_PARTS : 0;
	return write_carriers(&settings, &err) < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_carriers = {
	.name = "carriers",
	.group = HL_GROUP_ALLOCATORS,
	.arguments = "-p PID | --core FILE",
	.summary = "list an allocator's segments (carriers) and their free blocks",
	.options = options,
	.shared_options = {hl_heap_target_options, hl_view_json_options, hl_view_color_options,
			   hl_view_output_options},
	.run = run_carriers,
};
