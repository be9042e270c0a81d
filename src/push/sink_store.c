/* SPDX-License-Identifier: BSD-2-Clause */
/* Pushes windows to a store of a fleet. */
#include "push/sink.h"

#include "base/cleanup.h"
#include "fleet/store.h"

#include <inttypes.h>

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

static int store_send(struct hl_push_sink *sink, char *bytes, size_t size, bool repeated,
		      struct hl_error *err)
{
	HL_CLEANUP(hl_fleet_window_release) struct hl_fleet_window window;

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

static const struct hl_push_sink_kind kind = {
	.free = store_free,
	.encode = store_encode,
	.send = store_send,
	.send_looks = store_send_looks,
	.recall = store_recall,
};

int hl_push_store_open(const char *url, struct hl_push_sink **ret_sink, struct hl_error *err)
{
	struct store_sink *sink = calloc(1, sizeof(*sink));

	if (!sink)
		return hl_error_set(err, -ENOMEM, "out of memory");
	sink->sink.kind = &kind;
	int r = hl_fleet_open(url, true, &sink->store, err);
	if (r < 0)
		free(sink);
	else
		*ret_sink = &sink->sink;
	return r;
}
