/* SPDX-License-Identifier: BSD-2-Clause */
/* Files of pieces: hashes, windows, frames, indexes; see segment.h. */
#include "log/segment.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "log/events.h"

#define XXH_INLINE_ALL
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- indexes, written as small differences ---- */

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

static int segment_index_read_mark(struct hl_segment_index *index, struct hl_byte_reader *reader)
{
	uint64_t tick = hl_byte_reader_number(reader);
	uint64_t length = hl_byte_reader_number(reader);
	const uint8_t *text = hl_byte_reader_bytes(reader, length);

	return text ? hl_segment_index_add_mark(index, tick, (const char *)text, (size_t)length)
		    : -EBADMSG;
}

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

/* Each element takes a byte at least: a larger count is damage. */
static uint64_t read_count(struct hl_byte_reader *reader)
{
	uint64_t count = hl_byte_reader_number(reader);

	if (count > (uint64_t)(reader->end - reader->at))
		reader->failed = true;
	return reader->failed ? 0 : count;
}

/* Reads an index into the empty ${index}; _mark() adds a single mark. 0, -ENOMEM, or -EBADMSG. */
static int segment_index_read(struct hl_segment_index *index, struct hl_byte_reader *reader)
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
		r = segment_index_read_mark(index, reader);
	return r == 0 && reader->failed ? -EBADMSG : r;
}

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

/* ---- work on several threads, each of which takes the next index ---- */

#define THREADS_MAX 64u

struct crew {
	size_t count;
	hl_parallel_work *work;
	void *context;
	struct hl_progress *progress;
	const char *what;
	pthread_mutex_t lock; /* of what follows */
	size_t next, done;
	size_t failed_at; /* SIZE_MAX: nothing has failed */
	int failure;
};

static void *run(void *context)
{
	struct crew *crew = context;

	pthread_mutex_lock(&crew->lock);
	while (crew->failed_at == SIZE_MAX && crew->next < crew->count) {
		size_t index = crew->next++;
		pthread_mutex_unlock(&crew->lock);
		int result = crew->work(crew->context, index);
		pthread_mutex_lock(&crew->lock);
		crew->done++;
		if (result && index < crew->failed_at) {
			crew->failed_at = index;
			crew->failure = result;
		}
		hl_progress_report(crew->progress, crew->what, crew->done, crew->count);
	}
	pthread_mutex_unlock(&crew->lock);
	return NULL;
}

int hl_parallel(size_t count, const struct hl_log_options *options, const char *what,
		hl_parallel_work *work, void *context)
{
	struct crew crew = {
		.count = count,
		.work = work,
		.context = context,
		.progress = options ? options->progress : NULL,
		.what = what,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.failed_at = SIZE_MAX,
	};
	pthread_t threads[THREADS_MAX];
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	size_t wanted = options && options->jobs ? options->jobs : cores > 0 ? (size_t)cores : 1;
	size_t started = 0;

	if (wanted > THREADS_MAX)
		wanted = THREADS_MAX;
	if (wanted > count)
		wanted = count;
	/* Fewer threads than wanted do the same work, slower. */
	while (started + 1 < wanted && pthread_create(&threads[started], NULL, run, &crew) == 0)
		started++;
	run(&crew);
	for (size_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	return crew.failure;
}

#define WINDOW_BYTES (1u << 20)
#define HASHED_BYTES (16u << 10) /* at once */

/* What begins as a piece nearly always is one; a file made up of lookalikes is not hashed for ever. */
#define LOOKALIKES_MAX 100

/* ---- bytes of the file ---- */

static int read_at(const struct hl_segment *segment, uint64_t offset, void *bytes, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t count = pread(segment->fd, (char *)bytes + done, size - done,
				      (off_t)(segment->offset + offset + done));
		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0)
			return count < 0 ? -errno : -ENODATA;
		done += (size_t)count;
	}
	return 0;
}

/* ${size} bytes at ${offset} in memory until the next call. 0, -ENOMEM, -ENODATA at the end. */
static int look_at(struct hl_segment_cursor *cursor, uint64_t offset, size_t size,
		   const uint8_t **ret_bytes)
{
	if (offset > cursor->segment->size || size > cursor->segment->size - offset)
		return -ENODATA;
	if (offset < cursor->window_offset ||
	    offset + size > cursor->window_offset + cursor->window_size) {
		uint64_t left = cursor->segment->size - offset;
		size_t wanted = size > WINDOW_BYTES ? size : WINDOW_BYTES;
		if (wanted > left)
			wanted = (size_t)left;
		if (wanted > cursor->window_capacity) {
			uint8_t *window = realloc(cursor->window, wanted);
			if (!window)
				return -ENOMEM;
			cursor->window = window;
			cursor->window_capacity = wanted;
		}
		cursor->window_size = 0;
		int r = read_at(cursor->segment, offset, cursor->window, wanted);
		if (r < 0)
			return r;
		cursor->window_offset = offset;
		cursor->window_size = wanted;
	}
	*ret_bytes = cursor->window + (offset - cursor->window_offset);
	return 0;
}

/* ---- pieces ---- */

void hl_segment_cursor_init(struct hl_segment_cursor *cursor, const struct hl_segment *segment,
			    uint64_t offset)
{
	*cursor = (struct hl_segment_cursor){.segment = segment, .offset = offset};
}

void hl_segment_cursor_release(struct hl_segment_cursor *cursor)
{
	ZSTD_freeDCtx(cursor->stream);
	free(cursor->window);
	hl_byte_buffer_release(&cursor->raw);
	*cursor = (struct hl_segment_cursor){0};
}

/* 0, -ENOMEM, or -EBADMSG when the payload is not what its header says. */
static int unpack(struct hl_segment_cursor *cursor, const struct hl_piece_header *header,
		  const uint8_t *payload)
{
	ZSTD_inBuffer in = {payload, header->stored_bytes, 0};

	if (header->flags & HL_PIECE_FRAME) {
		if (!cursor->stream)
			cursor->stream = ZSTD_createDCtx();
		if (!cursor->stream)
			return -ENOMEM;
		ZSTD_DCtx_reset(cursor->stream, ZSTD_reset_session_only);
		cursor->in_frame = true;
	}
	if (!cursor->in_frame)
		return -EBADMSG;
	hl_byte_buffer_clear(&cursor->raw);
	uint8_t *bytes = hl_byte_buffer_reserve(&cursor->raw, (size_t)header->raw_bytes + 1);
	if (!bytes)
		return -ENOMEM;
	ZSTD_outBuffer out = {bytes, header->raw_bytes, 0};
	size_t before;
	do {
		before = out.pos + in.pos;
		size_t left = ZSTD_decompressStream(cursor->stream, &out, &in);
		if (ZSTD_isError(left))
			return -EBADMSG;
	} while (in.pos < in.size && out.pos + in.pos > before);
	if (in.pos < in.size || out.pos != header->raw_bytes)
		return -EBADMSG;
	cursor->raw.size = out.pos;
	return 0;
}

int hl_segment_next(struct hl_segment_cursor *cursor, uint32_t *ret_kind,
		    struct hl_byte_reader *ret_content)
{
	struct hl_piece_header header;
	const uint8_t *bytes;

	int r = look_at(cursor, cursor->offset, sizeof(header), &bytes);
	if (r < 0)
		return r == -ENODATA ? 0 : r;
	memcpy(&header, bytes, sizeof(header));
	if (header.flags & ~(uint32_t)HL_PIECE_FRAME || header.stored_bytes > HL_PIECE_BYTES_MAX ||
	    header.raw_bytes > HL_PIECE_BYTES_MAX)
		return 0;
	r = look_at(cursor, cursor->offset + sizeof(header), header.stored_bytes, &bytes);
	if (r < 0)
		return r == -ENODATA ? 0 : r;
	XXH64_hash_t seed = XXH3_64bits(&header, offsetof(struct hl_piece_header, hash));
	if (header.hash != XXH3_64bits_withSeed(bytes, header.stored_bytes, seed))
		return 0;
	r = unpack(cursor, &header, bytes);
	if (r < 0)
		return r == -EBADMSG ? 0 : r;
	cursor->offset += sizeof(header) + header.stored_bytes;
	*ret_kind = header.kind;
	*ret_content = (struct hl_byte_reader){.at = cursor->raw.bytes,
					       .end = cursor->raw.bytes + cursor->raw.size};
	return 1;
}

/* ---- damage ---- */

/* Whether there is a piece at ${offset}, if ${stored} bytes of it are stored. 1, 0, or what reading
 * returns. */
static int is_piece(const struct hl_segment *segment, uint64_t offset, uint64_t stored)
{
	struct hl_piece_header header;
	uint8_t bytes[HASHED_BYTES];
	XXH3_state_t state;

	int r = read_at(segment, offset, &header, sizeof(header));
	if (r < 0)
		return r;
	header.stored_bytes = (uint32_t)stored;
	XXH3_64bits_reset_withSeed(&state,
				   XXH3_64bits(&header, offsetof(struct hl_piece_header, hash)));
	for (uint64_t at = offset + sizeof(header); r == 0 && stored;) {
		size_t size = stored < sizeof(bytes) ? (size_t)stored : sizeof(bytes);
		r = read_at(segment, at, bytes, size);
		if (r == 0)
			XXH3_64bits_update(&state, bytes, size);
		at += size;
		stored -= size;
	}
	return r < 0 ? r : header.hash == XXH3_64bits_digest(&state);
}

static bool is_known(uint32_t kind)
{
	return kind == HL_PIECE_CHECKPOINT || kind == HL_PIECE_INTERVAL || kind == HL_PIECE_MARK ||
	       kind == HL_PIECE_INDEX || kind == HL_PIECE_EVENTS || kind == HL_PIECE_END;
}

/* Whether there is damage from the cursor on: there must be a piece or a part of one. It is not part
 * if another piece follows, or if it would be a piece but for its length. 1, 0 or a negative errno. */
static int find_damage(struct hl_segment_cursor *cursor)
{
	const struct hl_segment *segment = cursor->segment;
	struct hl_piece_header header;
	unsigned lookalikes = 0;
	const uint8_t *bytes;

	for (uint64_t at = cursor->offset;
	     segment->size - at >= sizeof(header) && lookalikes < LOOKALIKES_MAX; at++) {
		uint64_t left = segment->size - at - sizeof(header);
		int r = look_at(cursor, at, sizeof(header), &bytes);
		if (r < 0)
			return r;
		memcpy(&header, bytes, sizeof(header));
		bool is_whole = header.stored_bytes <= left;
		if (at > cursor->offset && (!is_whole || !is_known(header.kind)))
			continue;
		r = is_piece(segment, at, is_whole ? header.stored_bytes : left);
		if (r >= 0 && at == cursor->offset && is_whole)
			return !r;
		if (r != 0)
			return r;
		lookalikes++;
	}
	return 0;
}

int hl_segment_look_for_damage(struct hl_segment *segment, uint64_t offset)
{
	struct hl_segment_cursor cursor;
	uint64_t last = 1;

	int r = read_at(segment, segment->size - sizeof(last), &last, sizeof(last));
	segment->unwritten = !last;
	if (r == 0 && last) {
		hl_segment_cursor_init(&cursor, segment, offset);
		r = find_damage(&cursor);
		hl_segment_cursor_release(&cursor);
	}
	segment->damaged = r > 0;
	return r == -ENODATA || r > 0 ? 0 : r; /* it was cut off just now */
}

/* ---- the index of a file ---- */

/* 1, 0 when there is no (whole) index, or -ENOMEM. */
static int load_index(struct hl_segment *segment)
{
	struct hl_segment_trailer trailer;
	struct hl_segment_cursor cursor;
	struct hl_byte_reader content;
	uint32_t kind;

	if (segment->size < sizeof(segment->header) + sizeof(trailer) ||
	    read_at(segment, segment->size - sizeof(trailer), &trailer, sizeof(trailer)) < 0 ||
	    memcmp(trailer.magic, HL_SEGMENT_MAGIC, sizeof(trailer.magic)) != 0 ||
	    trailer.hash != XXH3_64bits(&trailer, offsetof(struct hl_segment_trailer, hash)))
		return 0;
	hl_segment_cursor_init(&cursor, segment, trailer.index_offset);
	int r = hl_segment_next(&cursor, &kind, &content);
	if (r > 0)
		r = kind == HL_PIECE_INDEX ? segment_index_read(&segment->index, &content)
					   : -EBADMSG;
	hl_segment_cursor_release(&cursor);
	if (r == 0)
		return 1;
	hl_segment_index_clear(&segment->index);
	return r == -ENOMEM ? r : 0;
}

struct walk {
	struct hl_segment *segment;
	struct hl_segment_cursor cursor;
	struct hl_segment_interval interval;
	struct hl_log_state *state; /* for the names alone */
	uint64_t missing_before;    /* the last interval */
	bool any;		    /* a checkpoint was there */
};

static int walk_interval(struct walk *walk, struct hl_byte_reader *content)
{
	struct hl_segment_index *index = &walk->segment->index;

	int r = hl_log_state_read_interval(content, walk->state, &walk->interval);
	if (r < 0)
		return r;
	struct hl_log_point point = {
		.number = walk->interval.interval.number,
		.max_bytes = walk->interval.interval.max_bytes,
		.end_bytes = walk->interval.interval.end_bytes,
		.rss_bytes = walk->interval.rss_bytes,
		.missing = index->missing_count != walk->missing_before,
	};
	if (!walk->any ||
	    (index->point_count && point.number <= index->points[index->point_count - 1].number))
		return -EBADMSG;
	walk->missing_before = index->missing_count;
	index->lost_events = walk->interval.lost_events;
	return hl_segment_index_add_point(index, &point);
}

/* 0 for a piece of a later version, too. */
static int walk_piece(struct walk *walk, uint32_t kind, struct hl_byte_reader *content,
		      uint64_t offset)
{
	struct hl_segment_index *index = &walk->segment->index;
	struct hl_segment_checkpoint_head head;

	if (kind == HL_PIECE_INTERVAL)
		return walk_interval(walk, content);
	if (kind == HL_PIECE_MARK)
		return segment_index_read_mark(index, content);
	if (kind != HL_PIECE_CHECKPOINT)
		return 0;
	int r = hl_log_state_read_checkpoint(content, walk->state, &head);
	if (r < 0)
		return r;
	if (!walk->any)
		walk->missing_before = walk->segment->missing_before = head.missing_count;
	walk->any = true;
	index->missing_count = head.missing_count;
	return hl_segment_index_add_checkpoint(index, head.next_interval, offset);
}

/* Makes the index of a segment that was cut off, up to the first damaged piece. 0 or -ENOMEM. */
static int walk_pieces(struct hl_segment *segment)
{
	struct walk walk = {.segment = segment};
	struct hl_byte_reader content;
	uint32_t kind = 0;

	int r = hl_log_state_new(&walk.state);
	if (r < 0)
		return r;
	hl_segment_cursor_init(&walk.cursor, segment, sizeof(segment->header));
	do {
		uint64_t offset = walk.cursor.offset;
		r = hl_segment_next(&walk.cursor, &kind, &content);
		if (r <= 0)
			break;
		r = walk_piece(&walk, kind, &content, offset);
	} while (r == 0);
	uint64_t end = walk.cursor.offset;
	/* What follows an index, and is as long as its trailer, is one. */
	bool is_damaged =
		r == -EBADMSG || (kind == HL_PIECE_INDEX &&
				  segment->size - end == sizeof(struct hl_segment_trailer));
	hl_segment_cursor_release(&walk.cursor);
	hl_log_state_free(walk.state);
	free(walk.interval.changes);
	if (r != -ENOMEM)
		r = hl_segment_look_for_damage(segment, end);
	segment->damaged |= is_damaged;
	return r == -ENOMEM ? r : 0;
}

int hl_segment_read_index(struct hl_segment *segment, struct hl_error *err)
{
	int r = load_index(segment);

	segment->cut_off = r == 0;
	if (r == 0)
		r = walk_pieces(segment);
	if (r < 0)
		return hl_error_set(err, -ENOMEM, "cannot read '%s': out of memory", segment->path);
	if (!segment->index.checkpoint_count)
		return hl_error_set(err, -ENODATA,
				    "cannot use '%s': it was cut off before its first checkpoint",
				    segment->path);
	return 0;
}

/* ---- the file ---- */

/*
 * Opens ${file} of ${place} and finds its index, or its parts. 0 or a negative errno with a
 * sentence; -EBADMSG where it is damaged, -ENODATA where it was cut off before its first
 * checkpoint. Release in any case.
 */
static int segment_open(struct hl_segment *segment, const struct hl_log_place *place,
			const struct hl_log_file *file, struct hl_error *err)
{
	struct hl_log_extent extent;

	*segment = (struct hl_segment){.path = strdup(file->name), .fd = -1};
	if (!segment->path)
		return hl_error_set(err, -ENOMEM, "out of memory");
	int r = hl_log_place_open(place, file, &extent);
	if (r == -EBADMSG)
		return hl_error_set(err, r, "cannot use '%s': it is not a regular file",
				    file->name);
	if (r < 0)
		return hl_error_set(err, r, "cannot open '%s': %s", file->name, strerror(-r));
	segment->fd = extent.fd;
	segment->offset = extent.offset;
	segment->size = extent.bytes;
	r = segment->size < sizeof(segment->header)
		    ? -ENODATA
		    : read_at(segment, 0, &segment->header, sizeof(segment->header));
	if (r == -ENODATA)
		return hl_error_set(err, r, "cannot use '%s': it was cut off in its header",
				    file->name);
	if (r < 0)
		return hl_error_set(err, r, "cannot read '%s': %s", file->name, strerror(-r));
	const char *wrong = hl_log_files_check_header(file->kind, file->process, &segment->header);
	if (!wrong && segment->header.number != file->number)
		wrong = "it is of another number than its name says";
	if (wrong)
		return hl_error_set(err, -EBADMSG, "cannot use '%s': %s", file->name, wrong);
	return file->kind->read(segment, err);
}

void hl_segment_release(struct hl_segment *segment)
{
	if (segment->fd >= 0)
		close(segment->fd);
	free(segment->path);
	free(segment->parts);
	hl_segment_index_release(&segment->index);
	*segment = (struct hl_segment){.fd = -1};
}

/* ---- the files of a log ---- */

struct opening {
	const struct hl_log_place *place;
	const struct hl_log_file **files;
	struct hl_segment_run *run;
};

static int open_one(void *context, size_t index)
{
	const struct opening *opening = context;
	struct hl_segment_found *found = &opening->run->files[index];

	found->result =
		segment_open(&found->segment, opening->place, opening->files[index], &found->err);
	return found->result == -ENOMEM ? -ENOMEM : 0;
}

/* A damaged file, or one that is gone, is not foreign: opening it says what is wrong. */
static bool is_foreign(const struct hl_log_place *place, const struct hl_log_file *file,
		       uint64_t start_realtime_ns)
{
	struct hl_segment_header header;
	struct hl_log_extent extent;

	if (hl_log_place_open(place, file, &extent) < 0)
		return false;
	bool is_whole =
		extent.bytes >= sizeof(header) &&
		pread(extent.fd, &header, sizeof(header), (off_t)extent.offset) == sizeof(header) &&
		!hl_log_files_check_header(file->kind, header.process, &header);
	close(extent.fd);
	return is_whole && header.start_realtime_ns != start_realtime_ns;
}

int hl_segment_run_open(struct hl_segment_run *run, const struct hl_log_place *place,
			const struct hl_log_file_kind *kind, uint32_t process,
			const struct hl_log_options *options, struct hl_error *err)
{
	uint64_t start_realtime_ns = options ? options->start_realtime_ns : 0;
	size_t count, last = 0, first;
	const struct hl_log_file *all = hl_log_place_find(place, kind, process, &count);
	HL_FREED const struct hl_log_file **files = calloc(count + 1, sizeof(*files));

	if (!files)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		if (!start_realtime_ns || !is_foreign(place, &all[i], start_realtime_ns))
			files[last++] = &all[i];
		else if (!run->foreign_count++)
			strcpy(run->foreign_name, all[i].name);
	}
	if (!last && run->foreign_count)
		return hl_error_set(err, -EBADMSG,
				    "cannot use the %s in '%s': every file is of another recording",
				    kind->name, place->path);
	if (!last)
		return hl_error_set(err, -ENOENT,
				    "'%s' holds no %s of this process; 'heapline record %s' keeps "
				    "%s",
				    place->path, kind->name, kind->record_options, kind->pronoun);
	for (first = last - 1; first > 0; first--)
		if (files[first - 1]->number + 1 != files[first]->number)
			break;
	run->ignored_count = (uint32_t)first;
	run->files = calloc(last - first, sizeof(*run->files));
	if (!run->files)
		return -ENOMEM;
	run->count = last - first;
	for (size_t i = 0; i < run->count; i++)
		run->files[i].segment.fd = -1;
	struct opening opening = {place, files + first, run};
	return hl_parallel(run->count, options, kind->reading, open_one, &opening);
}

void hl_segment_run_release(struct hl_segment_run *run)
{
	for (size_t i = 0; i < run->count; i++)
		hl_segment_release(&run->files[i].segment);
	free(run->files);
	*run = (struct hl_segment_run){0};
}
