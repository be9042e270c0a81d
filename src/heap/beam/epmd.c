/* SPDX-License-Identifier: BSD-2-Clause */
/* Asks epmd for the names it knows; see node.h. The protocol: erts, "Distribution Protocol". */
#include "heap/beam/node.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define DEFAULT_PORT 4369
#define ANSWER_MAX   16384 /* some 400 nodes; names beyond are not looked at */

static uint16_t epmd_port(void)
{
	const char *text = getenv("ERL_EPMD_PORT");
	long port = text ? strtol(text, NULL, 10) : 0;

	return port > 0 && port <= UINT16_MAX ? (uint16_t)port : DEFAULT_PORT;
}

/* A connection, or -1. */
static int connect_to(struct in_addr address, uint16_t port, unsigned timeout_ms)
{
	const struct sockaddr_in peer = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = address};
	const struct timeval timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)); /* connect() too */
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	if (connect(fd, (const struct sockaddr *)&peer, sizeof(peer)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* All that comes until the other end closes, as a text. False: it is not epmd. */
static bool ask_names(int fd, char answer[ANSWER_MAX])
{
	static const char request[] = {0, 1, 'n'};
	const size_t head = sizeof(uint32_t); /* epmd's own port */
	size_t used = 0;
	ssize_t got;

	if (send(fd, request, sizeof(request), MSG_NOSIGNAL) != sizeof(request))
		return false;
	while (used < ANSWER_MAX - 1 &&
	       (got = recv(fd, answer + used, ANSWER_MAX - 1 - used, 0)) > 0)
		used += (size_t)got;
	if (used < head)
		return false;
	memmove(answer, answer + head, used - head);
	answer[used - head] = '\0';
	return true;
}

static void add_name(struct hl_epmd_answer *answer, const char *name)
{
	size_t used = strlen(answer->names);

	if (used + strlen(name) + sizeof(", ") > sizeof(answer->names))
		return;
	snprintf(answer->names + used, sizeof(answer->names) - used, "%s%s", used ? ", " : "",
		 name);
}

/* Lines of the form "name NAME at port PORT". */
static void take_names(char *lines, const char *alive, struct hl_epmd_answer *answer)
{
	char *rest, *line = strtok_r(lines, "\n", &rest);

	for (; line; line = strtok_r(NULL, "\n", &rest)) {
		char name[256];
		if (sscanf(line, "name %255s at port", name) != 1)
			continue;
		answer->knows_node |= !strcmp(name, alive);
		add_name(answer, name);
	}
}

void hl_epmd_ask(struct in_addr address, const char *alive, unsigned timeout_ms,
		 struct hl_epmd_answer *ret_answer)
{
	char answer[ANSWER_MAX];
	uint16_t port = epmd_port();
	int fd = connect_to(address, port, timeout_ms);

	*ret_answer = (struct hl_epmd_answer){.port = port};
	if (fd < 0)
		return;
	ret_answer->is_there = ask_names(fd, answer);
	close(fd);
	if (ret_answer->is_there)
		take_names(answer, alive, ret_answer);
}
