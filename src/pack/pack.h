/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A packed recording: one file that holds a whole profile, names included, so that it opens where
 * none of the programs are. docs/format.md describes it.
 */
#pragma once

#include "profile/profile.h"

/* Writes ${profile}, loaded with keep_rows, to the empty file at ${fd}; ${name} is for messages. 0
 * or a negative errno with a sentence. */
int hl_pack_write(const struct hl_profile *profile, int fd, const char *name, struct hl_error *err);

/* Whether the ${size} bytes at the beginning of a file are those of a packed recording. */
bool hl_pack_detect(const uint8_t *bytes, size_t size);

/* Reads one from ${fd}; ${name} is for messages. As hl_profile_load(). */
int hl_pack_read(int fd, const char *name, const struct hl_profile_selection *selection,
		 struct hl_profile **ret_profile, struct hl_error *err);
