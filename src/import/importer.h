/* SPDX-License-Identifier: BSD-2-Clause */
/* The readers of other tools' files, and what they read. */
#pragma once

#include "profile/profile.h"

#include <errno.h>

/* Bytes of a file in memory. The reader may assume a NUL byte after them. */
struct hl_import_input {
	const char *name; /* for messages */
	const uint8_t *bytes;
	size_t size;
	bool partial;	     /* to detects() alone: more follows them, */
	uint64_t whole_size; /* and this is the whole file's size; 0: not known */
};

/*
 * One kind of foreign file. A new one also goes into the tables of open/open.c, which finds out the
 * kind of a file, and of cli/cmd_import.c, whose --format names it. Readers trust nothing; what is wrong is a sentence that names the
 * offset (binary) or the line (text). They fill values and `known`, and may fill the source; the
 * rest of the head is filled by hl_open_profile().
 */
struct hl_importer {
	const char *name; /* "pprof", as people call the format */
	/* Whether the bytes look so, or may with what follows them; called in the order of
	 * open/open.c; the first that does reads. */
	bool (*detects)(const struct hl_import_input *input);
	int (*read)(const struct hl_import_input *input, struct hl_profile **ret_profile,
		    struct hl_error *err);
};

extern const struct hl_importer hl_importer_pprof;  /* profile.proto */
extern const struct hl_importer hl_importer_legacy; /* heap files of gperftools and jemalloc */
extern const struct hl_importer hl_importer_v8;	    /* sampled heap profiles of V8 */
extern const struct hl_importer hl_importer_folded; /* folded text, one value or two */

/* Says that ${input} cannot be read for want of memory when ${code} is -ENOMEM. Returns it. */
static inline int hl_importer_fail(const struct hl_import_input *input, int code,
				   struct hl_error *err)
{
	return code == -ENOMEM
		       ? hl_error_set(err, code, "cannot read '%s': out of memory", input->name)
		       : code;
}

/*
 * What ${input} is and what to do with it, to follow "cannot read 'X': it is "; NULL: nothing that
 * is known here. Some of them would pass for folded text, so ask before its reader.
 */
const char *hl_import_foreign(const struct hl_import_input *input);

/*
 * Makes the numbers of ${profile}, just read by hl_importer_folded as bytes in use, ${value} in
 * ${unit}. ${value} is in use, allocated or peak.
 */
void hl_import_folded_as(struct hl_profile *profile, enum hl_value value, enum hl_unit unit);
