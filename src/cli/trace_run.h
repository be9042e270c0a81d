/* SPDX-License-Identifier: BSD-2-Clause */
/* What heapline stacks, pgfault and page-events share: the target, how long, and what is made of
 * the result. */
#pragma once

#include "bpf/trace.h"
#include "cli/view_options.h"
#include "collector/directory.h"
#include "recording/recording.h"

#include <limits.h>

/* For the shared_options of a verb. */
extern const struct hl_option hl_trace_options[]; /* --pid --output --force --folded ... */

/* What these options were set to, and what is made of the result: a recording, folded lines, JSON, or text for people.
 * The request of a verb with them begins with it. */
struct hl_trace_target {
	struct hl_view_request view; /* what is shown; there is no file for it */
	uint64_t pid;
	bool verbose;
	const char *path; /* of the recording; NULL: none is kept */
	bool force;	  /* replace a recording that is there */
	bool folded;
	bool repeated;		 /* one of several: text has a short head, JSON is one line */
	struct hl_filter filter; /* of what is shown */
};

#define HL_TRACE_DEFAULTS .view = {HL_VIEW_DEFAULTS, .options.row_limit = HL_EMIT_ROWS_DEFAULT}

struct hl_trace_command {
	const struct hl_trace_backend *backend;
	const void *settings;	 /* for the backend */
	const char *mode;	 /* of the recording; NULL: backend->mode */
	double interval_seconds; /* between reports; 0: there is one, at the end */
	bool measures_rss;	 /* the result is of blocks, and says how RSS grew beside them */

	/* Of a process that is being recorded: this instead of backend and mode; NULL: no other.
	 */
	const struct hl_trace_backend *recorded_backend;
	const char *recorded_mode;
	const char *needs_probes; /* an option that was given and that it cannot do; NULL: none */
};

/*
 * Traces the process of ${target} for as long as the operand says, or until Ctrl-C or the
 * target's end, and writes what --folded, --json or --output ask for. Returns the exit status; what
 * went wrong was reported.
 */
int hl_trace_run(const struct hl_verb *verb, int argc, char **argv, struct hl_trace_target *target,
		 const struct hl_trace_command *command);

/* The same of a control group that people call ${name}, for ${seconds}. The backend's process is the group, with pid 0. */
int hl_trace_run_group(const char *name, double seconds, struct hl_trace_target *target,
		       const struct hl_trace_command *command);

/* ---- where the result goes ---- */

/* Makes the directory of the recording ${path}, if there is to be one (NULL: there is none), so that nothing is traced in
 * vain; ${force}: it replaces one that is there. 0 or a negative errno with a sentence. */
int hl_trace_output_open(const char *path, bool force, struct hl_directory *ret_directory,
			 struct hl_error *err);

/* Removes the directory again unless ${keep}. */
void hl_trace_output_close(struct hl_directory *directory, bool keep);

/* ---- processes that are being recorded ---- */

/* Whether a collector that can be asked records ${pid}. */
bool hl_trace_recorded_has(pid_t pid);

/* Whether it can be read from its recorder: 0, with where the recording is; -ENODATA, with that and
 * a sentence, where mode 'closed' counts nothing; -EALREADY when it is a collector; another negative errno with a sentence. */
int hl_trace_recorded_check(pid_t pid, char ret_recording[PATH_MAX], struct hl_error *err);

/*
 * Reads such a process from its recorder, by snapshots, because probes would put the kernel's
 * trampoline onto the stacks that the recorder walks. Results are what each stack has gained
 * between two snapshots. It has no settings.
 */
extern const struct hl_trace_backend hl_recorded_trace;
