/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The parts of heapline annotate: figures by the lines of chosen functions (annotation.c), cut into
 * sections of one source file each. A line that was inlined belongs to its own function.
 */
#pragma once

#include "profile/calltree.h"
#include "view/table.h"
#include "view/view.h"

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* ---- source files ---- */

/* A source file, found by the path that debug information has of it, and its lines. */
struct hl_source {
	char *path; /* where it was found */
	time_t changed;
	char *text;   /* NUL bytes instead of newlines */
	char **lines; /* into text */
	size_t count;
};

/*
 * Reads the file that was compiled as ${recorded}: from below ${folder}, unless that is NULL, the
 * longest end of the path that is there; else from ${recorded} itself. 0, -ENOMEM, or why it
 * cannot be read: -ENOENT, -EFBIG beyond 64 MiB, -EINVAL for what is not a file.
 */
int hl_source_read(struct hl_source *source, const char *recorded, const char *folder);

void hl_source_release(struct hl_source *source); /* a zero-initialized one is fine */

/* Line ${number}, from 1 on; NULL when there is none. */
const char *hl_source_line(const struct hl_source *source, uint32_t number);

/* ---- figures by line ---- */

struct hl_annotation_line {
	uint32_t file, line; /* 0 when unknown */
	struct hl_aggregate_figures flat, cum;
};

struct hl_annotation_function {
	uint32_t function;
	size_t first_line, line_count; /* in the annotation's lines, by file and line */
	struct hl_aggregate_figures flat, cum;
};

struct hl_annotation {
	struct hl_annotation_function *functions; /* heaviest first, by cum */
	struct hl_annotation_line *lines;
	size_t function_count, line_count;
	struct hl_aggregate_figures total; /* of the whole profile */
};

/*
 * The functions that options->annotate.function names: those of that very name, with or without its
 * parameters; else those in whose names the extended regular expression is found. 0; -ENOMEM;
 * -EINVAL for a bad expression and -ENOENT when there is no such function, with a sentence.
 */
int hl_annotation_init(struct hl_annotation *annotation, const struct hl_profile *profile,
		       const struct hl_view_options *options, struct hl_error *err);

void hl_annotation_release(struct hl_annotation *annotation); /* a zero-initialized one is fine */

/* ---- the report ---- */

/* What all parts of one report need. */
struct hl_annotate {
	struct hl_emit *emit;
	const struct hl_profile *profile;
	const struct hl_view_options *options;
	const struct hl_annotation *annotation;
};

/* Lines of one function in one file, and the file, if it is there. */
struct hl_annotate_section {
	const struct hl_annotation_function *function;
	const struct hl_annotation_line *lines;
	size_t count;
	struct hl_source source;
	int missing;	       /* 0, or why there is no source */
	int64_t heaviest_from; /* text: what a line must have to be one of the heaviest */
};

/*
 * The section of ${function} that begins at its line ${first} (an index, not a number). 0 or
 * -ENOMEM.
 */
int hl_annotate_section_init(struct hl_annotate_section *section, const struct hl_annotate *report,
			     const struct hl_annotation_function *function, size_t first);

void hl_annotate_section_release(struct hl_annotate_section *section);

/* The report as text, without its end. 0 or -ENOMEM. */
int hl_annotate_text(const struct hl_annotate *report);
