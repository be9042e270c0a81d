/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the writers of segments and of files of events share: pieces, compressed and hashed, each
 * written whole or not at all; and, in them, the definitions of nodes and modules before they are
 * used, and checkpoints. Each checkpoint begins a new round of definitions, so that reading can
 * begin there.
 */
#pragma once

#include "log/byte_buffer.h"
#include "log/intervals.h"
#include "log/log_files.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zstd.h>

/* ---- pieces ---- */

/* fd -1: no file is open. Zero the rest; release in any case. */
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
int hl_piece_writer_write(struct hl_piece_writer *writer, enum hl_piece_kind kind, uint32_t flags,
			  const struct hl_byte_buffer *raw);

/* Writes ${size} bytes as they are, whole or not at all. 0 or a negative errno. */
int hl_piece_writer_write_bytes(struct hl_piece_writer *writer, const void *bytes, size_t size);

/* Whether somebody has deleted the open file, with its directory, perhaps. */
bool hl_piece_writer_lost_file(const struct hl_piece_writer *writer);

/* Closes the file, if one is open, and keeps the stream. */
void hl_piece_writer_close(struct hl_piece_writer *writer);

/* Closes the file and frees all. */
void hl_piece_writer_release(struct hl_piece_writer *writer);

/* ---- states ---- */

/* What a node holds. */
struct hl_state_node {
	int64_t bytes, objects;
	uint32_t defined_in; /* round of definitions */
};

/* What a node stands for. */
struct hl_state_definition {
	uint64_t frame;
	uint32_t node, parent;
};

/* Set names and zero the rest; release in any case. */
struct hl_state_writer {
	const struct hl_log_names *names; /* see log_writer.h */
	struct hl_state_node *nodes;	  /* the owner keeps bytes and objects */
	size_t node_capacity;
	uint32_t node_count;			 /* largest id + 1 */
	uint32_t module_count;			 /* written since the last checkpoint */
	uint32_t round;				 /* of definitions */
	struct hl_state_definition *definitions; /* to be written */
	size_t definition_count, definition_capacity;
	uint32_t *site_rounds; /* by place in a script: the round that it was defined in */
	size_t site_round_capacity;
	uint32_t *sites; /* to be written */
	size_t site_count, site_capacity;
};

/* Defines the node and its ancestors, unless that has been done since the last checkpoint: the next
 * hl_state_writer_put_names() writes it. 0 or -ENOMEM. */
int hl_state_writer_define(struct hl_state_writer *writer, uint32_t node);

/* Writes modules and nodes that are new since the last piece. Out of memory, the buffer fails. */
void hl_state_writer_put_names(struct hl_state_writer *writer, struct hl_byte_buffer *buffer);

/* Writes the whole state before interval ${next}; ${missing} intervals before it, or in files of
 * events ${missing} events, could not be written. 0 or -ENOMEM. */
int hl_state_writer_put_checkpoint(struct hl_state_writer *writer, struct hl_byte_buffer *buffer,
				   uint64_t next, uint64_t missing);

void hl_state_writer_release(struct hl_state_writer *writer);
