/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads requests; see request.h. */
#include "serve/request.h"

#include "base/compiler.h"

#include <errno.h>
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

#define API "/api/"

static const char *const views[] = {"top",  "lines", "tree",   "timeline", "peaks",
				    "diff", "sizes", "growth", "info"};
static const char *const heap_views[] = {"heap", "carriers", "allocations", "leaks", "holders"};

/* Options that verbs take from a request. What else they have names files, stops the process, or is
 * for terminals. */
static const char *const view_texts[] = {"value", "unit",   "by",     "sort",	   "thread",
					 "at",	  "focus",  "ignore", "hide",	   "stack",
					 "rows",  "stacks", "depth",  "threshold", "heaviest"};
static const char *const view_flags[] = {"plumbing", "full", "reversed", "normalize"};
static const char *const heap_texts[] = {"rows", "show", "stack", "class", "size", "path", "depth"};
static const char *const heap_flags[] = {"tree"};

static const char *word_of(const char *const *words, size_t count, const char *word)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(words[i], word))
			return words[i];
	return NULL;
}

#define WORD_OF(words, word) word_of(words, HL_COUNT_OF(words), word)

static int add_option(struct hl_request *request, const char *key, const char *value)
{
	char **option = &request->options[request->option_count];

	if ((value ? asprintf(option, "--%s=%s", key, value) : asprintf(option, "--%s", key)) < 0) {
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
		int r = routes[i].option ? add_option(request, routes[i].option, routes[i].value)
					 : 0;
		return r < 0 ? hl_error_set(err, r, "out of memory") : 0;
	}
	bool is_api = !strncmp(path, API, strlen(API));
	const char *word = is_api ? path + strlen(API) : "";
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

/* An option of the verb; the verb itself says so where it has no such option. */
static int read_option(struct hl_request *request, const struct hl_request_argument *argument,
		       struct hl_error *err)
{
	bool of_heap = request->kind == HL_REQUEST_HEAP;
	bool is_flag = of_heap ? WORD_OF(heap_flags, argument->key) != NULL
			       : WORD_OF(view_flags, argument->key) != NULL;
	bool is_text = of_heap ? WORD_OF(heap_texts, argument->key) != NULL
			       : WORD_OF(view_texts, argument->key) != NULL;

	if (!request->verb || (!is_flag && !is_text))
		return hl_error_set(err, -EINVAL, "there is no argument '%.100s' here",
				    argument->key);
	if (request->option_count == HL_REQUEST_OPTIONS_MAX)
		return hl_error_set(err, -EINVAL, "there are more than %d arguments",
				    HL_REQUEST_OPTIONS_MAX);
	if (is_flag && argument->value[0])
		return bad(argument, "without a value", err);
	int r = add_option(request, argument->key, is_flag ? NULL : argument->value);
	return r < 0 ? hl_error_set(err, r, "out of memory") : 0;
}

static int read_argument(struct hl_request *request, const struct hl_request_argument *argument,
			 struct hl_error *err)
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
		return read_option(request, argument, err);
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

int hl_request_parse(const char *path, const struct hl_request_argument *arguments, size_t count,
		     struct hl_request *ret_request, struct hl_error *err)
{
	*ret_request = (struct hl_request){0};
	int r = find_route(path, ret_request, err);
	for (size_t i = 0; r == 0 && i < count; i++) {
		struct hl_request_argument argument = arguments[i];
		if (!argument.value)
			argument.value = "";
		r = strlen(argument.value) > HL_REQUEST_VALUE_MAX
			    ? hl_error_set(err, -EINVAL,
					   "argument '%.100s' is longer than %d bytes",
					   argument.key, HL_REQUEST_VALUE_MAX)
			    : read_argument(ret_request, &argument, err);
	}
	return r == 0 ? check(ret_request, err) : r;
}

void hl_request_release(struct hl_request *request)
{
	for (size_t i = 0; i < request->option_count; i++)
		free(request->options[i]);
	*request = (struct hl_request){0};
}
