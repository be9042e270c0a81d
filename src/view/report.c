/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline report: one page of HTML with every view, which needs nothing else. */
#include "view/report_data.h"
#include "view/report_payload.h"
#include "view/summary.h"

#include <errno.h>
#include <string.h>

/* web/dist/report.html. */
extern const char hl_report_page[];
extern const size_t hl_report_page_size;

/* Where the data go; it stands in the page once. */
#define DATA_MARK "@HEAPLINE_DATA@"

static int write_payload(const struct hl_profile *profile, const struct hl_view_options *options)
{
	FILE *payload;

	int r = hl_report_payload_open(options->out, &payload);
	if (r < 0)
		return r;
	r = hl_report_data_write(profile, options, payload);
	if (fclose(payload) != 0 && r == 0)
		r = -EIO;
	return r;
}

static int write_page(const struct hl_profile *profile, const struct hl_view_options *options)
{
	const char *mark = strstr(hl_report_page, DATA_MARK);
	const char *rest = mark + strlen(DATA_MARK);

	fwrite(hl_report_page, 1, (size_t)(mark - hl_report_page), options->out);
	int r = write_payload(profile, options);
	fwrite(rest, 1, hl_report_page_size - (size_t)(rest - hl_report_page), options->out);
	return r == 0 && ferror(options->out) ? -EIO : r;
}

int hl_view_report(const struct hl_profile *profile, const struct hl_view_options *options,
		   struct hl_error *err)
{
	int r = options->json ? hl_report_data_summary(profile, options, options->out)
			      : write_page(profile, options);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
