/* SPDX-License-Identifier: BSD-2-Clause */
/* What of each stack's blocks is in RAM, added to a recording of processes that run. */
#pragma once

#include "profile/profile.h"

/* Reads the processes of ${recording} that have not ended and fills their resident members. One that
 * has ended meanwhile is left out. 0 or a negative errno with a sentence. */
int hl_resident_fill(struct hl_recording *recording, struct hl_error *err);

/* Reads them for the snapshot in directory ${path}, and writes what it found there. As above; the
 * snapshot is whole in any case. */
int hl_resident_fill_snapshot(const char *path, struct hl_error *err);

/* For hl_profile_selection.filler: fills recordings that go on. */
extern struct hl_recording_filler hl_resident_filler;
