/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opens anything that holds a profile: a recording, a packed recording, or a file of another tool.
 * The content decides what a file is, never its name.
 */
#pragma once

#include "import/importer.h"
#include "open/input.h"
#include "profile/profile.h"

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
