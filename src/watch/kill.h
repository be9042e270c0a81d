/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is kept of a kill: limit, groups, who asked for memory and who was killed, its memory by kind, its command line, and the stacks of both. The service writes
 * figures at once; names of stacks come from a child of it, which may end early.
 */
#pragma once

#include "bpf/oom_shared.h"
#include "watch/groups.h"
#include "watch/store.h"

struct hl_watch_kills; /* that are being written */

/* Both must live as long. ${say} gets a sentence about each kill that is kept, or cannot be. NULL without memory. */
struct hl_watch_kills *hl_watch_kills_new(struct hl_watch_store *store,
					  struct hl_watch_groups *groups,
					  void (*say)(const char *sentence));

/* Takes in a record of the kernel; kills in groups that are not watched, where groups are named, are left out. A named group may have been
 * made again: it is looked for. */
void hl_watch_kills_take(struct hl_watch_kills *kills, const struct hl_oom_record *record);

/* ${count} kills of ${group} of which nothing more is known, for the reason ${why}. */
void hl_watch_kills_take_unseen(struct hl_watch_kills *kills, const struct hl_watch_group *group,
				uint64_t count, const char *why);

/* Goes on with what is due or has ended. Whether something is still being written. */
bool hl_watch_kills_continue(struct hl_watch_kills *kills, uint64_t now_ns);

/* Ends what runs; figures that were written stay. NULL is fine. */
void hl_watch_kills_free(struct hl_watch_kills *kills);

/*
 * The frames of the thread of ${record}, innermost first, as "function file:line". ${maps_texts}: of /proc/PID/maps, for where the record has no mappings;
 * each may be NULL. ${pids}, ${count}: processes by whose roots the files may be found. NULL for want of memory.
 */
json_t *hl_watch_stack_name(const struct hl_oom_record *record, const char *const maps_texts[2],
			    const pid_t *pids, size_t count);
