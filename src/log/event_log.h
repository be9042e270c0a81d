/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads the events that were kept of one process: the newest unbroken run of its files. Trusts
 * nothing; a file that was cut off is read up to its last whole piece. Thread-safe for reading once
 * opened.
 */
#pragma once

#include "log/event_codec.h"
#include "log/log.h"

/* What lies from one checkpoint to the next: read alone, with others at the same time. */
struct hl_event_part {
	uint32_t file;
	uint64_t offset, end;	 /* in the file */
	uint64_t first_interval; /* before which its state is; no event is of an earlier one */
	uint64_t missing_events; /* that could not be written, before it */
};

struct hl_event_log {
	uint32_t process;
	uint64_t start_realtime_ns; /* of tick 0 */
	uint32_t file_count;
	uint32_t ignored_count;	     /* older ones, before a gap in their numbers */
	uint32_t foreign_count;	     /* of another recording */
	uint64_t file_bytes;	     /* of all that are read */
	struct hl_event_part *parts; /* in order of time */
	size_t part_count;
	uint64_t missing_events; /* that could not be written */
	bool cut_off; /* the newest file has no end: its writer was killed, or writes on */
	struct hl_segment *files; /* opaque */
};

/* As hl_log_open(). */
int hl_event_log_open(const struct hl_log_place *place, uint32_t process,
		      const struct hl_log_options *options, struct hl_event_log **ret_log,
		      struct hl_error *err);

/* What is done with events. Parts are read on several threads at once; calls for one part come one
 * after another. A non-zero return ends the reading, and is returned. */
struct hl_event_fold {
	void *context;
	/* Before the first event: ${state} is what was in use then. NULL: nothing is done. */
	int (*begin)(void *context, size_t part, const struct hl_log_state *state);
	int (*visit)(void *context, size_t part, const struct hl_event_run *run);
	/* After the last: ${state} names all nodes of the part, and holds what was in use at its
	 * beginning. NULL: nothing is done. */
	int (*end)(void *context, size_t part, const struct hl_log_state *state);
};

/* Folds the parts from ${first} to ${last}. 0, what a fold returned, or a negative errno with a
 * sentence. */
int hl_event_log_read(const struct hl_event_log *log, size_t first, size_t last,
		      const struct hl_log_options *options, const struct hl_event_fold *fold,
		      struct hl_error *err);

/* The part that holds the first events of interval ${number}; the first part if all are later. */
size_t hl_event_log_find(const struct hl_event_log *log, uint64_t number);

void hl_event_log_free(struct hl_event_log *log); /* NULL is fine */
