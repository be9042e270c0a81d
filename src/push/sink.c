/* SPDX-License-Identifier: BSD-2-Clause */
/* Chooses a sink; those of Pyroscope and of stores. See sink.h. */
#include "push/sink.h"

#include "base/cleanup.h"
#include "fleet/store.h"
#include "fleet/web.h"
#include "view/view.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>

/* ---- windows to a store of a fleet ---- */

struct store_sink {
	struct hl_push_sink sink;
	struct hl_fleet_store *store;
};

static struct hl_fleet_store *store_of(struct hl_push_sink *sink)
{
	return ((struct store_sink *)sink)->store;
}

static void store_free(struct hl_push_sink *sink)
{
	hl_fleet_free(store_of(sink));
	free(sink);
}

static int store_encode(struct hl_push_sink *sink, const struct hl_push_look *look, int64_t from_ms,
			FILE *out, struct hl_error *err)
{
	(void)sink;
	(void)from_ms;
	(void)err;
	hl_fleet_window_write(&look->window, out);
	return 0;
}

static int insert(struct hl_push_sink *sink, const struct hl_fleet_window *const *windows,
		  size_t count, bool repeated, struct hl_error *err)
{
	int r = hl_fleet_insert(store_of(sink), windows, count, repeated, err);

	if (r != -ENODATA)
		return r;
	*err = (struct hl_error){0};
	r = hl_fleet_init(store_of(sink), 0, err);
	return r == 0 ? hl_fleet_insert(store_of(sink), windows, count, repeated, err) : r;
}

static int store_encode_groups(struct hl_push_sink *sink, const struct hl_groups *groups,
			       const char *host, int64_t ms, FILE *out)
{
	_Static_assert(HL_FLEET_BALANCE_TEXTS + 1 + HL_GROUP_FIGURES == HL_FLEET_BALANCE_COUNT,
		       "a column for each figure");

	(void)sink;
	fputs(HL_FLEET_BALANCES, out);
	for (size_t i = 0; i < groups->count; i++) {
		const struct hl_group *group = &groups->groups[i];
		const char *const texts[] = {host, group->name, group->container, group->pod};
		for (size_t k = 0; k < HL_COUNT_OF(texts); k++) {
			hl_fleet_put_cell(out, texts[k]);
			putc('\t', out);
		}
		fprintf(out, "%" PRId64, ms);
		for (size_t k = 0; k < HL_GROUP_FIGURES; k++)
			if (group->figures[k] < 0)
				fputs("\t" HL_FLEET_BALANCE_UNKNOWN, out);
			else
				fprintf(out, "\t%" PRId64, group->figures[k]);
		putc('\n', out);
	}
	return 0;
}

static int send_balances(struct hl_fleet_store *store, char *text, struct hl_error *err)
{
	int r = hl_fleet_insert_balances(store, text, err);

	if (r == -ENODATA) {
		*err = (struct hl_error){0};
		r = hl_fleet_init(store, 0, err);
		r = r == 0 ? hl_fleet_insert_balances(store, text, err) : r;
	}
	return r == -EAGAIN || r == -ENOMEM ? r : 1;
}

static int store_send(struct hl_push_sink *sink, char *bytes, size_t size, bool repeated,
		      struct hl_error *err)
{
	HL_CLEANUP(hl_fleet_window_release) struct hl_fleet_window window = {0};

	if (!strncmp(bytes, HL_FLEET_BALANCES, strlen(HL_FLEET_BALANCES)))
		return send_balances(store_of(sink), bytes + strlen(HL_FLEET_BALANCES), err);
	int r = hl_fleet_window_read(bytes, size, &window);
	if (r < 0)
		return hl_error_set(err, r, "cannot read a window from the spool: %s",
				    r == -EBADMSG ? "it is damaged" : strerror(-r));
	const struct hl_fleet_window *const windows[] = {&window};
	return insert(sink, windows, 1, repeated, err);
}

static int store_send_looks(struct hl_push_sink *sink, const struct hl_push_look *looks,
			    size_t count, struct hl_error *err)
{
	HL_FREED const struct hl_fleet_window **windows = calloc(count + 1, sizeof(*windows));

	if (!windows)
		return hl_error_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < count; i++)
		windows[i] = &looks[i].window;
	return insert(sink, windows, count, false, err);
}

static int take_figures(void *context, char **cells, size_t count)
{
	int64_t figures[4];

	if (count != 5)
		return -EBADMSG;
	for (size_t i = 0; i < 4; i++)
		figures[i] = strtoll(cells[i + 1], NULL, 10);
	return hl_push_session_add(context, strtoll(cells[0], NULL, 10), figures);
}

static int take_last(void *context, char **cells, size_t count)
{
	if (count != 1)
		return -EBADMSG;
	*(int64_t *)context = strtoll(cells[0], NULL, 10);
	return 0;
}

static int store_recall(struct hl_push_sink *sink, struct hl_push_session *session,
			struct hl_error *err)
{
	char sql[256];

	/* First: who adds to the sums meanwhile has what is sent next refused. */
	snprintf(sql, sizeof(sql), "SELECT MAX(last_ms) FROM sessions WHERE session = %" PRId64,
		 session->id);
	int r = hl_fleet_ask(store_of(sink), sql, take_last, &session->look_ms, err);
	snprintf(sql, sizeof(sql),
		 "SELECT stack, SUM(inuse_bytes), SUM(inuse_objects), SUM(alloc_bytes), "
		 "SUM(alloc_objects) FROM totals WHERE session = %" PRId64 " GROUP BY stack",
		 session->id);
	if (r == 0)
		r = hl_fleet_ask(store_of(sink), sql, take_figures, session, err);
	if (r != -ENODATA)
		return r;
	*err = (struct hl_error){0}; /* an empty store knows nobody */
	return 0;
}

static const struct hl_push_sink_kind store_kind = {
	.free = store_free,
	.encode = store_encode,
	.send = store_send,
	.send_looks = store_send_looks,
	.encode_groups = store_encode_groups,
	.recall = store_recall,
};

static int push_store_open(const char *url, struct hl_push_sink **ret_sink, struct hl_error *err)
{
	struct store_sink *sink = calloc(1, sizeof(*sink));

	if (!sink)
		return hl_error_set(err, -ENOMEM, "out of memory");
	sink->sink.kind = &store_kind;
	int r = hl_fleet_open(url, true, &sink->store, err);
	if (r < 0)
		free(sink);
	else
		*ret_sink = &sink->sink;
	return r;
}

/* ---- Pyroscope ---- */

/*
 * Pushes pprof to Pyroscope, and to whatever speaks its /ingest: a form with the profile and, beside it, what its four values are.
 * In use is a level, of which servers take the mean; what was allocated is of this window alone.
 */

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

static const struct hl_push_sink_kind pyroscope_kind = {
	.free = pyroscope_free,
	.encode = pyroscope_encode,
	.send = pyroscope_send,
};

static int push_pyroscope_open(const char *url, struct hl_push_sink **ret_sink,
			       struct hl_error *err)
{
	struct pyroscope *pyroscope = calloc(1, sizeof(*pyroscope));

	if (!pyroscope)
		return hl_error_set(err, -ENOMEM, "out of memory");
	pyroscope->sink.kind = &pyroscope_kind;
	int r = hl_web_place_parse(url, NULL, INGEST, &pyroscope->place);
	r = r == 0 ? hl_web_new(&pyroscope->web, err) : hl_error_set(err, r, "out of memory");
	if (r < 0)
		pyroscope_free(&pyroscope->sink);
	else
		*ret_sink = &pyroscope->sink;
	return r;
}

/* ---- the choice ---- */

/*
 * Where looks go: the seam of `heapline push`. A look is encoded at once and sent at once, or from the spool when the sink is back,
 * so what is sent is always what was encoded.
 */

int hl_push_sink_open(const char *url, bool experimental, struct hl_push_sink **ret_sink,
		      struct hl_error *err)
{
	if (hl_push_otlp_is_url(url) && !experimental)
		return hl_error_set(
			err, -EINVAL,
			"cannot push to '%s': profiles of OTLP are in development and may change; "
			"--experimental sends them as version 1.11.0 has them",
			url);
	if (hl_push_otlp_is_url(url))
		return hl_push_otlp_open(url, ret_sink, err);
	if (hl_web_is_url(url))
		return push_pyroscope_open(url, ret_sink, err);
	if (hl_fleet_is_url(url))
		return push_store_open(url, ret_sink, err);
	return hl_error_set(
		err, -EINVAL,
		"cannot push to '%s': name a file of SQLite, clickhouse://HOST/DATABASE, http:// "
		"or "
		"https:// for Pyroscope, or otlp+http:// or otlp+https:// for OpenTelemetry",
		url);
}

void hl_push_sink_free(struct hl_push_sink *sink)
{
	if (sink)
		sink->kind->free(sink);
}
