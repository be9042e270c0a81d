/* SPDX-License-Identifier: BSD-2-Clause */
/* What the documents of verbs say, kept as facts; see facts.h. */
#include "why/facts.h"

#include "base/names.h"
#include "view/format.h"
#include "view/heap.h"

#include <inttypes.h>
#include <string.h>

/* ---- members of documents ---- */

json_t *hl_why_member(const json_t *from, const char *path)
{
	json_t *at = (json_t *)from;
	char key[64];

	while (at && *path) {
		size_t length = strcspn(path, ".");
		snprintf(key, sizeof(key), "%.*s", (int)length, path);
		at = json_object_get(at, key);
		path += length + (path[length] == '.');
	}
	return at;
}

int64_t hl_why_number(const json_t *from, const char *path)
{
	const json_t *found = hl_why_member(from, path);

	return json_is_integer(found) ? json_integer_value(found) : -1;
}

const char *hl_why_text(const json_t *from, const char *path)
{
	const char *found = json_string_value(hl_why_member(from, path));

	return found ? found : "";
}

void hl_why_keep(char *to, size_t size, const char *from)
{
	hl_format_shortened(from, 0, to, size);
}

/* ---- the control group ---- */

int64_t hl_why_anonymous_of(const json_t *pod, pid_t pid)
{
	size_t i;
	json_t *row;

	json_array_foreach(hl_why_member(pod, "rows"), i, row)
		if (hl_why_number(row, "pid") == pid &&
		    !strcmp(hl_why_text(row, "kind"), "anonymous"))
			return hl_why_number(row, "bytes");
	return 0;
}

void hl_why_keep_pod(struct hl_why_facts *facts, const json_t *pod, bool is_after)
{
	*(is_after ? &facts->usage.after : &facts->usage.before) =
		hl_why_number(pod, "usage_bytes");
	*(is_after ? &facts->cache.after : &facts->cache.before) =
		hl_why_number(pod, "total.cache_bytes");
	*(is_after ? &facts->group_shared.after : &facts->group_shared.before) =
		hl_why_number(pod, "total.shared_bytes");
}

pid_t hl_why_largest_gain(const json_t *before, const json_t *after, pid_t other, int64_t *ret_gain,
			  const char **ret_name)
{
	pid_t largest = 0;
	json_t *row;
	size_t i;

	*ret_gain = 0;
	json_array_foreach(hl_why_member(after, "rows"), i, row) {
		pid_t pid = (pid_t)hl_why_number(row, "pid");
		int64_t gain = hl_why_number(row, "bytes") - hl_why_anonymous_of(before, pid);
		if (pid <= 0 || pid == other ||
		    strcmp(hl_why_text(row, "kind"), "anonymous") != 0 ||
		    !strcmp(hl_why_text(row, "comm"), "heapline") || gain <= *ret_gain)
			continue;
		*ret_gain = gain;
		*ret_name = hl_why_text(row, "comm");
		largest = pid;
	}
	return largest;
}

/* ---- the heap ---- */

void hl_why_keep_heap(struct hl_why_facts *facts, const json_t *heap, bool is_after)
{
	static const char *const parts[] = {"other_allocators", "stacks", "anonymous"};
	const struct {
		struct hl_why_pair *pair;
		const char *path;
	} figures[] = {
		{&facts->rss, "total.rss_bytes"},
		{&facts->live, "total.resident_live_bytes"},
		{&facts->free, "total.resident_free_bytes"},
		{&facts->shared, "total.resident_shared_bytes"},
		{&facts->files, "total.resident_files_bytes"},
	};
	int64_t other = 0;
	char path[64];

	for (size_t i = 0; i < HL_COUNT_OF(figures); i++)
		*(is_after ? &figures[i].pair->after : &figures[i].pair->before) =
			hl_why_number(heap, figures[i].path);
	for (size_t i = 0; i < HL_COUNT_OF(parts); i++) {
		snprintf(path, sizeof(path), "total.resident_%s_bytes", parts[i]);
		other += hl_why_number(heap, path);
	}
	*(is_after ? &facts->other.after : &facts->other.before) = other;
	*(is_after ? &facts->in_use.after : &facts->in_use.before) =
		hl_why_number(heap, "total.inuse_bytes") +
		hl_why_number(heap, "total.mmapped_bytes");
	int64_t open = hl_why_number(heap, "beside.open_file_bytes");
	*(is_after ? &facts->shared.after : &facts->shared.before) += open > 0 ? open : 0;
}

void hl_why_find_grown_part(struct hl_why_facts *facts, const json_t *before, const json_t *after)
{
	const json_t *was = hl_why_member(before, "resident"),
		     *is = hl_why_member(after, "resident");

	for (size_t i = 0; i < json_array_size(is); i++) {
		const json_t *row = json_array_get(is, i);
		int64_t gain = hl_why_number(row, "bytes") -
			       hl_why_number(json_array_get(was, i), "bytes");
		const char *part = hl_why_text(row, "part");
		if (gain > facts->grown_part_bytes && strcmp(part, "files") != 0 &&
		    strcmp(part, "heapline's recorder") != 0) {
			facts->grown_part_bytes = gain;
			HL_WHY_KEEP(facts->grown_part, part);
			facts->is_collected = hl_heap_is_collected(part);
			facts->profiles = hl_heap_profiles(part);
		}
	}
}

void hl_why_find_memory_file(struct hl_why_facts *facts, const json_t *heap)
{
	json_t *row;
	size_t i;

	json_array_foreach(hl_why_member(heap, "mappings"), i, row)
		if (!strcmp(hl_why_text(row, "part"), "shared memory") && !facts->memory_file[0])
			HL_WHY_KEEP(facts->memory_file, hl_why_text(row, "name"));
	row = json_array_get(hl_why_member(heap, "open_files"), 0);
	if (hl_why_number(row, "bytes") > facts->shared.after / 2)
		HL_WHY_KEEP(facts->memory_file, hl_why_text(row, "name"));
}

/* ---- the grower ---- */

/* Frames of scripts and of code made at run time are of no file of code; those without a name are addresses. */
static bool is_of_script(const json_t *frame)
{
	const char *function = hl_why_text(frame, "function");

	return !strpbrk(hl_why_text(frame, "module"), "/[") && *function && *function != '[' &&
	       strncmp(function, "0x", 2) != 0;
}

void hl_why_keep_frame(struct hl_why_frame *to, const json_t *frame)
{
	HL_WHY_KEEP(to->function, hl_why_text(frame, "function"));
	HL_WHY_KEEP(to->file, hl_why_text(frame, "file"));
	HL_WHY_KEEP(to->module, hl_path_basename(hl_why_text(frame, "module")));
	to->line = hl_why_number(frame, "line");
}

static void put_frame(char *to, const json_t *frame)
{
	const char *module = hl_path_basename(hl_why_text(frame, "module"));

	if (hl_why_number(frame, "line") > 0)
		snprintf(to, HL_WHY_TEXT_MAX, "%.150s (%.80s:%" PRId64 ")",
			 hl_why_text(frame, "function"),
			 hl_path_basename(hl_why_text(frame, "file")),
			 hl_why_number(frame, "line"));
	else
		snprintf(to, HL_WHY_TEXT_MAX, *module ? "%.150s (%.80s)" : "%s",
			 hl_why_text(frame, "function"), module);
}

#define NEAR_FRAMES 8u /* of the leaf, in which a line of native code is looked for */

/* libc copies, and starts programs and threads: its lines are nobody's. */
static bool is_of_libc(const json_t *frame)
{
	return !strncmp(hl_path_basename(hl_why_text(frame, "module")), "libc.", 5);
}

/*
 * The line: of a script, if there is one; else of the source nearest to the leaf; else the leaf.
 */
static void keep_grower(struct hl_why *why, const json_t *row, const char *source)
{
	struct hl_why_facts *facts = &why->facts;
	const json_t *frames = hl_why_member(row, "frames"), *own = NULL, *chosen = NULL;
	const json_t *script = NULL;
	size_t count = json_array_size(frames);

	if (!count)
		return;
	facts->source = source;
	json_decref(why->frames);
	why->frames = json_incref(hl_why_member(row, "frames"));
	memset(facts->stack, 0, sizeof(facts->stack));
	for (size_t i = 0; i < count; i++) {
		const json_t *frame = json_array_get(frames, count - 1 - i);
		if (i < HL_WHY_STACK_MAX)
			put_frame(facts->stack[i], frame);
		bool has_line = hl_why_number(frame, "line") > 0;
		if (is_of_script(frame) &&
		    (!script || (hl_why_number(script, "line") <= 0 && has_line)))
			script = frame;
		if (i >= NEAR_FRAMES || is_of_libc(frame))
			continue;
		own = own ? own : frame;
		if (!chosen && has_line)
			chosen = frame;
	}
	const json_t *leaf = json_array_get(frames, count - 1);
	HL_WHY_KEEP(facts->leaf, hl_why_text(leaf, "function"));
	facts->is_script = script != NULL;
	hl_why_keep_frame(&facts->line, script ? script : chosen ? chosen : own ? own : leaf);
}

#define STEADY_PERCENT 50 /* the leak score of a stack that counts */
#define RISE_PERCENT   10 /* of all in use; less does not count as growth */

static double seconds_of(const json_t *growth)
{
	return (double)(hl_why_number(growth, "log.last_ms") -
			hl_why_number(growth, "log.first_ms")) /
	       1000;
}

static bool is_same_leaf(const json_t *one, const json_t *other)
{
	return hl_why_number(one, "line") == hl_why_number(other, "line") &&
	       !strcmp(hl_why_text(one, "name"), hl_why_text(other, "name")) &&
	       !strcmp(hl_why_text(one, "file"), hl_why_text(other, "file"));
}

/* Of the stacks that end as ${row} does and have at least that leak score. */
static int64_t gain_of_leaf(const json_t *rows, const json_t *row, int64_t steady_percent)
{
	int64_t bytes = 0;
	json_t *other;
	size_t i;

	json_array_foreach(rows, i, other)
		if (is_same_leaf(row, other) &&
		    hl_why_number(other, "steady_percent") >= steady_percent)
			bytes += hl_why_number(other, "to_bytes") -
				 hl_why_number(other, "from_bytes");
	return bytes;
}

void hl_why_keep_growth(struct hl_why *why, const json_t *growth)
{
	struct hl_why_facts *facts = &why->facts;
	const json_t *rows = hl_why_member(growth, "rows"), *most = NULL;
	int64_t grown_bytes = 0, total_bytes = 0;
	json_t *row;
	size_t i;

	json_array_foreach(rows, i, row) {
		int64_t bytes = gain_of_leaf(rows, row, STEADY_PERCENT);
		if (hl_why_number(row, "steady_percent") < STEADY_PERCENT)
			continue;
		total_bytes += hl_why_number(row, "to_bytes") - hl_why_number(row, "from_bytes");
		if (bytes > grown_bytes) {
			grown_bytes = bytes;
			most = row;
		}
	}
	facts->lost_events = hl_why_number(growth, "lost.events");
	if (most)
		keep_grower(why, most, "attach");
	json_decref(why->unsteady);
	why->unsteady = most || hl_why_number(growth, "total_rise_percent") < RISE_PERCENT
				? NULL
				: json_incref((json_t *)growth);
	if (facts->grown_bytes)
		return;
	facts->grown_bytes = grown_bytes;
	facts->total_grown_bytes = total_bytes;
	facts->grown_seconds = seconds_of(growth);
}

bool hl_why_keep_unsteady(struct hl_why *why, double rate)
{
	struct hl_why_facts *facts = &why->facts;
	const json_t *rows = hl_why_member(why->unsteady, "rows"), *most = NULL;
	int64_t grown_bytes = 0, total_bytes = 0;
	json_t *row;
	size_t i;

	json_array_foreach(rows, i, row) {
		int64_t bytes = gain_of_leaf(rows, row, 0);
		total_bytes += hl_why_number(row, "to_bytes") - hl_why_number(row, "from_bytes");
		if (bytes > grown_bytes) {
			grown_bytes = bytes;
			most = row;
		}
	}
	double seconds = seconds_of(why->unsteady);
	if (!most || seconds <= 0 || (double)grown_bytes / seconds < rate)
		return false;
	facts->grown_bytes = grown_bytes;
	facts->total_grown_bytes = total_bytes;
	facts->grown_seconds = seconds;
	facts->is_unsteady = true;
	keep_grower(why, most, "attach");
	return true;
}

void hl_why_keep_traced(struct hl_why *why, const json_t *traced, const char *source)
{
	struct hl_why_facts *facts = &why->facts;
	const json_t *row = json_array_get(hl_why_member(traced, "rows"), 0);

	if (hl_why_number(row, "bytes") <= 0)
		return;
	facts->grown_bytes = hl_why_number(row, "bytes");
	facts->total_grown_bytes = hl_why_number(traced, "total.inuse_bytes");
	facts->lost_events = hl_why_number(traced, "lost.events");
	facts->grown_seconds = (double)hl_why_number(traced, "recording.duration_ms") / 1000;
	keep_grower(why, row, source);
}

/* ---- who loses or holds it ---- */

static bool has_text(const json_t *texts, const char *wanted)
{
	for (size_t i = 0; i < json_array_size(texts); i++)
		if (!strcmp(json_string_value(json_array_get(texts, i)), wanted))
			return true;
	return false;
}

const json_t *hl_why_grower_frame(const struct hl_why *why, const char *function)
{
	size_t count = json_array_size(why->frames);

	for (size_t i = 0; i < count && i < NEAR_FRAMES; i++) {
		const json_t *frame = json_array_get(why->frames, count - 1 - i);
		if (!strcmp(hl_why_text(frame, "function"), function))
			return frame;
	}
	return NULL;
}

void hl_why_keep_leaks(struct hl_why *why, const json_t *leaks)
{
	struct hl_why_facts *facts = &why->facts;
	int64_t most = 0;
	json_t *row;
	size_t i;

	facts->lost_bytes = hl_why_number(leaks, "total.lost_bytes") +
			    hl_why_number(leaks, "total.indirect_bytes");
	facts->grower_lost_bytes = facts->grower_lost_blocks = 0;
	json_array_foreach(hl_why_member(leaks, "rows"), i, row) {
		const json_t *stack = hl_why_member(row, "stack");
		const char *leaf =
			json_string_value(json_array_get(stack, json_array_size(stack) - 1));
		int64_t bytes =
			hl_why_number(row, "lost_bytes") + hl_why_number(row, "indirect_bytes");
		if (!leaf || !(hl_why_grower_frame(why, leaf) || has_text(stack, facts->leaf)))
			continue;
		facts->grower_lost_bytes += bytes;
		facts->grower_lost_blocks += hl_why_number(row, "lost_blocks");
		if (bytes > most) {
			most = bytes;
			HL_WHY_KEEP(facts->losing_function, leaf);
		}
	}
}

void hl_why_keep_holder(struct hl_why_facts *facts, const json_t *holders)
{
	json_t *row;
	size_t i;

	json_array_foreach(hl_why_member(holders, "rows"), i, row)
		if (strcmp(hl_why_text(row, "kind"), "lost") != 0 &&
		    hl_why_number(row, "held_bytes") > 0) {
			HL_WHY_KEEP(facts->holder, hl_why_text(row, "holder"));
			HL_WHY_KEEP(facts->held_path, hl_why_text(row, "path"));
			facts->held_bytes = hl_why_number(row, "held_bytes");
			return;
		}
}
