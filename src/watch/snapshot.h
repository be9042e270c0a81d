/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A snapshot of a group: what 'heapline pod' says of it, and what 'heap', 'allocations' and 'holders' say of its largest processes, as files of an
 * entry. Each is a program that runs beside the service: niced, first to be killed, bounded in time, memory and output.
 */
#pragma once

#include "watch/groups.h"
#include "watch/store.h"

#include <sys/types.h>

#define HL_WATCH_PROCESSES_MAX 2u

struct hl_watch_snapshot; /* that is being made */

/*
 * Begins a snapshot of ${group}, which stays until it is freed. ${may_stop}: processes may be stopped while they are read. 0 or a negative errno
 * with a sentence.
 */
int hl_watch_snapshot_begin(struct hl_watch_store *store, struct hl_watch_group *group,
			    enum hl_watch_cause cause, bool may_stop,
			    struct hl_watch_snapshot **ret_snapshot, struct hl_error *err);

/* Goes on where a program has ended or must end. 1, 0 when the snapshot is complete and in its place and its cause has fired, or a negative
 * errno with a sentence: then the cause may be tried again at ${retry_ns} of the group. */
int hl_watch_snapshot_continue(struct hl_watch_snapshot *snapshot, uint64_t now_ns,
			       struct hl_error *err);

/* The process that is largest; 0: none. */
pid_t hl_watch_snapshot_largest(const struct hl_watch_snapshot *snapshot);

/* Ends a program that runs, and removes what is not complete. NULL is fine. */
void hl_watch_snapshot_free(struct hl_watch_snapshot *snapshot);

/* Starts heapline with ${arguments} as such a program, with ${out} and ${complaints}; ${is_bounded}: in memory and output, too;
 * ${is_quick}: not niced. It ends with the service, by SIGINT unless it is bounded. 0 or a negative errno. */
int hl_watch_helper_start(char *const *arguments, int out, int complaints, bool is_bounded,
			  bool is_quick, pid_t *ret_pid);
