/* SPDX-License-Identifier: BSD-2-Clause */
/* What heapline stacks, pgfault and page-events share: the target, how long, and what is made of
 * the result. */
#pragma once

#include "bpf/trace.h"
#include "cli/cli.h"
#include "collector/directory.h"
#include "profile/filter.h"
#include "recording/recording.h"
#include "view/view.h"

#include <limits.h>

/* For the shared_options of a verb. */
extern const struct hl_option hl_trace_options[]; /* --pid --output --force --folded ... */

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
 * Traces the process that --pid names for as long as the operand says, or until Ctrl-C or the
 * target's end, and writes what --folded, --json or --output ask for. Returns the exit status; what
 * went wrong was reported.
 */
int hl_trace_run(const struct hl_verb *verb, int argc, char **argv,
		 const struct hl_trace_command *command);

/* ---- where the result goes: a recording, folded lines, JSON, or text for people ---- */

struct hl_trace_output {
	const char *path; /* of the recording; NULL: none is kept */
	bool force;	  /* replace a recording that is there */
	bool folded;
	bool repeated; /* one of several: text has a short head, JSON is one line */
	uint64_t row_limit;
	enum hl_view_key by;	 /* line or function */
	struct hl_filter filter; /* of what is shown */
};

/* Makes the directory of the recording, if there is to be one, so that nothing is traced in vain.
 * 0 or a negative errno with a sentence. */
int hl_trace_output_open(const struct hl_trace_output *output, struct hl_directory *ret_directory,
			 struct hl_error *err);

/*
 * Keeps ${recording} in ${directory} if that is open; writes text, folded lines or JSON to standard
 * output if they were asked for, or no recording is kept. 0 or a negative errno with a sentence.
 */
int hl_trace_output_write(const struct hl_trace_output *output,
			  const struct hl_directory *directory, struct hl_recording *recording,
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
