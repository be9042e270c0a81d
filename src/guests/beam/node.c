/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of nodes and where they are, the cookie, and what epmd says; see connection.h. */
#include "guests/beam/connection.h"

#include "base/cleanup.h"
#include "base/compiler.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

/* ---- names of nodes, and where they are ---- */

int hl_node_name_parse(const char *text, struct hl_node_name *ret_name, struct hl_error *err)
{
	const char *at = strchr(text, '@');

	if (!at || at == text || !at[1])
		return hl_error_set(err, -EINVAL,
				    "cannot find node '%.200s': a name has two parts, NAME@HOST; "
				    "use what node() says there ('epmd -names' lists names)",
				    text);
	size_t alive_size = (size_t)(at - text), host_size = strlen(at + 1);
	if (alive_size >= HL_NODE_PART_MAX || host_size >= HL_NODE_PART_MAX || strchr(at + 1, '@'))
		return hl_error_set(err, -EINVAL,
				    "cannot find node '%.200s': no node can have such a name; use "
				    "what node() says there",
				    text);
	memcpy(ret_name->alive, text, alive_size);
	ret_name->alive[alive_size] = '\0';
	memcpy(ret_name->host, at + 1, host_size + 1);
	return 0;
}

/* Whether ${host} is "localhost", or this machine's name with or without its domain. */
static bool is_this_machine(const char *host)
{
	char own[HL_NODE_PART_MAX] = "";

	if (!strcasecmp(host, "localhost"))
		return true;
	if (gethostname(own, sizeof(own) - 1) < 0 || !own[0])
		return false;
	if (!strcasecmp(host, own))
		return true;
	size_t short_size = strcspn(own, ".");
	return strlen(host) == short_size && !strncasecmp(host, own, short_size);
}

int hl_node_name_resolve(const struct hl_node_name *name, struct in_addr *ret_address,
			 struct hl_error *err)
{
	const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found;
	struct sockaddr_in address;

	if (is_this_machine(name->host)) {
		ret_address->s_addr = htonl(INADDR_LOOPBACK);
		return 0;
	}
	int r = getaddrinfo(name->host, NULL, &hints, &found);
	if (r != 0)
		return hl_error_set(err, -EHOSTUNREACH,
				    "cannot find node '%s@%s': host '%s' has no IPv4 address (%s); "
				    "is that what node() says there?",
				    name->alive, name->host, name->host, gai_strerror(r));
	memcpy(&address, found->ai_addr, sizeof(address));
	freeaddrinfo(found);
	*ret_address = address.sin_addr;
	return 0;
}

/* ---- the secret that nodes of a cluster share ---- */

/* Takes the first line, without blanks at its end. 0 or a negative errno without a sentence;
 * -EINVAL when the line is empty or too long. Blocks on a FIFO until its writer has written. */
static int read_file(const char *path, struct hl_cookie *ret_cookie)
{
	char bytes[HL_COOKIE_MAX + 1]; /* one more than fits, to notice longer lines */
	HL_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;
	ssize_t size;
	size_t length = 0;

	if (fd < 0 || fstat(fd, &status) < 0 || (size = read(fd, bytes, sizeof(bytes))) < 0)
		return -errno;
	while (length < (size_t)size && bytes[length] != '\n' && bytes[length] != '\r' &&
	       bytes[length])
		length++;
	while (length && (bytes[length - 1] == ' ' || bytes[length - 1] == '\t'))
		length--;
	bool is_usable = length && length < HL_COOKIE_MAX;
	if (is_usable) {
		memcpy(ret_cookie->text, bytes, length);
		ret_cookie->text[length] = '\0';
	}
	explicit_bzero(bytes, sizeof(bytes));
	ret_cookie->is_exposed = S_ISREG(status.st_mode) && status.st_mode & (S_IRGRP | S_IROTH);
	snprintf(ret_cookie->path, sizeof(ret_cookie->path), "%s", path);
	return is_usable ? 0 : -EINVAL;
}

static int explain(const char *path, int r, struct hl_error *err)
{
	if (r == -EINVAL)
		return hl_error_set(err, r,
				    "cannot take the cookie in '%.500s': its first line is empty "
				    "or longer than 512 letters; name the node's cookie file with "
				    "--cookie-file",
				    path);
	return hl_error_set(err, r,
			    "cannot read the cookie file '%.500s': %s; name the node's cookie file "
			    "with --cookie-file",
			    path, strerror(-r));
}

int hl_cookie_read(const char *path, struct hl_cookie *ret_cookie, struct hl_error *err)
{
	const char *home = getenv("HOME"), *configuration = getenv("XDG_CONFIG_HOME");
	char places[2][PATH_MAX] = {"", ""}; /* where Erlang looks */

	if (path) {
		int r = read_file(path, ret_cookie);
		return r < 0 ? explain(path, r, err) : 0;
	}
	if (home)
		snprintf(places[0], PATH_MAX, "%s/.erlang.cookie", home);
	if (configuration && configuration[0])
		snprintf(places[1], PATH_MAX, "%s/erlang/.erlang.cookie", configuration);
	else if (home)
		snprintf(places[1], PATH_MAX, "%s/.config/erlang/.erlang.cookie", home);
	for (size_t i = 0; i < HL_COUNT_OF(places); i++) {
		int r = places[i][0] ? read_file(places[i], ret_cookie) : -ENOENT;
		if (r != -ENOENT)
			return r < 0 ? explain(places[i], r, err) : 0;
	}
	return hl_error_set(err, -ENOENT,
			    "cannot find a cookie: '~/.erlang.cookie' is not there; name the "
			    "node's cookie file with --cookie-file");
}

/* ---- epmd; the protocol: erts, "Distribution Protocol" ---- */

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
