/* SPDX-License-Identifier: BSD-2-Clause */
/* The steps, in the order in which an expert takes them, and what is kept of their answers; see why.h. */
#include "why/why.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/names.h"
#include "base/text.h"
#include "process/ask.h"
#include "process/maps.h"
#include "process/process.h"
#include "view/format.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/pidfd.h>

#define STEP_SECONDS	30u /* of a verb that only reads */
#define STEP_CPU	20u
#define ATTACH_BACKSTOP 90 /* seconds after which attach ends by itself, whatever becomes of us */
#define ATTACH_MEMORY	"64M" /* of the recorder; then it goes on by samples */
#define FAULT_SECONDS	5.0   /* of pgfault, at most */
#define IDLE_SECONDS	2.0
#define IDLE_CPU_NS	1000000 /* a second */
#define TRACE_GRACE	30u
#define GROWN_ROWS	"50"

struct run {
	struct hl_why *why;
	json_t *heap, *pod; /* before */
	uint64_t heap_ns;   /* when the heap was read first */
	json_t *frames;	    /* of the grower; the leaf last */
	bool was_read_again;
};

/* ---- members of documents ---- */

/* ${path}: keys with '.' between them. NULL: not found. */
static json_t *member(const json_t *from, const char *path)
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

/* -1: not known. */
static int64_t number(const json_t *from, const char *path)
{
	const json_t *found = member(from, path);

	return json_is_integer(found) ? json_integer_value(found) : -1;
}

static const char *text(const json_t *from, const char *path)
{
	const char *found = json_string_value(member(from, path));

	return found ? found : "";
}

static void keep(char *to, size_t size, const char *from)
{
	hl_format_shortened(from, 0, to, size);
}

#define KEEP(to, from) keep(to, sizeof(to), from)

/* ---- running verbs ---- */

HL_PRINTF(2, 3) static void add_unseen(struct hl_why *why, const char *format, ...)
{
	va_list arguments;

	if (why->unseen_count == HL_WHY_LIST_MAX)
		return;
	va_start(arguments, format);
	vsnprintf(why->unseen[why->unseen_count++], HL_WHY_TEXT_MAX, format, arguments);
	va_end(arguments);
}

/* The command as a person types it: the recording by its name. */
static struct hl_why_done *add_done(struct hl_why *why, const char *const *arguments)
{
	bool is_full = why->done_count == HL_WHY_LIST_MAX;
	struct hl_why_done *done = &why->done[is_full ? HL_WHY_LIST_MAX - 1 : why->done_count++];
	FILE *out = fmemopen(done->command, sizeof(done->command) - 1, "w");

	if (!out)
		return done;
	fputs("heapline", out);
	for (size_t i = 0; arguments[i]; i++) {
		bool is_ours = !why->request.keep && !strcmp(arguments[i], why->recording);
		fputc(' ', out);
		hl_words_put(out, is_ours ? hl_path_basename(arguments[i]) : arguments[i]);
	}
	fclose(out);
	return done;
}

static bool is_over(const struct hl_why *why)
{
	struct pollfd stop = {.fd = why->request.stop_fd, .events = POLLIN};

	return poll(&stop, 1, 0) > 0;
}

/* The verb's document; NULL: it failed, and the page says so. */
static json_t *ask(struct hl_why *why, unsigned seconds, const char *const *arguments)
{
	const struct hl_ask asked = {.arguments = arguments,
				     .seconds = seconds,
				     .bounds.cpu_seconds = STEP_CPU,
				     .stop_fd = why->request.stop_fd};
	HL_CLEANUP(hl_answer_release) struct hl_answer answer = {0};
	struct hl_error err = {0};

	if (is_over(why))
		return NULL;
	struct hl_why_done *done = add_done(why, arguments);
	int r = hl_ask_verb(&asked, &answer, &err);
	done->wall_ns = answer.wall_ns;
	done->cpu_ns = answer.cpu_ns;
	if (r < 0) {
		KEEP(done->said, err.text);
		add_unseen(why, "'heapline %s': %s", arguments[0], err.text);
		return NULL;
	}
	return json_incref(answer.document);
}

#define ASK(why, seconds, ...) ask(why, seconds, (const char *const[]){__VA_ARGS__, NULL})

/* Until ${fd} (-1: none) can be read, the time is over, or all is. */
static void wait_for(const struct hl_why *why, int fd, double seconds)
{
	struct pollfd watched[] = {{.fd = fd, .events = POLLIN},
				   {.fd = why->request.stop_fd, .events = POLLIN}};

	hl_self_wait(watched, HL_COUNT_OF(watched),
		     hl_clock_ns(CLOCK_MONOTONIC) + (uint64_t)(seconds * 1e9));
}

static const char *pid_of(const struct hl_why *why)
{
	return why->target + strlen("-p ");
}

/* ---- the control group ---- */

/* What a process of the group has in anonymous memory; 0: it is not in ${pod}. */
static int64_t anonymous_of(const json_t *pod, pid_t pid)
{
	size_t i;
	json_t *row;

	json_array_foreach(member(pod, "rows"), i, row)
		if (number(row, "pid") == pid && !strcmp(text(row, "kind"), "anonymous"))
			return number(row, "bytes");
	return 0;
}

static json_t *ask_pod(struct hl_why *why, bool is_quick)
{
	const struct hl_why_request *request = &why->request;
	const char *by = request->cgroup ? "--cgroup" : "-p";
	const char *who = request->cgroup ? request->cgroup : pid_of(why);

	return is_quick ? ASK(why, STEP_SECONDS, "pod", by, who, "--quick")
			: ASK(why, STEP_SECONDS, "pod", by, who);
}

static void keep_pod(struct hl_why_facts *facts, const json_t *pod, bool is_after)
{
	*(is_after ? &facts->usage.after : &facts->usage.before) = number(pod, "usage_bytes");
	*(is_after ? &facts->cache.after : &facts->cache.before) = number(pod, "total.cache_bytes");
	*(is_after ? &facts->group_shared.after : &facts->group_shared.before) =
		number(pod, "total.shared_bytes");
}

static void step_group(struct run *run)
{
	struct hl_why *why = run->why;
	struct hl_why_facts *facts = &why->facts;

	run->pod = ask_pod(why, true);
	facts->limit = number(run->pod, "limit_bytes");
	facts->asks_group = why->request.cgroup;
	facts->has_group = run->pod && (facts->asks_group || facts->limit > 0);
	if (facts->has_group) {
		KEEP(facts->group, text(run->pod, "group"));
		keep_pod(facts, run->pod, false);
	} else if (run->pod) {
		add_unseen(why, "neighbours and page cache: no control group limits the process");
	}
}

/* The process, but for ${other} and heapline itself, that has gained most since ${before}, which may be NULL; 0: none has. */
static pid_t largest_gain(const json_t *before, const json_t *after, pid_t other, int64_t *ret_gain,
			  const char **ret_name)
{
	pid_t largest = 0;
	json_t *row;
	size_t i;

	*ret_gain = 0;
	json_array_foreach(member(after, "rows"), i, row) {
		pid_t pid = (pid_t)number(row, "pid");
		int64_t gain = number(row, "bytes") - anonymous_of(before, pid);
		if (pid <= 0 || pid == other || strcmp(text(row, "kind"), "anonymous") != 0 ||
		    !strcmp(text(row, "comm"), "heapline") || gain <= *ret_gain)
			continue;
		*ret_gain = gain;
		*ret_name = text(row, "comm");
		largest = pid;
	}
	return largest;
}

/* The largest file of ${kind}. */
static void find_file(struct run *run, const char *kind)
{
	json_t *pod = ask_pod(run->why, false), *row;
	size_t i;

	json_array_foreach(member(pod, "rows"), i, row)
		if (!strcmp(text(row, "kind"), kind)) {
			KEEP(run->why->facts.memory_file, text(row, "name"));
			break;
		}
	json_decref(pod);
}

static void step_group_again(struct run *run)
{
	struct hl_why_facts *facts = &run->why->facts;
	const char *name = "";

	if (!facts->has_group)
		return;
	json_t *after = ask_pod(run->why, true);
	keep_pod(facts, after, true);
	facts->own_gain =
		anonymous_of(after, run->why->pid) - anonymous_of(run->pod, run->why->pid);
	facts->neighbour =
		largest_gain(run->pod, after, run->why->pid, &facts->neighbour_gain, &name);
	KEEP(facts->neighbour_name, name);
	json_decref(after);
	if (hl_why_gain(&facts->group_shared) > facts->usage.after / 20)
		find_file(run, "shared");
}

/* The process of a group that gains most within a moment, else the one that has most. */
static int choose_process(struct hl_why *why, struct hl_error *err)
{
	json_t *before = ask_pod(why, true), *after;
	const char *name;
	int64_t gain;

	if (!before)
		return hl_error_set(err, -ESRCH, "%s", why->done[0].said);
	wait_for(why, -1, fmin(IDLE_SECONDS, why->request.seconds / 3));
	after = ask_pod(why, true);
	why->pid = largest_gain(before, after, 0, &gain, &name);
	if (!why->pid)
		why->pid = largest_gain(NULL, after, 0, &gain, &name);
	json_decref(before);
	json_decref(after);
	return why->pid ? 0
			: hl_error_set(
				  err, -ESRCH,
				  "the control group '%.200s' has no process with memory of its "
				  "own; 'heapline pod --cgroup %.200s' shows what it has",
				  why->request.cgroup, why->request.cgroup);
}

/* ---- the process ---- */

static void step_doctor(struct run *run)
{
	struct hl_why_facts *facts = &run->why->facts;
	json_t *doctor = ASK(run->why, STEP_SECONDS, "doctor", "-p", pid_of(run->why)), *row;
	size_t i;

	json_array_foreach(member(doctor, "rows"), i, row) {
		const char *way = text(row, "way");
		bool works = !strcmp(text(row, "works"), "yes");
		facts->may_attach |= works && !strcmp(way, "attach");
		facts->may_trace |= works && !strcmp(way, "stacks");
		facts->may_fault |= works && !strcmp(way, "pgfault");
		facts->is_recorded |= works && !strcmp(way, "ctl");
		if (!strcmp(way, "attach") && !works)
			add_unseen(run->why, "by 'heapline attach': %s", text(row, "reason"));
	}
	json_decref(doctor);
}

static void keep_heap(struct hl_why_facts *facts, const json_t *heap, bool is_after)
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
			number(heap, figures[i].path);
	for (size_t i = 0; i < HL_COUNT_OF(parts); i++) {
		snprintf(path, sizeof(path), "total.resident_%s_bytes", parts[i]);
		other += number(heap, path);
	}
	*(is_after ? &facts->other.after : &facts->other.before) = other;
	*(is_after ? &facts->in_use.after : &facts->in_use.before) =
		number(heap, "total.inuse_bytes") + number(heap, "total.mmapped_bytes");
	int64_t open = number(heap, "beside.open_file_bytes");
	*(is_after ? &facts->shared.after : &facts->shared.before) += open > 0 ? open : 0;
}

static void step_heap(struct run *run)
{
	struct hl_why *why = run->why;
	struct hl_why_facts *facts = &why->facts;

	run->heap_ns = hl_clock_ns(CLOCK_MONOTONIC);
	run->heap = ASK(why, STEP_SECONDS, "heap", "-p", pid_of(why));
	facts->has_heap = run->heap != NULL;
	KEEP(facts->command, text(run->heap, "process.command"));
	if (facts->has_heap)
		keep_heap(facts, run->heap, false);
	else
		facts->rss.before = hl_process_status_read(why->pid).rss_bytes;
}

/* The part that has gained most, but for files and heapline's own. */
static void find_grown_part(struct hl_why_facts *facts, const json_t *before, const json_t *after)
{
	const json_t *was = member(before, "resident"), *is = member(after, "resident");

	for (size_t i = 0; i < json_array_size(is); i++) {
		const json_t *row = json_array_get(is, i);
		int64_t gain = number(row, "bytes") - number(json_array_get(was, i), "bytes");
		const char *part = text(row, "part");
		if (gain > facts->grown_part_bytes && strcmp(part, "files") != 0 &&
		    strcmp(part, "heapline's recorder") != 0) {
			facts->grown_part_bytes = gain;
			KEEP(facts->grown_part, part);
		}
	}
}

/* The largest file in memory that it has open, or else mapped. */
static void find_memory_file(struct hl_why_facts *facts, const json_t *heap)
{
	json_t *row;
	size_t i;

	json_array_foreach(member(heap, "mappings"), i, row)
		if (!strcmp(text(row, "part"), "shared memory") && !facts->memory_file[0])
			KEEP(facts->memory_file, text(row, "name"));
	row = json_array_get(member(heap, "open_files"), 0);
	if (number(row, "bytes") > facts->shared.after / 2)
		KEEP(facts->memory_file, text(row, "name"));
}

static void step_heap_again(struct run *run)
{
	struct hl_why *why = run->why;
	struct hl_why_facts *facts = &why->facts;
	json_t *after = facts->has_heap ? ASK(why, STEP_SECONDS, "heap", "-p", pid_of(why)) : NULL;

	facts->seconds = (double)(hl_clock_ns(CLOCK_MONOTONIC) - run->heap_ns) / 1e9;
	run->was_read_again = true;
	if (!after) {
		facts->has_heap = false;
		facts->rss.after = hl_process_has_ended(why->pid)
					   ? -1
					   : (int64_t)hl_process_status_read(why->pid).rss_bytes;
		return;
	}
	keep_heap(facts, after, true);
	facts->unscanned = number(after, "total.unscanned_bytes");
	facts->heap_bytes = number(after, "verdict.heap_bytes");
	facts->returnable_bytes = number(after, "verdict.returnable_bytes");
	facts->pinned_bytes = number(after, "verdict.pinned_bytes");
	KEEP(facts->kind, text(after, "verdict.kind"));
	KEEP(facts->part, text(after, "verdict.part"));
	KEEP(facts->purge, text(after, "verdict.purge"));
	if (number(after, "beside.swap_bytes") > 0)
		add_unseen(why, "%s on swap",
			   hl_format_bytes(number(after, "beside.swap_bytes"),
					   (char[HL_FORMAT_MAX]){""}));
	find_grown_part(facts, run->heap, after);
	find_memory_file(facts, after);
	json_decref(after);
}

/* ---- the grower ---- */

/* Frames of scripts and of code made at run time are of no file of code; those without a name are addresses. */
static bool is_of_script(const json_t *frame)
{
	const char *function = text(frame, "function");

	return !strpbrk(text(frame, "module"), "/[") && *function && *function != '[' &&
	       strncmp(function, "0x", 2) != 0;
}

static void keep_frame(struct hl_why_frame *to, const json_t *frame)
{
	KEEP(to->function, text(frame, "function"));
	KEEP(to->file, text(frame, "file"));
	KEEP(to->module, hl_path_basename(text(frame, "module")));
	to->line = number(frame, "line");
}

static void put_frame(char *to, const json_t *frame)
{
	const char *module = hl_path_basename(text(frame, "module"));

	if (number(frame, "line") > 0)
		snprintf(to, HL_WHY_TEXT_MAX, "%.150s (%.80s:%" PRId64 ")", text(frame, "function"),
			 hl_path_basename(text(frame, "file")), number(frame, "line"));
	else
		snprintf(to, HL_WHY_TEXT_MAX, *module ? "%.150s (%.80s)" : "%s",
			 text(frame, "function"), module);
}

#define NEAR_FRAMES 8u /* of the leaf, in which a line of native code is looked for */

/* libc copies, and starts programs and threads: its lines are nobody's. */
static bool is_of_libc(const json_t *frame)
{
	return !strncmp(hl_path_basename(text(frame, "module")), "libc.", 5);
}

/*
 * The line: of a script, if there is one; else of the source nearest to the leaf; else the leaf.
 */
static void keep_grower(struct run *run, const json_t *row, const char *source)
{
	struct hl_why_facts *facts = &run->why->facts;
	const json_t *frames = member(row, "frames"), *own = NULL, *chosen = NULL;
	const json_t *script = NULL;
	size_t count = json_array_size(frames);

	if (!count)
		return;
	facts->source = source;
	json_decref(run->frames);
	run->frames = json_incref(member(row, "frames"));
	memset(facts->stack, 0, sizeof(facts->stack));
	for (size_t i = 0; i < count; i++) {
		const json_t *frame = json_array_get(frames, count - 1 - i);
		if (i < HL_WHY_STACK_MAX)
			put_frame(facts->stack[i], frame);
		bool has_line = number(frame, "line") > 0;
		if (is_of_script(frame) && (!script || (number(script, "line") <= 0 && has_line)))
			script = frame;
		if (i >= NEAR_FRAMES || is_of_libc(frame))
			continue;
		own = own ? own : frame;
		if (!chosen && has_line)
			chosen = frame;
	}
	const json_t *leaf = json_array_get(frames, count - 1);
	KEEP(facts->leaf, text(leaf, "function"));
	facts->is_script = script != NULL;
	keep_frame(&facts->line, script ? script : chosen ? chosen : own ? own : leaf);
}

static bool is_same_leaf(const json_t *one, const json_t *other)
{
	return number(one, "line") == number(other, "line") &&
	       !strcmp(text(one, "name"), text(other, "name")) &&
	       !strcmp(text(one, "file"), text(other, "file"));
}

#define STEADY_PERCENT 50 /* the leak score of a stack that counts */

/* Of the stacks that end as ${row} does and count. */
static int64_t gain_of_leaf(const json_t *rows, const json_t *row)
{
	int64_t bytes = 0;
	json_t *other;
	size_t i;

	json_array_foreach(rows, i, other)
		if (is_same_leaf(row, other) && number(other, "steady_percent") >= STEADY_PERCENT)
			bytes += number(other, "to_bytes") - number(other, "from_bytes");
	return bytes;
}

/* Figures are those of the first time, which leaks and holders are compared with; a later one may have better names. */
static void keep_growth(struct run *run, const json_t *growth)
{
	struct hl_why_facts *facts = &run->why->facts;
	const json_t *rows = member(growth, "rows"), *most = NULL;
	int64_t grown_bytes = 0, total_bytes = 0;
	json_t *row;
	size_t i;

	json_array_foreach(rows, i, row) {
		int64_t bytes = gain_of_leaf(rows, row);
		if (number(row, "steady_percent") < STEADY_PERCENT)
			continue;
		total_bytes += number(row, "to_bytes") - number(row, "from_bytes");
		if (bytes > grown_bytes) {
			grown_bytes = bytes;
			most = row;
		}
	}
	facts->lost_events = number(growth, "lost.events");
	if (most)
		keep_grower(run, most, "attach");
	if (facts->grown_bytes)
		return;
	facts->grown_bytes = grown_bytes;
	facts->total_grown_bytes = total_bytes;
	facts->grown_seconds =
		(double)(number(growth, "log.last_ms") - number(growth, "log.first_ms")) / 1000;
}

/* Of verbs that trace from outside: their rows are what was gained. */
static void keep_traced(struct run *run, const json_t *traced, const char *source)
{
	struct hl_why_facts *facts = &run->why->facts;
	const json_t *row = json_array_get(member(traced, "rows"), 0);

	if (number(row, "bytes") <= 0)
		return;
	facts->grown_bytes = number(row, "bytes");
	facts->total_grown_bytes = number(traced, "total.inuse_bytes");
	facts->lost_events = number(traced, "lost.events");
	facts->grown_seconds = (double)number(traced, "recording.duration_ms") / 1000;
	keep_grower(run, row, source);
}

static bool has_text(const json_t *texts, const char *wanted)
{
	for (size_t i = 0; i < json_array_size(texts); i++)
		if (!strcmp(json_string_value(json_array_get(texts, i)), wanted))
			return true;
	return false;
}

/* The frame of the grower, near its leaf, in ${function}; NULL: it has none. */
static const json_t *grower_frame(const struct run *run, const char *function)
{
	size_t count = json_array_size(run->frames);

	for (size_t i = 0; i < count && i < NEAR_FRAMES; i++) {
		const json_t *frame = json_array_get(run->frames, count - 1 - i);
		if (!strcmp(text(frame, "function"), function))
			return frame;
	}
	return NULL;
}

/*
 * Lost blocks; while the process is recorded, also those that the grower allocated, or that hang on what a function on its stack allocated: then
 * that function's line is the one that loses them.
 */
static void keep_leaks(struct run *run, const json_t *leaks)
{
	struct hl_why_facts *facts = &run->why->facts;
	int64_t most = 0;
	json_t *row;
	size_t i;

	facts->lost_bytes =
		number(leaks, "total.lost_bytes") + number(leaks, "total.indirect_bytes");
	facts->grower_lost_bytes = facts->grower_lost_blocks = 0;
	json_array_foreach(member(leaks, "rows"), i, row) {
		const json_t *stack = member(row, "stack");
		const char *leaf =
			json_string_value(json_array_get(stack, json_array_size(stack) - 1));
		int64_t bytes = number(row, "lost_bytes") + number(row, "indirect_bytes");
		if (!leaf || !(grower_frame(run, leaf) || has_text(stack, facts->leaf)))
			continue;
		facts->grower_lost_bytes += bytes;
		facts->grower_lost_blocks += number(row, "lost_blocks");
		if (bytes > most) {
			most = bytes;
			KEEP(facts->losing_function, leaf);
		}
	}
}

/* What looks lost is looked for once more, also at addresses where packed structs have their pointers. */
static void step_leaks(struct run *run)
{
	struct hl_why *why = run->why;
	struct hl_why_facts *facts = &why->facts;

	if (!facts->has_heap)
		return;
	json_t *leaks = ASK(why, STEP_SECONDS, "leaks", "-p", pid_of(why), "--no-stop");
	if (number(leaks, "total.lost_bytes") > facts->live.before / 100) {
		json_decref(leaks);
		leaks = ASK(why, STEP_SECONDS, "leaks", "-p", pid_of(why), "--no-stop",
			    "--unaligned");
	}
	facts->has_leaks = leaks != NULL;
	if (leaks)
		keep_leaks(run, leaks);
	json_decref(leaks);
}

/* A regular expression that matches ${name} and nothing else. */
static void quote_name(const char *name, char *to, size_t size)
{
	size_t used = 0;

	for (to[used++] = '^'; *name && used + 4 < size; name++) {
		if (strchr("\\^$.[]|()*+?{}", *name))
			to[used++] = '\\';
		to[used++] = *name;
	}
	to[used++] = '$';
	to[used] = '\0';
}

static void keep_holder(struct hl_why_facts *facts, const json_t *holders)
{
	json_t *row;
	size_t i;

	json_array_foreach(member(holders, "rows"), i, row)
		if (strcmp(text(row, "kind"), "lost") != 0 && number(row, "held_bytes") > 0) {
			KEEP(facts->holder, text(row, "holder"));
			KEEP(facts->held_path, text(row, "path"));
			facts->held_bytes = number(row, "held_bytes");
			return;
		}
}

/* Who holds what the grower allocated, which is known while the process is recorded; without one, who holds most. */
static void step_holders(struct run *run)
{
	struct hl_why *why = run->why;
	struct hl_why_facts *facts = &why->facts;
	char expression[2 * HL_WHY_TEXT_MAX];

	if (!facts->has_heap || why->request.outside ||
	    facts->grower_lost_bytes > facts->grown_bytes / 2)
		return;
	quote_name(facts->leaf, expression, sizeof(expression));
	json_t *holders = facts->source
				  ? ASK(why, STEP_SECONDS, "holders", "-p", pid_of(why), "--stack",
					expression, "-n", "3")
				  : ASK(why, STEP_SECONDS, "holders", "-p", pid_of(why), "-n", "3");
	keep_holder(facts, holders);
	json_decref(holders);
}

/* ---- watching ---- */

static void look_whether_idle(struct run *run, double seconds)
{
	struct hl_why *why = run->why;
	int64_t cpu_ns = hl_process_cpu_ns(why->pid);
	int64_t rss = hl_process_status_read(why->pid).rss_bytes;

	wait_for(why, -1, seconds);
	why->facts.is_idle =
		cpu_ns >= 0 &&
		(double)(hl_process_cpu_ns(why->pid) - cpu_ns) < IDLE_CPU_NS * seconds &&
		hl_process_status_read(why->pid).rss_bytes == rss;
}

/* Ends 'heapline attach', as Ctrl-C does; it leaves the process as it was, and says how long that was stopped. */
static void leave(struct hl_why *why, pid_t child, int complaints, struct hl_why_done *done)
{
	char said[HL_SELF_SENTENCE_MAX];
	int status = hl_ask_end(child, SIGTERM, &done->cpu_ns);

	ssize_t size = pread(complaints, said, sizeof(said) - 1, 0);
	said[size > 0 ? size : 0] = '\0';
	char *sentence = strstr(said, status ? "heapline: " : "counted; ");
	if (sentence) {
		sentence += strcspn(sentence, " ") + 1;
		sentence[strcspn(sentence, "\n")] = '\0';
		KEEP(done->said, sentence);
	}
	done->has_failed = status != 0;
	if (status)
		add_unseen(why, "'heapline attach': %s", sentence ? sentence : "it failed");
}

static void say_cost(const struct hl_why *why, double seconds)
{
	char line[2 * HL_WHY_TEXT_MAX];

	snprintf(line, sizeof(line),
		 "attaching to process %d for about %.0f s: it stops twice for about a "
		 "millisecond, each "
		 "allocation takes about 0.1 us longer, the recorder takes " ATTACH_MEMORY
		 " at most; it is left as it was (--outside does without)",
		 why->pid, seconds);
	if (why->request.say)
		why->request.say(line);
}

static void step_growth(struct run *run)
{
	struct hl_why *why = run->why;
	json_t *growth = ASK(why, STEP_SECONDS, "growth", why->recording, "-n", GROWN_ROWS);

	if (growth)
		keep_growth(run, growth);
	json_decref(growth);
}

static void watch_inside(struct run *run, double seconds)
{
	struct hl_why *why = run->why;
	char number_text[16];
	const char *const arguments[] = {
		"attach", "-p",		  pid_of(why), "-d",	       number_text,
		"--mode", "log-fast",	  "--lossy",   "--max-memory", ATTACH_MEMORY,
		"-o",	  why->recording, NULL};
	char *line[HL_COUNT_OF(arguments) + 1] = {"heapline"};
	HL_CLOSED int complaints = memfd_create("complaints", MFD_CLOEXEC);
	uint64_t begun_ns = hl_clock_ns(CLOCK_MONOTONIC);
	const struct hl_ask_bounds bounds = {.cpu_seconds = 60 + (unsigned)seconds};
	pid_t child;

	memcpy(line + 1, arguments, sizeof(arguments));
	snprintf(number_text, sizeof(number_text), "%.0f", ceil(seconds));
	struct hl_why_done *done = add_done(why, arguments);
	snprintf(number_text, sizeof(number_text), "%.0f", seconds + ATTACH_BACKSTOP);
	int r = complaints < 0
			? -errno
			: hl_ask_start(line, complaints, complaints, SIGTERM, &bounds, &child);
	if (r < 0) {
		add_unseen(why, "by 'heapline attach': %s", strerror(-r));
		wait_for(why, -1, seconds);
		return;
	}
	HL_CLOSED int pidfd = pidfd_open(child, 0);
	wait_for(why, pidfd, seconds);
	step_growth(run);
	step_leaks(run);
	if (why->facts.source)
		step_holders(run);
	leave(why, child, complaints, done);
	step_growth(run); /* now that scripts and code made at run time have their names */
	const json_t *losing = grower_frame(run, why->facts.losing_function);
	if (losing && !why->facts.is_script &&
	    why->facts.grower_lost_bytes >= why->facts.grown_bytes / 2)
		keep_frame(&why->facts.line, losing);
	done->wall_ns = hl_clock_ns(CLOCK_MONOTONIC) - begun_ns;
}

static void watch_from_outside(struct run *run, double seconds)
{
	struct hl_why *why = run->why;
	char duration[16];

	snprintf(duration, sizeof(duration), "%.0f", ceil(seconds));
	json_t *traced = ASK(why, (unsigned)seconds + TRACE_GRACE, "stacks", "-p", pid_of(why),
			     "-n", GROWN_ROWS, duration);
	keep_traced(run, traced, "stacks");
	if (!traced)
		wait_for(why, -1, seconds / 2);
	json_decref(traced);
}

/* What the process allocates and keeps; lost blocks; who holds the rest. */
static void step_watch(struct run *run)
{
	struct hl_why *why = run->why;
	struct hl_why_facts *facts = &why->facts;
	double seconds = why->request.seconds, idle_seconds = fmin(IDLE_SECONDS, seconds / 4);
	bool may_enter = facts->may_attach && !facts->is_recorded && !why->request.outside;

	look_whether_idle(run, idle_seconds);
	seconds -= idle_seconds;
	if (is_over(why))
		return;
	if (facts->is_idle) {
		add_unseen(why, "who allocates: the process %s, so it was not entered",
			   strchr("Tt", hl_process_state(why->pid)) ? "is stopped" : "did not run");
		wait_for(why, -1, seconds);
	} else if (may_enter) {
		say_cost(why, seconds);
		watch_inside(run, seconds);
	} else if (facts->may_trace) {
		watch_from_outside(run, seconds);
	} else {
		add_unseen(why, "who allocates: %s",
			   why->request.outside ? "--outside forbids to enter the process, and "
						  "'heapline stacks' does not work here"
						: "neither attach nor stacks works here");
		wait_for(why, -1, seconds);
	}
	if (!facts->has_leaks)
		step_leaks(run);
}

static double a_second(int64_t bytes, double seconds)
{
	return seconds > 0 ? (double)bytes / seconds : 0;
}

/* What grew without an allocation, or outside of the allocator's heap, is found by its page faults. The times differ, so rates are compared. */
static void step_faults(struct run *run)
{
	struct hl_why *why = run->why;
	struct hl_why_facts *facts = &why->facts;
	int64_t gain = hl_why_gain(&facts->rss) - hl_why_gain(&facts->files);
	double grown = a_second(facts->grown_bytes, facts->grown_seconds);
	char duration[16];

	if (!facts->may_fault || facts->is_idle || gain < (256 << 10) ||
	    (facts->source &&
	     (hl_why_gain(&facts->live) > gain / 2 || grown > a_second(gain, facts->seconds) / 2)))
		return;
	snprintf(duration, sizeof(duration), "%.0f",
		 ceil(fmin(FAULT_SECONDS, why->request.seconds)));
	json_t *faults = ASK(why, (unsigned)FAULT_SECONDS + TRACE_GRACE, "pgfault", "-p",
			     pid_of(why), "-n", GROWN_ROWS, duration);
	if (a_second(number(faults, "total.inuse_bytes"),
		     (double)number(faults, "recording.duration_ms") / 1000) > 2 * grown)
		keep_traced(run, faults, "pgfault");
	json_decref(faults);
}

static void step_owners(struct run *run)
{
	struct hl_why_facts *facts = &run->why->facts;

	if (!facts->source && !facts->holder[0] && facts->live.after > facts->rss.after / 2)
		step_holders(run);
}

/* ---- all of them ---- */

static const struct step {
	void (*take)(struct run *run);
	const char *command; /* with a %s for "-p PID"; of the group "%g", of seconds "%d" */
	const char *when, *cost;
} steps[] = {
	{step_doctor, "heapline doctor %s", "", "reads /proc; tries what does no harm"},
	{step_group, "heapline pod %g --quick", "", "reads /proc and the group's files"},
	{step_heap, "heapline heap %s", "", "reads the heap; stops nothing"},
	{step_watch,
	 "heapline attach %s -d %d --mode log-fast --lossy --max-memory " ATTACH_MEMORY
	 " -o why.hl",
	 "if doctor says yes, the process runs, and not with --outside; else 'heapline stacks %s "
	 "%d' if that works",
	 "stops the process twice for about a millisecond; about 0.1 us for each allocation"},
	{NULL, "heapline growth why.hl", "while it is attached", ""},
	{NULL, "heapline leaks %s --no-stop", "if much looks lost, again with --unaligned",
	 "reads the heap; stops nothing"},
	{NULL, "heapline holders %s --stack FUNCTION", "if something grew that is not lost",
	 "reads the heap; reads registers, which stops each thread for well below a millisecond"},
	{step_heap_again, "heapline heap %s", "", "as before"},
	{step_group_again, "heapline pod %g --quick", "if the group has a limit", "as before"},
	{step_faults, "heapline pgfault %s 5", "if what grew is not the allocator's",
	 "a BPF program for each page fault"},
	{step_owners, "heapline holders %s", "if nothing grew and most of it is live", "as before"},
};

static void put_step(FILE *out, const char *format, const char *target, const char *group,
		     double seconds)
{
	for (; *format; format++)
		if (*format != '%')
			fputc(*format, out);
		else if (*++format == 's')
			fputs(target, out);
		else if (*format == 'g')
			fputs(group, out);
		else
			fprintf(out, "%.0f", ceil(seconds));
}

void hl_why_plan(const struct hl_why_request *request, FILE *out)
{
	char target[32] = "-p PID", group[PATH_MAX];

	if (request->pid)
		snprintf(target, sizeof(target), "-p %d", request->pid);
	snprintf(group, sizeof(group), "%s%s", request->cgroup ? "--cgroup " : target,
		 request->cgroup ? request->cgroup : "");
	for (size_t i = 0; i < HL_COUNT_OF(steps); i++) {
		const struct step *step = &steps[i];
		if (request->outside && step->take == step_watch) {
			put_step(out, "heapline stacks %s %d\n  if doctor says yes\n", target,
				 group, request->seconds);
			continue;
		}
		if (request->outside && (!strncmp(step->command, "heapline growth", 15) ||
					 !strncmp(step->command, "heapline holders", 16)))
			continue;
		put_step(out, step->command, target, group, request->seconds);
		fputc('\n', out);
		if (step->when[0]) {
			fputs("  ", out);
			put_step(out, step->when, target, group, request->seconds);
			fputc('\n', out);
		}
		if (step->cost[0])
			fprintf(out, "  cost: %s\n", step->cost);
	}
}

int hl_why_run(const struct hl_why_request *request, struct hl_why *ret_why, struct hl_error *err)
{
	struct hl_why *why = ret_why;
	struct run run = {.why = why};
	struct hl_process_facts process = {0};
	int r = 0;

	*why = (struct hl_why){
		.request = *request, .pid = request->pid, .begun_ns = hl_clock_ns(CLOCK_REALTIME)};
	why->facts.limit = -1;
	if (!why->pid)
		r = choose_process(why, err);
	if (r == 0)
		r = hl_process_facts_read(why->pid, &process, err);
	if (r == 0) {
		struct hl_maps maps = {0};
		if (hl_maps_read(why->pid, &maps, err) == -ESRCH)
			r = -ESRCH; /* a thread of the kernel */
		hl_maps_release(&maps);
		if (r < 0)
			hl_process_facts_release(&process);
	}
	if (r < 0)
		return r;
	KEEP(why->facts.program, process.comm);
	hl_process_facts_release(&process);
	snprintf(why->target, sizeof(why->target), "-p %d", why->pid);
	if (request->keep)
		snprintf(why->recording, sizeof(why->recording), "%s", request->keep);
	else
		snprintf(why->recording, sizeof(why->recording), "%s/why.hl", request->folder);
	for (size_t i = 0; i < HL_COUNT_OF(steps) && !is_over(why); i++)
		if (steps[i].take)
			steps[i].take(&run);
	json_decref(run.heap);
	json_decref(run.pod);
	json_decref(run.frames);
	if (is_over(why)) {
		add_unseen(why, "what follows: a signal ended it");
		if (!run.heap_ns)
			why->facts.rss.after = -1;
		else if (!run.was_read_again) /* else it looks as if nothing were left */
			step_heap_again(&run);
	}
	if (hl_process_has_ended(why->pid))
		add_unseen(why, "the process has ended meanwhile");
	hl_why_judge(why);
	return 0;
}
