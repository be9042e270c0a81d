/* SPDX-License-Identifier: BSD-2-Clause */
/* The collector's events: hellos, ends of processes, the second; see collector.h. */
#include "collector/collector.h"

#include "base/clock.h"
#include "collector/archive.h"
#include "collector/control.h"
#include "collector/examine.h"
#include "collector/reception.h"
#include "collector/region_check.h"
#include "collector/tracked.h"
#include "collector/unrecorded.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Callers that have connected and not yet said hello; more are turned away. */
#define WAITING_MAX 64

/* A save may cost this part of a core's time, so the next is due after as many times its cost. */
#define SAVE_SHARE 20

/* Ended processes whose last save failed, kept in memory for another try; the oldest gives way. */
#define UNSAVED_MAX 16

/* Programs that are not searched again for allocators of their own; a build runs a few over and
 * over. */
#define EXAMINED_MAX 64

/* So that a flood of callers does not keep the owner from its other descriptors. */
#define EVENTS_PER_DISPATCH 256

/* epoll's cookie: one of these, plus the index of a waiting caller or a process' sequence. */
enum event {
	EVENT_SOCKET,
	EVENT_TIMER,
	EVENT_CONTROL,
	EVENT_WAITING,
	EVENT_TRACKED = EVENT_WAITING + WAITING_MAX,
};

struct waiting {
	struct hl_caller caller; /* fd -1: a free place */
	uint64_t deadline_ns;
};

struct hl_collector {
	struct hl_collector_settings settings;
	struct hl_reception reception;
	struct hl_archive archive;
	struct hl_control *control; /* NULL: not begun, or no means for one */
	bool begun;
	pid_t program;
	int epoll_fd, timer_fd;
	struct waiting waiting[WAITING_MAX];
	struct hl_tracked *tracked; /* oldest first; ended ones only when their last save failed */
	uint32_t next_sequence;
	uint32_t strangers; /* callers whose hello was none */
	struct hl_unrecorded unrecorded;
	struct {
		dev_t device;
		ino_t inode;
	} examined[EXAMINED_MAX]; /* programs that were searched for allocators */
	uint32_t examined_count;
	uint64_t next_save_ns;
	uint32_t revivals_seen; /* of the archive's directory */
	struct hl_collector_summary summary;
};

/* ---- making ---- */

static int watch(struct hl_collector *collector, int fd, uint64_t cookie)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = cookie};
	return epoll_ctl(collector->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int open_descriptors(struct hl_collector *collector, struct hl_error *err)
{
	collector->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	collector->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (collector->epoll_fd < 0 || collector->timer_fd < 0)
		return hl_error_set(err, -errno, "cannot start the collector: %s", strerror(errno));
	int r = hl_reception_init(&collector->reception, err);
	if (r == 0)
		r = watch(collector, collector->reception.fd, EVENT_SOCKET);
	if (r == 0)
		r = watch(collector, collector->timer_fd, EVENT_TIMER);
	if (r < 0)
		return hl_error_set(err, r, "cannot start the collector: %s", strerror(-r));
	return 0;
}

int hl_collector_new(const struct hl_collector_settings *settings,
		     struct hl_collector **ret_collector, struct hl_error *err)
{
	struct hl_collector *collector = calloc(1, sizeof(*collector));
	if (!collector)
		return hl_error_set(err, -ENOMEM, "out of memory");
	collector->settings = *settings;
	collector->archive.directory.fd = -1;
	collector->reception.fd = collector->reception.reserve_fd = -1;
	for (int i = 0; i < WAITING_MAX; i++)
		collector->waiting[i].caller.fd = -1;
	int r = open_descriptors(collector, err);
	if (r < 0) {
		hl_collector_free(collector);
		return r;
	}
	*ret_collector = collector;
	return 0;
}

static void stop_waiting(struct waiting *waiting)
{
	if (waiting->caller.fd >= 0)
		close(waiting->caller.fd);
	waiting->caller.fd = -1;
}

void hl_collector_free(struct hl_collector *collector)
{
	if (!collector)
		return;
	hl_control_free(collector->control);
	for (int i = 0; i < WAITING_MAX; i++)
		stop_waiting(&collector->waiting[i]);
	for (struct hl_tracked *tracked; (tracked = collector->tracked);) {
		collector->tracked = tracked->next;
		hl_tracked_free(tracked);
	}
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

/* A recording that cannot be controlled is a recording all the same. */
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
		r = watch(collector, hl_control_fd(collector->control), EVENT_CONTROL);
	if (r == 0)
		r = hl_control_open(collector->control);
	if (r < 0) {
		char sentence[160];
		snprintf(sentence, sizeof(sentence),
			 "'heapline ctl' cannot reach this recording: no place for its socket in "
			 "XDG_RUNTIME_DIR, /run/user or /tmp: %s",
			 strerror(-r));
		hl_archive_warn(&collector->archive, sentence);
	}
}

int hl_collector_begin(struct hl_collector *collector, const char *path, bool replace,
		       pid_t program, struct hl_error *err)
{
	int r = hl_archive_init(&collector->archive, path, replace, collector->settings.command,
				&collector->settings.region, err);
	if (r < 0)
		return r;
	static const struct itimerspec second = {.it_interval.tv_sec = 1, .it_value.tv_sec = 1};
	timerfd_settime(collector->timer_fd, 0, &second, NULL);
	collector->begun = true;
	collector->program = program;
	begin_control(collector);
	return 0;
}

void hl_collector_abandon(struct hl_collector *collector)
{
	if (collector->begun)
		hl_archive_remove(&collector->archive);
}

/* ---- recorded processes ---- */

static void append(struct hl_collector *collector, struct hl_tracked *tracked)
{
	struct hl_tracked **end = &collector->tracked;
	while (*end)
		end = &(*end)->next;
	*end = tracked;
}

/* Takes it off the list and frees it. */
static void forget(struct hl_collector *collector, struct hl_tracked *tracked)
{
	struct hl_tracked **link = &collector->tracked;
	while (*link != tracked)
		link = &(*link)->next;
	*link = tracked->next;
	hl_unrecorded_keep(&collector->unrecorded, tracked);
	hl_tracked_free(tracked);
}

static void count_replaced(struct hl_collector_summary *summary, const struct hl_tracked *tracked)
{
	const char *successor = hl_tracked_successor(tracked);
	if (!successor[0])
		return;
	if (!summary->replaced++) {
		summary->replaced_pid = tracked->pid;
		strcpy(summary->replaced_name, successor);
	}
}

static void count_in(struct hl_collector_summary *summary, const struct hl_tracked *tracked)
{
	const struct hl_tracked_totals *totals = &tracked->totals;
	count_replaced(summary, tracked);
	summary->allocations += totals->allocations;
	summary->lost_events += totals->lost_events;
	summary->own_malloc |= totals->own_malloc;
	summary->damaged |= totals->damaged;
	if (totals->peak_bytes > summary->peak_bytes)
		summary->peak_bytes = totals->peak_bytes;
}

static void warn_refused(struct hl_collector *collector, pid_t pid, const char *reason)
{
	char sentence[160];
	snprintf(sentence, sizeof(sentence), "process %d was not recorded: %s", pid, reason);
	hl_archive_warn(&collector->archive, sentence);
	collector->summary.refused++;
}

/* Why the collector itself could not take a process. */
static const char *reason_of(int error)
{
	switch (error) {
	case ENOMEM:
		return "heapline had no memory or address space for it";
	case EAGAIN: /* of pthread_create() */
		return "heapline had no memory for a thread, or may start no more of them";
	case EPIPE:
		return "heapline was stopped or too busy to answer it";
	default:
		return strerror(error);
	}
}

/* An entry of zeros would tell of a program without allocations. */
static void forget_unrecorded(struct hl_collector *collector, struct hl_tracked *tracked)
{
	warn_refused(collector, tracked->pid, "it had no memory or address space for it");
	collector->summary.processes--;
	collector->unrecorded.arrived -= tracked->arrived;
	forget(collector, tracked);
}

static void end_log(struct hl_collector *collector, struct hl_tracked *tracked)
{
	struct hl_log_losses losses;
	if (collector->control)
		hl_control_read_mailbox(collector->control, tracked, true);
	hl_tracked_end_log(tracked, &losses);
	hl_archive_warn_of_log(&collector->archive, tracked->pid, &losses);
}

static void warn_of_namespaces(struct hl_collector *collector, const struct hl_tracked *tracked)
{
	char sentence[160];
	const struct hl_region_kin *kin = &tracked->region.header->kin;
	uint32_t count = atomic_load(&kin->namespaces);
	if (!count || !hl_region_kin_can_be(kin))
		return;
	snprintf(sentence, sizeof(sentence),
		 "process %d asked for %u namespace%s by dlmopen(); what is allocated in such a "
		 "namespace is not seen",
		 tracked->pid, count, count == 1 ? "" : "s");
	hl_archive_warn(&collector->archive, sentence);
}

static void warn_of_address_space(struct hl_collector *collector, const struct hl_tracked *tracked,
				  uint64_t limit)
{
	const struct hl_region_header *layout = &tracked->region.layout;
	char sentence[160];
	if (limit == UINT64_MAX)
		return;
	uint64_t taken = hl_mode_logs(collector->settings.region.mode)
				 ? layout->region_bytes
				 : layout->areas[HL_AREA_RINGS].offset;
	snprintf(sentence, sizeof(sentence),
		 "of the %" PRIu64 " MiB of address space that RLIMIT_AS leaves a program, the "
		 "recorder takes %" PRIu64 " MiB, and more for each block",
		 limit >> 20, taken >> 20);
	hl_archive_warn(&collector->archive, sentence);
}

/* Once for each of the programs that were looked at last. */
static void warn_of_allocator(struct hl_collector *collector, const struct hl_tracked *tracked)
{
	const struct hl_identity *program = &tracked->identity;
	for (size_t i = 0; i < HL_COUNT_OF(collector->examined); i++)
		if (collector->examined[i].device == program->device &&
		    collector->examined[i].inode == program->inode)
			return;
	size_t place = collector->examined_count++ % HL_COUNT_OF(collector->examined);
	collector->examined[place].device = program->device;
	collector->examined[place].inode = program->inode;
	const char *function = hl_examine_allocator(program->executable);
	char sentence[PATH_MAX + 160];
	if (!function)
		return;
	snprintf(sentence, sizeof(sentence),
		 "'%s' has an allocator of its own linked into it ('%s'), whose allocations are "
		 "not seen; 'heapline stacks -p PID' traces them while it runs",
		 program->executable, function);
	hl_archive_warn(&collector->archive, sentence);
}

/* The last save of a process; on success nothing of it stays in memory. */
static int save_last(struct hl_collector *collector, struct hl_tracked *tracked)
{
	end_log(collector, tracked);
	warn_of_namespaces(collector, tracked);
	warn_of_allocator(collector, tracked);
	if (!hl_tracked_has_begun(tracked)) {
		forget_unrecorded(collector, tracked);
		return 0;
	}
	int r = hl_archive_save(&collector->archive, tracked, true);
	if (r < 0)
		return r;
	count_in(&collector->summary, tracked);
	forget(collector, tracked);
	return 0;
}

/* Its file lacks what came after the last save, if there is a file; its totals are known. */
static void give_up_saving(struct hl_collector *collector, const struct hl_tracked *tracked)
{
	collector->summary.incomplete = true;
	count_in(&collector->summary, tracked);
}

static void drop_oldest_unsaved(struct hl_collector *collector)
{
	uint32_t unsaved = 0;
	struct hl_tracked *oldest = NULL;
	for (struct hl_tracked *it = collector->tracked; it; it = it->next) {
		unsaved += it->end_ns != 0;
		if (it->end_ns && !oldest)
			oldest = it;
	}
	if (unsaved <= UNSAVED_MAX)
		return;
	give_up_saving(collector, oldest);
	forget(collector, oldest);
}

/* For a process whose end has been noted. */
static void finish_process(struct hl_collector *collector, struct hl_tracked *tracked)
{
	epoll_ctl(collector->epoll_fd, EPOLL_CTL_DEL, tracked->pidfd, NULL);
	if (save_last(collector, tracked) < 0)
		drop_oldest_unsaved(collector);
}

static struct hl_tracked *find_sequence(struct hl_collector *collector, uint64_t sequence)
{
	struct hl_tracked *it = collector->tracked;
	while (it && it->sequence != sequence)
		it = it->next;
	return it;
}

static struct hl_tracked *find_running(struct hl_collector *collector, pid_t pid)
{
	struct hl_tracked *it = collector->tracked;
	while (it && (it->pid != pid || it->end_ns))
		it = it->next;
	return it;
}

static void on_process(struct hl_collector *collector, uint64_t sequence)
{
	struct hl_tracked *tracked = find_sequence(collector, sequence);
	if (tracked && hl_tracked_check_end(tracked))
		finish_process(collector, tracked);
}

void hl_collector_check_ends(struct hl_collector *collector)
{
	for (struct hl_tracked *it = collector->tracked, *next; it; it = next) {
		next = it->next;
		if (!it->end_ns && hl_tracked_check_end(it))
			finish_process(collector, it);
	}
}

/* ---- hellos ---- */

/* Whether the hello is that of a child that its parent told of. */
static bool was_expected(struct hl_collector *collector, const struct hl_tracked *tracked,
			 const struct hl_hello *hello)
{
	pid_t parent = (pid_t)tracked->identity.parent_pid;
	return hello->kind == HL_HELLO_START && tracked->pid != collector->program &&
	       hl_unrecorded_was_expected(parent, find_running(collector, parent));
}

/* A region for the caller, sent to it. ${before}: the program that the caller was until now, or
 * NULL. 0 or a negative errno for the caller to be told. */
static int admit(struct hl_collector *collector, const struct hl_caller *caller,
		 const struct hl_hello *hello, const struct hl_tracked *before)
{
	int pidfd = hl_reception_pidfd(caller);
	if (pidfd < 0)
		return pidfd;
	struct hl_tracked *tracked;
	int region_fd;
	int r = hl_tracked_new(caller->pid, pidfd, &collector->settings.region,
			       hello->address_space_limit, &tracked, &region_fd);
	if (r < 0)
		return r;
	tracked->sequence = collector->next_sequence;
	if (hello->kind == HL_HELLO_FORK)
		hl_tracked_set_forked(tracked);
	r = watch(collector, pidfd, EVENT_TRACKED + (uint64_t)tracked->sequence);
	if (r == 0 && hl_mode_logs(collector->settings.region.mode))
		r = hl_tracked_begin_log(tracked, collector->archive.directory.fd,
					 &collector->settings.log, 0);
	if (r == 0)
		r = hl_reception_answer(caller, 0, region_fd, tracked->region.bytes);
	close(region_fd);
	if (r < 0) {
		hl_tracked_free(tracked);
		return r;
	}
	collector->next_sequence++;
	collector->summary.processes++;
	tracked->arrived = !before && was_expected(collector, tracked, hello);
	collector->unrecorded.arrived += tracked->arrived;
	append(collector, tracked);
	warn_of_address_space(collector, tracked, hello->address_space_limit);
	return 0;
}

/* A pid that says hello again has begun another program. */
static void greet(struct hl_collector *collector, const struct hl_caller *caller,
		  const struct hl_hello *hello)
{
	struct hl_tracked *before = find_running(collector, caller->pid);
	/* Asked before the answer, after which the new program may end, too. */
	if (before && !hl_tracked_check_end(before))
		hl_tracked_set_end(before, HL_END_EXEC);
	int r = admit(collector, caller, hello, before);
	if (r < 0) {
		hl_reception_answer(caller, -r, -1, 0);
		warn_refused(collector, caller->pid, reason_of(-r));
	}
	if (before)
		finish_process(collector, before);
}

static bool is_wanted(const struct hl_collector *collector, const struct hl_caller *caller)
{
	return collector->begun &&
	       (collector->settings.region.follow || caller->pid == collector->program);
}

static void on_waiting(struct hl_collector *collector, struct waiting *waiting)
{
	if (waiting->caller.fd < 0)
		return;
	struct hl_hello hello;
	int r = hl_reception_read_hello(&collector->reception, &waiting->caller, &hello);
	if (r == -EAGAIN)
		return;
	if (r < 0)
		collector->strangers++;
	else if (is_wanted(collector, &waiting->caller))
		greet(collector, &waiting->caller, &hello);
	else
		hl_reception_answer(&waiting->caller, EPERM, -1, 0);
	stop_waiting(waiting);
}

static struct waiting *free_place(struct hl_collector *collector)
{
	for (int i = 0; i < WAITING_MAX; i++)
		if (collector->waiting[i].caller.fd < 0)
			return &collector->waiting[i];
	return NULL;
}

static void let_wait(struct hl_collector *collector, struct hl_caller caller)
{
	struct waiting *place = free_place(collector);
	uint64_t index = place ? (uint64_t)(place - collector->waiting) : 0;
	if (!place || watch(collector, caller.fd, EVENT_WAITING + index) < 0) {
		close(caller.fd);
		warn_refused(collector, caller.pid, reason_of(EPIPE));
		return;
	}
	place->caller = caller;
	place->deadline_ns = hl_clock_ns(CLOCK_MONOTONIC) + HL_HELLO_WAIT_MS * UINT64_C(1000000);
	on_waiting(collector, place);
}

static void on_socket(struct hl_collector *collector)
{
	struct hl_caller caller;
	int r = hl_reception_accept(&collector->reception, &caller);
	if (r == 0) {
		let_wait(collector, caller);
	} else if (r == -EPERM) {
		collector->strangers++;
	} else if (r == -EMFILE) {
		hl_archive_warn(&collector->archive,
				"a process was not recorded: the collector ran out of file "
				"descriptors (see ulimit -n)");
		collector->summary.refused++;
	}
}

static void drop_late_callers(struct hl_collector *collector, uint64_t now_ns)
{
	for (int i = 0; i < WAITING_MAX; i++) {
		struct waiting *waiting = &collector->waiting[i];
		if (waiting->caller.fd < 0 || waiting->deadline_ns > now_ns)
			continue;
		collector->strangers++;
		stop_waiting(waiting);
	}
}

/* ---- the second ---- */

/* Saves what has changed; tries ended processes again. */
static bool save_changed(struct hl_collector *collector)
{
	bool any = false;
	for (struct hl_tracked *it = collector->tracked, *next; it; it = next) {
		next = it->next; /* save_last frees it */
		if (!it->end_ns)
			hl_tracked_look(it);
		if (it->end_ns)
			any |= save_last(collector, it) == 0;
		else if (hl_tracked_has_begun(it) && hl_tracked_has_changed(it))
			any |= hl_archive_save(&collector->archive, it, false) == 0;
	}
	return any;
}

/* Logs must not go on in a directory that has been deleted. */
static void move_logs(struct hl_collector *collector)
{
	if (collector->revivals_seen == collector->archive.revivals)
		return;
	collector->revivals_seen = collector->archive.revivals;
	for (struct hl_tracked *it = collector->tracked; it; it = it->next)
		if (it->log)
			hl_drain_thread_move(it->log, collector->archive.directory.fd);
}

static void on_second(struct hl_collector *collector)
{
	uint64_t expirations;
	if (read(collector->timer_fd, &expirations, sizeof(expirations)) < 0)
		return;
	uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);
	drop_late_callers(collector, now_ns);
	if (now_ns < collector->next_save_ns)
		return;
	uint64_t cpu_ns = hl_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	hl_archive_set_unrecorded(&collector->archive,
				  hl_unrecorded_steady(&collector->unrecorded, collector->tracked));
	if (save_changed(collector) || collector->archive.meta_is_stale)
		hl_archive_save_meta(&collector->archive, false);
	move_logs(collector);
	cpu_ns = hl_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
	collector->next_save_ns = now_ns + SAVE_SHARE * cpu_ns;
}

/* ---- events ---- */

static void on_event(struct hl_collector *collector, uint64_t cookie)
{
	if (cookie >= EVENT_TRACKED)
		on_process(collector, cookie - EVENT_TRACKED);
	else if (cookie >= EVENT_WAITING)
		on_waiting(collector, &collector->waiting[cookie - EVENT_WAITING]);
	else if (cookie == EVENT_CONTROL)
		hl_control_dispatch(collector->control);
	else if (cookie == EVENT_TIMER)
		on_second(collector);
	else
		on_socket(collector);
}

void hl_collector_dispatch(struct hl_collector *collector)
{
	struct epoll_event event;
	/* One at a time: what one event frees, another of the same batch might name. */
	for (int i = 0; i < EVENTS_PER_DISPATCH; i++) {
		if (epoll_wait(collector->epoll_fd, &event, 1, 0) != 1)
			return;
		on_event(collector, event.data.u64);
	}
}

/* ---- the end ---- */

static void close_running(struct hl_collector *collector)
{
	for (struct hl_tracked *it = collector->tracked; it; it = it->next) {
		if (hl_tracked_check_end(it))
			continue;
		/* From here on nobody reads rings: they must not be waited for. */
		atomic_fetch_or(&it->region.header->flags, HL_REGION_LOSSY);
		atomic_fetch_and(&it->region.header->flags, ~(uint32_t)HL_REGION_FOLLOW);
		hl_mode_switch(&it->region.header->mode, HL_MODE_CLOSED);
		hl_mailbox_close(&it->mailbox);
		hl_tracked_set_end(it, HL_END_RUNNING);
		collector->summary.running += it->end == HL_END_RUNNING;
	}
}

static void save_all(struct hl_collector *collector)
{
	for (struct hl_tracked *it = collector->tracked, *next; it; it = next) {
		next = it->next;
		if (save_last(collector, it) < 0)
			give_up_saving(collector, it);
	}
}

static void warn_of_strangers(struct hl_collector *collector)
{
	char sentence[160];
	if (!collector->strangers)
		return;
	snprintf(sentence, sizeof(sentence),
		 "turned away %u time%s a process of another user, or one that is no recorder of "
		 "this "
		 "recording",
		 collector->strangers, collector->strangers == 1 ? "" : "s");
	hl_archive_warn(&collector->archive, sentence);
}

void hl_collector_finish(struct hl_collector *collector, struct hl_collector_summary *ret_summary)
{
	struct hl_collector_summary *summary = &collector->summary;
	hl_collector_dispatch(collector);
	hl_reception_release(&collector->reception);
	if (collector->control)
		hl_control_close(collector->control);
	close_running(collector);
	save_all(collector);
	summary->unrecorded_children =
		hl_unrecorded_count(&collector->unrecorded, collector->tracked);
	hl_archive_set_unrecorded(&collector->archive, summary->unrecorded_children);
	warn_of_strangers(collector);
	if (hl_archive_save_meta(&collector->archive, true) < 0)
		summary->incomplete = true;
	if (summary->incomplete)
		summary->failure = collector->archive.failure.text;
	summary->warnings = collector->archive.warnings.texts;
	*ret_summary = *summary;
}
