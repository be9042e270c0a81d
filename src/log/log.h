/* SPDX-License-Identifier: BSD-2-Clause */
/* The log of one process: its files, their intervals, and reading them. docs/format.md describes the format. */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "region/region.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- log files ---- */

/*
 * The files of logs, that is segments and files of events: their format and names, the places that
 * hold them, and which of them are kept. docs/format.md describes the format: a header, then
 * pieces. The payloads of successive pieces are one zstd stream, flushed at each; a piece with
 * HL_PIECE_FRAME begins a new stream, so that reading can begin there. All numbers are
 * little-endian.
 *
 *	KIND-P-YYYYMMDDTHHMMSS-NNNNNN.SUFFIX
 *
 * is a file's name: P is the process' sequence number; then follow the time at which the file
 * begins (UTC) and its number, counted from 1. As the oldest files are deleted, a log is the newest
 * run of numbers without a gap.
 */

struct hl_piece_writer;
struct hl_segment;

/* ---- the format ---- */

#define HL_SEGMENT_MAGIC    "HEAPLLOG"
#define HL_SEGMENT_VERSION  1u
#define HL_SEGMENT_NAME_MAX 64

/* Files of events have the same header and pieces; see events.h. */
#define HL_EVENTS_MAGIC	  "HEAPLEVT"
#define HL_EVENTS_VERSION 2u

#define HL_SEGMENT_FOURCC(a, b, c, d) \
	((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

enum hl_piece_kind {
	HL_PIECE_CHECKPOINT = HL_SEGMENT_FOURCC('C', 'H', 'K', 'P'),
	HL_PIECE_INTERVAL = HL_SEGMENT_FOURCC('I', 'N', 'T', 'V'),
	HL_PIECE_MARK = HL_SEGMENT_FOURCC('M', 'A', 'R', 'K'),
	HL_PIECE_INDEX = HL_SEGMENT_FOURCC('I', 'N', 'D', 'X'),
};

enum hl_piece_flag {
	HL_PIECE_FRAME = 1, /* a zstd frame begins here */
};

/* No piece exceeds this: more is damage. */
#define HL_PIECE_BYTES_MAX (UINT32_C(1) << 30)

struct hl_segment_header {
	uint8_t magic[8];
	uint32_t version;
	uint32_t header_bytes;
	uint32_t process; /* sequence */
	uint32_t number;  /* of the segment, from 1 */
	uint64_t first_interval;
	uint64_t start_realtime_ns; /* of tick 0 */
	uint32_t tick_ns;
	uint32_t interval_ticks;
	uint64_t hash; /* of all bytes before it */
};

struct hl_piece_header {
	uint32_t kind, flags;
	uint32_t stored_bytes, raw_bytes;
	uint64_t hash; /* of the stored bytes, seeded with the hash of the 16 bytes before it */
};

/* Follows the index, at the file's end. */
struct hl_segment_trailer {
	uint8_t magic[8];
	uint64_t index_offset; /* of its piece header */
	uint64_t hash;	       /* of the 16 bytes before it */
};

static_assert(sizeof(struct hl_segment_header) == 56, "format");
static_assert(sizeof(struct hl_piece_header) == 24, "format");
static_assert(sizeof(struct hl_segment_trailer) == 24, "format");

struct hl_log_file_kind {
	const char *prefix, *suffix;
	char magic[9]; /* in the header */
	uint32_t version;
	const char *name, *pronoun; /* for sentences: "log", "one" */
	const char *record_options; /* with which such files are written */
	const char *reading;	    /* for the progress */
	/* Finds the index, or the parts, of an open file; see segment.h. 0 or a negative errno with
	 * a sentence. */
	int (*read)(struct hl_segment *segment, struct hl_error *err);
};

extern const struct hl_log_file_kind hl_log_segments, hl_log_event_files;

/* Fills in what all headers of ${kind} share, and the hash; the caller has set the process, the
 * number, the first interval and the start, and zeroed the rest. */
void hl_log_files_seal_header(const struct hl_log_file_kind *kind,
			      struct hl_segment_header *header);

/* A sentence that says what is wrong with the header of a file of ${kind} and ${process}, or NULL.
 */
const char *hl_log_files_check_header(const struct hl_log_file_kind *kind, uint32_t process,
				      const struct hl_segment_header *header);

/* ---- names ---- */

struct hl_log_file {
	const struct hl_log_file_kind *kind;
	uint32_t process; /* sequence */
	uint32_t number;  /* of its kind and process, from 1 */
	char name[HL_SEGMENT_NAME_MAX];
	uint64_t offset, bytes; /* in the single file of a place */
};

/* The name of a file of ${kind} with ${header}. */
void hl_log_files_name(const struct hl_log_file_kind *kind, const struct hl_segment_header *header,
		       char name[HL_SEGMENT_NAME_MAX]);

/* ---- for readers: the files in one place ---- */

/*
 * A recording's directory, or a single file that holds the files one after another, as a packed
 * recording does. They have the same names in both. Zero-initialize with fd = -1; release in any
 * case. Thread-safe for reading.
 */
struct hl_log_place {
	char *path;		   /* for messages */
	int fd;			   /* of the directory, or of the single file */
	struct hl_log_file *files; /* by kind, process and number */
	size_t file_count, file_capacity;
	bool is_directory;
};

#define HL_LOG_PLACE_NONE ((struct hl_log_place){.fd = -1})

/* Opens directory ${path} and lists its files. 0 or a negative errno with a sentence. */
int hl_log_place_open_directory(struct hl_log_place *place, const char *path, struct hl_error *err);

/* Lists the directory again, as files come and go while a recording runs; does nothing for a single
 * file. Files that were found before are no longer valid. 0 or a negative errno. */
int hl_log_place_list(struct hl_log_place *place);

/* Takes the single file at ${fd}, and keeps a duplicate of the descriptor; ${path} is for messages.
 * The place has no files of logs until they are added. 0 or a negative errno. */
int hl_log_place_open_file(struct hl_log_place *place, int fd, const char *path);

/* Adds the ${bytes} at ${offset} of the single file as the file ${name}. Names that no file of a
 * log has are ignored. 0 or -ENOMEM. */
int hl_log_place_add(struct hl_log_place *place, const char *name, uint64_t offset, uint64_t bytes);

/* Puts added files in order. */
void hl_log_place_sort(struct hl_log_place *place);

void hl_log_place_release(struct hl_log_place *place);

/* The first of the *${ret_count} files of ${kind} and ${process}, which lie side by side. */
const struct hl_log_file *hl_log_place_find(const struct hl_log_place *place,
					    const struct hl_log_file_kind *kind, uint32_t process,
					    size_t *ret_count);

/* A part of a file that is open. */
struct hl_log_extent {
	int fd; /* the caller's to close */
	uint64_t offset, bytes;
};

/* Opens ${file} of ${place}. 0 or a negative errno: -EBADMSG where it is not a regular file. */
int hl_log_place_open(const struct hl_log_place *place, const struct hl_log_file *file,
		      struct hl_log_extent *ret_extent);

/* ---- for writers: which files are kept ---- */

/* Set the first five and zero the rest; release in any case. */
struct hl_log_rotation {
	const struct hl_log_file_kind *kind;
	int directory_fd;
	uint32_t process;
	uint64_t start_realtime_ns; /* of tick 0 */
	uint32_t most;		    /* files to keep, at least 1 */
	uint32_t number;	    /* of the newest */
	struct hl_log_file *kept;   /* by number */
	size_t kept_count, kept_capacity;
};

/* Creates the next file, which begins with interval ${first_interval}, and writes its header: then
 * ${pieces} continues there, and the caller closes the file before. 0, or a negative errno with
 * nothing changed. */
int hl_log_rotation_begin(struct hl_log_rotation *rotation, uint64_t first_interval,
			  struct hl_piece_writer *pieces);

/* Deletes the newest file again; the next one gets its number. */
void hl_log_rotation_abandon(struct hl_log_rotation *rotation);

/* Deletes the oldest files beyond those that are to be kept. */
void hl_log_rotation_delete_oldest(struct hl_log_rotation *rotation);

void hl_log_rotation_release(struct hl_log_rotation *rotation);

/* ---- intervals ---- */

/*
 * Finds, in a stream of events, the local maximum of bytes in use in each interval, to the event,
 * and what each stack node held then and at the interval's end.
 *
 *	tick      1 ms since the process' recording began
 *	interval  HL_INTERVAL_TICKS ticks; interval i holds the ticks from i * HL_INTERVAL_TICKS on
 *	maximum   the first event after which the interval's total was highest; the state at the
 *		  interval's beginning counts as well. Where several threads had events in one
 *		  tick, and time stamps do not tell their order, the state at the tick's end
 *
 * An event touches one node. Nothing is cleared when a new maximum is reached: changes since the
 * maximum carry the number of the maximum that they are since.
 */

/* An executable or library that stacks pass through, as logs describe it. */
struct hl_log_module {
	const char *path; /* "" when unknown */
	uint64_t start, end;
	uint64_t load_bias;
	uint8_t build_id[32];
	uint32_t build_id_bytes;
};

/* A place in a script, as logs describe it. */
struct hl_log_site {
	uint32_t provider; /* index */
	uint32_t line, first_line;
	const char *function, *source; /* NULL: the site is not known */
};

#define HL_INTERVAL_TICKS 100u

/* What one interval did to one node. */
struct hl_log_change {
	uint32_t node;
	int64_t max_bytes, max_objects;	  /* from the interval's beginning to its maximum */
	int64_t rest_bytes, rest_objects; /* from there to its end */
};

struct hl_log_interval {
	uint64_t number;
	uint64_t max_tick;
	int64_t max_bytes, max_objects; /* in use */
	int64_t end_bytes, end_objects;
	uint64_t events;
	const struct hl_log_change
		*changes; /* by node, ascending; nodes without a change left out */
	size_t change_count;
};

struct hl_interval_node {
	int64_t bytes, objects; /* change since the interval began */
	int64_t since_bytes,
		since_objects; /* change since the maximum, if since_max is its number */
	uint32_t interval;     /* low bits of the interval that `bytes` is of */
	uint32_t since_max;
};

/* One process. Zero-initialize; release in any case. */
struct hl_intervals {
	struct hl_interval_node *nodes;
	size_t node_capacity;
	uint32_t *touched; /* nodes of the current interval, in the order of their first event */
	size_t touched_count, touched_capacity;
	struct hl_log_change *changes;
	size_t change_capacity;
	uint64_t number; /* of the current interval */
	uint32_t max_number;
	uint64_t tick, max_tick;
	int64_t total_bytes, total_objects;
	int64_t max_bytes, max_objects;
	uint64_t events;
	bool unordered; /* the order of the events that follow within the tick is unknown */
};

/* Has zeroed ${intervals} continue from interval ${number}, which begins with ${bytes} in
 * ${objects} blocks in use. */
void hl_intervals_go_on(struct hl_intervals *intervals, uint64_t number, int64_t bytes,
			int64_t objects);

/* Counts one event at the current tick: ${bytes} and ${objects} are negative for a free. 0, or
 * -ENOMEM with nothing counted. */
int hl_intervals_event(struct hl_intervals *intervals, uint32_t node, int64_t bytes,
		       int64_t objects);

/*
 * The events that follow within the tick are of one thread, in order; or, if ${unordered}, some of
 * those of several threads, whose order is unknown. Then only the state after all of them can be a
 * maximum: a block that one thread allocates and another frees must not count before its
 * allocation, nor all allocations before all frees.
 */
void hl_intervals_run(struct hl_intervals *intervals, bool unordered);

/* Moves on to ${tick}, which must lie in the current interval; smaller ones are ignored. */
void hl_intervals_tick(struct hl_intervals *intervals, uint64_t tick);

/* What the current interval has changed at ${node} so far. */
void hl_intervals_change(const struct hl_intervals *intervals, uint32_t node, int64_t *ret_bytes,
			 int64_t *ret_objects);

/*
 * Ends the current interval and begins the one with ${next} as its number (larger than the
 * current). ${ret_interval} is valid until the next call. 0, or -ENOMEM with the interval not
 * ended.
 */
int hl_intervals_end(struct hl_intervals *intervals, uint64_t next,
		     struct hl_log_interval *ret_interval);

void hl_intervals_release(struct hl_intervals *intervals);

/* ---- log ---- */

/*
 * Reads the log of one process: the newest unbroken run of its segments. Trusts nothing; a segment
 * that was cut off is read up to its last whole piece. Thread-safe for reading once opened.
 */

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
