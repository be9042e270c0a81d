/* SPDX-License-Identifier: BSD-2-Clause */
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
#pragma once

#include "base/error.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
