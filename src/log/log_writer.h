/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes the log of one process as segments: files that are read alone, of which the oldest are
 * deleted. docs/format.md describes them. Intervals that cannot be written are missing, but their
 * changes are not: the next interval that can be written follows a checkpoint of the whole state.
 */
#pragma once

#include "log/intervals.h"
#include "region/region.h"

#include <stdbool.h>
#include <stdint.h>

/* Where the writer learns of nodes and modules; implemented over the region by the collector. */
struct hl_log_names {
	/* The node's frame key and parent (0: the root); false when there is no such node. */
	bool (*node)(const struct hl_log_names *names, uint32_t node, uint64_t *ret_frame,
		     uint32_t *ret_parent);
	uint32_t (*module_count)(const struct hl_log_names *names);
	/* Module number 1 .. module_count(); texts are valid until the next call. */
	bool (*module)(const struct hl_log_names *names, uint32_t module,
		       struct hl_log_module *ret_module);
	/* The providers of script frames, in rising order of index, and place ${site} in a script, from 1; false when there is none.
	 * Texts are valid until the next call. NULL: there are no scripts. */
	bool (*provider)(const struct hl_log_names *names, uint32_t index,
			 struct hl_region_provider *ret_provider);
	bool (*site)(const struct hl_log_names *names, uint32_t site, struct hl_log_site *ret_site);
};

struct hl_log_settings {
	int directory_fd;	    /* the recording's; stays the caller's */
	uint32_t process;	    /* sequence number */
	uint64_t start_realtime_ns; /* of tick 0 */
	uint64_t segment_bytes;	    /* a segment ends when it is larger */
	uint32_t segments_kept;	    /* at least 1 */
	const struct hl_log_names *names;
};

struct hl_log_writer;

/* Nothing is written yet: the first segment begins with the first interval. 0 or -ENOMEM. */
int hl_log_writer_new(const struct hl_log_settings *settings, struct hl_log_writer **ret_writer);

/*
 * Writes ${interval}, with ${rss_bytes} beside it and ${lost_events} so far; one in which nothing
 * happened is not written. A negative errno says that it could not be written (disk full, ...) and
 * is missing.
 */
int hl_log_writer_interval(struct hl_log_writer *writer, const struct hl_log_interval *interval,
			   uint64_t rss_bytes, uint64_t lost_events);

/* What the log says is in use at ${node} after the last interval, written or missing. */
void hl_log_writer_in_use(const struct hl_log_writer *writer, uint32_t node, int64_t *ret_bytes,
			  int64_t *ret_objects);

/* Notes ${text} at ${tick}. 0 or a negative errno. */
int hl_log_writer_mark(struct hl_log_writer *writer, uint64_t tick, const char *text);

/* From now on ${kept} segments are kept; older ones are deleted at once. */
void hl_log_writer_keep(struct hl_log_writer *writer, uint32_t kept);

/* How many segments are kept. */
uint32_t hl_log_writer_kept(const struct hl_log_writer *writer);

/* Intervals that are missing so far. */
uint64_t hl_log_writer_missing(const struct hl_log_writer *writer);

/* Ends the last segment with its index and frees the writer. A negative errno when that could not
 * be written: the segment is readable all the same. NULL is fine. */
int hl_log_writer_finish(struct hl_log_writer *writer);
