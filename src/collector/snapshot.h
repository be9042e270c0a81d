/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A snapshot: a copy of a recording as it stands, made while it goes on. Counters are written at
 * once, through the same code as saves; what lies in the recording's directory already (processes
 * that have ended, logs) is copied by a thread, because that may take a while.
 */
#pragma once

#include "base/error.h"
#include "collector/archive.h"
#include "collector/tracked.h"

#include <stdbool.h>

struct hl_snapshot;

/*
 * Begins a snapshot in a new directory at ${path} (see hl_directory_init for ${replace}). 0 or a
 * negative errno with a sentence; nothing is left at ${path} then.
 */
int hl_snapshot_begin(const struct hl_archive *archive, const struct hl_tracked *tracked,
		      const char *path, bool replace, struct hl_snapshot **ret_snapshot,
		      struct hl_error *err);

/* Readable (poll) when the rest has been copied. */
int hl_snapshot_fd(const struct hl_snapshot *snapshot);

/* Whether it is. */
bool hl_snapshot_is_done(const struct hl_snapshot *snapshot);

/* Waits for the rest and frees the snapshot. As hl_snapshot_begin(). */
int hl_snapshot_end(struct hl_snapshot *snapshot, struct hl_error *err);

/* Moves the snapshot at ${path}, that another user's collector has written, into ${directory},
 * where that user may not write. 0 or a negative errno with a sentence. */
int hl_snapshot_fetch(const char *path, const struct hl_directory *directory, struct hl_error *err);
