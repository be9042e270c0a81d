/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes the log of one process as segments of pieces; docs/format.md describes them. */
#pragma once

#include "log/log.h"
#include "log/segment.h"
#include "region/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zstd.h>

/* ---- log writer ---- */

/*
 * Writes the log of one process as segments: files that are read alone, of which the oldest are
 * deleted. docs/format.md describes them. Intervals that cannot be written are missing, but their
 * changes are not: the next interval that can be written follows a checkpoint of the whole state.
 */

/* Where the writer learns of nodes and modules; implemented over the region by the collector. */
struct hl_log_names {
	/* The node's frame key and parent (0: the root); false when there is no such node. */
	bool (*node)(const struct hl_log_names *names, uint32_t node, uint64_t *ret_frame,
		     uint32_t *ret_parent);
	uint32_t (*module_count)(const struct hl_log_names *names);
	/* Module number 1 .. module_count(); texts are valid until the next call. */
	bool (*module)(const struct hl_log_names *names, uint32_t module,
		       struct hl_log_module *ret_module);
	/* The providers of script frames, in rising order of index, and place ${site} in a script, from 1; false when there is none.
	 * Texts are valid until the next call. NULL: there are no scripts. */
	bool (*provider)(const struct hl_log_names *names, uint32_t index,
			 struct hl_region_provider *ret_provider);
	bool (*site)(const struct hl_log_names *names, uint32_t site, struct hl_log_site *ret_site);
};

struct hl_log_settings {
	int directory_fd;	    /* the recording's; stays the caller's */
	uint32_t process;	    /* sequence number */
	uint64_t start_realtime_ns; /* of tick 0 */
	uint64_t segment_bytes;	    /* a segment ends when it is larger */
	uint32_t segments_kept;	    /* at least 1 */
	const struct hl_log_names *names;
};

struct hl_log_writer;

/* Nothing is written yet: the first segment begins with the first interval. 0 or -ENOMEM. */
int hl_log_writer_new(const struct hl_log_settings *settings, struct hl_log_writer **ret_writer);

/*
 * Writes ${interval}, with ${rss_bytes} beside it and ${lost_events} so far; one in which nothing
 * happened is not written. A negative errno says that it could not be written (disk full, ...) and
 * is missing.
 */
int hl_log_writer_interval(struct hl_log_writer *writer, const struct hl_log_interval *interval,
			   uint64_t rss_bytes, uint64_t lost_events);

/* What the log says is in use at ${node} after the last interval, written or missing. */
void hl_log_writer_in_use(const struct hl_log_writer *writer, uint32_t node, int64_t *ret_bytes,
			  int64_t *ret_objects);

/* Notes ${text} at ${tick}. 0 or a negative errno. */
int hl_log_writer_mark(struct hl_log_writer *writer, uint64_t tick, const char *text);

/* From now on ${kept} segments are kept; older ones are deleted at once. */
void hl_log_writer_keep(struct hl_log_writer *writer, uint32_t kept);

/* How many segments are kept. */
uint32_t hl_log_writer_kept(const struct hl_log_writer *writer);

/* Intervals that are missing so far. */
uint64_t hl_log_writer_missing(const struct hl_log_writer *writer);

/* Ends the last segment with its index and frees the writer. A negative errno when that could not
 * be written: the segment is readable all the same. NULL is fine. */
int hl_log_writer_finish(struct hl_log_writer *writer);

/* ---- piece writer ---- */

/*
 * What the writers of segments and of files of events share: pieces, compressed and hashed, each
 * written whole or not at all; and, in them, the definitions of nodes and modules before they are
 * used, and checkpoints. Each checkpoint begins a new round of definitions, so that reading can
 * begin there.
 */

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
