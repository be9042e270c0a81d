/* SPDX-License-Identifier: BSD-2-Clause */
/* Asking a node through libei: the connection, and the arguments of calls. */
#pragma once

#include "guests/beam/beam.h"
#include "guests/beam/node.h"

#include <ei.h>
#include <signal.h>

/* ---- connection.c ---- */

struct hl_beam_connection {
	const char *node; /* as the user named it */
	struct hl_node_name name;
	unsigned timeout_ms;
	ei_cnode own;
	int fd;
	struct sigaction sigpipe; /* the handler to restore; libei writes without MSG_NOSIGNAL */
};

/*
 * Connects to ${settings}->node as a hidden node with a name that no other process has; its texts
 * stay in use. 0 or a negative errno with a sentence.
 */
int hl_connection_open(const struct hl_beam_settings *settings, const struct hl_cookie *cookie,
		       struct hl_beam_connection *ret_connection, struct hl_error *err);

void hl_connection_close(struct hl_beam_connection *connection);

/*
 * Has the node call ${module}:${function} with the list ${arguments}, and waits for the answer.
 * ${ret_reply} holds all of it; the caller frees it with ei_x_free(). 0 or a negative errno with a
 * sentence.
 */
int hl_connection_call(struct hl_beam_connection *connection, const char *module,
		       const char *function, const ei_x_buff *arguments, ei_x_buff *ret_reply,
		       struct hl_error *err);

/* ---- beam.c: arguments, in libei's buffers ---- */

/* All return 0 or -ENOMEM; the caller frees the buffer with ei_x_free(). */

/* [#{...}]: the options of `instrument` that ${settings} has. */
int hl_request_options(const struct hl_beam_settings *settings, ei_x_buff *ret_arguments);

/* [${item}] */
int hl_request_item(const char *item, ei_x_buff *ret_arguments);

/* [{allocator, ${allocator}}] */
int hl_request_allocator(const char *allocator, ei_x_buff *ret_arguments);
