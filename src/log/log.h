/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads the log of one process: the newest unbroken run of its segments. Trusts nothing; a segment
 * that was cut off is read up to its last whole piece. Thread-safe for reading once opened.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "log/intervals.h"
#include "log/log_files.h"
#include "region/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One interval of the timeline. Those that were not written, because nothing happened in them, are
 * filled in: their maximum is what was in use. */
struct hl_log_point {
	uint64_t number;
	int64_t max_bytes, end_bytes;
	uint64_t rss_bytes; /* 0: unknown */
	bool missing;	    /* could not be written or read; figures are those before it */
};

/* A segment that has no end, though others follow it: the intervals after its last whole one are
 * missing. */
struct hl_log_cut {
	const char *name;     /* of the file */
	uint64_t first, last; /* the intervals that are missing */
};

struct hl_log_mark {
	uint64_t tick;
	char *text; /* its segment's */
};

struct hl_log {
	uint32_t process;
	uint64_t start_realtime_ns;  /* of tick 0 */
	struct hl_log_point *points; /* without gaps, ascending */
	size_t point_count;
	struct hl_log_mark *marks; /* by tick; those of one tick as they were written */
	size_t mark_count;
	uint32_t segment_count; /* that are read */
	uint32_t ignored_count; /* older ones, before a gap, damage or another log's */
	uint32_t foreign_count; /* of another log, where it was known which one is wanted */
	char foreign_name[HL_SEGMENT_NAME_MAX]; /* of the first of them */
	uint64_t lost_events;			/* of the log; the counters may have them */
	uint64_t missing_count;			/* intervals that could not be written or read */
	struct hl_log_cut *cuts;		/* in order of time */
	size_t cut_count;
	bool cut_off;		     /* the newest segment has no index: its writer was killed */
	const char *damaged;	     /* that segment, if damage is why it has none; or NULL */
	struct hl_segment *segments; /* opaque */
};

/* A stack node as a log defines it. */
struct hl_log_node {
	uint64_t frame;
	uint32_t parent; /* id; 0: the root */
	bool defined;
};

/* What was in use at a moment. Nodes by id: nodes[0] is the root and not defined. */
struct hl_log_state {
	struct hl_log_node *nodes;
	int64_t *bytes, *objects;
	size_t node_count, node_capacity; /* count: largest id + 1 */
	struct hl_log_module *modules;	  /* number 1 is modules[0] */
	size_t module_count, module_capacity;
	struct hl_log_site *sites;	  /* site n is sites[n] */
	size_t site_count, site_capacity; /* count: largest number + 1, or 0 */
	struct hl_region_provider providers[HL_SCRIPT_PROVIDERS_MAX];
	uint32_t provider_count;
	int64_t total_bytes, total_objects;
	uint64_t tick; /* of the moment */
};

enum hl_log_moment {
	HL_LOG_AT_MAX, /* the interval's local maximum */
	HL_LOG_AT_END,
};

struct hl_log_options {
	unsigned jobs; /* threads to decode with; 0: one for each segment, up to the cores */
	uint64_t start_realtime_ns;   /* of the log, whose files alone are used; 0: not known */
	struct hl_progress *progress; /* NULL: nobody watches */
};

/*
 * Opens the log of process ${process} in ${place}, which is not needed afterwards. Only the index
 * is read of segments that have one. 0 or a negative errno with a sentence; -ENOENT when there is
 * no log.
 */
int hl_log_open(const struct hl_log_place *place, uint32_t process,
		const struct hl_log_options *options, struct hl_log **ret_log,
		struct hl_error *err);

/* What was in use in interval ${number}, one of log->points. 0 or a negative errno with a sentence.
 */
int hl_log_state_at(const struct hl_log *log, uint64_t number, enum hl_log_moment moment,
		    struct hl_log_state **ret_state, struct hl_error *err);

/*
 * Functions that the intervals of a range are handed to. They are read in parts, one for each
 * segment, on several threads at once: each call is given the number of its part, and calls for one
 * part come one after another. A non-zero return ends the reading, and is returned. NULL: nothing
 * is done.
 */
struct hl_log_fold {
	void *context;
	/* Before the first interval of the part: what was in use then, in ${state}. And again
	 * after each hole, of which only the outcome is known. */
	int (*begin)(void *context, size_t part, const struct hl_log_state *state);
	int (*visit)(void *context, size_t part, const struct hl_log_interval *interval);
	/* After the last: what is in use then. It names all nodes that the part visited. */
	int (*end)(void *context, size_t part, const struct hl_log_state *state);
};

/*
 * Folds the intervals from ${first} to ${last} that were written. There are at most
 * log->segment_count parts, numbered in order of time; those without an interval in the range get
 * no call. If the range has no interval that was written, part 0 begins and ends with the state
 * that the interval before it left. 0, what a fold returned, or a negative errno with a sentence:
 * -EBADMSG where not all of them could be read.
 */
int hl_log_read(const struct hl_log *log, uint64_t first, uint64_t last,
		const struct hl_log_options *options, const struct hl_log_fold *fold,
		struct hl_error *err);

void hl_log_state_free(struct hl_log_state *state); /* NULL is fine */
void hl_log_free(struct hl_log *log);		    /* NULL is fine */
HL_DEFINE_FREE_AT(struct hl_log_state, hl_log_state_free)
HL_DEFINE_FREE_AT(struct hl_log, hl_log_free)
