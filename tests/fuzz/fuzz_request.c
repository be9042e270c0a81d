/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzzes requests to `heapline serve`: a path, and pairs of keys and values, each after a newline. What
 * is understood leads to a verb that only reads, with options that it has. */
#include "scratch.h"
#include "serve/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENTS_MAX 32

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(const struct hl_request *request)
{
	require(request->seconds <= HL_REQUEST_SECONDS_MAX && request->pid >= 0);
	require(request->option_count <= HL_REQUEST_OPTIONS_MAX);
	require(!request->option_count || request->verb);
	for (size_t i = 0; i < request->option_count; i++) {
		/* The second number of a range is a word of its own. */
		bool is_number = !request->options[i][strspn(request->options[i], "0123456789")];
		require(!strncmp(request->options[i], "--", 2) || (i && is_number));
	}
}

static enum hl_request_option option_of(const char *verb, const char *name)
{
	static const char *const names[] = {"", "full", "rows", "focus", "between"};

	(void)verb;
	for (size_t i = 1; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i], name))
			return (enum hl_request_option)i;
	return HL_REQUEST_OPTION_NONE;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct hl_request_argument arguments[ARGUMENTS_MAX];
	struct hl_request request;
	struct hl_error err = {0};
	size_t count = 0;
	char *text = strndup((const char *)bytes, size), *rest = text;

	require(text);
	const char *path = strsep(&rest, "\n");
	for (char *line; count < ARGUMENTS_MAX && (line = strsep(&rest, "\n"));) {
		const char *key = strsep(&line, "=");
		arguments[count++] = (struct hl_request_argument){key, line};
	}
	int r = hl_request_parse(path, arguments, count, option_of, &request, &err);
	require(r == 0 || ((r == -ENOENT || r == -EINVAL) && err.text[0]));
	if (r == 0)
		check(&request);
	hl_request_release(&request);
	free(text);
	return 0;
}
