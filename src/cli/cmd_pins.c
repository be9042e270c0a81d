/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline pins: which live blocks keep pages in memory that are nearly empty. */
#include "cli/heap_target.h"
#include "view/heap.h"

#define ROWS_DEFAULT 30

static uint64_t row_limit = ROWS_DEFAULT;

static const struct hl_option options[] = {
	{"rows", 'n', "N", "show at most N places; 0: all (default: 30)", HL_OPTION_COUNT,
	 &row_limit, NULL},
	{0},
};

static int run_pins(int argc, char **argv)
{
	struct hl_heap_settings settings = {.want_pins = true};
	enum hl_report_form form;

	int status = hl_heap_target_check(&hl_verb_pins, argc, argv);
	if (status == HL_EXIT_DONE)
		status = hl_report_output_choose_form(&hl_verb_pins, false, false, &form);
	return status == HL_EXIT_DONE
		       ? hl_heap_target_report(&settings, form, row_limit, hl_pins_view)
		       : status;
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
