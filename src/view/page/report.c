/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline report: one page of HTML with every view, which needs nothing else. */
#include "view/page/report.h"

#include "base/cleanup.h"
#include "view/summary.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define LINE_BYTES  90 /* a multiple of 3: 120 characters of base64 */
#define CHUNK_BYTES 65536
#define LEVEL	    4 /* a third of the time of 6, for pages that are 7 % larger */

struct payload {
	FILE *out;
	z_stream deflater;
	size_t line_used;
	uint8_t line[LINE_BYTES]; /* deflated bytes that do not make a line yet */
	uint8_t chunk[CHUNK_BYTES];
};

/* ---- the data on their way into the page: base64 (RFC 4648, section 4) ---- */

static void put_line(struct payload *payload)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	FILE *out = payload->out;

	for (size_t i = 0; i < payload->line_used; i += 3) {
		const uint8_t *bytes = payload->line + i;
		size_t count = payload->line_used - i;
		uint32_t bits = (uint32_t)bytes[0] << 16 |
				(count > 1 ? (uint32_t)bytes[1] << 8 : 0) |
				(count > 2 ? bytes[2] : 0);
		putc(digits[bits >> 18], out);
		putc(digits[bits >> 12 & 63], out);
		putc(count > 1 ? digits[bits >> 6 & 63] : '=', out);
		putc(count > 2 ? digits[bits & 63] : '=', out);
	}
	putc('\n', out);
	payload->line_used = 0;
}

/* ---- the stream ---- */

/* Deflates what waits in the deflater, and with Z_FINISH all that it holds back. */
static void drain(struct payload *payload, int flush)
{
	z_stream *deflater = &payload->deflater;

	do {
		deflater->next_out = payload->chunk;
		deflater->avail_out = CHUNK_BYTES;
		deflate(deflater, flush); /* cannot fail: the state is sound and there is room */
		for (size_t i = 0; i < CHUNK_BYTES - deflater->avail_out; i++) {
			payload->line[payload->line_used++] = payload->chunk[i];
			if (payload->line_used == LINE_BYTES)
				put_line(payload);
		}
	} while (deflater->avail_out == 0);
}

static ssize_t payload_write(void *cookie, const char *bytes, size_t size)
{
	struct payload *payload = cookie;

	payload->deflater.next_in = (z_const Bytef *)bytes;
	payload->deflater.avail_in = (uInt)size; /* a stdio buffer: small */
	drain(payload, Z_NO_FLUSH);
	return ferror(payload->out) ? 0 : (ssize_t)size;
}

static int payload_close(void *cookie)
{
	struct payload *payload = cookie;

	drain(payload, Z_FINISH);
	if (payload->line_used)
		put_line(payload);
	int r = ferror(payload->out) ? EOF : 0;
	deflateEnd(&payload->deflater);
	free(payload);
	return r;
}

int hl_report_payload_open(FILE *out, FILE **ret_payload)
{
	static const cookie_io_functions_t functions = {.write = payload_write,
							.close = payload_close};
	struct payload *payload = calloc(1, sizeof(*payload));

	if (!payload)
		return -ENOMEM;
	payload->out = out;
	if (deflateInit(&payload->deflater, LEVEL) != Z_OK) {
		free(payload);
		return -ENOMEM;
	}
	FILE *stream = fopencookie(payload, "w", functions);
	if (!stream) {
		deflateEnd(&payload->deflater);
		free(payload);
		return -ENOMEM;
	}
	*ret_payload = stream;
	return 0;
}

/* ---- the page ---- */

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

int hl_report_view(const struct hl_profile *profile, const struct hl_view_options *options,
		   struct hl_error *err)
{
	HL_CLEANUP(hl_report_history_release) struct hl_report_history history = {0};
	int r = -ENODATA;

	if (options->json) {
		r = hl_report_data_write_summary(profile, options, options->out);
		return r < 0 ? hl_summary_fail(profile, r, err) : 0;
	}
	if (options->report.history)
		r = hl_report_history_init(&history, options->report.history, profile, err);
	if (r == 0) {
		r = write_page(history.profile, &history, options);
	} else if (r != -ENOMEM) { /* the page needs no log */
		if (options->report.history)
			fprintf(options->notes, "heapline: nothing is shown over time: %s\n",
				err->text);
		r = write_page(profile, NULL, options);
	}
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
