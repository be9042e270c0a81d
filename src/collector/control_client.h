/* SPDX-License-Identifier: BSD-2-Clause */
/* One who asks the collector something: the request comes in, the answer goes out, neither waited
 * for. */
#pragma once

#include "collector/control_protocol.h"

#include <stdbool.h>
#include <stdint.h>

enum hl_control_client_state {
	HL_CLIENT_NONE,	    /* a free place */
	HL_CLIENT_ASKING,   /* the request is coming */
	HL_CLIENT_WAITING,  /* for its answer */
	HL_CLIENT_LEAVING,  /* waits for the end of the recording */
	HL_CLIENT_ANSWERED, /* the answer is going out */
};

struct hl_control_client {
	enum hl_control_client_state state;
	int fd;
	pid_t pid;	      /* who asks */
	uint64_t deadline_ns; /* of asking and of taking the answer */
	size_t size;	      /* bytes of the line so far */
	char *answer;	      /* the client's */
	size_t sent;
	char line[HL_CONTROL_LINE_MAX];
};

/* Takes ${fd} over, which does not block, of process ${pid}. */
void hl_control_client_begin(struct hl_control_client *client, int fd, pid_t pid);

/* Closes the connection. */
void hl_control_client_end(struct hl_control_client *client);

/*
 * Reads what has come of the request. 0 with the request complete and good, -EAGAIN when more is to
 * come, -EPIPE when the client has gone, -EINVAL with a sentence for a bad request.
 */
int hl_control_client_read(struct hl_control_client *client, struct hl_control_request *ret_request,
			   struct hl_error *err);

/* Sets the answer, which it takes over; NULL says that there was no memory for one. */
void hl_control_client_answer(struct hl_control_client *client, char *answer);

/* Sends as much of the answer as is taken. Whether all is sent, or nobody takes it any more. */
bool hl_control_client_send(struct hl_control_client *client);
