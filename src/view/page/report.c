/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline report: one page of HTML with every view, which needs nothing else. */
#include "view/page/report.h"
#include "base/cleanup.h"
#include "view/summary.h"

#include <errno.h>
#include <string.h>

/* web/dist/report.html. */
extern const char hl_report_page[];
extern const size_t hl_report_page_size;

/* Where the data go; it stands in the page once. */
#define DATA_MARK "@HEAPLINE_DATA@"

static int write_page(const struct hl_profile *profile, const struct hl_report_history *history,
		      const struct hl_view_options *options)
{
	const char *mark = strstr(hl_report_page, DATA_MARK);
	const char *rest = mark + strlen(DATA_MARK);
	FILE *payload;

	fwrite(hl_report_page, 1, (size_t)(mark - hl_report_page), options->out);
	int r = hl_report_payload_open(options->out, &payload);
	if (r < 0)
		return r;
	r = hl_report_data_write(profile, history, options, payload);
	if (fclose(payload) != 0 && r == 0)
		r = -EIO;
	fwrite(rest, 1, hl_report_page_size - (size_t)(rest - hl_report_page), options->out);
	return r == 0 && ferror(options->out) ? -EIO : r;
}

int hl_view_report(const struct hl_profile *profile, const struct hl_view_options *options,
		   struct hl_error *err)
{
	HL_CLEANUP(hl_report_history_release) struct hl_report_history history = {0};
	int r = -ENODATA;

	if (options->json) {
		r = hl_report_data_write_summary(profile, options, options->out);
		return r < 0 ? hl_summary_fail(profile, r, err) : 0;
	}
	if (options->history)
		r = hl_report_history_init(&history, options->history, profile, err);
	if (r == 0) {
		r = write_page(history.profile, &history, options);
	} else if (r != -ENOMEM) { /* the page needs no log */
		if (options->history)
			fprintf(options->notes, "heapline: nothing is shown over time: %s\n",
				err->text);
		r = write_page(profile, NULL, options);
	}
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
