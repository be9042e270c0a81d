/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline help: what heapline can do, or the options of one verb. */
#include "cli/cli.h"

static int run_help(void *parsed, int argc, char **argv)
{
	(void)parsed;
	if (argc > 1)
		return hl_cli_usage_error(&hl_verb_help, "'help' takes one verb, not %d", argc);
	if (argc == 0) {
		hl_help_program(stdout);
		return HL_EXIT_DONE;
	}
	const struct hl_verb *verb = hl_verb_find(argv[0]);
	if (!verb)
		return hl_cli_unknown_verb(argv[0]);
	hl_help_verb(verb, stdout);
	return HL_EXIT_DONE;
}

const struct hl_verb hl_verb_help = {
	.name = "help",
	.group = HL_GROUP_ABOUT,
	.arguments = "[VERB]",
	.summary = "show the verbs, or the options of one verb",
	.run = run_help,
	.effect = HL_VERB_STAYS,
};
