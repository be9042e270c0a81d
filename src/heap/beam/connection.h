/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection to a node, through libei. */
#pragma once

#include "heap/beam/beam.h"
#include "heap/beam/node.h"

#include <ei.h>
#include <signal.h>

struct hl_beam_connection {
	const char *node; /* as the user named it */
	struct hl_node_name name;
	unsigned timeout_ms;
	ei_cnode own;
	int fd;
	struct sigaction sigpipe; /* what it did before; libei writes without a guard */
};

/*
 * Connects to ${settings}->node as a hidden node with a name that no other process has; its texts
 * stay in use. 0 or a negative errno with a sentence.
 */
int hl_connection_open(const struct hl_beam_settings *settings, const struct hl_cookie *cookie,
		       struct hl_beam_connection *ret_connection, struct hl_error *err);

void hl_connection_close(struct hl_beam_connection *connection);

/*
 * Has the node call ${module}:${function} with the list of arguments that ${arguments} hold, and
 * waits for the answer, which ${ret_reply} gets whole; ei_x_free() it. 0 or a negative errno with a
 * sentence.
 */
int hl_connection_call(struct hl_beam_connection *connection, const char *module,
		       const char *function, const ei_x_buff *arguments, ei_x_buff *ret_reply,
		       struct hl_error *err);
