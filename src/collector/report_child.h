/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A report that a program asks for while it is recorded, as heapline itself writes it: by another process, since to
 * find the names of lines takes a while, memory, and reading files that may be damaged.
 */
#pragma once

#include "collector/control_actions.h"

#include <limits.h>

/*
 * The absolute path that process ${pid} means by ${wanted}, which may be relative to where the
 * process is. A program that runs with other rights than ours would write with our rights, so that
 * is refused: -EPERM. 0 or a negative errno with a sentence.
 */
int hl_program_report_path(pid_t pid, const char *wanted, char ret_path[PATH_MAX],
			   struct hl_error *err);

struct hl_report_child;

/* Saves the process of a checked request, LINES, TIMES or LEAKS, and begins the report; that of LEAKS is a recording, see
 * recording/recording_files.h. 0 or a negative errno with a sentence. */
int hl_report_child_begin(const struct hl_control_subject *subject,
			  const struct hl_control_request *request,
			  struct hl_report_child **ret_child, struct hl_error *err);

/* Readable (poll) when the report is done. */
int hl_report_child_fd(const struct hl_report_child *child);

/* Ends it when it has taken too long; for every now and then. */
void hl_report_child_check(struct hl_report_child *child, uint64_t now_ns);

/* Whether it looks for lost blocks, which nobody asked for at a terminal. */
bool hl_report_child_is_of_leaks(const struct hl_report_child *child);

/* Of a report that is done: its text, which the caller frees. 0, or a negative errno with the sentence that heapline
 * gave. */
int hl_report_child_end(const struct hl_report_child *child, char **ret_text, struct hl_error *err);

/* Ends one that is not done. NULL is fine. */
void hl_report_child_free(struct hl_report_child *child);
