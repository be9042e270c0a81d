/* SPDX-License-Identifier: BSD-2-Clause */
/* The directory NAME.hl/ that is being written: made, replaced, made again when it vanished. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct hl_directory {
	char *path;
	int fd;
	bool has_older; /* the recording that is replaced can still be brought back */
};

/*
 * Makes the directory. An existing one is refused, but for ${replace}: then one that is empty or
 * holds nothing but a recording is replaced: its files are set aside in the directory until
 * hl_directory_keep(). Anything else is never touched. Nobody else can make or
 * replace the directory before it is released, or the process has ended.
 */
int hl_directory_init(struct hl_directory *directory, const char *path, bool replace,
		      struct hl_error *err);

/* Whether ${name} is one that a recording's directory can hold, or what an interrupted write leaves
 * there. */
bool hl_directory_is_file(const char *name);

/* Copies the first ${bytes} of ${from_fd}, or as many as there are, to where ${to_fd} is. 0 or a negative errno. */
int hl_directory_copy_bytes(int from_fd, int to_fd, uint64_t bytes);

/* Makes the directory again if it has been removed. 1 when it was, 0 when it is there, or a
 * negative errno. */
int hl_directory_revive(struct hl_directory *directory);

/* Waits until the recording's files are on disk. A file that cannot be synced is left to the
 * system. */
void hl_directory_sync(const struct hl_directory *directory);

/* The recording has begun for good: the one that it replaces is removed. */
void hl_directory_keep(struct hl_directory *directory);

/* For a recording that never began: removes its files, and brings back the one that it replaces or
 * else removes the directory. */
void hl_directory_remove(struct hl_directory *directory);

/* Keeps the recording. */
void hl_directory_release(struct hl_directory *directory);
