/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The files of a recording: the container of each, their names, sections, bounds and JSON, and sections that are
 * written again and again.
 */
#pragma once

#include "base/encode.h"
#include "base/error.h"
#include "base/strings.h"
#include "recording/recording.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- container ---- */

/*
 * The container that every file of a recording is: a header, a table of sections, the sections.
 * docs/format.md is its specification.
 */

#define HL_FORMAT_VERSION	  1u
#define HL_CONTAINER_SECTIONS_MAX 64u

struct hl_container_header {
	uint8_t magic[8];
	uint32_t version;
	uint32_t kind;
	uint32_t section_count;
	uint32_t zero;
	uint64_t file_bytes;
	uint64_t table_hash;
	uint64_t header_hash; /* of all that is before it */
};

enum hl_section_flag {
	HL_SECTION_ZSTD = 1 << 0,
	HL_SECTION_HASHED_WITHIN = 1 << 1, /* its content is under hashes of its own: damage in it
					      does not make the file unreadable */
	HL_SECTION_RELATIVE = 1 << 2,	   /* see struct hl_section_column */
};

struct hl_section_entry {
	uint32_t type;
	uint32_t flags;
	uint64_t stored_bytes;
	uint64_t raw_bytes;
	uint64_t hash;
};

/* For what the next save replaces: two thirds of the time of FAST, half as large again. */
#define HL_COMPRESSION_BRIEF -5

/* For what is written once: a fifth less again, in some tenths of a second. */
#define HL_COMPRESSION_SMALL 9

/* A file being written. Begin, add exactly the announced number of sections, finish; release in
 * any case. */
#define HL_CONTAINER_HELD_BYTES 4096

struct hl_container_writer {
	int directory_fd; /* -1: ${fd} is the caller's */
	int fd;
	const char *name; /* final name, the caller's */
	char temporary[80];
	int compression_level; /* zstd's; may be changed after _init() */
	struct hl_container_header header;
	struct hl_section_entry table[HL_CONTAINER_SECTIONS_MAX];
	uint32_t added;
	uint64_t position;
	void *hash;		  /* XXH3_state_t, of the section that has begun; else NULL */
	bool takes_frames;	  /* it consists of frames that the caller has made */
	struct ZSTD_CCtx_s *zstd; /* NULL until a section is compressed */
	uint8_t *compressed;	  /* what zstd puts out */
	size_t held_bytes; /* of the file's begin, written at its end: most files are short */
	uint8_t held[HL_CONTAINER_HELD_BYTES];
};

int hl_container_writer_init(struct hl_container_writer *writer, int directory_fd, const char *name,
			     uint32_t kind, uint32_t section_count, struct hl_error *err);

/* The same for a file that is open and empty at ${fd}, which stays the caller's; ${name} is for
 * messages. */
void hl_container_writer_init_fd(struct hl_container_writer *writer, int fd, const char *name,
				 uint32_t kind, uint32_t section_count);

/* Writes one section; ${compress} asks for zstd. */
int hl_container_writer_add(struct hl_container_writer *writer, uint32_t type, const void *bytes,
			    size_t size, bool compress, struct hl_error *err);

/*
 * The same in parts, for what is not in memory at once: begin, append any number of times, end. With
 * HL_SECTION_ZSTD among ${flags} it is compressed, and ${size} bytes must be appended in all; else
 * ${size} is not used. After a failure only _release() may follow.
 */
int hl_container_writer_begin(struct hl_container_writer *writer, uint32_t type, uint32_t flags,
			      size_t size, struct hl_error *err);
int hl_container_writer_append(struct hl_container_writer *writer, const void *bytes, size_t size,
			       struct hl_error *err);
int hl_container_writer_end(struct hl_container_writer *writer, struct hl_error *err);

/* The same for a section that consists of zstd frames which the caller has: begin, append any number of
 * times ${stored_bytes} that hold ${raw_bytes}, _end(). */
int hl_container_writer_begin_frames(struct hl_container_writer *writer, uint32_t type,
				     uint32_t flags, struct hl_error *err);
int hl_container_writer_append_frames(struct hl_container_writer *writer, const void *stored,
				      size_t stored_bytes, size_t raw_bytes, struct hl_error *err);

/* Writes a compressed section of the texts of ${strings}, each with its NUL, by id from 1 on. */
int hl_container_writer_add_texts(struct hl_container_writer *writer, uint32_t type,
				  const struct hl_strings *strings, struct hl_error *err);

/* Writes the header and puts the file in the place of the old one; ${sync} waits for the disk. */
int hl_container_writer_finish(struct hl_container_writer *writer, bool sync, struct hl_error *err);

/* Removes the temporary file if the container was not finished. */
void hl_container_writer_release(struct hl_container_writer *writer);

/* A file being read. */
struct hl_container {
	int fd;		  /* the caller's */
	const char *path; /* for messages; the caller's */
	bool is_checked;  /* its sections were; else each is when it is loaded */
	struct hl_container_header header;
	struct hl_section_entry table[HL_CONTAINER_SECTIONS_MAX];
};

/* Whether the ${size} bytes at the beginning of a file are those of a container of ${kind}. */
bool hl_container_detect(const uint8_t *bytes, size_t size, uint32_t kind);

/* Reads header and table from ${fd} and checks every hash of the file, but for those of sections
 * with HL_SECTION_HASHED_WITHIN. */
int hl_container_open(struct hl_container *container, int fd, const char *path, uint32_t kind,
		      struct hl_error *err);

/* The same for a caller that needs a few sections: each is checked when it is loaded. */
int hl_container_open_some(struct hl_container *container, int fd, const char *path, uint32_t kind,
			   struct hl_error *err);

/*
 * Loads the first section of ${type} into memory that the caller frees; a NUL byte follows the
 * content. More than ${max_bytes} is refused before anything is allocated.
 */
int hl_container_load(const struct hl_container *container, uint32_t type, size_t max_bytes,
		      void **ret_bytes, size_t *ret_size, struct hl_error *err);

/* Where the first section of ${type} lies in the file, and its size there; false if there is none. */
bool hl_container_locate(const struct hl_container *container, uint32_t type, uint64_t *ret_offset,
			 uint64_t *ret_bytes);

/* ---- column sections: arrays of structs as one column for each member ---- */

/* One member of the struct: where it lies, and its bytes. */
struct hl_section_column {
	size_t offset;
	size_t size;
	/* A u32 that is stored as the number of its row, from 1 on, less itself; in sections without HL_SECTION_RELATIVE, which are older, as it is. */
	bool is_relative;
};

#define HL_COLUMN(owner, member)                                                           \
	{                                                                                  \
		offsetof(struct owner, member), sizeof(((struct owner *)0)->member), false \
	}

struct hl_columns {
	const struct hl_section_column *columns;
	size_t count;
	size_t struct_bytes;
	size_t row_bytes; /* sum of the columns' sizes */
};

extern const struct hl_columns hl_node_columns;	    /* struct hl_recording_node */
extern const struct hl_columns hl_value_columns;    /* struct hl_recording_value */
extern const struct hl_columns hl_resident_columns; /* struct hl_recording_resident */

/* Adds a compressed section of ${type} with ${rows} of ${structs}. 0 or a negative errno with a
 * sentence. */
int hl_columns_write(const struct hl_columns *columns, struct hl_container_writer *writer,
		     uint32_t type, const void *structs, size_t rows, struct hl_error *err);

/* HL_SECTION_ZSTD, and what else the columns need. */
uint32_t hl_columns_flags(const struct hl_columns *columns);

/* Copies column ${column} of ${rows} structs, of which the first is row ${first}, to ${ret_bytes}, one value after another, as it is stored. */
void hl_columns_split(const struct hl_columns *columns, size_t column, const void *structs,
		      size_t first, size_t rows, void *ret_bytes);

/*
 * Loads a section of at most ${rows_max} rows into an array that the caller frees, the pointer at
 * ${ret_structs}. Its first ${first} elements are zero and count as well. Columns of one byte are
 * booleans: another value than 0 and 1 is damage. 0 or a negative errno with a sentence.
 */
int hl_columns_read(const struct hl_columns *columns, const struct hl_container *container,
		    uint32_t type, size_t rows_max, size_t first, void *ret_structs,
		    size_t *ret_count, struct hl_error *err);

/* Fills the members of ${rows} structs from the ${rows} * row_bytes ${bytes} of a section. */
void hl_columns_join(const struct hl_columns *columns, const void *bytes, size_t rows,
		     void *structs);

/* ---- names, sections and bounds of a recording's files, and their JSON; see docs/format.md ---- */

#define HL_SUFFIX	".hl" /* that names of recordings have by custom */
#define HL_META_FILE	"recording.hlm"
#define HL_PROCESS_FILE "process-%u-%u.hlp" /* sequence, pid */

/* A copy of a module's file, which could not be found at its path later: its build id, or what else tells it from others. */
#define HL_MODULE_FILE_START "module-"
#define HL_MODULE_FILE_END   ".elf"
#define HL_MODULE_FILE_MAX   96

/* False where the file cannot be told from others. */
bool hl_recording_module_file(const uint8_t *build_id, uint32_t build_id_bytes,
			      const struct hl_file_print *print, char ret_name[HL_MODULE_FILE_MAX]);

#define HL_KIND_RECORDING HL_FOURCC('R', 'E', 'C', 'M')
#define HL_KIND_PROCESS	  HL_FOURCC('P', 'R', 'O', 'C')

#define HL_SECTION_META	    HL_FOURCC('M', 'E', 'T', 'A')
#define HL_SECTION_NODES    HL_FOURCC('N', 'O', 'D', 'E')
#define HL_SECTION_VALUES   HL_FOURCC('V', 'A', 'L', 'U')
#define HL_SECTION_RESIDENT HL_FOURCC('R', 'E', 'S', 'I') /* of snapshots */

/* More JSON than 16,384 modules with the longest paths can be is not read. */
#define HL_META_BYTES_MAX ((size_t)256 << 20)

/* Reads one file that is open at ${fd} into a zeroed struct, which is to be released in any case;
 * ${path} is for messages. */
int hl_recording_read_meta(int fd, const char *path, struct hl_recording *recording,
			   struct hl_error *err);
int hl_recording_read_process(int fd, const char *path, struct hl_recording_process *process,
			      struct hl_error *err);

/* The same without nodes and resident bytes: of a process whose nodes were read before, most of the work. */
int hl_recording_read_values(int fd, const char *path, struct hl_recording_process *process,
			     struct hl_error *err);

#define HL_RECORDING_NODES_MAX	   ((UINT32_C(1) << 24) - 1)
#define HL_RECORDING_VALUES_MAX	   (UINT32_C(1) << 26)
#define HL_RECORDING_MODULES_MAX   16384u
#define HL_RECORDING_THREADS_MAX   8192u
#define HL_RECORDING_PROVIDERS_MAX 32u
#define HL_RECORDING_SITES_MAX	   (UINT32_C(1) << 20)
#define HL_RECORDING_MARKS_MAX	   10000u
#define HL_RECORDING_FIGURES_MAX   64u

/* Text of the META section, to be freed; NULL for want of memory. */
char *hl_recording_json_write(const struct hl_recording *recording);
char *hl_recording_json_write_process(const struct hl_recording_process *process);

/*
 * Fill a zeroed struct; ${path} is for messages. After a failure the struct is to be released all
 * the same. node_count and value_count are set and within bounds, their arrays are not there yet.
 */
int hl_recording_json_read(const char *text, size_t size, const char *path,
			   struct hl_recording *recording, struct hl_error *err);
int hl_recording_json_read_process(const char *text, size_t size, const char *path,
				   struct hl_recording_process *process, struct hl_error *err);

/* ---- kept ---- */

/*
 * Column sections of a file that is written again and again: what is the same as in the last one is neither
 * compressed nor, where the caller says so, even read again.
 *
 *   piece   HL_KEPT_ROWS rows of one column, stored as a zstd frame of its own
 */

struct hl_columns;
struct hl_container_writer;

#define HL_KEPT_ROWS 512u

struct hl_kept_piece {
	uint64_t hash; /* of what is compressed */
	uint32_t raw_bytes, stored_bytes;
	uint8_t *stored; /* NULL: nothing is kept */
};

/* What a section was at the last time. Zero-initialize. */
struct hl_kept_columns {
	struct hl_kept_piece *pieces; /* those of the first rows, of all columns; then the next */
	size_t piece_count;
	size_t capacity;
};

/*
 * Adds a section of ${type} with ${rows} rows, and keeps it. ${structs} begins with row ${first}, a multiple of
 * HL_KEPT_ROWS: rows before it are as they were at the last time, when there were as many of them. 0 or a negative errno with a
 * sentence, after which ${kept} is to be released.
 */
int hl_kept_columns_write(struct hl_kept_columns *kept, const struct hl_columns *columns,
			  struct hl_container_writer *writer, uint32_t type, const void *structs,
			  size_t first, size_t rows, struct hl_error *err);

void hl_kept_columns_release(struct hl_kept_columns *kept);

/* What is kept of a process' file. Zero-initialize. */
struct hl_recording_kept {
	struct hl_kept_columns nodes, values;
};
