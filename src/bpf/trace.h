/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The seam between the kinds of traces and those that run them: start, poll until it is enough,
 * finish. One thread.
 */
#pragma once

#include "base/compiler.h"
#include "base/error.h"
#include "bpf/trace_result.h"
#include "process/process.h"

#include <stdbool.h>

/* The target pays more than the user allows. Positive: what was found is still worth a report. */
#define HL_TRACE_TOO_COSTLY 1

struct hl_trace_request {
	const struct hl_process_facts *facts; /* of the target; valid until _free() */
	const void *settings;		      /* of the kind of trace; valid until _free() */
	void (*note)(const char *format, ...) HL_PRINTF(1, 2); /* a sentence for the user, now */
	void (*detail)(const char *format, ...)
		HL_PRINTF(1, 2); /* the same, for users who want to know each step */
	bool (*is_enough)(void); /* the user or the target has ended it; ask while starting takes
				    its time */
};

struct hl_trace_backend {
	const char *mode; /* of the recording; what a verb may override is in its settings */

	/*
	 * Attaches and begins to count. 0; HL_TRACE_TOO_COSTLY, detached again, with the sentence
	 * in
	 * ${err}; or a negative errno with a sentence that names what is missing and the remedy.
	 */
	int (*start)(const struct hl_trace_request *request, void **ret_trace,
		     struct hl_error *err);

	/* Takes in what happened, waiting up to ${timeout_ms}; a signal ends the wait. 0,
	 * HL_TRACE_TOO_COSTLY with a sentence (the trace is then finished), or a negative errno.
	 */
	int (*poll)(void *trace, int timeout_ms, struct hl_error *err);

	/* Fills ${result} with what has changed since the last such report, or the start; goes on.
	 * NULL: this kind of trace does not. 0 or a negative errno with a sentence. */
	int (*report)(void *trace, struct hl_trace_result *result, struct hl_error *err);

	/* Detaches, takes in the rest and fills ${result}: stacks, values, figures, losses. The
	 * target may have ended (${has_ended}). 0 or a negative errno. */
	int (*finish)(void *trace, bool has_ended, struct hl_trace_result *result,
		      struct hl_error *err);

	/* Detaches if that is not done, and frees. NULL is fine. */
	void (*free)(void *trace);
};
