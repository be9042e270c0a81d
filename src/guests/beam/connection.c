/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection to a node, through libei; see connection.h. */
#include "guests/beam/connection.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NS_PER_MS 1000000u

/* ---- why it failed ---- */

static int explain_silence(const struct hl_beam_connection *connection, struct hl_error *err)
{
	return hl_error_set(
		err, -ETIMEDOUT,
		"cannot ask node '%s': it does not answer within %u s; is it stopped or "
		"overloaded? --timeout has heapline wait longer",
		connection->node, connection->timeout_ms / 1000);
}

/* libei says little more than that it failed; epmd and ${errno_of_connect} say more. */
static int explain_failure(const struct hl_beam_connection *connection, struct in_addr address,
			   const struct hl_cookie *cookie, int errno_of_connect,
			   struct hl_error *err)
{
	struct hl_epmd_answer epmd;

	hl_epmd_ask(address, connection->name.alive, connection->timeout_ms, &epmd);
	if (!epmd.is_there)
		return hl_error_set(err, -EHOSTUNREACH,
				    "cannot find node '%s': no epmd answers at host '%s', port %u; "
				    "is the node running there? ERL_EPMD_PORT names another port",
				    connection->node, connection->name.host, epmd.port);
	if (!epmd.knows_node && !epmd.names[0])
		return hl_error_set(err, -ENOENT,
				    "cannot find node '%s': no node runs at host '%s'; start it "
				    "with -name or -sname",
				    connection->node, connection->name.host);
	if (!epmd.knows_node)
		return hl_error_set(
			err, -ENOENT,
			"cannot find node '%s': it does not run at host '%s'; there are: %s",
			connection->node, connection->name.host, epmd.names);
	if (errno_of_connect == ETIMEDOUT)
		return explain_silence(connection, err);
	if (errno_of_connect == ECONNREFUSED || errno_of_connect == EHOSTUNREACH)
		return hl_error_set(
			err, -errno_of_connect,
			"cannot connect to node '%s': epmd knows it, but nobody accepts "
			"connections for it; is it just ending?",
			connection->node);
	return hl_error_set(err, -EACCES,
			    "cannot connect to node '%s': it refuses; most likely the cookie in "
			    "'%.300s' is not the node's: name the file that holds the node's with "
			    "--cookie-file",
			    connection->node, cookie->path);
}

/* ---- connecting ---- */

int hl_connection_open(const struct hl_beam_settings *settings, const struct hl_cookie *cookie,
		       struct hl_beam_connection *ret_connection, struct hl_error *err)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	struct in_addr address, own_address = {htonl(INADDR_LOOPBACK)};
	char host[HL_NODE_PART_MAX] = "localhost", alive[32], whole[HL_NODE_PART_MAX + 32];
	struct hl_beam_connection *connection = ret_connection;

	*connection = (struct hl_beam_connection){.node = settings->node,
						  .timeout_ms = settings->timeout_ms};
	int r = hl_node_name_parse(settings->node, &connection->name, err);
	if (r == 0)
		r = hl_node_name_resolve(&connection->name, &address, err);
	if (r < 0)
		return r;
	/* heapline_PID@HOST is a name that no other process has; that node listens to nothing. */
	gethostname(host, sizeof(host) - 1);
	snprintf(alive, sizeof(alive), "heapline_%d", getpid());
	if (snprintf(whole, sizeof(whole), "%s@%s", alive, host) > MAXNODELEN || ei_init() != 0 ||
	    ei_connect_xinit(&connection->own, host, alive, whole, &own_address, cookie->text, 0) <
		    0)
		return hl_error_set(err, -EIO,
				    "cannot connect to node '%s': libei cannot make a node of its "
				    "own; is this machine's host name in order?",
				    connection->node);
	sigaction(SIGPIPE, &ignore, &connection->sigpipe);
	connection->fd = ei_xconnect_tmo(&connection->own, &address, connection->name.alive,
					 connection->timeout_ms);
	if (connection->fd >= 0)
		return 0;
	r = explain_failure(connection, address, cookie, erl_errno, err);
	sigaction(SIGPIPE, &connection->sigpipe, NULL);
	return r;
}

void hl_connection_close(struct hl_beam_connection *connection)
{
	ei_close_connection(connection->fd);
	explicit_bzero(&connection->own, sizeof(connection->own)); /* the cookie is in it */
	sigaction(SIGPIPE, &connection->sigpipe, NULL);
}

/* ---- calls ---- */

/* Receives until a message arrives or ${deadline_ns} is reached. libei answers the node's ticks. */
static int receive(struct hl_beam_connection *connection, uint64_t deadline_ns, ei_x_buff *reply)
{
	for (;;) {
		uint64_t now = hl_clock_ns(CLOCK_MONOTONIC);
		erlang_msg message;

		if (now + NS_PER_MS > deadline_ns)
			return -ETIMEDOUT;
		reply->index = 0;
		int r = ei_xreceive_msg_tmo(connection->fd, &message, reply,
					    (unsigned)((deadline_ns - now) / NS_PER_MS));
		if (r == ERL_MSG &&
		    (message.msgtype == ERL_SEND || message.msgtype == ERL_REG_SEND))
			return 0;
		if (r == ERL_ERROR)
			return erl_errno == ETIMEDOUT ? -ETIMEDOUT : -EIO;
	}
}

int hl_connection_call(struct hl_beam_connection *connection, const char *module,
		       const char *function, const ei_x_buff *arguments, ei_x_buff *ret_reply,
		       struct hl_error *err)
{
	uint64_t deadline_ns =
		hl_clock_ns(CLOCK_MONOTONIC) + (uint64_t)connection->timeout_ms * NS_PER_MS;
	ei_x_buff reply;

	if (ei_x_new(&reply) < 0)
		return hl_error_set(err, -ENOMEM, "out of memory");
	int r = ei_rpc_to(&connection->own, connection->fd, (char *)module, (char *)function,
			  arguments->buff, arguments->index);
	r = r < 0 ? -EIO : receive(connection, deadline_ns, &reply);
	if (r == 0) {
		*ret_reply = reply;
		return 0;
	}
	ei_x_free(&reply);
	if (r == -ETIMEDOUT)
		return explain_silence(connection, err);
	return hl_error_set(err, r,
			    "cannot ask node '%s': the connection broke before it answered; is it "
			    "still running?",
			    connection->node);
}
