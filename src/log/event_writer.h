/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keeps every event of one process in files beside its log; event_codec.h describes them.
 *
 * Events are put into batches, which a thread of the writer's own encodes, compresses and writes.
 * There are a few batches: when the thread has none left to give back, adding an event waits. What
 * cannot be written (disk full, ...) is missing, and counted; the next interval begins with the
 * whole state.
 *
 * All but the thread's own work belongs to one thread, which drains the rings.
 */
#pragma once

#include "log/event_codec.h"
#include "log/segment_writer.h"

struct hl_event_writer {
	struct hl_event_batch *batch; /* being filled; never full */
	struct hl_event_files *files; /* the thread's side */
	/* Called after each whole millisecond for which adding an event waits; NULL at first. */
	void (*while_waiting)(void *context);
	void *context;
	uint64_t first_interval;
	bool has_interval, has_flushed;
};

/*
 * Starts the thread, which calls settings->names: nobody else may. The first file begins with the
 * first event, or with the end of the writer. 0 or a negative errno.
 */
int hl_event_writer_new(const struct hl_log_settings *settings,
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
 * leaves a file even without events: it says that they were kept. Events that are missing go to
 * ${ret_missing}; returns the negative errno for which the last of them are, or 0. NULL is fine.
 */
int hl_event_writer_finish(struct hl_event_writer *writer, bool has_begun, uint64_t *ret_missing);
