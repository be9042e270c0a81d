/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of heapline annotate: functions, cut into sections of one source file each. */
#pragma once

#include "view/annotation.h"
#include "view/source.h"
#include "view/table.h"

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
