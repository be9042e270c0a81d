/* SPDX-License-Identifier: BSD-2-Clause */
/* What a segment's index holds: its timeline, its marks, and where reading can begin. */
#pragma once

#include "log/byte_buffer.h"
#include "log/log_reader.h"

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
	struct hl_log_mark *marks; /* their texts are the index's */
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

/* 0, -ENOMEM, or -EBADMSG. ${index} must be empty. */
int hl_segment_index_read(struct hl_segment_index *index, struct hl_byte_reader *reader);

/* Empties it and keeps the memory. */
void hl_segment_index_clear(struct hl_segment_index *index);
void hl_segment_index_release(struct hl_segment_index *index);
