/* SPDX-License-Identifier: BSD-2-Clause */
/* The heapline program: finds the verb, parses its options, runs it, and checks standard output. */
#include "cli/cli.h"
#include "cli/complete.h"
#include "cli/help.h"
#include "cli/nearest.h"
#include "cli/options.h"
#include "cli/terminal_progress.h"
#include "view/format.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Names in sentences come from anywhere: what a terminal would obey is written as in reports. */
static void say(const char *format, va_list args)
{
	char *sentence;

	hl_terminal_progress_wipe();
	fflush(stdout); /* so that data and chatter keep their order in one file */
	fputs("heapline: ", stderr);
	if (vasprintf(&sentence, format, args) < 0) {
		fputs("out of memory", stderr);
		return;
	}
	hl_format_put(stderr, sentence);
	free(sentence);
}

int hl_cli_error(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	say(format, args);
	va_end(args);
	fputc('\n', stderr);
	return HL_EXIT_FAILED;
}

int hl_cli_usage_error(const struct hl_verb *verb, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	say(format, args);
	va_end(args);
	fprintf(stderr, "; see 'heapline help%s%s'\n", verb ? " " : "", verb ? verb->name : "");
	return HL_EXIT_USAGE;
}

int hl_cli_unknown_word(const struct hl_verb *verb, const char *thing, const char *word,
			const char *const *words, size_t count)
{
	const char *near = hl_nearest_word(word, words, count);

	if (!near)
		return hl_cli_usage_error(verb, "%s", thing);
	hl_cli_error("%s; did you mean '%s%s'?", thing, verb ? "--" : "", near);
	return HL_EXIT_USAGE;
}

int hl_cli_unknown_verb(const char *name)
{
	const char *names[HL_VERBS_MAX];
	char thing[128];
	size_t count = 0;

	for (; hl_verbs[count]; count++)
		names[count] = hl_verbs[count]->name;
	snprintf(thing, sizeof(thing), "no verb '%s'", name);
	return hl_cli_unknown_word(NULL, thing, name, names, count);
}

void hl_cli_note(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	say(format, args);
	va_end(args);
	fputc('\n', stderr);
}

/* A reader that went away (EPIPE) wanted no more: not an error worth a sentence. */
static int close_stdout(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	if (errno == EPIPE)
		return status ? status : HL_EXIT_FAILED;
	hl_cli_error("cannot write standard output: %s; what was written is incomplete",
		     strerror(errno));
	return status ? status : HL_EXIT_FAILED;
}

static int run_verb(const struct hl_verb *verb, int argc, char **argv)
{
	int first_operand;

	int status = hl_options_parse(verb, argc, argv, &first_operand);
	if (status >= 0)
		return status;
	return verb->run(argc - first_operand, argv + first_operand);
}

static int dispatch(int argc, char **argv)
{
	if (argc < 2) {
		hl_help_program(stderr);
		return HL_EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--complete"))
		return hl_complete(argc - 2, argv + 2);
	if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))
		return run_verb(&hl_verb_help, 1, argv + 1);
	if (!strcmp(argv[1], "-V") || !strcmp(argv[1], "--version"))
		return run_verb(&hl_verb_version, 1, argv + 1);
	const struct hl_verb *verb = hl_verb_find(argv[1]);
	if (!verb)
		return hl_cli_unknown_verb(argv[1]);
	return run_verb(verb, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
	setlocale(LC_CTYPE, ""); /* for the width of letters in tables */
	return close_stdout(dispatch(argc, argv));
}
