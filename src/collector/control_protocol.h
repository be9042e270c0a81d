/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What `heapline ctl` says to a collector: one line, answered by one JSON object and the end of
 * the connection.
 *
 *	heapline/1 VERB PID[ ARGUMENT]\n
 *
 * PID is that of a recorded process, 0 stands for all of them. The argument is the rest of the
 * line, any bytes but NUL and newline. An answer has a member `error`, a sentence, or what the verb
 * is about; see docs/format.md.
 */
#pragma once

#include "base/error.h"
#include "base/mark.h"
#include "region/region.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HL_CONTROL_LINE_MAX (PATH_MAX + 64) /* with the newline */

enum hl_control_verb {
	HL_CONTROL_FIND,      /* is PID recorded here? */
	HL_CONTROL_STATUS,    /* of the recording and its processes; PID is not looked at */
	HL_CONTROL_MODE,      /* argument: a mode */
	HL_CONTROL_MARK,      /* argument: see hl_mark_length() */
	HL_CONTROL_SNAPSHOT,  /* argument: an absolute path */
	HL_CONTROL_REPLACE,   /* the same, in place of an older recording */
	HL_CONTROL_SEGMENTS,  /* argument: how many are kept */
	HL_CONTROL_ALLOCATOR, /* the process shall ask its allocator what it has */
	HL_CONTROL_VERBS,
};

struct hl_control_request {
	enum hl_control_verb verb;
	pid_t pid;
	char argument[PATH_MAX]; /* "" when there is none */
	enum hl_mode mode;	 /* HL_CONTROL_MODE */
	uint32_t segments;	 /* HL_CONTROL_SEGMENTS */
};

/* The word of ${verb} in a request. */
const char *hl_control_verb_name(enum hl_control_verb verb);

/*
 * Reads a request of ${size} bytes, without its newline. 0, or -EINVAL with a sentence that is
 * fit to be answered; ${ret_request} is then undefined.
 */
int hl_control_parse(const char *line, size_t size, struct hl_control_request *ret_request,
		     struct hl_error *err);

/* Checks verb and argument of a request and fills the members that follow from them. As above. */
int hl_control_check(struct hl_control_request *request, struct hl_error *err);

/* Writes a checked request as a line to ${line}; returns how many bytes. */
size_t hl_control_format(const struct hl_control_request *request, char line[HL_CONTROL_LINE_MAX]);
