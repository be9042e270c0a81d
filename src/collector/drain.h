/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What threads of the collector do for a process beside its saves: drain its rings, wait for its mailbox, watch
 * its budget of memory.
 */
#pragma once

#include "base/error.h"
#include "collector/directory.h"
#include "collector/region_read.h"
#include "log/events.h"
#include "log/log.h"
#include "log/log_writer.h"
#include "log/ring_reader.h"
#include "region/protocol.h"
#include "region/region.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* ---- drain ---- */

/*
 * Drains the event rings of one process into its log: reads them merged by time, finds the maximum
 * of each interval, writes segments. Everything here belongs to one thread, but for orders.
 *
 * The target waits when a ring of its own is full, for as long as header.tick moves. So whatever
 * is found in a ring, its room is given back.
 *
 * While the process is in a mode without a log, the log goes on with what the counters say once a
 * second; as soon as there are events again, it is put right from the counters.
 */

/* ---- orders ---- */

/*
 * What others want of the thread that drains a process and alone may touch its log: marks, and how
 * many segments are kept. Given from any thread, obeyed by that one.
 */

struct hl_drain_mark;

struct hl_drain_orders {
	pthread_mutex_t lock;
	atomic_bool any; /* so that looking for none costs nothing */
	struct hl_drain_mark *first, **end;
	uint32_t mark_count;
	uint32_t segments_kept; /* 0: as before */
	uint32_t lost_marks;
};

void hl_drain_orders_init(struct hl_drain_orders *orders);
void hl_drain_orders_release(struct hl_drain_orders *orders);

/* Notes ${text} for ${tick}. 0, -ENOMEM, or -EAGAIN when too many wait already. */
int hl_drain_orders_mark(struct hl_drain_orders *orders, uint64_t tick, const char *text);

void hl_drain_orders_keep(struct hl_drain_orders *orders, uint32_t segments);

/* Does what was ordered. Marks for which the log has no place yet wait; ${last}: they are lost. */
void hl_drain_orders_obey(struct hl_drain_orders *orders, struct hl_log_writer *writer, bool last);

/* ---- the drain ---- */

/* Events are read once their tick is this many ticks old: until then threads may write more. */
#define HL_DRAIN_LAG_TICKS 2

struct hl_drain;

struct hl_drain_settings {
	struct hl_region_view view;
	const char *executable; /* path of the main module; must stay */
	pid_t pid;
	uint32_t sequence;
	uint64_t start_realtime_ns; /* of tick 0 */
	int directory_fd;	    /* the recording's; stays the caller's */
	uint64_t segment_bytes;
	uint32_t segments_kept;
	bool events;			/* keep every event, too */
	struct hl_drain_orders *orders; /* NULL: there will be none */
	uint64_t first_tick; /* the log begins here, with what the counters say is in use; 0: with
				the process, and nothing */
};

/* 0 or a negative errno. Nothing is written before the recorder has taken its region. */
int hl_drain_new(const struct hl_drain_settings *settings, struct hl_drain **ret_drain);

/* It is ${tick} now: tells the recorder, reads events that are old enough, and ends intervals.
 * Whether there were any events, old enough or not. */
bool hl_drain_run(struct hl_drain *drain, uint64_t tick);

/*
 * After a run at ${tick}: tells the recorder that the next may be later than at the next tick. Then
 * waits until an event was written, hl_drain_wake() was called, or it is ${deadline}, of
 * CLOCK_MONOTONIC.
 */
void hl_drain_doze(struct hl_drain *drain, uint64_t tick, const struct timespec *deadline);

/* Ends a doze, and no other will begin; from any thread. */
void hl_drain_wake(struct hl_drain *drain);

/* From the next interval on the log goes to ${directory_fd}, which stays the caller's; from any
 * thread. */
void hl_drain_move(struct hl_drain *drain, int directory_fd);

/* Reads all that is left, ends the log at ${tick}, and frees the drain. */
void hl_drain_finish(struct hl_drain *drain, uint64_t tick, struct hl_log_losses *ret_losses);

/* ---- the thread ---- */

/*
 * The thread that drains the rings of one process, every millisecond. Each process has its own:
 * neither a save, which takes a tenth of a second and more where there are many nodes, nor another
 * process' load then makes a target wait for room.
 */

struct hl_drain_thread;

/*
 * Starts. ${start_ns} is the CLOCK_MONOTONIC of tick 0. 0 or a negative errno. What ${settings}
 * refer to must stay until the stop.
 */
int hl_drain_thread_start(const struct hl_drain_settings *settings, uint64_t start_ns,
			  struct hl_drain_thread **ret_thread);

/* See hl_drain_move(). */
void hl_drain_thread_move(struct hl_drain_thread *thread, int directory_fd);

/* Drains what is left, ends the log and the thread. */
void hl_drain_thread_stop(struct hl_drain_thread *thread, struct hl_log_losses *ret_losses);

/* ---- after lost events ---- */

/*
 * Puts a log right after it has lost events: what the counters say is in use, and the log does not,
 * is added to the interval that ends.
 *
 * While it is compared the program goes on. Each counter is read between two events of its thread,
 * as the ring's head tells, together with how far the ring was written then. Of the events that
 * are still unread in the rings those up to there are in the counters already, and are taken off.
 * So what the log says after it has read them is what the counters say: exactly, but for threads
 * that were found in the middle of an event for as long as they were looked at, for want of a
 * processor or of room in their rings. Their counters may lack that event, or have it too early, by
 * one event for each such thread; who re-bases once more later puts that right, too.
 */

struct hl_drain_rebase {
	const struct hl_region_view *view;
	const struct hl_ring_set *rings;    /* all that was read of them is in the intervals */
	const struct hl_log_writer *writer; /* up to the last interval */
	struct hl_intervals *intervals;	    /* the current one, about to be ended */
	struct hl_event_writer *events;	    /* NULL: events are not kept */
};

/* 0, with the number of threads of which an event may be wrong in ${ret_unsettled}; or -ENOMEM,
 * with the intervals unchanged or changed in part. Costs a pass over the counters. */
int hl_drain_rebase(const struct hl_drain_rebase *rebase, uint32_t *ret_unsettled);

/* ---- mailbox reader ---- */

/*
 * The collector's side of a program's mailbox. Never waits, and is bounded whatever the program's
 * own bugs write there.
 */

/* ---- bells ---- */

/*
 * A bell wakes the collector when a program has put something into its mailbox, so that nobody need look there
 * ten times a second. A thread sleeps on the bells of all mailboxes at once (futex_waitv of Linux 5.16).
 */

/* The kernel's limit, less the one that wakes the thread itself. */
#define HL_BELLS_MAX 127u

struct hl_bell;

/* 0 or a negative errno; -ENOSYS where the kernel is too old. Nothing is listened to yet. */
int hl_bell_new(struct hl_bell **ret_bell);

void hl_bell_free(struct hl_bell *bell); /* NULL is fine; waits for the thread's end */

/* Readable (poll) once a mailbox has been rung, and at most each HL_MAILBOX_POLL_MS. */
int hl_bell_fd(const struct hl_bell *bell);

/* To be called before the mailboxes are read: what is posted from here on rings again. */
void hl_bell_answer(struct hl_bell *bell);

/*
 * Listens to ${count} mailboxes, at most HL_BELLS_MAX, instead of those before. What one of them holds
 * already rings. A mailbox may be unmapped once it is not listened to any more. The first call starts a thread: 0 or a negative errno.
 */
int hl_bell_listen(struct hl_bell *bell, struct hl_mailbox *const *mailboxes, size_t count);

/* Does not listen to ${mailbox} any more, without a wake of the thread. */
void hl_bell_forget(struct hl_bell *bell, const struct hl_mailbox *mailbox);

/* ---- mailboxes ---- */

struct hl_mailbox_reader {
	struct hl_mailbox *mailbox;
	uint64_t next;	       /* number of the next mark */
	uint32_t log_segments; /* as last seen or set */
	bool report_taken;     /* between taking a report and ending it */
};

/* ${log_segments}: how many are kept, 0 when there is no log. */
void hl_mailbox_reader_init(struct hl_mailbox_reader *reader, struct hl_mailbox *mailbox,
			    uint32_t log_segments);

/*
 * Takes the next complete mark. ${last}: the program has ended, so that marks which are not
 * complete are passed over; else they are waited for, as marks have an order.
 */
bool hl_mailbox_reader_take_mark(struct hl_mailbox_reader *reader, bool last, uint64_t *ret_time_ns,
				 char ret_text[HL_MARK_MAX + 1]);

/* Whether the program wants another number of segments kept than was last seen or set. */
bool hl_mailbox_reader_take_segments(struct hl_mailbox_reader *reader, uint32_t *ret_segments);

/* From now on ${count} are kept, because somebody else than the program wants so. */
void hl_mailbox_reader_tell_segments(struct hl_mailbox_reader *reader, uint32_t count);

/* Takes a report that is asked for, which is to be ended. */
bool hl_mailbox_reader_take_report(struct hl_mailbox_reader *reader,
				   char ret_path[HL_REPORT_PATH_BYTES]);

/* Tells the program that its report is done: 0 or a negative errno. */
void hl_mailbox_reader_end_report(struct hl_mailbox_reader *reader, int error);

/* Tells the program that nobody listens from here on. */
void hl_mailbox_reader_close(struct hl_mailbox_reader *reader);

/* ---- budget ---- */

/*
 * Keeps recorders from being what a program is killed for: watches how much memory they use, and how much is
 * left to the control groups of their processes, and has them go on by samples before it is too late.
 *
 * Until then a recording is exact. HL_MODE_SAMPLED (region/region.h) says what the recorder does then: it gives back the
 * array of its block table, most of what it uses.
 */

struct hl_budget_settings {
	uint64_t most_bytes; /* of a recorder; 0: no bound but the group's */
	uint64_t
		most_percent; /* of the group's limit or, without one, of the machine's memory; instead of these bytes */
};

struct hl_cgroup;

struct hl_budget;	/* of a collector; thread-safe */
struct hl_budget_watch; /* of a process */

/* Why a recorder samples. */
struct hl_budget_verdict {
	uint64_t clock_ns;	/* CLOCK_MONOTONIC when it was told to */
	int64_t left, limit;	/* of the group then; limit 0: not for that reason */
	int64_t recorder_bytes; /* of the recorder then; 0: not for that reason */
};

/* NULL without memory. */
struct hl_budget *hl_budget_new(const struct hl_budget_settings *settings);
void hl_budget_free(struct hl_budget *budget); /* NULL is fine; after all watches */

/* Whether ${group} or one above it has a limit: most have none, and next to nothing is read of a process of such a group. */
bool hl_budget_sees_limit(struct hl_budget *budget, const struct hl_cgroup *group);

/* Looks at ${group}, that of ${pid} or NULL, before it is recorded; a limit may still be set later. NULL without memory. */
struct hl_budget_watch *hl_budget_watch_new(struct hl_budget *budget, pid_t pid,
					    const struct hl_cgroup *group);

/* For header.spare_sample_bytes: a compromise between what samples tell apart and the memory that they take. 0
 * without ${watch}. */
uint64_t hl_budget_sample_bytes(const struct hl_budget_watch *watch);

/* From here on ${header} is told, if need be at once; it must stay until hl_budget_watch_free(). ${watch}: NULL is fine. */
void hl_budget_begin(struct hl_budget_watch *watch, struct hl_region_header *header);

/* To be called once a second: looks at those that have no limit from here on, too. ${budget}: NULL is fine. */
void hl_budget_attend(struct hl_budget *budget);

/* Whether the recorder was told to sample. ${watch}: NULL is fine. */
bool hl_budget_has_told(struct hl_budget_watch *watch, struct hl_budget_verdict *ret_verdict);

void hl_budget_watch_free(struct hl_budget_watch *watch); /* NULL is fine */
