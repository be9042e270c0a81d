/* SPDX-License-Identifier: BSD-2-Clause */
/* What the directory of 'heapline watch' holds, as one page for people or as JSON; see watch.h. */
#include "watch/watch.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/text.h"
#include "view/format.h"
#include "view/table.h"
#include "watch/store.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#define ROWS_USUAL   10
#define FRAMES_USUAL 12
#define EPISODE_MS   3600000 /* snapshots of a group that are not older belong together */
#define NS_PER_MS    1000000

#define BYTES(number) hl_format_bytes((number), (char[HL_FORMAT_MAX]){0})
#define TIME(ms)      hl_format_time((uint64_t)(ms)*NS_PER_MS, (char[HL_FORMAT_MAX]){0})
#define LATER(ms)     hl_format_duration((uint64_t)(ms)*NS_PER_MS, (char[HL_FORMAT_MAX]){0})

static void decref(json_t **document)
{
	json_decref(*document);
}
#define HL_DECREFFED HL_CLEANUP(decref)

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

/* An item of an array of texts, which may be damaged. */
static const char *item_text(const json_t *item)
{
	return json_is_string(item) ? json_string_value(item) : "";
}

static int64_t number_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* A file of an entry; NULL where it is not there, or makes no sense. */
static json_t *load(const struct hl_watch_store *store, const char *entry, const char *file)
{
	char path[HL_WATCH_NAME_MAX + 96];
	struct stat status;

	snprintf(path, sizeof(path), "%s/%s", entry, file);
	int fd = openat(store->fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	bool is_file = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
	FILE *stream = is_file ? fdopen(fd, "r") : NULL;
	if (!stream && fd >= 0)
		close(fd);
	if (!stream)
		return NULL;
	json_t *document = json_loadf(stream, 0, NULL);
	fclose(stream);
	return document;
}

/* ---- what there is ---- */

struct story {
	struct hl_watch_store store;
	struct hl_watch_entry *entries;
	size_t count;
	const char *kill_name;		    /* NULL: there was none */
	const char *last_name, *first_name; /* snapshots; NULL: none */
	json_t *kill, *last, *first;
	json_t *last_pod, *first_pod;
	char recording[PATH_MAX]; /* of the process that was killed, or is largest; "" */
};

static void release_story(struct story *story)
{
	json_decref(story->kill);
	json_decref(story->last);
	json_decref(story->first);
	json_decref(story->last_pod);
	json_decref(story->first_pod);
	free(story->entries);
	hl_watch_store_close(&story->store);
}

static void find_kill(struct story *story)
{
	for (size_t i = 0; i < story->count && !story->kill; i++) {
		const struct hl_watch_entry *entry = &story->entries[i];
		if (entry->is_partial || entry->kind != HL_WATCH_KILL)
			continue;
		story->kill = load(&story->store, entry->name, "kill.json");
		story->kill_name = story->kill ? entry->name : NULL;
	}
}

/* Whether a snapshot is of the group that was killed in, or whose limit it was, and was before that. */
static bool belongs(const struct story *story, const json_t *snapshot)
{
	const char *group = text_of(snapshot, "group");

	if (story->last)
		return !strcmp(group, text_of(story->last, "group")) &&
		       number_of(story->last, "realtime_ms") - number_of(snapshot, "realtime_ms") <=
			       EPISODE_MS;
	if (!story->kill)
		return true;
	return (!strcmp(group, text_of(story->kill, "group")) ||
		!strcmp(group, text_of(story->kill, "victim_group"))) &&
	       number_of(snapshot, "realtime_ms") <= number_of(story->kill, "realtime_ms");
}

static void find_snapshots(struct story *story)
{
	for (size_t i = 0; i < story->count; i++) {
		const struct hl_watch_entry *entry = &story->entries[i];
		if (entry->is_partial || entry->kind != HL_WATCH_SNAPSHOT)
			continue;
		json_t *snapshot = load(&story->store, entry->name, "snapshot.json");
		if (!snapshot || !belongs(story, snapshot)) {
			json_decref(snapshot);
		} else if (!story->last) {
			story->last = snapshot;
			story->last_name = entry->name;
		} else {
			json_decref(story->first);
			story->first = snapshot;
			story->first_name = entry->name;
		}
	}
	if (story->last)
		story->last_pod = load(&story->store, story->last_name, "pod.json");
	if (story->first)
		story->first_pod = load(&story->store, story->first_name, "pod.json");
}

/* Whose memory the story is about; 0: unknown. */
static int64_t subject_of(const struct story *story)
{
	int64_t pid = number_of(json_object_get(story->kill, "victim"), "pid");

	return pid ? pid
		   : number_of(json_array_get(json_object_get(story->last, "processes"), 0), "pid");
}

/* What 'heapline ctl status' said last of the process in a snapshot, or what the service recorded itself. */
static void find_recording(struct story *story)
{
	int64_t pid = subject_of(story);
	char file[64];

	snprintf(file, sizeof(file), "ctl-%" PRId64 ".json", pid);
	for (size_t i = 0; i < story->count && !*story->recording; i++) {
		if (story->entries[i].kind != HL_WATCH_SNAPSHOT)
			continue;
		HL_DECREFFED json_t *snapshot =
			load(&story->store, story->entries[i].name, "snapshot.json");
		if (!snapshot || !belongs(story, snapshot))
			continue;
		/* The last snapshot may have begun when the process was ending. */
		HL_DECREFFED json_t *status = load(&story->store, story->entries[i].name, file);
		snprintf(story->recording, sizeof(story->recording), "%s",
			 text_of(json_object_get(status, "recording"), "name"));
	}
	for (size_t i = 0; i < story->count && !*story->recording; i++) {
		char path[HL_WATCH_NAME_MAX + 32];
		snprintf(path, sizeof(path), "%s/%" PRId64 ".hl", story->entries[i].name, pid);
		if (story->entries[i].kind == HL_WATCH_RECORDING &&
		    faccessat(story->store.fd, path, F_OK, 0) == 0)
			snprintf(story->recording, sizeof(story->recording), "%s/%s",
				 story->store.path, path);
	}
}

static int read_story(struct story *story, const char *directory, struct hl_error *err)
{
	int r = hl_watch_store_open_read(&story->store, directory, err);

	if (r < 0)
		return r;
	r = hl_watch_store_list(&story->store, &story->entries, &story->count);
	if (r < 0)
		return hl_error_set(err, r, "cannot read the directory '%s': %s", directory,
				    strerror(-r));
	find_kill(story);
	find_snapshots(story);
	if (!story->kill && !story->last)
		return hl_error_set(err, -ENOENT,
				    "'%s' has no kill and no snapshot: no group came near its "
				    "limit while 'heapline watch' ran",
				    directory);
	find_recording(story);
	return 0;
}

/* ---- sentences ---- */

static void name_process(const json_t *process, char label[64])
{
	snprintf(label, 64, "%s (%" PRId64 ")", text_of(process, "comm"),
		 number_of(process, "pid"));
}

static void say_command(struct hl_emit *emit, const json_t *words)
{
	HL_FREED char *text = NULL;
	size_t length = 0, i;
	const json_t *word;

	FILE *out = open_memstream(&text, &length);
	if (!out)
		return;
	json_array_foreach(words, i, word) {
		fputs(i ? " " : "", out);
		hl_words_put(out, item_text(word));
	}
	fclose(out);
	if (text && *text)
		hl_emit_line(emit, "its command: %s", text);
}

static void say_stack(struct hl_emit *emit, const json_t *stack)
{
	size_t i;
	const json_t *frame;

	json_array_foreach(stack, i, frame) {
		if (i == FRAMES_USUAL) {
			hl_emit_line(emit, "    ... %zu more", json_array_size(stack) - i);
			break;
		}
		hl_emit_line(emit, "    %s", item_text(frame));
	}
}

static void say_victim(struct hl_emit *emit, const json_t *victim)
{
	if (json_is_integer(json_object_get(victim, "anonymous_bytes")))
		hl_emit_line(emit,
			     "its memory then: %s anonymous, %s of files, %s shared, %s on swap, "
			     "%s page tables",
			     BYTES(number_of(victim, "anonymous_bytes")),
			     BYTES(number_of(victim, "file_bytes")),
			     BYTES(number_of(victim, "shared_bytes")),
			     BYTES(number_of(victim, "swap_bytes")),
			     BYTES(number_of(victim, "page_table_bytes")));
	say_command(emit, json_object_get(victim, "command"));
}

static void say_kill(struct hl_emit *emit, const struct story *story)
{
	const json_t *victim = json_object_get(story->kill, "victim");
	const json_t *asked = json_object_get(story->kill, "asked");
	const char *group = text_of(story->kill, "group");
	bool is_machine = !json_object_get(story->kill, "limit_bytes");
	char label[64] = "a process", who[64];

	if (json_is_object(victim))
		name_process(victim, label);
	if (is_machine)
		hl_emit_line(emit,
			     "killed at %s: %s of group %s, because the machine was out of memory",
			     TIME(number_of(story->kill, "realtime_ms")), label,
			     text_of(story->kill, "victim_group"));
	else
		hl_emit_line(emit, "killed at %s: %s of group %s, at the limit of %s, %s",
			     TIME(number_of(story->kill, "realtime_ms")), label,
			     text_of(story->kill, "victim_group"), group,
			     BYTES(number_of(story->kill, "limit_bytes")));
	if (json_is_object(victim))
		say_victim(emit, victim);
	if (json_is_object(asked)) {
		name_process(asked, who);
		hl_emit_line(emit, "%s asked for the memory that was not there%s%s", who,
			     strcmp(text_of(asked, "group"), text_of(story->kill, "victim_group"))
				     ? ", from group "
				     : "",
			     strcmp(text_of(asked, "group"), text_of(story->kill, "victim_group"))
				     ? text_of(asked, "group")
				     : "");
		say_stack(emit, json_object_get(asked, "stack"));
		if (number_of(asked, "pid") != number_of(victim, "pid") &&
		    json_array_size(json_object_get(victim, "stack"))) {
			hl_emit_line(emit, "%s was in", label);
			say_stack(emit, json_object_get(victim, "stack"));
		}
	}
}

static const char *cause_phrase(const json_t *snapshot)
{
	const char *cause = text_of(snapshot, "cause");

	return !strcmp(cause, "growth")	 ? "it grew towards the limit"
	       : !strcmp(cause, "share") ? "it passed the share of the limit"
					 : "it was near the limit";
}

static void say_snapshot(struct hl_emit *emit, const struct story *story)
{
	int64_t ms = number_of(story->last, "realtime_ms");
	char before[64] = "";

	if (story->kill)
		snprintf(before, sizeof(before), ", %s before",
			 LATER(number_of(story->kill, "realtime_ms") - ms));
	else
		hl_emit_line(emit, "no kill is known; the newest snapshot:");
	hl_emit_line(emit, "snapshot of %s at %s%s, when %s: %s of %s, page cache %s",
		     text_of(story->last, "group"), TIME(ms), before, cause_phrase(story->last),
		     BYTES(number_of(story->last, "usage_bytes")),
		     BYTES(number_of(story->last, "limit_bytes")),
		     BYTES(number_of(story->last, "cache_bytes")));
	if (!story->kill)
		say_command(emit,
			    json_object_get(
				    json_array_get(json_object_get(story->last, "processes"), 0),
				    "command"));
}

/* ---- the table ---- */

struct row {
	int64_t bytes, grown;
	const char *kind, *name, *comm;
	int64_t pid;
};

/* The bytes of the same row in the first snapshot. */
static int64_t bytes_before(const struct story *story, const json_t *row)
{
	size_t i;
	const json_t *other;

	json_array_foreach(json_object_get(story->first_pod, "rows"), i, other)
		if (number_of(other, "pid") == number_of(row, "pid") &&
		    !strcmp(text_of(other, "kind"), text_of(row, "kind")) &&
		    !strcmp(text_of(other, "name"), text_of(row, "name")))
			return number_of(other, "bytes");
	return 0;
}

static void what_cell(struct hl_emit *emit, const void *at, const void *context)
{
	const struct row *row = at;
	char label[300];

	(void)context;
	if (!row->pid)
		snprintf(label, sizeof(label), "%.250s", row->name);
	else if (!*row->name)
		snprintf(label, sizeof(label), "%s (%" PRId64 ")", row->comm, row->pid);
	else
		snprintf(label, sizeof(label), "%.200s of %s (%" PRId64 ")", row->name, row->comm,
			 row->pid);
	hl_cell_text(emit, label);
}

static void pid_cell(struct hl_emit *emit, const void *at, const void *context)
{
	(void)context;
	if (((const struct row *)at)->pid)
		hl_cell_integer(emit, ((const struct row *)at)->pid);
	else
		hl_cell_unknown(emit);
}

#define HAS_FIRST 1u
#define ROW(name) HL_MEMBER(struct row, name)

static const struct hl_column row_columns[] = {
	{"bytes", "bytes", HL_COLUMN_BYTES, ROW(bytes)},
	{"grown_bytes", "grown", HL_COLUMN_BYTES, ROW(grown), .shown_if = HAS_FIRST},
	{"kind", "kind", HL_COLUMN_TEXT, ROW(kind)},
	{NULL, "what", HL_COLUMN_TEXT, .cell = what_cell, .flags = HL_COLUMN_KEY},
	{"name", NULL, HL_COLUMN_TEXT, ROW(name)},
	{"pid", NULL, HL_COLUMN_NUMBER, .cell = pid_cell},
	{"comm", NULL, HL_COLUMN_TEXT, ROW(comm)},
};

static void emit_rows(struct hl_emit *emit, const struct story *story, uint64_t row_limit)
{
	const json_t *rows = json_object_get(story->last_pod, "rows"), *from;
	size_t i, shown = hl_emit_shown(emit, row_limit, ROWS_USUAL, json_array_size(rows));

	if (shown) {
		hl_emit_blank(emit);
		if (story->first)
			hl_emit_line(emit,
				     "what it had then, and what had grown since the snapshot %s "
				     "earlier:",
				     LATER(number_of(story->last, "realtime_ms") -
					   number_of(story->first, "realtime_ms")));
	}
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", row_columns),
						.facts = story->first_pod ? HAS_FIRST : 0});
	json_array_foreach(rows, i, from) {
		struct row row = {.bytes = number_of(from, "bytes"),
				  .kind = text_of(from, "kind"),
				  .name = text_of(from, "name"),
				  .comm = text_of(from, "comm"),
				  .pid = number_of(from, "pid")};
		row.grown = row.bytes - bytes_before(story, from);
		if (i < shown)
			hl_table_row(emit, &row, 0);
	}
	hl_table_end(emit);
	hl_emit_more(emit, json_array_size(rows) - shown, "-n");
}

/* ---- members ---- */

static void emit_number(struct hl_emit *emit, const char *key, const json_t *object)
{
	const json_t *number = json_object_get(object, key);

	if (json_is_integer(number))
		hl_emit_integer(emit, key, json_integer_value(number));
	else
		hl_emit_unknown(emit, key);
}

static void emit_texts(struct hl_emit *emit, const char *key, const json_t *texts)
{
	size_t i;
	const json_t *text;

	hl_emit_array(emit, key);
	json_array_foreach(texts, i, text)
		hl_emit_text(emit, NULL, item_text(text));
	hl_emit_array_end(emit);
}

static void emit_process(struct hl_emit *emit, const char *key, const json_t *process,
			 bool has_memory)
{
	static const char *const figures[] = {"anonymous_bytes", "file_bytes", "shared_bytes",
					      "swap_bytes", "page_table_bytes"};

	if (!json_is_object(process)) {
		hl_emit_unknown(emit, key);
		return;
	}
	hl_emit_object(emit, key);
	hl_emit_integer(emit, "pid", number_of(process, "pid"));
	hl_emit_text(emit, "comm", text_of(process, "comm"));
	if (has_memory) {
		emit_texts(emit, "command", json_object_get(process, "command"));
		for (size_t i = 0; i < HL_COUNT_OF(figures); i++)
			emit_number(emit, figures[i], process);
	} else {
		hl_emit_text(emit, "group", text_of(process, "group"));
	}
	emit_texts(emit, "stack", json_object_get(process, "stack"));
	hl_emit_object_end(emit);
}

static void emit_snapshot(struct hl_emit *emit, const char *name, const json_t *snapshot)
{
	if (!snapshot)
		return;
	hl_emit_object(emit, NULL);
	hl_emit_text(emit, "entry", name);
	hl_emit_text(emit, "taken", TIME(number_of(snapshot, "realtime_ms")));
	hl_emit_text(emit, "cause", text_of(snapshot, "cause"));
	hl_emit_integer(emit, "usage_bytes", number_of(snapshot, "usage_bytes"));
	hl_emit_object_end(emit);
}

static void emit_members(struct hl_emit *emit, const struct story *story)
{
	const json_t *subject = story->kill ? story->kill : story->last;

	if (story->kill)
		hl_emit_text(emit, "killed", TIME(number_of(story->kill, "realtime_ms")));
	else
		hl_emit_unknown(emit, "killed");
	hl_emit_text(emit, "entry", story->kill ? story->kill_name : story->last_name);
	hl_emit_text(emit, "group", text_of(subject, "group"));
	emit_number(emit, "limit_bytes", subject);
	hl_emit_text(emit, "victim_group", text_of(story->kill, "victim_group"));
	emit_process(emit, "victim", json_object_get(story->kill, "victim"), true);
	emit_process(emit, "asked", json_object_get(story->kill, "asked"), false);
	hl_emit_array(emit, "snapshots");
	emit_snapshot(emit, story->first_name, story->first);
	emit_snapshot(emit, story->last_name, story->last);
	hl_emit_array_end(emit);
	if (*story->recording)
		hl_emit_text(emit, "recording", story->recording);
	else
		hl_emit_unknown(emit, "recording");
}

static void emit_missing(struct hl_emit *emit, const struct story *story)
{
	size_t i;
	const json_t *item;

	hl_emit_array(emit, "missing");
	json_array_foreach(json_object_get(story->kill, "missing"), i, item) {
		hl_emit_text(emit, NULL, item_text(item));
		hl_emit_warning(emit, "%s", item_text(item));
	}
	if (!story->last) {
		static const char none[] =
			"there is no snapshot of the group: it reached its limit "
			"before one could be made, or was not watched";
		hl_emit_text(emit, NULL, none);
		hl_emit_warning(emit, "%s", none);
	}
	json_array_foreach(json_object_get(story->last, "steps"), i, item) {
		char sentence[512];
		if (json_is_true(json_object_get(item, "done")) ||
		    !strncmp(text_of(item, "file"), "ctl-", 4))
			continue;
		snprintf(sentence, sizeof(sentence), "the snapshot has no %s: %.400s",
			 text_of(item, "file"), text_of(item, "said"));
		hl_emit_text(emit, NULL, sentence);
		hl_emit_warning(emit, "%s", sentence);
	}
	hl_emit_array_end(emit);
}

static void emit_next(struct hl_emit *emit, const struct story *story)
{
	HL_FREED char *text = NULL;
	size_t length = 0;

	FILE *out = open_memstream(&text, &length);
	if (!out)
		return;
	if (*story->recording) {
		fputs("heapline top ", out);
		hl_words_put(out, story->recording);
	} else {
		char path[PATH_MAX];
		snprintf(path, sizeof(path), "%s/%s", story->store.path,
			 story->last ? story->last_name : story->kill_name);
		fputs("ls ", out);
		hl_words_put(out, path);
	}
	fclose(out);
	hl_emit_blank(emit);
	hl_emit_next(emit, text ? text : "");
	if (!*story->recording)
		hl_emit_line(emit, "%s",
			     "to have stacks of the growth the next time: heapline watch "
			     "--attach-sample");
}

int hl_watch_tell_last(const char *directory, const struct hl_emit_options *options,
		       struct hl_error *err)
{
	HL_CLEANUP(release_story) struct story story = {.store = {.fd = -1, .lock = -1}};
	struct hl_emit *emit;

	int r = read_story(&story, directory, err);
	if (r < 0)
		return r;
	r = hl_emit_open(options, "watch/1", &emit);
	if (r < 0)
		return hl_error_set(err, r, "out of memory");
	emit_members(emit, &story);
	if (story.kill)
		say_kill(emit, &story);
	if (story.last)
		say_snapshot(emit, &story);
	emit_rows(emit, &story, options->row_limit);
	emit_missing(emit, &story);
	emit_next(emit, &story);
	r = hl_emit_finish(emit);
	return r < 0 ? hl_error_set(err, r, "cannot write the report: %s", strerror(-r)) : 0;
}

/* ---- the list ---- */

struct listed {
	const char *taken, *kind, *group, *entry;
};

#define LISTED(name) HL_MEMBER(struct listed, name)

static const struct hl_column list_columns[] = {
	{"taken", "when", HL_COLUMN_TEXT, LISTED(taken)},
	{"kind", "what", HL_COLUMN_TEXT, LISTED(kind)},
	{"group", "group", HL_COLUMN_TEXT, LISTED(group)},
	{"entry", "entry", HL_COLUMN_TEXT, LISTED(entry), HL_COLUMN_KEY},
};

int hl_watch_tell_list(const char *directory, const struct hl_emit_options *options,
		       struct hl_error *err)
{
	HL_CLEANUP(release_story) struct story story = {.store = {.fd = -1, .lock = -1}};
	struct hl_emit *emit;

	int r = hl_watch_store_open_read(&story.store, directory, err);
	if (r < 0)
		return r;
	r = hl_watch_store_list(&story.store, &story.entries, &story.count);
	if (r == 0)
		r = hl_emit_open(options, "watch-list/1", &emit);
	if (r < 0)
		return hl_error_set(err, r, "cannot read the directory '%s': %s", directory,
				    strerror(-r));
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", list_columns)});
	for (size_t i = 0; i < story.count; i++) {
		const struct hl_watch_entry *entry = &story.entries[i];
		if (entry->is_partial)
			continue;
		HL_DECREFFED json_t *document =
			load(&story.store, entry->name,
			     entry->kind == HL_WATCH_KILL ? "kill.json" : "snapshot.json");
		const struct listed row = {
			.taken = document ? TIME(number_of(document, "realtime_ms")) : "",
			.kind = hl_watch_kind_name(entry->kind),
			.group = text_of(document,
					 entry->kind == HL_WATCH_KILL ? "victim_group" : "group"),
			.entry = entry->name};
		hl_table_row(emit, &row, 0);
	}
	hl_table_end(emit);
	r = hl_emit_finish(emit);
	return r < 0 ? hl_error_set(err, r, "cannot write the report: %s", strerror(-r)) : 0;
}
