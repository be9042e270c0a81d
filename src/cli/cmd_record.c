/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline record: runs a program and keeps what it allocates. */
#include "cli/cli.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "collector/collector.h"
#include "collector/examine.h"
#include "collector/launch.h"
#include "process/process.h"
#include "view/format.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As env(1): a program's own status is anything else. */
enum {
	STATUS_FAILED = 125,
	STATUS_NOT_RUNNABLE = 126,
	STATUS_NOT_FOUND = 127,
};

#define LOG_SEGMENT_BYTES (UINT64_C(100) << 20)
#define LOG_SEGMENTS	  10

/* The recorder takes an eighth and more, and the arena of each thread reserves 64 MiB. */
#define LITTLE_ADDRESS_SPACE (UINT64_C(512) << 20)

/* Of what a save has freed, for the next one. glibc takes no M_MMAP_THRESHOLD above half of it. */
#define KEPT_BYTES (64 << 20)

static int mode = HL_MODE_MEM_FAST;
static uint64_t sample_bytes;
static bool mappings;
static bool sizes;
static uint64_t log_segment_bytes = LOG_SEGMENT_BYTES;
static uint64_t log_segments = LOG_SEGMENTS;
static bool events;
static bool lossy;
static bool tags;
static bool no_follow;
static bool wait_for_all;
static const char *output;
static bool force;
static bool quiet;
static uint64_t preloaded;

static const struct hl_option options[] = {
	{"output", 'o', "NAME.hl",
	 "name of the recording; %p stands for the program's pid, %h for the host", HL_OPTION_TEXT,
	 &output, NULL},
	{"force", 'f', NULL, "replace an existing recording", HL_OPTION_FLAG, &force, NULL},
	{"mode", 0, "MODE",
	 "how blocks are tracked, and whether a log is kept (default: mem-fast; off: closed)",
	 HL_OPTION_CHOICE, &mode, hl_mode_names},
	{"sample", 0, "BYTES", "sample on average one allocation every BYTES", HL_OPTION_BYTES,
	 &sample_bytes, NULL},
	{"mappings", 0, NULL, "also record mmap, munmap, mremap and brk", HL_OPTION_FLAG, &mappings,
	 NULL},
	{"sizes", 0, NULL, "count the blocks of each stack by size, for 'heapline sizes'",
	 HL_OPTION_FLAG, &sizes, NULL},
	{"log-segment-size", 0, "BYTES",
	 "with a log: start a new file of the log after BYTES (default: 100M)", HL_OPTION_BYTES,
	 &log_segment_bytes, HL_BOUNDS(1, UINT64_MAX)},
	{"log-segments", 0, "N",
	 "with a log: keep the newest N files of each process (default: 10)", HL_OPTION_COUNT,
	 &log_segments, HL_BOUNDS(1, HL_LOG_SEGMENTS_MAX)},
	{"events", 0, NULL,
	 "with a log: also keep every event, for 'heapline events', in files of the same size and "
	 "number",
	 HL_OPTION_FLAG, &events, NULL},
	{"lossy", 0, NULL,
	 "with a log: drop events instead of blocking a thread whose buffer is full",
	 HL_OPTION_FLAG, &lossy, NULL},
	{"tags", 0, NULL,
	 "record nothing; tag each block with who allocated it, for 'heapline allocations -p PID'",
	 HL_OPTION_FLAG, &tags, NULL},
	{"no-follow", 0, NULL, "do not record the program's children", HL_OPTION_FLAG, &no_follow,
	 NULL},
	{"wait", 0, NULL, "keep recording until the last descendant of the program has ended",
	 HL_OPTION_FLAG, &wait_for_all, NULL},
	{"quiet", 'q', NULL, "print nothing at the end unless something went wrong", HL_OPTION_FLAG,
	 &quiet, NULL},
	{"preloaded", 0, "FD",
	 "record the program at the other end of socket FD; the recorder says so, see "
	 "HEAPLINE_RECORD",
	 HL_OPTION_COUNT, &preloaded, HL_BOUNDS(3, INT_MAX)},
	{0},
};

HL_DEFINE_FREE_AT(struct hl_collector, hl_collector_free)

/* ---- the recording's name ---- */

/* To be freed; NULL for want of memory. */
static char *choose_name(const char *command, pid_t pid)
{
	char host[HOST_NAME_MAX + 1] = "", *name = NULL;
	size_t size;

	FILE *out = open_memstream(&name, &size);
	if (!out)
		return NULL;
	gethostname(host, sizeof(host) - 1);
	if (!output)
		fprintf(out, "heapline.%s.%d.hl", hl_path_basename(command), pid);
	for (const char *at = output; at && *at; at++) {
		char letter = *at == '%' ? at[1] : '\0';
		if (letter == 'p')
			fprintf(out, "%d", pid);
		else if (letter == 'h')
			fputs(host, out);
		else
			fputc(*at, out); /* of an unknown letter, the percent sign */
		at += letter == 'p' || letter == 'h' || letter == '%';
	}
	if (fclose(out) != 0) {
		free(name);
		return NULL;
	}
	while (size > 1 && name[size - 1] == '/')
		name[--size] = '\0';
	return name;
}

/* ---- what is said at the end ---- */

/* "3 children ran unrecorded"; "" where warnings tell of all of them. */
static const char *format_unseen(const struct hl_collector_summary *summary, char text[64])
{
	char count[HL_FORMAT_MAX];

	text[0] = '\0';
	if (summary->unrecorded_children <= summary->refused_children)
		return text;
	uint32_t others = summary->unrecorded_children - summary->refused_children;
	snprintf(text, 64, "%s %schild%s ran unrecorded", hl_format_count(others, count),
		 summary->refused_children ? "more " : "", others == 1 ? "" : "ren");
	return text;
}

static void say_problems(const struct hl_collector_summary *summary, const char *name,
			 const char *command)
{
	char *const *warnings = summary->warnings;
	char unseen[64], count[HL_FORMAT_MAX];
	if (summary->incomplete)
		hl_cli_note("the recording '%s' is incomplete: %s", name, summary->failure);
	else if (warnings[0] && warnings[1])
		hl_cli_note("%s; there is more: see 'heapline info %s'", warnings[0], name);
	else if (warnings[0])
		hl_cli_note("%s", warnings[0]);
	if (summary->own_malloc)
		hl_cli_note("some processes have a malloc of their own, whose calls were not seen; "
			    "see 'heapline info %s'",
			    name);
	if (summary->replaced == 1)
		hl_cli_note("pid %d went on as '%s', unrecorded", summary->replaced_pid,
			    summary->replaced_name);
	else if (summary->replaced)
		hl_cli_note("%u processes went on as other programs, unrecorded, the first as "
			    "'%s' (pid %d); see 'heapline info %s'",
			    summary->replaced, summary->replaced_name, summary->replaced_pid, name);
	format_unseen(summary, unseen);
	/* Otherwise the last line says so. */
	if (unseen[0] && (quiet || !summary->processes))
		hl_cli_note("%s", unseen);
	if (summary->lost_events)
		hl_cli_note("%s event%s could not be counted; see 'heapline info %s'",
			    hl_format_count((int64_t)summary->lost_events, count),
			    summary->lost_events == 1 ? "" : "s", name);
	if (!summary->processes && !summary->refused && !summary->incomplete)
		hl_cli_note("nothing was recorded: '%s' ended before the recorder could start in "
			    "it, or runs without preloaded libraries",
			    command);
}

static void say_result(const struct hl_collector_summary *summary, const char *name)
{
	char count[HL_FORMAT_MAX], peak[HL_FORMAT_MAX], unseen[64];

	if (!summary->processes || quiet)
		return;
	if (summary->running)
		hl_cli_note("%u of the processes %s still running, now unrecorded; --wait waits "
			    "for %s",
			    summary->running, summary->running == 1 ? "is" : "are",
			    summary->running == 1 ? "it" : "them");
	format_unseen(summary, unseen);
	hl_cli_note("recorded %s allocation%s of %u process%s%s%s, %s %s in use, to '%s'%s%s%s%s",
		    hl_format_count((int64_t)summary->allocations, count),
		    summary->allocations == 1 ? "" : "s", summary->processes,
		    summary->processes == 1 ? "" : "es", unseen[0] ? ", " : "", unseen,
		    summary->processes == 1 ? "at most" : "the largest of which had at most",
		    hl_format_bytes(summary->peak_bytes, peak), name,
		    summary->damaged ? "; damaged: the program overwrote heapline's memory" : "",
		    summary->incomplete ? ", which is incomplete" : "; see 'heapline top ",
		    summary->incomplete ? "" : name, summary->incomplete ? "" : "'");
}

/* ---- the run ---- */

static int say_error(const struct hl_error *err, int status)
{
	hl_cli_error("%s", err->text);
	return status;
}

static int status_of_exec(int r)
{
	return r == -ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_RUNNABLE;
}

static int begin(struct hl_collector *collector, const char *name, pid_t pid, struct hl_error *err)
{
	/* To get memory from the kernel for each save costs as much as what is done in it. */
	mallopt(M_MMAP_THRESHOLD, KEPT_BYTES / 2);
	mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
	return hl_collector_begin(collector, name, force, pid, err);
}

/* The program waits to begin; from here to its end. */
static int run_program(struct hl_launch *launch, struct hl_collector *collector,
		       const char *command, const char *name)
{
	struct hl_collector_summary summary;
	struct hl_error err = {0};
	char bytes[HL_FORMAT_MAX];
	struct rlimit limit;

	if (begin(collector, name, launch->pid, &err) < 0)
		return say_error(&err, STATUS_FAILED);
	if (!quiet && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < LITTLE_ADDRESS_SPACE)
		hl_cli_note("the recorder needs a part of the program's address space, which is "
			    "limited to %s; raise 'ulimit -v' if the program runs out of it",
			    hl_format_bytes((int64_t)limit.rlim_cur, bytes));
	int r = hl_launch_go(launch);
	if (r < 0) {
		hl_collector_abandon(collector);
		hl_cli_error("cannot run '%s': %s", command, strerror(-r));
		return status_of_exec(r);
	}
	int status = hl_launch_supervise(launch, collector);
	hl_collector_finish(collector, &summary);
	say_problems(&summary, name, command);
	say_result(&summary, name);
	return status;
}

static struct hl_collector_settings make_settings(char **argv)
{
	return (struct hl_collector_settings){
		.region = {.mode = (enum hl_mode)mode,
			   .mappings = mappings,
			   .sizes = sizes,
			   .lossy = lossy,
			   .follow = !no_follow,
			   .sample_bytes = sample_bytes},
		.log = {.segment_bytes = log_segment_bytes,
			.segments_kept = (uint32_t)log_segments,
			.events = events},
		.command = argv,
	};
}

static int record_program(const char *recorder, char **argv)
{
	const struct hl_collector_settings settings = make_settings(argv);
	HL_CLEANUP(hl_collector_free_at) struct hl_collector *collector = NULL;
	HL_FREED char *name = NULL;
	struct hl_error err = {0};
	struct hl_launch launch;
	int status = STATUS_FAILED;

	if (hl_collector_new(&settings, &collector, &err) < 0)
		return say_error(&err, STATUS_FAILED);
	char **environment = hl_preload_environment(recorder, hl_collector_socket(collector),
						    hl_collector_token(collector));
	if (!environment) {
		hl_cli_error("out of memory");
		return STATUS_FAILED;
	}
	int r = hl_launch_init(&launch, argv, environment, wait_for_all, &err);
	hl_preload_environment_free(environment);
	if (r < 0)
		return say_error(&err, STATUS_FAILED);
	name = choose_name(argv[0], launch.pid);
	if (name)
		status = run_program(&launch, collector, argv[0], name);
	else
		hl_cli_error("out of memory");
	hl_launch_release(&launch);
	return status;
}

/* ---- a program that preloads the recorder by itself ---- */

/* The process that made the socket pair; -EPERM when it is no such socket. */
static pid_t find_peer(int fd, int *ret_pidfd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.pid <= 0)
		return -EPERM;
	*ret_pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
	return *ret_pidfd < 0 ? -errno : peer.pid;
}

/* The recorder in the program, which waits before its first constructor, asked for a collector. */
static int record_preloaded(int fd)
{
	HL_CLEANUP(hl_process_facts_release) struct hl_process_facts facts = {0};
	HL_CLEANUP(hl_collector_free_at) struct hl_collector *collector = NULL;
	HL_CLOSED int pidfd = -1;
	HL_FREED char *name = NULL;
	struct hl_collector_summary summary;
	struct hl_error err = {0};

	hl_launch_defer_signals();
	pid_t pid = find_peer(fd, &pidfd);
	if (pid < 0) {
		hl_cli_error("cannot record by '--preloaded %d': %s; it is for the recorder alone, "
			     "see HEAPLINE_RECORD in heapline-record(1)",
			     fd, strerror(-pid));
		return STATUS_FAILED;
	}
	if (hl_process_facts_read(pid, &facts, &err) < 0)
		return say_error(&err, STATUS_FAILED);
	const struct hl_collector_settings settings = make_settings(facts.command);
	if (hl_collector_new(&settings, &collector, &err) < 0)
		return say_error(&err, STATUS_FAILED);
	name = choose_name(facts.command[0], pid);
	if (!name) {
		hl_cli_error("out of memory");
		return STATUS_FAILED;
	}
	if (begin(collector, name, pid, &err) < 0)
		return say_error(&err, STATUS_FAILED);
	if (!hl_launch_invite(fd, collector)) { /* the program has ended, or waits no more */
		hl_collector_abandon(collector);
		return STATUS_FAILED;
	}
	close(fd);
	if (hl_launch_serve(collector, pidfd, wait_for_all) < 0)
		hl_cli_note("out of file descriptors; the recording '%s' ends here", name);
	hl_collector_finish(collector, &summary);
	say_problems(&summary, name, facts.command[0]);
	say_result(&summary, name);
	return 0;
}

/* The program takes the place of this process: nobody has to watch it. */
static int run_with_tags(char **argv)
{
	char library[PATH_MAX];
	struct hl_error err = {0};

	if (hl_preload_find(HL_PRELOAD_TAGS, library, sizeof(library), &err) < 0)
		return say_error(&err, STATUS_FAILED);
	char **environment = hl_preload_environment(library, NULL, NULL);
	if (!environment) {
		hl_cli_error("out of memory");
		return STATUS_FAILED;
	}
	execvpe(argv[0], argv, environment);
	int r = -errno;
	hl_preload_environment_free(environment);
	hl_cli_error("cannot run '%s': %s", argv[0], strerror(-r));
	return status_of_exec(r);
}

static int run_record(int argc, char **argv)
{
	char program[PATH_MAX], recorder[PATH_MAX];
	struct hl_error err = {0};

	mode = (int)hl_mode_of_word(mode);
	bool about_log = events || lossy || log_segment_bytes != LOG_SEGMENT_BYTES ||
			 log_segments != LOG_SEGMENTS;
	if (preloaded && (argc > 0 || tags))
		return hl_cli_usage_error(&hl_verb_record,
					  "HEAPLINE_RECORD cannot hold '%s': it takes options of "
					  "'record' alone, without quotes, and no '--tags'",
					  argc > 0 ? argv[0] : "--tags");
	if (argc == 0 && !preloaded)
		return hl_cli_usage_error(&hl_verb_record, "no command to record");
	if (tags && (output || about_log || sample_bytes || mappings || sizes))
		return hl_cli_usage_error(
			&hl_verb_record,
			"'--tags' makes no recording; leave out the other options");
	/* What begins closed can be switched to a mode with a log. */
	if (about_log && mode != HL_MODE_CLOSED && !hl_mode_logs((enum hl_mode)mode))
		return hl_cli_usage_error(&hl_verb_record,
					  "mode '%s' keeps no log; options about logs need "
					  "'--mode log-fast' or '--mode log-record'",
					  hl_mode_names[mode]);
	hl_launch_guard_standard_streams();
	if (preloaded)
		return record_preloaded((int)preloaded);
	int r = hl_examine_find(argv[0], program, sizeof(program), &err);
	if (r < 0)
		return say_error(&err, status_of_exec(r));
	if (hl_examine_program(program, &err) < 0)
		return say_error(&err, STATUS_FAILED);
	if (tags)
		return run_with_tags(argv);
	if (hl_preload_find(HL_PRELOAD_RECORDER, recorder, sizeof(recorder), &err) < 0)
		return say_error(&err, STATUS_FAILED);
	return record_program(recorder, argv);
}

const struct hl_verb hl_verb_record = {
	.name = "record",
	.group = HL_GROUP_RECORD,
	.arguments = "[--] COMMAND...",
	.summary = "run a program and record its allocations",
	.options = options,
	.stops_at_operand = true,
	.run = run_record,
};
