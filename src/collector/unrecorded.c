/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts unrecorded children; see unrecorded.h. */
#include "collector/unrecorded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The most processes that Linux can have at once (PID_MAX_LIMIT). A program that wrote more into
 * its region overwrote it. */
#define CHILDREN_MAX (UINT32_C(1) << 22)

static bool is_below(pid_t pid, pid_t ancestor)
{
	while (pid > 1) {
		pid = (pid_t)hl_identity_parent(pid);
		if (pid == ancestor)
			return true;
	}
	return false;
}

/* Whether a region is mapped in it, even if only its parent's. True if its maps cannot be read. */
static bool has_region(pid_t pid)
{
	char path[32], *line = NULL;
	size_t capacity = 0;
	bool found = false;
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	FILE *maps = fopen(path, "re");
	if (!maps)
		return true;
	while (!found && getline(&line, &capacity, maps) > 0)
		found = strstr(line, "/memfd:heapline ");
	free(line);
	fclose(maps);
	return found;
}

bool hl_unrecorded_was_expected(pid_t parent, const struct hl_tracked *tracked)
{
	if (tracked)
		return !tracked->is_another && !atomic_load(&tracked->region.header->kin.replacing);
	/* Orphans have other parents than those that told of them: an ancestor of ours, or we. */
	return !is_below(parent, getpid()) || has_region(parent);
}

static uint32_t plausible(const _Atomic uint32_t *count)
{
	uint32_t value = atomic_load(count);
	return value <= CHILDREN_MAX ? value : 0;
}

void hl_unrecorded_keep(struct hl_unrecorded *unrecorded, const struct hl_tracked *tracked)
{
	const struct hl_region_kin *kin = &tracked->region.header->kin;
	unrecorded->started += plausible(&kin->started);
	unrecorded->forked += plausible(&kin->unrecorded);
}

uint32_t hl_unrecorded_count(const struct hl_unrecorded *unrecorded,
			     const struct hl_tracked *running)
{
	struct hl_unrecorded sum = *unrecorded;
	for (; running; running = running->next)
		hl_unrecorded_keep(&sum, running);
	uint64_t missing = sum.started > sum.arrived ? sum.started - sum.arrived : 0;
	return (uint32_t)(missing + sum.forked);
}

uint32_t hl_unrecorded_steady(struct hl_unrecorded *unrecorded, const struct hl_tracked *running)
{
	uint32_t before = unrecorded->just_now;
	unrecorded->just_now = hl_unrecorded_count(unrecorded, running);
	return before < unrecorded->just_now ? before : unrecorded->just_now;
}
