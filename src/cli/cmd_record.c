/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline record: runs a program and keeps what it allocates. */
#include "allocators/traits.h"
#include "base/cleanup.h"
#include "cli/families.h"
#include "collector/collector.h"
#include "process/process.h"
#include "view/format.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The recorder takes an eighth and more, and the arena of each thread reserves 64 MiB. */
#define LITTLE_ADDRESS_SPACE (UINT64_C(512) << 20)

struct request {
	struct hl_record_request record;
	bool mappings, no_pools, tags, no_follow, leaks;
	bool waits;	    /* for all descendants */
	uint64_t preloaded; /* the socket; 0: none */
};

static const struct request defaults = {.record = {HL_RECORD_DEFAULTS}};

static const struct hl_option options[] = {
	{"mappings", 0, NULL, "also record mmap, munmap, mremap and brk", HL_OPTION_FLAG,
	 HL_AT(mappings), NULL},
	HL_OPTION_NO_POOLS(HL_AT(no_pools)),
	{"tags", 0, NULL,
	 "record nothing; tag each block with who allocated it, for 'heapline allocations -p PID'",
	 HL_OPTION_FLAG, HL_AT(tags), NULL},
	{"no-follow", 0, NULL, "do not record the program's children", HL_OPTION_FLAG,
	 HL_AT(no_follow), NULL},
	{"wait", 0, NULL, "keep recording until the last descendant of the program has ended",
	 HL_OPTION_FLAG, HL_AT(waits), NULL},
	{"leaks", 0, NULL,
	 "when a process exits, look for lost blocks; they are in NAME.lost-0.hl and so on",
	 HL_OPTION_FLAG, HL_AT(leaks), NULL},
	{"preloaded", 0, "FD",
	 "record the program at the other end of socket FD; the recorder says so, see "
	 "HEAPLINE_RECORD",
	 HL_OPTION_COUNT, HL_AT(preloaded), HL_BOUNDS(3, INT_MAX)},
	{0},
};

HL_DEFINE_FREE_AT(struct hl_collector, hl_collector_free)
HL_DEFINE_FREE_AT(struct hl_attach, hl_attach_free)

/* ---- the run ---- */

static int say_error(const struct hl_error *err, int status)
{
	hl_cli_error("%s", err->text);
	return status;
}

static int status_of_exec(int r)
{
	return r == -ENOENT ? HL_RECORD_NOT_FOUND : HL_RECORD_NOT_RUNNABLE;
}

/* Where nothing was recorded it says so, and where programs run on. */
static void say_end(const struct request *request, const struct hl_collector_summary *summary,
		    const char *name, const char *command)
{
	hl_record_say_problems(&request->record, summary, name);
	if (!summary->processes && !summary->refused && !summary->incomplete)
		hl_cli_note("nothing was recorded: '%s' ended before the recorder could start in "
			    "it, or runs without preloaded libraries",
			    command);
	if (summary->processes && summary->running && !request->record.quiet)
		hl_cli_note("%u of the processes %s still running, now unrecorded; --wait waits "
			    "for %s",
			    summary->running, summary->running == 1 ? "is" : "are",
			    summary->running == 1 ? "it" : "them");
	hl_record_say_result(&request->record, summary, name);
}

/* ---- programs that nothing can be preloaded into ---- */

static int enter_program(const struct request *request, struct hl_launch *launch,
			 struct hl_collector *collector, struct hl_record_following *following,
			 struct hl_attach **ret_attach, struct hl_error *err)
{
	const struct hl_attach_settings settings = {.no_pools = request->no_pools};

	int r = hl_attach_open_caught(launch->pid, &settings, ret_attach, err);
	return r < 0 ? r
		     : hl_record_join(collector, launch->pid, *ret_attach, false,
				      request->no_follow ? NULL : following, err);
}

/* ---- programs whose preloaded recorder would not see all ---- */

#define KINDS_SEEN_MAX	     16u
#define DESCRIPTORS_TO_ENTER 32u

/* A program that the recorder was brought into. */
struct entered {
	struct entered *next;
	pid_t pid;
	struct hl_attach *attach;
	struct hl_record_following following;
};

/* Of a recording whose own program preloads the recorder. */
struct entering {
	const struct request *request;
	struct hl_collector *collector;
	struct entered *entered;
	int follow_fd; /* an epoll of those who follow their children; -1: none is entered */
	struct {
		dev_t device;
		ino_t inode;
		const char *reason;
	} seen[KINDS_SEEN_MAX]; /* programs, by their file */
	size_t seen_count;
};

/*
 * Why the recorder is to be brought in, though it can be preloaded; or NULL. A preloaded recorder alone sees mappings, which have what
 * allocators of guests map, and the program's exit, at which lost blocks are looked for.
 */
static const char *reason_to_enter(const struct request *request,
				   const struct hl_examined *examined)
{
	if (examined->reason || examined->entered)
		return NULL;
	if (examined->beside || request->mappings || request->leaks)
		return examined->beside;
	if (examined->guest_allocator && !request->record.no_objects)
		return examined->guest_allocator->entered;
	return examined->pool && !request->no_pools ? examined->pool->entered : NULL;
}

static const char *find_reason(struct entering *entering, pid_t pid)
{
	char path[32], program[PATH_MAX];
	struct stat file;

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	if (stat(path, &file) < 0)
		return NULL;
	for (size_t i = 0; i < KINDS_SEEN_MAX && i < entering->seen_count; i++)
		if (entering->seen[i].device == file.st_dev &&
		    entering->seen[i].inode == file.st_ino)
			return entering->seen[i].reason;
	const struct hl_examined examined = hl_examine_file(path, program);
	const char *reason = reason_to_enter(entering->request, &examined);
	size_t place = entering->seen_count++ % KINDS_SEEN_MAX;
	entering->seen[place].device = file.st_dev;
	entering->seen[place].inode = file.st_ino;
	entering->seen[place].reason = reason;
	return reason;
}

/* By the next one, as they are close together: whoever cannot be entered to the end is not recorded. */
static bool has_descriptors(void)
{
	struct rlimit limit = {0};
	int next = dup(STDERR_FILENO);

	if (next < 0)
		return false;
	close(next);
	getrlimit(RLIMIT_NOFILE, &limit);
	return (rlim_t)next + DESCRIPTORS_TO_ENTER < limit.rlim_cur;
}

/* Entering takes more address space than a preloaded recorder. */
static bool is_limited(pid_t pid)
{
	HL_FREED char *limits = NULL; /* prlimit() may not read those of other users */
	size_t length;

	return hl_proc_read_all(pid, "limits", &limits, &length) == 0 &&
	       !(strstr(limits, "\nMax address space         unlimited ") &&
		 strstr(limits, "\nMax data size             unlimited "));
}

static void follow_children(void *context)
{
	const struct entering *entering = context;
	struct epoll_event event;

	if (epoll_wait(entering->follow_fd, &event, 1, 0) == 1)
		hl_record_join_child(event.data.ptr);
}

static void leave(struct entering *entering, struct entered **at)
{
	struct entered *entered = *at;
	struct hl_error err;

	*at = entered->next;
	if (hl_attach_detach(entered->attach, HL_RECORD_LEAVE_WAIT_MS, &err) < 0)
		hl_collector_warn(entering->collector, err.text);
	hl_attach_free(entered->attach);
	free(entered);
}

/* Those that have ended, unless children of them may still tell of others. */
static void leave_ended(struct entering *entering)
{
	for (struct entered **at = &entering->entered; *at;)
		if (!(*at)->following.has_children && kill((*at)->pid, 0) < 0 && errno == ESRCH)
			leave(entering, at);
		else
			at = &(*at)->next;
}

static bool is_wanted(void *context, pid_t pid)
{
	struct entering *entering = context;

	return entering->follow_fd >= 0 && find_reason(entering, pid);
}

static int enter_waiting(void *context, pid_t pid, struct hl_error *err)
{
	struct entering *entering = context;
	const struct hl_attach_settings settings = {.waits = true,
						    .no_pools = entering->request->no_pools};
	const char *reason = find_reason(entering, pid);
	char unseen[512] = "";

	if (!reason) /* it has just ended */
		return hl_error_set(err, -ESRCH, "it has ended");
	if (is_limited(pid))
		return hl_error_set(err, -ENOTSUP, "%s, and its memory is limited", reason);
	if (!has_descriptors())
		return hl_error_set(err, -EMFILE, "%s, and heapline is short of descriptors",
				    reason);
	struct entered *entered = calloc(1, sizeof(*entered));
	if (!entered)
		return hl_error_set(err, -ENOMEM, "out of memory");
	leave_ended(entering);
	entered->pid = pid;
	entered->following.group_fd = entering->follow_fd;
	int r = hl_attach_open(pid, &settings, &entered->attach, err);
	if (r == 0)
		r = hl_record_join(entering->collector, pid, entered->attach, false,
				   entering->request->no_follow ? NULL : &entered->following, err);
	if (r < 0) {
		hl_attach_free(entered->attach);
		free(entered);
		return r;
	}
	hl_attach_unseen(entered->attach, true, unseen, sizeof(unseen));
	if (unseen[0])
		hl_collector_warn(entering->collector, unseen);
	entered->next = entering->entered;
	entering->entered = entered;
	return 0;
}

/* Programs that still run are left as if they had never been recorded, and no other is entered. */
static void leave_all(struct entering *entering)
{
	while (entering->entered)
		leave(entering, &entering->entered);
	if (entering->follow_fd >= 0)
		close(entering->follow_fd);
	entering->follow_fd = -1;
}

/* The program waits to begin; from here to its end. */
static int run_program(const struct request *request, struct hl_launch *launch,
		       struct hl_collector *collector, const struct hl_examined *examined,
		       struct entering *entering, const char *command, const char *name)
{
	const bool is_entered = examined->entered;
	HL_CLEANUP(hl_attach_free_at) struct hl_attach *attach = NULL;
	struct hl_record_following following = {0};
	struct hl_collector_summary summary;
	struct hl_error err = {0};
	char bytes[HL_FORMAT_MAX];
	struct rlimit limit;

	if (hl_record_begin(&request->record, collector, name, launch->pid, &err) < 0)
		return say_error(&err, HL_RECORD_FAILED);
	if (!request->record.quiet && getrlimit(RLIMIT_AS, &limit) == 0 &&
	    limit.rlim_cur < LITTLE_ADDRESS_SPACE)
		hl_cli_note("the recorder needs a part of the program's address space, which is "
			    "limited to %s; raise 'ulimit -v' if the program runs out of it",
			    hl_format_bytes((int64_t)limit.rlim_cur, bytes));
	int r = is_entered ? hl_attach_catch(launch->pid, &err) : 0;
	if (r < 0) {
		hl_collector_abandon(collector);
		return say_error(&err, HL_RECORD_FAILED);
	}
	r = hl_launch_go(launch);
	if (r < 0) {
		hl_collector_abandon(collector);
		hl_cli_error("cannot run '%s': %s", command, strerror(-r));
		return status_of_exec(r);
	}
	if (is_entered &&
	    enter_program(request, launch, collector, &following, &attach, &err) < 0) {
		hl_collector_abandon(collector);
		hl_attach_free(attach); /* ends the program */
		attach = NULL;
		waitpid(launch->pid, NULL, 0);
		return say_error(&err, HL_RECORD_FAILED);
	}
	char unseen[512] = "";
	if (attach)
		hl_attach_unseen(attach, true, unseen, sizeof(unseen));
	if (unseen[0])
		hl_collector_warn(collector, unseen);
	hl_collector_keep(collector);
	if (entering->follow_fd >= 0)
		hl_collector_heed(collector, entering->follow_fd, follow_children, entering);
	int status = hl_launch_supervise(launch, collector);
	/* Children of it that run on are left as if they had never been recorded. */
	if (is_entered && hl_attach_detach(attach, HL_RECORD_LEAVE_WAIT_MS, &err) < 0)
		hl_collector_warn(collector, err.text);
	leave_all(entering);
	hl_collector_finish(collector, &summary);
	say_end(request, &summary, name, command);
	return status;
}

static struct hl_collector_settings make_settings(const struct request *request, char **command)
{
	struct hl_collector_settings settings = hl_record_settings(&request->record, command);

	settings.region.mappings = request->mappings;
	settings.region.follow = !request->no_follow;
	settings.region.leaks = request->leaks;
	return settings;
}

static int record_program(const struct request *request, const char *recorder,
			  const struct hl_examined *examined, char **argv)
{
	/* A recorder that is preloaded would be in the way of the one that is brought in. */
	bool is_preloaded = !examined->entered || examined->is_static;
	struct hl_collector_settings settings = make_settings(request, argv);
	struct entering entering = {.request = request, .follow_fd = -1};
	HL_CLEANUP(hl_collector_free_at) struct hl_collector *collector = NULL;
	HL_FREED char *name = NULL;
	struct hl_error err = {0};
	struct hl_launch launch;
	int status = HL_RECORD_FAILED;

	if (!examined->entered) {
		settings.entering =
			(struct hl_collector_entering){is_wanted, enter_waiting, &entering};
		entering.follow_fd = epoll_create1(EPOLL_CLOEXEC);
	}
	if (hl_collector_new(&settings, &collector, &err) < 0)
		return say_error(&err, HL_RECORD_FAILED);
	entering.collector = collector;
	char **environment = environ;
	if (is_preloaded)
		environment = hl_preload_environment(recorder, hl_collector_socket(collector),
						     hl_collector_token(collector));
	if (!environment) {
		hl_cli_error("out of memory");
		return HL_RECORD_FAILED;
	}
	int r = hl_launch_init(&launch, argv, environment, request->waits, &err);
	if (r == 0) {
		name = hl_record_name(&request->record, argv[0], launch.pid);
		if (name)
			status = run_program(request, &launch, collector, examined, &entering,
					     argv[0], name);
		else
			hl_cli_error("out of memory");
		hl_launch_release(&launch);
	} else
		say_error(&err, status);
	if (is_preloaded)
		hl_preload_environment_free(environment);
	return status;
}

/* Lost blocks are looked for by a preloaded recorder alone. */
static void say_leaks(const struct request *request, const struct hl_examined *examined)
{
	struct request others = *request;

	others.leaks = false;
	const char *entered =
		examined->entered ? examined->entered : reason_to_enter(request, examined);
	const char *left_out = reason_to_enter(&others, examined);
	if (entered)
		hl_cli_note("lost blocks of this program are not looked for when it exits, as the "
			    "recorder "
			    "is brought into it: %s; 'heapline leaks -p PID' looks while it runs",
			    entered);
	else if (left_out)
		hl_cli_note("with '--leaks' blocks of malloc() alone are recorded, though %s",
			    left_out);
}

/* ---- a program that preloads the recorder by itself ---- */

/* The process that made the socket pair; -EPERM when it is not such a socket. */
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
static int record_preloaded(const struct request *request)
{
	HL_CLEANUP(hl_process_facts_release) struct hl_process_facts facts = {0};
	HL_CLEANUP(hl_collector_free_at) struct hl_collector *collector = NULL;
	const int fd = (int)request->preloaded;
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
		return HL_RECORD_FAILED;
	}
	if (hl_process_facts_read(pid, &facts, &err) < 0)
		return say_error(&err, HL_RECORD_FAILED);
	const struct hl_collector_settings settings = make_settings(request, facts.command);
	if (hl_collector_new(&settings, &collector, &err) < 0)
		return say_error(&err, HL_RECORD_FAILED);
	name = hl_record_name(&request->record, facts.command[0], pid);
	if (!name) {
		hl_cli_error("out of memory");
		return HL_RECORD_FAILED;
	}
	if (hl_record_begin(&request->record, collector, name, pid, &err) < 0)
		return say_error(&err, HL_RECORD_FAILED);
	if (!hl_launch_invite(fd, collector)) { /* the program has ended, or waits no more */
		hl_collector_abandon(collector);
		return HL_RECORD_FAILED;
	}
	close(fd);
	hl_collector_keep(collector);
	if (hl_launch_serve(collector, pidfd, request->waits) < 0)
		hl_cli_note("out of file descriptors; the recording '%s' ends here", name);
	hl_collector_finish(collector, &summary);
	say_end(request, &summary, name, facts.command[0]);
	return 0;
}

/* The program takes the place of this process: nobody has to watch it. */
static int run_with_tags(char **argv)
{
	char library[PATH_MAX];
	struct hl_error err = {0};

	if (hl_preload_find(HL_PRELOAD_TAGS, library, sizeof(library), &err) < 0)
		return say_error(&err, HL_RECORD_FAILED);
	char **environment = hl_preload_environment(library, NULL, NULL);
	if (!environment) {
		hl_cli_error("out of memory");
		return HL_RECORD_FAILED;
	}
	execvpe(argv[0], argv, environment);
	int r = -errno;
	hl_preload_environment_free(environment);
	hl_cli_error("cannot run '%s': %s", argv[0], strerror(-r));
	return status_of_exec(r);
}

static int run_record(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	char program[PATH_MAX], recorder[PATH_MAX];
	struct hl_examined examined;
	struct hl_error err = {0};

	if (request->preloaded && (argc > 0 || request->tags))
		return hl_cli_usage_error(&hl_verb_record,
					  "HEAPLINE_RECORD cannot hold '%s': it takes options of "
					  "'record' alone, without quotes, and no '--tags'",
					  argc > 0 ? argv[0] : "--tags");
	if (argc == 0 && !request->preloaded)
		return hl_cli_usage_error(&hl_verb_record, "no command to record");
	if (request->tags && (hl_record_has_options(&request->record) || request->mappings))
		return hl_cli_usage_error(
			&hl_verb_record,
			"'--tags' makes no recording; leave out the other options");
	int status = hl_record_check_options(&hl_verb_record, &request->record);
	if (status != HL_EXIT_DONE)
		return status;
	hl_launch_guard_standard_streams();
	if (request->preloaded)
		return record_preloaded(request);
	int r = hl_examine_find(argv[0], program, sizeof(program), &err);
	if (r < 0)
		return say_error(&err, status_of_exec(r));
	if (hl_examine_program(program, &examined, &err) < 0)
		return say_error(&err, HL_RECORD_FAILED);
	if (request->tags && (examined.entered || examined.beside)) {
		hl_cli_error("cannot tag blocks of '%s': %s, whose place no library takes", program,
			     examined.entered ? examined.entered : examined.beside);
		return HL_RECORD_FAILED;
	}
	if (request->tags)
		return run_with_tags(argv);
	if (hl_preload_find(HL_PRELOAD_RECORDER, recorder, sizeof(recorder), &err) < 0)
		return say_error(&err, HL_RECORD_FAILED);
	if (request->leaks)
		say_leaks(request, &examined);
	return record_program(request, recorder, &examined, argv);
}

const struct hl_verb hl_verb_record = {
	.name = "record",
	.group = HL_GROUP_RECORD,
	.arguments = "[--] COMMAND...",
	.summary = "run a program and record its allocations",
	.options = options,
	.shared_options = {hl_record_options},
	.stops_at_operand = true,
	HL_REQUEST(defaults),
	.run = run_record,
	.effect = HL_VERB_ENTERS,
};
