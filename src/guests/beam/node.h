/* SPDX-License-Identifier: BSD-2-Clause */
/* Reaching a node: its name and host, the cookie, epmd, a connection. */
#pragma once

#include "base/error.h"

#include <limits.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- names of nodes, and where they are ---- */

#define HL_NODE_PART_MAX 254 /* as much as libei has room for, with the NUL */

struct hl_node_name {
	char alive[HL_NODE_PART_MAX]; /* the part before the @ */
	char host[HL_NODE_PART_MAX];
};

/* Takes "name@host" apart. 0, or -EINVAL with a sentence. */
int hl_node_name_parse(const char *text, struct hl_node_name *ret_name, struct hl_error *err);

/*
 * The address of the node's host: loopback for this machine's own names, else what the resolver
 * says. 0, or -EHOSTUNREACH with a sentence.
 */
int hl_node_name_resolve(const struct hl_node_name *name, struct in_addr *ret_address,
			 struct hl_error *err);

/* ---- the secret that nodes of a cluster share, in a file ---- */

#define HL_COOKIE_MAX 513 /* libei has room for 512 letters */

struct hl_cookie {
	char path[PATH_MAX]; /* where it was found */
	char text[HL_COOKIE_MAX];
	bool is_exposed; /* others than the file's owner may read it; Erlang would refuse it */
};

/*
 * Reads the cookie in ${path}, or, when that is NULL, in the first file there is of those that
 * Erlang reads: ~/.erlang.cookie and erlang/.erlang.cookie in the user's configuration. 0 or a
 * negative errno with a sentence, which never shows the cookie.
 */
int hl_cookie_read(const char *path, struct hl_cookie *ret_cookie, struct hl_error *err);

/* ---- epmd, which knows the nodes of a machine, why one cannot be reached ---- */

struct hl_epmd_answer {
	bool is_there;	 /* epmd answered */
	bool knows_node; /* the node that was asked for is registered */
	uint16_t port;	 /* of epmd: $ERL_EPMD_PORT, else 4369 */
	char names[400]; /* the registered nodes, separated by ", "; "" when there is none */
};

/* Waits ${timeout_ms} at most for each step. */
void hl_epmd_ask(struct in_addr address, const char *alive, unsigned timeout_ms,
		 struct hl_epmd_answer *ret_answer);
