/* SPDX-License-Identifier: BSD-2-Clause */
/* The index of a segment, written as small differences; see segment.h. */
#include "log/segment.h"

#include "base/array.h"

#include <string.h>

int hl_segment_index_add_point(struct hl_segment_index *index, const struct hl_log_point *point)
{
	return HL_ARRAY_APPEND(index->points, index->point_count, index->point_capacity, *point);
}

int hl_segment_index_add_checkpoint(struct hl_segment_index *index, uint64_t next_interval,
				    uint64_t offset)
{
	return HL_ARRAY_APPEND(index->checkpoints, index->checkpoint_count,
			       index->checkpoint_capacity,
			       (struct hl_segment_checkpoint){next_interval, offset});
}

int hl_segment_index_add_mark(struct hl_segment_index *index, uint64_t tick, const char *text,
			      size_t length)
{
	if (HL_ARRAY_RESERVE(index->marks, index->mark_capacity, index->mark_count + 1) < 0)
		return -ENOMEM;
	char *copy = malloc(length + 1);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, text, length);
	copy[length] = '\0';
	index->marks[index->mark_count++] = (struct hl_log_mark){tick, copy};
	return 0;
}

int hl_segment_index_read_mark(struct hl_segment_index *index, struct hl_byte_reader *reader)
{
	uint64_t tick = hl_byte_reader_number(reader);
	uint64_t length = hl_byte_reader_number(reader);
	const uint8_t *text = hl_byte_reader_bytes(reader, length);

	return text ? hl_segment_index_add_mark(index, tick, (const char *)text, (size_t)length)
		    : -EBADMSG;
}

/* ---- writing ---- */

void hl_segment_index_write(const struct hl_segment_index *index, struct hl_byte_buffer *buffer)
{
	struct hl_log_point before = {0};

	hl_byte_buffer_number(buffer, index->lost_events);
	hl_byte_buffer_number(buffer, index->missing_count);
	hl_byte_buffer_number(buffer, index->point_count);
	for (size_t i = 0; i < index->point_count; i++) {
		const struct hl_log_point *point = &index->points[i];
		hl_byte_buffer_number(buffer,
				      (point->number - before.number) << 1 | point->missing);
		hl_byte_buffer_signed(buffer, point->max_bytes - before.max_bytes);
		hl_byte_buffer_signed(buffer, point->end_bytes - before.end_bytes);
		hl_byte_buffer_signed(buffer, (int64_t)(point->rss_bytes - before.rss_bytes));
		before = *point;
	}
	hl_byte_buffer_number(buffer, index->checkpoint_count);
	for (size_t i = 0; i < index->checkpoint_count; i++) {
		hl_byte_buffer_number(buffer, index->checkpoints[i].next_interval);
		hl_byte_buffer_number(buffer, index->checkpoints[i].offset);
	}
	hl_byte_buffer_number(buffer, index->mark_count);
	for (size_t i = 0; i < index->mark_count; i++) {
		size_t length = strlen(index->marks[i].text);
		hl_byte_buffer_number(buffer, index->marks[i].tick);
		hl_byte_buffer_number(buffer, length);
		hl_byte_buffer_put(buffer, index->marks[i].text, length);
	}
}

/* ---- reading ---- */

/* Each element takes a byte at least: a larger count is damage. */
static uint64_t read_count(struct hl_byte_reader *reader)
{
	uint64_t count = hl_byte_reader_number(reader);

	if (count > (uint64_t)(reader->end - reader->at))
		reader->failed = true;
	return reader->failed ? 0 : count;
}

int hl_segment_index_read(struct hl_segment_index *index, struct hl_byte_reader *reader)
{
	struct hl_log_point point = {0};
	uint64_t count;
	int r = 0;

	index->lost_events = hl_byte_reader_number(reader);
	index->missing_count = hl_byte_reader_number(reader);
	count = read_count(reader);
	for (uint64_t i = 0; r == 0 && i < count; i++) {
		uint64_t step = hl_byte_reader_number(reader);
		point.missing = step & 1;
		point.number += step >> 1;
		point.max_bytes += hl_byte_reader_signed(reader);
		point.end_bytes += hl_byte_reader_signed(reader);
		point.rss_bytes += (uint64_t)hl_byte_reader_signed(reader);
		if (reader->failed || (i && step >> 1 == 0))
			return -EBADMSG;
		r = hl_segment_index_add_point(index, &point);
	}
	count = read_count(reader);
	for (uint64_t i = 0; r == 0 && i < count; i++) {
		uint64_t next_interval = hl_byte_reader_number(reader);
		uint64_t offset = hl_byte_reader_number(reader);
		if (reader->failed)
			return -EBADMSG;
		r = hl_segment_index_add_checkpoint(index, next_interval, offset);
	}
	count = read_count(reader);
	for (uint64_t i = 0; r == 0 && i < count; i++)
		r = hl_segment_index_read_mark(index, reader);
	return r == 0 && reader->failed ? -EBADMSG : r;
}

/* ---- memory ---- */

void hl_segment_index_clear(struct hl_segment_index *index)
{
	for (size_t i = 0; i < index->mark_count; i++)
		free(index->marks[i].text);
	index->point_count = index->checkpoint_count = index->mark_count = 0;
}

void hl_segment_index_release(struct hl_segment_index *index)
{
	hl_segment_index_clear(index);
	free(index->points);
	free(index->checkpoints);
	free(index->marks);
	*index = (struct hl_segment_index){0};
}
