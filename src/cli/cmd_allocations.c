/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline allocations: live blocks of a process by who allocated them, and of which sizes. */
#include "cli/heap_target.h"
#include "cli/report_output.h"
#include "heap/owners/owners.h"
#include "view/allocations.h"
#include "view/owners.h"

static uint64_t histogram_start = 128, histogram_width = 18;
static uint64_t row_limit = HL_EMIT_ROWS_DEFAULT;
static bool term, plumbing;

static const struct hl_option options[] = {
	{"histogram-start", 0, "BYTES", "where histograms begin (default: 128)", HL_OPTION_BYTES,
	 &histogram_start, NULL},
	{"histogram-width", 0, "N", "slots of histograms (default: 18)", HL_OPTION_COUNT,
	 &histogram_width, NULL},
	{"plumbing", 0, NULL,
	 "name allocation plumbing (operator new, xmalloc, ...), not its callers", HL_OPTION_FLAG,
	 &plumbing, NULL},
	{"rows", 'n', "N", "at most N rows; 0: all (default: 40, in JSON all)", HL_OPTION_COUNT,
	 &row_limit, NULL},
	{"term", 0, NULL, "write a term of Erlang", HL_OPTION_FLAG, &term, NULL},
	{0},
};

static int write_form(const struct hl_report_output *output, const struct hl_owners *owners)
{
	const struct hl_emit_options how = hl_report_output_emit(output, row_limit);

	return term ? hl_allocations_write_term(output->out, &owners->allocations)
		    : hl_view_owners(owners, hl_heap_target_pid(), &how);
}

static int write_allocations(const struct hl_owners_settings *settings, struct hl_error *err)
{
	struct hl_report_output output;
	struct hl_owners *owners = NULL;
	int r = hl_report_output_check(err);
	if (r == 0)
		r = hl_owners_read(hl_heap_target_pid(), settings, &owners, err);
	if (r == 0)
		r = hl_report_output_open(&output, !term, err);
	if (r == 0)
		r = hl_report_output_close(&output, write_form(&output, owners), err);
	hl_owners_free(owners);
	return r;
}

static int run_allocations(int argc, char **argv)
{
	struct hl_owners_settings settings = {0};
	struct hl_error err = {0};
	int status = hl_heap_target_check(&hl_verb_allocations, argc, argv);
	if (status == HL_EXIT_DONE && term && hl_view_options_parse_output().json)
		status = hl_cli_usage_error(&hl_verb_allocations,
					    "--term and --json exclude each other");
	if (status == HL_EXIT_DONE)
		status = hl_heap_target_shape(&hl_verb_allocations, histogram_start,
					      histogram_width, &settings.shape);
	if (status != HL_EXIT_DONE)
		return status;
	settings.stop = hl_heap_target_stops();
	settings.plumbing = plumbing;
	return write_allocations(&settings, &err) < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_allocations = {
	.name = "allocations",
	.group = HL_GROUP_ALLOCATORS,
	.arguments = "-p PID",
	.summary = "show live blocks by library and function, with their sizes",
	.options = options,
	.shared_options = {hl_heap_process_options, hl_view_json_options, hl_view_color_options,
			   hl_view_output_options},
	.run = run_allocations,
};
