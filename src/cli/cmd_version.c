/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline version: which heapline this is. */
#include "cli/cli.h"

#include <stdio.h>

struct request {
	bool json;
};

static const struct request defaults;

static const struct hl_option options[] = {
	{"json", 0, NULL, "write JSON", HL_OPTION_FLAG, HL_AT(json), NULL},
	{0},
};

static int run_version(void *parsed, int argc, char **argv)
{
	const struct request *request = parsed;

	if (argc > 0)
		return hl_cli_usage_error(&hl_verb_version, "unexpected argument '%s'", argv[0]);
	if (request->json)
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
	HL_REQUEST(defaults),
	.run = run_version,
};
