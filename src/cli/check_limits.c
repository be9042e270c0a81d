/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads limits; see check_limits.h. */
#include "cli/check_limits.h"

#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

/* "1e6" and "1.5G", too. */
static int parse_number(const char *text, uint64_t *ret_number)
{
	static const char suffixes[] = "KMGT";
	char *end;

	if (hl_option_parse_number(text, true, ret_number) == 0)
		return 0;
	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	double number = strtod(text, &end);
	const char *suffix = *end ? strchr(suffixes, *end) : NULL;
	if (suffix)
		number = ldexp(number, 10 * (int)(suffix - suffixes + 1));
	if (end[suffix != NULL] || !(number < 0x1p63) || strpbrk(text, "xX"))
		return -EINVAL;
	*ret_number = (uint64_t)number;
	return 0;
}

/* "1M/min", by the minute. */
static int parse_rate(const char *text, uint64_t *ret_number)
{
	static const struct unit {
		const char *name;
		double per_minute;
	} units[] = {{"/s", 60}, {"/min", 1}, {"/h", 1.0 / 60}};
	const char *slash = strchr(text, '/');
	char number[32];

	if (!slash || (size_t)(slash - text) >= sizeof(number))
		return -EINVAL;
	memcpy(number, text, (size_t)(slash - text));
	number[slash - text] = '\0';
	int r = parse_number(number, ret_number);
	for (size_t i = 0; i < HL_COUNT_OF(units) && r == 0; i++)
		if (!strcmp(slash, units[i].name)) {
			double rate = (double)*ret_number * units[i].per_minute;
			if (rate >= 0x1p63)
				return -EINVAL;
			*ret_number = (uint64_t)rate;
			return 0;
		}
	return -EINVAL;
}

int hl_check_limits_add(struct hl_check_limits *limits, enum hl_check_kind kind, const char *text,
			const char *title, const char *focus)
{
	struct hl_check_limit limit = {.kind = kind, .title = title, .focus = focus};

	int r = kind == HL_CHECK_GROWTH ? parse_rate(text, &limit.most)
					: parse_number(text, &limit.most);
	if (r < 0)
		return r;
	if (limits->count == HL_CHECK_LIMITS_MAX)
		return -E2BIG;
	limits->limits[limits->count++] = limit;
	return 0;
}

int hl_check_limits_allow(struct hl_check_limits *limits, const char *text)
{
	char *end;

	limits->allow_percent = strtod(text, &end);
	return end == text || (*end && strcmp(end, "%") != 0) || !isfinite(limits->allow_percent) ||
			       limits->allow_percent < 0
		       ? -EINVAL
		       : 0;
}

int hl_check_limits_add_baseline(struct hl_check_limits *limits, const char *title,
				 const char *focus)
{
	static const enum hl_check_kind kinds[] = {HL_CHECK_PEAK, HL_CHECK_INUSE, HL_CHECK_ALLOCS};

	for (size_t i = 0; i < HL_COUNT_OF(kinds); i++) {
		if (limits->count == HL_CHECK_LIMITS_MAX)
			return -E2BIG;
		limits->limits[limits->count++] = (struct hl_check_limit){
			.kind = kinds[i], .title = title, .focus = focus, .is_of_baseline = true};
	}
	return 0;
}

/* ---- files ---- */

#define FILE_BYTES_MAX (1u << 20)

/* Where a file is being read. */
struct reading {
	struct hl_check_limits *limits;
	const char *path;
	unsigned line;
	bool is_ours;	   /* the table is [check] or one below it */
	const char *title; /* of the table below it; NULL */
	size_t first;	   /* limit of the table */
	const char *focus; /* of the table, wherever in it it stands */
};

static int fail(const struct reading *at, struct hl_error *err, const char *reason,
		const char *word)
{
	return hl_error_set(err, -EINVAL, "cannot read limits from line %u of '%s': %s '%s'",
			    at->line, at->path, reason, word);
}

static char *trim(char *text)
{
	while (isspace((unsigned char)*text))
		text++;
	for (size_t length = strlen(text); length && isspace((unsigned char)text[length - 1]);)
		text[--length] = '\0';
	return text;
}

/* Ends ${line} where a comment begins, outside of quotes. */
static void cut_comment(char *line)
{
	char quote = '\0';

	for (; *line; line++) {
		if (quote)
			quote = *line == quote ? '\0' : quote;
		else if (*line == '"' || *line == '\'')
			quote = *line;
		else if (*line == '#')
			*line = '\0';
		if (!*line)
			return;
	}
}

/* Removes the quotes around ${value}, if it has any. NULL when the closing quote is missing, or the
 * text has another escape than \\ and \". */
static char *unquote(char *value)
{
	size_t length = strlen(value);
	char quote = *value, *to = value;

	if (quote != '"' && quote != '\'')
		return value;
	if (length < 2 || value[length - 1] != quote)
		return NULL;
	value[length - 1] = '\0';
	for (const char *from = value + 1; *from; from++) {
		if (quote == '"' && *from == '\\' && *++from != '\\' && *from != '"')
			return NULL;
		*to++ = *from;
	}
	*to = '\0';
	return value;
}

/* A focus holds for all limits of its table. */
static void end_table(struct reading *at)
{
	for (size_t i = at->first; i < at->limits->count; i++)
		at->limits->limits[i].focus = at->focus;
}

static int begin_table(struct reading *at, char *line, struct hl_error *err)
{
	size_t length = strlen(line);

	end_table(at);
	if (line[length - 1] != ']')
		return fail(at, err, "no ']' ends", line);
	line[length - 1] = '\0';
	char *name = trim(line + 1);
	at->first = at->limits->count;
	at->focus = NULL;
	at->is_ours = !strncmp(name, "check", 5) && (!name[5] || name[5] == '.');
	at->title = at->is_ours && name[5] ? unquote(name + 6) : NULL;
	if (at->is_ours && name[5] && (!at->title || !*at->title))
		return fail(at, err, "no name stands in", line);
	return 0;
}

/* Whether the table has the limit ${kind} already. */
static bool is_set(const struct reading *at, size_t kind)
{
	for (size_t i = at->first; i < at->limits->count; i++) {
		const struct hl_check_limit *limit = &at->limits->limits[i];
		if (limit->kind == (enum hl_check_kind)kind && !limit->is_of_baseline)
			return true;
	}
	return false;
}

static int set(struct reading *at, const char *key, char *value, struct hl_error *err)
{
	struct hl_check_limits *limits = at->limits;
	int r = 0;

	if (!strcmp(key, "focus")) {
		if (at->focus)
			return fail(at, err, "the table has two values of", key);
		at->focus = value;
		return 0;
	}
	if (!strcmp(key, "allow"))
		return hl_check_limits_allow(limits, value) < 0
			       ? fail(at, err, "no percentage is", value)
			       : 0;
	if (!strcmp(key, "baseline")) {
		if (limits->baseline && strcmp(limits->baseline, value) != 0)
			return fail(at, err, "there is one baseline, and it is not", value);
		limits->baseline = value;
		r = hl_check_limits_add_baseline(limits, at->title, NULL);
	} else {
		size_t kind = 0;
		while (kind < HL_CHECK_COUNT && strcmp(key, hl_check_names[kind]) != 0)
			kind++;
		if (kind == HL_CHECK_COUNT)
			return fail(at, err, "there is no limit", key);
		if (is_set(at, kind))
			return fail(at, err, "the table has two values of", key);
		r = hl_check_limits_add(limits, (enum hl_check_kind)kind, value, at->title, NULL);
	}
	if (r == -E2BIG)
		return fail(at, err, "more than 64 limits, with", key);
	return r < 0 ? fail(at, err, "a limit is not a number:", value) : 0;
}

static int read_line(struct reading *at, char *line, struct hl_error *err)
{
	cut_comment(line);
	line = trim(line);
	if (!*line)
		return 0;
	if (*line == '[')
		return begin_table(at, line, err);
	if (!at->is_ours)
		return 0;
	char *equals = strchr(line, '=');
	if (!equals)
		return fail(at, err, "no '=' stands in", line);
	*equals = '\0';
	char *key = trim(line), *value = unquote(trim(equals + 1));
	if (!value)
		return fail(at, err, "quotes or escapes are wrong in the value of", key);
	return set(at, key, value, err);
}

/* All of ${path}, to be freed. */
static int read_text(const char *path, char **ret_text, struct hl_error *err)
{
	FILE *in = fopen(path, "re");
	char *text = in ? malloc(FILE_BYTES_MAX + 1) : NULL;

	if (!text) {
		int r = -errno;
		if (in)
			fclose(in);
		return hl_error_set(err, r, "cannot read limits from '%s': %s", path, strerror(-r));
	}
	size_t size = fread(text, 1, FILE_BYTES_MAX + 1, in);
	int error = ferror(in) ? errno : size > FILE_BYTES_MAX ? EFBIG : 0;
	fclose(in);
	if (error || memchr(text, '\0', size)) {
		free(text);
		return hl_error_set(err, error ? -error : -EINVAL,
				    "cannot read limits from '%s': %s", path,
				    error ? strerror(error) : "it is not text");
	}
	text[size] = '\0';
	*ret_text = text;
	return 0;
}

int hl_check_limits_read(struct hl_check_limits *limits, const char *path, struct hl_error *err)
{
	struct reading at = {.limits = limits, .path = path, .first = limits->count};
	char *rest;

	int r = read_text(path, &limits->text, err);
	for (rest = limits->text; r == 0 && rest;) {
		at.line++;
		r = read_line(&at, strsep(&rest, "\n"), err);
	}
	end_table(&at);
	return r;
}

void hl_check_limits_release(struct hl_check_limits *limits)
{
	free(limits->text);
	limits->text = NULL;
}
