/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline pod --growth: by which stacks, and for which files, a control group has come by the memory that it has gained.
 * Each page that its processes are given is noted with the stack; two scans of all pages say which are new, so that
 * what is freed need not be followed. Order: attach, scan, run, scan, detach. The total equals the growth of memory.current.
 */
#pragma once

#include "bpf/group_pages.h"
#include "bpf/trace.h"

struct hl_growth_settings {
	const struct hl_cgroup *group;
	/* Writes how people call ${file}, "/var/log/a", into ${name}. */
	void (*name_file)(void *context, const struct hl_group_file *file, char *name, size_t size);
	void *context;
};

/* Its settings are a struct hl_growth_settings. The process of its request is the group: pid 0, the group's name as its executable. */
extern const struct hl_trace_backend hl_growth_trace;
