/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where files of logs lie: in a recording's directory, or one after another in a single file, as in
 * a packed recording. Their names are the same in both.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hl_log_place_file {
	char *name;
	uint64_t offset, bytes; /* in the single file */
};

/* Zero-initialize with fd = -1; release in any case. Thread-safe for reading. */
struct hl_log_place {
	char *path; /* for messages */
	int fd;	    /* of the directory, or of the single file */
	struct hl_log_place_file *files;
	size_t file_count, file_capacity;
	bool is_directory;
};

#define HL_LOG_PLACE_NONE ((struct hl_log_place){.fd = -1})

/* The directory ${path}. 0 or a negative errno with a sentence. */
int hl_log_place_open_directory(struct hl_log_place *place, const char *path, struct hl_error *err);

/* The file at ${fd}, of which a duplicate is kept; ${path} is for messages. No file of a log is in
 * it until they are added. 0 or a negative errno. */
int hl_log_place_open_file(struct hl_log_place *place, int fd, const char *path);

/* Adds the ${bytes} at ${offset} of the single file as the file ${name}. 0 or -ENOMEM. */
int hl_log_place_add(struct hl_log_place *place, const char *name, uint64_t offset, uint64_t bytes);

void hl_log_place_release(struct hl_log_place *place);

/*
 * Calls ${take} with the name of each file, in no order, those of other kinds included, until it
 * returns non-zero, which is returned. 0 or a negative errno.
 */
int hl_log_place_each(const struct hl_log_place *place,
		      int (*take)(void *context, const char *name), void *context);

/* A part of a file that is open. */
struct hl_log_extent {
	int fd; /* the caller's to close */
	uint64_t offset, bytes;
};

/* Opens the file ${name}. 0 or a negative errno: -EBADMSG where it is not a regular file. */
int hl_log_place_open(const struct hl_log_place *place, const char *name,
		      struct hl_log_extent *ret_extent);
