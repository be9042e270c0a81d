/* SPDX-License-Identifier: BSD-2-Clause */
/* What heapline record and attach share: options of the recording, its name, what is said at the
 * end. */
#pragma once

#include "cli/cli.h"
#include "collector/collector.h"
#include "hook/attach.h"

#include <stdbool.h>
#include <sys/types.h>

/* How long a thread that is inside the recorder is waited for. */
#define HL_RECORD_LEAVE_WAIT_MS 2000

/* For the shared_options of a verb. */
extern const struct hl_option hl_record_options[]; /* --output --force --mode --sample ... */

/* What they were set to. The request of a verb with them begins with it; HL_RECORD_DEFAULTS are its defaults. */
struct hl_record_request {
	int mode; /* enum hl_mode, once it is checked */
	uint64_t sample_bytes;
	const char *max_memory;
	struct hl_budget_settings budget; /* what that says */
	bool sizes, no_scripts, no_objects;
	uint64_t log_segment_bytes, log_segments;
	bool events, lossy;
	double save_every_s;
	const char *output;
	bool force;
	bool quiet; /* only what went wrong is to be said */
};

#define HL_RECORD_LOG_SEGMENT_BYTES (UINT64_C(100) << 20)
#define HL_RECORD_LOG_SEGMENTS	    10
#define HL_RECORD_DEFAULTS                           \
	.mode = HL_MODE_MEM_FAST, .save_every_s = 1, \
	.log_segment_bytes = HL_RECORD_LOG_SEGMENT_BYTES, .log_segments = HL_RECORD_LOG_SEGMENTS

/* HL_EXIT_DONE, or the status to leave with after a usage error. */
int hl_record_check_options(const struct hl_verb *verb, struct hl_record_request *request);

/* Whether an option was given that only a recording has, but for the mode. */
bool hl_record_has_options(const struct hl_record_request *request);

/* What they ask for. ${command} must stay as long as the collector. */
struct hl_collector_settings hl_record_settings(const struct hl_record_request *request,
						char **command);

/* The recording's path: what --output says, or after ${command} and ${pid}. To be freed; NULL for
 * want of memory. */
char *hl_record_name(const struct hl_record_request *request, const char *command, pid_t pid);

/* hl_collector_begin() at ${name}, in a process that saves again and again. Says where the control group of ${pid} may be short of
 * memory for the recorder. */
int hl_record_begin(const struct hl_record_request *request, struct hl_collector *collector,
		    const char *name, pid_t pid, struct hl_error *err);

/* Who brings the recorder into children. */
struct hl_record_following {
	struct hl_collector *collector;
	struct hl_attach *attach;
};

/* Brings the recorder into a process that was opened. ${ran_before}: not from its beginning. ${following}, unless it is
 * NULL: into children that it forks from here on, too, and theirs, as long as ${collector} and ${attach} are there; the
 * caller's storage, which stays until the last hl_collector_dispatch(). Whatever fails, the process is as it was. */
int hl_record_join(struct hl_collector *collector, pid_t pid, struct hl_attach *attach,
		   bool ran_before, struct hl_record_following *following, struct hl_error *err);

/* What went wrong, and what was not seen. */
void hl_record_say_problems(const struct hl_record_request *request,
			    const struct hl_collector_summary *summary, const char *name);

/* What was recorded and where it is, unless --quiet. */
void hl_record_say_result(const struct hl_record_request *request,
			  const struct hl_collector_summary *summary, const char *name);

/* ---- a program under 'heapline record', for a verb that looks at its recording ---- */

/* Like env(1): 'heapline record' has failed, not the program. */
#define HL_RECORD_FAILED       125
#define HL_RECORD_NOT_RUNNABLE 126
#define HL_RECORD_NOT_FOUND    127

/* A folder for a recording that is not kept. 0 or a negative errno with a sentence. */
int hl_record_child_folder(char *folder, size_t size, struct hl_error *err);

/* Removes it with all that is in it; says so when it cannot. */
void hl_record_child_remove(const char *folder);

/*
 * Starts 'heapline record' of the ${count} words of ${command}, to ${path}; ${options}, NULL-terminated, are more of its options. It has the
 * streams and signals of this process. 0 or a negative errno.
 */
int hl_record_child_start(char *const *command, int count, const char *path,
			  const char *const *options, pid_t *ret_pid);

/* The status to leave with for what waitpid() said of it. */
int hl_record_child_status(int status);
