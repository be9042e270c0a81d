/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files of pieces, as logs consist of them, out of what a fuzzer found: as they are, or with the
 * hashes and the compression that let a reader see through to their content.
 */
#pragma once

#include "log/log.h"
#include "log/log_writer.h"

#include <stdbool.h>
#include <stddef.h>

#include "scratch.h"

/* One kind of file, alone in its directory, and how it is read there. */
struct piece_file {
	const struct hl_log_file_kind *kind;
	const char *name;
	const uint32_t *piece_kinds;
	size_t piece_kind_count;
	void (*read)(void);
};

static inline int create_file(const struct piece_file *file)
{
	int fd = openat(scratch_directory(), file->name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC,
			0600);

	require(fd >= 0);
	return fd;
}

static inline void read_and_remove(const struct piece_file *file)
{
	file->read();
	unlinkat(scratch_directory(), file->name, 0);
}

static inline void fuzz_file(const struct piece_file *file, const uint8_t *bytes, size_t size)
{
	int fd = create_file(file);

	require(pwrite(fd, bytes, size, 0) == (ssize_t)size);
	close(fd);
	read_and_remove(file);
}

static inline void write_header(const struct piece_file *file, struct hl_piece_writer *writer)
{
	struct hl_segment_header header = {.number = 1};

	hl_log_files_seal_header(file->kind, &header);
	require(hl_piece_writer_write_bytes(writer, &header, sizeof(header)) == 0);
}

/* Each piece: its kind, two bytes of length, content. */
static inline void fuzz_pieces(const struct piece_file *file, const uint8_t *bytes, size_t size)
{
	struct hl_piece_writer writer = {.fd = create_file(file), .level = 1};
	struct hl_byte_buffer raw = {0};

	write_header(file, &writer);
	while (size >= 3) {
		uint32_t kind = file->piece_kinds[bytes[0] % file->piece_kind_count];
		size_t length = (size_t)bytes[1] | (size_t)bytes[2] << 8;
		bytes += 3;
		size -= 3;
		if (length > size)
			length = size;
		hl_byte_buffer_clear(&raw);
		hl_byte_buffer_put(&raw, bytes, length);
		bool begins = kind == HL_PIECE_CHECKPOINT || !writer.stream;
		if (hl_piece_writer_write(&writer, kind, begins ? HL_PIECE_FRAME : 0, &raw) < 0)
			break;
		bytes += length;
		size -= length;
	}
	hl_byte_buffer_release(&raw);
	hl_piece_writer_release(&writer);
	read_and_remove(file);
}
