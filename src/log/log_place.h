/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The files of logs in one place: in a recording's directory, or one after another in a single
 * file, as in a packed recording. They have the same names in both.
 */
#pragma once

#include "base/error.h"
#include "log/segment_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hl_log_file {
	const struct hl_log_file_kind *kind; /* see log_files.h */
	uint32_t process;		     /* sequence */
	uint32_t number;		     /* of its kind and process, from 1 */
	char name[HL_SEGMENT_NAME_MAX];
	uint64_t offset, bytes; /* in the single file */
};

/* Zero-initialize with fd = -1; release in any case. Thread-safe for reading. */
struct hl_log_place {
	char *path;		   /* for messages */
	int fd;			   /* of the directory, or of the single file */
	struct hl_log_file *files; /* by kind, process and number */
	size_t file_count, file_capacity;
	bool is_directory;
};

#define HL_LOG_PLACE_NONE ((struct hl_log_place){.fd = -1})

/* The directory ${path} and the files that are in it now. 0 or a negative errno with a sentence. */
int hl_log_place_open_directory(struct hl_log_place *place, const char *path, struct hl_error *err);

/* The file at ${fd}, of which a duplicate is kept; ${path} is for messages. No file of a log is in
 * it until they are added. 0 or a negative errno. */
int hl_log_place_open_file(struct hl_log_place *place, int fd, const char *path);

/* Adds the ${bytes} at ${offset} of the single file as the file ${name}, unless that is no name of
 * a file of a log. 0 or -ENOMEM. */
int hl_log_place_add(struct hl_log_place *place, const char *name, uint64_t offset, uint64_t bytes);

/* Puts added files in order. */
void hl_log_place_sort(struct hl_log_place *place);

void hl_log_place_release(struct hl_log_place *place);

/* The files of ${kind} and ${process} in ${place}, *${ret_count} in a row. */
const struct hl_log_file *hl_log_place_find(const struct hl_log_place *place,
					    const struct hl_log_file_kind *kind, uint32_t process,
					    size_t *ret_count);

/* A part of a file that is open. */
struct hl_log_extent {
	int fd; /* the caller's to close */
	uint64_t offset, bytes;
};

/* Opens ${file} of ${place}. 0 or a negative errno: -EBADMSG where it is not a regular file. */
int hl_log_place_open(const struct hl_log_place *place, const struct hl_log_file *file,
		      struct hl_log_extent *ret_extent);
