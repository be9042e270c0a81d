/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline pins: which live blocks keep pages in memory that are nearly empty. */
#include "cli/heap_target.h"
#include "cli/report_output.h"
#include "view/heap.h"

#define ROWS_DEFAULT 30

static uint64_t row_limit = ROWS_DEFAULT;

static const struct hl_option options[] = {
	{"rows", 'n', "N", "show at most N places; 0: all (default: 30)", HL_OPTION_COUNT,
	 &row_limit, NULL},
	{0},
};

static int write_pins(struct hl_error *err)
{
	struct hl_heap_settings settings = {.want_pins = true};
	struct hl_report_output output;
	struct hl_heap *heap = NULL;
	int r = hl_report_output_check(err);
	if (r == 0)
		r = hl_heap_target_read(&settings, &heap, err);
	if (r == 0)
		r = hl_report_output_open(&output, true, err);
	if (r == 0) {
		const struct hl_emit_options how = hl_report_output_emit(&output, row_limit);
		r = hl_report_output_close(&output, hl_view_pins(heap, &how), err);
	}
	hl_heap_free(heap);
	return r;
}

static int run_pins(int argc, char **argv)
{
	struct hl_error err = {0};
	int status = hl_heap_target_check(&hl_verb_pins, argc, argv);
	if (status != HL_EXIT_DONE)
		return status;
	return write_pins(&err) < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_pins = {
	.name = "pins",
	.group = HL_GROUP_ALLOCATORS,
	.arguments = "-p PID | --core FILE",
	.summary = "show which live blocks keep nearly empty pages in memory",
	.options = options,
	.shared_options = {hl_heap_target_options, hl_view_json_options, hl_view_color_options,
			   hl_view_output_options},
	.run = run_pins,
};
