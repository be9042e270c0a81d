/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of nodes, and where they are. */
#pragma once

#include "base/error.h"

#include <netinet/in.h>

#define HL_NODE_PART_MAX 254 /* what libei has room for, with what ends it */

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
