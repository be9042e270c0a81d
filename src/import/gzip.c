/* SPDX-License-Identifier: BSD-2-Clause */
/* gzip by zlib, whose allocations are made here; see gzip.h. */
#include "import/gzip.h"

#include "base/array.h"

#define GZIP_WINDOW_BITS (15 + 16) /* 16: a gzip header, without a time or a name */
#define MEMORY_LEVEL	 8	   /* zlib's default */
#define FIRST_BYTES	 65536

static voidpf allocate(voidpf context, uInt count, uInt size)
{
	(void)context;
	return calloc(count, size);
}

static void release(voidpf context, voidpf memory)
{
	(void)context;
	free(memory);
}

static z_stream new_stream(void)
{
	return (z_stream){.zalloc = allocate, .zfree = release};
}

bool hl_gzip_detect(const uint8_t *bytes, size_t size)
{
	return size >= 3 && bytes[0] == 0x1f && bytes[1] == 0x8b && bytes[2] == Z_DEFLATED;
}

/* ---- reading ---- */

struct reader {
	z_stream stream;
	const char *name;
	size_t size_max;
	uint8_t *bytes;
	size_t size, capacity;
};

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

static int damaged(const struct reader *reader, const char *what, struct hl_error *err)
{
	return hl_error_set(err, -EBADMSG, "cannot read '%s': its gzip data %s at byte %lu",
			    reader->name, what, reader->stream.total_in);
}

static int inflate_members(struct reader *reader, const uint8_t *at, const uint8_t *end,
			   struct hl_error *err)
{
	z_stream *stream = &reader->stream;
	int z = Z_OK;

	while (z != Z_STREAM_END) {
		/* Room for more output, never beyond one byte over the limit and the NUL byte. */
		if (reader->size + 1 >= reader->capacity) {
			size_t doubled = reader->capacity ? reader->capacity * 2 : FIRST_BYTES;
			size_t wanted = smaller(doubled, reader->size_max + 2);
			uint8_t *bytes = reallocarray(reader->bytes, wanted, 1);
			if (!bytes)
				return -ENOMEM;
			reader->bytes = bytes;
			reader->capacity = wanted;
		}
		stream->next_in = (z_const Bytef *)at;
		stream->avail_in = (uInt)smaller((size_t)(end - at), INT32_MAX);
		stream->next_out = reader->bytes + reader->size;
		stream->avail_out = (uInt)smaller(reader->capacity - reader->size - 1, INT32_MAX);
		z = inflate(stream, Z_NO_FLUSH);
		at = stream->next_in;
		reader->size = (size_t)(stream->next_out - reader->bytes);
		if (reader->size > reader->size_max)
			return hl_error_set(err, -EFBIG,
					    "cannot read '%s': it inflates to more than %zu MiB; "
					    "if it is meant to, give it inflated",
					    reader->name, reader->size_max >> 20);
		if (z == Z_MEM_ERROR)
			return -ENOMEM;
		if (z == Z_BUF_ERROR)
			return damaged(reader, "ends too early", err);
		if (z != Z_OK && z != Z_STREAM_END)
			return damaged(reader, "is damaged", err);
		if (z == Z_STREAM_END && hl_gzip_detect(at, (size_t)(end - at)))
			z = inflateReset(stream);
	}
	return 0;
}

int hl_gzip_inflate(const uint8_t *bytes, size_t size, const char *name, size_t size_max,
		    uint8_t **ret_inflated, size_t *ret_inflated_size, struct hl_error *err)
{
	struct reader reader = {.stream = new_stream(), .name = name, .size_max = size_max};

	if (inflateInit2(&reader.stream, GZIP_WINDOW_BITS) != Z_OK)
		return -ENOMEM;
	int r = inflate_members(&reader, bytes, bytes + size, err);
	inflateEnd(&reader.stream);
	if (r < 0) {
		free(reader.bytes);
		return r;
	}
	reader.bytes[reader.size] = '\0';
	*ret_inflated = reader.bytes;
	*ret_inflated_size = reader.size;
	return 0;
}

/* ---- writing ---- */

int hl_gzip_writer_init(struct hl_gzip_writer *writer, FILE *out)
{
	writer->out = out;
	writer->failed = false;
	writer->pending_size = 0;
	writer->stream = new_stream();
	return deflateInit2(&writer->stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW_BITS,
			    MEMORY_LEVEL, Z_DEFAULT_STRATEGY) == Z_OK
		       ? 0
		       : -ENOMEM;
}

/* Deflates all pending bytes: zlib is done when it leaves room in the output. */
static void deflate_pending(struct hl_gzip_writer *writer, int flush)
{
	z_stream *stream = &writer->stream;

	stream->next_in = writer->pending;
	stream->avail_in = (uInt)writer->pending_size;
	writer->pending_size = 0;
	do {
		stream->next_out = writer->deflated;
		stream->avail_out = sizeof(writer->deflated);
		deflate(stream, flush); /* fails on misuse alone */
		size_t size = sizeof(writer->deflated) - stream->avail_out;
		if (fwrite(writer->deflated, 1, size, writer->out) != size)
			writer->failed = true;
	} while (stream->avail_out == 0 && !writer->failed);
}

void hl_gzip_writer_append(struct hl_gzip_writer *writer, const uint8_t *bytes, size_t size)
{
	while (size && !writer->failed) {
		size_t part = smaller(size, sizeof(writer->pending) - writer->pending_size);
		memcpy(writer->pending + writer->pending_size, bytes, part);
		writer->pending_size += part;
		if (writer->pending_size == sizeof(writer->pending))
			deflate_pending(writer, Z_NO_FLUSH);
		bytes += part;
		size -= part;
	}
}

int hl_gzip_writer_finish(struct hl_gzip_writer *writer)
{
	if (!writer->failed)
		deflate_pending(writer, Z_FINISH);
	return writer->failed ? -EIO : 0;
}

void hl_gzip_writer_release(struct hl_gzip_writer *writer)
{
	deflateEnd(&writer->stream);
}
