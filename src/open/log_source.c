/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds logs, and what is known of their processes; see log_source.h. */
#include "open/log_source.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "log/log.h"
#include "log/log_files.h"
#include "recording/recording_files.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NS_PER_MS UINT64_C(1000000)

static int out_of_memory(const char *path, struct hl_error *err)
{
	return hl_error_set(err, -ENOMEM, "cannot read '%s': out of memory", path);
}

/* ---- processes that are known by their logs alone ---- */

/* Whether a log that begins at ${start_ns} cannot be of the recording, because it began before it or
 * after its end. Files of logs do not say more. */
static bool is_foreign(const struct hl_recording *recording, uint64_t start_ns)
{
	return start_ns < recording->start_realtime_ns ||
	       (recording->complete &&
		start_ns - recording->start_realtime_ns > recording->duration_ns);
}

static bool is_known(const struct hl_recording *recording, uint32_t sequence)
{
	for (uint32_t i = 0; i < recording->process_count; i++)
		if (recording->processes[i].sequence == sequence)
			return true;
	return false;
}

/* The first process of a recording is the one that 'record' was asked to run. */
static int add_process(struct hl_recording *recording, uint32_t sequence, const struct hl_log *log)
{
	const struct hl_log_point *last =
		log->point_count ? &log->points[log->point_count - 1] : NULL;
	size_t capacity = recording->process_count;
	struct hl_recording_process process = {
		.sequence = sequence,
		.executable = strdup(""),
		.command = hl_recording_copy_words(sequence == 0 ? recording->command : NULL),
		.start_realtime_ns = log->start_realtime_ns,
		.duration_ns = last ? (last->number + 1) * HL_INTERVAL_TICKS * NS_PER_MS : 0,
		.complete = true,
		.end = HL_END_UNKNOWN,
		.value_count = 1,
		.values = calloc(1, sizeof(*process.values)),
	};

	if (!process.executable || !process.command || !process.values ||
	    HL_ARRAY_RESERVE(recording->processes, capacity, recording->process_count + (size_t)1) <
		    0) {
		hl_recording_process_release(&process);
		return -ENOMEM;
	}
	if (!recording->start_realtime_ns) {
		recording->start_realtime_ns = process.start_realtime_ns;
		recording->duration_ns = process.duration_ns;
	}
	for (size_t i = 0; i < log->point_count; i++)
		if (log->points[i].max_bytes > process.values[0].peak_bytes)
			process.values[0].peak_bytes = log->points[i].max_bytes;
	recording->processes[recording->process_count++] = process;
	return 0;
}

static int by_sequence(const void *left, const void *right)
{
	const struct hl_recording_process *a = left, *b = right;

	return (a->sequence > b->sequence) - (a->sequence < b->sequence);
}

/* Adds the processes that have a log alone. A log that cannot be read is an error only if it is the
 * only one. */
static int add_processes(struct hl_log_source *source, struct hl_error *err)
{
	struct hl_recording *recording = source->log.recording;
	const struct hl_log_place *place = &source->log.place;
	uint32_t known = recording->process_count;
	bool has_meta = recording->start_realtime_ns != 0;
	struct hl_error why = {0};
	int failure = 0;

	for (size_t i = 0; i < place->file_count; i++) {
		const struct hl_log_file *file = &place->files[i];
		struct hl_log *log;
		if (file->kind != &hl_log_segments ||
		    (i && file[-1].kind == file->kind && file[-1].process == file->process) ||
		    is_known(recording, file->process))
			continue;
		int r = hl_log_open(place, file->process, NULL, &log, &why);
		if (r == 0) {
			r = has_meta && is_foreign(recording, log->start_realtime_ns)
				    ? hl_recording_warn(recording,
							"a process is left out: '%s' is of another "
							"recording",
							file->name)
				    : add_process(recording, file->process, log);
			hl_log_free(log);
		} else {
			failure = r;
		}
		if (r == -ENOMEM)
			return out_of_memory(place->path, err);
	}
	if (!recording->process_count && failure)
		return hl_error_set(err, failure, "%s", why.text);
	if (recording->process_count > known)
		qsort(recording->processes, recording->process_count, sizeof(*recording->processes),
		      by_sequence);
	return 0;
}

/* An empty recording, with a warning that says that it is not known what was recorded. */
static int make_recording(const char *path, struct hl_recording **ret_recording,
			  struct hl_error *err)
{
	struct hl_recording *recording = calloc(1, sizeof(*recording));

	if (!recording)
		return out_of_memory(path, err);
	recording->name = strdup(path);
	recording->tool_version = strdup("");
	recording->host = strdup("");
	recording->kernel = strdup("");
	recording->mode = strdup("");
	recording->complete = true;
	recording->warnings = calloc(2, sizeof(*recording->warnings));
	if (recording->warnings)
		recording->warnings[0] =
			strdup("there is no " HL_META_FILE " beside the log: what was run, in "
			       "which mode and where is not known");
	*ret_recording = recording;
	return recording->name && recording->tool_version && recording->host && recording->kernel &&
			       recording->mode && recording->warnings && recording->warnings[0]
		       ? 0
		       : out_of_memory(path, err);
}

/* ---- directories, packed recordings, segments ---- */

static int open_directory(struct hl_log_source *source, const char *path, struct hl_error *err)
{
	struct hl_error why = {0};

	int r = hl_recording_open(path, &source->log.recording, &why);
	if (r < 0 && r != -ENOENT)
		return hl_error_set(err, r, "%s", why.text);
	int opened = hl_log_place_open_directory(&source->log.place, path, err);
	if (opened < 0)
		return opened;
	/* Without a recording.hlm it may be segments that were copied. They come last in order. */
	const struct hl_log_place *place = &source->log.place;
	if (r == -ENOENT &&
	    (!place->file_count || place->files[place->file_count - 1].kind != &hl_log_segments))
		return hl_error_set(err, r, "%s", why.text);
	if (r == -ENOENT)
		r = make_recording(path, &source->log.recording, err);
	return r < 0 ? r : add_processes(source, err);
}

/* The recording in the directory of ${path}, if the segment belongs to it; else NULL. 0 or
 * -ENOMEM. */
static int open_neighbour(const char *path, const struct hl_segment_header *header,
			  struct hl_recording **ret_recording)
{
	struct hl_recording *recording;
	HL_FREED char *copy = strdup(path);

	int r = copy ? hl_recording_open(dirname(copy), &recording, NULL) : -ENOMEM;
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	bool is_foreign = false;
	for (uint32_t i = 0; i < recording->process_count; i++)
		if (recording->processes[i].sequence == header->process)
			is_foreign = recording->processes[i].start_realtime_ns !=
				     header->start_realtime_ns;
	if (is_foreign)
		hl_recording_free(recording);
	else
		*ret_recording = recording;
	return 0;
}

static int open_segment(struct hl_log_source *source, struct hl_input *input, struct hl_error *err)
{
	char name[HL_SEGMENT_NAME_MAX];
	struct hl_segment_header header;

	int r = hl_input_make_file(input, err);
	if (r < 0)
		return r;
	if (input->head_size < sizeof(header))
		return hl_error_set(err, -ENODATA, "cannot use '%s': it was cut off in its header",
				    input->name);
	memcpy(&header, input->head, sizeof(header));
	const char *wrong = hl_log_files_check_header(&hl_log_segments, header.process, &header);
	if (wrong)
		return hl_error_set(err, -EBADMSG, "cannot use '%s': %s", input->name, wrong);
	hl_log_files_name(&hl_log_segments, &header, name);
	r = hl_log_place_open_file(&source->log.place, input->fd, input->name);
	if (r == 0)
		r = hl_log_place_add(&source->log.place, name, 0, input->size);
	if (r == 0 && !input->is_stdin)
		r = open_neighbour(input->name, &header, &source->log.recording);
	if (r < 0)
		return hl_error_set(err, r, "cannot read '%s': %s", input->name, strerror(-r));
	if (!source->log.recording)
		r = make_recording(input->name, &source->log.recording, err);
	return r < 0 ? r : add_processes(source, err);
}

bool hl_log_source_is_segment(const struct hl_input *input)
{
	return hl_input_begins_with(input, HL_SEGMENT_MAGIC, strlen(HL_SEGMENT_MAGIC));
}

int hl_log_source_refuse_events(const char *name, struct hl_error *err)
{
	HL_FREED char *copy = strdup(name);
	const char *directory = copy ? dirname(copy) : "";
	char meta[PATH_MAX];

	snprintf(meta, sizeof(meta), "%s/" HL_META_FILE, directory);
	if (*directory && access(meta, F_OK) == 0)
		return hl_error_set(err, -EINVAL,
				    "cannot read '%s' alone: it holds events of a recording, which "
				    "'heapline events %s' reads",
				    name, directory);
	return hl_error_set(err, -EINVAL,
			    "cannot read '%s' alone: it holds events of a recording; put it back "
			    "beside " HL_META_FILE ", and give that directory to 'heapline events'",
			    name);
}

int hl_log_source_open_input(struct hl_log_source *source, struct hl_input *input,
			     struct hl_error *err)
{
	*source = HL_LOG_SOURCE_NONE;
	if (hl_pack_detect(input->head, input->head_size)) {
		int r = hl_input_make_file(input, err);
		if (r == 0)
			r = hl_pack_read(input->fd, input->name, NULL, &source->packed, err);
		if (r == 0)
			r = hl_pack_log_read(input->fd, input->name, source->packed, &source->log,
					     err);
		if (r == 0 && hl_known_names_init(&source->names, source->packed) < 0)
			r = out_of_memory(input->name, err);
		return r;
	}
	if (hl_log_source_is_segment(input))
		return open_segment(source, input, err);
	if (hl_input_begins_with(input, HL_EVENTS_MAGIC, strlen(HL_EVENTS_MAGIC)))
		return hl_log_source_refuse_events(input->name, err);
	return hl_error_set(err, -EINVAL,
			    "'%s' has no log: only recordings, packed or not, and segments of "
			    "logs, memlog-*.hll, can be shown over time",
			    input->name);
}

int hl_log_source_open(struct hl_log_source *source, const char *path, struct hl_error *err)
{
	HL_CLEANUP(hl_input_close) struct hl_input input = HL_INPUT_NONE;

	*source = HL_LOG_SOURCE_NONE;
	if (hl_input_is_directory(path))
		return open_directory(source, path, err);
	int r = hl_input_open(&input, path, err);
	return r < 0 ? r : hl_log_source_open_input(source, &input, err);
}

void hl_log_source_release(struct hl_log_source *source)
{
	hl_known_names_release(&source->names);
	hl_profile_free(source->packed);
	hl_pack_log_release(&source->log);
}
