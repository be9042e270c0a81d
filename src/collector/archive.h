/* SPDX-License-Identifier: BSD-2-Clause */
/* The recording as it grows on disk: saves, and what to do when the disk does not take them. */
#pragma once

#include "base/error.h"
#include "collector/directory.h"
#include "collector/tracked.h"
#include "collector/warnings.h"
#include "recording/recording.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/utsname.h>

struct hl_collector_settings;

struct hl_archive {
	struct hl_directory directory;
	struct hl_recording meta; /* refers to the members below; owns its marks alone */
	struct utsname system;
	struct hl_warnings warnings;
	size_t mark_capacity;
	struct hl_recording_figure recorder_memory; /* of meta, once it is known */
	uint64_t start_ns;
	uint32_t ended_files;	 /* processes whose last save is in the directory */
	uint32_t revivals;	 /* how often the directory had to be made again */
	bool meta_is_stale;	 /* has what is not on disk */
	struct hl_error failure; /* the last that happened; empty when none did */
	bool is_failing;	 /* the last write failed */
	/* See struct hl_collector_settings. */
	void (*on_failure)(const void *context, const char *sentence);
	const void *on_failure_context;
};

/* settings->command must stay. A full disk is not a failure: the recording then begins when there is room. */
int hl_archive_init(struct hl_archive *archive, const char *path, bool replace,
		    const struct hl_collector_settings *settings, struct hl_error *err);
void hl_archive_release(struct hl_archive *archive);

/* The recording that is replaced is not needed any more. */
void hl_archive_keep(struct hl_archive *archive);

/* Removes all that was written, and brings back the recording that is replaced. */
void hl_archive_remove(struct hl_archive *archive);

/* Saves a process, makes the directory again if it vanished, and warns if neither helps. ${last}:
 * no event will follow. */
int hl_archive_save(struct hl_archive *archive, struct hl_tracked *tracked, bool last);

/* Saves the meta data. ${complete}: the recording ends here; waits until all is on disk. */
int hl_archive_save_meta(struct hl_archive *archive, bool complete);

/* Where the meta data are as they were: sets the time of their file, by which readers find that processes were saved. 0 or a negative errno. */
int hl_archive_touch_meta(const struct hl_archive *archive);

/* Adds what the log of process ${pid} lacks to the recording. */
void hl_archive_warn_of_log(struct hl_archive *archive, pid_t pid,
			    const struct hl_log_losses *losses);

/*
 * Notes that a process, or with ${all} the whole recording, is in ${mode} from now on. The mode
 * that a recording shows is the last that all were switched to and that counts; of one that began
 * closed the first that any process was switched to.
 */
void hl_archive_note_mode(struct hl_archive *archive, enum hl_mode mode, bool all);

/* Adds the mark ${name}, set ${ms} after the start of process ${pid}. 0, -ENOMEM, or -EAGAIN when
 * there are too many. */
int hl_archive_mark(struct hl_archive *archive, pid_t pid, uint64_t ms, const char *name);

/* Notes how much memory the recorder took in one process: the most is kept. */
void hl_archive_note_recorder(struct hl_archive *archive, int64_t bytes);

/* Says how many children ran unrecorded, and of how many of these a warning gives the reason. */
void hl_archive_set_unrecorded(struct hl_archive *archive, uint32_t children, uint32_t refused);

/* Adds a sentence to the recording. */
void hl_archive_warn(struct hl_archive *archive, const char *format, ...) HL_PRINTF(2, 3);

/* Adds it in the place of ${before}. */
void hl_archive_warn_instead(struct hl_archive *archive, const char *before, const char *sentence);
