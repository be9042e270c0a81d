/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files that hold every event of one process, beside its log: their format, writing and reading.
 *
 * A file has the header and the pieces of log.h; docs/format.md describes it. It begins with
 * a checkpoint (as a segment's, with missing events instead of missing intervals); others follow,
 * each before the first event of an interval. From one checkpoint to the next lies a part, which is
 * read alone. Events follow the checkpoint in pieces of up to HL_EVENTS_MAX, by kind and by thread,
 * so that similar numbers are neighbours and compress well:
 *
 *	names	      new modules and nodes, as in an interval of the log
 *	runs	      their number; then of each twice its thread slot, plus 1 where its order
 *		      among other threads' runs is unknown; of each the ticks since the run
 *		      before (of the first: since tick 0); of each its number of events
 *
 * and then of all events, first those of the lowest thread slot in their order, and so on:
 *
 *	is free	      one bit for each event, from the lowest of each byte on
 *	has size      one bit for each: 1 where the size is among the sizes, 0 where it is that of
 *		      the node's previous event in this part
 *	nodes	      of allocations, then of frees: the lower 16 bits of each, then bits 16 to 23
 *	sizes	      of allocations, then of frees, each list after its length in bytes: size + 1;
 *		      or 0, bytes and objects where the event is not one block of a common size,
 *		      which does not count as the node's previous size
 */
#pragma once

#include "base/compiler.h"
#include "log/log.h"
#include "log/log_writer.h"
#include "log/segment.h"
#include "region/region.h"
#include "region/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hl_event_piece_kind {
	HL_PIECE_EVENTS = HL_SEGMENT_FOURCC('E', 'V', 'N', 'T'),
	/* The events that are missing so far, as a number. */
	HL_PIECE_END = HL_SEGMENT_FOURCC('E', 'N', 'D', 'E'),
};

#define HL_EVENTS_MAX	  65536u /* in a piece */
#define HL_EVENT_NODE_MAX ((UINT32_C(1) << 24) - 1)

/* ---- batches: events on their way from the rings to a file, as they were merged ---- */

#define HL_EVENT_RUNS_MAX     (HL_EVENTS_MAX / 2)
#define HL_EVENT_EXTENDED_MAX 1024u

/* An event as a word: its node, its size from bit 24 on; see also HL_EVENT_EXTENDED. */
#define HL_EVENT_FREE	  (UINT64_C(1) << 63)
#define HL_EVENT_EXTENDED (UINT64_C(1) << 62) /* instead of the size: an index of extended */

/* Events of one thread in one tick, up to the first event of the next run. */
struct hl_event_batch_run {
	uint64_t tick;
	uint32_t first;	 /* event */
	uint16_t thread; /* slot */
	bool unordered;	 /* see hl_intervals_run() */
};

struct hl_event_extended {
	uint64_t bytes, objects;
};

#define HL_EVENT_NO_INTERVAL UINT64_MAX

struct hl_event_batch {
	uint64_t interval; /* the one that begins with it, or HL_EVENT_NO_INTERVAL */
	uint32_t count, run_count, extended_count;
	uint64_t events[HL_EVENTS_MAX];
	struct hl_event_batch_run runs[HL_EVENT_RUNS_MAX];
	struct hl_event_extended extended[HL_EVENT_EXTENDED_MAX];
};

static inline bool hl_event_batch_is_full(const struct hl_event_batch *batch)
{
	return batch->count == HL_EVENTS_MAX || batch->extended_count == HL_EVENT_EXTENDED_MAX;
}

static inline uint32_t hl_event_batch_run_end(const struct hl_event_batch *batch, uint32_t run)
{
	return run + 1 < batch->run_count ? batch->runs[run + 1].first : batch->count;
}

/* Adds an event to the last run; the batch must not be full. Negative figures are a free's. */
static inline void hl_event_batch_add(struct hl_event_batch *batch, uint32_t node, int64_t bytes,
				      int64_t objects)
{
	bool is_free = bytes < 0 || objects < 0;
	uint64_t size = is_free ? 0 - (uint64_t)bytes : (uint64_t)bytes;
	uint64_t count = is_free ? 0 - (uint64_t)objects : (uint64_t)objects;
	uint64_t word = node | (is_free ? HL_EVENT_FREE : 0);

	if (HL_UNLIKELY(count != 1 || size >> HL_RING_SIZE_BITS)) {
		batch->extended[batch->extended_count] = (struct hl_event_extended){size, count};
		word |= HL_EVENT_EXTENDED;
		size = batch->extended_count++;
	}
	batch->events[batch->count++] = word | size << 24;
}

/* ---- encoding: turns batches into the content of pieces, and keeps the state up to date ---- */

/* The columns of one kind of event. */
struct hl_event_column {
	uint32_t count;
	uint16_t low[HL_EVENTS_MAX];
	uint8_t high[HL_EVENTS_MAX];
	struct hl_byte_buffer sizes;
};

/* Set state.names and zero the rest; release in any case. Large: not for the stack. */
struct hl_event_encoder {
	struct hl_state_writer state;
	uint64_t *last_sizes; /* of each node, + 1; 0: none since the checkpoint */
	size_t last_size_capacity;
	uint32_t places[HL_THREADS_MAX];    /* of each thread's next run in sorted */
	uint32_t sorted[HL_EVENT_RUNS_MAX]; /* runs of the batch, by thread */
	uint8_t is_free[HL_EVENTS_MAX / 8], has_size[HL_EVENTS_MAX / 8];
	struct hl_event_column allocs, frees;
};

/* Writes the state before interval ${next} to ${buffer}. 0 or -ENOMEM. */
int hl_event_encoder_checkpoint(struct hl_event_encoder *encoder, struct hl_byte_buffer *buffer,
				uint64_t next, uint64_t missing);

/* Writes ${batch} to ${buffer}, whose failure the caller checks. 0; or -ENOMEM, after which the
 * state is wrong for good. */
int hl_event_encoder_encode(struct hl_event_encoder *encoder, const struct hl_event_batch *batch,
			    struct hl_byte_buffer *buffer);

void hl_event_encoder_release(struct hl_event_encoder *encoder);

/* ---- decoding: takes pieces apart, trusts nothing ---- */

struct hl_event {
	int64_t bytes, objects; /* negative, or 0, for a free */
	uint32_t node;		/* 1 .. HL_EVENT_NODE_MAX */
	bool is_free;
};

/* Some events of one thread and tick, one after another. */
struct hl_event_run {
	uint64_t tick;
	uint32_t thread; /* slot, below HL_THREADS_MAX */
	bool unordered;	 /* see hl_intervals_run() */
	const struct hl_event *events;
	size_t count; /* at least 1 */
};

/* Zero-initialize; release in any case. Large: not for the stack. */
struct hl_event_decoder {
	uint64_t *last_sizes; /* of each node */
	size_t last_size_capacity;
	uint32_t places[HL_THREADS_MAX];       /* of each thread's next event in events */
	struct hl_event events[HL_EVENTS_MAX]; /* of a piece, by thread */
};

/* A checkpoint has been read: a part begins. */
void hl_event_decoder_begin(struct hl_event_decoder *decoder);

/* Gets the runs of a piece, one after another. Non-zero ends the reading. */
typedef int hl_event_visit(void *context, const struct hl_event_run *run);

/* Reads the part of a piece that follows the names. 0, -ENOMEM, -EBADMSG, or what ${visit}
 * returned. */
int hl_event_decoder_read(struct hl_event_decoder *decoder, struct hl_byte_reader *content,
			  hl_event_visit *visit, void *context);

/* ---- writing ---- */

/*
 * Keeps every event of one process. Events are put into batches, which a thread of the writer's own
 * encodes, compresses and writes. There are a few batches: when all of them wait for that thread,
 * adding an event waits as well. Events that cannot be written (disk full, ...) are missing, and
 * counted; the next interval begins with the whole state.
 *
 * All functions but the thread's own belong to one thread, which drains the rings.
 */
struct hl_event_writer {
	struct hl_event_batch *batch; /* being filled; never full */
	struct hl_event_files *files; /* the thread's side */
	/* Called after each whole millisecond for which adding an event waits; NULL at first. */
	void (*while_waiting)(void *context);
	void *context;
	uint64_t first_interval; /* HL_EVENT_NO_INTERVAL once there was an event */
};

/*
 * Starts the thread, which calls settings->names: nobody else may. The first file is created with
 * the first event; or, without any, at the end of the writer, and then begins with interval
 * ${first_interval}, which is the current one. 0 or a negative errno.
 */
int hl_event_writer_new(const struct hl_log_settings *settings, uint64_t first_interval,
			struct hl_event_writer **ret_writer);

/* Gives the batch to the thread and takes an empty one. */
void hl_event_writer_flush(struct hl_event_writer *writer);

/* The events that follow are of thread slot ${thread} and ${tick}, which never falls. */
void hl_event_writer_run(struct hl_event_writer *writer, uint32_t thread, uint64_t tick,
			 bool unordered);

/* Adds an event to the run: ${bytes} and ${objects} are negative for a free. */
static inline void hl_event_writer_event(struct hl_event_writer *writer, uint32_t node,
					 int64_t bytes, int64_t objects)
{
	hl_event_batch_add(writer->batch, node, bytes, objects);
	if (HL_UNLIKELY(hl_event_batch_is_full(writer->batch)))
		hl_event_writer_flush(writer);
}

/* The events that follow are of interval ${number} or later. */
void hl_event_writer_interval(struct hl_event_writer *writer, uint64_t number);

/* From now on ${kept} files are kept; older ones are deleted when the next one begins. */
void hl_event_writer_keep(struct hl_event_writer *writer, uint32_t kept);

/*
 * Writes all that is left, ends the last file, and frees the writer. A program that ${has_begun}
 * leaves a file even without events, which says that events were kept. ${ret_missing} is the number
 * of events that could not be written; returns the negative errno of the last of them, or 0. NULL
 * is fine.
 */
int hl_event_writer_finish(struct hl_event_writer *writer, bool has_begun, uint64_t *ret_missing);

/* ---- reading ---- */

/* The pieces from one checkpoint to the next: read alone, with others at the same time. */
struct hl_event_part {
	uint32_t file;
	uint64_t offset, end;	 /* in the file */
	uint64_t first_interval; /* no event is of an earlier one */
	uint64_t missing_events; /* before it: they could not be written */
};

/*
 * The events that were kept of one process: the newest unbroken run of its files. Nothing in them
 * is trusted; a file that was cut off is read up to its last whole piece. Thread-safe for reading
 * once opened.
 */
struct hl_event_log {
	uint32_t process;
	uint64_t start_realtime_ns; /* of tick 0 */
	uint32_t file_count;
	uint32_t ignored_count;			/* older ones, before a gap in their numbers */
	uint32_t foreign_count;			/* of another recording */
	char foreign_name[HL_SEGMENT_NAME_MAX]; /* of the first of them */
	uint64_t file_bytes;			/* of all that are read */
	struct hl_event_part *parts;		/* in order of time */
	size_t part_count;
	uint64_t missing_events; /* that could not be written */
	bool cut_off;	     /* the newest file has no end: its writer was killed, or writes on */
	const char *damaged; /* the newest file, if it has no end because it is damaged; or NULL */
	struct hl_segment *files; /* opaque */
};

/* Like hl_log_open(), after ${place} was listed again: views open the log first, and a running
 * recording has written further files by then. */
int hl_event_log_open(struct hl_log_place *place, uint32_t process,
		      const struct hl_log_options *options, struct hl_event_log **ret_log,
		      struct hl_error *err);

/* Functions that events are handed to. Parts are read on several threads at once; calls for one
 * part come one after another. A non-zero return ends the reading, and is returned. NULL: nothing
 * is done. */
struct hl_event_fold {
	void *context;
	/* Before the first event: ${state} is what was in use then. */
	int (*begin)(void *context, size_t part, const struct hl_log_state *state);
	int (*visit)(void *context, size_t part, const struct hl_event_run *run);
	/* After the last: ${state} names all nodes of the part, and holds what was in use at its
	 * beginning. */
	int (*end)(void *context, size_t part, const struct hl_log_state *state);
};

/* Folds the parts from ${first} to ${last}. 0, what a fold returned, or a negative errno with a
 * sentence. */
int hl_event_log_read(const struct hl_event_log *log, size_t first, size_t last,
		      const struct hl_log_options *options, const struct hl_event_fold *fold,
		      struct hl_error *err);

/* Ticks from the first to before the end. */
struct hl_event_range {
	uint64_t first, end;
};

/* Folds the parts that have events in ${range}. As hl_event_log_read(). */
int hl_event_log_read_range(const struct hl_event_log *log, const struct hl_event_range *range,
			    const struct hl_log_options *options, const struct hl_event_fold *fold,
			    struct hl_error *err);

/* The part that holds the first events of interval ${number}; the first part if all are later. */
size_t hl_event_log_find(const struct hl_event_log *log, uint64_t number);

void hl_event_log_free(struct hl_event_log *log); /* NULL is fine */
