/* SPDX-License-Identifier: BSD-2-Clause */
/* Where a report goes that is not of a recording: what --output, --json and so on say. */
#pragma once

#include "cli/output_file.h"
#include "cli/pager.h"
#include "cli/view_options.h"
#include "view/emit.h"

struct hl_report_output {
	struct hl_view_output options;
	struct hl_pager pager;
	struct hl_output_file file;
	FILE *out;
};

/* Whether the output can be written at all, before any work is done for it. 0 or a negative errno
 * with a sentence. */
int hl_report_output_check(struct hl_error *err);

/*
 * Opens it; ${output} must not move until it is closed. A report that is for people (${pages}) goes
 * through a pager where it meets a terminal. 0 or a negative errno with a sentence.
 */
int hl_report_output_open(struct hl_report_output *output, bool pages, struct hl_error *err);

/* How a report is written to it. */
static inline struct hl_emit_options hl_report_output_emit(const struct hl_report_output *output,
							   uint64_t row_limit)
{
	return (struct hl_emit_options){.out = output->out,
					.json = output->options.json,
					.color = output->options.color,
					.row_limit = row_limit};
}

/*
 * Closes it after ${r}, what writing the report returned: a file is kept if that is 0. 0, or a
 * negative errno with a sentence. An error of standard output is reported when the program ends; a
 * pager that was left early is not an error.
 */
int hl_report_output_close(struct hl_report_output *output, int r, struct hl_error *err);
