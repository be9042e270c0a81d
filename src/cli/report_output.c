/* SPDX-License-Identifier: BSD-2-Clause */
/* Where a report goes that is not of a recording; see report_output.h. */
#include "cli/report_output.h"

#include <errno.h>
#include <string.h>

int hl_report_output_check(struct hl_error *err)
{
	struct hl_view_output options = hl_view_options_parse_output();
	return options.path ? hl_output_file_check(options.path, options.force, NULL, 0, err) : 0;
}

int hl_report_output_open(struct hl_report_output *output, bool pages, struct hl_error *err)
{
	*output =
		(struct hl_report_output){.options = hl_view_options_parse_output(), .out = stdout};
	if (output->options.path) {
		int r = hl_output_file_open(&output->file, output->options.path, err);
		output->out = output->file.out;
		return r;
	}
	if (pages && !output->options.no_pager) {
		hl_pager_init(&output->pager);
		output->out = output->pager.out;
	}
	return 0;
}

int hl_report_output_close(struct hl_report_output *output, int r, struct hl_error *err)
{
	if (output->options.path) {
		int closed = hl_output_file_close(&output->file, r == 0, err);
		if (closed < 0)
			return closed;
	} else {
		if (r < 0 && ferror(output->out))
			r = 0;
		hl_pager_release(&output->pager);
	}
	return r < 0 ? hl_error_set(err, r, "cannot write the report: %s", strerror(-r)) : 0;
}
