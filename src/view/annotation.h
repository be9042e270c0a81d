/* SPDX-License-Identifier: BSD-2-Clause */
/* Figures by the lines of chosen functions; a line that was inlined belongs to its own function. */
#pragma once

#include "profile/aggregate.h"
#include "view/view.h"

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
 * The functions that options->function names: those of that very name, with or without its
 * parameters; else those in whose names the extended regular expression is found. 0; -ENOMEM;
 * -EINVAL for a bad expression and -ENOENT when there is no such function, with a sentence.
 */
int hl_annotation_init(struct hl_annotation *annotation, const struct hl_profile *profile,
		       const struct hl_view_options *options, struct hl_error *err);

void hl_annotation_release(struct hl_annotation *annotation); /* a zero-initialized one is fine */
