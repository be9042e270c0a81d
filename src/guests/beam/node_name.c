/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of nodes, and where they are; see node.h. */
#include "guests/beam/node.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

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
