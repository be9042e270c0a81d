/* SPDX-License-Identifier: BSD-2-Clause */
/* The public C API; see heapline.h. */
#include "heapline/heapline.h"

#include "recorder/recorder.h"

#include <errno.h>

static_assert((int)HL_CLOSED == (int)HL_MODE_CLOSED &&
		      (int)HL_MEM_RECORD == (int)HL_MODE_MEM_RECORD &&
		      (int)HL_MEM_FAST == (int)HL_MODE_MEM_FAST,
	      "the public modes are the region's");

static struct hl_region_header *running_region(void)
{
	struct hl_recorder *recorder = hl_recorder;
	if (!recorder ||
	    atomic_load_explicit(&recorder->phase, memory_order_acquire) != HL_PHASE_RUNNING)
		return NULL;
	return recorder->shared.header;
}

HL_EXPORT const char *hl_version(void)
{
	return HL_VERSION;
}

HL_EXPORT int hl_status_get(struct hl_status *status)
{
	if (status->size != sizeof(*status))
		return -EINVAL;
	*status = (struct hl_status){.size = sizeof(*status)};
	struct hl_region_header *header = running_region();
	if (!header)
		return 0;
	status->recording = 1;
	status->mode = (int32_t)atomic_load(&header->mode);
	status->sample_bytes = header->sample_bytes;
	status->inuse_bytes = atomic_load(&header->inuse_bytes);
	status->peak_bytes = atomic_load(&header->peak_mark);
	status->stack_nodes = atomic_load(&header->node_count);
	return 0;
}

HL_EXPORT int hl_mode_set(enum hl_recording_mode mode)
{
	struct hl_region_header *header = running_region();
	if (!header)
		return -ENOTCONN;
	uint32_t started = hl_recorder->start_mode;
	if (mode != HL_CLOSED && (uint32_t)mode != started)
		return -EINVAL;
	atomic_store(&header->mode, (uint32_t)mode);
	return 0;
}
