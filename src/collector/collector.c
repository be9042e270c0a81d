/* SPDX-License-Identifier: BSD-2-Clause */
/* The collector's life and its events: ends of processes, the timer; see collector.h. */
#include "collector/collector_parts.h"

#include "base/clock.h"
#include "collector/region_read.h"
#include "process/process.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* Saves may take 1/SAVE_SHARE of a core's time: the next is due after SAVE_SHARE times the cost of
 * the last. */
#define SAVE_SHARE 100

#define SAVE_EARLY_NS (HL_NS_PER_SECOND / 2) /* the timer may come a little before its second */

/* Processes that have ended and could not be saved stay in memory for another try, at most this
 * many; of more, the oldest is given up. */
#define UNSAVED_MAX 16

/* How long the end of a recording waits for children that its processes have just forked or
 * started, and after which time it looks again. Some never come: those that allocate nothing. */
#define END_WAIT_MS 200
#define END_LOOK_MS 2

/* Files of programs that have ended, and often run again. */
#define HELD_IDLE_MAX 8

/* So that a flood of callers does not keep the owner from its other descriptors. */
#define EVENTS_PER_DISPATCH 256

/* ---- making ---- */

int hl_collector_watch(struct hl_collector *collector, int fd, uint64_t cookie)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = cookie};

	return epoll_ctl(collector->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

int hl_collector_new(const struct hl_collector_settings *settings,
		     struct hl_collector **ret_collector, struct hl_error *err)
{
	struct hl_collector *collector = calloc(1, sizeof(*collector));

	if (!collector)
		return hl_error_set(err, -ENOMEM, "out of memory");
	collector->settings = *settings;
	if (!collector->settings.save_every_ns)
		collector->settings.save_every_ns = HL_NS_PER_SECOND;
	collector->budget = hl_budget_new(&settings->budget);
	collector->held_files.idle_max = HELD_IDLE_MAX;
	collector->archive.directory.fd = -1;
	collector->reception.fd = collector->reception.reserve_fd = -1;
	for (int i = 0; i < HL_WAITING_MAX; i++)
		collector->waiting[i].caller.fd = -1;
	collector->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	collector->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	int r = collector->epoll_fd < 0 || collector->timer_fd < 0 ? -errno : 0;
	if (r == 0)
		r = hl_reception_init(&collector->reception, err);
	if (r == 0)
		r = hl_collector_watch(collector, collector->reception.fd, HL_EVENT_SOCKET);
	if (r == 0)
		r = hl_collector_watch(collector, collector->timer_fd, HL_EVENT_TIMER);
	if (r < 0) {
		hl_collector_free(collector);
		return hl_error_set(err, r, "cannot start the collector: %s", strerror(-r));
	}
	*ret_collector = collector;
	return 0;
}

void hl_collector_free(struct hl_collector *collector)
{
	if (!collector)
		return;
	hl_control_free(collector->control);
	for (int i = 0; i < HL_WAITING_MAX; i++)
		hl_collector_stop_waiting(&collector->waiting[i]);
	for (struct hl_tracked *tracked; (tracked = collector->tracked);) {
		collector->tracked = tracked->next;
		hl_tracked_free(tracked);
	}
	hl_held_files_release(&collector->held_files);
	hl_budget_free(collector->budget);
	hl_reception_release(&collector->reception);
	hl_archive_release(&collector->archive);
	if (collector->timer_fd >= 0)
		close(collector->timer_fd);
	if (collector->epoll_fd >= 0)
		close(collector->epoll_fd);
	free(collector);
}

const char *hl_collector_socket(const struct hl_collector *collector)
{
	return collector->reception.name;
}

const char *hl_collector_token(const struct hl_collector *collector)
{
	return collector->reception.token;
}

int hl_collector_fd(const struct hl_collector *collector)
{
	return collector->epoll_fd;
}

/* Once a second, the first time after ${first_ns}. */
static void start_timer(struct hl_collector *collector, uint64_t first_ns)
{
	const struct itimerspec timer = {
		.it_interval.tv_sec = 1,
		.it_value = {.tv_sec = (time_t)(first_ns / HL_NS_PER_SECOND),
			     .tv_nsec = (long)(first_ns % HL_NS_PER_SECOND)},
	};

	timerfd_settime(collector->timer_fd, 0, &timer, NULL);
}

/* The timer comes in ${ns} at the latest. A program that is replaced again and again does not put it off. */
void hl_collector_look_within(struct hl_collector *collector, uint64_t ns)
{
	struct itimerspec left;

	timerfd_gettime(collector->timer_fd, &left);
	if ((uint64_t)left.it_value.tv_sec * HL_NS_PER_SECOND + (uint64_t)left.it_value.tv_nsec >
	    ns)
		start_timer(collector, ns);
}

/* Where this fails, the recording goes on with a warning that it cannot be controlled. */
static void begin_control(struct hl_collector *collector)
{
	const struct hl_control_subject subject = {
		.archive = &collector->archive,
		.tracked = &collector->tracked,
		.limits = &collector->settings.log,
		.mode = &collector->settings.region.mode,
	};

	int r = hl_control_new(&subject, &collector->control);
	if (r == 0)
		r = hl_collector_watch(collector, hl_control_fd(collector->control),
				       HL_EVENT_CONTROL);
	if (r == 0)
		r = hl_control_open(collector->control);
	if (r < 0)
		hl_archive_warn(&collector->archive,
				"'heapline ctl' cannot reach this recording: no place for its "
				"socket in XDG_RUNTIME_DIR, /run/user or /tmp: %s",
				strerror(-r));
}

int hl_collector_begin(struct hl_collector *collector, const char *path, bool replace,
		       pid_t program, struct hl_error *err)
{
	int r = hl_archive_init(&collector->archive, path, replace, &collector->settings, err);

	if (r < 0)
		return r;
	start_timer(collector, HL_NS_PER_SECOND);
	collector->begun = true;
	collector->program = program;
	/* It may have ended, and only its parent may ask. */
	collector->program_is_child =
		waitid(P_PID, (id_t)program, &(siginfo_t){0}, WEXITED | WNOHANG | WNOWAIT) == 0;
	begin_control(collector);
	return 0;
}

bool hl_collector_describe_room(const struct hl_collector *collector, pid_t pid,
				char sentence[HL_WARNING_BYTES])
{
	struct hl_memory_group *group = hl_memory_group_open(pid);
	bool may_lack = group && collector->budget &&
			hl_budget_sees_limit(collector->budget, hl_memory_group_at(group)) &&
			hl_memory_group_describe_room(group, pid, sentence);

	hl_memory_group_free(group);
	return may_lack;
}

void hl_collector_warn(struct hl_collector *collector, const char *sentence)
{
	hl_archive_warn(&collector->archive, "%s", sentence);
}

void hl_collector_keep(struct hl_collector *collector)
{
	hl_archive_keep(&collector->archive);
}

void hl_collector_abandon(struct hl_collector *collector)
{
	if (collector->begun)
		hl_archive_remove(&collector->archive);
}

/* ---- recorded processes ---- */

/* Takes it off the list and frees it. */
static void forget(struct hl_collector *collector, struct hl_tracked *tracked)
{
	struct hl_tracked **link = &collector->tracked;

	while (*link != tracked)
		link = &(*link)->next;
	*link = tracked->next;
	if (collector->control)
		hl_control_forget(collector->control, tracked);
	hl_unrecorded_keep(&collector->unrecorded, tracked);
	hl_tracked_free(tracked);
}

static void count_in(struct hl_collector_summary *summary, const struct hl_tracked *tracked)
{
	const struct hl_tracked_totals *totals = &tracked->totals;

	const char *successor = hl_tracked_successor(tracked);
	if (successor[0] && !summary->replaced++) {
		summary->replaced_pid = tracked->pid;
		strcpy(summary->replaced_name, successor);
	}
	summary->allocations += totals->allocations;
	summary->lost_events += totals->lost_events;
	summary->own_malloc |= totals->own_malloc;
	summary->damaged |= totals->damaged;
	if (totals->nameless && !summary->nameless) {
		summary->nameless = totals->nameless;
		summary->nameless_pid = tracked->end == HL_END_RUNNING ? tracked->pid : 0;
	}
	if (totals->peak_bytes > summary->peak_bytes)
		summary->peak_bytes = totals->peak_bytes;
}

/* ${was_expected}: it is one of those that are counted as children, too. */
void hl_collector_refuse(struct hl_collector *collector, pid_t pid, const char *reason,
			 bool was_expected)
{
	hl_unrecorded_refuse(&collector->unrecorded, &collector->archive, pid, reason);
	collector->unrecorded.refused += was_expected;
	collector->summary.refused++;
}

/* Why the collector itself could not take a process. */
const char *hl_collector_reason_of(int error)
{
	switch (error) {
	case ENOMEM:
		return "heapline had no memory or address space for it";
	case EAGAIN: /* of pthread_create() */
		return "heapline had no memory for a thread, or may start no more of them";
	case EPIPE:
		return "heapline was stopped or too busy to answer it";
	case EBADFD: /* of hl_region_make() */
		return "it has sealed or replaced the memory file made for heapline";
	default:
		return strerror(error);
	}
}

/* The last save of a process; on success nothing of it stays in memory. */
static int save_last(struct hl_collector *collector, struct hl_tracked *tracked)
{
	struct hl_log_losses losses;

	if (collector->control)
		hl_control_read_mailbox(collector->control, tracked, true);
	hl_tracked_end_log(tracked, &losses);
	hl_archive_warn_of_log(&collector->archive, tracked->pid, &losses);
	hl_program_warnings_end(&collector->warnings, &collector->archive, tracked);
	/* An entry of zeros would tell of a program without allocations. */
	if (!hl_tracked_has_begun(tracked)) {
		hl_collector_refuse(collector, tracked->pid,
				    tracked->end != HL_END_RUNNING
					    ? "it had no memory or address space for the recorder"
					    : "the recording ended while it started",
				    tracked->arrived || tracked->first_name[0]);
		collector->summary.processes--;
		collector->unrecorded.arrived -= tracked->arrived;
		forget(collector, tracked);
		return 0;
	}
	int r = hl_archive_save(&collector->archive, tracked, true);
	if (r < 0)
		return r;
	if (tracked->totals.refused_names[0])
		hl_archive_warn(&collector->archive, HL_CODE_FILE_REFUSED,
				tracked->totals.refused_names, tracked->pid);
	hl_archive_note_recorder(&collector->archive, tracked->recorder_memory.bytes);
	hl_program_warnings_growth(&collector->warnings, &collector->archive,
				   &collector->settings.region, tracked);
	count_in(&collector->summary, tracked);
	forget(collector, tracked);
	return 0;
}

/* The file, if there is one, lacks what came after the last save that succeeded; the totals are
 * known. */
static void give_up_saving(struct hl_collector *collector, const struct hl_tracked *tracked)
{
	collector->summary.incomplete = true;
	collector->summary.unsaved++;
	count_in(&collector->summary, tracked);
}

static void drop_oldest_unsaved(struct hl_collector *collector)
{
	uint32_t unsaved = 0;
	struct hl_tracked *oldest = NULL;

	for (struct hl_tracked *process = collector->tracked; process; process = process->next) {
		unsaved += process->end_ns != 0;
		if (process->end_ns && !oldest)
			oldest = process;
	}
	if (unsaved <= UNSAVED_MAX)
		return;
	give_up_saving(collector, oldest);
	forget(collector, oldest);
}

struct hl_tracked *hl_collector_find_running(struct hl_collector *collector, pid_t pid)
{
	struct hl_tracked *process = collector->tracked;

	while (process && (process->pid != pid || process->end_ns))
		process = process->next;
	return process;
}

void hl_collector_finish_process(struct hl_collector *collector, struct hl_tracked *tracked)
{
	struct hl_tracked *program = hl_collector_find_running(collector, collector->program);

	/* First, so that no recording holds children without the program that started them. */
	if (program && !program->saved && hl_tracked_has_begun(program))
		hl_archive_save(&collector->archive, program, false);
	epoll_ctl(collector->epoll_fd, EPOLL_CTL_DEL, tracked->pidfd, NULL);
	if (save_last(collector, tracked) < 0)
		drop_oldest_unsaved(collector);
}

void hl_collector_check_ends(struct hl_collector *collector)
{
	for (struct hl_tracked *process = collector->tracked, *next; process; process = next) {
		next = process->next;
		if (!process->end_ns && hl_tracked_check_end(process))
			hl_collector_finish_process(collector, process);
	}
}

/* ---- the timer ---- */

/* Saves what has changed; tries ended processes again. */
static bool save_changed(struct hl_collector *collector)
{
	bool any = false;

	for (struct hl_tracked *process = collector->tracked, *next; process; process = next) {
		next = process->next; /* save_last frees it */
		if (!process->end_ns) {
			hl_tracked_look(process);
			hl_program_warnings_sampling(&collector->archive, process);
			hl_program_warnings_filters(&collector->archive, process);
			hl_archive_note_recorder(&collector->archive,
						 process->recorder_memory.bytes);
			if (collector->control)
				hl_control_read_mailbox(collector->control, process, false);
		}
		/* What heapline brought into its memory is gone. */
		if (!process->end_ns && process->attached && process->is_another) {
			hl_tracked_set_end(process, HL_END_RUNNING);
			hl_collector_finish_process(collector, process);
			any = true;
		} else if (process->end_ns)
			any |= save_last(collector, process) == 0;
		else if (hl_tracked_has_begun(process) && hl_tracked_has_changed(process))
			any |= hl_archive_save(&collector->archive, process, false) == 0;
	}
	return any;
}

/* Whether a process goes on of which nothing was saved yet. */
static bool has_new(const struct hl_collector *collector)
{
	for (const struct hl_tracked *process = collector->tracked; process;
	     process = process->next)
		if (!process->end_ns && !process->saved)
			return true;
	return false;
}

static void on_timer(struct hl_collector *collector)
{
	uint64_t expirations;

	if (read(collector->timer_fd, &expirations, sizeof(expirations)) < 0)
		return;
	uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);
	hl_budget_attend(collector->budget);
	uint64_t wait_ns = hl_collector_check_waiting(collector, now_ns) || has_new(collector)
				   ? HL_NS_PER_SECOND
				   : collector->settings.save_every_ns;
	/* On a busy machine a program may begin later than its first save. */
	for (const struct hl_tracked *process = collector->tracked; process;
	     process = process->next)
		if (!process->end_ns && !hl_tracked_has_begun(process) &&
		    now_ns - process->start_ns < HL_NS_PER_SECOND)
			wait_ns = HL_FIRST_SAVE_NS;
	bool is_due = now_ns >= collector->next_save_ns &&
		      (now_ns >= collector->next_round_ns || has_new(collector));
	if (collector->next_save_ns > now_ns && collector->next_save_ns - now_ns < wait_ns)
		wait_ns = collector->next_save_ns - now_ns;
	if (wait_ns != HL_NS_PER_SECOND)
		start_timer(collector, wait_ns);
	if (!is_due)
		return;
	uint64_t cpu_ns = hl_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	hl_archive_set_unrecorded(&collector->archive,
				  hl_unrecorded_steady(&collector->unrecorded, collector->tracked),
				  collector->unrecorded.refused);
	bool any = save_changed(collector);
	if (collector->archive.meta_is_stale ||
	    (any && hl_archive_touch_meta(&collector->archive) < 0))
		hl_archive_save_meta(&collector->archive, false);
	/* Logs must not go on in a directory that has been deleted. */
	if (collector->revivals_seen != collector->archive.revivals) {
		collector->revivals_seen = collector->archive.revivals;
		for (struct hl_tracked *process = collector->tracked; process;
		     process = process->next)
			if (process->log)
				hl_drain_thread_move(process->log, collector->archive.directory.fd);
	}
	cpu_ns = hl_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
	collector->next_save_ns = now_ns + SAVE_SHARE * cpu_ns;
	collector->next_round_ns = now_ns + collector->settings.save_every_ns - SAVE_EARLY_NS;
}

/* ---- events ---- */

static void on_event(struct hl_collector *collector, uint64_t cookie)
{
	if (cookie >= HL_EVENT_TRACKED) {
		struct hl_tracked *tracked = collector->tracked;
		while (tracked && tracked->sequence != cookie - HL_EVENT_TRACKED)
			tracked = tracked->next;
		if (tracked && hl_tracked_check_end(tracked))
			hl_collector_finish_process(collector, tracked);
	} else if (cookie >= HL_EVENT_WAITING)
		hl_collector_on_waiting(collector, &collector->waiting[cookie - HL_EVENT_WAITING]);
	else if (cookie == HL_EVENT_CONTROL)
		hl_control_dispatch(collector->control);
	else if (cookie == HL_EVENT_HEEDED)
		collector->ready(collector->ready_context);
	else if (cookie == HL_EVENT_TIMER)
		on_timer(collector);
	else
		hl_collector_on_socket(collector);
}

void hl_collector_dispatch(struct hl_collector *collector)
{
	struct epoll_event event;

	/* One at a time: what one event frees, another of the same batch might name. Between two
	 * programs that are entered, all others are answered. */
	do
		for (int i = 0;
		     i < EVENTS_PER_DISPATCH && epoll_wait(collector->epoll_fd, &event, 1, 0) == 1;
		     i++)
			on_event(collector, event.data.u64);
	while (hl_collector_enter_next(collector));
}

/* ---- the end ---- */

bool hl_collector_has_running(const struct hl_collector *collector)
{
	const struct hl_tracked *process = collector->tracked;

	while (process && process->end_ns)
		process = process->next;
	return process;
}

bool hl_collector_is_to_detach(const struct hl_collector *collector)
{
	return collector->control && hl_control_is_to_detach(collector->control);
}

void hl_collector_tell_detached(struct hl_collector *collector, const char *problem)
{
	if (collector->control)
		hl_control_tell_detached(collector->control, problem);
}

/* Whether some process is about to say hello, as far as its parent tells, or to begin. */
static bool expects_more(const struct hl_collector *collector)
{
	for (const struct hl_tracked *process = collector->tracked; process;
	     process = process->next)
		if (!process->end_ns && !hl_tracked_has_begun(process))
			return true;
	return hl_unrecorded_are_awaited(&collector->unrecorded, collector->tracked);
}

/* Children that the program started as it ended would be missing without a word, since nobody reads
 * what they say in the region of a parent that has ended. A forked one that is still awaited
 * afterwards is nothing to warn of: most have ended without an allocation. */
static void await_children(struct hl_collector *collector)
{
	struct pollfd poller = {.fd = collector->epoll_fd, .events = POLLIN};
	uint64_t deadline_ns = hl_clock_ns(CLOCK_MONOTONIC) + END_WAIT_MS * UINT64_C(1000000);

	hl_collector_dispatch(collector);
	while (expects_more(collector) && hl_clock_ns(CLOCK_MONOTONIC) < deadline_ns) {
		/* A region that is taken wakes nobody. */
		poll(&poller, 1, END_LOOK_MS);
		hl_collector_dispatch(collector);
	}
}

static void close_running(struct hl_collector *collector)
{
	for (struct hl_tracked *process = collector->tracked; process; process = process->next) {
		if (hl_tracked_check_end(process))
			continue;
		/* From here on nobody reads rings: they must not be waited for. */
		atomic_fetch_or(&process->region.header->flags, HL_REGION_LOSSY);
		atomic_fetch_and(&process->region.header->flags, ~(uint32_t)HL_REGION_FOLLOW);
		hl_mode_switch(&process->region.header->mode, HL_MODE_CLOSED);
		hl_mailbox_reader_close(&process->mailbox);
		hl_tracked_set_end(process, HL_END_RUNNING);
		collector->summary.running += process->end == HL_END_RUNNING;
	}
}

void hl_collector_finish(struct hl_collector *collector, struct hl_collector_summary *ret_summary)
{
	struct hl_collector_summary *summary = &collector->summary;

	await_children(collector);
	hl_reception_release(&collector->reception);
	if (collector->control)
		hl_control_close(collector->control);
	close_running(collector);
	for (struct hl_tracked *process = collector->tracked, *next; process; process = next) {
		next = process->next;
		if (save_last(collector, process) < 0)
			give_up_saving(collector, process);
	}
	summary->unrecorded_children =
		hl_unrecorded_count(&collector->unrecorded, collector->tracked);
	summary->refused_children = collector->unrecorded.refused;
	hl_archive_set_unrecorded(&collector->archive, summary->unrecorded_children,
				  summary->refused_children);
	if (collector->strangers)
		hl_archive_warn(&collector->archive,
				"turned away %u time%s a process of another user whose recorded "
				"ancestors have ended%s, or one that is not a recorder of this "
				"recording",
				collector->strangers, collector->strangers == 1 ? "" : "s",
				collector->program_is_child ? " ('--wait' helps)" : "");
	if (hl_archive_save_meta(&collector->archive, true) < 0)
		summary->incomplete = true;
	if (summary->incomplete) {
		summary->failure = collector->archive.failure.text;
		summary->is_empty = rmdir(collector->archive.directory.path) == 0;
	}
	summary->warnings = collector->archive.warnings.texts;
	*ret_summary = *summary;
}
