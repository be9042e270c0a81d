/* SPDX-License-Identifier: BSD-2-Clause */
/* Completes from the tables of verbs and options; see cli.h. */

#include "cli/cli.h"
#include "process/process.h"

#include <stdio.h>
#include <string.h>

static void offer_words(const char *const *words)
{
	for (; words && *words; words++)
		puts(*words);
}

static bool offer_pid(const struct hl_named_process *process, void *context)
{
	(void)context;
	printf("%d\t%s\n", process->pid, process->name);
	return true;
}

static bool offer_comm(const struct hl_named_process *process, void *context)
{
	(void)context;
	puts(process->name);
	return true;
}

/* Files whose names end in .hl, or any, as the name of an argument says: "[BEFORE] NAME.hl". A URL may be a file of SQLite. */
static void offer_files(const char *argument)
{
	static const char *const names[] = {"FILE", "FOLDER", "DIR", "URL"};

	if (strstr(argument, ".hl")) {
		puts(":recordings");
		return;
	}
	for (size_t i = 0; i < HL_COUNT_OF(names); i++)
		if (strstr(argument, names[i])) {
			puts(":files");
			return;
		}
}

/* The option with an argument that ${word} is, or NULL. */
static const struct hl_option *takes_value(const struct hl_option *const *options, size_t count,
					   const char *word)
{
	for (size_t i = 0; i < count; i++) {
		const char short_form[] = {'-', options[i]->short_name, '\0'};
		if (options[i]->argument &&
		    ((!strncmp(word, "--", 2) && !strcmp(word + 2, options[i]->name)) ||
		     (options[i]->short_name && !strcmp(word, short_form))))
			return options[i];
	}
	return NULL;
}

static void complete_verb(const struct hl_verb *verb, int count, char **words)
{
	const struct hl_option *options[HL_OPTIONS_MAX], *option = NULL;
	size_t option_count = hl_options_of(verb, options);
	int operands = 0;	 /* before the last word */
	bool is_command = false; /* after "--" */

	for (int i = 0; i < count - 1; i++) {
		is_command |= !strcmp(words[i], "--");
		if (takes_value(options, option_count, words[i]))
			i++;
		else if (words[i][0] != '-')
			operands++;
	}
	if (verb->stops_at_operand && operands) {
		puts(":files");
		return;
	}
	if (count > 1)
		option = takes_value(options, option_count, words[count - 2]);
	if (option && option->kind == HL_OPTION_CHOICE) {
		offer_words(option->accepts);
	} else if (option && option->kind == HL_OPTION_PID) {
		hl_process_each(offer_pid, NULL);
	} else if (option && option->kind == HL_OPTION_COMM) {
		hl_process_each(offer_comm, NULL);
	} else if (option) {
		offer_files(option->argument);
	} else if (words[count - 1][0] == '-') {
		for (size_t i = 0; i < option_count; i++)
			if (options[i]->kind != HL_OPTION_RENAMED)
				printf("--%s\t%s\n", options[i]->name, options[i]->help);
	} else if (verb->words && !operands) {
		offer_words(verb->words);
	} else if (verb->stops_at_operand && (is_command || !strstr(verb->arguments, ".hl"))) {
		puts(":commands");
	} else {
		offer_files(verb->arguments);
	}
}

int hl_complete(int count, char **words)
{
	const struct hl_verb *verb = count > 1 ? hl_verb_find(words[0]) : NULL;

	if (count == 1 || (count == 2 && verb == &hl_verb_help && words[1][0] != '-'))
		for (size_t i = 0; (verb = hl_verb_at(i)); i++)
			printf("%s\t%s\n", verb->name, verb->summary);
	else if (verb)
		complete_verb(verb, count - 1, words + 1);
	return HL_EXIT_DONE;
}
