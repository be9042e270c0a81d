/* SPDX-License-Identifier: BSD-2-Clause */
/* The public C API; see heapline.h. */
#define HL_WITHOUT_ANNOTATIONS /* those are for programs */
#include "heapline/heapline.h"

#include "base/clock.h"
#include "recorder/recorder.h"

#include <errno.h>
#include <string.h>
#include <time.h>

static_assert((int)HL_CLOSED == (int)HL_MODE_CLOSED &&
		      (int)HL_MEM_RECORD == (int)HL_MODE_MEM_RECORD &&
		      (int)HL_MEM_FAST == (int)HL_MODE_MEM_FAST &&
		      (int)HL_LOG_RECORD == (int)HL_MODE_LOG_RECORD &&
		      (int)HL_LOG_FAST == (int)HL_MODE_LOG_FAST,
	      "the public modes are the region's");
static_assert(HL_MARK_NAME_MAX == HL_MARK_MAX, "and so is the longest name");

/* What hl_status was before there were reports. */
#define STATUS_BYTES_AT_FIRST offsetof(struct hl_status, reports_asked)

static struct hl_region_header *running_region(void)
{
	struct hl_recorder *recorder = hl_recorder;

	return hl_recorder_is_running(recorder) ? recorder->region.header : NULL;
}

HL_EXPORT const char *hl_version(void)
{
	return HL_VERSION;
}

HL_EXPORT int hl_status_get(struct hl_status *status)
{
	size_t size = status ? status->size : 0;

	if (size != sizeof(*status) && size != STATUS_BYTES_AT_FIRST)
		return -EINVAL;
	struct hl_status found = {.size = size};
	struct hl_region_header *header = running_region();
	if (header) {
		found.recording = 1;
		found.mode = (int32_t)hl_mode_of(atomic_load(&header->mode));
		found.sample_bytes = header->sample_bytes;
		found.inuse_bytes = atomic_load(&header->inuse_bytes);
		found.peak_bytes = atomic_load(&header->peak_mark);
		found.stack_nodes = atomic_load(&header->node_count);
		/* Done before asked, so that none seems done before it was asked for. */
		found.reports_done = atomic_load(&header->mailbox.reports_done);
		found.report_result = atomic_load(&header->mailbox.report_error);
		found.reports_asked = atomic_load(&header->mailbox.reports_asked);
	}
	memcpy(status, &found, size);
	return 0;
}

HL_EXPORT int hl_mode_set(enum hl_recording_mode mode)
{
	struct hl_region_header *header = running_region();

	if (!header)
		return -ENOTCONN;
	if ((uint32_t)mode >= HL_MODE_COUNT)
		return -EINVAL;
	if (hl_mode_logs((enum hl_mode)mode) && !header->areas[HL_AREA_RINGS].capacity)
		return -EOPNOTSUPP;
	if (hl_mode_switch(&header->mode, (enum hl_mode)mode) == (enum hl_mode)mode)
		return 0;
	/* The figures over time show why they change. */
	char text[HL_MARK_MAX + 1] = HL_MODE_MARK;
	strcat(text, hl_mode_names[mode]);
	hl_mailbox_mark(&header->mailbox, hl_clock_ns(CLOCK_MONOTONIC), text);
	return 0;
}

HL_EXPORT int hl_mark(const char *name)
{
	struct hl_region_header *header = running_region();

	if (!name)
		return -EINVAL;
	return header ? hl_mailbox_mark(&header->mailbox, hl_clock_ns(CLOCK_MONOTONIC), name)
		      : -ENOTCONN;
}

HL_EXPORT int hl_report(const char *path)
{
	struct hl_region_header *header = running_region();

	if (!path)
		return -EINVAL;
	return header ? hl_mailbox_report(&header->mailbox, path) : -ENOTCONN;
}

HL_EXPORT int hl_log_segments_get(void)
{
	struct hl_region_header *header = running_region();

	return header ? hl_mailbox_segments(&header->mailbox) : -ENOTCONN;
}

HL_EXPORT int hl_log_segments_set(unsigned count)
{
	struct hl_region_header *header = running_region();

	return header ? hl_mailbox_set_segments(&header->mailbox, count) : -ENOTCONN;
}

/* ---- frames of scripts ---- */

static_assert(sizeof(struct hl_frame) == sizeof(struct hl_script_frame) &&
		      offsetof(struct hl_frame, at) == offsetof(struct hl_script_frame, at) &&
		      offsetof(struct hl_frame, is_entry) ==
			      offsetof(struct hl_script_frame, is_entry),
	      "the public frames are the recorder's");

/* Of the program, as it gave them. */
static struct hl_frame_provider providers[HL_SCRIPT_PROVIDERS_MAX];
static _Atomic uint32_t provider_count;

static uint32_t capture_frames(void *state, const struct hl_script_caller *caller,
			       struct hl_script_frame *frames, uint32_t max, bool *ret_truncated)
{
	const struct hl_frame_provider *it = state;
	const struct hl_frame_caller at = {caller->registers->pc, caller->registers->sp,
					   caller->registers->bp};
	int truncated = 0;

	uint32_t count = it->capture(it->state, &at, (struct hl_frame *)frames, max, &truncated);
	*ret_truncated = truncated != 0;
	return count;
}

static bool describe_frame(void *state, const struct hl_script_frame *frame,
			   struct hl_script_place *ret_place)
{
	const struct hl_frame_provider *it = state;
	struct hl_frame_place place = {0};

	if (!it->describe(it->state, (const struct hl_frame *)frame, &place))
		return false;
	*ret_place = (struct hl_script_place){
		.function = place.function ? place.function : "",
		.source = place.source ? place.source : "",
		.function_bytes = place.function ? place.function_bytes : 0,
		.source_bytes = place.source ? place.source_bytes : 0,
		.line = place.line,
		.first_line = place.first_line,
	};
	return true;
}

HL_EXPORT int hl_frame_provider_register(const struct hl_frame_provider *provider)
{
	if (!provider || provider->size != sizeof(*provider) || !provider->name ||
	    !provider->capture || !provider->describe)
		return -EINVAL;
	uint32_t place = atomic_fetch_add(&provider_count, 1);
	if (place >= HL_SCRIPT_PROVIDERS_MAX) {
		atomic_fetch_sub(&provider_count, 1);
		return -ENOSPC;
	}
	struct hl_frame_provider *copy = &providers[place];
	*copy = *provider;
	const struct hl_script_provider inner = {
		.name = copy->name,
		.capture = capture_frames,
		.describe = describe_frame,
		.state = copy,
		.eval_start = (uintptr_t)copy->eval_start,
		.eval_end = (uintptr_t)copy->eval_end,
		.text_start = (uintptr_t)copy->text_start,
		.text_end = (uintptr_t)copy->text_end,
	};
	return hl_script_register(&inner);
}

HL_EXPORT void hl_frame_function_freed(uint64_t function)
{
	hl_script_forget(function);
}

/* The tag shim, which keeps tags, comes before us where it is preloaded. */

HL_EXPORT int hl_tag_push(const char *name)
{
	(void)name;
	return -EOPNOTSUPP;
}

HL_EXPORT int hl_tag_pop(void)
{
	return -EOPNOTSUPP;
}
