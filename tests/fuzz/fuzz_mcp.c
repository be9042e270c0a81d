/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzzes what a client writes to `heapline mcp`. Each message that it answers is a line of JSON, in which nothing is mistaken for markup, or is obeyed. */
#include "mcp/mcp.h"
#include "scratch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Answers the arguments themselves, so that all that a client can say goes through quoting and cutting. */
static json_t *call(const struct hl_mcp_server *server, const char *tool, json_t *arguments,
		    int stop_fd, struct hl_error *err)
{
	(void)server, (void)tool, (void)stop_fd;
	if (json_object_get(arguments, "fail")) {
		hl_error_set(err, -EINVAL, "'%s' fails", tool);
		return NULL;
	}
	return json_deep_copy(arguments);
}

static void check_line(const char *line, size_t length)
{
	json_t *message = json_loadb(line, length, 0, NULL);

	require(message && json_object_get(message, "jsonrpc"));
	require(json_object_get(message, "result") || json_object_get(message, "error") ||
		json_object_get(message, "method"));
	for (size_t i = 0; i < length; i++)
		require((unsigned char)line[i] >= ' ' && !strchr("<>&", line[i]));
	json_decref(message);
}

static void check(int out)
{
	off_t size = lseek(out, 0, SEEK_END);
	char *text = malloc((size_t)size + 1);

	require(text && pread(out, text, (size_t)size, 0) == size);
	for (char *line = text, *end; line < text + size; line = end + 1) {
		end = memchr(line, '\n', (size_t)(text + size - line));
		require(end);
		check_line(line, (size_t)(end - line));
	}
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	json_t *tools = json_pack("[{ss}]", "name", "echo");
	const struct hl_mcp_server server = {
		.tools = tools, .instructions = "", .answer_bytes = 200, .call = call};
	int in = memfd_create("in", MFD_CLOEXEC), out = memfd_create("out", MFD_CLOEXEC);

	require(tools && in >= 0 && out >= 0 && write(in, bytes, size) == (ssize_t)size);
	lseek(in, 0, SEEK_SET);
	require(hl_mcp_serve(&server, in, out, -1, NULL) == 0);
	check(out);
	close(in);
	close(out);
	json_decref(tools);
	return 0;
}
