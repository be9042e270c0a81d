/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Drains the event rings of one process into its log: reads them merged by time, finds the maximum
 * of each interval, writes segments. Everything here belongs to one thread; see drain_thread.h.
 *
 * The target waits when a ring of its own is full, for as long as header.tick moves. So whatever
 * is found in a ring, its room is given back.
 *
 * While the process is in a mode without a log, the log goes on with what the counters say once a
 * second; as soon as there are events again, it is put right from the counters (drain_rebase.h).
 */
#pragma once

#include "collector/drain_orders.h"
#include "collector/log_losses.h"
#include "collector/region_reader.h"

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

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
