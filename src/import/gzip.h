/* SPDX-License-Identifier: BSD-2-Clause */
/* Compressed streams as gzip writes and reads them (RFC 1952). */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <zlib.h>

/* Whether ${bytes} begin as a gzip file does. */
bool hl_gzip_detect(const uint8_t *bytes, size_t size);

/*
 * Inflates ${bytes}, of one or several members, into ${ret_inflated}, to be freed, with a NUL byte
 * after. 0; -ENOMEM; -EBADMSG with a sentence that names ${name} when they are damaged or cut off,
 * or -EFBIG when they inflate to more than ${size_max}.
 */
int hl_gzip_inflate(const uint8_t *bytes, size_t size, const char *name, size_t size_max,
		    uint8_t **ret_inflated, size_t *ret_inflated_size, struct hl_error *err);

/* Deflates appended bytes and writes them to a FILE; equal input gives equal bytes. */
struct hl_gzip_writer {
	FILE *out;
	z_stream stream;
	bool failed;
	size_t pending_size;
	uint8_t pending[65536]; /* not deflated yet: zlib is slow with morsels */
	uint8_t deflated[65536];
};

/* Begins a gzip file on ${out}. 0 or -ENOMEM. Release after success alone. */
int hl_gzip_writer_init(struct hl_gzip_writer *writer, FILE *out);

/* Errors of ${out} stay there, where ferror() finds them. */
void hl_gzip_writer_append(struct hl_gzip_writer *writer, const uint8_t *bytes, size_t size);

/* Writes what is left, and the end of the file. 0, or -EIO when anything could not be written. */
int hl_gzip_writer_finish(struct hl_gzip_writer *writer);

void hl_gzip_writer_release(struct hl_gzip_writer *writer);
