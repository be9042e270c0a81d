/* SPDX-License-Identifier: BSD-2-Clause */
/* The source files that heapline annotate shows. */
#pragma once

#include "profile/calltree.h"
#include "view/table.h"
#include "view/view.h"

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* A source file, found by the path that debug information has of it, and its lines. */
struct hl_source {
	char *path; /* where it was found */
	time_t changed;
	char *text;   /* NUL bytes instead of newlines */
	char **lines; /* into text */
	size_t count;
};

/*
 * Reads the file that was compiled as ${recorded}: from below ${folder}, unless that is NULL, the
 * longest end of the path that is there; else from ${recorded} itself. 0, -ENOMEM, or why it
 * cannot be read: -ENOENT, -EFBIG beyond 64 MiB, -EINVAL for what is not a file.
 */
int hl_source_read(struct hl_source *source, const char *recorded, const char *folder);

void hl_source_release(struct hl_source *source); /* a zero-initialized one is fine */

/* Line ${number}, from 1 on; NULL when there is none. */
const char *hl_source_line(const struct hl_source *source, uint32_t number);
