/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks at a program before it is started: can the recorder work in it? */
#pragma once

#include "base/error.h"

#include <stddef.h>

/*
 * Finds ${command} as execvp does: along PATH unless it has a slash. Writes the path of the file
 * that would be run. -ENOENT when there is none, -EACCES when what there is may not be run,
 * -ENAMETOOLONG.
 */
int hl_examine_find(const char *command, char *ret_path, size_t capacity, struct hl_error *err);

/*
 * Refuses, with -ENOTSUP and one sentence that says why and what to do, a program in which nothing
 * would be recorded: static, of another machine or libc, set-user-id, with a malloc of its own.
 * Scripts are followed to their interpreter. What cannot be read is let pass: the kernel will
 * judge.
 */
int hl_examine_program(const char *path, struct hl_error *err);
