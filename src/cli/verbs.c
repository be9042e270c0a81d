/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of verbs, and the way into the library that has them all. */
#include "cli/cli.h"
#include "cli/view_options.h"

#include "guests/outside.h"

#include <locale.h>

/* clang-format off */
static const struct hl_verb *const verbs[] = {
	&hl_verb_why,
	&hl_verb_record,
	&hl_verb_attach,
	&hl_verb_ctl,
	&hl_verb_stacks,
	&hl_verb_pgfault,
	&hl_verb_page_events,
	&hl_verb_top,
	&hl_verb_lines,
	&hl_verb_annotate,
	&hl_verb_flame,
	&hl_verb_tree,
	&hl_verb_graph,
	&hl_verb_diff,
	&hl_verb_check,
	&hl_verb_timeline,
	&hl_verb_peaks,
	&hl_verb_growth,
	&hl_verb_events,
	&hl_verb_sizes,
	&hl_verb_folded,
	&hl_verb_live,
	&hl_verb_serve,
	&hl_verb_push,
	&hl_verb_fleet,
	&hl_verb_watch,
	&hl_verb_mcp,
	&hl_verb_heap,
	&hl_verb_pod,
	&hl_verb_carriers,
	&hl_verb_allocations,
	&hl_verb_pins,
	&hl_verb_leaks,
	&hl_verb_holders,
	&hl_verb_export,
	&hl_verb_info,
	&hl_verb_report,
	&hl_verb_pack,
	&hl_verb_import,
	&hl_verb_doctor,
	&hl_verb_version,
	&hl_verb_help,
};
/* clang-format on */

const struct hl_verb *hl_verb_at(size_t number)
{
	if (number < HL_COUNT_OF(verbs))
		return verbs[number];
	number -= HL_COUNT_OF(verbs);
	for (size_t i = 0; hl_guest_tools[i]; i++)
		if (hl_guest_tools[i]->verb && number-- == 0)
			return hl_guest_tools[i]->verb;
	return NULL;
}

int hl_verb_run(const struct hl_verb *verb, void *request, int argc, char **argv)
{
	return verb->run ? verb->run(request, argc, argv) : hl_view_run(verb, argc, argv, request);
}

const char hl_verbs_version[] = HL_VERSION;

int hl_verbs_main(int argc, char **argv)
{
	setlocale(LC_CTYPE, ""); /* for the width of letters in tables */
	return hl_cli_run(argc, argv);
}
