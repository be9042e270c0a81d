/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds out what would harm a target; see heap_caution.h. */
#include "bpf/heap_caution.h"

#include "bpf/privilege.h"
#include "process/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

static bool overcommitment_is_forbidden(void)
{
	int policy = 0;
	FILE *file = fopen("/proc/sys/vm/overcommit_memory", "re");

	if (!file)
		return false;
	bool forbidden = fscanf(file, "%d", &policy) == 1 && policy == 2;
	fclose(file);
	return forbidden;
}

static bool has_limit(pid_t pid, enum __rlimit_resource resource)
{
	struct rlimit limit;

	return prlimit(pid, resource, NULL, &limit) < 0 || limit.rlim_cur != RLIM_INFINITY;
}

bool hl_caution_memory_is_limited(pid_t pid)
{
	return overcommitment_is_forbidden() || has_limit(pid, RLIMIT_AS) ||
	       has_limit(pid, RLIMIT_DATA);
}

uint64_t hl_caution_request_max(void)
{
	struct sysinfo system;

	if (sysinfo(&system) < 0)
		return 0;
	return ((uint64_t)system.totalram + system.totalswap) * system.mem_unit;
}

static bool thread_has_filter(pid_t pid, pid_t tid)
{
	char path[64], line[256];
	int mode = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
	FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Seccomp: %d", &mode) == 1)
			break;
	if (file)
		fclose(file);
	return mode != 0;
}

static bool has_filter(pid_t pid)
{
	struct hl_process_thread *threads = NULL;
	size_t count = 0;
	bool found = false;

	if (hl_process_threads(pid, &threads, &count) < 0)
		return thread_has_filter(pid, pid);
	for (size_t i = 0; i < count && !found; i++)
		found = thread_has_filter(pid, threads[i].tid);
	free(threads);
	return found;
}

int hl_caution_check_returns(pid_t pid, struct hl_error *err)
{
	struct hl_privileges system;

	hl_privileges_read(&system);
	if (system.kernel_major != 6 || system.kernel_minor < 11 || system.kernel_minor > 13 ||
	    !has_filter(pid))
		return 0;
	return hl_error_set(
		err, -ENOTSUP,
		"cannot watch process '%d': it has a seccomp filter, and Linux 6.%u "
		"would end it for returning from a function that is watched; use --all, "
		"which watches none return, or a kernel from 6.14 on",
		(int)pid, system.kernel_minor);
}
