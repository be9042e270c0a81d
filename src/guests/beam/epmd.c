/* SPDX-License-Identifier: BSD-2-Clause */
/* Asks epmd for the names it knows; see node.h. The protocol: erts, "Distribution Protocol". */
#include "guests/beam/node.h"

#include "base/cleanup.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define DEFAULT_PORT 4369
#define ANSWER_MAX   16384 /* about 400 nodes; names beyond are not looked at */

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

void hl_epmd_ask(struct in_addr address, const char *alive, unsigned timeout_ms,
		 struct hl_epmd_answer *ret_answer)
{
	static const char request[] = {0, 1, 'n'};
	const size_t head = sizeof(uint32_t); /* epmd's own port, before the names */
	char answer[ANSWER_MAX], name[256], *rest, *names = ret_answer->names;
	const char *text = getenv("ERL_EPMD_PORT");
	long wanted = text ? strtol(text, NULL, 10) : 0;
	uint16_t port = wanted > 0 && wanted <= UINT16_MAX ? (uint16_t)wanted : DEFAULT_PORT;
	size_t size = 0;
	ssize_t got;

	*ret_answer = (struct hl_epmd_answer){.port = port};
	HL_CLOSED int fd = connect_to(address, port, timeout_ms);
	if (fd < 0 || send(fd, request, sizeof(request), MSG_NOSIGNAL) != sizeof(request))
		return;
	/* epmd closes the connection after its answer. */
	while (size < ANSWER_MAX - 1 &&
	       (got = recv(fd, answer + size, ANSWER_MAX - 1 - size, 0)) > 0)
		size += (size_t)got;
	ret_answer->is_there = size >= head;
	if (!ret_answer->is_there)
		return;
	answer[size] = '\0';
	for (char *line = strtok_r(answer + head, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest)) {
		if (sscanf(line, "name %255s at port", name) != 1)
			continue;
		ret_answer->knows_node |= !strcmp(name, alive);
		size_t used = strlen(names), room = sizeof(ret_answer->names) - used;
		if (strlen(name) + sizeof(", ") <= room)
			snprintf(names + used, room, "%s%s", used ? ", " : "", name);
	}
}
