/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pushes pprof to Pyroscope, and to whatever speaks its /ingest: a form with the profile and, beside it, what its four values are.
 * In use is a level, of which servers take the mean; what was allocated is of this window alone.
 */
#include "push/sink.h"

#include "base/cleanup.h"
#include "fleet/web.h"
#include "view/view.h"

#include <ctype.h>
#include <inttypes.h>

#define INGEST	 "/ingest"
#define BOUNDARY "heapline-f3a1c7d25b904e68"

static const char value_kinds[] =
	"{\"inuse_space\":{\"units\":\"bytes\",\"aggregation\":\"average\"},"
	"\"inuse_objects\":{\"units\":\"objects\",\"aggregation\":\"average\"},"
	"\"alloc_space\":{\"units\":\"bytes\",\"aggregation\":\"sum\"},"
	"\"alloc_objects\":{\"units\":\"objects\",\"aggregation\":\"sum\"}}";

struct pyroscope {
	struct hl_push_sink sink;
	struct hl_web *web;
	struct hl_web_place place;
};

static void pyroscope_free(struct hl_push_sink *sink)
{
	struct pyroscope *pyroscope = (struct pyroscope *)sink;

	hl_web_free(pyroscope->web);
	hl_web_place_release(&pyroscope->place);
	free(pyroscope);
}

/* ---- names ---- */

/* Writes ${text} within a query; what is not plain, or has a meaning in names with labels, is a '_'. */
static void put_plain(FILE *out, const char *text)
{
	for (; *text; text++)
		putc(isalnum((unsigned char)*text) || strchr("-_./:", *text) ? *text : '_', out);
}

/* service{host=web-1,pid=4711}; braces, commas and equals signs are escaped for the query of a URL. */
static void put_name(FILE *out, const struct hl_fleet_window *window)
{
	static const enum hl_fleet_label shown[] = {HL_FLEET_HOST,	HL_FLEET_PID,
						    HL_FLEET_VERSION,	HL_FLEET_BUILD_ID,
						    HL_FLEET_CONTAINER, HL_FLEET_POD};
	const char *separator = "%7B";

	put_plain(out, window->labels[HL_FLEET_SERVICE]);
	for (size_t i = 0; i < HL_COUNT_OF(shown); i++) {
		const char *value = window->labels[shown[i]];
		if (!*value)
			continue;
		fprintf(out, "%s%s%%3D", separator, hl_fleet_label_names[shown[i]]);
		put_plain(out, value);
		separator = "%2C";
	}
	fputs("%7D", out); /* host and pid are always there */
}

/* ---- encoding and sending ---- */

static void put_part(FILE *out, const char *name, const char *file)
{
	fprintf(out,
		"--" BOUNDARY "\r\nContent-Disposition: form-data; name=\"%s\"; filename=\"%s\"\r\n"
		"Content-Type: application/octet-stream\r\n\r\n",
		name, file);
}

/* A line with the query, and the body after it. */
static int pyroscope_encode(struct hl_push_sink *sink, const struct hl_push_look *look,
			    int64_t from_ms, FILE *out, struct hl_error *err)
{
	struct hl_profile *profile = look->profile;
	FILE *notes = fopen("/dev/null", "w");
	const struct hl_view_options options = {
		.out = out, .notes = notes, .value = HL_VALUE_INUSE, .unit = HL_UNIT_BYTES};

	(void)sink;
	if (!notes)
		return hl_error_set(err, -errno, "cannot open '/dev/null': %s", strerror(errno));
	for (unsigned value = 0; value < HL_VALUE_COUNT; value++)
		for (unsigned unit = 0; unit < HL_UNIT_COUNT; unit++)
			profile->known[value][unit] &=
				value == HL_VALUE_INUSE || value == HL_VALUE_ALLOC;
	fputs("?name=", out);
	put_name(out, &look->window);
	fprintf(out, "&from=%" PRId64 "&until=%" PRId64 "&spyName=heapline\n", from_ms / 1000,
		look->window.ms / 1000);
	put_part(out, "profile", "profile.pprof");
	int r = hl_pprof_view(profile, &options, err);
	fputs("\r\n", out);
	put_part(out, "sample_type_config", "sample_type_config.json");
	fprintf(out, "%s\r\n--" BOUNDARY "--\r\n", value_kinds);
	fclose(notes);
	return r;
}

static int pyroscope_send(struct hl_push_sink *sink, char *bytes, size_t size, bool repeated,
			  struct hl_error *err)
{
	struct pyroscope *pyroscope = (struct pyroscope *)sink;
	char *end = memchr(bytes, '\n', size);
	struct hl_web_answer answer = {0};
	HL_FREED char *url = NULL;

	(void)repeated; /* the server cannot tell, so libcurl must not repeat it unasked */
	if (!end)
		return hl_error_set(err, -EBADMSG,
				    "cannot read a profile from the spool: it is damaged");
	*end = '\0';
	if (asprintf(&url, "%s%s", pyroscope->place.url, bytes) < 0)
		return hl_error_set(err, -ENOMEM, "out of memory");
	const struct hl_web_request request = {
		.url = url,
		.name = pyroscope->place.name,
		.user = pyroscope->place.user,
		.content_type = "multipart/form-data; boundary=" BOUNDARY,
		.body = end + 1,
		.size = size - (size_t)(end + 1 - bytes),
		.is_sent_once = true,
	};
	int r = hl_web_post(pyroscope->web, &request, &answer, err);
	free(answer.text);
	return r;
}

static const struct hl_push_sink_kind kind = {
	.free = pyroscope_free,
	.encode = pyroscope_encode,
	.send = pyroscope_send,
};

int hl_push_pyroscope_open(const char *url, struct hl_push_sink **ret_sink, struct hl_error *err)
{
	struct pyroscope *pyroscope = calloc(1, sizeof(*pyroscope));

	if (!pyroscope)
		return hl_error_set(err, -ENOMEM, "out of memory");
	pyroscope->sink.kind = &kind;
	int r = hl_web_place_parse(url, NULL, INGEST, &pyroscope->place);
	r = r == 0 ? hl_web_new(&pyroscope->web, err) : hl_error_set(err, r, "out of memory");
	if (r < 0)
		pyroscope_free(&pyroscope->sink);
	else
		*ret_sink = &pyroscope->sink;
	return r;
}
