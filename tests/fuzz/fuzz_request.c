/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzzes requests to `heapline serve`: a path, and pairs of keys and values, each after a newline. What
 * is understood leads to a verb that only reads, with options of the list alone. */
#include "scratch.h"
#include "serve/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENTS_MAX 32

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(const struct hl_request *request)
{
	static const char *const forbidden[] = {"--output", "--force", "--stop", "--ignore-file",
						"--core",   "--save",  "--watch"};

	require(request->seconds <= HL_REQUEST_SECONDS_MAX && request->pid >= 0);
	require(request->option_count <= HL_REQUEST_OPTIONS_MAX);
	require(!request->option_count || request->verb);
	for (size_t i = 0; i < request->option_count; i++) {
		require(!strncmp(request->options[i], "--", 2));
		for (size_t k = 0; k < sizeof(forbidden) / sizeof(forbidden[0]); k++)
			require(strncmp(request->options[i], forbidden[k], strlen(forbidden[k])) !=
				0);
		if (request->kind == HL_REQUEST_HEAP)
			require(strncmp(request->options[i], "--ignore", strlen("--ignore")) != 0);
	}
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
	int r = hl_request_parse(path, arguments, count, &request, &err);
	require(r == 0 || ((r == -ENOENT || r == -EINVAL) && err.text[0]));
	if (r == 0)
		check(&request);
	hl_request_release(&request);
	free(text);
	return 0;
}
