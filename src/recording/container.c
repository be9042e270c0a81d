/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes and reads containers; see recording_files.h. */
#include "recording/recording_files.h"

#include "base/cleanup.h"
#include "recording/recording.h"

#define XXH_INLINE_ALL
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

/* Fast, and still a fifth of the size: somebody waits for the last save. */
#define HL_COMPRESSION_FAST 1

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "containers are little-endian and are read and written in place"
#endif

static_assert(sizeof(struct hl_container_header) == 48, "format");
static_assert(sizeof(struct hl_section_entry) == 32, "format");
static_assert(sizeof(struct hl_container_header) +
			      HL_CONTAINER_SECTIONS_MAX * sizeof(struct hl_section_entry) <
		      HL_CONTAINER_HELD_BYTES,
	      "header and table are held");

static const uint8_t container_magic[8] = {'H', 'E', 'A', 'P', 'L', 'I', 'N', 'E'};

/*
 * No zstd frame grows by more than this: a block is at least 4 bytes and holds at most 128 KiB. So
 * a small file cannot make the reader allocate gigabytes.
 */
#define ZSTD_RATIO_MAX 32768u
#define DAMAGED	       "a checksum does not match: the file is damaged"

/* Formats change seldom: a larger version is damage. */
#define VERSION_PLAUSIBLE 1000u

static uint64_t header_hash(const struct hl_container_header *header)
{
	return XXH3_64bits(header, offsetof(struct hl_container_header, header_hash));
}

static size_t table_bytes(const struct hl_container_header *header)
{
	return header->section_count * sizeof(struct hl_section_entry);
}

/* ---- writing ---- */

static int write_error(const struct hl_container_writer *writer, int error, struct hl_error *err)
{
	return hl_error_set(err, -error, "cannot write '%s': %s", writer->name, strerror(error));
}

static int write_at(struct hl_container_writer *writer, const void *bytes, size_t size,
		    uint64_t position, struct hl_error *err)
{
	const uint8_t *next = bytes;

	while (size > 0) {
		ssize_t written = pwrite(writer->fd, next, size, (off_t)position);
		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return write_error(writer, written < 0 ? errno : EIO, err);
		next += written;
		position += (uint64_t)written;
		size -= (size_t)written;
	}
	return 0;
}

/* What begins among the first bytes is held as far as it lies there. */
static int write_all(struct hl_container_writer *writer, const void *bytes, size_t size,
		     uint64_t position, struct hl_error *err)
{
	size_t room = position < sizeof(writer->held) ? sizeof(writer->held) - position : 0;
	size_t held = size < room ? size : room;

	if (held) {
		memcpy(writer->held + position, bytes, held);
		if (position + held > writer->held_bytes)
			writer->held_bytes = position + held;
	}
	return held == size ? 0
			    : write_at(writer, (const uint8_t *)bytes + held, size - held,
				       position + held, err);
}

void hl_container_writer_init_fd(struct hl_container_writer *writer, int fd, const char *name,
				 uint32_t kind, uint32_t section_count)
{
	assert(section_count <= HL_CONTAINER_SECTIONS_MAX);
	memset(writer, 0, offsetof(struct hl_container_writer, held));
	writer->directory_fd = -1;
	writer->fd = fd;
	writer->name = name;
	writer->compression_level = HL_COMPRESSION_FAST;
	memcpy(writer->header.magic, container_magic, sizeof(container_magic));
	writer->header.version = HL_FORMAT_VERSION;
	writer->header.kind = kind;
	writer->header.section_count = section_count;
	writer->position = writer->held_bytes =
		sizeof(writer->header) + table_bytes(&writer->header);
}

int hl_container_writer_init(struct hl_container_writer *writer, int directory_fd, const char *name,
			     uint32_t kind, uint32_t section_count, struct hl_error *err)
{
	hl_container_writer_init_fd(writer, -1, name, kind, section_count);
	writer->directory_fd = directory_fd;
	snprintf(writer->temporary, sizeof(writer->temporary), ".%s.tmp", name);
	writer->fd = openat(directory_fd, writer->temporary,
			    O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (writer->fd < 0)
		return write_error(writer, errno, err);
	return 0;
}

/* Writes bytes of the section that has begun as they are to stand in the file. */
static int store(struct hl_container_writer *writer, const void *bytes, size_t size,
		 struct hl_error *err)
{
	int r = write_all(writer, bytes, size, writer->position, err);

	if (r < 0)
		return r;
	XXH3_64bits_update(writer->hash, bytes, size);
	writer->table[writer->added].stored_bytes += size;
	writer->position += size;
	return 0;
}

static int compress_and_store(struct hl_container_writer *writer, const void *bytes, size_t size,
			      ZSTD_EndDirective mode, struct hl_error *err)
{
	ZSTD_inBuffer in = {bytes, size, 0};
	size_t left;

	do {
		ZSTD_outBuffer out = {writer->compressed, ZSTD_CStreamOutSize(), 0};
		left = ZSTD_compressStream2(writer->zstd, &out, &in, mode);
		if (ZSTD_isError(left))
			return write_error(writer, ENOMEM, err);
		int r = store(writer, out.dst, out.pos, err);
		if (r < 0)
			return r;
	} while (in.pos < in.size || (mode == ZSTD_e_end && left));
	return 0;
}

/* The frame says how large its content is, and needs no larger a window. */
static bool begin_frame(struct hl_container_writer *writer, size_t size)
{
	if (!writer->zstd) {
		writer->zstd = ZSTD_createCCtx();
		writer->compressed = malloc(ZSTD_CStreamOutSize());
	}
	return writer->zstd && writer->compressed &&
	       !ZSTD_isError(ZSTD_CCtx_setParameter(writer->zstd, ZSTD_c_compressionLevel,
						    writer->compression_level)) &&
	       !ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(writer->zstd, size));
}

static int begin_section(struct hl_container_writer *writer, uint32_t type, uint32_t flags,
			 struct hl_error *err)
{
	assert(writer->added < writer->header.section_count && !writer->hash);
	writer->hash = XXH3_createState();
	if (!writer->hash)
		return write_error(writer, ENOMEM, err);
	XXH3_64bits_reset(writer->hash);
	writer->takes_frames = false;
	writer->table[writer->added] = (struct hl_section_entry){.type = type, .flags = flags};
	return 0;
}

int hl_container_writer_begin(struct hl_container_writer *writer, uint32_t type, uint32_t flags,
			      size_t size, struct hl_error *err)
{
	int r = begin_section(writer, type, flags, err);

	if (r == 0 && flags & HL_SECTION_ZSTD && !begin_frame(writer, size))
		return write_error(writer, ENOMEM, err);
	return r;
}

int hl_container_writer_begin_frames(struct hl_container_writer *writer, uint32_t type,
				     uint32_t flags, struct hl_error *err)
{
	int r = begin_section(writer, type, flags, err);

	writer->takes_frames = true;
	return r;
}

int hl_container_writer_append_frames(struct hl_container_writer *writer, const void *stored,
				      size_t stored_bytes, size_t raw_bytes, struct hl_error *err)
{
	writer->table[writer->added].raw_bytes += raw_bytes;
	return store(writer, stored, stored_bytes, err);
}

int hl_container_writer_append(struct hl_container_writer *writer, const void *bytes, size_t size,
			       struct hl_error *err)
{
	struct hl_section_entry *entry = &writer->table[writer->added];

	entry->raw_bytes += size;
	return entry->flags & HL_SECTION_ZSTD
		       ? compress_and_store(writer, bytes, size, ZSTD_e_continue, err)
		       : store(writer, bytes, size, err);
}

int hl_container_writer_end(struct hl_container_writer *writer, struct hl_error *err)
{
	struct hl_section_entry *entry = &writer->table[writer->added];

	int r = entry->flags & HL_SECTION_ZSTD && !writer->takes_frames
			? compress_and_store(writer, NULL, 0, ZSTD_e_end, err)
			: 0;
	if (r < 0)
		return r;
	entry->hash = XXH3_64bits_digest(writer->hash);
	writer->added++;
	XXH3_freeState(writer->hash);
	writer->hash = NULL;
	return 0;
}

int hl_container_writer_add(struct hl_container_writer *writer, uint32_t type, const void *bytes,
			    size_t size, bool compress, struct hl_error *err)
{
	int r = hl_container_writer_begin(writer, type, compress ? HL_SECTION_ZSTD : 0, size, err);

	if (r == 0)
		r = hl_container_writer_append(writer, bytes, size, err);
	return r < 0 ? r : hl_container_writer_end(writer, err);
}

int hl_container_writer_add_texts(struct hl_container_writer *writer, uint32_t type,
				  const struct hl_strings *strings, struct hl_error *err)
{
	size_t size = 0, used = 0;

	for (uint32_t id = 1; id < strings->count; id++)
		size += strlen(strings->texts[id]) + 1;
	HL_FREED char *bytes = malloc(size + 1);
	if (!bytes)
		return write_error(writer, ENOMEM, err);
	for (uint32_t id = 1; id < strings->count; id++)
		used = (size_t)(stpcpy(bytes + used, strings->texts[id]) + 1 - bytes);
	return hl_container_writer_add(writer, type, bytes, size, true, err);
}

int hl_container_writer_finish(struct hl_container_writer *writer, bool sync, struct hl_error *err)
{
	struct hl_container_header *header = &writer->header;

	assert(writer->added == header->section_count);
	header->file_bytes = writer->position;
	header->table_hash = XXH3_64bits(writer->table, table_bytes(header));
	header->header_hash = header_hash(header);
	memcpy(writer->held + sizeof(*header), writer->table, table_bytes(header));
	memcpy(writer->held, header, sizeof(*header));
	int r = write_at(writer, writer->held, writer->held_bytes, 0, err);
	if (r < 0)
		return r;
	if (sync && fsync(writer->fd) < 0)
		return write_error(writer, errno, err);
	if (writer->directory_fd < 0)
		return 0;
	int closed = close(writer->fd);
	writer->fd = -1;
	if (closed < 0 || renameat(writer->directory_fd, writer->temporary, writer->directory_fd,
				   writer->name) < 0) {
		r = write_error(writer, errno, err);
		unlinkat(writer->directory_fd, writer->temporary, 0);
	}
	return r;
}

void hl_container_writer_release(struct hl_container_writer *writer)
{
	XXH3_freeState(writer->hash);
	ZSTD_freeCCtx(writer->zstd);
	free(writer->compressed);
	writer->hash = NULL;
	writer->zstd = NULL;
	writer->compressed = NULL;
	if (writer->fd < 0 || writer->directory_fd < 0)
		return;
	close(writer->fd);
	unlinkat(writer->directory_fd, writer->temporary, 0);
	writer->fd = -1;
}

/* ---- reading ---- */

static int damage(const struct hl_container *container, const char *reason, struct hl_error *err)
{
	return hl_error_set(err, -EBADMSG, "cannot read '%s': %s", container->path, reason);
}

static int out_of_memory(const struct hl_container *container, struct hl_error *err)
{
	return hl_error_set(err, -ENOMEM, "cannot read '%s': out of memory", container->path);
}

static int read_all(const struct hl_container *container, void *bytes, size_t size,
		    uint64_t position, struct hl_error *err)
{
	uint8_t *next = bytes;

	while (size > 0) {
		ssize_t got = pread(container->fd, next, size, (off_t)position);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return hl_error_set(err, -errno, "cannot read '%s': %s", container->path,
					    strerror(errno));
		if (got == 0)
			return damage(container, "the file is cut off", err);
		next += got;
		position += (uint64_t)got;
		size -= (size_t)got;
	}
	return 0;
}

static int check_header(const struct hl_container *container, uint32_t kind, struct hl_error *err)
{
	const struct hl_container_header *header = &container->header;

	if (memcmp(header->magic, container_magic, sizeof(container_magic)) != 0)
		return damage(container, "it is not a file of a heapline recording", err);
	if (header->version > VERSION_PLAUSIBLE)
		return damage(container, "its header is damaged", err);
	if (header->version > HL_FORMAT_VERSION)
		return hl_error_set(err, -ENOTSUP,
				    "cannot read '%s': its format version is %u and this heapline "
				    "knows up to %u; use a newer heapline",
				    container->path, header->version, HL_FORMAT_VERSION);
	if (header->version == 0 || header->header_hash != header_hash(header))
		return damage(container, "its header is damaged", err);
	if (header->kind != kind)
		return damage(container, "it is another kind of file than its name says", err);
	if (header->zero != 0 || header->section_count > HL_CONTAINER_SECTIONS_MAX)
		return damage(container, "its header is damaged", err);
	return 0;
}

/* The sections must fill the file exactly; each sum is checked before it is made. */
static int check_table(const struct hl_container *container, uint64_t file_bytes,
		       struct hl_error *err)
{
	const struct hl_container_header *header = &container->header;

	if (XXH3_64bits(container->table, table_bytes(header)) != header->table_hash)
		return damage(container, "its table of sections is damaged", err);
	uint64_t left = header->file_bytes;
	if (left > file_bytes)
		return damage(container, "the file is cut off", err);
	if (left < file_bytes)
		return damage(container, "something follows its end", err);
	left -= sizeof(*header) + table_bytes(header);
	for (uint32_t i = 0; i < header->section_count; i++) {
		if (container->table[i].stored_bytes > left)
			return damage(container, "its sections are longer than the file", err);
		left -= container->table[i].stored_bytes;
	}
	if (left > 0)
		return damage(container, "its sections are shorter than the file", err);
	return 0;
}

static int check_section(const struct hl_container *container, const struct hl_section_entry *entry,
			 uint64_t position, XXH3_state_t *state, struct hl_error *err)
{
	uint8_t piece[16384];

	XXH3_64bits_reset(state);
	for (uint64_t done = 0; done < entry->stored_bytes;) {
		uint64_t rest = entry->stored_bytes - done;
		size_t size = rest < sizeof(piece) ? (size_t)rest : sizeof(piece);
		int r = read_all(container, piece, size, position + done, err);
		if (r < 0)
			return r;
		XXH3_64bits_update(state, piece, size);
		done += size;
	}
	if (XXH3_64bits_digest(state) != entry->hash)
		return damage(container, DAMAGED, err);
	return 0;
}

static int check_sections(const struct hl_container *container, struct hl_error *err)
{
	XXH3_state_t *state = XXH3_createState();

	if (!state)
		return out_of_memory(container, err);
	int r = 0;
	uint64_t position = sizeof(container->header) + table_bytes(&container->header);
	for (uint32_t i = 0; i < container->header.section_count && r == 0; i++) {
		if (!(container->table[i].flags & HL_SECTION_HASHED_WITHIN))
			r = check_section(container, &container->table[i], position, state, err);
		position += container->table[i].stored_bytes;
	}
	XXH3_freeState(state);
	return r;
}

bool hl_container_detect(const uint8_t *bytes, size_t size, uint32_t kind)
{
	uint32_t found;

	size_t at = offsetof(struct hl_container_header, kind);
	if (size < at + sizeof(found) ||
	    memcmp(bytes, container_magic, sizeof(container_magic)) != 0)
		return false;
	memcpy(&found, bytes + at, sizeof(found));
	return found == kind;
}

int hl_container_open_some(struct hl_container *container, int fd, const char *path, uint32_t kind,
			   struct hl_error *err)
{
	*container = (struct hl_container){.fd = fd, .path = path};
	struct stat status;
	if (fstat(fd, &status) < 0)
		return hl_error_set(err, -errno, "cannot read '%s': %s", path, strerror(errno));
	if (!S_ISREG(status.st_mode))
		return damage(container, "it is not a regular file", err);
	int r = read_all(container, &container->header, sizeof(container->header), 0, err);
	if (r == 0)
		r = check_header(container, kind, err);
	if (r == 0)
		r = read_all(container, container->table, table_bytes(&container->header),
			     sizeof(container->header), err);
	if (r == 0)
		r = check_table(container, (uint64_t)status.st_size, err);
	return r;
}

int hl_container_open(struct hl_container *container, int fd, const char *path, uint32_t kind,
		      struct hl_error *err)
{
	int r = hl_container_open_some(container, fd, path, kind, err);

	if (r == 0)
		r = check_sections(container, err);
	container->is_checked = r == 0;
	return r;
}

static const struct hl_section_entry *find_section(const struct hl_container *container,
						   uint32_t type, uint64_t *ret_position)
{
	uint64_t position = sizeof(container->header) + table_bytes(&container->header);

	for (uint32_t i = 0; i < container->header.section_count; i++) {
		if (container->table[i].type == type) {
			*ret_position = position;
			return &container->table[i];
		}
		position += container->table[i].stored_bytes;
	}
	return NULL;
}

static int check_size(const struct hl_container *container, const struct hl_section_entry *entry,
		      size_t max_bytes, struct hl_error *err)
{
	if (entry->flags & ~(uint32_t)(HL_SECTION_ZSTD | HL_SECTION_RELATIVE))
		return damage(container, "a section is stored in an unknown way", err);
	bool compressed = entry->flags & HL_SECTION_ZSTD;
	if (!compressed && entry->raw_bytes != entry->stored_bytes)
		return damage(container, "a section has two lengths", err);
	if (compressed && entry->raw_bytes / ZSTD_RATIO_MAX > entry->stored_bytes)
		return damage(container, "a section claims an impossible length", err);
	if (entry->raw_bytes > max_bytes)
		return damage(container, "a section is longer than its rows", err);
	return 0;
}

int hl_container_load(const struct hl_container *container, uint32_t type, size_t max_bytes,
		      void **ret_bytes, size_t *ret_size, struct hl_error *err)
{
	uint64_t position;

	const struct hl_section_entry *entry = find_section(container, type, &position);
	if (!entry)
		return damage(container, "a section is missing", err);
	int r = check_size(container, entry, max_bytes, err);
	if (r < 0)
		return r;
	HL_FREED char *stored = malloc(entry->stored_bytes + 1), *raw = NULL;
	if (!stored)
		return out_of_memory(container, err);
	r = read_all(container, stored, entry->stored_bytes, position, err);
	if (r < 0)
		return r;
	if (!container->is_checked && XXH3_64bits(stored, entry->stored_bytes) != entry->hash)
		return damage(container, DAMAGED, err);
	if (entry->flags & HL_SECTION_ZSTD) {
		raw = malloc(entry->raw_bytes + 1);
		if (!raw)
			return out_of_memory(container, err);
		if (ZSTD_decompress(raw, entry->raw_bytes, stored, entry->stored_bytes) !=
		    entry->raw_bytes)
			return damage(container, "a section cannot be decompressed", err);
	} else {
		raw = HL_TAKE(stored);
	}
	raw[entry->raw_bytes] = '\0';
	*ret_bytes = HL_TAKE(raw);
	*ret_size = entry->raw_bytes;
	return 0;
}

/* The flags of the first section of ${type}; 0 if there is none. */
static uint32_t container_flags(const struct hl_container *container, uint32_t type)
{
	uint64_t position;
	const struct hl_section_entry *entry = find_section(container, type, &position);

	return entry ? entry->flags : 0;
}

bool hl_container_locate(const struct hl_container *container, uint32_t type, uint64_t *ret_offset,
			 uint64_t *ret_bytes)
{
	const struct hl_section_entry *entry = find_section(container, type, ret_offset);

	if (entry)
		*ret_bytes = entry->stored_bytes;
	return entry;
}

/* ---- columns of structs, which compress far better ---- */

/* Columns are compressed in pieces, which stay in the processor's cache. */
#define PIECE_BYTES 32768

static const struct hl_section_column node_columns[] = {
	HL_COLUMN(hl_recording_node, frame),
	/* Most often the row before. */
	{offsetof(struct hl_recording_node, parent), sizeof(uint32_t), true},
};

static const struct hl_section_column value_columns[] = {
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

static const struct hl_section_column resident_columns[] = {
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
	const struct hl_section_column *chosen = &columns->columns[column];

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
		const struct hl_section_column *column = &columns->columns[c];
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
		const struct hl_section_column *column = &columns->columns[c];
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
		    container_flags(container, type) & HL_SECTION_RELATIVE)
			subtract_from_rows(structs + columns->columns[c].offset,
					   columns->struct_bytes, 0, rows);
	structs -= first * columns->struct_bytes;
	memcpy(ret_structs, &structs, sizeof(structs)); /* the pointer's own type is not known */
	*ret_count = first + rows;
	return 0;
}
