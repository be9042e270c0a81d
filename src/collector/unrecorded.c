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

bool hl_unrecorded_was_expected(pid_t parent, const struct hl_tracked *tracked, bool is_orphan)
{
	if (tracked)
		return !tracked->is_another && !atomic_load(&tracked->region.header->kin.replacing);
	return is_orphan || has_region(parent);
}

/* "2 processes (4711, 4712) were not recorded: REASON". */
static void describe_refused(const struct hl_unrecorded *unrecorded, size_t place,
			     char sentence[256])
{
	const pid_t *pids = unrecorded->reasons[place].pids;
	uint32_t count = unrecorded->reasons[place].count;
	char list[64] = "";
	size_t used = 0;

	for (uint32_t i = 0; i < count && i < HL_UNRECORDED_PIDS; i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d", i ? ", " : "",
					 pids[i]);
	if (count == 1)
		snprintf(sentence, 256, "process %d was not recorded: %s", pids[0],
			 unrecorded->reasons[place].reason);
	else
		snprintf(sentence, 256, "%u processes (%s%s) were not recorded: %s", count, list,
			 count > HL_UNRECORDED_PIDS ? " ..." : "",
			 unrecorded->reasons[place].reason);
}

void hl_unrecorded_refuse(struct hl_unrecorded *unrecorded, struct hl_archive *archive, pid_t pid,
			  const char *reason)
{
	char before[256] = "", sentence[256];
	size_t i = 0;

	while (i < HL_UNRECORDED_REASONS && unrecorded->reasons[i].count &&
	       strcmp(unrecorded->reasons[i].reason, reason) != 0)
		i++;
	if (i == HL_UNRECORDED_REASONS) {
		hl_archive_warn(archive, "process %d was not recorded: %s", pid, reason);
		return;
	}
	if (unrecorded->reasons[i].count)
		describe_refused(unrecorded, i, before);
	snprintf(unrecorded->reasons[i].reason, sizeof(unrecorded->reasons[i].reason), "%s",
		 reason);
	if (unrecorded->reasons[i].count < HL_UNRECORDED_PIDS)
		unrecorded->reasons[i].pids[unrecorded->reasons[i].count] = pid;
	unrecorded->reasons[i].count++;
	describe_refused(unrecorded, i, sentence);
	hl_archive_warn_instead(archive, before, sentence);
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
	unrecorded->forked += plausible(&kin->unrecorded) +
			      plausible(&tracked->region.header->children.unrecorded);
	unrecorded->awaited += plausible(&kin->awaited);
}

static struct hl_unrecorded sum_up(const struct hl_unrecorded *unrecorded,
				   const struct hl_tracked *running)
{
	struct hl_unrecorded sum = *unrecorded;

	for (; running; running = running->next)
		hl_unrecorded_keep(&sum, running);
	return sum;
}

bool hl_unrecorded_are_awaited(const struct hl_unrecorded *unrecorded,
			       const struct hl_tracked *running)
{
	struct hl_unrecorded sum = sum_up(unrecorded, running);

	/* Together: a child whose parent had ended is told of as forked, and arrives as a program. */
	return sum.started + sum.awaited > sum.arrived + sum.fork_hellos;
}

uint32_t hl_unrecorded_count(const struct hl_unrecorded *unrecorded,
			     const struct hl_tracked *running)
{
	struct hl_unrecorded sum = sum_up(unrecorded, running);

	uint64_t missing = sum.started > sum.arrived ? sum.started - sum.arrived : 0;
	return (uint32_t)(missing + sum.forked);
}

uint32_t hl_unrecorded_steady(struct hl_unrecorded *unrecorded, const struct hl_tracked *running)
{
	uint32_t before = unrecorded->just_now;

	unrecorded->just_now = hl_unrecorded_count(unrecorded, running);
	return before < unrecorded->just_now ? before : unrecorded->just_now;
}
