/* SPDX-License-Identifier: BSD-2-Clause */
/* Decodes events; files of events as one log, and their parts. See events.h. */
#include "base/array.h"
#include "base/compiler.h"
#include "log/events.h"
#include "log/log.h"
#include "log/segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- decoding: columns into events ---- */

/* What is left to read of the allocations, or of the frees. */
struct column {
	const uint8_t *low, *high;
	struct hl_byte_reader sizes;
};

struct columns {
	uint32_t count;				      /* events in all */
	struct hl_byte_reader threads, ticks, counts; /* of runs; checked */
	uint64_t run_count;
	const uint8_t *is_free, *has_size;
	struct column of[2]; /* [1]: frees */
};

/* Skips a column of ${count} numbers below ${limit}. */
static int pass_numbers(struct hl_byte_reader *content, uint64_t count, uint64_t limit)
{
	for (uint64_t i = 0; i < count; i++)
		if (hl_byte_reader_number(content) >= limit || content->failed)
			return -EBADMSG;
	return 0;
}

/* How many of the first ${count} bits are set. */
static uint32_t count_bits(const uint8_t *bits, uint32_t count)
{
	uint32_t set = 0;

	for (uint32_t i = 0; i < count / 8; i++)
		set += (uint32_t)__builtin_popcount(bits[i]);
	if (count % 8)
		set += (uint32_t)__builtin_popcount(bits[count / 8] & ((1u << count % 8) - 1));
	return set;
}

static void find_sizes(struct hl_byte_reader *content, struct column *column)
{
	uint64_t bytes = hl_byte_reader_number(content);
	const uint8_t *sizes = hl_byte_reader_bytes(content, bytes);

	if (sizes)
		column->sizes = (struct hl_byte_reader){.at = sizes, .end = sizes + bytes};
}

static int find_columns(struct hl_byte_reader *content, struct columns *columns)
{
	columns->run_count = hl_byte_reader_number(content);
	columns->threads = *content;
	if (pass_numbers(content, columns->run_count, 2 * HL_THREADS_MAX) < 0)
		return -EBADMSG;
	columns->ticks = *content;
	if (pass_numbers(content, columns->run_count, UINT64_MAX) < 0)
		return -EBADMSG;
	columns->counts = *content;
	for (uint64_t i = 0; i < columns->run_count; i++) {
		uint64_t events = hl_byte_reader_number(content);
		if (content->failed || events > HL_EVENTS_MAX - columns->count)
			return -EBADMSG;
		columns->count += (uint32_t)events;
	}
	if (content->failed)
		return -EBADMSG;
	uint32_t bits = (columns->count + 7) / 8;
	columns->is_free = hl_byte_reader_bytes(content, bits);
	columns->has_size = hl_byte_reader_bytes(content, bits);
	if (content->failed)
		return -EBADMSG;
	uint32_t frees = count_bits(columns->is_free, columns->count);
	uint32_t allocs = columns->count - frees;
	columns->of[0].low = hl_byte_reader_bytes(content, 2 * (uint64_t)allocs);
	columns->of[1].low = hl_byte_reader_bytes(content, 2 * (uint64_t)frees);
	columns->of[0].high = hl_byte_reader_bytes(content, allocs);
	columns->of[1].high = hl_byte_reader_bytes(content, frees);
	find_sizes(content, &columns->of[0]);
	find_sizes(content, &columns->of[1]);
	return content->failed ? -EBADMSG : 0;
}

/* Takes the size from among the sizes; the node's next event has it, too. */
static int take_size(struct column *column, uint64_t *last_size, struct hl_event *event)
{
	uint64_t size = hl_byte_reader_number(&column->sizes);

	if (size) {
		*last_size = size - 1;
		event->bytes = (int64_t)(size - 1);
	} else {
		event->bytes = (int64_t)hl_byte_reader_number(&column->sizes);
		event->objects = (int64_t)hl_byte_reader_number(&column->sizes);
	}
	return column->sizes.failed || event->bytes < 0 || event->objects < 0 ? -EBADMSG : 0;
}

static bool bit_at(const uint8_t *bits, uint32_t index)
{
	return bits[index / 8] >> index % 8 & 1;
}

static inline int take_event(struct hl_event_decoder *decoder, struct columns *columns,
			     uint32_t index, struct hl_event *event)
{
	bool is_free = bit_at(columns->is_free, index);
	struct column *column = &columns->of[is_free];
	uint16_t low;

	memcpy(&low, column->low, sizeof(low));
	column->low += sizeof(low);
	uint32_t node = (uint32_t)*column->high++ << 16 | low;
	if (HL_UNLIKELY(node >= decoder->last_size_capacity) &&
	    HL_ARRAY_RESERVE_ZEROED(decoder->last_sizes, decoder->last_size_capacity,
				    (size_t)node + 1) < 0)
		return -ENOMEM;
	uint64_t *last_size = &decoder->last_sizes[node];
	*event = (struct hl_event){(int64_t)*last_size, 1, node, is_free};
	if (bit_at(columns->has_size, index) && take_size(column, last_size, event) < 0)
		return -EBADMSG;
	if (is_free) {
		event->bytes = -event->bytes;
		event->objects = -event->objects;
	}
	return HL_LIKELY(node) ? 0 : -EBADMSG;
}

/* The next run of all; its events are counted to its thread. */
static void take_run(struct hl_event_decoder *decoder, struct columns *columns,
		     struct hl_event_run *run)
{
	uint64_t thread = hl_byte_reader_number(&columns->threads);

	run->thread = (uint32_t)(thread >> 1);
	run->unordered = thread & 1;
	run->tick += hl_byte_reader_number(&columns->ticks);
	run->count = hl_byte_reader_number(&columns->counts);
	run->events = decoder->events + decoder->places[run->thread];
	decoder->places[run->thread] += (uint32_t)run->count;
}

/* Finds where the events of each thread begin. ${columns} by value: the runs are taken again. */
static void find_places(struct hl_event_decoder *decoder, struct columns columns)
{
	struct hl_event_run run = {0};
	uint32_t before = 0;

	memset(decoder->places, 0, sizeof(decoder->places));
	for (uint64_t i = 0; i < columns.run_count; i++)
		take_run(decoder, &columns, &run);
	for (uint32_t i = 0; i < HL_THREADS_MAX; i++) {
		uint32_t events = decoder->places[i];
		decoder->places[i] = before;
		before += events;
	}
}

int hl_event_decoder_read(struct hl_event_decoder *decoder, struct hl_byte_reader *content,
			  hl_event_visit *visit, void *context)
{
	struct columns columns = {0};
	struct hl_event_run run = {0};
	int r = find_columns(content, &columns);

	for (uint32_t i = 0; r == 0 && i < columns.count; i++)
		r = take_event(decoder, &columns, i, &decoder->events[i]);
	if (r < 0)
		return r;
	find_places(decoder, columns);
	for (uint64_t i = 0; r == 0 && i < columns.run_count; i++) {
		take_run(decoder, &columns, &run);
		if (run.count)
			r = visit(context, &run);
	}
	return r;
}

void hl_event_decoder_begin(struct hl_event_decoder *decoder)
{
	if (decoder->last_size_capacity)
		memset(decoder->last_sizes, 0,
		       decoder->last_size_capacity * sizeof(*decoder->last_sizes));
}

static void event_decoder_release(struct hl_event_decoder *decoder)
{
	free(decoder->last_sizes);
	decoder->last_sizes = NULL;
	decoder->last_size_capacity = 0;
}

/* ---- opening a file ---- */

/* False when there is no whole piece at ${offset}. */
static bool read_piece_header(const struct hl_segment *segment, uint64_t offset,
			      struct hl_piece_header *ret_header)
{
	/* The file may have grown since its size was looked up. */
	if (offset > segment->size || sizeof(*ret_header) > segment->size - offset ||
	    pread(segment->fd, ret_header, sizeof(*ret_header),
		  (off_t)(segment->offset + offset)) != sizeof(*ret_header) ||
	    !ret_header->kind || ret_header->stored_bytes > HL_PIECE_BYTES_MAX)
		return false;
	return ret_header->stored_bytes <= segment->size - offset - sizeof(*ret_header);
}

/* Reads the numbers at the beginning of a checkpoint, or of the end. 1; 0 when it is not whole; or
 * a negative errno. */
static int read_numbers(const struct hl_segment *segment, uint64_t offset, unsigned count,
			uint64_t *ret_numbers)
{
	struct hl_segment_cursor cursor;
	struct hl_byte_reader content;
	uint32_t kind;

	hl_segment_cursor_init(&cursor, segment, offset);
	int r = hl_segment_next(&cursor, &kind, &content);
	for (unsigned i = 0; r > 0 && i < count; i++)
		ret_numbers[i] = hl_byte_reader_number(&content);
	if (r > 0 && content.failed)
		r = 0;
	hl_segment_cursor_release(&cursor);
	return r;
}

static int fail(const struct hl_segment *file, int code, struct hl_error *err)
{
	if (code == -ENOMEM)
		return hl_error_set(err, code, "cannot read '%s': out of memory", file->path);
	return hl_error_set(err, code, "cannot read '%s': %s", file->path,
			    code == -EBADMSG ? "it is damaged" : strerror(-code));
}

/* Finds the parts by the headers of their pieces; what these hold is checked when it is read. */
int hl_event_log_find_parts(struct hl_segment *file, struct hl_error *err)
{
	uint64_t offset = sizeof(file->header), last = offset;
	struct hl_piece_header header;
	uint64_t numbers[2] = {0};
	int r = 1;

	file->cut_off = true;
	while (r > 0 && file->cut_off && read_piece_header(file, offset, &header)) {
		if (header.kind == HL_PIECE_CHECKPOINT) {
			r = read_numbers(file, offset, 2, numbers);
			struct hl_event_part part = {.offset = offset,
						     .end = offset,
						     .first_interval = numbers[0],
						     .missing_events = numbers[1]};
			if (r > 0 && HL_ARRAY_APPEND(file->parts, file->part_count,
						     file->part_capacity, part) < 0)
				r = -ENOMEM;
			if (r > 0)
				file->missing_events = numbers[1];
		} else if (!file->part_count) {
			r = 0;
		} else if (header.kind == HL_PIECE_END) {
			r = read_numbers(file, offset, 1, &file->missing_events);
			file->cut_off = r <= 0;
		}
		last = offset;
		offset += sizeof(header) + header.stored_bytes;
		if (r > 0)
			file->parts[file->part_count - 1].end = offset;
	}
	if (r >= 0 && file->cut_off)
		r = hl_segment_look_for_damage(file,
					       r == 0 || offset == file->size ? last : offset);
	if (r == 0 && file->damaged && !file->part_count)
		r = -EBADMSG;
	if (r < 0)
		return fail(file, r, err);
	if (!file->part_count)
		return hl_error_set(err, -ENODATA,
				    "cannot use '%s': it was cut off before its first checkpoint",
				    file->path);
	file->torn = file->parts[file->part_count - 1].end != file->size;
	return 0;
}

/* ---- the files as one log ---- */

static int take_file(struct hl_event_log *log, struct hl_segment *file, size_t *capacity,
		     struct hl_error *err)
{
	if (HL_ARRAY_RESERVE(log->parts, *capacity, log->part_count + file->part_count) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < file->part_count; i++) {
		struct hl_event_part part = file->parts[i];
		part.file = log->file_count;
		/* Only damage makes time run back. */
		if (log->part_count &&
		    part.first_interval <= log->parts[log->part_count - 1].first_interval)
			return hl_error_set(err, -EBADMSG,
					    "cannot use '%s': it contradicts itself; it is damaged",
					    file->path);
		log->parts[log->part_count++] = part;
	}
	log->start_realtime_ns = file->header.start_realtime_ns;
	log->file_bytes += file->size;
	log->missing_events = file->missing_events;
	log->cut_off = file->cut_off;
	log->damaged = file->damaged ? file->path : NULL;
	log->files[log->file_count++] = *file;
	*file = (struct hl_segment){.fd = -1};
	return 0;
}

/* Uses the newest run without a damaged file; the newest file may hold nothing whole yet. */
static int use_files(struct hl_event_log *log, struct hl_segment_run *run, struct hl_error *err)
{
	struct hl_segment_found *files = run->files;
	size_t last = run->count, first, part_capacity = 0;
	int r = 0;

	log->files = calloc(run->count, sizeof(*log->files));
	if (!log->files)
		return -ENOMEM;
	if (last > 1 && files[last - 1].result == -ENODATA)
		last--;
	if (files[last - 1].result < 0)
		return hl_error_set(err, files[last - 1].result, "%s", files[last - 1].err.text);
	/* Only the newest file can have been cut off. */
	for (first = last - 1; first > 0; first--)
		if (files[first - 1].result < 0 || files[first - 1].segment.torn)
			break;
	log->foreign_count = run->foreign_count;
	strcpy(log->foreign_name, run->foreign_name);
	log->ignored_count = run->ignored_count + (uint32_t)first;
	for (size_t i = first; r == 0 && i < last; i++)
		r = take_file(log, &files[i].segment, &part_capacity, err);
	log->cut_off |= last < run->count;
	return r;
}

int hl_event_log_open(struct hl_log_place *place, uint32_t process,
		      const struct hl_log_options *options, struct hl_event_log **ret_log,
		      struct hl_error *err)
{
	struct hl_segment_run run = {0};
	struct hl_event_log *log = calloc(1, sizeof(*log));

	int r = log ? hl_log_place_list(place) : -ENOMEM;
	if (r < 0 && r != -ENOMEM)
		hl_error_set(err, r, "cannot open '%s': %s", place->path, strerror(-r));
	if (r == 0)
		r = hl_segment_run_open(&run, place, &hl_log_event_files, process, options, err);
	if (r == 0) {
		log->process = process;
		r = use_files(log, &run, err);
	}
	hl_segment_run_release(&run);
	if (r == 0) {
		*ret_log = log;
		return 0;
	}
	hl_event_log_free(log);
	return r == -ENOMEM ? hl_error_set(err, r, "cannot read the events in '%s': out of memory",
					   place->path)
			    : r;
}

void hl_event_log_free(struct hl_event_log *log)
{
	if (!log)
		return;
	for (uint32_t i = 0; i < log->file_count; i++)
		hl_segment_release(&log->files[i]);
	free(log->files);
	free(log->parts);
	free(log);
}

size_t hl_event_log_find(const struct hl_event_log *log, uint64_t number)
{
	size_t after = HL_LOWER_BOUND(i, log->part_count, log->parts[i].first_interval <= number);

	return after ? after - 1 : 0;
}

/* ---- reading parts ---- */

struct reading {
	const struct hl_event_log *log;
	const struct hl_event_fold *fold;
	size_t first;		 /* part */
	struct hl_error *errors; /* of each part from there on */
};

/* One part. */
struct part_reading {
	const struct reading *reading;
	size_t part;
	struct hl_segment_cursor cursor;
	struct hl_log_state *state;
	struct hl_event_decoder *decoder;
	uint64_t last_tick;
	bool stopped; /* the fold has ended the reading */
};

/* Each run is checked against the part, so that time never runs backwards for the caller. */
static int visit_run(void *context, const struct hl_event_run *run)
{
	struct part_reading *reader = context;
	const struct hl_event_fold *fold = reader->reading->fold;

	if (run->tick < reader->last_tick)
		return -EBADMSG;
	reader->last_tick = run->tick;
	int r = fold->visit ? fold->visit(fold->context, reader->part, run) : 0;
	reader->stopped = r != 0;
	return r;
}

static int read_piece(struct part_reading *reader, uint32_t kind, struct hl_byte_reader *content)
{
	const struct hl_event_fold *fold = reader->reading->fold;
	struct hl_segment_checkpoint_head head;
	int r;

	switch (kind) {
	case HL_PIECE_CHECKPOINT:
		r = hl_log_state_read_checkpoint(content, reader->state, &head);
		if (r < 0)
			return r;
		reader->last_tick = head.next_interval * HL_INTERVAL_TICKS;
		hl_event_decoder_begin(reader->decoder);
		r = fold->begin ? fold->begin(fold->context, reader->part, reader->state) : 0;
		reader->stopped = r != 0;
		return r;
	case HL_PIECE_EVENTS:
		r = hl_log_state_read_names(content, reader->state);
		return r < 0 ? r
			     : hl_event_decoder_read(reader->decoder, content, visit_run, reader);
	default:
		return 0; /* of a later version */
	}
}

/* A part that ends early is damaged; whether the last one is was found out before, or it cannot be
 * told, because its end was not written. */
static int read_pieces(struct part_reading *reader)
{
	const struct hl_event_log *log = reader->reading->log;
	const struct hl_event_fold *fold = reader->reading->fold;
	const struct hl_event_part *part = &log->parts[reader->part];
	const struct hl_segment *file = &log->files[part->file];
	struct hl_byte_reader content;
	uint32_t kind;
	int r = 0;

	while (r == 0 && reader->cursor.offset < part->end) {
		r = hl_segment_next(&reader->cursor, &kind, &content);
		if (r == 0 && (file->damaged || file->unwritten) &&
		    reader->part + 1 == log->part_count)
			break;
		if (r == 0)
			return -EBADMSG;
		if (r > 0)
			r = read_piece(reader, kind, &content);
	}
	if (r == 0 && fold->end) {
		r = fold->end(fold->context, reader->part, reader->state);
		reader->stopped = r != 0;
	}
	return r;
}

static int read_part(void *context, size_t index)
{
	const struct reading *reading = context;
	struct part_reading reader = {.reading = reading, .part = reading->first + index};
	const struct hl_event_part *part = &reading->log->parts[reader.part];
	const struct hl_segment *file = &reading->log->files[part->file];

	hl_segment_cursor_init(&reader.cursor, file, part->offset);
	reader.decoder = calloc(1, sizeof(*reader.decoder));
	int r = reader.decoder ? hl_log_state_new(&reader.state) : -ENOMEM;
	if (r == 0)
		r = read_pieces(&reader);
	if (r < 0 && !reader.stopped)
		r = fail(file, r, &reading->errors[index]);
	if (reader.decoder)
		event_decoder_release(reader.decoder);
	free(reader.decoder);
	hl_log_state_free(reader.state);
	hl_segment_cursor_release(&reader.cursor);
	return r;
}

int hl_event_log_read(const struct hl_event_log *log, size_t first, size_t last,
		      const struct hl_log_options *options, const struct hl_event_fold *fold,
		      struct hl_error *err)
{
	size_t count = last - first + 1;
	struct reading reading = {
		.log = log,
		.fold = fold,
		.first = first,
		.errors = calloc(count, sizeof(*reading.errors)),
	};

	if (!reading.errors)
		return hl_error_set(err, -ENOMEM, "cannot read events: out of memory");
	int r = hl_parallel(count, options, "reading events", read_part, &reading);
	size_t at = 0; /* of the first part with a sentence */
	while (at < count && !reading.errors[at].text[0])
		at++;
	if (r < 0 && err && at < count)
		*err = reading.errors[at];
	free(reading.errors);
	return r;
}

int hl_event_log_read_range(const struct hl_event_log *log, const struct hl_event_range *range,
			    const struct hl_log_options *options, const struct hl_event_fold *fold,
			    struct hl_error *err)
{
	size_t first = hl_event_log_find(log, range->first / HL_INTERVAL_TICKS);
	size_t last = hl_event_log_find(log, (range->end - 1) / HL_INTERVAL_TICKS);

	return hl_event_log_read(log, first, last, options, fold, err);
}
