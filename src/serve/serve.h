/* SPDX-License-Identifier: BSD-2-Clause */
/* Serves the catalog over HTTP: read-only, to whom has the token where there is one. */
#pragma once

#include "base/error.h"
#include "serve/groups.h"
#include "serve/request.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

struct hl_serve_options {
	struct sockaddr_in address;	/* port 0: any free one */
	const char *token;		/* NULL: nobody is asked for one */
	const char *const *directories; /* with recordings */
	size_t directory_count;
	struct hl_group_choice groups;
	hl_request_option_fn *option_of;   /* of verbs */
	void (*say)(const char *sentence); /* for the log; called by any thread */
};

struct hl_serve;

/*
 * Begins to serve, on threads of its own; ${options} must stay valid. 0 with *${ret_serve} and the port in
 * *${ret_port}, or a negative errno with a sentence.
 */
int hl_serve_start(const struct hl_serve_options *options, struct hl_serve **ret_serve,
		   unsigned *ret_port, struct hl_error *err);

/* Waits for what is being answered. */
void hl_serve_stop(struct hl_serve *serve);
