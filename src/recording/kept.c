/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes sections of which most is as it was; see recording_files.h. */
#include "recording/recording_files.h"

#include "base/array.h"

#define XXH_INLINE_ALL
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zstd.h>

#define COLUMN_BYTES_MAX sizeof(uint64_t)
#define PIECE_BYTES_MAX	 (HL_KEPT_ROWS * COLUMN_BYTES_MAX)

/* Frames go to the file in parts of about this size. */
#define BUFFER_BYTES 65536u

static int out_of_memory(const struct hl_container_writer *writer, struct hl_error *err)
{
	return hl_error_set(err, -ENOMEM, "cannot write '%s': out of memory", writer->name);
}

/* Frames of ${kept} from the ${count}th on are forgotten; there are ${count} then, new ones empty. */
static int set_count(struct hl_kept_columns *kept, size_t count)
{
	while (kept->piece_count > count)
		free(kept->pieces[--kept->piece_count].stored);
	while (kept->piece_count < count)
		if (HL_ARRAY_APPEND(kept->pieces, kept->piece_count, kept->capacity,
				    (struct hl_kept_piece){0}) < 0)
			return -ENOMEM;
	return 0;
}

static int compress(struct hl_kept_piece *piece, ZSTD_CCtx **context, int level, const void *raw,
		    size_t size, uint64_t hash)
{
	uint8_t stored[ZSTD_COMPRESSBOUND(PIECE_BYTES_MAX)];

	if (!*context)
		*context = ZSTD_createCCtx();
	if (!*context)
		return -ENOMEM;
	size_t bytes = ZSTD_compressCCtx(*context, stored, sizeof(stored), raw, size, level);
	uint8_t *fitted = ZSTD_isError(bytes) ? NULL : realloc(piece->stored, bytes);
	if (!fitted)
		return -ENOMEM;
	memcpy(fitted, stored, bytes);
	*piece = (struct hl_kept_piece){.hash = hash,
					.raw_bytes = (uint32_t)size,
					.stored_bytes = (uint32_t)bytes,
					.stored = fitted};
	return 0;
}

/* Brings all pieces from row ${first} on up to date. */
static int refresh(struct hl_kept_columns *kept, const struct hl_columns *columns, int level,
		   const void *structs, size_t first, size_t rows)
{
	ZSTD_CCtx *context = NULL;
	uint8_t raw[PIECE_BYTES_MAX];
	int r = 0;

	for (size_t row = first; r == 0 && row < rows; row += HL_KEPT_ROWS) {
		const char *in = (const char *)structs + (row - first) * columns->struct_bytes;
		size_t count = rows - row < HL_KEPT_ROWS ? rows - row : HL_KEPT_ROWS;
		for (size_t c = 0; r == 0 && c < columns->count; c++) {
			struct hl_kept_piece *piece =
				&kept->pieces[row / HL_KEPT_ROWS * columns->count + c];
			size_t size = count * columns->columns[c].size;
			hl_columns_split(columns, c, in, row, count, raw);
			uint64_t hash = XXH3_64bits(raw, size);
			if (!piece->stored || piece->hash != hash || piece->raw_bytes != size)
				r = compress(piece, &context, level, raw, size, hash);
		}
	}
	ZSTD_freeCCtx(context);
	return r;
}

/* Writes one column's frames, a few at a time. */
static int write_column(const struct hl_kept_columns *kept, size_t column, size_t columns,
			struct hl_container_writer *writer, struct hl_error *err)
{
	uint8_t buffer[BUFFER_BYTES];
	size_t used = 0, raw_bytes = 0;
	int r = 0;

	static_assert(BUFFER_BYTES >= ZSTD_COMPRESSBOUND(PIECE_BYTES_MAX), "holds a piece");
	for (size_t i = column; r == 0 && i < kept->piece_count; i += columns) {
		const struct hl_kept_piece *piece = &kept->pieces[i];
		if (used + piece->stored_bytes > sizeof(buffer)) {
			r = hl_container_writer_append_frames(writer, buffer, used, raw_bytes, err);
			used = raw_bytes = 0;
		}
		memcpy(buffer + used, piece->stored, piece->stored_bytes);
		used += piece->stored_bytes;
		raw_bytes += piece->raw_bytes;
	}
	return r < 0 ? r : hl_container_writer_append_frames(writer, buffer, used, raw_bytes, err);
}

int hl_kept_columns_write(struct hl_kept_columns *kept, const struct hl_columns *columns,
			  struct hl_container_writer *writer, uint32_t type, const void *structs,
			  size_t first, size_t rows, struct hl_error *err)
{
	size_t pieces = (rows + HL_KEPT_ROWS - 1) / HL_KEPT_ROWS;

	assert(first % HL_KEPT_ROWS == 0 && first <= rows &&
	       kept->piece_count >= first / HL_KEPT_ROWS * columns->count);
	if (set_count(kept, pieces * columns->count) < 0 ||
	    refresh(kept, columns, writer->compression_level, structs, first, rows) < 0)
		return out_of_memory(writer, err);
	int r = hl_container_writer_begin_frames(writer, type, hl_columns_flags(columns), err);
	for (size_t c = 0; r == 0 && c < columns->count; c++)
		r = write_column(kept, c, columns->count, writer, err);
	return r < 0 ? r : hl_container_writer_end(writer, err);
}

void hl_kept_columns_release(struct hl_kept_columns *kept)
{
	set_count(kept, 0);
	free(kept->pieces);
	*kept = (struct hl_kept_columns){0};
}
