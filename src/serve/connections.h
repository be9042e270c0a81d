/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bounds what connections may take: how many there are, how long one may send the header of a request, and how long
 * its answer may take. Where room is needed, whoever has taken longest to send a header has to go. Thread-safe.
 */
#pragma once

#include "base/error.h"

#include <netinet/in.h>
#include <stdbool.h>

#define HL_CONNECTIONS_MAX	   64 /* a further one ends the one that is longest at its header */
#define HL_CONNECTIONS_SPARE	   16 /* beyond these, while those that have to go do so */
#define HL_CONNECTIONS_ANSWERS_MAX 32 /* at once, for one address; further ones are refused */
#define HL_CONNECTIONS_HEADER_S	   10
#define HL_CONNECTIONS_ANSWER_S	   900 /* from a request to the last byte of its answer */

struct hl_connections;
struct hl_connections_entry;

/* Begins to mind them, on a thread that ends when ${stop_fd} can be read. 0 or a negative errno. */
int hl_connections_new(int stop_fd, struct hl_connections **ret_connections);

/* After ${stop_fd} can be read. NULL is fine. */
void hl_connections_free(struct hl_connections *connections);

/* One begins: the header of its first request is to come. NULL where there is no room for it, so that it is not minded. */
struct hl_connections_entry *hl_connections_open(struct hl_connections *connections, int fd,
						 const struct sockaddr *address);

/* To be called before its socket is closed; NULL is fine. */
void hl_connections_close(struct hl_connections *connections,
			  struct hl_connections_entry *connection);

/* The header of a request is complete. Whether it may be answered: not where as many others are. */
bool hl_connections_begin_answer(struct hl_connections *connections,
				 struct hl_connections_entry *connection);

/* The answer was sent: the header of the next request is to come. */
void hl_connections_end_answer(struct hl_connections *connections,
			       struct hl_connections_entry *connection);
