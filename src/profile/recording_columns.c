/* SPDX-License-Identifier: BSD-2-Clause */
/* Splits structs into columns, which compress far better, and joins them; see
 * recording_columns.h. */
#include "profile/recording_columns.h"

#include "profile/recording.h"

#include <string.h>

#define COLUMN(owner, member)                                                       \
	{                                                                           \
		offsetof(struct owner, member), sizeof(((struct owner *)0)->member) \
	}

static const struct hl_column node_columns[] = {
	COLUMN(hl_recording_node, frame),
	COLUMN(hl_recording_node, parent),
};

static const struct hl_column value_columns[] = {
	COLUMN(hl_recording_value, node),
	COLUMN(hl_recording_value, thread),
	COLUMN(hl_recording_value, alloc_bytes),
	COLUMN(hl_recording_value, alloc_objects),
	COLUMN(hl_recording_value, free_bytes),
	COLUMN(hl_recording_value, free_objects),
	COLUMN(hl_recording_value, temporary_objects),
	COLUMN(hl_recording_value, slack_bytes),
	COLUMN(hl_recording_value, peak_bytes),
	COLUMN(hl_recording_value, peak_objects),
};

const struct hl_columns hl_node_columns = {node_columns, HL_COUNT_OF(node_columns),
					   sizeof(struct hl_recording_node), 8 + 4};
const struct hl_columns hl_value_columns = {value_columns, HL_COUNT_OF(value_columns),
					    sizeof(struct hl_recording_value), 2 * 4 + 8 * 8};

void hl_columns_split(const struct hl_columns *columns, const void *structs, size_t rows,
		      void *bytes)
{
	char *out = bytes;
	for (size_t c = 0; c < columns->count; c++) {
		const struct hl_column *column = &columns->columns[c];
		const char *in = (const char *)structs + column->offset;
		for (size_t i = 0; i < rows; i++, in += columns->struct_bytes) {
			memcpy(out, in, column->size);
			out += column->size;
		}
	}
}

void hl_columns_join(const struct hl_columns *columns, const void *bytes, size_t rows,
		     void *structs)
{
	const char *in = bytes;
	for (size_t c = 0; c < columns->count; c++) {
		const struct hl_column *column = &columns->columns[c];
		char *out = (char *)structs + column->offset;
		for (size_t i = 0; i < rows; i++, out += columns->struct_bytes) {
			memcpy(out, in, column->size);
			in += column->size;
		}
	}
}
