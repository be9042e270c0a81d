/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads requests and writes answers; see control_client.h. */
#include "collector/control_client.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A request is one line of a program that is on the same machine, an answer is read by one. */
#define PATIENCE_NS (5 * HL_NS_PER_SECOND)

static const char no_memory[] = "{\"error\":\"the collector is out of memory\"}\n";

static void be_patient(struct hl_control_client *client)
{
	client->deadline_ns = hl_clock_ns(CLOCK_MONOTONIC) + PATIENCE_NS;
}

void hl_control_client_begin(struct hl_control_client *client, int fd, pid_t pid)
{
	client->state = HL_CLIENT_ASKING;
	client->fd = fd;
	client->pid = pid;
	client->size = client->sent = 0;
	client->answer = NULL;
	be_patient(client);
}

void hl_control_client_end(struct hl_control_client *client)
{
	if (client->state == HL_CLIENT_NONE)
		return;
	close(client->fd);
	free(client->answer);
	client->answer = NULL;
	client->state = HL_CLIENT_NONE;
}

int hl_control_client_read(struct hl_control_client *client, struct hl_control_request *ret_request,
			   struct hl_error *err)
{
	ssize_t size = recv(client->fd, client->line + client->size,
			    sizeof(client->line) - client->size, MSG_DONTWAIT);

	if (size < 0)
		return errno == EAGAIN || errno == EINTR ? -EAGAIN : -EPIPE;
	if (size == 0)
		return -EPIPE;
	client->size += (size_t)size;
	const char *end = memchr(client->line, '\n', client->size);
	if (end == client->line + client->size - 1)
		return hl_control_protocol_parse(client->line, client->size - 1, ret_request, err);
	if (end)
		return hl_error_set(err, -EINVAL, "the request is more than one line");
	if (client->size == sizeof(client->line))
		return hl_error_set(err, -EINVAL, "the request is too long");
	return -EAGAIN;
}

void hl_control_client_answer(struct hl_control_client *client, char *answer)
{
	client->answer = answer;
	client->state = HL_CLIENT_ANSWERED;
	be_patient(client);
}

bool hl_control_client_send(struct hl_control_client *client)
{
	const char *answer = client->answer ? client->answer : no_memory;
	size_t left = strlen(answer + client->sent);

	ssize_t size = send(client->fd, answer + client->sent, left, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (size < 0)
		return errno != EAGAIN && errno != EINTR;
	client->sent += (size_t)size;
	return (size_t)size == left;
}
