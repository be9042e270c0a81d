/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests as lines and back; see control_protocol.h. */
#include "collector/control_protocol.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GREETING "heapline/1 "

/* The words of modes fit, and some more for the sentence about a wrong one. */
#define NAME_SHOWN_MAX 64

static int check_mode(struct hl_control_request *request, struct hl_error *err)
{
	for (int word = 0; hl_mode_names[word]; word++)
		if (strcmp(request->argument, hl_mode_names[word]) == 0) {
			request->mode = hl_mode_of_word(word);
			return 0;
		}
	return hl_error_set(
		err, -EINVAL,
		"there is no mode '%.*s'; choose closed (or off), mem-record, mem-fast, "
		"log-record or log-fast",
		NAME_SHOWN_MAX, request->argument);
}

static int check_mark(struct hl_control_request *request, struct hl_error *err)
{
	int length = hl_mark_length(request->argument);

	if (length == -ENAMETOOLONG)
		return hl_error_set(err, -EINVAL,
				    "the name of the mark is too long; use at most %d bytes",
				    HL_MARK_MAX);
	if (length < 0)
		return hl_error_set(err, -EINVAL,
				    "the name of the mark is empty or has control characters; use "
				    "one line of plain text");
	return 0;
}

static int check_path(struct hl_control_request *request, struct hl_error *err)
{
	if (request->argument[0] == '/')
		return 0;
	return hl_error_set(err, -EINVAL, "the path of a snapshot must be absolute in a request");
}

static int check_segments(struct hl_control_request *request, struct hl_error *err)
{
	const char *text = request->argument;

	size_t length = strlen(text);
	if (length && length < 10 && strspn(text, "0123456789") == length)
		request->segments = (uint32_t)strtoul(text, NULL, 10);
	if (request->segments && request->segments <= HL_LOG_SEGMENTS_MAX)
		return 0;
	return hl_error_set(err, -EINVAL, "cannot keep '%.*s' segments; give a number from 1 to %u",
			    NAME_SHOWN_MAX, text, HL_LOG_SEGMENTS_MAX);
}

static int check_number(struct hl_control_request *request, struct hl_error *err)
{
	const char *text = request->argument;

	if (strspn(text, "0123456789") == strlen(text) && strlen(text) < 16)
		return 0;
	return hl_error_set(err, -EINVAL, "'%.*s' is not a number; give one, or nothing",
			    NAME_SHOWN_MAX, text);
}

static int check_nothing(struct hl_control_request *request, struct hl_error *err)
{
	if (request->argument[0] == '\0')
		return 0;
	return hl_error_set(err, -EINVAL, "'%s' takes no argument",
			    hl_control_protocol_verb(request->verb));
}

static const struct {
	const char *name;
	int (*check)(struct hl_control_request *request, struct hl_error *err);
} verbs[HL_CONTROL_VERBS] = {
	[HL_CONTROL_FIND] = {"find", check_nothing},
	[HL_CONTROL_STATUS] = {"status", check_nothing},
	[HL_CONTROL_MODE] = {"mode", check_mode},
	[HL_CONTROL_MARK] = {"mark", check_mark},
	[HL_CONTROL_SNAPSHOT] = {"snapshot", check_path},
	[HL_CONTROL_REPLACE] = {"replace-snapshot", check_path},
	[HL_CONTROL_SEGMENTS] = {"log-segments", check_segments},
	[HL_CONTROL_RESET] = {"reset", check_nothing},
	[HL_CONTROL_ALLOCATOR] = {"ask-allocator", check_nothing},
	[HL_CONTROL_DETACH] = {"detach", check_nothing},
	[HL_CONTROL_LINES] = {"lines", check_number},
	[HL_CONTROL_TIMES] = {"times", check_number},
	[HL_CONTROL_LEAKS] = {"leaks", check_nothing},
};

const char *hl_control_protocol_verb(enum hl_control_verb verb)
{
	return verbs[verb].name;
}

int hl_control_protocol_check(struct hl_control_request *request, struct hl_error *err)
{
	request->segments = 0;
	request->mode = HL_MODE_CLOSED;
	return verbs[request->verb].check(request, err);
}

/* ---- lines ---- */

/* The part of a line that has not been read. */
struct rest {
	const char *at, *end;
};

static bool skip(struct rest *rest, const char *text)
{
	size_t length = strlen(text);

	if ((size_t)(rest->end - rest->at) < length || memcmp(rest->at, text, length) != 0)
		return false;
	rest->at += length;
	return true;
}

/* The next word, up to a space or the end; the space is skipped. */
static struct rest next_word(struct rest *rest)
{
	struct rest word = *rest;
	const char *space = memchr(rest->at, ' ', (size_t)(rest->end - rest->at));

	word.end = space ? space : rest->end;
	rest->at = space ? space + 1 : rest->end;
	return word;
}

static bool read_verb(struct rest word, enum hl_control_verb *ret_verb)
{
	for (enum hl_control_verb verb = 0; verb < HL_CONTROL_VERBS; verb++) {
		struct rest left = word;
		if (skip(&left, verbs[verb].name) && left.at == left.end) {
			*ret_verb = verb;
			return true;
		}
	}
	return false;
}

static bool read_pid(struct rest word, pid_t *ret_pid)
{
	int64_t pid = 0;

	if (word.at == word.end)
		return false;
	for (; word.at < word.end; word.at++) {
		if (*word.at < '0' || *word.at > '9')
			return false;
		pid = pid * 10 + (*word.at - '0');
		if (pid > INT32_MAX)
			return false;
	}
	*ret_pid = (pid_t)pid;
	return true;
}

int hl_control_protocol_parse(const char *line, size_t size, struct hl_control_request *ret_request,
			      struct hl_error *err)
{
	struct rest rest = {line, line + size};

	if (memchr(line, '\0', size) || memchr(line, '\n', size) || !skip(&rest, GREETING))
		return hl_error_set(err, -EINVAL,
				    "the request is not one of this version of heapline; ask with "
				    "the heapline that records");
	if (!read_verb(next_word(&rest), &ret_request->verb))
		return hl_error_set(err, -EINVAL, "the request has a verb that is not known here");
	if (!read_pid(next_word(&rest), &ret_request->pid))
		return hl_error_set(err, -EINVAL, "the request names no process");
	size_t length = (size_t)(rest.end - rest.at);
	if (length >= sizeof(ret_request->argument))
		return hl_error_set(err, -EINVAL, "the request is too long");
	memcpy(ret_request->argument, rest.at, length);
	ret_request->argument[length] = '\0';
	return hl_control_protocol_check(ret_request, err);
}

size_t hl_control_protocol_format(const struct hl_control_request *request,
				  char line[HL_CONTROL_LINE_MAX])
{
	const char *space = request->argument[0] ? " " : "";

	return (size_t)snprintf(line, HL_CONTROL_LINE_MAX, GREETING "%s %d%s%s\n",
				verbs[request->verb].name, request->pid, space, request->argument);
}
