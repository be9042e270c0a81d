/* SPDX-License-Identifier: BSD-2-Clause */
/* What heapline stacks, pgfault and page-events share: the target, how long, and what is made of
 * the result. */
#pragma once

#include "bpf/trace.h"
#include "cli/cli.h"
#include "view/view.h"

/* For the shared_options of a verb. */
extern const struct hl_option hl_trace_target_options[]; /* --pid */
extern const struct hl_option hl_trace_output_options[]; /* --folded --output --force --verbose */

struct hl_trace_command {
	const struct hl_trace_backend *backend;
	const void *settings; /* for the backend */
	const char *schema;   /* of --json: "heapline/stacks/1" */
	const char *mode;     /* of the recording; NULL: backend->mode */
};

/*
 * Traces the process that --pid names for as long as the operand says, or until Ctrl-C or the
 * target's end, and writes what --folded, --json or --output ask for. Returns the exit status; what
 * went wrong was reported.
 */
int hl_trace_run(const struct hl_verb *verb, int argc, char **argv,
		 const struct hl_trace_command *command);
