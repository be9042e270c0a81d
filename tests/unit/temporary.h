/* SPDX-License-Identifier: BSD-2-Clause */
/* Directories that tests make for themselves. */
#pragma once

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEMPORARY_MAX 26 /* bytes of the path */

/* Makes one and writes where to ${ret_path}. 0 or -1. */
static inline int make_temporary(char ret_path[TEMPORARY_MAX])
{
	strcpy(ret_path, "/tmp/heapline-test-XXXXXX");
	return mkdtemp(ret_path) ? 0 : -1;
}

/* Removes ${path} and all that is in it. 0 where it could. */
static inline int remove_temporary(const char *path)
{
	char command[PATH_MAX + 16];

	snprintf(command, sizeof(command), "rm -rf '%s'", path);
	return system(command);
}
