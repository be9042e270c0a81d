/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file that -o names. It is written under a temporary name beside it and put in its place when
 * it is whole, so that what fails or is interrupted leaves nothing half written. What stands there
 * already keeps its mode and owner, and symbolic links are followed. Devices and pipes are written
 * to as they are.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct hl_output_file {
	const char *path; /* as the user named it */
	char *target;	  /* where it lies, behind symbolic links */
	char *temporary;  /* NULL: written in place */
	FILE *out;
	int fd;	   /* of ${out} */
	int error; /* errno of the first write that failed, or 0 */
};

/*
 * Whether ${path} may be written, asked before the work begins: it does not exist, ${force} allows
 * overwriting it, or it is a device or a pipe; and it is not one of the ${input_count} ${inputs}
 * or a file in one of them. 0 or a negative errno with a sentence.
 */
int hl_output_file_check(const char *path, bool force, char *const *inputs, size_t input_count,
			 struct hl_error *err);

/* As hl_output_file_check(), for what cannot be written to a device or a pipe. */
int hl_output_file_check_regular(const char *path, bool force, char *const *inputs,
				 size_t input_count, struct hl_error *err);

/*
 * Opens ${path}, which passed a check, into ${file}, which must not move until it is closed. One
 * can be open at a time: until then, a signal that ends the program takes the temporary away. 0 or
 * a negative errno with a sentence, after which there is nothing to close.
 */
int hl_output_file_open(struct hl_output_file *file, const char *path, struct hl_error *err);

/*
 * Puts the file in its place if ${keep} and nothing went wrong, or else removes the temporary. 0;
 * or a negative errno with a sentence, in place of another one in ${err}, when a write failed.
 */
int hl_output_file_close(struct hl_output_file *file, bool keep, struct hl_error *err);

struct hl_pack_log;
struct hl_profile;

/* Packs ${profile}, loaded with keep_rows, and ${log} (NULL: none) into ${path}. 0 or a negative
 * errno with a sentence. */
int hl_output_file_write_packed(const struct hl_profile *profile, const struct hl_pack_log *log,
				const char *path, struct hl_error *err);
