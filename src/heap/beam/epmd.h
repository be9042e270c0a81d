/* SPDX-License-Identifier: BSD-2-Clause */
/* Asks epmd, which knows the nodes of a machine, to find out why one cannot be reached. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hl_epmd_answer {
	bool is_there;	 /* epmd answered */
	bool knows_node; /* the node that was asked for is registered */
	uint16_t port;	 /* of epmd: $ERL_EPMD_PORT, else 4369 */
	char names[400]; /* the registered nodes, separated by ", "; "" when there is none */
};

/* Waits ${timeout_ms} at most for each step. */
void hl_epmd_ask(struct in_addr address, const char *alive, unsigned timeout_ms,
		 struct hl_epmd_answer *ret_answer);
