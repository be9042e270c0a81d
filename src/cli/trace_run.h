/* SPDX-License-Identifier: BSD-2-Clause */
/* What heapline stacks, pgfault and page-events share: the target, how long, and what is made of
 * the result. */
#pragma once

#include "bpf/trace.h"
#include "cli/cli.h"
#include "view/view.h"

/* For the shared_options of a verb. */
extern const struct hl_option hl_trace_options[]; /* --pid --output --force --folded ... */

struct hl_trace_command {
	const struct hl_trace_backend *backend;
	const void *settings;	 /* for the backend */
	const char *mode;	 /* of the recording; NULL: backend->mode */
	double interval_seconds; /* between reports; 0: there is one, at the end */

	/* Of a process that is being recorded: this in place of backend and mode; NULL: no other.
	 */
	const struct hl_trace_backend *recorded_backend;
	const char *recorded_mode;
	const char *needs_probes; /* an option that was given and that it cannot do; NULL: none */
};

/* Reads a number of seconds, fractions allowed, more than 0. 0 or -EINVAL. */
int hl_trace_run_parse_seconds(const char *text, double *ret_seconds);

/*
 * Traces the process that --pid names for as long as the operand says, or until Ctrl-C or the
 * target's end, and writes what --folded, --json or --output ask for. Returns the exit status; what
 * went wrong was reported.
 */
int hl_trace_run(const struct hl_verb *verb, int argc, char **argv,
		 const struct hl_trace_command *command);
