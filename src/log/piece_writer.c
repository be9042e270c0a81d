/* SPDX-License-Identifier: BSD-2-Clause */
/* One zstd stream in flushed pieces; see log_writer.h. */
#include "log/log_writer.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define LEVEL 3 /* nearly as small as higher ones, and cheap beside the events it is of */

/* ---- compression ---- */

/* Appends the compressed ${raw} to the packed piece, so that a reader needs nothing after it. */
static int compress(struct hl_piece_writer *writer, const struct hl_byte_buffer *raw)
{
	ZSTD_inBuffer in = {raw->bytes, raw->size, 0};
	size_t left;

	do {
		size_t room = ZSTD_CStreamOutSize();
		uint8_t *bytes = hl_byte_buffer_reserve(&writer->packed, room);
		if (!bytes)
			return -ENOMEM;
		ZSTD_outBuffer out = {bytes, room, 0};
		left = ZSTD_compressStream2(writer->stream, &out, &in, ZSTD_e_flush);
		if (ZSTD_isError(left))
			return -ENOMEM;
		writer->packed.size += out.pos;
	} while (left || in.pos < in.size);
	return 0;
}

/* ---- the file ---- */

int hl_piece_writer_write_bytes(struct hl_piece_writer *writer, const void *bytes, size_t size)
{
	const char *at = bytes;
	size_t left = size;

	while (left > 0) {
		ssize_t written =
			pwrite(writer->fd, at, left, (off_t)(writer->position + size - left));
		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0) {
			int error = written < 0 ? -errno : -EIO;
			/* Half a piece would hide all that comes after it. */
			if (ftruncate(writer->fd, (off_t)writer->position) < 0)
				return -EIO;
			return error;
		}
		at += written;
		left -= (size_t)written;
	}
	writer->position += size;
	return 0;
}

int hl_piece_writer_write(struct hl_piece_writer *writer, enum hl_piece_kind kind, uint32_t flags,
			  const struct hl_byte_buffer *raw)
{
	struct hl_piece_header header = {
		.kind = kind, .flags = flags, .raw_bytes = (uint32_t)raw->size};

	if (raw->failed)
		return -ENOMEM;
	if (raw->size > HL_PIECE_BYTES_MAX)
		return -EFBIG;
	hl_byte_buffer_clear(&writer->packed);
	hl_byte_buffer_put(&writer->packed, &header, sizeof(header));
	if (flags & HL_PIECE_FRAME) {
		if (!writer->stream)
			writer->stream = ZSTD_createCCtx();
		if (!writer->stream)
			return -ENOMEM;
		ZSTD_CCtx_reset(writer->stream, ZSTD_reset_session_only);
		ZSTD_CCtx_setParameter(writer->stream, ZSTD_c_compressionLevel,
				       writer->level ? writer->level : LEVEL);
	}
	if (compress(writer, raw) < 0)
		return -ENOMEM;
	size_t stored = writer->packed.size - sizeof(header);
	if (stored > HL_PIECE_BYTES_MAX)
		return -EFBIG;
	header.stored_bytes = (uint32_t)stored;
	XXH64_hash_t seed = XXH3_64bits(&header, offsetof(struct hl_piece_header, hash));
	header.hash = XXH3_64bits_withSeed(writer->packed.bytes + sizeof(header), stored, seed);
	memcpy(writer->packed.bytes, &header, sizeof(header));
	return hl_piece_writer_write_bytes(writer, writer->packed.bytes, writer->packed.size);
}

bool hl_piece_writer_lost_file(const struct hl_piece_writer *writer)
{
	struct stat status;

	return writer->fd >= 0 && fstat(writer->fd, &status) == 0 && status.st_nlink == 0;
}

void hl_piece_writer_close(struct hl_piece_writer *writer)
{
	if (writer->fd >= 0)
		close(writer->fd);
	writer->fd = -1;
}

void hl_piece_writer_release(struct hl_piece_writer *writer)
{
	hl_piece_writer_close(writer);
	ZSTD_freeCCtx(writer->stream);
	hl_byte_buffer_release(&writer->packed);
	*writer = (struct hl_piece_writer){.fd = -1};
}
