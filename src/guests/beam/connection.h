/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Talking to a BEAM: its address and cookie, the connection, the arguments of calls, and their answers, which
 * are not trusted.
 */
#pragma once

#include "base/error.h"
#include "guests/beam/beam.h"

#include <ei.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- reaching a node: its name and host, the cookie, epmd, a connection ---- */

/* ---- names of nodes, and where they are ---- */

#define HL_NODE_PART_MAX 254 /* as much as libei has room for, with the NUL */

struct hl_node_name {
	char alive[HL_NODE_PART_MAX]; /* the part before the @ */
	char host[HL_NODE_PART_MAX];
};

/* Takes "name@host" apart. 0, or -EINVAL with a sentence. */
int hl_node_name_parse(const char *text, struct hl_node_name *ret_name, struct hl_error *err);

/*
 * The address of the node's host: loopback for this machine's own names, else what the resolver
 * says. 0, or -EHOSTUNREACH with a sentence.
 */
int hl_node_name_resolve(const struct hl_node_name *name, struct in_addr *ret_address,
			 struct hl_error *err);

/* ---- the secret that nodes of a cluster share, in a file ---- */

#define HL_COOKIE_MAX 513 /* libei has room for 512 letters */

struct hl_cookie {
	char path[PATH_MAX]; /* where it was found */
	char text[HL_COOKIE_MAX];
	bool is_exposed; /* others than the file's owner may read it; Erlang would refuse it */
};

/*
 * Reads the cookie in ${path}, or, when that is NULL, in the first file there is of those that
 * Erlang reads: ~/.erlang.cookie and erlang/.erlang.cookie in the user's configuration. 0 or a
 * negative errno with a sentence, which never shows the cookie.
 */
int hl_cookie_read(const char *path, struct hl_cookie *ret_cookie, struct hl_error *err);

/* ---- epmd, which knows the nodes of a machine, why one cannot be reached ---- */

struct hl_epmd_answer {
	bool is_there;	 /* epmd answered */
	bool knows_node; /* the node that was asked for is registered */
	uint16_t port;	 /* of epmd: $ERL_EPMD_PORT, else 4369 */
	char names[400]; /* the registered nodes, separated by ", "; "" when there is none */
};

/* Waits ${timeout_ms} at most for each step. */
void hl_epmd_ask(struct in_addr address, const char *alive, unsigned timeout_ms,
		 struct hl_epmd_answer *ret_answer);

/* ---- asking a node through libei: the connection, and the arguments of calls ---- */

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

/* ---- decode ---- */

/*
 * Answers of a BEAM: reads Erlang's external term format into heapline's own structures. Answers
 * are not trusted.
 */

/* ---- term.c: terms, as other nodes send them ---- */

/*
 * Reads never go beyond the end, and take time linear in the bytes. (libei's own decoders do not
 * know where a buffer ends.) All functions return 0, or -EBADMSG when the next term is of another
 * kind or cut off; then ${term} and the results stay as they were.
 */

/* The rest of an encoded term. A copy of the struct is a bookmark. */
struct hl_term {
	const uint8_t *at, *end;
};

#define HL_TERM_ATOM_MAX 1024 /* 255 characters of UTF-8 and a NUL */

/* Begins a term of ${size} ${bytes} with the version in front of it. */
int hl_term_begin(struct hl_term *term, const void *bytes, size_t size);

/* The head of a tuple; its elements follow. */
int hl_term_tuple(struct hl_term *term, uint32_t *ret_arity);

/* The head of a tuple that has ${arity} elements. */
int hl_term_tuple_of(struct hl_term *term, uint32_t arity);

/* The head of a list. Its elements follow, then its end, which hl_term_list_end() takes. */
int hl_term_list(struct hl_term *term, uint32_t *ret_count);

/* The end of a list that had ${count} elements, which must be a proper one. */
int hl_term_list_end(struct hl_term *term, uint32_t count);

/* The head of a map; keys and values follow by turns. */
int hl_term_map(struct hl_term *term, uint32_t *ret_pairs);

/* An integer from 0 to UINT64_MAX. */
int hl_term_unsigned(struct hl_term *term, uint64_t *ret_number);

/* An atom as UTF-8, cut off between letters where ${size} ends. */
int hl_term_atom(struct hl_term *term, char *ret_text, size_t size);

/* The atom ${text} and no other. */
int hl_term_this_atom(struct hl_term *term, const char *text);

int hl_term_boolean(struct hl_term *term, bool *ret_truth);

/* A list of characters below 256, or a binary, cut off where ${size} ends. */
int hl_term_string(struct hl_term *term, char *ret_text, size_t size);

/*
 * The origin of an allocation, as Erlang's shell writes it: an atom, a function (`m:f/1`), a
 * process (`<0.81.0>`) or a port (`#Port<0.5>`); "?" for any other term.
 */
int hl_term_origin(struct hl_term *term, char *ret_text, size_t size);

/* Skips a term of any kind. */
int hl_term_skip(struct hl_term *term);

/* ---- decode.c: answers to the questions of `heapline beam` ---- */

/*
 * The functions return -EBADMSG for answers of an unknown form; what they have put into their
 * results by then stays there.
 */

enum hl_beam_answer {
	HL_BEAM_VALUE,	      /* the term goes on with what the function returned */
	HL_BEAM_UNDEFINED,    /* there is no such function */
	HL_BEAM_BAD_ARGUMENT, /* it does not take what it was given */
	HL_BEAM_FAILED,	      /* anything else went wrong */
};

/* Takes what precedes the function's value in an answer. 0 or -EBADMSG. */
int hl_decode_reply(struct hl_term *term, enum hl_beam_answer *ret_answer);

/*
 * What instrument:carriers() returns, in the shape of OTP 21 or of 22 and later, into empty
 * ${carriers}. 0, -ENODATA when no allocator that was asked for is enabled, -EBADMSG, -ENOMEM. The
 * bounds of histograms are those of OTP 21, until hl_decode_bounds() found which they are.
 */
int hl_decode_carriers(struct hl_term *term, struct hl_carriers *carriers);

/* What instrument:allocations() returns, into empty ${allocations}. As above. */
int hl_decode_allocations(struct hl_term *term, struct hl_allocations *allocations);

/*
 * Finds the ${ret_bounds} of histograms of blocks: those that the free bytes of ${carriers} prove,
 * else those that ${otp_release} is known to have. Sets the bounds of ${carriers} to match. False
 * where neither tells; then they are those of the newest known release.
 */
bool hl_decode_bounds(struct hl_carriers *carriers, const char *otp_release,
		      enum hl_log2_bounds *ret_bounds);

/* Whether ${otp_release} is one whose bounds are known. */
bool hl_decode_knows_release(const char *otp_release, enum hl_log2_bounds *ret_bounds);

/*
 * Adds what erlang:system_info({allocator, ${allocator}}) returns to ${instances}, nothing when it
 * is not enabled. 0, -EBADMSG, -ENOMEM.
 */
int hl_decode_instances(struct hl_term *term, const char *allocator,
			struct hl_beam_instances *instances);
