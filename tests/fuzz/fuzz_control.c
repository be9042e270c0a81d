/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes requests, as a client's connection brings them: what is understood must say the same when
 * it is written again, and what is not must be refused with a sentence.
 */
#include "collector/control_ask.h"
#include "scratch.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_understood(const struct hl_control_request *request)
{
	struct hl_control_request again;
	char line[HL_CONTROL_LINE_MAX];
	size_t size = hl_control_protocol_format(request, line);

	require(size && size <= sizeof(line) && line[size - 1] == '\n');
	require(hl_control_protocol_parse(line, size - 1, &again, NULL) == 0);
	require(again.verb == request->verb && again.pid == request->pid);
	require(again.mode == request->mode && again.segments == request->segments);
	require(strcmp(again.argument, request->argument) == 0);
	require(request->pid >= 0 && request->segments <= HL_LOG_SEGMENTS_MAX);
	require(request->mode < HL_MODE_COUNT);
}

/* The first byte says how many of the others come at a time; 0: all. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct hl_control_client client;
	struct hl_control_request request;
	struct hl_error err = {0};
	int fds[2], r = -EAGAIN;

	if (size < 2)
		return 0;
	size_t step = bytes[0] ? bytes[0] : size;
	require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
	hl_control_client_begin(&client, fds[0], 0);
	for (size_t at = 1; r == -EAGAIN && at < size; at += step) {
		size_t part = size - at < step ? size - at : step;
		require(send(fds[1], bytes + at, part, MSG_NOSIGNAL) == (ssize_t)part);
		r = hl_control_client_read(&client, &request, &err);
		require(client.size <= sizeof(client.line));
	}
	require((r == -EINVAL) == (err.text[0] != '\0'));
	require(r == 0 || r == -EAGAIN || r == -EINVAL);
	if (r == 0)
		check_understood(&request);
	hl_control_client_end(&client);
	close(fds[1]);
	return 0;
}
