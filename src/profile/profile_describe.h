/* SPDX-License-Identifier: BSD-2-Clause */
/* The part of loading a recording that concerns its meta data. */
#pragma once

#include "profile/profile.h"
#include "recording/recording.h"

/* Fills the members of ${profile} that say where it comes from. 0 or -ENOMEM. */
int hl_profile_describe_recording(struct hl_profile *profile, const struct hl_recording *recording);

/* All of ${ret_described} but its thread count and total; texts go to ${profile}. 0 or -ENOMEM. */
int hl_profile_describe_process(struct hl_profile *profile,
				const struct hl_recording_process *process,
				struct hl_profile_process *ret_described);
