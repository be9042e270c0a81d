/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads requests; see request.h. */
#include "serve/request.h"

#include "base/compiler.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what there is ---- */

static const struct route {
	const char *path;
	enum hl_request_kind kind;
	const char *verb;
	const char *option, *value; /* of the verb; NULL: none */
} routes[] = {
	{"/", HL_REQUEST_INDEX, NULL, NULL, NULL},
	{"/metrics", HL_REQUEST_METRICS, NULL, NULL, NULL},
	{"/debug/pprof/heap", HL_REQUEST_PROFILE, "export", NULL, NULL},
	{"/debug/pprof/allocs", HL_REQUEST_PROFILE, "export", "value", "alloc"},
	{"/pprof/heap", HL_REQUEST_PROFILE, "export", "format", "gperftools"},
	{"/report", HL_REQUEST_REPORT, "report", NULL, NULL},
};

#define API  "/api/"
#define TEXT "/text/"

static const char *const views[] = {"top",  "lines", "tree",   "timeline", "peaks",
				    "diff", "sizes", "growth", "info"};
static const char *const heap_views[] = {"heap", "carriers", "allocations", "leaks", "holders"};

static const char *word_of(const char *const *words, size_t count, const char *word)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(words[i], word))
			return words[i];
	return NULL;
}

#define WORD_OF(words, word) word_of(words, HL_COUNT_OF(words), word)

static int add_word(struct hl_request *request, const char *format, ...) HL_PRINTF(2, 3);

static int add_word(struct hl_request *request, const char *format, ...)
{
	char **option = &request->options[request->option_count];
	va_list args;

	va_start(args, format);
	int length = vasprintf(option, format, args);
	va_end(args);
	if (length < 0) {
		*option = NULL;
		return -ENOMEM;
	}
	request->option_count++;
	return 0;
}

static int find_route(const char *path, struct hl_request *request, struct hl_error *err)
{
	for (size_t i = 0; i < HL_COUNT_OF(routes); i++) {
		if (strcmp(routes[i].path, path) != 0)
			continue;
		request->kind = routes[i].kind;
		request->verb = routes[i].verb;
		int r = routes[i].option
				? add_word(request, "--%s=%s", routes[i].option, routes[i].value)
				: 0;
		return r < 0 ? hl_error_set(err, r, "out of memory") : 0;
	}
	request->is_text = !strncmp(path, TEXT, strlen(TEXT));
	bool is_api = !strncmp(path, API, strlen(API));
	const char *word = is_api	      ? path + strlen(API)
			   : request->is_text ? path + strlen(TEXT)
					      : "";
	request->kind = HL_REQUEST_VIEW;
	request->verb = WORD_OF(views, word);
	if (request->verb)
		return 0;
	request->kind = HL_REQUEST_HEAP;
	request->verb = WORD_OF(heap_views, word);
	if (request->verb)
		return 0;
	return hl_error_set(err, -ENOENT, "there is no page '%.200s'; / lists what there is", path);
}

/* ---- arguments ---- */

static int bad(const struct hl_request_argument *argument, const char *expected,
	       struct hl_error *err)
{
	return hl_error_set(err, -EINVAL, "cannot take '%.100s=%.100s': it has to be %s",
			    argument->key, argument->value, expected);
}

static int read_number(const struct hl_request_argument *argument, uint64_t most,
		       uint64_t *ret_number)
{
	size_t digits = strspn(argument->value, "0123456789");

	if (!digits || digits > 10 || argument->value[digits])
		return -EINVAL;
	*ret_number = strtoull(argument->value, NULL, 10);
	return *ret_number && *ret_number <= most ? 0 : -EINVAL;
}

/* Two numbers with a blank, a comma or a hyphen between. Whether they are. */
static bool read_range(const char *value, char first[16], char second[16])
{
	int end = 0;

	return sscanf(value, "%15[0-9]%*1[ ,-]%15[0-9]%n", first, second, &end) == 2 && end &&
	       !value[end];
}

/* An option of the verb, which reads its value. */
static int read_option(struct hl_request *request, const struct hl_request_argument *argument,
		       hl_request_option_fn *option_of, struct hl_error *err)
{
	enum hl_request_option option =
		request->verb ? option_of(request->verb, argument->key) : HL_REQUEST_OPTION_NONE;
	char first[16], second[16];
	int r;

	if (option == HL_REQUEST_OPTION_NONE)
		return hl_error_set(err, -EINVAL, "there is no argument '%.100s' here",
				    argument->key);
	if (request->option_count + 2 > HL_REQUEST_OPTIONS_MAX)
		return hl_error_set(err, -EINVAL, "there are more than %d arguments",
				    HL_REQUEST_OPTIONS_MAX);
	if (option == HL_REQUEST_OPTION_FLAG && argument->value[0])
		return bad(argument, "without a value", err);
	if (option == HL_REQUEST_OPTION_RANGE && !read_range(argument->value, first, second))
		return bad(argument, "two numbers, as in 100,200", err);
	if (option == HL_REQUEST_OPTION_FLAG)
		r = add_word(request, "--%s", argument->key);
	else if (option == HL_REQUEST_OPTION_RANGE)
		r = add_word(request, "--%s=%s", argument->key, first);
	else
		r = add_word(request, "--%s=%s", argument->key, argument->value);
	if (r == 0 && option == HL_REQUEST_OPTION_RANGE)
		r = add_word(request, "%s", second);
	return r < 0 ? hl_error_set(err, r, "out of memory") : 0;
}

static int read_argument(struct hl_request *request, const struct hl_request_argument *argument,
			 hl_request_option_fn *option_of, struct hl_error *err)
{
	bool of_recording = request->kind == HL_REQUEST_PROFILE ||
			    request->kind == HL_REQUEST_REPORT || request->kind == HL_REQUEST_VIEW;
	uint64_t number;

	if (!strcmp(argument->key, "pid") && request->verb) {
		if (read_number(argument, INT32_MAX, &number) < 0)
			return bad(argument, "the number of a process", err);
		request->pid = (pid_t)number;
	} else if (!strcmp(argument->key, "recording") && of_recording) {
		request->name = argument->value;
	} else if (!strcmp(argument->key, "before") && of_recording) {
		request->before = argument->value;
	} else if (!strcmp(argument->key, "seconds") && request->kind == HL_REQUEST_PROFILE) {
		if (read_number(argument, HL_REQUEST_SECONDS_MAX, &number) < 0)
			return bad(argument, "a number from 1 to 600", err);
		request->seconds = (uint32_t)number;
	} else if (!strcmp(argument->key, "refresh") && request->kind == HL_REQUEST_REPORT) {
		if (read_number(argument, HL_REQUEST_SECONDS_MAX, &number) < 0)
			return bad(argument, "a number from 1 to 600", err);
		request->refresh = (uint32_t)number;
	} else {
		return read_option(request, argument, option_of, err);
	}
	return 0;
}

/* ---- all of it ---- */

static int check(const struct hl_request *request, struct hl_error *err)
{
	if (request->before && request->seconds)
		return hl_error_set(err, -EINVAL,
				    "'before' and 'seconds' exclude each other; leave one out");
	if (request->verb && !strcmp(request->verb, "diff") && !request->before)
		return hl_error_set(err, -EINVAL,
				    "with what? 'diff' compares; add before=NAME, / lists "
				    "recordings");
	return 0;
}

/* Which of the same arguments would count is not for us to choose. */
static bool is_repeated(const struct hl_request_argument *arguments, size_t index,
			const struct hl_request *request, hl_request_option_fn *option_of)
{
	const char *key = arguments[index].key;

	for (size_t i = 0; i < index; i++)
		if (!strcmp(arguments[i].key, key))
			return !request->verb ||
			       option_of(request->verb, key) != HL_REQUEST_OPTION_TEXTS;
	return false;
}

int hl_request_parse(const char *path, const struct hl_request_argument *arguments, size_t count,
		     hl_request_option_fn *option_of, struct hl_request *ret_request,
		     struct hl_error *err)
{
	*ret_request = (struct hl_request){0};
	int r = find_route(path, ret_request, err);
	for (size_t i = 0; r == 0 && i < count; i++) {
		struct hl_request_argument argument = arguments[i];
		if (!argument.value)
			argument.value = "";
		if (strlen(argument.value) > HL_REQUEST_VALUE_MAX)
			r = hl_error_set(err, -EINVAL, "argument '%.100s' is longer than %d bytes",
					 argument.key, HL_REQUEST_VALUE_MAX);
		else if (is_repeated(arguments, i, ret_request, option_of))
			r = hl_error_set(err, -EINVAL,
					 "argument '%.100s' is given more than once; give it once",
					 argument.key);
		else
			r = read_argument(ret_request, &argument, option_of, err);
	}
	return r == 0 ? check(ret_request, err) : r;
}

void hl_request_release(struct hl_request *request)
{
	for (size_t i = 0; i < request->option_count; i++)
		free(request->options[i]);
	*request = (struct hl_request){0};
}
