/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads files of pieces, segments and files of events: what is in them, and their pieces from any
 * checkpoint on. Trusts nothing.
 */
#pragma once

#include "base/encode.h"
#include "base/error.h"
#include "log/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zstd.h>

/* ---- buffers that fields are appended to, and readers that take fields out of bytes ---- */

/* Zero-initialize. A failed allocation is remembered, and nothing is added from then on. */
struct hl_byte_buffer {
	uint8_t *bytes;
	size_t size, capacity;
	bool failed;
};

/* Room for ${more} bytes after the last; NULL when there is none. */
uint8_t *hl_byte_buffer_reserve(struct hl_byte_buffer *buffer, size_t more);

void hl_byte_buffer_put(struct hl_byte_buffer *buffer, const void *bytes, size_t size);
void hl_byte_buffer_release(struct hl_byte_buffer *buffer);

/* Forgets the content and the failure, and keeps the memory. */
static inline void hl_byte_buffer_clear(struct hl_byte_buffer *buffer)
{
	buffer->size = 0;
	buffer->failed = false;
}

static inline void hl_byte_buffer_number(struct hl_byte_buffer *buffer, uint64_t number)
{
	uint8_t *bytes = hl_byte_buffer_reserve(buffer, HL_VARINT_MAX);

	if (bytes)
		buffer->size += hl_varint_put(bytes, number);
}

static inline void hl_byte_buffer_signed(struct hl_byte_buffer *buffer, int64_t number)
{
	hl_byte_buffer_number(buffer, hl_zigzag(number));
}

/* The first field that is missing sets `failed`; it and all later ones are 0. */
struct hl_byte_reader {
	const uint8_t *at, *end;
	bool failed;
};

static inline uint64_t hl_byte_reader_number(struct hl_byte_reader *reader)
{
	uint64_t number = 0;

	if (!reader->failed && !hl_varint_get(&reader->at, reader->end, &number))
		reader->failed = true;
	return reader->failed ? 0 : number;
}

static inline int64_t hl_byte_reader_signed(struct hl_byte_reader *reader)
{
	return hl_unzigzag(hl_byte_reader_number(reader));
}

/* ${size} bytes as they stand, or NULL. */
static inline const uint8_t *hl_byte_reader_bytes(struct hl_byte_reader *reader, uint64_t size)
{
	const uint8_t *bytes = reader->at;

	if (reader->failed || size > (uint64_t)(reader->end - reader->at)) {
		reader->failed = true;
		return NULL;
	}
	reader->at += size;
	return bytes;
}

/* ---- segment ---- */

struct hl_event_part;

/* ---- the index: timeline, marks, and where reading can begin ---- */

struct hl_segment_checkpoint {
	uint64_t next_interval; /* the first whose changes follow it */
	uint64_t offset;	/* of its piece */
};

/* Zero-initialize; release in any case. Points are those that were written. */
struct hl_segment_index {
	struct hl_log_point *points;
	size_t point_count, point_capacity;
	struct hl_segment_checkpoint *checkpoints;
	size_t checkpoint_count, checkpoint_capacity;
	struct hl_log_mark *marks; /* the index owns their texts */
	size_t mark_count, mark_capacity;
	uint64_t lost_events;	/* at the segment's end */
	uint64_t missing_count; /* intervals, at its end */
};

/* Each returns 0, or -ENOMEM with the index unchanged. */
int hl_segment_index_add_point(struct hl_segment_index *index, const struct hl_log_point *point);
int hl_segment_index_add_checkpoint(struct hl_segment_index *index, uint64_t next_interval,
				    uint64_t offset);
int hl_segment_index_add_mark(struct hl_segment_index *index, uint64_t tick, const char *text,
			      size_t length);

void hl_segment_index_write(const struct hl_segment_index *index, struct hl_byte_buffer *buffer);

/* Empties it and keeps the memory. */
void hl_segment_index_clear(struct hl_segment_index *index);
void hl_segment_index_release(struct hl_segment_index *index);

/* ---- reading ---- */

struct hl_segment {
	char *path; /* for messages */
	int fd;
	uint64_t offset; /* of its first byte in the file at fd */
	uint64_t size;
	struct hl_segment_header header;
	struct hl_segment_index index; /* as written, or as found by walking the pieces */
	bool cut_off;		       /* had no index, or no end */
	uint64_t missing_before; /* intervals, before the first; known where there was no index */

	/* Of a file of events: */
	struct hl_event_part *parts;
	size_t part_count, part_capacity;
	uint64_t missing_events; /* at its end */
	bool torn;		 /* bytes after the last whole piece are not usable */
	bool damaged;		 /* it has no end, and not because its writer was interrupted */
	bool unwritten;		 /* it ends in zeros, as the system went down with its writer */
};

void hl_segment_release(struct hl_segment *segment);

/* Find the index of an open segment, or the parts of an open file of events. 0 or a negative errno with a
 * sentence: -EBADMSG where it is damaged, -ENODATA where it was cut off before its first checkpoint. */
int hl_segment_read_index(struct hl_segment *segment, struct hl_error *err);
int hl_event_log_find_parts(struct hl_segment *segment, struct hl_error *err);

/*
 * Looks at what lies from ${offset} on, which is the last whole piece, or what follows it, and sets
 * `damaged` and `unwritten`. A writer that was interrupted leaves whole pieces and the beginning of
 * one. 0, -ENOMEM, or that of reading the file.
 */
int hl_segment_look_for_damage(struct hl_segment *segment, uint64_t offset);

/* A file that was opened, or why it cannot be used. */
struct hl_segment_found {
	struct hl_segment segment;
	int result;
	struct hl_error err;
};

/* The newest run of files, by numbers without a gap. Zero-initialize, release in any case. */
struct hl_segment_run {
	struct hl_segment_found *files;
	size_t count;
	uint32_t ignored_count; /* files before it */
	uint32_t foreign_count; /* files of another recording, which are not looked at */
	char foreign_name[HL_SEGMENT_NAME_MAX]; /* of the first of them */
};

/*
 * Opens the files of ${kind} and ${process} in ${place}, several at once. Those that do not begin
 * at options->start_realtime_ns, if that is known, are foreign. 0, -ENOMEM, or a negative errno
 * with a sentence: -ENOENT where there is no file, -EBADMSG where all are foreign.
 */
int hl_segment_run_open(struct hl_segment_run *run, const struct hl_log_place *place,
			const struct hl_log_file_kind *kind, uint32_t process,
			const struct hl_log_options *options, struct hl_error *err);
void hl_segment_run_release(struct hl_segment_run *run);

/* A place in a segment. Release in any case. */
struct hl_segment_cursor {
	const struct hl_segment *segment;
	uint64_t offset; /* of the next piece */
	ZSTD_DCtx *stream;
	bool in_frame;
	uint8_t *window; /* bytes of the file from window_offset on */
	uint64_t window_offset;
	size_t window_size, window_capacity;
	struct hl_byte_buffer raw; /* of the last piece */
};

/* Begins at ${offset}, where a piece with HL_PIECE_FRAME lies. */
void hl_segment_cursor_init(struct hl_segment_cursor *cursor, const struct hl_segment *segment,
			    uint64_t offset);
void hl_segment_cursor_release(struct hl_segment_cursor *cursor);

/*
 * The next piece: its kind, and its content, valid until the next call. 1; 0 after the last whole
 * piece; or a negative errno: -ENOMEM, or that of reading the file.
 */
int hl_segment_next(struct hl_segment_cursor *cursor, uint32_t *ret_kind,
		    struct hl_byte_reader *ret_content);

/* Reads the modules and definitions at the beginning of ${content}, and adds them to ${state}. 0,
 * -ENOMEM or -EBADMSG. */
int hl_log_state_read_names(struct hl_byte_reader *content, struct hl_log_state *state);

/* What a checkpoint says beside the state. */
struct hl_segment_checkpoint_head {
	uint64_t next_interval, missing_count;
};

/* Puts the state of a checkpoint in the place of ${state}'s. 0, -ENOMEM or -EBADMSG. */
int hl_log_state_read_checkpoint(struct hl_byte_reader *content, struct hl_log_state *state,
				 struct hl_segment_checkpoint_head *ret_head);

/* An interval as it was written; the changes are the struct's own. Zero-initialize. */
struct hl_segment_interval {
	struct hl_log_interval interval;
	uint64_t rss_bytes, lost_events;
	struct hl_log_change *changes;
	size_t change_capacity;
};

/* Reads an interval, and adds what it names to ${state}. 0, -ENOMEM or -EBADMSG. */
int hl_log_state_read_interval(struct hl_byte_reader *content, struct hl_log_state *state,
			       struct hl_segment_interval *interval);

/* An empty state. */
int hl_log_state_new(struct hl_log_state **ret_state);

/* ---- several files at once ---- */

/* Does part ${index} of the work. After a non-zero result no other part is begun. */
typedef int hl_parallel_work(void *context, size_t index);

/*
 * Calls ${work} for 0 .. ${count} - 1, on as many threads as ${options} say (NULL: as many as there
 * are cores), the calling one among them, and waits. ${what} is for the progress. Returns 0, or the
 * result of the first index at which it was not 0.
 */
int hl_parallel(size_t count, const struct hl_log_options *options, const char *what,
		hl_parallel_work *work, void *context);
