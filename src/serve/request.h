/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a request asks for. Nothing here opens, runs or looks at anything: a request becomes one of
 * a few kinds, with options that the verb has and that may be given from afar.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum hl_request_kind {
	HL_REQUEST_INDEX,
	HL_REQUEST_METRICS,
	HL_REQUEST_PROFILE, /* pprof's */
	HL_REQUEST_REPORT,  /* the page */
	HL_REQUEST_VIEW,    /* of a recording */
	HL_REQUEST_HEAP,    /* a view of a process' heap, as it is now */
};

#define HL_REQUEST_OPTIONS_MAX 16
#define HL_REQUEST_SECONDS_MAX 600
#define HL_REQUEST_VALUE_MAX   1000 /* bytes of one argument */

struct hl_request_argument {
	const char *key, *value; /* value NULL: none was given */
};

/* What an option of a verb takes. */
enum hl_request_option {
	HL_REQUEST_OPTION_NONE, /* there is no such option, or it is not one for requests */
	HL_REQUEST_OPTION_FLAG,
	HL_REQUEST_OPTION_TEXT,
	HL_REQUEST_OPTION_TEXTS, /* may be given more than once */
	HL_REQUEST_OPTION_RANGE, /* two numbers */
};

typedef enum hl_request_option hl_request_option_fn(const char *verb, const char *option);

struct hl_request {
	enum hl_request_kind kind;
	const char *verb;   /* that answers; NULL: none */
	bool is_text;	    /* of views: a table, not JSON */
	pid_t pid;	    /* 0: not given */
	const char *name;   /* of a recording; NULL: not given */
	const char *before; /* of the recording that it is compared with; NULL: none */
	uint32_t seconds;   /* what comes within; 0: all there is */
	uint32_t refresh;   /* seconds after which the page is to be asked for again; 0: never */
	char *options[HL_REQUEST_OPTIONS_MAX];
	size_t option_count; /* of the verb: "--focus=RE"; the second number of a range is one of its own */
};

/*
 * Reads ${path} and its ${count} ${arguments}, which must outlive ${ret_request}; ${option_of} knows the verbs' options. 0; with a sentence
 * for the caller, -ENOENT (there is nothing like that), -EINVAL (it cannot be asked like that) or
 * -ENOMEM. To be released in any case.
 */
int hl_request_parse(const char *path, const struct hl_request_argument *arguments, size_t count,
		     hl_request_option_fn *option_of, struct hl_request *ret_request,
		     struct hl_error *err);

void hl_request_release(struct hl_request *request);
