/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline folded: one line for each stack, for flame graph programs. */
#include "cli/view_options.h"

static int run_folded(int argc, char **argv)
{
	return hl_view_run(&hl_verb_folded, argc, argv, hl_view_folded,
			   (struct hl_view_options){0});
}

const struct hl_verb hl_verb_folded = {
	.name = "folded",
	.arguments = "NAME.hl",
	.summary = "write stacks as folded lines, for flame graph programs",
	.shared_options = {hl_view_value_options, hl_view_selection_options},
	.run = run_folded,
};
