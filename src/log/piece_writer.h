/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes pieces to a segment: compressed, hashed, each whole or not at all. */
#pragma once

#include "log/byte_buffer.h"
#include "log/segment_format.h"

#include <stdbool.h>
#include <zstd.h>

/* fd -1: no segment is open. Zero the rest; release in any case. */
struct hl_piece_writer {
	int fd;
	uint64_t position; /* where the next piece goes */
	int level;	   /* of compression; 0: that of segments */
	ZSTD_CCtx *stream;
	struct hl_byte_buffer packed; /* piece header and payload */
};

/*
 * Writes ${raw} as a piece of ${kind}; ${flags} are enum hl_piece_flag. On failure, a negative
 * errno, the file is as it was, but the stream is not: the next piece must begin a frame.
 */
int hl_piece_write(struct hl_piece_writer *writer, enum hl_piece_kind kind, uint32_t flags,
		   const struct hl_byte_buffer *raw);

/* Writes ${size} bytes as they are, whole or not at all. 0 or a negative errno. */
int hl_piece_write_bytes(struct hl_piece_writer *writer, const void *bytes, size_t size);

/* Closes the file and frees all. */
/* Whether somebody has deleted the open file, with its directory, perhaps. */
bool hl_piece_writer_lost_file(const struct hl_piece_writer *writer);

void hl_piece_writer_release(struct hl_piece_writer *writer);
