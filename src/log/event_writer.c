/* SPDX-License-Identifier: BSD-2-Clause */
/* Passes batches of events to a thread, which encodes them and writes them to files; see events.h. */
#include "base/array.h"
#include "base/worker.h"
#include "log/events.h"
#include "log/log.h"
#include "log/log_writer.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* ---- encoding: columns, sorted by thread and kind ---- */

#define SIZE_MASK ((UINT64_C(1) << HL_RING_SIZE_BITS) - 1)

int hl_event_encoder_checkpoint(struct hl_event_encoder *encoder, struct hl_byte_buffer *buffer,
				uint64_t next, uint64_t missing)
{
	if (encoder->last_size_capacity)
		memset(encoder->last_sizes, 0,
		       encoder->last_size_capacity * sizeof(*encoder->last_sizes));
	return hl_state_writer_put_checkpoint(&encoder->state, buffer, next, missing);
}

static void follow(struct hl_state_node *node, bool is_free, uint64_t bytes, uint64_t objects)
{
	node->bytes += (int64_t)(is_free ? 0 - bytes : bytes);
	node->objects += (int64_t)(is_free ? 0 - objects : objects);
}

/* Whether the event's size goes among the sizes. */
static bool put_event(struct hl_event_encoder *encoder, const struct hl_event_batch *batch,
		      uint64_t event)
{
	bool is_free = event & HL_EVENT_FREE;
	struct hl_event_column *column = is_free ? &encoder->frees : &encoder->allocs;
	uint32_t node = event & HL_EVENT_NODE_MAX;
	uint64_t size = event >> 24 & SIZE_MASK;

	column->low[column->count] = (uint16_t)node;
	column->high[column->count++] = (uint8_t)(node >> 16);
	if (HL_UNLIKELY(event & HL_EVENT_EXTENDED)) {
		const struct hl_event_extended *extended = &batch->extended[size];
		follow(&encoder->state.nodes[node], is_free, extended->bytes, extended->objects);
		hl_byte_buffer_number(&column->sizes, 0);
		hl_byte_buffer_number(&column->sizes, extended->bytes);
		hl_byte_buffer_number(&column->sizes, extended->objects);
		return true;
	}
	follow(&encoder->state.nodes[node], is_free, size, 1);
	if (HL_LIKELY(encoder->last_sizes[node] == size + 1))
		return false;
	encoder->last_sizes[node] = size + 1;
	hl_byte_buffer_number(&column->sizes, size + 1);
	return true;
}

/* By thread; the runs of one thread stay in their order. */
static void sort_runs(struct hl_event_encoder *encoder, const struct hl_event_batch *batch)
{
	uint32_t before = 0;

	memset(encoder->places, 0, sizeof(encoder->places));
	for (uint32_t i = 0; i < batch->run_count; i++)
		encoder->places[batch->runs[i].thread]++;
	for (uint32_t i = 0; i < HL_THREADS_MAX; i++) {
		uint32_t runs = encoder->places[i];
		encoder->places[i] = before;
		before += runs;
	}
	for (uint32_t i = 0; i < batch->run_count; i++)
		encoder->sorted[encoder->places[batch->runs[i].thread]++] = i;
}

/* Makes room for the state of ${node}, and defines it if this round has not yet. 0 or -ENOMEM. */
static int know(struct hl_event_encoder *encoder, uint32_t node)
{
	const struct hl_state_writer *state = &encoder->state;

	if (HL_LIKELY(node < state->node_count && node < encoder->last_size_capacity &&
		      state->nodes[node].defined_in == state->round))
		return 0;
	if (HL_ARRAY_RESERVE_ZEROED(encoder->last_sizes, encoder->last_size_capacity,
				    (size_t)node + 1) < 0)
		return -ENOMEM;
	return hl_state_writer_define(&encoder->state, node);
}

/* Fills the columns. */
static int put_events(struct hl_event_encoder *encoder, const struct hl_event_batch *batch)
{
	uint32_t place = 0; /* among all events, sorted by thread */

	memset(encoder->is_free, 0, sizeof(encoder->is_free));
	memset(encoder->has_size, 0, sizeof(encoder->has_size));
	encoder->allocs.count = encoder->frees.count = 0;
	hl_byte_buffer_clear(&encoder->allocs.sizes);
	hl_byte_buffer_clear(&encoder->frees.sizes);
	sort_runs(encoder, batch);
	for (uint32_t i = 0; i < batch->run_count; i++) {
		uint32_t run = encoder->sorted[i], end = hl_event_batch_run_end(batch, run);
		for (uint32_t at = batch->runs[run].first; at < end; at++, place++) {
			uint64_t event = batch->events[at];
			if (HL_UNLIKELY(know(encoder, event & HL_EVENT_NODE_MAX) < 0))
				return -ENOMEM;
			bool has_size = put_event(encoder, batch, event);
			encoder->has_size[place / 8] |= (uint8_t)(has_size << place % 8);
			encoder->is_free[place / 8] |= (uint8_t)((event >> 63) << place % 8);
		}
	}
	return 0;
}

static void put_sizes(const struct hl_event_column *column, struct hl_byte_buffer *buffer)
{
	hl_byte_buffer_number(buffer, column->sizes.size);
	hl_byte_buffer_put(buffer, column->sizes.bytes, column->sizes.size);
	buffer->failed |= column->sizes.failed;
}

int hl_event_encoder_encode(struct hl_event_encoder *encoder, const struct hl_event_batch *batch,
			    struct hl_byte_buffer *buffer)
{
	const struct hl_event_column *allocs = &encoder->allocs, *frees = &encoder->frees;
	const struct hl_event_batch_run *runs = batch->runs;
	size_t bits = (batch->count + 7) / 8;

	if (put_events(encoder, batch) < 0)
		return -ENOMEM;
	hl_state_writer_put_names(&encoder->state, buffer);
	hl_byte_buffer_number(buffer, batch->run_count);
	for (uint32_t i = 0; i < batch->run_count; i++)
		hl_byte_buffer_number(buffer, (uint64_t)runs[i].thread << 1 | runs[i].unordered);
	for (uint32_t i = 0; i < batch->run_count; i++)
		hl_byte_buffer_number(buffer, runs[i].tick - (i ? runs[i - 1].tick : 0));
	for (uint32_t i = 0; i < batch->run_count; i++)
		hl_byte_buffer_number(buffer, hl_event_batch_run_end(batch, i) - runs[i].first);
	hl_byte_buffer_put(buffer, encoder->is_free, bits);
	hl_byte_buffer_put(buffer, encoder->has_size, bits);
	hl_byte_buffer_put(buffer, allocs->low, allocs->count * sizeof(*allocs->low));
	hl_byte_buffer_put(buffer, frees->low, frees->count * sizeof(*frees->low));
	hl_byte_buffer_put(buffer, allocs->high, allocs->count);
	hl_byte_buffer_put(buffer, frees->high, frees->count);
	put_sizes(allocs, buffer);
	put_sizes(frees, buffer);
	return 0;
}

void hl_event_encoder_release(struct hl_event_encoder *encoder)
{
	hl_state_writer_release(&encoder->state);
	hl_byte_buffer_release(&encoder->allocs.sizes);
	hl_byte_buffer_release(&encoder->frees.sizes);
	free(encoder->last_sizes);
	encoder->last_sizes = NULL;
	encoder->last_size_capacity = 0;
}

/* ---- the writer ---- */

/* Each takes about 600 KB and holds the events of a few milliseconds at full speed; several bridge
 * the times for which the disk makes the thread wait. */
#define BATCHES 8

/* Columns compress well as they are: higher levels cost twice as much for a tenth of the size. */
#define LEVEL 1

/* Between checkpoints lie this many bytes of events before compression, or this many times the
 * bytes of the last checkpoint: parts are small enough to be read in parallel, and checkpoints are
 * few beside them. */
#define PART_BYTES (UINT64_C(8) << 20)
#define PART_RATIO 8
#define END_BYTES  64 /* more than the last piece of a file takes */

/* These bytes of the disk, or this share of a small one, are left to what matters more: the log, and
 * the counters, of which each save is whole before the last one is deleted. */
#define LEFT_BYTES    (UINT64_C(64) << 20)
#define LEFT_SHARE    8
#define WAIT_NS	      1000000
#define NS_PER_SECOND 1000000000

/* Batches on their way: those that are free, and those that are full, oldest first. */
struct queue {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct hl_event_batch *free[BATCHES], *full[BATCHES];
	size_t free_count, full_count;
	bool ended;
};

/* The thread's, but for queue and kept. */
struct hl_event_files {
	struct queue queue;
	pthread_t thread;
	uint64_t file_bytes; /* a file ends before it is larger, if the next interval is no
				exception */
	atomic_uint kept;
	struct hl_log_rotation files;
	struct hl_piece_writer pieces;
	struct hl_event_encoder encoder;
	struct hl_byte_buffer raw;
	uint64_t begin, interval_begin; /* positions: of the file's first event, the interval's */
	uint64_t interval_bytes;	/* of the last interval with events */
	uint64_t checkpoint_bytes, bytes_since_checkpoint; /* before compression */
	bool needs_checkpoint;
	bool broken; /* the state is wrong for want of memory; nothing more is written */
	uint64_t missing;
	int error; /* why the last of them are missing */
};

/* ---- pieces ---- */

static int write_piece(struct hl_event_files *files, uint32_t kind, uint32_t flags)
{
	int r = hl_piece_writer_write(&files->pieces, kind, flags, &files->raw);

	if (r == 0)
		files->bytes_since_checkpoint += files->raw.size;
	return r;
}

static int write_checkpoint(struct hl_event_files *files, uint64_t next)
{
	hl_byte_buffer_clear(&files->raw);
	int r = hl_event_encoder_checkpoint(&files->encoder, &files->raw, next, files->missing);
	if (r == 0)
		r = write_piece(files, HL_PIECE_CHECKPOINT, HL_PIECE_FRAME);
	if (r < 0)
		return r;
	files->checkpoint_bytes = files->raw.size;
	files->bytes_since_checkpoint = 0;
	files->needs_checkpoint = false;
	return 0;
}

/* ---- files ---- */

/* Ends and closes a file of ${position} bytes, apart from the stream of the current file. A file
 * without its end was cut off; all its pieces are read all the same. */
static int end_file(struct hl_event_files *files, int fd, uint64_t position)
{
	struct hl_piece_writer pieces = {.fd = fd, .position = position, .level = LEVEL};

	if (fd < 0)
		return 0;
	hl_byte_buffer_clear(&files->raw);
	hl_byte_buffer_number(&files->raw, files->missing);
	int r = hl_piece_writer_write(&pieces, (uint32_t)HL_PIECE_END, HL_PIECE_FRAME, &files->raw);
	hl_piece_writer_release(&pieces);
	return r;
}

/* The file before it, if there is one, ends only when the next has begun: when there will be none,
 * its end says how many events are missing. */
static int open_file(struct hl_event_files *files, uint64_t first_interval)
{
	int fd_before = files->pieces.fd;
	uint64_t position_before = files->pieces.position;

	int r = hl_log_rotation_begin(&files->files, first_interval, &files->pieces);
	if (r < 0)
		return r;
	r = write_checkpoint(files, first_interval);
	if (r < 0) {
		hl_log_rotation_abandon(&files->files);
		hl_piece_writer_close(&files->pieces);
		files->pieces.fd = fd_before;
		files->pieces.position = position_before;
		return r;
	}
	files->begin = files->interval_begin = files->pieces.position;
	end_file(files, fd_before, position_before);
	files->files.most = atomic_load(&files->kept);
	hl_log_rotation_delete_oldest(&files->files);
	return 0;
}

/* Whether the disk has room for ${bytes} more of events. A file system that does not tell has. */
static bool has_room(const struct hl_event_files *files, uint64_t bytes)
{
	struct statvfs status;

	if (fstatvfs(files->files.directory_fd, &status) < 0 || !status.f_blocks ||
	    !status.f_frsize)
		return true;
	uint64_t least = LEFT_BYTES / status.f_frsize;
	if (least > status.f_blocks / LEFT_SHARE)
		least = status.f_blocks / LEFT_SHARE;
	return status.f_bavail >= least + bytes / status.f_frsize;
}

/* ---- batches ---- */

/* Events cease to be missing here, as reading can begin before an interval. */
static int begin_interval(struct hl_event_files *files, uint64_t number)
{
	uint64_t distance = PART_RATIO * files->checkpoint_bytes;
	uint64_t position = files->pieces.position;
	int r = 0;

	if (!has_room(files, 0))
		return -ENOSPC;
	if (position > files->interval_begin)
		files->interval_bytes = position - files->interval_begin;
	/* Another interval like the last one would make the file too large. */
	bool is_full = position >= files->file_bytes ||
		       (position > files->begin &&
			position + files->interval_bytes + END_BYTES > files->file_bytes);
	if (distance < PART_BYTES)
		distance = PART_BYTES;
	if (hl_piece_writer_lost_file(&files->pieces))
		hl_piece_writer_close(&files->pieces);
	if (files->pieces.fd < 0 || is_full)
		return open_file(files, number);
	if (files->needs_checkpoint || files->bytes_since_checkpoint > distance)
		r = write_checkpoint(files, number);
	files->interval_begin = files->pieces.position;
	return r;
}

static void fail(struct hl_event_files *files, int error)
{
	files->needs_checkpoint = true;
	files->error = error;
}

static void take_batch(struct hl_event_files *files, const struct hl_event_batch *batch)
{
	int r = files->broken ? files->error : 0;

	if (r == 0 && batch->interval != HL_EVENT_NO_INTERVAL) {
		int begun = begin_interval(files, batch->interval);
		if (begun < 0)
			fail(files, begun);
	}
	if (r == 0) {
		/* Events that will not be written are encoded as well: the state follows them. */
		hl_byte_buffer_clear(&files->raw);
		r = hl_event_encoder_encode(&files->encoder, batch, &files->raw);
		files->broken = r < 0;
		if (r == 0 && files->needs_checkpoint)
			r = files->error;
		else if (r == 0 && batch->count)
			r = has_room(files, files->raw.size)
				    ? write_piece(files, HL_PIECE_EVENTS, 0)
				    : -ENOSPC;
	}
	if (r < 0) {
		fail(files, r);
		files->missing += batch->count;
	}
}

/* ---- the queue ---- */

/* The oldest full batch; NULL when there will be none any more. */
static struct hl_event_batch *take_full(struct queue *queue)
{
	struct hl_event_batch *batch = NULL;

	pthread_mutex_lock(&queue->lock);
	while (!queue->full_count && !queue->ended)
		pthread_cond_wait(&queue->changed, &queue->lock);
	if (queue->full_count) {
		batch = queue->full[0];
		queue->full_count--;
		for (size_t i = 0; i < queue->full_count; i++)
			queue->full[i] = queue->full[i + 1];
	}
	pthread_mutex_unlock(&queue->lock);
	return batch;
}

static void give_free(struct queue *queue, struct hl_event_batch *batch)
{
	batch->interval = HL_EVENT_NO_INTERVAL;
	batch->count = batch->run_count = batch->extended_count = 0;
	pthread_mutex_lock(&queue->lock);
	queue->free[queue->free_count++] = batch;
	pthread_cond_broadcast(&queue->changed);
	pthread_mutex_unlock(&queue->lock);
}

static void give_full(struct queue *queue, struct hl_event_batch *batch)
{
	pthread_mutex_lock(&queue->lock);
	queue->full[queue->full_count++] = batch;
	pthread_cond_broadcast(&queue->changed);
	pthread_mutex_unlock(&queue->lock);
}

static struct hl_event_batch *take_free(struct hl_event_writer *writer)
{
	struct queue *queue = &writer->files->queue;

	pthread_mutex_lock(&queue->lock);
	while (!queue->free_count) {
		struct timespec until;
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += WAIT_NS;
		if (until.tv_nsec >= NS_PER_SECOND) {
			until.tv_nsec -= NS_PER_SECOND;
			until.tv_sec++;
		}
		int waited = pthread_cond_clockwait(&queue->changed, &queue->lock, CLOCK_MONOTONIC,
						    &until);
		if (waited == ETIMEDOUT && writer->while_waiting)
			writer->while_waiting(writer->context);
	}
	struct hl_event_batch *batch = queue->free[--queue->free_count];
	pthread_mutex_unlock(&queue->lock);
	return batch;
}

static void *run(void *argument)
{
	struct hl_event_files *files = argument;

	for (struct hl_event_batch *batch; (batch = take_full(&files->queue));) {
		take_batch(files, batch);
		give_free(&files->queue, batch);
	}
	int r = end_file(files, files->pieces.fd, files->pieces.position);
	files->pieces.fd = -1;
	if (r < 0 && !files->error)
		files->error = r;
	return NULL;
}

/* ---- the drain's side ---- */

void hl_event_writer_flush(struct hl_event_writer *writer)
{
	struct hl_event_batch *batch = writer->batch;

	if (!batch->count)
		return;
	writer->first_interval = HL_EVENT_NO_INTERVAL;
	struct hl_event_batch_run run = batch->runs[batch->run_count - 1];
	give_full(&writer->files->queue, batch);
	writer->batch = take_free(writer);
	hl_event_writer_run(writer, run.thread, run.tick, run.unordered);
}

void hl_event_writer_run(struct hl_event_writer *writer, uint32_t thread, uint64_t tick,
			 bool unordered)
{
	struct hl_event_batch *batch = writer->batch;
	struct hl_event_batch_run *last =
		batch->run_count ? &batch->runs[batch->run_count - 1] : NULL;

	if (last && last->thread == thread && last->tick == tick && last->unordered == unordered)
		return;
	if (last && last->first == batch->count) /* no event came */
		batch->run_count--;
	if (batch->run_count == HL_EVENT_RUNS_MAX) {
		hl_event_writer_flush(writer);
		batch = writer->batch;
		batch->run_count = 0;
	}
	batch->runs[batch->run_count++] =
		(struct hl_event_batch_run){tick, batch->count, (uint16_t)thread, unordered};
}

void hl_event_writer_interval(struct hl_event_writer *writer, uint64_t number)
{
	hl_event_writer_flush(writer);
	writer->batch->interval = number;
}

void hl_event_writer_keep(struct hl_event_writer *writer, uint32_t kept)
{
	atomic_store(&writer->files->kept, kept);
}

/* ---- begin and end ---- */

static void free_files(struct hl_event_files *files)
{
	if (!files)
		return;
	for (size_t i = 0; i < files->queue.free_count; i++)
		free(files->queue.free[i]);
	pthread_cond_destroy(&files->queue.changed);
	pthread_mutex_destroy(&files->queue.lock);
	hl_piece_writer_release(&files->pieces);
	hl_log_rotation_release(&files->files);
	hl_event_encoder_release(&files->encoder);
	hl_byte_buffer_release(&files->raw);
	free(files);
}

static struct hl_event_files *new_files(const struct hl_log_settings *settings)
{
	struct hl_event_files *files = calloc(1, sizeof(*files));

	if (!files)
		return NULL;
	pthread_mutex_init(&files->queue.lock, NULL);
	pthread_cond_init(&files->queue.changed, NULL);
	files->file_bytes = settings->segment_bytes;
	atomic_init(&files->kept, settings->segments_kept);
	files->files = (struct hl_log_rotation){
		.kind = &hl_log_event_files,
		.directory_fd = settings->directory_fd,
		.process = settings->process,
		.start_realtime_ns = settings->start_realtime_ns,
	};
	files->pieces.fd = -1;
	files->pieces.level = LEVEL;
	files->encoder.state.names = settings->names;
	files->needs_checkpoint = true;
	return files;
}

int hl_event_writer_new(const struct hl_log_settings *settings, uint64_t first_interval,
			struct hl_event_writer **ret_writer)
{
	struct hl_event_writer *writer = calloc(1, sizeof(*writer));
	struct hl_event_files *files = new_files(settings);
	int r = writer && files ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < BATCHES; i++) {
		struct hl_event_batch *batch = malloc(sizeof(*batch));
		if (batch)
			give_free(&files->queue, batch);
		else
			r = -ENOMEM;
	}
	if (r == 0)
		r = hl_worker_start(&files->thread, 0, run, files);
	if (r < 0) {
		free_files(files);
		free(writer);
		return r;
	}
	writer->files = files;
	writer->batch = take_free(writer);
	writer->batch->interval = writer->first_interval = first_interval;
	*ret_writer = writer;
	return 0;
}

int hl_event_writer_finish(struct hl_event_writer *writer, bool has_begun, uint64_t *ret_missing)
{
	*ret_missing = 0;
	if (!writer)
		return 0;
	struct hl_event_files *files = writer->files;
	bool is_without_events =
		!writer->batch->count && writer->first_interval != HL_EVENT_NO_INTERVAL;
	if (is_without_events)
		writer->batch->interval = writer->first_interval;
	if (writer->batch->count || (has_begun && is_without_events)) {
		give_full(&files->queue, writer->batch);
		writer->batch = NULL;
	}
	pthread_mutex_lock(&files->queue.lock);
	files->queue.ended = true;
	pthread_cond_broadcast(&files->queue.changed);
	pthread_mutex_unlock(&files->queue.lock);
	pthread_join(files->thread, NULL);
	int r = files->error;
	*ret_missing = files->missing;
	free(writer->batch);
	free(writer);
	free_files(files);
	return r;
}
