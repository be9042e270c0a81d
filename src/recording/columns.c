/* SPDX-License-Identifier: BSD-2-Clause */
/* Splits structs into columns, which compress far better, and joins them; see
 * container.h. */
#include "recording/container.h"

#include "base/cleanup.h"
#include "recording/recording.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Columns are compressed in pieces, which stay in the processor's cache. */
#define PIECE_BYTES 32768

static const struct hl_column node_columns[] = {
	HL_COLUMN(hl_recording_node, frame),
	/* Most often the row before. */
	{offsetof(struct hl_recording_node, parent), sizeof(uint32_t), true},
};

static const struct hl_column value_columns[] = {
	HL_COLUMN(hl_recording_value, node),
	HL_COLUMN(hl_recording_value, thread),
	HL_COLUMN(hl_recording_value, alloc_bytes),
	HL_COLUMN(hl_recording_value, alloc_objects),
	HL_COLUMN(hl_recording_value, free_bytes),
	HL_COLUMN(hl_recording_value, free_objects),
	HL_COLUMN(hl_recording_value, temporary_objects),
	HL_COLUMN(hl_recording_value, slack_bytes),
	HL_COLUMN(hl_recording_value, peak_bytes),
	HL_COLUMN(hl_recording_value, peak_objects),
};

static const struct hl_column resident_columns[] = {
	HL_COLUMN(hl_recording_resident, node),
	HL_COLUMN(hl_recording_resident, resident_bytes),
	HL_COLUMN(hl_recording_resident, swapped_bytes),
};

const struct hl_columns hl_node_columns = {node_columns, HL_COUNT_OF(node_columns),
					   sizeof(struct hl_recording_node), 8 + 4};
const struct hl_columns hl_value_columns = {value_columns, HL_COUNT_OF(value_columns),
					    sizeof(struct hl_recording_value), 2 * 4 + 8 * 8};
const struct hl_columns hl_resident_columns = {resident_columns, HL_COUNT_OF(resident_columns),
					       sizeof(struct hl_recording_resident), 4 + 2 * 8};

/*
 * Copies ${rows} elements of ${size} bytes from ${in}, which are ${in_step} bytes apart, to ${out}.
 * Where the compiler knows the size, as for almost all columns, a copy is one instruction.
 */
static inline void copy_strided(char *out, size_t out_step, const char *in, size_t in_step,
				size_t size, size_t rows)
{
	for (size_t i = 0; i < rows; i++)
		memcpy(out + i * out_step, in + i * in_step, size);
}

static void copy_column(char *out, size_t out_step, const char *in, size_t in_step, size_t size,
			size_t rows)
{
	if (size == sizeof(uint32_t))
		copy_strided(out, out_step, in, in_step, sizeof(uint32_t), rows);
	else if (size == sizeof(uint64_t))
		copy_strided(out, out_step, in, in_step, sizeof(uint64_t), rows);
	else
		copy_strided(out, out_step, in, in_step, size, rows);
}

/* Takes ${rows} numbers, ${step} bytes apart, from those of their rows; twice is as not at all. */
static void subtract_from_rows(void *numbers, size_t step, size_t first, size_t rows)
{
	for (size_t i = 0; i < rows; i++) {
		char *at = (char *)numbers + i * step;
		uint32_t number;
		memcpy(&number, at, sizeof(number));
		number = (uint32_t)(first + i + 1) - number;
		memcpy(at, &number, sizeof(number));
	}
}

uint32_t hl_columns_flags(const struct hl_columns *columns)
{
	uint32_t flags = HL_SECTION_ZSTD;

	for (size_t c = 0; c < columns->count; c++)
		flags |= columns->columns[c].is_relative ? HL_SECTION_RELATIVE : 0;
	return flags;
}

void hl_columns_split(const struct hl_columns *columns, size_t column, const void *structs,
		      size_t first, size_t rows, void *ret_bytes)
{
	const struct hl_column *chosen = &columns->columns[column];

	copy_column(ret_bytes, chosen->size, (const char *)structs + chosen->offset,
		    columns->struct_bytes, chosen->size, rows);
	if (chosen->is_relative)
		subtract_from_rows(ret_bytes, chosen->size, first, rows);
}

int hl_columns_write(const struct hl_columns *columns, struct hl_container_writer *writer,
		     uint32_t type, const void *structs, size_t rows, struct hl_error *err)
{
	char piece[PIECE_BYTES];
	int r = hl_container_writer_begin(writer, type, hl_columns_flags(columns),
					  rows * columns->row_bytes, err);

	for (size_t c = 0; c < columns->count; c++) {
		const struct hl_column *column = &columns->columns[c];
		size_t most = sizeof(piece) / column->size, count;
		for (size_t row = 0; r == 0 && row < rows; row += count) {
			const char *in = (const char *)structs + row * columns->struct_bytes;
			count = rows - row < most ? rows - row : most;
			hl_columns_split(columns, c, in, row, count, piece);
			r = hl_container_writer_append(writer, piece, count * column->size, err);
		}
	}
	return r < 0 ? r : hl_container_writer_end(writer, err);
}

void hl_columns_join(const struct hl_columns *columns, const void *bytes, size_t rows,
		     void *structs)
{
	const char *in = bytes;

	for (size_t c = 0; rows && c < columns->count; c++) {
		const struct hl_column *column = &columns->columns[c];
		copy_column((char *)structs + column->offset, columns->struct_bytes, in,
			    column->size, column->size, rows);
		in += rows * column->size;
	}
}

static bool booleans_are_valid(const struct hl_columns *columns, const uint8_t *bytes, size_t rows)
{
	for (size_t c = 0; c < columns->count; c++) {
		size_t size = columns->columns[c].size;
		for (size_t i = 0; size == 1 && i < rows; i++)
			if (bytes[i] > 1)
				return false;
		bytes += size * rows;
	}
	return true;
}

int hl_columns_read(const struct hl_columns *columns, const struct hl_container *container,
		    uint32_t type, size_t rows_max, size_t first, void *ret_structs,
		    size_t *ret_count, struct hl_error *err)
{
	HL_FREED void *bytes = NULL;
	const char *path = container->path;
	size_t size;

	int r = hl_container_load(container, type, rows_max * columns->row_bytes, &bytes, &size,
				  err);
	if (r < 0)
		return r;
	size_t rows = size / columns->row_bytes;
	if (size % columns->row_bytes)
		return hl_error_set(err, -EBADMSG, "cannot read '%s': a section ends within a row",
				    path);
	if (!booleans_are_valid(columns, bytes, rows))
		return hl_error_set(err, -EBADMSG, "cannot read '%s': a boolean is neither 0 nor 1",
				    path);
	char *structs = calloc(first + rows + 1, columns->struct_bytes);
	if (!structs)
		return hl_error_set(err, -ENOMEM, "cannot read '%s': out of memory", path);
	structs += first * columns->struct_bytes;
	hl_columns_join(columns, bytes, rows, structs);
	for (size_t c = 0; c < columns->count; c++)
		if (columns->columns[c].is_relative &&
		    hl_container_flags(container, type) & HL_SECTION_RELATIVE)
			subtract_from_rows(structs + columns->columns[c].offset,
					   columns->struct_bytes, 0, rows);
	structs -= first * columns->struct_bytes;
	memcpy(ret_structs, &structs, sizeof(structs)); /* the pointer's own type is not known */
	*ret_count = first + rows;
	return 0;
}
