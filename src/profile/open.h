/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opens whatever holds a profile: a recording, a packed recording, or a file of another tool. What
 * it is is found out from its content, never from its name.
 */
#pragma once

#include "profile/input.h"
#include "profile/profile.h"

/* Bytes of a file in memory. The reader may assume a NUL byte behind them. */
struct hl_import_input {
	const char *name; /* for messages */
	const uint8_t *bytes;
	size_t size;
	bool partial;	     /* to detects() alone: more follows them, */
	uint64_t whole_size; /* and this is the whole file's size; 0: not known */
};

/*
 * One kind of foreign file. Readers trust nothing; what is wrong is a sentence that names the
 * offset (binary) or the line (text). They fill values and `known`, and may fill the source; the
 * rest of the head is filled by hl_profile_open().
 */
struct hl_importer {
	const char *name; /* "pprof", as people call the format */
	/* Whether the bytes look so, or may with what follows them; called in the order of the
	 * table, the first that does reads. */
	bool (*detects)(const struct hl_import_input *input);
	int (*read)(const struct hl_import_input *input, struct hl_profile **ret_profile,
		    struct hl_error *err);
};

extern const struct hl_importer hl_importer_pprof;  /* profile.proto */
extern const struct hl_importer hl_importer_mprof;  /* skynet-mprof .pro */
extern const struct hl_importer hl_importer_legacy; /* heap files of gperftools and jemalloc */
extern const struct hl_importer hl_importer_folded; /* folded text, one value or two */

/*
 * The profile in ${path}; "-" is standard input. 0 or a negative errno with a sentence, as
 * hl_profile_load(). Processes and threads can be selected in recordings alone.
 */
int hl_profile_open(const char *path, const struct hl_profile_selection *selection,
		    struct hl_profile **ret_profile, struct hl_error *err);

/* The same of a file that is open. */
int hl_profile_open_input(struct hl_input *input, const struct hl_profile_selection *selection,
			  struct hl_profile **ret_profile, struct hl_error *err);

/*
 * Reads ${input}, a file of another tool, of the kind of ${importer} (NULL: of the kind that it
 * looks like). What is gzipped, whatever it is, is inflated first. 0 or a negative errno with a
 * sentence.
 */
int hl_profile_import_bytes(const struct hl_importer *importer, const struct hl_import_input *input,
			    struct hl_profile **ret_profile, struct hl_error *err);

/* The same of ${file}, of which only the head is read if nothing reads such files. */
int hl_profile_import(struct hl_input *file, const struct hl_importer *importer,
		      struct hl_profile **ret_profile, struct hl_error *err);
