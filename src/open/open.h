/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens anything that holds a profile or logs of processes. The content decides what a file is, never its name. */
#pragma once

#include "base/error.h"
#include "import/importer.h"
#include "log/log.h"
#include "pack/pack.h"
#include "profile/builder.h"
#include "profile/profile.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- input ---- */

/*
 * A file that is not a directory, opened so that nothing can make the reader wait for ever or take
 * all memory. Its first block tells its kind before more of it is read.
 */

#define HL_INPUT_HEAD_BYTES 65536

/* More of a stream, or of another tool's file, is not read into memory. */
#define HL_INPUT_BYTES_MAX (UINT64_C(1) << 30)

/* Close in any case, after HL_INPUT_NONE at least. */
struct hl_input {
	const char *name; /* the path, the caller's, or "standard input" */
	int fd;
	bool is_stdin;
	bool is_stream; /* a pipe or device, which has been read as far as the head */
	uint64_t size;	/* of a file that is not a stream */
	uint8_t *head;
	size_t head_size; /* less than HL_INPUT_HEAD_BYTES: the head is the whole input */
};

#define HL_INPUT_NONE ((struct hl_input){.fd = -1})

/* Whether ${path} is a directory, or does not exist, as a missing recording; "-" never is. */
bool hl_input_is_directory(const char *path);

/*
 * Opens ${path} ("-": standard input) and reads its head. A FIFO that nobody opens for writing
 * within a second is refused. 0 or a negative errno with a sentence; -EISDIR for a directory.
 */
int hl_input_open(struct hl_input *input, const char *path, struct hl_error *err);
void hl_input_close(struct hl_input *input);

/* Whether it begins with the ${size} bytes of ${mark}. */
bool hl_input_begins_with(const struct hl_input *input, const void *mark, size_t size);

/* All of it in memory that the caller frees, a NUL byte after it. 0 or a negative errno with a
 * sentence: -EFBIG for more than HL_INPUT_BYTES_MAX. */
int hl_input_read(struct hl_input *input, uint8_t **ret_bytes, size_t *ret_size,
		  struct hl_error *err);

/*
 * Makes a stream a file that can be read at any offset, and again: the bytes of a pipe are copied
 * to memory, which takes the place of standard input. As hl_input_read().
 */
int hl_input_make_file(struct hl_input *input, struct hl_error *err);

/* ---- open ---- */

/*
 * Opens anything that holds a profile: a recording, a packed recording, or a file of another tool.
 * The content decides what a file is, never its name.
 */

/*
 * The profile in ${path}; "-" is standard input, and a URL of fleet/store.h names a store. 0 or a negative errno with a sentence, as
 * hl_profile_load(). Processes and threads can be selected in recordings alone.
 */
int hl_open_profile(const char *path, const struct hl_profile_selection *selection,
		    struct hl_profile **ret_profile, struct hl_error *err);

/* When what is at ${path} was last written, of a recording its last save: CLOCK_REALTIME. 0 or a
 * negative errno. */
int hl_open_saved_ns(const char *path, uint64_t *ret_ns);

/* The same of a file that is open. */
int hl_open_profile_input(struct hl_input *input, const struct hl_profile_selection *selection,
			  struct hl_profile **ret_profile, struct hl_error *err);

/*
 * Reads ${input}, a file of another tool, of the kind of ${importer} (NULL: of the kind that it
 * looks like). Gzipped files of any kind are inflated first. 0 or a negative errno with a sentence.
 */
int hl_open_import_bytes(const struct hl_importer *importer, const struct hl_import_input *input,
			 struct hl_profile **ret_profile, struct hl_error *err);

/* The same of ${file}. Only its head is read if no importer reads such files. */
int hl_open_import(struct hl_input *file, const struct hl_importer *importer,
		   struct hl_profile **ret_profile, struct hl_error *err);

/* ---- log source ---- */

/*
 * Opens anything that holds logs of processes: a recording, a packed recording, a directory with
 * segments alone, or one segment. A process that is in no recording is known by its log alone.
 */

struct hl_log_source {
	struct hl_pack_log log;	     /* its recording's processes need not have any nodes */
	struct hl_profile *packed;   /* of a packed recording: it has the names */
	struct hl_known_names names; /* in it */
};

#define HL_LOG_SOURCE_NONE ((struct hl_log_source){.log.place = HL_LOG_PLACE_NONE})

/* Opens ${path}, "-" is standard input. 0 or a negative errno with a sentence. Release in any
 * case. */
int hl_log_source_open(struct hl_log_source *source, const char *path, struct hl_error *err);

/* The same of ${path} that is open at ${input}, which may be closed afterwards. */
int hl_log_source_open_input(struct hl_log_source *source, struct hl_input *input,
			     struct hl_error *err);

void hl_log_source_release(struct hl_log_source *source);

/* The error of reading ${name}, a file of events, without its recording. */
int hl_log_source_refuse_events(const char *name, struct hl_error *err);

/* Whether ${input} is a segment of a log. */
bool hl_log_source_is_segment(const struct hl_input *input);

/* ---- profiles of a moment: what was in use then ---- */

/*
 * The process whose log is shown: the one that ${selection} names, else of those with a log the one
 * with the highest peak; and its log, which has intervals. 0 or a negative errno with a sentence.
 */
int hl_moment_open_log(const struct hl_log_source *source,
		       const struct hl_profile_selection *selection,
		       const struct hl_recording_process **ret_process, struct hl_log **ret_log,
		       struct hl_error *err);

/*
 * The profile of ${state}, a state of the log of ${process} of ${source}. *${ret_nodes}, unless
 * NULL, is the node of the profile of each of the state's nodes; the caller frees it. As
 * hl_profile_load().
 */
int hl_moment_profile(const struct hl_log_source *source,
		      const struct hl_recording_process *process, const struct hl_log_state *state,
		      const struct hl_profile_selection *selection, struct hl_profile **ret_profile,
		      uint32_t **ret_nodes, struct hl_error *err);

/* The profile at selection->at, which is not HL_MOMENT_NONE. As hl_profile_load(). */
int hl_moment_load(const struct hl_log_source *source, const struct hl_profile_selection *selection,
		   struct hl_profile **ret_profile, struct hl_error *err);
