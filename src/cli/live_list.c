/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists what is being recorded, for heapline live without a name; see live_list.h. */
#include "cli/live_list.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "collector/control_ask.h"
#include "view/table.h"

#include <errno.h>
#include <string.h>

struct recorded {
	int64_t pid, inuse_bytes;
	const char *mode, *path, *command; /* of an answer, which must live as long */
};

struct list {
	struct recorded *rows;
	size_t count, capacity;
	char **texts;
	size_t text_count, text_capacity;
};

static void release(struct list *list)
{
	for (size_t i = 0; i < list->text_count; i++)
		free(list->texts[i]);
	free(list->texts);
	free(list->rows);
}

/* Keeps ${text}; NULL for want of memory. */
static const char *keep(struct list *list, char *text)
{
	if (text && HL_ARRAY_APPEND(list->texts, list->text_count, list->text_capacity, text) == 0)
		return text;
	free(text);
	return NULL;
}

static int add(struct list *list, const json_t *process, const char *path)
{
	struct recorded row = {
		.pid = json_integer_value(json_object_get(process, "pid")),
		.inuse_bytes = json_integer_value(json_object_get(process, "inuse_bytes")),
		.mode = keep(list, hl_control_ask_bytes(json_object_get(process, "mode"))),
		.path = path,
		.command = keep(list, hl_control_ask_words(json_object_get(process, "command"))),
	};

	return row.mode && row.command
		       ? HL_ARRAY_APPEND(list->rows, list->count, list->capacity, row)
		       : -ENOMEM;
}

/* A collector that does not answer records nothing that could be shown. */
static int add_all(struct list *list, const struct hl_control_peer *peer)
{
	static struct hl_control_request request; /* large */
	struct hl_error ignored = {0};
	json_t *answer, *process;
	size_t i;

	request = (struct hl_control_request){.verb = HL_CONTROL_STATUS};
	if (hl_control_ask(peer, &request, &answer, &ignored) < 0)
		return 0;
	const char *path = keep(list, hl_control_ask_bytes(json_object_get(answer, "recording")));
	int r = path ? 0 : -ENOMEM;
	json_array_foreach(json_object_get(answer, "processes"), i, process) if (r == 0) r =
		add(list, process, path);
	json_decref(answer);
	return r;
}

#define MEMBER(name) HL_MEMBER(struct recorded, name)

static const struct hl_column columns[] = {
	{"pid", "pid", HL_COLUMN_NUMBER, MEMBER(pid)},
	{"mode", "mode", HL_COLUMN_TEXT, MEMBER(mode)},
	{"inuse_bytes", "in use", HL_COLUMN_BYTES, MEMBER(inuse_bytes)},
	{"recording", "recording", HL_COLUMN_TEXT, MEMBER(path), HL_COLUMN_SHORTENED},
	{"command", "command", HL_COLUMN_TEXT, MEMBER(command), HL_COLUMN_SHORTENED},
};

static int write_table(const struct list *list)
{
	const struct hl_emit_options how = {.out = stdout};
	struct hl_emit *emit;

	int r = hl_emit_open(&how, "live-list/1", &emit);
	if (r < 0)
		return r;
	hl_emit_line(emit, "being recorded; 'heapline live -p PID' watches one of these:");
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns)});
	for (size_t i = 0; i < list->count; i++)
		hl_table_row(emit, &list->rows[i], 0);
	hl_table_end(emit);
	return hl_emit_finish(emit);
}

int hl_live_list(struct hl_error *err)
{
	HL_CLEANUP(release) struct list list = {0};
	HL_CLEANUP(hl_control_ask_release) struct hl_control_peers peers = {0};
	int r = hl_control_ask_list(&peers);

	for (size_t i = 0; r == 0 && i < peers.count; i++)
		r = add_all(&list, &peers.peers[i]);
	if (r == 0 && !list.count)
		return hl_error_set(err, -ENOENT,
				    "nothing is being recorded here; 'heapline record COMMAND' or "
				    "'heapline attach -p PID' begins it");
	if (r == 0)
		r = write_table(&list);
	return r < 0 ? hl_error_set(err, r, "cannot list what is being recorded: %s", strerror(-r))
		     : 0;
}
