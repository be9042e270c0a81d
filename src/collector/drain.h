/* SPDX-License-Identifier: BSD-2-Clause */
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
#pragma once

#include "collector/region_read.h"
#include "collector/warnings.h"
#include "log/events.h"
#include "log/intervals.h"
#include "log/log_writer.h"
#include "log/ring_reader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

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
