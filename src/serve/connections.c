/* SPDX-License-Identifier: BSD-2-Clause */
/* Minds connections; see connections.h. */
#include "serve/connections.h"

#include "base/clock.h"
#include "base/compiler.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>

#define LOOK_MS 500

enum state {
	STATE_FREE,
	STATE_HEADER,
	STATE_ANSWER,
	STATE_ENDED, /* it was shut down, and is still open */
};

struct hl_connections_entry {
	enum state state;
	int fd;
	in_addr_t address;
	uint64_t since_ns; /* it is in this state */
};

struct hl_connections {
	pthread_mutex_t lock;
	pthread_t minder;
	int stop_fd;
	struct hl_connections_entry all[HL_CONNECTIONS_MAX + HL_CONNECTIONS_SPARE];
};

/* Its thread sees the end of the stream, or cannot send any more. */
static void end(struct hl_connections_entry *connection)
{
	shutdown(connection->fd, SHUT_RDWR);
	connection->state = STATE_ENDED;
}

static void enter(struct hl_connections_entry *connection, enum state state)
{
	connection->state = state;
	connection->since_ns = hl_clock_ns(CLOCK_MONOTONIC);
}

static size_t count_of(const struct hl_connections *connections)
{
	size_t count = 0;

	for (size_t i = 0; i < HL_COUNT_OF(connections->all); i++)
		count += connections->all[i].state == STATE_HEADER ||
			 connections->all[i].state == STATE_ANSWER;
	return count;
}

/* ---- time ---- */

static void end_late(struct hl_connections *connections, uint64_t now_ns)
{
	static const uint64_t limits_s[] = {[STATE_HEADER] = HL_CONNECTIONS_HEADER_S,
					    [STATE_ANSWER] = HL_CONNECTIONS_ANSWER_S,
					    [STATE_ENDED] = 0};

	pthread_mutex_lock(&connections->lock);
	for (size_t i = 0; i < HL_COUNT_OF(connections->all); i++) {
		struct hl_connections_entry *connection = &connections->all[i];
		uint64_t limit_ns = limits_s[connection->state] * HL_NS_PER_SECOND;
		if (limit_ns && now_ns - connection->since_ns > limit_ns)
			end(connection);
	}
	pthread_mutex_unlock(&connections->lock);
}

static void *mind(void *context)
{
	struct hl_connections *connections = context;
	struct pollfd stop = {.fd = connections->stop_fd, .events = POLLIN};

	while (poll(&stop, 1, LOOK_MS) <= 0)
		end_late(connections, hl_clock_ns(CLOCK_MONOTONIC));
	return NULL;
}

int hl_connections_new(int stop_fd, struct hl_connections **ret_connections)
{
	struct hl_connections *connections = calloc(1, sizeof(*connections));

	if (!connections)
		return -ENOMEM;
	connections->stop_fd = stop_fd;
	pthread_mutex_init(&connections->lock, NULL);
	int error = pthread_create(&connections->minder, NULL, mind, connections);
	if (error) {
		pthread_mutex_destroy(&connections->lock);
		free(connections);
		return -error;
	}
	*ret_connections = connections;
	return 0;
}

void hl_connections_free(struct hl_connections *connections)
{
	if (!connections)
		return;
	pthread_join(connections->minder, NULL);
	pthread_mutex_destroy(&connections->lock);
	free(connections);
}

/* ---- room ---- */

/* Ends the one that has been longest at its header. Under the lock. */
static void make_room(struct hl_connections *connections)
{
	struct hl_connections_entry *oldest = NULL;

	for (size_t i = 0; i < HL_COUNT_OF(connections->all); i++) {
		struct hl_connections_entry *connection = &connections->all[i];
		if (connection->state == STATE_HEADER &&
		    (!oldest || connection->since_ns < oldest->since_ns))
			oldest = connection;
	}
	if (oldest)
		end(oldest);
}

struct hl_connections_entry *hl_connections_open(struct hl_connections *connections, int fd,
						 const struct sockaddr *address)
{
	const struct sockaddr_in *from = (const void *)address;
	struct hl_connections_entry *opened = NULL;

	pthread_mutex_lock(&connections->lock);
	if (count_of(connections) >= HL_CONNECTIONS_MAX)
		make_room(connections);
	for (size_t i = 0; !opened && i < HL_COUNT_OF(connections->all); i++)
		if (connections->all[i].state == STATE_FREE)
			opened = &connections->all[i];
	if (opened) {
		opened->fd = fd;
		opened->address = from->sin_family == AF_INET ? from->sin_addr.s_addr : 0;
		enter(opened, STATE_HEADER);
	}
	pthread_mutex_unlock(&connections->lock);
	return opened;
}

void hl_connections_close(struct hl_connections *connections,
			  struct hl_connections_entry *connection)
{
	if (!connection)
		return;
	pthread_mutex_lock(&connections->lock);
	connection->state = STATE_FREE;
	pthread_mutex_unlock(&connections->lock);
}

bool hl_connections_begin_answer(struct hl_connections *connections,
				 struct hl_connections_entry *connection)
{
	size_t others = 0;

	if (!connection)
		return false;
	pthread_mutex_lock(&connections->lock);
	for (size_t i = 0; i < HL_COUNT_OF(connections->all); i++)
		others += connections->all[i].state == STATE_ANSWER &&
			  connections->all[i].address == connection->address;
	if (connection->state == STATE_HEADER)
		enter(connection, STATE_ANSWER);
	pthread_mutex_unlock(&connections->lock);
	return others < HL_CONNECTIONS_ANSWERS_MAX;
}

void hl_connections_end_answer(struct hl_connections *connections,
			       struct hl_connections_entry *connection)
{
	if (!connection)
		return;
	pthread_mutex_lock(&connections->lock);
	if (connection->state == STATE_ANSWER)
		enter(connection, STATE_HEADER);
	pthread_mutex_unlock(&connections->lock);
}
