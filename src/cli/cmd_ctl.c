/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline ctl: queries and controls a running recording. */
#include "cli/cli.h"

#include "base/cleanup.h"
#include "cli/families.h"
#include "collector/control.h"
#include "collector/control_ask.h"
#include "process/maps.h"
#include "process/process.h"
#include "view/format.h"
#include "view/table.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct request {
	uint64_t pid;
	bool all, force, json;
};

static const struct request defaults;

static const struct hl_option options[] = {
	{"pid", 'p', "PID", "a process that is being recorded, or heapline record itself",
	 HL_OPTION_PID, HL_AT(pid), NULL},
	HL_OPTION_COMM_OF(HL_AT(pid)),
	{"all", 0, NULL, "mode, mark, reset, log-segments: all processes of the recording",
	 HL_OPTION_FLAG, HL_AT(all), NULL},
	{"force", 'f', NULL, "snapshot: replace an existing recording", HL_OPTION_FLAG,
	 HL_AT(force), NULL},
	{"json", 0, NULL, "status: as JSON", HL_OPTION_FLAG, HL_AT(json), NULL},
	{0},
};

/* ---- what is asked ---- */

static const struct {
	const char *name;
	enum hl_control_verb verb;
	const char *argument; /* NULL: none */
} actions[] = {
	{"status", HL_CONTROL_STATUS, NULL},
	{"mode", HL_CONTROL_MODE, "a mode"},
	{"mark", HL_CONTROL_MARK, "a name"},
	{"snapshot", HL_CONTROL_SNAPSHOT, "a path for it"},
	{"log-segments", HL_CONTROL_SEGMENTS, "a number"},
	{"reset", HL_CONTROL_RESET, NULL},
	{"detach", HL_CONTROL_DETACH, NULL},
};

static int make_request(const struct request *line, size_t action, const char *argument,
			struct hl_control_request *request, struct hl_error *err)
{
	char here[PATH_MAX] = "";

	request->verb = actions[action].verb;
	request->pid = line->all ? 0 : (pid_t)line->pid;
	if (request->verb == HL_CONTROL_SNAPSHOT) {
		/* The path as an absolute one: the collector may be elsewhere. */
		bool is_relative = argument[0] != '/';
		if (!argument[0] || strchr(argument, '\n') ||
		    (is_relative && !getcwd(here, sizeof(here))) ||
		    snprintf(request->argument, PATH_MAX, "%s%s%s", here, is_relative ? "/" : "",
			     argument) >= PATH_MAX)
			return hl_error_set(
				err, -EINVAL,
				"cannot write a snapshot to '%.200s': its path is empty, "
				"too long or has a line break; choose another name",
				argument);
		if (line->force)
			request->verb = HL_CONTROL_REPLACE;
	} else if (argument) {
		if (strlen(argument) >= sizeof(request->argument))
			return hl_error_set(err, -EINVAL, "the argument of '%s' is too long",
					    actions[action].name);
		strcpy(request->argument, argument);
		if (request->verb == HL_CONTROL_MODE && !strcmp(argument, "off"))
			strcpy(request->argument, hl_mode_names[HL_MODE_CLOSED]);
	}
	return hl_control_protocol_check(request, err);
}

/* ---- whom ---- */

/* Whether it has a recorder, or is heapline itself, or nobody can tell. */
static bool may_be_recorded(const struct hl_maps *maps)
{
	return !maps->count || hl_maps_have_file(maps, "libheapline.so") ||
	       hl_maps_have_file(maps, "memfd:heapline") || hl_maps_have_file(maps, "heapline");
}

int hl_ctl_explain(pid_t process, const char *silent, const char *wanted, struct hl_error *err)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};
	char path[32];
	struct stat status;

	snprintf(path, sizeof(path), "/proc/%d", process);
	if (stat(path, &status) < 0)
		return hl_error_set(err, -ESRCH, "cannot %s process %d: there is no such process",
				    wanted, process);
	if (geteuid() != 0 && status.st_uid != geteuid())
		return hl_error_set(err, -EPERM,
				    "cannot %s process %d: it is another user's; run as that "
				    "user or as root",
				    wanted, process);
	hl_maps_read(process, &maps, NULL);
	if (silent[0] && may_be_recorded(&maps))
		return hl_error_set(err, -ETIMEDOUT,
				    "cannot %s process %d: it may be recorded by a collector "
				    "that does not answer (process %s); if that is stopped, 'kill "
				    "-CONT %s' lets it go on",
				    wanted, process, silent, strchr(silent, ',') ? "PID" : silent);
	if (hl_maps_have_file(&maps, "libheapline-tags.so"))
		return hl_error_set(err, -ENOENT,
				    "cannot %s process %d: 'heapline record --tags' tags its "
				    "blocks and records "
				    "nothing; 'heapline allocations -p %d' shows who owns them",
				    wanted, process, process);
	if (hl_maps_have_file(&maps, "libheapline.so") || hl_maps_have_file(&maps, "heapline"))
		return hl_error_set(err, -ENOENT,
				    "cannot %s process %d: no collector of it was found; if "
				    "it is still being recorded, ask as the user who records it, "
				    "and set XDG_RUNTIME_DIR as it was for 'heapline record'",
				    wanted, process);
	if (hl_process_is_frozen(process))
		return hl_error_set(err, -EAGAIN, "cannot %s process %d: " HL_PROCESS_FROZEN,
				    wanted, process);
	struct hl_error refusal = {0};
	if (hl_attach_check(process, NULL, 0, &refusal) == 0)
		return hl_error_set(err, -ENOENT,
				    "cannot %s process %d: it is not being recorded; 'heapline "
				    "attach -p %d' records it from now on",
				    wanted, process, process);
	return hl_error_set(err, -ENOENT,
			    "cannot %s process %d: it is not being recorded; it cannot be joined: "
			    "%s; 'heapline doctor -p %d' lists what works",
			    wanted, process, refusal.text, process);
}

/* ---- the report ---- */

static int64_t number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

struct process {
	int64_t pid, sequence, ms, inuse_bytes, inuse_objects, peak_bytes, stack_nodes;
	int64_t events, lost_events, lost_log_events, log_segments, log_segments_kept, log_bytes;
	int64_t damaged; /* 1: at its last save */
	int64_t recorder_bytes;
	const char *mode, *command;
};

#define MEMBER(name) HL_MEMBER(struct process, name)
#define BLANK	     HL_COLUMN_BLANK_ZERO
#define HAS_LOG	     1

static const struct hl_column columns[] = {
	{"pid", "pid", HL_COLUMN_NUMBER, MEMBER(pid)},
	{"sequence", NULL, HL_COLUMN_NUMBER, MEMBER(sequence)},
	{"mode", "mode", HL_COLUMN_TEXT, MEMBER(mode)},
	{"ms", NULL, HL_COLUMN_COUNT, MEMBER(ms)},
	{"inuse_bytes", "in use", HL_COLUMN_BYTES, MEMBER(inuse_bytes)},
	{"inuse_objects", "objects", HL_COLUMN_COUNT, MEMBER(inuse_objects)},
	{"inuse_blocks", NULL, HL_COLUMN_COUNT, MEMBER(inuse_objects)},
	{"peak_bytes", "peak", HL_COLUMN_BYTES, MEMBER(peak_bytes)},
	{"stack_nodes", "stack nodes", HL_COLUMN_COUNT, MEMBER(stack_nodes)},
	{"events", "events", HL_COLUMN_COUNT, MEMBER(events)},
	{"lost_events", "lost", HL_COLUMN_COUNT, MEMBER(lost_events), BLANK},
	{"damaged", NULL, HL_COLUMN_COUNT, MEMBER(damaged)},
	{"recorder_bytes", NULL, HL_COLUMN_BYTES, MEMBER(recorder_bytes)},
	{"lost_log_events", "not in log", HL_COLUMN_COUNT, MEMBER(lost_log_events), BLANK, HAS_LOG},
	{"log_segments", "segments", HL_COLUMN_COUNT, MEMBER(log_segments), .shown_if = HAS_LOG},
	{"log_segments_kept", "kept", HL_COLUMN_COUNT, MEMBER(log_segments_kept),
	 .shown_if = HAS_LOG},
	{"log_bytes", "log", HL_COLUMN_BYTES, MEMBER(log_bytes), .shown_if = HAS_LOG},
	{"command", "command", HL_COLUMN_TEXT, MEMBER(command), HL_COLUMN_SHORTENED},
};

static void emit_processes(struct hl_emit *emit, const json_t *processes)
{
	bool has_log = json_object_get(json_array_get(processes, 0), "log_segments") != NULL;
	size_t i;
	const json_t *process;

	json_array_foreach(processes, i, process)
		if (number(process, "damaged"))
			hl_emit_warning(emit,
					"DAMAGED: process %" PRId64
					" overwrote heapline's memory; its "
					"figures may be wrong",
					number(process, "pid"));
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns),
						.facts = has_log ? HAS_LOG : 0});
	json_array_foreach(processes, i, process) {
		HL_FREED char *mode = hl_control_ask_bytes(json_object_get(process, "mode"));
		HL_FREED char *command = hl_control_ask_words(json_object_get(process, "command"));
		const struct process row = {
			.pid = number(process, "pid"),
			.sequence = number(process, "sequence"),
			.ms = number(process, "ms"),
			.inuse_bytes = number(process, "inuse_bytes"),
			.inuse_objects = number(process, "inuse_objects"),
			.peak_bytes = number(process, "peak_bytes"),
			.stack_nodes = number(process, "stack_nodes"),
			.events = number(process, "events"),
			.lost_events = number(process, "lost_events"),
			.damaged = number(process, "damaged"),
			.recorder_bytes = number(process, "recorder_bytes"),
			.lost_log_events = number(process, "lost_log_events"),
			.log_segments = number(process, "log_segments"),
			.log_segments_kept = number(process, "log_segments_kept"),
			.log_bytes = number(process, "log_bytes"),
			.mode = mode ? mode : "",
			.command = command ? command : "",
		};
		hl_table_row(emit, &row, 0);
	}
	hl_table_end(emit);
}

static int show(const json_t *status, pid_t pid, bool json, struct hl_error *err)
{
	const struct hl_emit_options how = {.out = stdout, .json = json};
	HL_FREED char *path = hl_control_ask_bytes(json_object_get(status, "recording"));
	HL_FREED char *command = hl_control_ask_words(json_object_get(status, "command"));
	HL_FREED char *mode = hl_control_ask_bytes(json_object_get(status, "mode"));
	int64_t ended = number(status, "ended");
	struct hl_emit *emit;

	int r = hl_emit_open(&how, "ctl-status/1", &emit);
	if (r == 0) {
		hl_emit_about(emit, NULL, pid);
		hl_emit_object(emit, "recording");
		hl_emit_text(emit, "name", path ? path : "");
		hl_emit_text(emit, "command", command ? command : "");
		hl_emit_integer(emit, "collector", number(status, "collector"));
		hl_emit_text(emit, "mode", mode ? mode : "");
		hl_emit_integer(emit, "ended_processes", ended);
		hl_emit_integer(emit, "marks", number(status, "marks"));
		hl_emit_object_end(emit);
		hl_emit_line(emit, "%s of '%s', started in mode %s by collector %" PRId64,
			     path ? path : "", command ? command : "", mode ? mode : "",
			     number(status, "collector"));
		if (ended)
			hl_emit_line(emit, "%" PRId64 " process%s ended", ended,
				     ended == 1 ? " has" : "es have");
		emit_processes(emit, json_object_get(status, "processes"));
		r = hl_emit_finish(emit);
	}
	if (r < 0)
		return hl_error_set(err, r, "cannot write the status: %s", strerror(-r));
	return 0;
}

/* ---- the whole ---- */

/* The collector writes beside its recording, and root takes it from there. */
static int ask_by_way(const struct hl_control_peer *peer, const struct hl_control_request *request,
		      json_t **ret_answer, struct hl_error *err)
{
	static struct hl_control_request beside;
	struct hl_directory directory;
	int r = hl_directory_init(&directory, request->argument,
				  request->verb == HL_CONTROL_REPLACE, err);

	if (r < 0)
		return r;
	hl_directory_keep(&directory);
	beside = *request;
	beside.verb = HL_CONTROL_SNAPSHOT;
	if (snprintf(beside.argument, sizeof(beside.argument), "%s.snapshot-%d", peer->recording,
		     getpid()) >= (int)sizeof(beside.argument))
		r = hl_error_set(err, -ENAMETOOLONG,
				 "cannot make a snapshot: the path of '%.200s' is too long",
				 peer->recording);
	if (r == 0)
		r = hl_control_ask(peer, &beside, ret_answer, err);
	if (r == 0) {
		r = hl_snapshot_fetch(beside.argument, &directory, err);
		if (r < 0)
			json_decref(*ret_answer);
	}
	if (r < 0)
		hl_directory_remove(&directory);
	hl_directory_release(&directory);
	return r;
}

/* What the collector cannot know: it does not look into the process. */
static void end_snapshot(const char *path)
{
	struct hl_error err = {0};

	if (hl_live_fill_snapshot(path, &err) < 0)
		hl_cli_note("'%s' lacks what processes themselves would say: %s", path, err.text);
	hl_cli_note("wrote '%s'; see 'heapline top %s'", path, path);
}

static int ask(const struct request *line, const struct hl_control_peer *peer,
	       struct hl_control_request *request, const char *argument, struct hl_error *err)
{
	bool is_snapshot =
		request->verb == HL_CONTROL_SNAPSHOT || request->verb == HL_CONTROL_REPLACE;
	char path[32], whom[32] = "all processes";
	struct stat status;
	json_t *answer;

	if (request->pid == peer->pid)
		request->pid = 0;
	/* Another user's collector may be unable to write where root can. */
	snprintf(path, sizeof(path), "/proc/%d", peer->pid);
	bool is_another_users = geteuid() == 0 && stat(path, &status) == 0 && status.st_uid != 0;
	int r = is_snapshot && is_another_users ? ask_by_way(peer, request, &answer, err)
						: hl_control_ask(peer, request, &answer, err);
	if (r < 0)
		return r;
	if (request->pid)
		snprintf(whom, sizeof(whom), "process %d", request->pid);
	if (request->verb == HL_CONTROL_STATUS)
		r = show(answer, (pid_t)line->pid, line->json, err);
	else if (request->verb == HL_CONTROL_MODE)
		hl_cli_note("switched %s to mode '%s'", whom, argument);
	else if (request->verb == HL_CONTROL_MARK)
		hl_cli_note("marked %s", whom);
	else if (request->verb == HL_CONTROL_RESET)
		hl_cli_note("reset %s: allocated, temporary and peak count from now on; what is in "
			    "use stays",
			    whom);
	else if (request->verb == HL_CONTROL_SEGMENTS)
		hl_cli_note("keeping %u segment%s of the log of %s from now on", request->segments,
			    hl_format_plural(request->segments), whom);
	else if (request->verb == HL_CONTROL_DETACH)
		hl_cli_note("detached from %s; see 'heapline top %s'", whom, peer->recording);
	else
		end_snapshot(argument);
	json_decref(answer);
	return r;
}

static int control(const struct request *line, struct hl_control_request *request,
		   const char *argument, struct hl_error *err)
{
	struct hl_control_peers peers;
	char list[512] = "";
	size_t used = 0;
	int r = hl_control_ask_search((pid_t)line->pid, &peers);

	for (size_t i = 0; r == 0 && i < peers.count && used < sizeof(list); i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d ('%s')",
					 i ? ", " : "", peers.peers[i].pid,
					 peers.peers[i].recording);
	if (r < 0)
		hl_error_set(err, r, "out of memory");
	else if (peers.count == 0)
		r = hl_ctl_explain((pid_t)line->pid, peers.silent, "control", err);
	else if (peers.count > 1)
		r = hl_error_set(err, -EEXIST,
				 "process %" PRIu64
				 " belongs to several recordings, of the collectors %s; name a "
				 "process that belongs to only one of them",
				 line->pid, list);
	else
		r = ask(line, &peers.peers[0], request, argument, err);
	hl_control_ask_release(&peers);
	return r;
}

/* For completion. */
static const char *const action_words[] = {"status",	   "mode",  "mark",   "snapshot",
					   "log-segments", "reset", "detach", NULL};

static int run_ctl(void *parsed, int argc, char **argv)
{
	const struct request *line = parsed;
	static struct hl_control_request request;
	struct hl_error err = {0};
	size_t action = 0;

	if (argc == 0)
		return hl_cli_usage_error(&hl_verb_ctl, "'ctl' needs an action: status, mode, "
							"mark, snapshot, log-segments, reset or "
							"detach");
	while (action < HL_COUNT_OF(actions) && strcmp(argv[0], actions[action].name) != 0)
		action++;
	if (action == HL_COUNT_OF(actions))
		return hl_cli_usage_error(&hl_verb_ctl,
					  "no action '%s': not status, mode, mark, snapshot, "
					  "log-segments, reset or detach",
					  argv[0]);
	const char *argument = actions[action].argument;
	int operands = argument ? 2 : 1;
	if (argc < operands)
		return hl_cli_usage_error(&hl_verb_ctl, "'%s' needs %s", argv[0], argument);
	if (argc > operands)
		return hl_cli_usage_error(&hl_verb_ctl, "unexpected argument '%s'", argv[operands]);
	if (line->json && actions[action].verb != HL_CONTROL_STATUS)
		return hl_cli_usage_error(&hl_verb_ctl, "'%s' writes no JSON; 'status' does",
					  argv[0]);
	if (line->force && actions[action].verb != HL_CONTROL_SNAPSHOT)
		return hl_cli_usage_error(&hl_verb_ctl, "'%s' replaces nothing; 'snapshot' does",
					  argv[0]);
	if (!line->pid)
		return hl_cli_usage_error(
			&hl_verb_ctl, "'ctl' needs a process; name it with -p PID or --comm NAME");
	if (make_request(line, action, argv[1], &request, &err) < 0 ||
	    control(line, &request, argv[1], &err) < 0)
		return hl_cli_error("%s", err.text);
	return HL_EXIT_DONE;
}

const struct hl_verb hl_verb_ctl = {
	.name = "ctl",
	.group = HL_GROUP_RECORD,
	.arguments = "-p PID (status | mode MODE | mark NAME | snapshot OUT.hl | log-segments N | "
		     "reset | detach)",
	.words = action_words,
	.summary = "query or control a running recording",
	.options = options,
	HL_REQUEST(defaults),
	.run = run_ctl,
	.effect = HL_VERB_ENTERS,
};
