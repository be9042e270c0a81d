/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Control groups whose balance is told to others again and again: those of recorded processes, and others that are asked for.
 * A container is one group: subgroups that it has made count to it.
 */
#pragma once

#include "serve/catalog.h"

/* Bytes, but for the last. -1: not known, or there is no such thing. */
enum hl_group_figure {
	HL_GROUP_USAGE,
	HL_GROUP_LIMIT, /* the lowest of its own and of those above it */
	HL_GROUP_WORKING_SET,
	HL_GROUP_RECLAIMABLE,
	HL_GROUP_UNRECLAIMABLE,
	HL_GROUP_ANONYMOUS,
	HL_GROUP_SHARED,
	HL_GROUP_CACHE,
	HL_GROUP_KERNEL,
	HL_GROUP_UNKNOWN,
	HL_GROUP_SWAP,
	HL_GROUP_RECORDER, /* heapline's own, of its recorded processes */
	HL_GROUP_OOM_KILLS,
	HL_GROUP_FIGURES,
};

/* As they are called: "usage_bytes"; and a sentence about each. */
extern const struct hl_group_figure_name {
	const char *name, *help;
} hl_group_figure_names[HL_GROUP_FIGURES];

struct hl_group {
	char *name; /* below the mount: "/kubepods.slice/..." */
	char *key; /* what /proc/PID/cgroup of its processes holds; NULL: none of them is recorded */
	char container[HL_SERVICE_CONTAINER_MAX], pod[HL_SERVICE_CONTAINER_MAX]; /* "": none */
	int64_t figures[HL_GROUP_FIGURES];
};

#define HL_GROUPS_MAX 256

struct hl_groups {
	struct hl_group *groups;
	size_t count, capacity;
	uint64_t *left; /* inodes of those of which there were too many */
	size_t left_out, left_capacity;
};

/* What is asked for beside groups of recorded processes, and those above them whose limit counts for them. Zero: nothing. */
struct hl_group_choice {
	const char *const *patterns; /* of names, or of directories; '*' stands for a '/', too */
	size_t count;
	bool containers; /* all that are named as runtimes name containers */
};

/* Reads them: from about ten small files for each group. 0 or -ENOMEM; to be released in any case. Thread-safe. */
int hl_groups_read(struct hl_groups *groups, const struct hl_catalog *catalog,
		   const struct hl_group_choice *choice);
/* Adds the group of one process. 0 or -ENOMEM. */
int hl_groups_add(struct hl_groups *groups, const struct hl_catalog_process *process);

void hl_groups_release(struct hl_groups *groups);
