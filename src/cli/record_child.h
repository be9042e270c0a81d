/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs a program under 'heapline record' for a verb that looks at its recording. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Like env(1): 'heapline record' has failed, not the program. */
#define HL_RECORD_FAILED    125
#define HL_RECORD_NOT_FOUND 127

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
