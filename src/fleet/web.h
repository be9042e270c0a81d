/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests over HTTP and HTTPS by libcurl, which is loaded when it is needed (base/library.h). */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HL_WEB_CONNECT_S  5
#define HL_WEB_ANSWER_S	  30
#define HL_WEB_ANSWER_MAX (1L << 30) /* bytes; more is refused */

struct hl_web_request {
	const char *url;
	const char *name;	  /* of the host, for messages: the URL may hold a password */
	const char *user;	  /* NAME:PASSWORD; NULL: none */
	const char *content_type; /* NULL: text/plain */
	const char *header;	  /* one more, "Name: value"; NULL: none */
	const void *body;	  /* sent by POST */
	size_t size;
	bool is_sent_once; /* else one whose connection, used before, broke is sent again */
};

/* The answer, with a NUL after it, to be freed. */
struct hl_web_answer {
	char *text;
	size_t size;
	long status; /* 0: there was no answer */
};

/* Whether it begins with http:// or https://. */
bool hl_web_is_url(const char *url);

/* Where requests go. Zero-initialize for nowhere. */
struct hl_web_place {
	char *url;  /* without a user, with a port and a path */
	char *name; /* for messages */
	char *user; /* NAME:PASSWORD; NULL: none */
};

/* The environment variable with the password of a URL that names a user alone. */
#define HL_WEB_PASSWORD "HEAPLINE_STORE_PASSWORD"

/* "NAME:PASSWORD" of ${length} bytes at ${user}, with that password where there is none; to be freed, NULL for want of memory. */
char *hl_web_user(const char *user, size_t length);

/* Parts of ${url}, http[s]://[USER:PASSWORD@]HOST[:PORT][/...]: ${port} is added where there is none (NULL: none is), and ${path} where it
 * does not end with it. 0 or -ENOMEM. To be released in any case. */
int hl_web_place_parse(const char *url, const char *port, const char *path,
		       struct hl_web_place *place);
void hl_web_place_release(struct hl_web_place *place);

/* No transfer of this process goes on after ${ns}, CLOCK_MONOTONIC; 0: each has its time. May be called by a handler of signals. */
void hl_web_end_by(uint64_t ns);

/* From now on a server has ${seconds} for each answer, HL_WEB_ANSWER_S unless this was called. */
void hl_web_answer_within(long seconds);

/* Calls ${note} from within each request of this process that takes longer than a second, at least once; NULL: no more. */
void hl_web_when_slow(void (*note)(void *context), void *context);

struct hl_web;

/* Keeps connections from one request to the next. 0 or a negative errno with a sentence. Used by one thread. */
int hl_web_new(struct hl_web **ret_web, struct hl_error *err);
void hl_web_free(struct hl_web *web); /* NULL is fine */

/*
 * Sends ${request}. 0 with an answer of status 200 to 299. With a sentence: -EAGAIN when the same request may succeed later (no
 * connection, no answer in time, status 429 or 5xx); -EREMOTEIO when it is refused, and ${ret_answer} then holds what was said; -ENOMEM.
 * The answer is to be freed unless it is NULL.
 */
int hl_web_post(struct hl_web *web, const struct hl_web_request *request,
		struct hl_web_answer *ret_answer, struct hl_error *err);
