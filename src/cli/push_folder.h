/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The folder with the recording of `heapline push -- COMMAND`. It is locked while that push lives, so that the next push to the same place
 * finds what one that was killed left there.
 */
#pragma once

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define HL_PUSH_RECORDING "push.hl" /* its name in the folder */

/* To whom a recording goes, and what it is called there. */
struct hl_push_folder {
	char path[PATH_MAX];
	char spool[PATH_MAX];	/* of the place */
	char service[PATH_MAX]; /* as given; "": not */
	char version[PATH_MAX];
	int fd; /* holds the lock; to be closed */
};

/* Makes the folder for what ${folder} says of place and labels, and sets its path and fd. 0 or a negative errno with a sentence. */
int hl_push_folder_make(struct hl_push_folder *folder, struct hl_error *err);

/* Is shown a folder for the place that was asked for, locked; what returns true has it removed. */
typedef bool hl_push_folder_visit(void *context, const struct hl_push_folder *folder);

/* Shows ${visit} all folders of this user for ${spool} whose push was killed and whose recording has ended. */
void hl_push_folder_find(const char *spool, hl_push_folder_visit *visit, void *context);
