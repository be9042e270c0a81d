/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads files of /proc/PID. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <sys/types.h>

/*
 * Reads /proc/PID/${file} into ${text}, cut at ${capacity} - 1 bytes, with a NUL after. The
 * length, or a negative errno: -ESRCH when there is no such process (or it ended while being read),
 * -EACCES when it may not be read.
 */
ssize_t hl_proc_read(pid_t pid, const char *file, char *text, size_t capacity);

/* The same for a file of any length, into memory that the caller frees. */
int hl_proc_read_all(pid_t pid, const char *file, char **ret_text, size_t *ret_length);

/* What helps where a process may not be read. */
const char *hl_proc_access_remedy(void);

/* Sets the sentence for ${code}, a negative errno met when ${what} ("the mappings") of ${pid} was
 * to be read, and returns it. */
int hl_proc_error(pid_t pid, int code, const char *what, struct hl_error *err);
