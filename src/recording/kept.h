/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Column sections of a file that is written again and again: what is the same as in the last one is neither
 * compressed nor, where the caller says so, even read again.
 *
 *   piece   HL_KEPT_ROWS rows of one column, stored as a zstd frame of its own
 */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct hl_columns;
struct hl_container_writer;

#define HL_KEPT_ROWS 512u

struct hl_kept_piece {
	uint64_t hash; /* of what is compressed */
	uint32_t raw_bytes, stored_bytes;
	uint8_t *stored; /* NULL: nothing is kept */
};

/* What a section was at the last time. Zero-initialize. */
struct hl_kept_columns {
	struct hl_kept_piece *pieces; /* those of the first rows, of all columns; then the next */
	size_t piece_count;
	size_t capacity;
};

/*
 * Adds a section of ${type} with ${rows} rows, and keeps it. ${structs} begins with row ${first}, a multiple of
 * HL_KEPT_ROWS: rows before it are as they were at the last time, when there were as many of them. 0 or a negative errno with a
 * sentence, after which ${kept} is to be released.
 */
int hl_kept_columns_write(struct hl_kept_columns *kept, const struct hl_columns *columns,
			  struct hl_container_writer *writer, uint32_t type, const void *structs,
			  size_t first, size_t rows, struct hl_error *err);

void hl_kept_columns_release(struct hl_kept_columns *kept);

/* What is kept of a process' file. Zero-initialize. */
struct hl_recording_kept {
	struct hl_kept_columns nodes, values;
};
