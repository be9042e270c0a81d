/* SPDX-License-Identifier: BSD-2-Clause */
/* Keeps the recording's directory up to date; see tracked.h. */
#include "collector/tracked.h"

#include "base/array.h"
#include "base/clock.h"
#include "collector/collector.h"
#include "recording/recording_files.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int hl_archive_init(struct hl_archive *archive, const char *path, bool replace,
		    const struct hl_collector_settings *settings, struct hl_error *err)
{
	*archive = (struct hl_archive){.on_failure = settings->on_failure,
				       .on_failure_context = settings->on_failure_context};
	int r = hl_directory_init(&archive->directory, path, replace, err);
	if (r < 0)
		return r;
	uname(&archive->system);
	archive->start_ns = hl_clock_ns(CLOCK_MONOTONIC);
	archive->meta = (struct hl_recording){
		.tool_version = (char *)HL_VERSION,
		.command = settings->command,
		.host = archive->system.nodename,
		.kernel = archive->system.release,
		.mode = (char *)hl_mode_names[settings->region.mode],
		.sample_bytes = settings->region.sample_bytes,
		.no_scripts = settings->region.no_scripts,
		.start_realtime_ns = hl_clock_ns(CLOCK_REALTIME),
		.warnings = archive->warnings.texts,
	};
	hl_archive_save_meta(archive, false);
	return 0;
}

void hl_archive_release(struct hl_archive *archive)
{
	hl_directory_release(&archive->directory);
	hl_warnings_release(&archive->warnings);
	for (uint32_t i = 0; i < archive->meta.mark_count; i++)
		free(archive->meta.marks[i].name);
	free(archive->meta.marks);
	archive->meta.marks = NULL;
	archive->meta.mark_count = 0;
}

void hl_archive_keep(struct hl_archive *archive)
{
	hl_directory_keep(&archive->directory);
}

void hl_archive_remove(struct hl_archive *archive)
{
	hl_directory_remove(&archive->directory);
}

void hl_archive_warn_of_log(struct hl_archive *archive, pid_t pid,
			    const struct hl_log_losses *losses)
{
	if (hl_log_losses_tell(losses, pid, &archive->warnings))
		archive->meta_is_stale = true;
}

void hl_archive_warn(struct hl_archive *archive, const char *format, ...)
{
	char sentence[HL_WARNING_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	if (hl_warnings_add(&archive->warnings, "%s", sentence))
		archive->meta_is_stale = true;
}

void hl_archive_warn_instead(struct hl_archive *archive, const char *before, const char *sentence)
{
	if (hl_warnings_replace(&archive->warnings, before, sentence))
		archive->meta_is_stale = true;
}

void hl_archive_note_recorder(struct hl_archive *archive, int64_t bytes)
{
	static char name[] = "recorder_memory_bytes";

	if (bytes <= archive->recorder_memory.value)
		return;
	archive->recorder_memory = (struct hl_recording_figure){name, bytes};
	archive->meta.figures = &archive->recorder_memory;
	archive->meta.figure_count = 1;
	archive->meta_is_stale = true;
}

void hl_archive_set_unrecorded(struct hl_archive *archive, uint32_t children, uint32_t refused)
{
	archive->meta_is_stale |= archive->meta.unrecorded_children != children ||
				  archive->meta.refused_children != refused;
	archive->meta.unrecorded_children = children;
	archive->meta.refused_children = refused;
}

void hl_archive_note_mode(struct hl_archive *archive, enum hl_mode mode, bool all)
{
	const char *closed = hl_mode_names[HL_MODE_CLOSED];

	if (mode >= HL_MODE_COUNT || (!all && archive->meta.mode != closed) ||
	    hl_mode_names[mode] == closed || hl_mode_names[mode] == archive->meta.mode)
		return;
	archive->meta.mode = (char *)hl_mode_names[mode];
	archive->meta_is_stale = true;
}

int hl_archive_mark(struct hl_archive *archive, pid_t pid, uint64_t ms, const char *name)
{
	struct hl_recording *meta = &archive->meta;

	if (meta->mark_count == HL_RECORDING_MARKS_MAX)
		return -EAGAIN;
	char *copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	if (HL_ARRAY_APPEND(
		    meta->marks, meta->mark_count, archive->mark_capacity,
		    (struct hl_recording_mark){.pid = (uint32_t)pid, .ms = ms, .name = copy}) < 0) {
		free(copy);
		return -ENOMEM;
	}
	archive->meta_is_stale = true;
	return 0;
}

/* Whether it is worth another try. */
static bool revive(struct hl_archive *archive)
{
	if (hl_directory_revive(&archive->directory) <= 0)
		return false;
	hl_archive_warn(archive,
			"the recording's directory vanished while recording; %u processes that had "
			"ended by then are lost",
			archive->ended_files);
	archive->ended_files = 0;
	archive->revivals++;
	archive->meta_is_stale = true;
	return true;
}

/* Keeps the reason of a failed write for the end, and tells it in the recording. */
static int note(struct hl_archive *archive, int r, const struct hl_error *err)
{
	if (r < 0) {
		archive->failure = *err;
		hl_archive_warn(archive, "%s", err->text);
		if (!archive->is_failing && archive->on_failure)
			archive->on_failure(archive->on_failure_context, err->text);
	}
	archive->is_failing = r < 0;
	return r;
}

int hl_archive_save(struct hl_archive *archive, struct hl_tracked *tracked, bool last)
{
	struct hl_error err = {0};

	int r = hl_tracked_save(tracked, archive->directory.fd, last, &err);
	if (r < 0 && revive(archive)) {
		err = (struct hl_error){0};
		r = hl_tracked_save(tracked, archive->directory.fd, last, &err);
	}
	if (r == 0 && last) {
		archive->ended_files++;
		archive->meta_is_stale = true;
	}
	return note(archive, r, &err);
}

int hl_archive_save_meta(struct hl_archive *archive, bool complete)
{
	struct hl_error err = {0};

	archive->meta.duration_ns = hl_clock_ns(CLOCK_MONOTONIC) - archive->start_ns;
	archive->meta.complete = complete;
	archive->meta.ended_processes = archive->ended_files;
	if (complete)
		hl_directory_sync(&archive->directory);
	int r = hl_recording_write_meta(archive->directory.fd, &archive->meta, &err);
	if (r < 0 && revive(archive)) {
		err = (struct hl_error){0};
		r = hl_recording_write_meta(archive->directory.fd, &archive->meta, &err);
	}
	archive->meta_is_stale = r < 0;
	return note(archive, r, &err);
}

int hl_archive_touch_meta(const struct hl_archive *archive)
{
	return utimensat(archive->directory.fd, HL_META_FILE, NULL, 0) < 0 ? -errno : 0;
}
