/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks at a program before it is started: can the recorder work in it? */
#pragma once

#include "base/error.h"
#include "guests/traits.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Finds ${command} as execvp does: along PATH unless it has a slash. Writes the path of the file
 * that would be run. -ENOENT when there is none, -EACCES when what there is may not be run,
 * -ENAMETOOLONG.
 */
int hl_examine_find(const char *command, char *ret_path, size_t capacity, struct hl_error *err);

/* Why nothing would be recorded in a program, and what to do; NULL: it can be recorded. Constants. */
struct hl_examined {
	const char *reason, *remedy;
	/* Why the recorder must be brought in as the program begins; NULL: it is preloaded. */
	const char *entered;
	bool is_static; /* preloading does nothing to it, and may be left for its children */
	bool at_entry;	/* as it begins: once its libraries are loaded */
	bool has_pools; /* so are they, which presets name */
	/* What it allocates is seen only where the recorder is brought in, as at its entry; or NULL. */
	const struct hl_guest_allocator *guest_allocator;
};

/*
 * Judges the program at ${path}: it may be static, of another machine or libc, set-user-id, or
 * have a malloc of its own. Scripts are followed to their interpreter, which ${ret_program} names.
 * What cannot be read is let pass: the kernel will judge.
 */
struct hl_examined hl_examine_file(const char *path, char ret_program[PATH_MAX]);

/* Refuses such a program with -ENOTSUP and one sentence of both. */
int hl_examine_program(const char *path, struct hl_examined *ret_examined, struct hl_error *err);

/*
 * The function of a known allocator under a name of its own, mi_malloc for one, that the file at
 * ${path} brings in itself, so that no library can take its place: a constant; NULL when there is
 * none, or no symbol table says so.
 */
const char *hl_examine_allocator(const char *path);

#define HL_EXAMINE_UNSEEN_MAX 256 /* bytes of names, with the NUL; no more than these are named */

/*
 * Writes the functions of allocators that the file at ${path} calls by names of the allocator's own
 * and whose place the preloaded recorder does not take, separated by ", ": "" where there are none.
 */
void hl_examine_unseen(const char *path, char ret_names[HL_EXAMINE_UNSEEN_MAX]);

#define HL_EXAMINE_VERSION_MAX 32 /* bytes of a version, with the NUL */

/* If the file at ${path} holds an interpreter of a guest that exports nothing of itself, so that the recorder cannot
 * find it: what helps, a constant; else NULL. Its text about itself says so, which stripping leaves; ${ret_version} is what it
 * names, "NAME 5.4.6". */
const char *hl_examine_hidden_guest(const char *path, char ret_version[HL_EXAMINE_VERSION_MAX]);
