/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What running processes say of the blocks that a recording counts: how much of each stack is in RAM, which
 * types they have, and how many collections they have outlived, as far as a guest knows. Both become
 * labels of the blocks that are in use.
 */
#pragma once

#include "profile/profile.h"

#include <sys/types.h>

#define HL_LIVE_LABELS_MAX 8u

struct hl_block_owners;

struct hl_inuse_labels;

/* For hl_profile_selection.filler: adds what is in RAM, types, and ages of blocks to recordings that go on, as far as they are
 * wanted, and names of services. Valid until the next call. */
struct hl_recording_filler *hl_live_filler(bool wants_pages, bool wants_types, bool wants_ages);

/* Reads the processes of the snapshot in directory ${path}, and writes what it found there. 0 or a
 * negative errno with a sentence; the snapshot is whole in any case. */
int hl_live_fill_snapshot(const char *path, struct hl_error *err);

/* Labels of the blocks that a process has in use. Zero-initialize. */
struct hl_live_labels {
	struct hl_block_owners *owners;
	struct {
		const char *what; /* they say: "the types of ..." */
		struct hl_inuse_labels *labels;
	} of[HL_LIVE_LABELS_MAX];
	size_t count;
};

/* Reads what guests know of process ${pid}, as long as its recorder is there: none where they know nothing. */
void hl_live_labels_read(pid_t pid, struct hl_live_labels *labels);

void hl_live_labels_release(struct hl_live_labels *labels);

/* Adds ${labels}, read from process ${pid} before its recorder left, to its recording in directory ${path}. As above. */
int hl_live_fill_labels(const char *path, pid_t pid, const struct hl_inuse_labels *labels,
			struct hl_error *err);

/* Names services of process ${pid}, which still runs, that its recording in directory ${path} knows by their handles
 * alone. As above. */
int hl_live_fill_services(const char *path, pid_t pid, struct hl_error *err);
