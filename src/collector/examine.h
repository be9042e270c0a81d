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

/*
 * The function of a known allocator under a name of its own, mi_malloc for one, that the file at
 * ${path} brings in itself, so that no library can take its place: a constant; NULL when there is
 * none, or no symbol table says so.
 */
const char *hl_examine_allocator(const char *path);
