/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline pins: which live blocks keep pages in memory that are nearly empty. */
#include "cli/families.h"
#include "view/heap.h"

#define ROWS_DEFAULT 30

static const struct hl_heap_target defaults = {.output.row_limit = ROWS_DEFAULT};

static const struct hl_option options[] = {
	{"rows", 'n', "N", "show at most N places; 0: all (default: 30)", HL_OPTION_COUNT,
	 HL_HEAP_TARGET_AT(output.row_limit), NULL},
	{0},
};

static int write_pins(const struct hl_heap_target *target, const struct hl_heap *heap,
		      const struct hl_emit_options *how)
{
	(void)target;
	return hl_pins_view(heap, how);
}

static int run_pins(void *parsed, int argc, char **argv)
{
	struct hl_heap_target *target = parsed;
	struct hl_heap_settings settings = {.want_pins = true};

	int status = hl_heap_target_check(&hl_verb_pins, argc, argv, target);
	if (status == HL_EXIT_DONE)
		status = hl_view_output_obey_name(&hl_verb_pins, &target->output, NULL, false);
	return status == HL_EXIT_DONE
		       ? hl_heap_target_report(target, &settings, HL_REPORT_TABLE, write_pins)
		       : status;
}

const struct hl_verb hl_verb_pins = {
	.name = "pins",
	.group = HL_GROUP_ALLOCATORS,
	.arguments = "-p PID | --core FILE",
	.summary = "show which live blocks keep nearly empty pages in memory",
	.options = options,
	.shared_options = {HL_HEAP_TARGET_OPTIONS, hl_view_json_options, hl_view_color_options,
			   hl_view_output_options},
	HL_REQUEST(defaults),
	.run = run_pins,
};
