/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the verb, parses its options, runs it, and checks standard output; see cli.h. */
#include "cli/cli.h"

#include "base/cleanup.h"
#include "base/self.h"
#include "base/user.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct hl_verb *hl_verb_find(const char *name)
{
	const struct hl_verb *verb = NULL;

	for (size_t i = 0; (verb = hl_verb_at(i)); i++)
		if (!strcmp(verb->name, name))
			break;
	return verb;
}

bool hl_verb_shares(const struct hl_verb *verb, const struct hl_option *table)
{
	for (size_t i = 0; i < HL_SHARED_TABLES; i++)
		if (verb->shared_options[i] == table)
			return true;
	return false;
}

static int run_verb(const struct hl_verb *verb, int argc, char **argv)
{
	HL_FREED void *request = malloc(verb->request_bytes + 1);
	int first_operand;

	if (!request)
		return hl_cli_error("out of memory");
	if (verb->request)
		memcpy(request, verb->request, verb->request_bytes);
	int status = hl_options_parse(verb, argc, argv, request, &first_operand);
	if (status >= 0)
		return status;
	argc -= first_operand;
	argv += first_operand;
	return hl_verb_run(verb, request, argc, argv);
}

static int dispatch(int argc, char **argv)
{
	if (argc < 2) {
		hl_help_program(stderr);
		return HL_EXIT_USAGE;
	}
	if (!strcmp(argv[1], HL_SELF_WITH_PARENT) && argc > 3) {
		if (!hl_self_keep_to_parent(argv[2]))
			return HL_EXIT_FAILED;
		argv += 2;
		argc -= 2;
	}
	if (!strcmp(argv[1], HL_SELF_AS_USER) && argc > 3) {
		int r = hl_user_become(argv[2]);
		if (r < 0)
			return hl_cli_error("cannot run '%s' as user '%s': %s", argv[3], argv[2],
					    strerror(-r));
		argv += 2;
		argc -= 2;
	}
	if (!strcmp(argv[1], "--complete"))
		return hl_complete(argc - 2, argv + 2);
	if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))
		return run_verb(hl_verb_find("help"), 1, argv + 1);
	if (!strcmp(argv[1], "-V") || !strcmp(argv[1], "--version"))
		return run_verb(hl_verb_find("version"), 1, argv + 1);
	const struct hl_verb *verb = hl_verb_find(argv[1]);
	if (!verb)
		return hl_cli_unknown_verb(argv[1]);
	return run_verb(verb, argc - 1, argv + 1);
}

int hl_cli_run(int argc, char **argv)
{
	int status = dispatch(argc, argv);

	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	if (errno != EPIPE) /* a reader that went away wanted no more */
		hl_cli_error("cannot write standard output: %s; what was written is incomplete",
			     strerror(errno));
	return status ? status : HL_EXIT_FAILED;
}
