/* SPDX-License-Identifier: BSD-2-Clause */
/* The control groups that 'heapline watch' watches: found, looked at in time, forgotten when they have gone. */
#pragma once

#include "base/error.h"
#include "process/cgroup.h"
#include "watch/alarm.h"
#include "watch/trigger.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is known of a level of a group that has a limit: its page cache and what has fired are its own. */
struct hl_watch_level {
	struct hl_watch_trigger trigger;
	struct hl_watch_alarm alarm;
	uint64_t stat_ns, stat_wait_ns; /* when its page cache is read again */
	int64_t cache;			/* page cache when that was read */
	uint64_t limit, usage;
};

struct hl_watch_group {
	char *path;	/* its directory */
	size_t name_at; /* where in it the name below the mount begins */
	uint64_t inode; /* of the directory: its identity in the kernel */
	struct hl_cgroup_gauge gauge;
	struct hl_watch_level levels[HL_CGROUP_LEVELS_MAX]; /* those of ${gauge} */
	struct hl_watch_level
		*worst; /* uses the largest share of its limit, or of those that fire; never NULL */
	uint64_t next_ns;     /* of the next look */
	uint64_t rearm_ns;    /* when its alarms are set again; 0: they are set */
	unsigned close_looks; /* that are to come soon after each other */
	uint64_t retry_ns;    /* no snapshot before: one has failed */
	int kill_file;	      /* which counts kills; -1: not open */
	uint64_t kills;
	bool is_found;	 /* by the scan that goes on */
	bool is_close;	 /* its next look is not to be late */
	bool is_pressed; /* by its last alarm */
	bool is_busy;	 /* a snapshot of it is being made */
	bool was_joined; /* a process of it is recorded, or was */
};

/* Zero-initialize, and set the settings. */
struct hl_watch_groups {
	const char *const *named; /* NULL-terminated paths; NULL: all groups that have a limit */
	double share;
	int epoll;	    /* of alarms */
	bool sees_passings; /* programs of the kernel see who passes a share of a limit */
	bool reads_kills;   /* the kernel does not report them otherwise */
	int descriptor_max; /* no new group above it, so that scans can go on; 0: no bound */
	struct hl_watch_group **groups;
	size_t count, capacity;
	unsigned scans;
	size_t left_out;	  /* by the last scan, for want of descriptors */
	struct hl_error no_alarm; /* the first that could not be set; "" */
};

/* What a look found. */
struct hl_watch_finding {
	enum hl_watch_cause cause;
	uint64_t new_kills;
};

/* The path below the mount. */
const char *hl_watch_group_name(const struct hl_watch_group *group);

/*
 * Finds the groups: those that are new are looked at from now on, those that have gone are freed unless they are busy. 0, or a negative errno with a
 * sentence: a named group that does not exist is -ENOENT if ${is_first}, else it is waited for.
 */
int hl_watch_groups_scan(struct hl_watch_groups *groups, bool is_first, struct hl_error *err);

/* Finds named groups that were made since; forgets none. */
void hl_watch_groups_find_new(struct hl_watch_groups *groups);

/* Takes in the data of an event of an alarm, or the inode of a group that comes near its limit: the group is looked at closely from now on. */
void hl_watch_groups_wake(struct hl_watch_groups *groups, uint64_t tag);

/* Looks at one whose time has come, and sets the time of the next look. */
struct hl_watch_finding hl_watch_group_look(const struct hl_watch_groups *groups,
					    struct hl_watch_group *group, uint64_t now_ns);

/* By the number that the kernel has for it; NULL. */
struct hl_watch_group *hl_watch_groups_find(const struct hl_watch_groups *groups, uint64_t inode);

void hl_watch_groups_release(struct hl_watch_groups *groups);
