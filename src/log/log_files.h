/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The files of a log in a recording's directory: segments, and files of events beside them.
 *
 *	KIND-P-YYYYMMDDTHHMMSS-NNNNNN.SUFFIX
 *
 * P is the process' sequence number, then comes when the file begins (UTC), then its number,
 * counted from 1. The oldest are deleted, so a log is what is left: the newest unbroken run.
 */
#pragma once

#include "base/error.h"
#include "log/log_place.h"
#include "log/segment_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hl_segment;

struct hl_log_file_kind {
	const char *prefix, *suffix;
	char magic[9]; /* in the header */
	uint32_t version;
	const char *name, *pronoun; /* for sentences: "log", "one" */
	const char *record_options; /* with which they are written */
	const char *reading;	    /* for the progress */
	/* Reads what is to be known of a file that was opened, see segment.h; 0 or a
	 * negative errno with a sentence. */
	int (*read)(struct hl_segment *segment, struct hl_error *err);
};

extern const struct hl_log_file_kind hl_log_segments, hl_log_event_files;

/* ---- for writers ---- */

/* Set the first five and zero the rest; release in any case. */
struct hl_log_rotation {
	const struct hl_log_file_kind *kind;
	int directory_fd;
	uint32_t process;
	uint64_t start_realtime_ns; /* of tick 0 */
	uint32_t most;		    /* files to keep, at least 1 */
	uint32_t number;	    /* of the newest */
	struct hl_log_file *kept;   /* by number */
	size_t kept_count, kept_capacity;
};

/* Creates the next file, which begins with interval ${first_interval}. Returns its descriptor or a
 * negative errno. */
int hl_log_rotation_create(struct hl_log_rotation *rotation, uint64_t first_interval);

/* Takes the newest file away again; the next one gets its number. */
void hl_log_rotation_abandon(struct hl_log_rotation *rotation);

/* Deletes the oldest files, as far as there are more than shall be kept. */
void hl_log_rotation_delete_oldest(struct hl_log_rotation *rotation);

void hl_log_rotation_release(struct hl_log_rotation *rotation);

/* The header of the newest file. */
struct hl_segment_header hl_log_rotation_header(const struct hl_log_rotation *rotation,
						uint64_t first_interval);

/* ---- for readers ---- */

/* Whether ${name} is that of a file of a log; then its kind, process, number and name are set. */
bool hl_log_files_parse(const char *name, struct hl_log_file *file);

/* What a file of ${kind} with that header is called. */
void hl_log_files_name(const struct hl_log_file_kind *kind, const struct hl_segment_header *header,
		       char name[HL_SEGMENT_NAME_MAX]);

/* What is wrong with a file's header, or NULL. */
const char *hl_log_files_check_header(const struct hl_log_file_kind *kind, uint32_t process,
				      const struct hl_segment_header *header);
