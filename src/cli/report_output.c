/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens and closes what a report is written to; see output.h. */
#include "cli/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int hl_report_output_choose_form(const struct hl_verb *verb, struct hl_view_output *output,
				 bool guest, bool draws, enum hl_report_form *ret_form)
{
	static const char *const pictures[] = {"svg", NULL};
	bool is_picture = draws && hl_view_output_format_of(output->path, pictures) >= 0;

	if (guest && output->json)
		return hl_cli_usage_error(verb, "--term and --json exclude each other");
	if (is_picture && (guest || output->json))
		return hl_cli_usage_error(
			verb, "'%s' is named as a picture, but --term and --json write text",
			output->path);
	*ret_form = is_picture ? HL_REPORT_SVG : guest ? HL_REPORT_GUEST : HL_REPORT_TABLE;
	return hl_view_output_obey_name(verb, output, draws ? pictures : NULL, guest);
}

int hl_report_output_check(const struct hl_view_output *options, char *const *inputs,
			   size_t input_count, struct hl_error *err)
{
	return options->path ? hl_output_file_check(options->path, options->force, inputs,
						    input_count, err)
			     : 0;
}

int hl_report_output_open(struct hl_report_output *output, const struct hl_view_output *options,
			  bool pages, struct hl_error *err)
{
	*output = (struct hl_report_output){.options = options, .out = stdout};
	if (options->path) {
		int r = hl_output_file_open(&output->file, options->path, err);
		output->out = output->file.out;
		return r;
	}
	if (pages && !options->no_pager) {
		hl_pager_init(&output->pager);
		output->out = output->pager.out;
	}
	return 0;
}

int hl_report_output_close(struct hl_report_output *output, int r, struct hl_error *err)
{
	if (output->options->path) {
		int closed = hl_output_file_close(&output->file, r >= 0, err);
		if (closed < 0)
			return closed;
	} else {
		if (r < 0 && ferror(output->out))
			r = 0;
		hl_pager_release(&output->pager);
	}
	return r < 0 ? hl_error_set(err, r, "cannot write the report: %s", strerror(-r)) : r;
}

int hl_report_output_screen(const struct hl_view_output *output,
			    int (*write)(const void *subject, const struct hl_emit_options *how),
			    const void *subject)
{
	char *text = NULL;
	size_t size;

	FILE *buffer = open_memstream(&text, &size);
	if (!buffer)
		return -ENOMEM;
	const struct hl_emit_options how = {.out = buffer,
					    .json = output->json,
					    .color = hl_view_output_has_color(output),
					    .row_limit = output->row_limit};
	int r = write(subject, &how);
	if (fclose(buffer) != 0 && r == 0)
		r = -ENOMEM;
	if (r == 0 && isatty(STDOUT_FILENO) && !output->json)
		fputs("\033[H\033[2J", stdout);
	if (r == 0)
		fwrite(text, 1, size, stdout);
	free(text);
	if (r == 0 && fflush(stdout) != 0)
		r = -errno;
	return r;
}
