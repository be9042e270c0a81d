/* SPDX-License-Identifier: BSD-2-Clause */
/* Resident bytes of running processes as parts of their recordings; see resident_fill.h. */
#include "cli/resident_fill.h"

#include "base/cleanup.h"
#include "heap/owners/block_owners.h"
#include "heap/owners/resident.h"
#include "recording/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ${ids}: the node of each stack. */
static int copy(const struct hl_resident *resident, const uint32_t *ids,
		struct hl_recording_process *process)
{
	process->resident = calloc(process->node_count + (size_t)1, sizeof(*process->resident));
	if (!process->resident)
		return -ENOMEM;
	for (size_t number = 0; number < resident->stack_count; number++) {
		const struct hl_resident_bytes *bytes = &resident->stacks[number];
		if (!ids[number])
			process->resident_unknown_bytes += bytes->resident;
		else if (bytes->resident || bytes->swapped)
			process->resident[process->resident_count++] =
				(struct hl_recording_resident){ids[number], bytes->resident,
							       bytes->swapped};
	}
	process->resident_is_mean = resident->sizes_are_means;
	process->knows_resident = true;
	return 0;
}

/* -ESRCH, too, when another program has the number, or the place, of ${process} by now. */
static int fill_process(struct hl_recording_process *process, struct hl_error *err)
{
	const struct hl_heap_settings settings = {0};
	struct hl_resident *resident = NULL;
	int r = hl_resident_read((pid_t)process->pid, &settings, &resident, err);

	if (r < 0)
		return r;
	HL_FREED uint32_t *ids = calloc(resident->stack_count, sizeof(*ids));
	if (!ids)
		r = -ENOMEM;
	else if (!hl_block_owners_match(resident->owners, process->nodes, process->node_count, ids))
		r = -ESRCH;
	if (r == 0)
		r = copy(resident, ids, process);
	hl_resident_free(resident);
	return r == -ENOMEM ? hl_error_set(err, r, "out of memory") : r;
}

int hl_resident_fill(struct hl_recording *recording, struct hl_error *err)
{
	int r = 0;

	for (uint32_t i = 0; i < recording->process_count && r == 0; i++) {
		struct hl_recording_process *process = &recording->processes[i];
		struct hl_error why = {0};
		if (process->complete || process->knows_resident)
			continue;
		r = fill_process(process, &why);
		if (r < 0 && r != -ESRCH)
			return hl_error_set(err, r, "cannot tell what is in RAM: %s", why.text);
		r = 0;
	}
	return r;
}

int hl_resident_fill_snapshot(const char *path, struct hl_error *err)
{
	struct hl_recording *recording = NULL;
	int r = hl_recording_open(path, &recording, err);

	if (r == 0)
		r = hl_resident_fill(recording, err);
	HL_CLOSED int directory = r < 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r == 0 && directory < 0)
		r = hl_error_set(err, -errno, "cannot open '%s': %s", path, strerror(errno));
	for (uint32_t i = 0; r == 0 && i < recording->process_count; i++)
		if (recording->processes[i].knows_resident)
			r = hl_recording_write_process(directory, &recording->processes[i], err);
	hl_recording_free(recording);
	return r;
}

static int fill_running(struct hl_recording_filler *filler, struct hl_recording *recording,
			struct hl_error *err)
{
	(void)filler;
	return recording->running ? hl_resident_fill(recording, err) : 0;
}

struct hl_recording_filler hl_resident_filler = {.fill = fill_running};
