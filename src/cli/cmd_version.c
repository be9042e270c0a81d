/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline version: which heapline this is. */
#include "cli/cli.h"

#include <stdio.h>

static bool as_json;

static const struct hl_option options[] = {
	{"json", 0, NULL, "write JSON", HL_OPTION_FLAG, &as_json, NULL},
	{0},
};

static int run_version(int argc, char **argv)
{
	if (argc > 0)
		return hl_cli_usage_error(&hl_verb_version, "unexpected argument '%s'", argv[0]);
	if (as_json)
		puts("{\"schema\": \"heapline/version/1\", \"version\": \"" HL_VERSION "\"}");
	else
		puts("heapline " HL_VERSION);
	return HL_EXIT_DONE;
}

const struct hl_verb hl_verb_version = {
	.name = "version",
	.group = HL_GROUP_ABOUT,
	.arguments = "",
	.summary = "show which heapline this is",
	.options = options,
	.run = run_version,
};
