/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory control groups (containers, pods, units), of version 1 and 2: which one a process is in, what the
 * kernel charges it with, and who may use how much.
 *
 * Source: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
 */
#pragma once

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HL_CGROUP_UNKNOWN UINT64_MAX /* a figure that this kernel does not tell, or no limit */

struct hl_cgroup {
	int fd; /* its directory */
	bool is_v2;
	bool is_topmost;     /* of version 1: the kernel does not count its own memory to it */
	size_t mount_length; /* how much of ${path} is where the hierarchy is mounted */
	char path[PATH_MAX]; /* of the directory */
};

/* What it is charged with, its subgroups included, in bytes. */
struct hl_cgroup_figures {
	uint64_t usage;
	uint64_t peak;	/* or HL_CGROUP_UNKNOWN; since it was made or reset */
	uint64_t limit; /* the lowest of its own and of those above it; or HL_CGROUP_UNKNOWN */
	char limit_path[PATH_MAX]; /* whose limit it is, below the mount */
	uint64_t
		oom_kills; /* processes that it lost for want of memory, in version 1 without those of subgroups; or HL_CGROUP_UNKNOWN */
	uint64_t swap, swap_limit; /* on swap; or HL_CGROUP_UNKNOWN */
};

/*
 * Opens the group that memory of ${pid} is charged to: with version 2 the nearest one that has the
 * controller. 0, or a negative errno with a sentence: -ESRCH, -ENOENT where no group with the memory controller can
 * be seen from here. ${ret_group} is to be released.
 */
int hl_cgroup_open_of(pid_t pid, struct hl_cgroup *ret_group, struct hl_error *err);

/* The same of the group at ${path}: its directory, or its path as /proc/PID/cgroup has it. -EINVAL: it is no memory group. */
int hl_cgroup_open(const char *path, struct hl_cgroup *ret_group, struct hl_error *err);

void hl_cgroup_release(struct hl_cgroup *group);

/* As people call it: its path below the mount, "/" for the topmost one. */
const char *hl_cgroup_name(const struct hl_cgroup *group);

/* 0, or a negative errno with a sentence: -ENOENT where the group has gone. */
int hl_cgroup_read_figures(const struct hl_cgroup *group, struct hl_cgroup_figures *ret_figures,
			   struct hl_error *err);

/* oom_kills of these alone, which costs less. */
uint64_t hl_cgroup_oom_kills(const struct hl_cgroup *group);

/* Its own limit, of version 2 the lower one of memory.max and memory.high; HL_CGROUP_UNKNOWN without one. */
uint64_t hl_cgroup_own_limit(const struct hl_cgroup *group);

/* Gets a group, which is open until it returns. Other than 0 ends the walk and is its result. */
typedef int hl_cgroup_visit_fn(const struct hl_cgroup *group, void *context);

/* Calls ${visit} for each group that has the memory controller, those above first. 0, -ENOENT where none is mounted, or what ${visit} returned. */
int hl_cgroup_each(hl_cgroup_visit_fn *visit, void *context, struct hl_error *err);

/* What is left below the limits of a group and of those above it, for whoever asks again and again. Zero-initialize. */
#define HL_CGROUP_LEVELS_MAX 8u /* of more, those nearest to the group */

struct hl_cgroup_gauge {
	unsigned count;
	struct hl_cgroup_level {
		int directory, usage; /* descriptors */
		bool is_v2;
		uint64_t
			limit; /* of version 2 the lower one of memory.max and memory.high, above which it is throttled */
	} levels[HL_CGROUP_LEVELS_MAX]; /* those that have a limit */
};

/* Opens it, or opens it again, with the present limits. */
void hl_cgroup_gauge_open(struct hl_cgroup_gauge *gauge, const struct hl_cgroup *group);
void hl_cgroup_gauge_release(struct hl_cgroup_gauge *gauge);

/* The bytes that are left at one level; INT64_MAX where it has gone. */
int64_t hl_cgroup_level_left(const struct hl_cgroup_level *level);

/* Bytes of files in the page cache of a level, which the kernel takes back before it kills. */
int64_t hl_cgroup_level_cache(const struct hl_cgroup_level *level);

/* Reads its file ${name}, cut at ${capacity} - 1 bytes, with a NUL after. The length or a negative errno. */
ssize_t hl_cgroup_read(const struct hl_cgroup *group, const char *name, char *text,
		       size_t capacity);

/* The number after ${key} in the text of a file such as memory.stat. Whether there is one. */
bool hl_cgroup_find(const char *text, const char *key, uint64_t *ret_number);

/*
 * The processes in it and in its subgroups, rising, each once; to be freed. ${ret_strangers}: how many entries are of other PID
 * namespaces, which have no number here. 0, -ENOENT, -ENOMEM.
 */
int hl_cgroup_processes(const struct hl_cgroup *group, pid_t **ret_pids, size_t *ret_count,
			size_t *ret_strangers);
