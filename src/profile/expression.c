/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bounds on regular expressions; see filter.h. libc compiles by recursion, one level for each
 * parenthesis, writes what is repeated as often as it may come, and needs memory by the square of
 * what then stands there: a few letters from a user could take gigabytes.
 */
#include "profile/filter.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_MAX     1024
#define NESTING_MAX    64
#define REPETITION_MAX 255  /* what POSIX promises, RE_DUP_MAX */
#define WRITTEN_MAX    4096 /* letters once all repetitions are written out; about 100 MB */
#define SHOWN_LETTERS  40

/* What an expression comes to when its repetitions are written out. */
struct measure {
	const char *at;
	size_t written[NESTING_MAX + 1]; /* by level: letters since its parenthesis */
	size_t last;			 /* of those, what a repetition that follows repeats */
	size_t depth;
};

/* Behind "[...]", or the end. */
static const char *skip_bracket(const char *at)
{
	at += 1 + (at[1] == '^');
	at += *at == ']'; /* comes first: a letter */
	while (*at && *at != ']') {
		const char *end = NULL;
		if (*at == '[' && at[1] && strchr(":.=", at[1])) /* as in "[:alpha:]" */
			end = strstr(at + 2, ((char[]){at[1], ']', '\0'}));
		at = end ? end + 2 : at + 1;
	}
	return at + (*at == ']');
}

static void add(struct measure *measure, size_t letters)
{
	measure->last = letters;
	measure->written[measure->depth] += letters;
}

/* Writes what stood last out ${times} times in all. */
static void repeat(struct measure *measure, size_t times)
{
	size_t more = measure->last * (times - 1);

	measure->last += more;
	measure->written[measure->depth] += more;
}

/* Goes on by one letter, or by what else stands there. NULL, or what is wrong. */
static const char *measure_next(struct measure *measure)
{
	unsigned long first, last = 0;
	char *end;

	switch (*measure->at) {
	case '(':
		if (measure->depth == NESTING_MAX)
			return "its parentheses are nested more than 64 deep";
		measure->written[++measure->depth] = 1;
		measure->at++;
		return NULL;
	case ')':
		if (measure->depth) {
			size_t written = measure->written[measure->depth--];
			add(measure, written);
		}
		measure->at++;
		return NULL;
	case '{': /* "{2}", "{2,}", "{,5}", "{2,5}": libc judges everything else */
		end = (char *)measure->at + 1;
		first = isdigit((unsigned char)*end) ? strtoul(end, &end, 10) : 0;
		if (*end == ',')
			last = isdigit((unsigned char)*++end) ? strtoul(end, &end, 10) : 0;
		measure->at = end + (*end == '}');
		if (first > REPETITION_MAX || last > REPETITION_MAX)
			return "it repeats something more than 255 times";
		repeat(measure, (first > last ? first : last) + 1);
		return NULL;
	case '+': /* "a+" is written as "aa*" */
		measure->at++;
		repeat(measure, 2);
		return NULL;
	case '*':
	case '?':
		measure->at++;
		return NULL;
	case '[':
		measure->at = skip_bracket(measure->at);
		break;
	case '\\':
		measure->at += 1 + (measure->at[1] != '\0');
		break;
	default:
		measure->at++;
	}
	add(measure, 1);
	return NULL;
}

int hl_expression_compile(const char *text, const char *origin, regex_t *expression,
			  struct hl_error *err)
{
	struct measure measure = {.at = text};
	const char *excess = NULL; /* why ${text} is not given to libc */
	char reason[128];
	bool is_short = strlen(text) <= SHOWN_LETTERS;

	if (strlen(text) > LENGTH_MAX)
		excess = "it is longer than 1,024 bytes";
	while (!excess && *measure.at) {
		excess = measure_next(&measure);
		if (!excess && measure.written[measure.depth] > WRITTEN_MAX)
			excess = "its repetitions make it too large";
	}
	if (!excess) {
		int r = regcomp(expression, text, REG_EXTENDED | REG_NOSUB);
		if (r == 0)
			return 0;
		if (r == REG_ESPACE)
			return -ENOMEM;
		regerror(r, expression, reason, sizeof(reason));
	}
	return hl_error_set(err, -EINVAL, "bad expression '%.*s%s'%s: %s", SHOWN_LETTERS, text,
			    is_short ? "" : "...", origin, excess ? excess : reason);
}
