/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A packed recording: one file that holds a whole profile, names included, so that it opens where
 * none of the programs are. docs/format.md describes it.
 */
#pragma once

#include "log/log.h"
#include "profile/profile.h"
#include "recording/recording.h"

/* The logs of a recording. */
struct hl_pack_log {
	struct hl_recording *recording;
	struct hl_log_place place; /* where its logs and files of events are */
};

/*
 * Writes ${profile}, loaded with keep_rows, to the empty file at ${fd}, and the files of ${log},
 * unless NULL, with what is needed to read them; ${name} is for messages. 0 or a negative errno
 * with a sentence.
 */
int hl_pack_write(const struct hl_profile *profile, const struct hl_pack_log *log, int fd,
		  const char *name, struct hl_error *err);

/* Stands before the `source` of a profile that was packed. */
#define HL_PACK_SOURCE "packed "

/* Whether the ${size} bytes at the beginning of a file are those of a packed recording. */
bool hl_pack_detect(const uint8_t *bytes, size_t size);

/* Reads one from ${fd}; ${name} is for messages. As hl_profile_load(). */
int hl_pack_read(int fd, const char *name, const struct hl_profile_selection *selection,
		 struct hl_profile **ret_profile, struct hl_error *err);

/*
 * The logs in the packed recording at ${fd}, whose whole profile is ${profile}; ${name} is for
 * messages. Processes of the recording have neither nodes nor threads; one value holds the peak of
 * each. 0 or a negative errno with a sentence, -ENOENT where it holds no log. Release
 * in any case.
 */
int hl_pack_log_read(int fd, const char *name, const struct hl_profile *profile,
		     struct hl_pack_log *ret_log, struct hl_error *err);
void hl_pack_log_release(struct hl_pack_log *log);
