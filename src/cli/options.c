/* SPDX-License-Identifier: BSD-2-Clause */
/* What comes of the tables of verbs and options: parsing by getopt_long, help, completion; see cli.h. */
#include "cli/cli.h"
#include "process/process.h"
#include "view/format.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG_BASE	   256 /* what getopt_long returns for options[i] is LONG_BASE + i */
#define HELP_COLUMN	   26
#define HELP_COLUMN_NARROW 8 /* where a terminal has no room for two columns */
#define EXIT_NOT_YET	   (-1)
#define SECONDS_MAX	   1e9 /* thirty years; more is a slip of the finger */

static const struct hl_option help_option[] = {
	{.name = "help", .short_name = 'h', .help = "show this help"},
	{0},
};

/* Adds the options of ${table} (NULL: none); returns how many there are now. */
static size_t collect_table(const struct hl_option *table, size_t count,
			    const struct hl_option *ret_options[HL_OPTIONS_MAX])
{
	for (; table && table->name; table++) {
		if (count == HL_OPTIONS_MAX)
			abort();
		ret_options[count++] = table;
	}
	return count;
}

size_t hl_options_of(const struct hl_verb *verb,
		     const struct hl_option *ret_options[HL_OPTIONS_MAX])
{
	size_t count = collect_table(verb->options, 0, ret_options);

	for (size_t i = 0; hl_guests_outside[i]; i++)
		count = collect_table(hl_guests_outside[i]->options[verb->guest_options], count,
				      ret_options);
	for (size_t i = 0; i < HL_SHARED_TABLES; i++)
		count = collect_table(verb->shared_options[i], count, ret_options);
	return collect_table(help_option, count, ret_options);
}

int hl_option_parse_number(const char *text, bool suffix_allowed, uint64_t *ret_number)
{
	char *end;
	unsigned shift = 0;

	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	if (errno || end == text || !isdigit((unsigned char)text[0]))
		return -EINVAL;
	if (suffix_allowed && *end) {
		const char *const suffixes = "KMGT";
		const char *suffix = strchr(suffixes, toupper((unsigned char)*end));
		if (!suffix)
			return -EINVAL;
		shift = 10 * (unsigned)(suffix - suffixes + 1);
		end++;
	}
	if (*end || number > UINT64_MAX >> shift)
		return -EINVAL;
	*ret_number = (uint64_t)number << shift;
	return 0;
}

int hl_option_parse_seconds(const char *text, double *ret_seconds)
{
	char *end;

	if (!isdigit((unsigned char)text[0]) && text[0] != '.')
		return -EINVAL;
	double seconds = strtod(text, &end);
	if (*end || strpbrk(text, "xXeE") || !(seconds > 0) || seconds > SECONDS_MAX)
		return -EINVAL;
	*ret_seconds = seconds;
	return 0;
}

static int parse_percent(const char *text, double *ret_percent)
{
	char *end;

	errno = 0;
	double percent = strtod(text, &end);
	if (*end == '%')
		end++;
	/* Numbers alone: strtod() takes "nan", "inf" and hexadecimal as well. */
	if (errno || *end || text[strspn(text, "0123456789.%")] || end == text || percent > 100)
		return -EINVAL;
	*ret_percent = percent;
	return 0;
}

/* Where ${request} of ${verb} keeps what ${option} is set to. */
static void *member_of(const struct hl_verb *verb, const struct hl_option *option, void *request)
{
	char *base = request;

	for (size_t i = 0; hl_guests_outside[i]; i++)
		for (const struct hl_option *own =
			     hl_guests_outside[i]->options[verb->guest_options];
		     own && own->name; own++)
			if (own == option)
				base += verb->guests_at + i * sizeof(struct hl_guest_request);
	return base + option->offset;
}

static int store(const struct hl_option *option, char *text, void *member)
{
	const char *const *words = option->accepts;
	const struct hl_option_bounds *bounds = option->accepts;
	struct hl_option_texts *texts = member;
	struct hl_option_range *range = member;
	uint64_t number;

	switch (option->kind) {
	case HL_OPTION_FLAG:
		*(bool *)member = true;
		return 0;
	case HL_OPTION_TEXT:
		*(const char **)member = text;
		return 0;
	case HL_OPTION_OUTPUT:
		*(const char **)member = strcmp(text, "-") ? text : NULL;
		return 0;
	case HL_OPTION_COUNT:
	case HL_OPTION_BYTES:
		if (hl_option_parse_number(text, option->kind == HL_OPTION_BYTES, &number) < 0 ||
		    (bounds && (number < bounds->least || number > bounds->most)))
			return -EINVAL;
		*(uint64_t *)member = number;
		return 0;
	case HL_OPTION_SECONDS:
		return hl_option_parse_seconds(text, member);
	case HL_OPTION_PERCENT:
		return parse_percent(text, member);
	case HL_OPTION_CHOICE:
		for (int i = 0; words[i]; i++)
			if (!strcmp(words[i], text)) {
				*(int *)member = i;
				return 0;
			}
		return -EINVAL;
	case HL_OPTION_TEXTS:
		if (texts->count < HL_OPTION_TEXTS_MAX)
			texts->texts[texts->count] = text;
		texts->count++;
		return 0;
	case HL_OPTION_PID:
		return hl_option_parse_number(text, false, member) == 0 &&
				       *(uint64_t *)member - 1 < INT32_MAX
			       ? 0
			       : -EINVAL;
	case HL_OPTION_COMM:
	case HL_OPTION_RENAMED:
		break;
	case HL_OPTION_RANGE:
		range->given = true;
		return hl_option_parse_number(text, false, &range->first);
	}
	return -EINVAL;
}

/* "256M" of a number of bytes, else plain digits. */
static const char *bound_text(const struct hl_option *option, uint64_t bound, char buffer[24])
{
	static const char *const suffixes[] = {"", "K", "M", "G", "T"};
	size_t shift = option->kind == HL_OPTION_BYTES ? 4 : 0;

	while (shift && (!bound || bound & ((UINT64_C(1) << 10 * shift) - 1)))
		shift--;
	snprintf(buffer, 24, "%" PRIu64 "%s", bound >> 10 * shift, suffixes[shift]);
	return buffer;
}

/* What ${option} takes: "a whole number from 1 to 12", "json, csv or svg". */
static const char *expectation(const struct hl_option *option, char *buffer, size_t size)
{
	static const char *const phrases[] = {
		[HL_OPTION_COUNT] = "a whole number",
		[HL_OPTION_RANGE] = "two whole numbers",
		[HL_OPTION_PID] = "the number of a process",
		[HL_OPTION_BYTES] = "a number of bytes such as 4096 or 512K",
		[HL_OPTION_SECONDS] = "a possible number of seconds",
		[HL_OPTION_PERCENT] = "a percentage from 0 to 100",
	};
	const struct hl_option_bounds *bounds = option->accepts;

	const char *const *words = option->accepts;
	char least[24], most[24];

	if (option->kind != HL_OPTION_CHOICE) {
		if (!bounds)
			return phrases[option->kind];
		const char *kind =
			option->kind == HL_OPTION_BYTES ? "number of bytes" : "whole number";
		bound_text(option, bounds->least, least);
		bound_text(option, bounds->most, most);
		if (bounds->most == UINT64_MAX)
			snprintf(buffer, size, "a %s of at least %s", kind, least);
		else if (bounds->least)
			snprintf(buffer, size, "a %s from %s to %s", kind, least, most);
		else
			snprintf(buffer, size, "a %s up to %s", kind, most);
		return buffer;
	}
	buffer[0] = '\0';
	for (size_t i = 0; words[i]; i++) {
		const char *separator = i == 0 ? "" : words[i + 1] ? ", " : " or ";
		size_t used = strlen(buffer);
		snprintf(buffer + used, size - used, "%s%s", separator, words[i]);
	}
	return buffer;
}

static int bad_value(const struct hl_verb *verb, const struct hl_option *option, const char *text)
{
	const char *const *words = option->kind == HL_OPTION_CHOICE ? option->accepts : NULL;
	char phrase[256];
	size_t count = 0;

	while (words && words[count])
		count++;
	const char *near = hl_cli_nearest_word(text, words, count);
	if (!near)
		return hl_cli_usage_error(verb, "bad value '%s' of option '--%s': not %s", text,
					  option->name,
					  expectation(option, phrase, sizeof(phrase)));
	hl_cli_error("bad value '%s' of option '--%s'; did you mean '%s'?", text, option->name,
		     near);
	return HL_EXIT_USAGE;
}

static void fill_getopt(const struct hl_verb *verb, const struct hl_option *const *options,
			size_t count, char *shorts, struct option *longs)
{
	if (verb->stops_at_operand)
		*shorts++ = '+';
	*shorts++ = ':';
	for (size_t i = 0; i < count; i++) {
		longs[i] = (struct option){options[i]->name,
					   options[i]->argument ? required_argument : no_argument,
					   NULL, LONG_BASE + (int)i};
		if (!options[i]->short_name)
			continue;
		*shorts++ = options[i]->short_name;
		if (options[i]->argument)
			*shorts++ = ':';
	}
	longs[count] = (struct option){0};
	*shorts = '\0';
}

static size_t option_of(const struct hl_option *const *options, size_t count, int code)
{
	if (code >= LONG_BASE)
		return (size_t)(code - LONG_BASE);
	for (size_t i = 0; i < count; i++)
		if (options[i]->short_name == code)
			return i;
	abort(); /* getopt returns only what fill_getopt() listed */
}

/* The option as the user wrote it, from getopt's state after an error. */
static const char *as_written(char **argv, char buffer[3])
{
	if (optopt == 0 || optopt >= LONG_BASE)
		return argv[optind - 1];
	buffer[0] = '-';
	buffer[1] = (char)optopt;
	buffer[2] = '\0';
	return buffer;
}

/*
 * getopt's '?': a flag with an argument, an option that there is not, or an abbreviation of
 * several.
 */
static int bad_option(const struct hl_verb *verb, const struct hl_option *const *options,
		      size_t count, char **argv)
{
	const char *names[HL_OPTIONS_MAX];
	char buffer[3], name[64], thing[160];

	if (optopt >= LONG_BASE)
		return hl_cli_usage_error(verb, "option '--%s' takes no argument",
					  options[optopt - LONG_BASE]->name);
	for (size_t i = 0; i < count; i++)
		names[i] = options[i]->name;
	const char *written = as_written(argv, buffer);
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(written, "="), written);
	snprintf(thing, sizeof(thing), "'%s' has no option '%s'", verb->name, name);
	const char *word = strncmp(name, "--", 2) ? "" : name + 2;
	for (const struct hl_hint *hint = verb->hints; hint && hint->option; hint++)
		if (!strcmp(word, hint->option))
			return hl_cli_usage_error(verb, "%s: %s", thing, hint->sentence);
	return hl_cli_unknown_word(verb, thing, word, names, count);
}

int hl_options_parse(const struct hl_verb *verb, int argc, char **argv, void *request,
		     int *ret_first_operand)
{
	const struct hl_option *options[HL_OPTIONS_MAX];
	struct option longs[HL_OPTIONS_MAX + 1];
	char shorts[2 * HL_OPTIONS_MAX + 3], written[3];
	size_t count = hl_options_of(verb, options);
	struct hl_error err = {0};
	pid_t pid;
	int code;

	fill_getopt(verb, options, count, shorts, longs);
	opterr = 0;
	optind = 1;
	while ((code = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		if (code == ':')
			return hl_cli_usage_error(verb, "option '%s' needs an argument",
						  as_written(argv, written));
		if (code == '?')
			return bad_option(verb, options, count, argv);
		const struct hl_option *option = options[option_of(options, count, code)];
		if (option == help_option) {
			hl_help_verb(verb, stdout);
			return HL_EXIT_DONE;
		}
		if (option->kind == HL_OPTION_RENAMED)
			return hl_cli_usage_error(verb, "option '--%s' is now '--%s'", option->name,
						  option->help);
		void *member = member_of(verb, option, request);
		if (option->kind == HL_OPTION_COMM) {
			if (hl_process_by_name(optarg, &pid, &err) < 0)
				return hl_cli_error("%s", err.text);
			*(uint64_t *)member = (uint64_t)pid;
			continue;
		}
		int r = store(option, optarg, member);
		/* getopt does not know of a range's second number, the word after the first one. */
		if (r == 0 && option->kind == HL_OPTION_RANGE)
			r = optind < argc ? hl_option_parse_number(
						    argv[optind++], false,
						    &((struct hl_option_range *)member)->last)
					  : -EINVAL;
		if (r < 0)
			return bad_value(verb, option, optarg);
	}
	*ret_first_operand = optind;
	return EXIT_NOT_YET;
}

/* The table that help shows, in lines of ${width} columns. */
static void options_help(const struct hl_verb *verb, FILE *out, size_t width)
{
	const struct hl_option *options[HL_OPTIONS_MAX];
	size_t count = hl_options_of(verb, options);
	size_t indent = width < 2 * HELP_COLUMN ? HELP_COLUMN_NARROW : HELP_COLUMN;

	for (size_t i = 0; i < count; i++) {
		const struct hl_option *o = options[i];
		char abbreviation[8] = "    ";
		if (o->kind == HL_OPTION_RENAMED)
			continue;
		if (o->short_name)
			snprintf(abbreviation, sizeof(abbreviation), "-%c, ", o->short_name);
		size_t used =
			(size_t)fprintf(out, "  %s--%s%s%s", abbreviation, o->name,
					o->argument ? " " : "", o->argument ? o->argument : "");
		if (used >= indent - 1) {
			putc('\n', out);
			used = 0;
		}
		fprintf(out, "%*s", (int)(indent - used), "");
		hl_format_put_wrapped(out, o->help, indent, indent, width);
		putc('\n', out);
	}
}

/* ---- help ---- */

#define SUMMARY_COLUMN 15

/* By enum hl_verb_group. */
static const char *const headings[HL_GROUP_COUNT] = {
	[HL_GROUP_ASK] = "ask about a process",
	[HL_GROUP_RECORD] = "record the allocations of a program",
	[HL_GROUP_LOOK] = "look at a recording (without a name: the newest one here)",
	[HL_GROUP_LIVE] = "watch a running process; nothing is put into it",
	[HL_GROUP_ALLOCATORS] = "see what the allocator of a running process holds",
	[HL_GROUP_FILES] = "exchange files with other tools and machines",
	[HL_GROUP_ABOUT] = "about heapline",
};

void hl_help_program(FILE *out)
{
	size_t width = hl_format_terminal_width(fileno(out));

	hl_format_put_wrapped(out, "usage: heapline VERB [OPTIONS] [ARGUMENTS]", 0, 7, width);
	fputs("\n\n", out);
	hl_format_put_wrapped(
		out, "Shows where the memory of a program went: every allocation, by call stack.",
		0, 0, width);
	fputc('\n', out);
	for (int group = 0; group < HL_GROUP_COUNT; group++) {
		fputc('\n', out);
		hl_format_put_wrapped(out, headings[group], 0, 2, width);
		fputc('\n', out);
		const struct hl_verb *verb;
		for (size_t i = 0; (verb = hl_verb_at(i)); i++) {
			if ((int)verb->group != group)
				continue;
			fprintf(out, "  %-*s", SUMMARY_COLUMN - 2, verb->name);
			hl_format_put_wrapped(out, verb->summary, SUMMARY_COLUMN, SUMMARY_COLUMN,
					      width);
			fputc('\n', out);
		}
	}
	fputc('\n', out);
	hl_format_put_wrapped(
		out, "'heapline help VERB' shows the options of a verb. Begin with:", 0, 0, width);
	fputs("\n"
	      "  heapline record -o app.hl -- COMMAND\n"
	      "  heapline top app.hl\n"
	      "or, for a running process:\n"
	      "  heapline why -p PID\n"
	      "  heapline attach -p PID -o app.hl\n"
	      "  heapline heap -p PID\n",
	      out);
}

void hl_help_verb(const struct hl_verb *verb, FILE *out)
{
	static const char usage[] = "usage: ";
	size_t width = hl_format_terminal_width(fileno(out));
	char line[512];

	snprintf(line, sizeof(line), "%sheapline %s [OPTIONS]%s%s", usage, verb->name,
		 verb->arguments[0] ? " " : "", verb->arguments);
	hl_format_put_wrapped(out, line, 0, sizeof(usage) - 1, width);
	fputs("\n\n", out);
	hl_format_put_wrapped(out, verb->summary, 0, 0, width);
	fputs("\n\noptions:\n", out);
	options_help(verb, out, width);
}

/* ---- completion ---- */

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

	if (count == 1 || (count == 2 && verb && !strcmp(verb->name, "help") && words[1][0] != '-'))
		for (size_t i = 0; (verb = hl_verb_at(i)); i++)
			printf("%s\t%s\n", verb->name, verb->summary);
	else if (verb)
		complete_verb(verb, count - 1, words + 1);
	return HL_EXIT_DONE;
}
