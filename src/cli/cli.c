/* SPDX-License-Identifier: BSD-2-Clause */
/* What all verbs say on standard error, and the word that was meant; see cli.h. */
#include "cli/cli.h"

#include "cli/output.h"
#include "view/format.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the word that was meant ---- */

#define LENGTH_MAX 24 /* of words that are compared: longer than any verb or option */

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Optimal string alignment: edits that make ${a} into ${b}, where two letters swapped are one. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
	size_t rows[LENGTH_MAX + 1][LENGTH_MAX + 1];

	for (size_t j = 0; j <= b_length; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= a_length; i++) {
		rows[i][0] = i;
		for (size_t j = 1; j <= b_length; j++) {
			size_t change = rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
			rows[i][j] = least(change, least(rows[i - 1][j] + 1, rows[i][j - 1] + 1));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				rows[i][j] = least(rows[i][j], rows[i - 2][j - 2] + 1);
		}
	}
	return rows[a_length][b_length];
}

const char *hl_cli_nearest_word(const char *word, const char *const *words, size_t count)
{
	size_t length = strlen(word), nearest_edits = 1 + length / 4;
	const char *nearest = NULL;
	bool is_tied = false;

	if (length < 2 || length > LENGTH_MAX)
		return NULL;
	for (size_t i = 0; i < count; i++) {
		size_t other = strlen(words[i]), edits;
		if (other > LENGTH_MAX)
			continue;
		edits = strncmp(words[i], word, length) ? distance(word, length, words[i], other)
							: 0;
		if (edits > nearest_edits || edits >= length - 1)
			continue;
		is_tied = nearest && edits == nearest_edits;
		nearest_edits = edits;
		nearest = words[i];
	}
	return is_tied ? NULL : nearest;
}

/* ---- sentences ---- */

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

int hl_cli_unexpected_process(const char *word)
{
	bool is_pid = *word && !word[strspn(word, "0123456789")];

	hl_cli_error("unexpected argument '%s'; did you mean '%s %s'?", word,
		     is_pid ? "-p" : "--comm", word);
	return HL_EXIT_USAGE;
}

int hl_cli_unknown_word(const struct hl_verb *verb, const char *thing, const char *word,
			const char *const *words, size_t count)
{
	const char *near = hl_cli_nearest_word(word, words, count);

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

	for (const struct hl_verb *verb; (verb = hl_verb_at(count)); count++)
		names[count] = verb->name;
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
