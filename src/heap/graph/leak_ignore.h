/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files of suppressions, in the format of LeakSanitizer: a line `leak:PATTERN` each, where PATTERN is
 * a part of a name, '*' stands for any letters, and '^' and '$' at its ends for the ends of the name.
 * Empty lines and those that begin with '#' say nothing.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Zero-initialize for an empty one. */
struct hl_leak_ignore {
	char **patterns;
	size_t count, capacity;
};

/* Appends the patterns of ${path}. 0 or a negative errno with a sentence: -EBADMSG names the line
 * that makes no sense. */
int hl_leak_ignore_read(struct hl_leak_ignore *ignore, const char *path, struct hl_error *err);

/* Whether a pattern matches ${name}. */
bool hl_leak_ignore_matches(const struct hl_leak_ignore *ignore, const char *name);

void hl_leak_ignore_release(struct hl_leak_ignore *ignore);
