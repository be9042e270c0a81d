/* SPDX-License-Identifier: BSD-2-Clause */
/* Where a recorded program may have a report written. */
#pragma once

#include "base/error.h"

#include <limits.h>
#include <sys/types.h>

/*
 * The absolute path that process ${pid} means by ${wanted}, which may be relative to where the
 * process is. A program that runs with other rights than ours would write with our rights, so that
 * is refused: -EPERM. 0 or a negative errno with a sentence.
 */
int hl_program_report_path(pid_t pid, const char *wanted, char ret_path[PATH_MAX],
			   struct hl_error *err);
