/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether a control group kills; see memory_group.h. */
#include "collector/memory_group.h"

#include "process/cgroup.h"
#include "process/process.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB (1024.0 * 1024)

/* What the recorder needs at most: rings and stacks, and of the heap a quarter, where blocks are as small as they can be. */
#define BASE_BYTES (INT64_C(32) << 20)
#define HEAP_PARTS 4

struct hl_memory_group {
	struct hl_cgroup at;
	struct hl_cgroup_figures figures; /* when it was opened */
};

struct hl_memory_group *hl_memory_group_open(pid_t pid)
{
	struct hl_memory_group *group = calloc(1, sizeof(*group));

	if (!group)
		return NULL;
	if (hl_cgroup_open_of(pid, &group->at, NULL) == 0 &&
	    hl_cgroup_read_figures(&group->at, &group->figures, NULL) == 0)
		return group;
	hl_memory_group_free(group);
	return NULL;
}

bool hl_memory_group_describe_kill(const struct hl_memory_group *group, pid_t pid,
				   char sentence[HL_WARNING_BYTES])
{
	struct hl_cgroup_figures now;

	if (!group || group->figures.oom_kills == HL_CGROUP_UNKNOWN ||
	    hl_cgroup_read_figures(&group->at, &now, NULL) < 0 ||
	    now.oom_kills == HL_CGROUP_UNKNOWN || now.oom_kills <= group->figures.oom_kills)
		return false;
	uint64_t kills = now.oom_kills - group->figures.oom_kills;
	char limit[64] = "";
	if (now.limit != HL_CGROUP_UNKNOWN)
		snprintf(limit, sizeof(limit), ", whose limit is %.1f MiB",
			 (double)now.limit / MIB);
	snprintf(sentence, HL_WARNING_BYTES,
		 "process %d ended while the kernel killed %" PRIu64
		 " process%s of its control group for "
		 "want of memory: '%.200s'%s; the recorder's memory counts to the group, and "
		 "'--sample 512K' needs next to none",
		 pid, kills, kills == 1 ? "" : "es", hl_cgroup_name(&group->at), limit);
	return true;
}

bool hl_memory_group_describe_room(const struct hl_memory_group *group, pid_t pid,
				   char sentence[HL_WARNING_BYTES])
{
	const struct hl_cgroup_figures *figures = group ? &group->figures : NULL;

	if (!figures || figures->limit == HL_CGROUP_UNKNOWN)
		return false;
	int64_t left = (int64_t)figures->limit - (int64_t)figures->usage;
	int64_t need = BASE_BYTES + hl_process_status_read(pid).anonymous_bytes / HEAP_PARTS;
	if (left >= need)
		return false;
	snprintf(sentence, HL_WARNING_BYTES,
		 "the control group '%.200s' has %.1f MiB left of its limit of %.1f MiB, to which "
		 "the recorder's memory counts, about 26 bytes for each live block; before it is "
		 "full, the recording goes on by samples",
		 hl_cgroup_name(&group->at), (double)(left > 0 ? left : 0) / MIB,
		 (double)figures->limit / MIB);
	return true;
}

void hl_memory_group_free(struct hl_memory_group *group)
{
	if (!group)
		return;
	hl_cgroup_release(&group->at);
	free(group);
}
