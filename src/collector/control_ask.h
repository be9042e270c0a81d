/* SPDX-License-Identifier: BSD-2-Clause */
/* The asking side of control: finds the collector that records a process, and asks it. */
#pragma once

#include "base/error.h"
#include "base/user.h"
#include "collector/control_protocol.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct hl_control_peer {
	pid_t pid;	  /* of the collector */
	int directory_fd; /* where its socket is */
	char *recording;  /* the path of what it writes */
	uint64_t wait_ns; /* for an answer; 0: as long as is usual */

	/* Whose it is, where we are root and it is somebody else's; else NULL. Such a collector may say anything: it is to be
	 * believed about processes of that user, and files that it names are to be read as that user. */
	struct hl_user *user;
};

#define HL_CONTROL_OTHERS_MAX \
	256 /* collectors of one other user; further ones are counted as left out */

/* Collectors that know a process. */
struct hl_control_peers {
	struct hl_control_peer *peers;
	size_t count, capacity;
	bool skips_silent; /* who did not answer a short while ago is not asked */
	char silent[128];  /* collectors that do not answer, as "412, 508"; more are left out */
	uint64_t until_ns; /* when the search leaves the user who is being asked; 0: never */
	size_t user_first; /* of peers, those from here on are of the user who is being asked */
	size_t left_out;   /* collectors of others who have too many, or are too slow */
	size_t denied;	   /* collectors that we may not connect to */
};

/*
 * Finds who records process ${pid}, or is it. Looks where this user's collectors listen and, for
 * root, those of the process' user. 0, with whatever was found, or -ENOMEM. To be released in any
 * case.
 */
int hl_control_ask_search(pid_t pid, struct hl_control_peers *peers);

/*
 * Finds all collectors of this user; for root, those of all users. As above, but who did not answer is not asked again for 30 s, so
 * that not each look waits for it, and another user costs at most two seconds. Thread-safe.
 */
int hl_control_ask_list(struct hl_control_peers *peers);

void hl_control_ask_release(struct hl_control_peers *peers);

/*
 * Asks one collector. 0 with the answer, an object that the caller decrefs, or a negative errno
 * with a sentence, be it the collector's own (-EREMOTEIO). -ETIMEDOUT: it does not answer.
 */
int hl_control_ask(const struct hl_control_peer *peer, const struct hl_control_request *request,
		   json_t **ret_answer, struct hl_error *err);

/* A text of an answer as bytes, which the caller frees; NULL for want of memory, "" when there is
 * no text. */
char *hl_control_ask_bytes(const json_t *text);

/* A command line of an answer as one text, as a shell needs it, to be freed; NULL for want of memory. */
char *hl_control_ask_words(const json_t *words);
