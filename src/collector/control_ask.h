/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a recording that goes on is asked: the lines of the protocol, which `heapline ctl` and the collector
 * speak, and the asking side.
 */
#pragma once

#include "base/error.h"
#include "base/names.h"
#include "base/user.h"
#include "region/region.h"

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- control protocol ---- */

/*
 * What `heapline ctl` says to a collector: one line, answered by one JSON object and the end of
 * the connection.
 *
 *	heapline/1 VERB PID[ ARGUMENT]\n
 *
 * PID is that of a recorded process, 0 stands for all of them; in FIND, LINES, TIMES and LEAKS for the caller. The argument is the rest of the
 * line, any bytes but NUL and newline. An answer has a member `error`, a sentence, or what the verb
 * is about; see docs/format.md. LINES and TIMES are answered as the views write them: lines of text.
 */

#define HL_CONTROL_LINE_MAX (PATH_MAX + 64) /* with the newline */

enum hl_control_verb {
	HL_CONTROL_FIND,      /* is PID recorded here? */
	HL_CONTROL_STATUS,    /* of the recording and its processes; PID is not looked at */
	HL_CONTROL_MODE,      /* argument: a mode */
	HL_CONTROL_MARK,      /* argument: see hl_mark_length() */
	HL_CONTROL_SNAPSHOT,  /* argument: an absolute path */
	HL_CONTROL_REPLACE,   /* the same, instead of an older recording */
	HL_CONTROL_SEGMENTS,  /* argument: how many are kept */
	HL_CONTROL_RESET,     /* figures count from now on; see hl_region_base_take() */
	HL_CONTROL_ALLOCATOR, /* the process shall ask its allocator what it has */
	HL_CONTROL_DETACH, /* ends a recording by 'heapline attach'; answered when it has ended */
	HL_CONTROL_LINES,  /* 'heapline lines' of PID; argument: none, for now, or at how many ms */
	HL_CONTROL_TIMES, /* 'heapline timeline' of PID as CSV; argument: none, or how many threads */
	HL_CONTROL_LEAKS, /* 'heapline leaks' of PID, which waits: a recording beside the collector's own */
	HL_CONTROL_VERBS,
};

struct hl_control_request {
	enum hl_control_verb verb;
	pid_t pid;
	char argument[PATH_MAX]; /* "" when there is none */
	enum hl_mode mode;	 /* HL_CONTROL_MODE */
	uint32_t segments;	 /* HL_CONTROL_SEGMENTS */
};

/*
 * Reads a request of ${size} bytes, without its newline. 0, or -EINVAL with a sentence that is
 * fit to be answered; ${ret_request} is then undefined.
 */
int hl_control_protocol_parse(const char *line, size_t size, struct hl_control_request *ret_request,
			      struct hl_error *err);

/* Checks verb and argument of a request and fills the members that follow from them. As above. */
int hl_control_protocol_check(struct hl_control_request *request, struct hl_error *err);

/* Writes a checked request as a line to ${line}; returns how many bytes. */
size_t hl_control_protocol_format(const struct hl_control_request *request,
				  char line[HL_CONTROL_LINE_MAX]);

/* The word of a request that reaches into the recorded process or changes what is recorded of it; NULL: it does neither. */
const char *hl_control_protocol_change(const struct hl_control_request *request);

/* ---- where collectors listen ---- */

/*
 * Where collectors listen for `heapline ctl`: PID.sock in a directory of one user, which nobody
 * else may enter. It is the first of $XDG_RUNTIME_DIR/heapline, /run/user/UID/heapline and
 * /tmp/heapline-UID that can be had.
 */

enum {
	HL_CONTROL_IN_RUNTIME_DIR, /* $XDG_RUNTIME_DIR; of the calling user alone */
	HL_CONTROL_IN_RUN_USER,
	HL_CONTROL_IN_TMP,
	HL_CONTROL_PLACES,
};

/*
 * Opens a directory of user ${uid} if it is private to them: theirs, mode 0700, no symbolic link.
 * The descriptor, or a negative errno: -ENOENT when there is none, -EPERM when it is not private.
 */
int hl_control_directory_open(unsigned place, uid_t uid);

/* Opens the first place of the calling user that can be had, and makes it if need be. */
int hl_control_directory_make(void);

/* The PIDs that have a socket there, dead or alive; the caller frees them. 0 or a negative errno.
 */
int hl_control_directory_list(int directory_fd, pid_t **ret_pids, size_t *ret_count);

/* Removes sockets that nobody listens to any more. */
void hl_control_directory_clean(int directory_fd);

/* Listens as the calling process. A descriptor that does not block, or a negative errno. */
int hl_control_directory_listen(int directory_fd);

/* Removes the calling process' socket. */
void hl_control_directory_remove(int directory_fd);

/* Connects to the collector ${pid}. A descriptor that does not block, or a negative errno:
 * -ECONNREFUSED when it is dead. */
int hl_control_directory_connect(int directory_fd, pid_t pid);

/* ---- clients ---- */

/* One who asks the collector something: the request comes in, the answer goes out, neither waited
 * for. */

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

/* ---- the asking side of control: finds the collector that records a process, and asks it ---- */

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
