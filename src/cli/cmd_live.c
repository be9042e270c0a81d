/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline live: a recording watched while it goes on. */
#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "cli/cli.h"
#include "collector/control_ask.h"
#include "open/open.h"
#include "process/maps.h"
#include "process/process.h"
#include "profile/filter.h"
#include "view/format.h"
#include "view/live.h"
#include "view/table.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what is being recorded, as a list to choose from ---- */

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
	json_array_foreach(json_object_get(answer, "processes"), i, process)
		if (r == 0)
			r = add(list, process, path);
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

/* Writes a table of all recorded processes of this user, for root of all users, to standard output. 0 or a negative errno with a sentence. */
static int live_list(struct hl_error *err)
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

#define ROWS_ONCE    20
#define NS_PER_MS    UINT64_C(1000000)
#define FIRST_SAVE_S 10 /* within which the first save of a program comes, if it allocates */

/* Keys wait while the collector is asked; it is called silent when it has not answered for longer
 * than a save on a busy machine takes. */
#define ANSWER_WAIT_NS (200 * NS_PER_MS)
#define SILENT_NS      (2 * HL_NS_PER_SECOND)

struct request {
	uint64_t pid;
	double interval_seconds;
	uint64_t row_limit;
	bool once, json;
	int by, sort, column;
};

static const struct request defaults = {.interval_seconds = 1};

static const char *const by_words[] = {"function", "line", "module", "thread", NULL};
static const enum hl_view_key by_keys[] = {HL_VIEW_BY_FUNCTION, HL_VIEW_BY_LINE, HL_VIEW_BY_MODULE,
					   HL_VIEW_BY_THREAD};
static const char *const sort_words[] = {"flat", "cum", NULL};

/* In the order of enum hl_live_column. */
static const char *const column_words[] = {"inuse", "alloc", "rate", "delta", "name", NULL};

static const struct hl_option options[] = {
	{"pid", 'p', "PID", "a process that is being recorded", HL_OPTION_PID, HL_AT(pid), NULL},
	HL_OPTION_COMM_OF(HL_AT(pid)),
	{"interval", 'i', "SECONDS", "look again every SECONDS (default: 1)", HL_OPTION_SECONDS,
	 HL_AT(interval_seconds), NULL},
	{"by", 'b', "KEY", "what a row is: function, line, module or thread", HL_OPTION_CHOICE,
	 HL_AT(by), by_words},
	{"sort", 's', "KEY", "flat (own) or cum (with callees) figures (default: flat)",
	 HL_OPTION_CHOICE, HL_AT(sort), sort_words},
	{"column", 'c', "COLUMN", "sort by inuse, alloc, rate, delta or name (default: inuse)",
	 HL_OPTION_CHOICE, HL_AT(column), column_words},
	{"rows", 'n', "N", "show N rows; 0: all (default: what fits; with --once 20)",
	 HL_OPTION_COUNT, HL_AT(row_limit), NULL},
	{"once", 0, NULL, "write one screen as text and end", HL_OPTION_FLAG, HL_AT(once), NULL},
	{"json", 0, NULL, "write one line of JSON every interval", HL_OPTION_FLAG, HL_AT(json),
	 NULL},
	{0},
};

/* ---- what is watched ---- */

struct watched {
	uint64_t pid;		       /* that was asked for; 0: a recording was */
	struct hl_control_peers peers; /* its collector, if there is one */
	bool is_one;		       /* a single process, of which sequence is known */
	bool in_touch;		       /* the collector answered when it was last asked */
	uint64_t
		silent_ns; /* CLOCK_MONOTONIC: since when it has not, though it is there; 0: it has */
	uint32_t sequence;
	char *path;		   /* of the recording */
	uint64_t saved_ns;	   /* when what was last read was written */
	struct hl_profile *latest; /* live's, not to be freed */
};

static int64_t number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* ${recorder_bytes}: what the recorder adds to its RSS. */
static void add_memory(pid_t process, int64_t recorder_bytes, struct hl_live_sample *sample)
{
	const struct hl_process_status status = hl_process_status_read(process);

	if (recorder_bytes > status.rss_bytes) /* the process has just ended */
		recorder_bytes = status.rss_bytes;
	sample->rss_bytes += status.rss_bytes - recorder_bytes;
	sample->recorder_bytes += recorder_bytes;
	sample->threads += status.threads;
}

static void add_status(const json_t *process, struct hl_live_sample *sample)
{
	const char *mode = json_string_value(json_object_get(process, "mode"));
	uint64_t ms = (uint64_t)number(process, "ms");

	sample->inuse_bytes += number(process, "inuse_bytes");
	sample->inuse_objects += number(process, "inuse_objects");
	sample->peak_bytes += number(process, "peak_bytes");
	sample->events += number(process, "events");
	sample->ms = ms > sample->ms ? ms : sample->ms;
	snprintf(sample->mode, sizeof(sample->mode), "%s", mode ? mode : "");
	add_memory((pid_t)number(process, "pid"), number(process, "recorder_bytes"), sample);
}

/* Adds what the collector says of running processes: of how many. */
static size_t ask(struct hl_live *live, struct watched *watched, struct hl_live_sample *sample)
{
	struct hl_control_request request = {.verb = HL_CONTROL_STATUS};
	struct hl_error err = {0};
	json_t *answer;
	const json_t *process, *last = NULL;
	size_t i, count = 0;

	int r = watched->peers.count
			? hl_control_ask(&watched->peers.peers[0], &request, &answer, &err)
			: -ENOENT;
	watched->in_touch = r == 0;
	if (r != -ETIMEDOUT)
		watched->silent_ns = 0;
	else if (!watched->silent_ns)
		watched->silent_ns = sample->ns;
	if (r < 0)
		return 0;
	json_array_foreach(json_object_get(answer, "processes"), i, process) {
		if (watched->is_one && (uint64_t)number(process, "pid") != watched->pid)
			continue;
		last = process;
		count++;
		if (!watched->is_one)
			add_status(process, sample);
	}
	if (watched->is_one && last) {
		/* The process runs another program by now. */
		if ((uint32_t)number(last, "sequence") != watched->sequence) {
			hl_live_forget(live);
			watched->saved_ns = 0;
		}
		watched->sequence = (uint32_t)number(last, "sequence");
		add_status(last, sample);
	}
	json_decref(answer);
	return count;
}

/* The profile, when it was written since it was last read. 0 or a negative errno. */
static int read_profile(struct hl_live *live, struct watched *watched, struct hl_error *err)
{
	const struct hl_filter filter = {.fold_plumbing = true};
	struct hl_profile_selection selection = {
		.pid = (uint32_t)(watched->is_one ? watched->pid : 0),
		.by_sequence = watched->is_one,
		.sequence = watched->sequence};
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	uint64_t saved_ns;

	int r = hl_open_saved_ns(watched->path, &saved_ns);
	if (r < 0)
		return hl_error_set(err, r, "cannot read '%s': %s", watched->path, strerror(-r));
	bool is_new = saved_ns != watched->saved_ns;
	bool has_collector = watched->in_touch || watched->silent_ns;
	if (!is_new && watched->latest && (has_collector || live->end[0]))
		return 0;
	r = hl_open_profile(watched->path, &selection, &profile, err);
	if (r == 0)
		r = hl_filter_apply(&filter, profile, NULL, err);
	if (r < 0)
		return r;
	if (!is_new) {
		/* Only whether it goes on can have changed. */
		watched->latest->running = profile->running;
		return 0;
	}
	watched->saved_ns = saved_ns;
	watched->latest = HL_TAKE(profile);
	hl_live_take(live, watched->latest, saved_ns);
	return 0;
}

/* What ended processes had in use, and the last state of all where no collector answers. */
static void add_ended(const struct watched *watched, size_t running, struct hl_live_sample *sample)
{
	const struct hl_profile *profile = watched->latest;

	for (size_t i = 0; i < profile->process_count; i++) {
		const struct hl_profile_process *process = &profile->processes[i];
		const struct hl_profile_counters *total = &process->total;
		if (running && !process->complete)
			continue;
		sample->inuse_bytes += total->alloc_bytes - total->free_bytes;
		sample->inuse_objects += total->alloc_objects - total->free_objects;
		sample->events += total->alloc_objects + total->free_objects;
		sample->peak_bytes += total->peak_bytes;
		if (running)
			continue;
		if (process->duration_ns / NS_PER_MS > sample->ms)
			sample->ms = process->duration_ns / NS_PER_MS;
		int64_t recorder_bytes =
			process->complete ? 0 : hl_maps_recorder_bytes((pid_t)process->pid);
		if (recorder_bytes > 0) /* else its number is another's by now */
			add_memory((pid_t)process->pid, recorder_bytes, sample);
	}
}

/* Says why nothing more will come, if so. */
static void judge_end(struct hl_live *live, const struct watched *watched, size_t running)
{
	const struct hl_profile *profile = watched->latest;
	const char *end = profile->process_count == 1
				  ? hl_profile_text(profile, profile->processes[0].end)
				  : "";
	bool complete = profile->process_count > 0;

	for (size_t i = 0; i < profile->process_count; i++)
		complete = complete && profile->processes[i].complete;
	if (running || (profile->running && !(watched->is_one && complete)))
		return;
	if (complete || profile->complete || profile->snapshot)
		snprintf(live->end, sizeof(live->end),
			 "this is the last state%s%s; see 'heapline top %s'", end[0] ? ": " : "",
			 end, watched->path);
	else
		snprintf(live->end, sizeof(live->end),
			 "the collector has died, so this is its last save, and nothing more is "
			 "recorded; see 'heapline top %s'",
			 watched->path);
}

/* Says that nothing newer than the saves is known, if so. */
static void judge_silence(struct hl_live *live, const struct watched *watched)
{
	pid_t collector = watched->silent_ns ? watched->peers.peers[0].pid : 0;

	live->silence[0] = '\0';
	if (collector)
		snprintf(live->silence, sizeof(live->silence),
			 "the collector (process %d) does not answer, so this is its last save; if "
			 "it is stopped, 'kill -CONT %d' lets it go on",
			 collector, collector);
}

static int look(struct hl_live *live, void *context, struct hl_error *err)
{
	struct watched *watched = context;
	struct hl_live_sample sample = {.ns = hl_clock_ns(CLOCK_MONOTONIC)};

	if (live->end[0])
		return 0;
	size_t running = ask(live, watched, &sample);
	if (watched->silent_ns && sample.ns - watched->silent_ns < SILENT_NS)
		return hl_live_update(live); /* it may be busy: keep what it said last */
	judge_silence(live, watched);
	if (!live->shots[HL_LIVE_NOW].profile)
		watched->latest = NULL;
	int r = read_profile(live, watched, err);
	/* What has just begun has no save yet, or is not in it. */
	if (running && !watched->latest && (r == -ENOENT || r == -ENODATA || r == -ESRCH)) {
		r = 0;
		*err = (struct hl_error){0};
	}
	if (r < 0)
		return r;
	live->command = "";
	if (watched->latest) {
		const struct hl_profile *profile = watched->latest;
		live->command = hl_profile_text(profile, profile->process_count == 1
								 ? profile->processes[0].command
								 : profile->command);
		add_ended(watched, running, &sample);
		judge_end(live, watched, running);
	}
	hl_live_add_sample(live, sample);
	r = hl_live_update(live);
	return r < 0 ? hl_error_set(err, r, "cannot show '%s': out of memory", watched->path) : 0;
}

/* ---- whom ---- */

/* A path as one types it here. */
static char *path_from_here(const char *path)
{
	char here[PATH_MAX];
	size_t length = getcwd(here, sizeof(here)) ? strlen(here) : 0;

	return strdup(length && !strncmp(path, here, length) && path[length] == '/'
			      ? path + length + 1
			      : path);
}

static int find_process(struct watched *watched, struct hl_error *err)
{
	int r = hl_control_ask_search((pid_t)watched->pid, &watched->peers);

	if (r < 0)
		return hl_error_set(err, r, "out of memory");
	if (!watched->peers.count)
		return hl_ctl_explain((pid_t)watched->pid, watched->peers.silent, "watch", err);
	watched->is_one = watched->peers.peers[0].pid != (pid_t)watched->pid;
	watched->sequence = UINT32_MAX;
	watched->path = path_from_here(watched->peers.peers[0].recording);
	return watched->path ? 0 : hl_error_set(err, -ENOMEM, "out of memory");
}

/* Keeps the collector that writes ${path}, if there: another can have a process of the same id. */
static void keep_peer_of(struct hl_control_peers *peers, const char *path)
{
	struct stat wanted, found;

	for (size_t i = 0; i < peers->count; i++) {
		struct hl_control_peer peer = peers->peers[i];
		if (stat(path, &wanted) < 0 || stat(peer.recording, &found) < 0 ||
		    wanted.st_dev != found.st_dev || wanted.st_ino != found.st_ino)
			continue;
		peers->peers[i] = peers->peers[0];
		peers->peers[0] = peer;
		return;
	}
	hl_control_ask_release(peers);
}

/* A recording that goes on has a collector, which knows the processes that have not ended. */
static int find_recording(struct watched *watched, const char *path, struct hl_error *err)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	int r = hl_open_profile(path, NULL, &profile, err);

	if (r < 0)
		return r;
	if (profile->imported)
		return hl_error_set(err, -ENOTSUP,
				    "cannot watch '%s': it is another tool's file, which does not "
				    "grow; see 'heapline top %s'",
				    path, path);
	for (size_t i = profile->process_count; profile->running && i-- > 0;) {
		if (profile->processes[i].complete)
			continue;
		r = hl_control_ask_search((pid_t)profile->processes[i].pid, &watched->peers);
		if (r < 0)
			return hl_error_set(err, r, "out of memory");
		bool is_silent = watched->peers.silent[0]; /* each search would wait for it again */
		keep_peer_of(&watched->peers, path);
		if (watched->peers.count || is_silent)
			break;
	}
	watched->path = strdup(path);
	return watched->path ? 0 : hl_error_set(err, -ENOMEM, "out of memory");
}

/* ---- all of it ---- */

static void print_line(void *context, const char *text, unsigned emphasis)
{
	(void)context;
	(void)emphasis;
	puts(text);
}

static int print_once(const struct hl_live *live, uint64_t row_limit)
{
	struct hl_live_page page = {
		.row_limit = row_limit,
		.width = isatty(STDOUT_FILENO) ? hl_format_terminal_width(STDOUT_FILENO) : 0,
		.line = print_line};

	return hl_live_paint(live, &page);
}

static void wait_for_next(double interval_seconds, uint64_t *next_ns)
{
	uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);

	*next_ns += (uint64_t)(interval_seconds * (double)HL_NS_PER_SECOND);
	if (*next_ns < now_ns) /* looking took longer than that */
		*next_ns = now_ns;
	const struct timespec next = {.tv_sec = (time_t)(*next_ns / HL_NS_PER_SECOND),
				      .tv_nsec = (long)(*next_ns % HL_NS_PER_SECOND)};
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
}

static int watch(const struct request *request, struct hl_live *live, struct watched *watched,
		 struct hl_error *err)
{
	const char *no_color = getenv("NO_COLOR"); /* https://no-color.org */
	uint64_t next_ns = hl_clock_ns(CLOCK_MONOTONIC);
	int r = look(live, watched, err);

	/* The first save may be under way. */
	for (int i = 0; r == 0 && !watched->latest && i < FIRST_SAVE_S * 10; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 100 * (long)NS_PER_MS}, NULL);
		r = look(live, watched, err);
	}
	if (r < 0)
		return r;
	if (!request->once && !request->json)
		return hl_live_screen(live, request->interval_seconds, request->row_limit,
				      !(no_color && no_color[0]), look, watched, err);
	while (r == 0) {
		r = request->json ? hl_live_json(live, request->row_limit, stdout)
				  : print_once(live, request->row_limit);
		if (r < 0)
			return hl_error_set(err, r, "cannot write: %s", strerror(-r));
		if (request->once || live->end[0])
			return 0;
		wait_for_next(request->interval_seconds, &next_ns);
		r = look(live, watched, err);
	}
	return r;
}

static void release_watched(struct watched *watched)
{
	hl_control_ask_release(&watched->peers);
	free(watched->path);
}

static int run_live(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	static struct hl_live live;
	HL_CLEANUP(release_watched) struct watched watched = {.pid = request->pid};
	struct hl_error err = {0};

	if (argc == 0 && !request->pid && !request->json && !request->once)
		return live_list(&err) < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
	if (argc > 1 || (argc == 1) == (request->pid != 0))
		return hl_cli_usage_error(&hl_verb_live,
					  "'live' needs one recording: of a process, by -p PID or "
					  "--comm NAME, or NAME.hl");
	if (!request->once && !request->json && !(isatty(STDOUT_FILENO) && isatty(STDIN_FILENO)))
		return hl_cli_usage_error(
			&hl_verb_live,
			"'live' needs a terminal; --once or --json writes without one");
	if (request->once && !request->json && !request->row_limit)
		request->row_limit = ROWS_ONCE;
	live.by = by_keys[request->by];
	live.cum = request->sort;
	live.sort = (enum hl_live_column)request->column;
	int r = request->pid ? find_process(&watched, &err)
			     : find_recording(&watched, argv[0], &err);
	if (r == 0) {
		if (watched.peers.count)
			watched.peers.peers[0].wait_ns = ANSWER_WAIT_NS;
		live.path = watched.path;
		live.name = hl_path_basename(watched.path);
		if (watched.is_one)
			snprintf(live.pid, sizeof(live.pid), "%" PRIu64, request->pid);
		r = watch(request, &live, &watched, &err);
	}
	hl_live_release(&live);
	return r < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_live = {
	.name = "live",
	.group = HL_GROUP_LIVE,
	.arguments = "[-p PID | --comm NAME | NAME.hl]",
	.summary = "watch a recording in progress on the terminal",
	.options = options,
	HL_REQUEST(defaults),
	.run = run_live,
	.effect = HL_VERB_STAYS,
};
