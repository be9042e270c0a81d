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

/* After hl_options_parse(): HL_EXIT_DONE, or the status to leave with after a usage error. */
int hl_record_check_options(const struct hl_verb *verb);

/* Whether an option was given that only a recording has, but for the mode. */
bool hl_record_has_options(void);

/* Whether only what went wrong is to be said. */
bool hl_record_is_quiet(void);

/* What the options ask for. ${command} must stay as long as the collector. */
struct hl_collector_settings hl_record_settings(char **command);

/* The recording's path: what --output says, or after ${command} and ${pid}. To be freed; NULL for
 * want of memory. */
char *hl_record_name(const char *command, pid_t pid);

/* hl_collector_begin() at ${name}, in a process that saves again and again. Says where the control group of ${pid} may be short of
 * memory for the recorder. */
int hl_record_begin(struct hl_collector *collector, const char *name, pid_t pid,
		    struct hl_error *err);

/* Brings the recorder into a process that was opened. ${ran_before}: not from its beginning. ${follows}: into
 * children that it forks from here on, too, and theirs, as long as ${collector} and ${attach} are there, the only ones
 * in this program. Whatever fails, the process is as it was. */
int hl_record_join(struct hl_collector *collector, pid_t pid, struct hl_attach *attach,
		   bool ran_before, bool follows, struct hl_error *err);

/* What went wrong, and what was not seen. */
void hl_record_say_problems(const struct hl_collector_summary *summary, const char *name);

/* What was recorded and where it is, unless --quiet. */
void hl_record_say_result(const struct hl_collector_summary *summary, const char *name);
