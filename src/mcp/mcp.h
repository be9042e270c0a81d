/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The Model Context Protocol on two descriptors: JSON-RPC 2.0, a message on each line. A server has tools; what they do is its own. Calls run in
 * threads, so that a client can cancel them and ask meanwhile.
 */
#pragma once

#include "base/error.h"

#include <jansson.h>
#include <stddef.h>

struct hl_mcp_server {
	json_t *tools; /* an array, as tools/list answers it; the tool that pages long answers is added */
	const char *instructions; /* for the client's model */
	size_t answer_bytes;	  /* longer answers are cut, and paged */

	/*
	 * Calls ${tool}, one of ${tools}. The answer is an object, the caller's. ${stop_fd} becomes readable when nobody wants it any
	 * more. NULL and a sentence for the model on failure. Several threads call.
	 */
	json_t *(*call)(const struct hl_mcp_server *server, const char *tool, json_t *arguments,
			int stop_fd, struct hl_error *err);
	const void *context; /* call()'s */
};

/*
 * Serves until ${in} ends and all calls are answered, nobody reads ${out}, or ${stop_fd} (-1: none) can be read; then calls that
 * still run are stopped, and waited for. SIGPIPE must be ignored. 0 or a negative errno with a sentence.
 */
int hl_mcp_serve(const struct hl_mcp_server *server, int in, int out, int stop_fd,
		 struct hl_error *err);

/* ---- answers ---- */

/*
 * A copy of ${value} whose strings show what a terminal, a browser or a model may obey instead of reading: controls, overrides of direction,
 * and letters that nobody sees become \u{1b}. Names are whatever a program calls itself, so every answer goes through here. NULL for want of memory.
 */
json_t *hl_mcp_quote(const json_t *value);

/* The same of ${text}, a string of C, in which each byte that is not UTF-8 becomes U+FFFD: a sentence may be cut anywhere, and names files. */
json_t *hl_mcp_quote_text(const char *text);

/* ${value} as a line of JSON in which '<', '>' and '&' are escaped, so that no reader takes part of it for markup. To be freed; NULL for want of
 * memory. */
char *hl_mcp_format(const json_t *value);

/*
 * Cuts arrays in ${value} until its JSON takes about ${bytes}. Adds to ${cuts} an object for each: "pointer" (RFC 6901), "from", the index of the first
 * element that is missing, and "of", how many there were. 0 or -ENOMEM.
 */
int hl_mcp_cut(json_t *value, size_t bytes, const char *pointer, json_t *cuts);

/* Long answers, to be paged by a handle; zero-initialized ones are empty. */
#define HL_MCP_KEPT_MAX 16

struct hl_mcp_kept {
	json_t *answers[HL_MCP_KEPT_MAX];
	size_t count; /* of all so far; the newest stay */
};

/* Keeps ${answer}. Its number. */
size_t hl_mcp_keep(struct hl_mcp_kept *kept, json_t *answer);

void hl_mcp_kept_release(struct hl_mcp_kept *kept);

/* The tool "more", as tools/list shows it. NULL for want of memory. */
json_t *hl_mcp_more_tool(void);

/* What it answers: the caller's; NULL and a sentence on failure. */
json_t *hl_mcp_more(const struct hl_mcp_kept *kept, const json_t *arguments, size_t bytes,
		    struct hl_error *err);

/* ${answer}, which this takes; shortened, and then with a member "more", where it is longer than ${bytes}. NULL for want of memory. */
json_t *hl_mcp_shorten(struct hl_mcp_kept *kept, json_t *answer, size_t bytes);
