/* SPDX-License-Identifier: BSD-2-Clause */
/* The loop of 'heapline watch'; see watch.h. */
#include "watch/watch.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/self.h"
#include "bpf/oom.h"
#include "watch/kill.h"
#include "watch/snapshot.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#define SCAN_NS (5 * HL_NS_PER_SECOND)
#define TICK_NS \
	UINT64_C(250000000)  /* looks happen together, so that the processor is woken less often */
#define DESCRIPTORS_KEPT 160 /* for scans, the kernel's programs and files that are written */
#define STEP_WAIT_NS	 HL_NS_PER_SECOND
#define KILL_WAIT_NS	 UINT64_C(100000000)
#define SNAPSHOTS_MAX	 2u /* that are being made */
#define JOINED_MAX	 4u /* processes that are being recorded */
#define JOIN_SECONDS	 "3600"
#define JOIN_SAMPLE	 "512K"

struct joined {
	pid_t heapline; /* that records; 0: none */
	pid_t pid;	/* of the process that is recorded */
	int complaints;
	uint64_t group; /* its inode */
	char entry[HL_WATCH_NAME_MAX];
};

struct service {
	const struct hl_watch_settings *settings;
	struct hl_watch_store store;
	struct hl_watch_groups groups;
	struct hl_watch_snapshot *snapshots[SNAPSHOTS_MAX];
	struct joined joined[JOINED_MAX];
	struct hl_watch_kills *kills;
	struct hl_oom *oom; /* NULL: the kernel does not report kills */
	char no_oom[1200];  /* why */
	uint64_t oom_lost;
	uint64_t scan_ns; /* of the next scan */
	bool has_said_alarm;
	size_t left_out; /* groups that were said to be, last */
	int signals;
	uint64_t wait_ns; /* at most, since something goes on */
	bool ends;
};

static void say(const struct service *service, const char *format, ...) HL_PRINTF(2, 3);

static void say(const struct service *service, const char *format, ...)
{
	char sentence[1024];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(sentence, sizeof(sentence), format, arguments);
	va_end(arguments);
	service->settings->say(sentence);
}

/* What wakes the service beside the alarms of groups. */
static int wake_by(const struct service *service, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = UINT64_MAX};

	return epoll_ctl(service->groups.epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* ---- to outlive what is watched ---- */

static void raise_limits(struct service *service)
{
	struct rlimit files;

	getrlimit(RLIMIT_NOFILE, &files);
	if (files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (files.rlim_cur < INT_MAX)
		service->groups.descriptor_max =
			(int)files.rlim_cur - (files.rlim_cur > 2 * DESCRIPTORS_KEPT
						       ? DESCRIPTORS_KEPT
						       : (int)files.rlim_cur / 2);
	/* Pages that are never touched are not locked: they would take memory. */
	if (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) < 0)
		say(service,
		    "memory is not locked: %s; the service may be slow when the machine "
		    "is short of memory",
		    strerror(errno));
	HL_CLOSED int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (score < 0 || write(score, "-1000", 5) < 0)
		say(service, "the kernel may kill this service for want of memory: that takes "
			     "CAP_SYS_RESOURCE");
}

/* A service in a group that it watches may die with it. */
static void say_own_group(const struct service *service)
{
	struct hl_cgroup own;

	if (hl_cgroup_open_of(getpid(), &own, NULL) < 0)
		return;
	for (size_t i = 0; i < service->groups.count; i++) {
		const struct hl_watch_group *group = service->groups.groups[i];
		size_t length = strlen(group->path);
		if (!strncmp(own.path, group->path, length) &&
		    (!own.path[length] || own.path[length] == '/'))
			say(service,
			    "this service is itself in '%s', which it watches: its memory "
			    "counts there; start it outside of the group",
			    hl_watch_group_name(group));
	}
	hl_cgroup_release(&own);
}

/* ---- joining the grower ---- */

static void join(struct service *service, struct hl_watch_group *group, pid_t pid)
{
	struct joined *joined = service->joined;
	char number[16], path[PATH_MAX];
	HL_CLOSED int entry = -1;

	while (joined < service->joined + JOINED_MAX && joined->heapline)
		joined++;
	if (!pid || group->was_joined || joined == service->joined + JOINED_MAX)
		return;
	int r = hl_watch_store_begin(&service->store, hl_clock_ns(CLOCK_REALTIME),
				     HL_WATCH_RECORDING, hl_watch_group_name(group), joined->entry,
				     &entry);
	snprintf(number, sizeof(number), "%d", pid);
	snprintf(path, sizeof(path), "%s/%s/%s.hl", service->store.path, joined->entry, number);
	char *arguments[] = {"heapline",  "attach", "-q",	  "-p", number, "--sample",
			     JOIN_SAMPLE, "-d",	    JOIN_SECONDS, "-o", path,	NULL};
	bool has_entry = r == 0;
	joined->complaints = memfd_create("complaints", MFD_CLOEXEC);
	if (r == 0)
		r = joined->complaints < 0 ? -errno
					   : hl_watch_helper_start(arguments, joined->complaints,
								   joined->complaints, false, false,
								   &joined->heapline);
	if (r < 0) {
		joined->heapline = 0;
		if (joined->complaints >= 0)
			close(joined->complaints);
		if (has_entry)
			hl_watch_store_abandon(&service->store, joined->entry);
		say(service, "cannot record process %d: %s", pid, strerror(-r));
		return;
	}
	joined->pid = pid;
	joined->group = group->inode;
	group->was_joined = true;
	hl_watch_store_use(&service->store, joined->entry, true);
	say(service, "recording process %d of '%s' to '%s'", pid, hl_watch_group_name(group), path);
}

/* One that has no recording leaves no entry, and the next snapshot of the group tries again. */
static void end_joined(struct service *service, struct joined *joined, int status)
{
	struct hl_watch_group *group = hl_watch_groups_find(&service->groups, joined->group);
	char text[HL_SELF_SENTENCE_MAX], path[HL_WATCH_NAME_MAX + 32];
	const char *sentence = hl_self_sentence(joined->complaints, text);

	snprintf(path, sizeof(path), "%s/%d.hl", joined->entry, joined->pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		say(service, "recording process %d has failed: %s", joined->pid,
		    sentence ? sentence : "it was ended");
	if (faccessat(service->store.fd, path, F_OK, 0) < 0) {
		hl_watch_store_abandon(&service->store, joined->entry);
		if (group)
			group->was_joined = false;
	}
	close(joined->complaints);
	joined->heapline = 0;
	hl_watch_store_use(&service->store, joined->entry, false);
	hl_watch_store_trim(&service->store);
}

static void look_at_joined(struct service *service)
{
	for (struct joined *joined = service->joined; joined < service->joined + JOINED_MAX;
	     joined++) {
		int status = 0;
		if (joined->heapline && waitpid(joined->heapline, &status, WNOHANG) != 0)
			end_joined(service, joined, status);
	}
}

/* ---- snapshots ---- */

static void begin_snapshot(struct service *service, struct hl_watch_group *group,
			   enum hl_watch_cause cause, uint64_t now_ns)
{
	struct hl_watch_snapshot **place = service->snapshots;
	struct hl_error err = {0};

	while (place < service->snapshots + SNAPSHOTS_MAX && *place)
		place++;
	if (group->is_busy || now_ns < group->retry_ns ||
	    place == service->snapshots + SNAPSHOTS_MAX)
		return; /* the next look finds the cause again */
	int r = hl_watch_snapshot_begin(&service->store, group, cause,
					service->settings->allow_stop, place, &err);
	if (r < 0) {
		say(service, "%s", err.text);
		return;
	}
	say(service, "'%s' uses %.1f%% of its limit (%s): a snapshot is being made",
	    hl_watch_group_name(group),
	    100 * (double)group->worst->usage / (double)group->worst->limit,
	    hl_watch_cause_name(cause));
	if (service->settings->attach_sample)
		join(service, group, hl_watch_snapshot_largest(*place));
}

static void look_at_snapshots(struct service *service, uint64_t now_ns)
{
	for (size_t i = 0; i < SNAPSHOTS_MAX; i++) {
		struct hl_error err = {0};
		int r = service->snapshots[i]
				? hl_watch_snapshot_continue(service->snapshots[i], now_ns, &err)
				: 1;
		if (r > 0)
			continue;
		if (r < 0)
			say(service, "%s", err.text);
		hl_watch_snapshot_free(service->snapshots[i]);
		service->snapshots[i] = NULL;
	}
}

/* Once more at all of them when the service ends: for kills alone. */
static void look_at_groups(struct service *service, uint64_t now_ns)
{
	for (size_t i = 0; i < service->groups.count; i++) {
		struct hl_watch_group *group = service->groups.groups[i];
		if (now_ns + TICK_NS / 2 < group->next_ns && !service->ends)
			continue;
		struct hl_watch_finding finding =
			hl_watch_group_look(&service->groups, group, now_ns);
		if (finding.new_kills)
			hl_watch_kills_take_unseen(service->kills, group, finding.new_kills,
						   service->no_oom);
		if (finding.cause && !service->ends)
			begin_snapshot(service, group, finding.cause, now_ns);
	}
}

/* ---- kills ---- */

static void on_oom(void *context, const struct hl_oom_record *record)
{
	hl_watch_kills_take(((struct service *)context)->kills, record);
}

static void on_passing(void *context, uint64_t inode)
{
	hl_watch_groups_wake(&((struct service *)context)->groups, inode);
}

/* Where the kernel cannot be asked, the groups count their kills. */
static int open_kills(struct service *service, struct hl_error *err)
{
	struct hl_oom_wishes wishes = {
		.on_record = on_oom, .on_passing = on_passing, .context = service};
	struct hl_error why = {0};

	for (unsigned i = 0; i < HL_OOM_SHARES; i++)
		wishes.shares[i] =
			hl_watch_trigger_from(HL_WATCH_CAUSE_GROWTH + i, service->groups.share);
	service->kills =
		hl_watch_kills_new(&service->store, &service->groups, service->settings->say);
	if (!service->kills)
		return hl_error_set(err, -ENOMEM, "out of memory");
	if (hl_oom_new(&wishes, &service->oom, &why) == 0) {
		service->groups.sees_passings = hl_oom_sees_passings(service->oom);
		return wake_by(service, hl_oom_fd(service->oom));
	}
	service->groups.reads_kills = true;
	snprintf(service->no_oom, sizeof(service->no_oom),
		 "who was killed, and who asked for memory, is not known: %s", why.text);
	say(service, "kills are only counted: %s", why.text);
	return 0;
}

static void look_at_kills(struct service *service, uint64_t now_ns)
{
	uint64_t lost = service->oom ? hl_oom_lost(service->oom) : 0;

	if (service->oom)
		hl_oom_take(service->oom);
	if (hl_watch_kills_continue(service->kills, now_ns))
		service->wait_ns = KILL_WAIT_NS;
	if (lost > service->oom_lost)
		say(service, "%llu kills were too many at once, and are not kept",
		    (unsigned long long)(lost - service->oom_lost));
	service->oom_lost = lost;
}

/* ---- the loop ---- */

static int scan(struct service *service, bool is_first, uint64_t now_ns, struct hl_error *err)
{
	if (now_ns < service->scan_ns)
		return 0;
	service->scan_ns = now_ns + SCAN_NS;
	int r = hl_watch_groups_scan(&service->groups, is_first, err);
	size_t left_out = service->groups.left_out;
	if (left_out > service->left_out)
		say(service,
		    "%zu group%s cannot be watched: there are too few descriptors; raise the limit "
		    "of open files, or name groups with --cgroup",
		    left_out, left_out == 1 ? "" : "s");
	service->left_out = left_out;
	if (*service->groups.no_alarm.text && !service->has_said_alarm)
		say(service,
		    "groups are looked at every 2 seconds to 4 times a second, since the kernel "
		    "does "
		    "not report all that happens to them: %s",
		    service->groups.no_alarm.text);
	service->has_said_alarm = *service->groups.no_alarm.text;
	return r;
}

/* Until something is due; looks happen together unless a group is looked at closely. */
static uint64_t next_ns(const struct service *service, uint64_t now_ns)
{
	uint64_t next = service->scan_ns, least = now_ns + TICK_NS;

	for (size_t i = 0; i < service->groups.count; i++) {
		const struct hl_watch_group *group = service->groups.groups[i];
		if (group->next_ns < next)
			next = group->next_ns;
		if (group->next_ns < least && group->is_close)
			least = group->next_ns;
	}
	for (size_t i = 0; i < SNAPSHOTS_MAX; i++)
		if (service->snapshots[i] && now_ns + STEP_WAIT_NS < next)
			next = now_ns + STEP_WAIT_NS;
	if (next < least)
		next = least;
	return service->wait_ns && now_ns + service->wait_ns < next ? now_ns + service->wait_ns
								    : next;
}

static void take_signals(struct service *service)
{
	struct signalfd_siginfo signals[8];
	ssize_t length;

	while ((length = read(service->signals, signals, sizeof(signals))) > 0)
		for (size_t i = 0; i < (size_t)length / sizeof(*signals); i++)
			if (signals[i].ssi_signo != SIGCHLD)
				service->ends = true;
}

static void wait_until(struct service *service, uint64_t next_ns, uint64_t now_ns)
{
	struct epoll_event events[16];
	int count = epoll_wait(service->groups.epoll, events, HL_COUNT_OF(events),
			       (int)((next_ns - now_ns) / 1000000));

	for (int i = 0; i < count; i++)
		hl_watch_groups_wake(&service->groups, events[i].data.u64);
}

static int watch(struct service *service, struct hl_error *err)
{
	while (!service->ends) {
		uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);
		service->wait_ns = 0;
		look_at_kills(service, now_ns); /* before groups that have gone are forgotten */
		int r = scan(service, false, now_ns, err);
		if (r < 0)
			return r;
		look_at_snapshots(service, now_ns);
		look_at_joined(service);
		look_at_groups(service, now_ns);
		wait_until(service, next_ns(service, now_ns), now_ns);
		take_signals(service);
	}
	/* What has happened since the last turn. */
	look_at_kills(service, hl_clock_ns(CLOCK_MONOTONIC));
	look_at_groups(service, hl_clock_ns(CLOCK_MONOTONIC));
	return 0;
}

static int open_signals(struct service *service)
{
	sigset_t taken;

	sigemptyset(&taken);
	sigaddset(&taken, SIGINT);
	sigaddset(&taken, SIGTERM);
	sigaddset(&taken, SIGCHLD);
	sigprocmask(SIG_BLOCK, &taken, NULL);
	signal(SIGPIPE, SIG_IGN);
	service->groups.epoll = epoll_create1(EPOLL_CLOEXEC);
	service->signals = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
	return service->groups.epoll < 0 || service->signals < 0
		       ? -errno
		       : wake_by(service, service->signals);
}

static void close_all(struct service *service)
{
	for (size_t i = 0; i < SNAPSHOTS_MAX; i++)
		hl_watch_snapshot_free(service->snapshots[i]);
	for (size_t i = 0; i < JOINED_MAX; i++)
		if (service->joined[i].heapline) {
			int status = 0;
			kill(service->joined[i].heapline, SIGINT);
			waitpid(service->joined[i].heapline, &status, 0);
			end_joined(service, &service->joined[i], status);
		}
	hl_oom_free(service->oom);
	hl_watch_kills_free(service->kills);
	hl_watch_groups_release(&service->groups);
	hl_watch_store_close(&service->store);
	close(service->signals);
	close(service->groups.epoll);
}

int hl_watch_run(const struct hl_watch_settings *settings, struct hl_error *err)
{
	struct service service = {
		.settings = settings,
		.groups = {.named = settings->groups, .share = settings->share},
	};

	int r = hl_watch_store_open(&service.store, settings->directory, settings->keep,
				    settings->bytes_max, err);
	if (r < 0)
		return r;
	raise_limits(&service);
	r = open_signals(&service);
	if (r < 0)
		hl_error_set(err, r, "cannot take signals: %s", strerror(-r));
	if (r == 0)
		r = open_kills(&service, err);
	if (r == 0)
		r = scan(&service, true, hl_clock_ns(CLOCK_MONOTONIC), err);
	if (r == 0) {
		say_own_group(&service);
		say(&service, "watching %zu group%s, keeping what happens in '%s'",
		    service.groups.count, service.groups.count == 1 ? "" : "s",
		    settings->directory);
		r = watch(&service, err);
	}
	close_all(&service);
	return r;
}
