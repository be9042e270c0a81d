/* SPDX-License-Identifier: BSD-2-Clause */
/* How processes come to the collector: by a hello, adopted, or entered as they say it; see collector.h. */
#include "collector/collector_parts.h"

#include "base/clock.h"
#include "process/process.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

void hl_collector_stop_waiting(struct hl_waiting *waiting)
{
	if (waiting->caller.fd >= 0)
		close(waiting->caller.fd);
	waiting->caller.fd = -1;
}

/* Whether ${pid} descends from us or from a process that is being recorded, or is one. */
static bool is_kin(struct hl_collector *collector, pid_t pid)
{
	while (pid > 0 && pid != getpid() && !hl_collector_find_running(collector, pid))
		pid = (pid_t)hl_identity_parent(pid);
	return pid > 0;
}

/* Whether the program that says hello is a child that its parent told of. */
static bool was_expected(struct hl_collector *collector, pid_t pid, pid_t parent)
{
	/* Orphans have other parents than those that told of them: an ancestor of ours, or we. */
	bool is_orphan = parent == getpid() || !is_kin(collector, parent);

	return pid != collector->program &&
	       hl_unrecorded_was_expected(parent, hl_collector_find_running(collector, parent),
					  is_orphan);
}

/* Prepares to follow a process to its end. */
static int follow(struct hl_collector *collector, struct hl_tracked *tracked)
{
	tracked->sequence = collector->next_sequence;
	tracked->recording_start_ns = collector->archive.meta.start_realtime_ns;
	int r = hl_collector_watch(collector, tracked->pidfd,
				   HL_EVENT_TRACKED + (uint64_t)tracked->sequence);
	/* Before the answer: the program may end, or remove its file, right after it. */
	if (r == 0)
		r = hl_tracked_hold_files(tracked, &collector->held_files);
	if (r == 0 && hl_mode_logs(collector->settings.region.mode))
		r = hl_tracked_begin_log(tracked, collector->archive.directory.fd,
					 &collector->settings.log, 0);
	return r;
}

/* Makes a region for the caller and sends it. 0, or a negative errno that the caller is to be told;
 * nothing is left of it then. */
static int welcome(struct hl_collector *collector, const struct hl_caller *caller,
		   const struct hl_hello *hello, struct hl_tracked **ret_tracked)
{
	struct hl_tracked *tracked;

	int pidfd = hl_reception_pidfd(caller);
	if (pidfd < 0)
		return pidfd;
	int r = hl_tracked_new(caller->pid, pidfd, &collector->settings.region, collector->budget,
			       hello->address_space_limit, -1, &tracked);
	if (r < 0)
		return r;
	if (hello->kind == HL_HELLO_FORK)
		hl_tracked_set_forked(tracked);
	else
		hl_tracked_set_from_start(tracked);
	r = follow(collector, tracked);
	if (r == 0)
		r = hl_reception_answer(caller, 0, &tracked->region);
	if (r < 0) {
		hl_tracked_free(tracked);
		return r;
	}
	*ret_tracked = tracked;
	return 0;
}

/* A process has its region. ${arrived}: it is one of those that are counted as children, and no
 * forked one. */
static void enter(struct hl_collector *collector, struct hl_tracked *tracked, bool arrived)
{
	struct hl_tracked **end = &collector->tracked;

	while (*end)
		end = &(*end)->next;
	*end = tracked;
	collector->next_sequence++;
	collector->summary.processes++;
	tracked->arrived = arrived;
	collector->unrecorded.arrived += arrived;
	hl_collector_look_within(collector, tracked->pid == collector->program ? HL_FIRST_SAVE_NS
									       : HL_NS_PER_SECOND);
	if (collector->control)
		hl_control_enter(collector->control);
}

/* Makes ${region_fd} a region for process ${pid}, and follows that. */
static int take_in(struct hl_collector *collector, pid_t pid, int region_fd,
		   struct hl_tracked **ret_tracked)
{
	struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
	struct hl_tracked *tracked;

	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0) {
		int r = -errno;
		close(region_fd);
		return r;
	}
	prlimit(pid, RLIMIT_AS, NULL, &limit);
	int r = hl_tracked_new(pid, pidfd, &collector->settings.region, collector->budget,
			       limit.rlim_cur, region_fd, &tracked);
	if (r < 0)
		return r;
	r = follow(collector, tracked);
	if (r < 0) {
		hl_tracked_free(tracked);
		return r;
	}
	enter(collector, tracked, false);
	hl_program_warnings_address_space(&collector->archive, &collector->settings.region, tracked,
					  limit.rlim_cur);
	*ret_tracked = tracked;
	return 0;
}

int hl_collector_adopt(struct hl_collector *collector, pid_t pid, int region_fd, bool ran_before,
		       uint64_t *ret_region_bytes, struct hl_error *err)
{
	struct hl_tracked *tracked = NULL;

	int r = take_in(collector, pid, region_fd, &tracked);
	if (r < 0)
		return hl_error_set(err, r, "cannot record process %d: %s", pid,
				    hl_collector_reason_of(-r));
	collector->archive.meta.attached = ran_before;
	collector->archive.meta_is_stale = true; /* reports say it from the first save on */
	tracked->ran_before = ran_before;
	if (!ran_before)
		hl_tracked_set_from_start(tracked);
	*ret_region_bytes = tracked->region.bytes;
	return 0;
}

int hl_collector_adopt_child(struct hl_collector *collector, pid_t pid, int region_fd)
{
	struct hl_tracked *tracked = NULL;

	/* A process that asks twice tells nothing that is worth a warning. */
	if (hl_collector_find_running(collector, pid)) {
		close(region_fd);
		return -EEXIST;
	}
	int r = take_in(collector, pid, region_fd, &tracked);
	if (r < 0) {
		hl_collector_refuse(collector, pid, hl_collector_reason_of(-r), true);
		return r;
	}
	hl_tracked_set_forked(tracked);
	tracked->ran_before = collector->archive.meta.attached;
	return 0;
}

int hl_collector_heed(struct hl_collector *collector, int fd, hl_collector_ready_fn *ready,
		      void *context)
{
	collector->ready = ready;
	collector->ready_context = context;
	return hl_collector_watch(collector, fd, HL_EVENT_HEEDED);
}

/* Not once it has ended, or has run on because we were stopped or slow. */
static bool still_waits(const struct hl_caller *caller)
{
	char byte;

	return recv(caller->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}

/* Whether the recorder was brought into the program that waits for our answer, or it is recorded by neither; else its own is to record it. */
static bool has_entered(struct hl_collector *collector, const struct hl_caller *caller,
			bool arrived)
{
	const struct hl_collector_entering *entering = &collector->settings.entering;
	struct hl_error err = {0};

	if (!still_waits(caller))
		return false;
	int r = entering->enter(entering->context, caller->pid, &err);
	struct hl_tracked *tracked = hl_collector_find_running(collector, caller->pid);
	if (r < 0 && tracked)
		hl_collector_refuse(collector, caller->pid, err.text, false);
	else if (r < 0 && still_waits(caller))
		hl_archive_warn(&collector->archive,
				"only blocks of malloc() are recorded in process %d: %s",
				caller->pid, err.text);
	if (!tracked)
		return false;
	tracked->arrived = arrived;
	collector->unrecorded.arrived += arrived;
	if (hl_reception_answer(caller, HL_WELCOME_ENTERED, NULL) < 0 &&
	    !hl_tracked_check_end(tracked))
		hl_archive_warn(&collector->archive,
				"process %d did not wait for heapline, which was stopped or too "
				"busy: what it did meanwhile is not recorded",
				caller->pid);
	return true;
}

/* Has its own recorder record it. */
static void take_caller_in(struct hl_collector *collector, const struct hl_caller *caller,
			   const struct hl_hello *hello, bool arrived)
{
	struct hl_tracked *tracked = NULL;
	bool is_forked = hello->kind == HL_HELLO_FORK;
	int r = welcome(collector, caller, hello, &tracked);

	if (tracked) {
		enter(collector, tracked, arrived);
		hl_program_warnings_address_space(&collector->archive, &collector->settings.region,
						  tracked, hello->address_space_limit);
	} else {
		hl_reception_answer(caller, -r, NULL);
		hl_collector_refuse(collector, caller->pid, hl_collector_reason_of(-r),
				    is_forked || arrived);
	}
	collector->unrecorded.fork_hellos += is_forked;
}

/* To enter takes a while: others are answered first. Its place among the waiting is free then. */
static bool has_queued(struct hl_collector *collector, struct hl_waiting *waiting,
		       const struct hl_hello *hello, bool arrived)
{
	const struct hl_collector_entering *entering = &collector->settings.entering;
	struct hl_enterable **end = &collector->enterable, *enterable;

	if (!entering->wants || !entering->wants(entering->context, waiting->caller.pid) ||
	    hl_reception_answer(&waiting->caller, HL_WELCOME_WAIT, NULL) < 0 ||
	    !(enterable = malloc(sizeof(*enterable))))
		return false;
	while (*end)
		end = &(*end)->next;
	*enterable = (struct hl_enterable){NULL, waiting->caller, *hello, arrived};
	*end = enterable;
	epoll_ctl(collector->epoll_fd, EPOLL_CTL_DEL, waiting->caller.fd, NULL);
	waiting->caller.fd = -1;
	return true;
}

bool hl_collector_enter_next(struct hl_collector *collector)
{
	struct hl_enterable *enterable = collector->enterable;

	if (!enterable)
		return false;
	collector->enterable = enterable->next;
	if (!has_entered(collector, &enterable->caller, enterable->arrived))
		take_caller_in(collector, &enterable->caller, &enterable->hello,
			       enterable->arrived);
	close(enterable->caller.fd);
	free(enterable);
	return true;
}

/* A pid that says hello again has begun another program. */
static void greet(struct hl_collector *collector, struct hl_waiting *waiting,
		  const struct hl_hello *hello)
{
	const struct hl_caller *caller = &waiting->caller;
	struct hl_tracked *before = hl_collector_find_running(collector, caller->pid);
	bool is_forked = hello->kind == HL_HELLO_FORK;

	/* Asked before the answer, after which the new program may end, too, and its parent. */
	if (before && !hl_tracked_check_end(before))
		hl_tracked_set_end(before, HL_END_EXEC);
	bool arrived = !is_forked && !before &&
		       was_expected(collector, caller->pid, (pid_t)hl_identity_parent(caller->pid));
	if (is_forked || !has_queued(collector, waiting, hello, arrived))
		take_caller_in(collector, caller, hello, arrived);
	if (before)
		hl_collector_finish_process(collector, before);
}

void hl_collector_on_waiting(struct hl_collector *collector, struct hl_waiting *waiting)
{
	if (waiting->caller.fd < 0)
		return;
	struct hl_hello hello;
	int r = hl_reception_read_hello(&collector->reception, &waiting->caller, &hello);
	if (r == -EAGAIN)
		return;
	if (r < 0)
		collector->strangers++;
	else if (collector->begun &&
		 (collector->settings.region.follow || waiting->caller.pid == collector->program))
		greet(collector, waiting, &hello);
	else
		hl_reception_answer(&waiting->caller, EPERM, NULL);
	hl_collector_stop_waiting(waiting);
}

/*
 * Takes the next caller. The children of a server that has given up its privileges are of another
 * user. The name of our socket is public: strangers of other users must not take the places of
 * those who wait, whatever they would say.
 */
static int take_caller(struct hl_collector *collector, struct hl_caller *ret_caller)
{
	int r = hl_reception_accept(&collector->reception, ret_caller);

	if (r < 0 || !ret_caller->is_foreign || is_kin(collector, ret_caller->pid))
		return r;
	close(ret_caller->fd);
	return -EPERM;
}

void hl_collector_on_socket(struct hl_collector *collector)
{
	struct hl_caller caller;
	int r = take_caller(collector, &caller);

	collector->strangers += r == -EPERM;
	if (r == -EMFILE) {
		hl_archive_warn(&collector->archive,
				"a process was not recorded: the collector ran out of file "
				"descriptors (see ulimit -n)");
		collector->summary.refused++;
	}
	if (r < 0)
		return;
	uint64_t index = 0;
	while (index < HL_WAITING_MAX && collector->waiting[index].caller.fd >= 0)
		index++;
	if (index == HL_WAITING_MAX ||
	    hl_collector_watch(collector, caller.fd, HL_EVENT_WAITING + index) < 0) {
		close(caller.fd);
		hl_collector_refuse(collector, caller.pid, hl_collector_reason_of(EPIPE), false);
		return;
	}
	struct hl_waiting *place = &collector->waiting[index];
	place->caller = caller;
	place->deadline_ns = hl_clock_ns(CLOCK_MONOTONIC) + HL_HELLO_WAIT_MS * UINT64_C(1000000);
	hl_collector_on_waiting(collector, place);
	if (place->caller.fd >= 0)
		hl_collector_look_within(collector, HL_NS_PER_SECOND);
}

bool hl_collector_check_waiting(struct hl_collector *collector, uint64_t now_ns)
{
	bool any = false;

	for (int i = 0; i < HL_WAITING_MAX; i++) {
		struct hl_waiting *waiting = &collector->waiting[i];
		if (waiting->caller.fd < 0)
			continue;
		any |= waiting->deadline_ns > now_ns;
		if (waiting->deadline_ns > now_ns)
			continue;
		collector->strangers++;
		hl_collector_stop_waiting(waiting);
	}
	return any;
}
