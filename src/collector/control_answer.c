/* SPDX-License-Identifier: BSD-2-Clause */
/* Describes recordings that go on; see control_actions.h. */
#include "collector/control_actions.h"

#include "collector/region_read.h"
#include "recording/fields.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *hl_control_answer_write(json_t *object)
{
	char *text = object ? json_dumps(object, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
	char *line = NULL;

	json_decref(object);
	if (text && asprintf(&line, "%s\n", text) < 0)
		line = NULL;
	free(text);
	return line;
}

char *hl_control_answer_error(const char *sentence)
{
	return hl_control_answer_write(json_pack("{s:o}", "error", hl_text_to_json(sentence)));
}

char *hl_control_answer_done(void)
{
	return hl_control_answer_write(json_pack("{s:b}", "done", 1));
}

/* ---- logs ---- */

/* The segments of a process' log that are on disk. */
struct log_files {
	uint32_t count;
	uint64_t bytes;
};

/* The place of a running process with a log in the list; -1: there is none of that sequence. */
static ssize_t place_of(const struct hl_tracked *tracked, uint32_t sequence)
{
	ssize_t place = 0;

	while (tracked && tracked->sequence != sequence) {
		tracked = tracked->next;
		place++;
	}
	return tracked && tracked->log ? place : -1;
}

/* Adds up the segments in the directory, by their processes' places in the list. */
static void count_segments(const struct hl_control_subject *subject, struct log_files *files)
{
	int directory_fd = subject->archive->directory.fd;
	int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	if (!stream) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (const struct dirent *entry; (entry = readdir(stream));) {
		struct stat status;
		uint32_t sequence;
		if (sscanf(entry->d_name, "memlog-%u-", &sequence) != 1)
			continue;
		ssize_t place = place_of(*subject->tracked, sequence);
		if (place < 0 ||
		    fstatat(directory_fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		files[place].count++;
		files[place].bytes += (uint64_t)status.st_size;
	}
	closedir(stream);
}

/* ---- processes ---- */

/* A command line as an array of texts. */
static json_t *command_of(char *const *command)
{
	json_t *array = json_array();

	for (; array && command && *command; command++)
		if (json_array_append_new(array, hl_text_to_json(*command)) < 0) {
			json_decref(array);
			return NULL;
		}
	return array;
}

static json_t *describe_process(struct hl_tracked *tracked, const struct log_files *files)
{
	struct hl_region_view view = hl_tracked_view(tracked);
	struct hl_region_figures figures;
	uint32_t mode = hl_mode_of(atomic_load(&tracked->region.header->mode));

	hl_region_figures_read(&view, &figures);
	hl_recorder_memory_look(&tracked->recorder_memory, tracked->pid, HL_RECORDER_MEMORY_ASKED);
	json_t *object = json_pack(
		"{s:i, s:i, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:I, s:I, s:I, "
		"s:I, s:I}",
		"pid", tracked->pid, "sequence", tracked->sequence, "command",
		command_of(tracked->identity.command), "mode",
		mode < HL_MODE_COUNT ? hl_mode_names[mode] : "unknown", "inuse_bytes",
		(json_int_t)figures.inuse_bytes, "inuse_objects", (json_int_t)figures.inuse_objects,
		"peak_bytes", (json_int_t)figures.peak_bytes, "stack_nodes",
		(json_int_t)figures.stack_nodes, "events", (json_int_t)figures.events,
		"lost_events", (json_int_t)figures.lost_events, "lost_log_events",
		(json_int_t)figures.lost_log_events, "damaged", tracked->totals.damaged, "ms",
		(json_int_t)hl_control_actions_tick(tracked), "alloc_bytes",
		(json_int_t)figures.alloc_bytes, "alloc_objects", (json_int_t)figures.alloc_objects,
		"free_bytes", (json_int_t)figures.free_bytes, "free_objects",
		(json_int_t)figures.free_objects, "recorder_bytes",
		(json_int_t)tracked->recorder_memory.bytes);
	if (!object || !tracked->log)
		return object;
	json_t *log = json_pack("{s:I, s:I, s:I}", "log_segments", (json_int_t)files->count,
				"log_segments_kept", (json_int_t)tracked->mailbox.log_segments,
				"log_bytes", (json_int_t)files->bytes);
	int r = log ? json_object_update(object, log) : -1;
	json_decref(log);
	if (r == 0)
		return object;
	json_decref(object);
	return NULL;
}

static json_t *describe_processes(const struct hl_control_subject *subject)
{
	size_t count = 1;

	for (const struct hl_tracked *process = *subject->tracked; process; process = process->next)
		count++;
	struct log_files *files = calloc(count, sizeof(*files));
	json_t *array = json_array();
	int r = files && array ? 0 : -1;
	if (r == 0) {
		const struct log_files *log = files;
		count_segments(subject, files);
		for (struct hl_tracked *process = *subject->tracked; r == 0 && process;
		     process = process->next, log++)
			if (hl_tracked_is_running(process))
				r = json_array_append_new(array, describe_process(process, log));
	}
	free(files);
	if (r == 0)
		return array;
	json_decref(array);
	return NULL;
}

/* ---- recordings ---- */

static json_t *describe_recording(const struct hl_control_subject *subject)
{
	const struct hl_archive *archive = subject->archive;
	char link[64], path[PATH_MAX];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", archive->directory.fd);
	/* Whatever it was called when it began: whoever asks may be elsewhere. */
	ssize_t length = readlink(link, path, sizeof(path) - 1);
	path[length < 0 ? 0 : length] = '\0';
	return json_pack("{s:i, s:o, s:o}", "collector", getpid(), "recording",
			 hl_text_to_json(length < 0 ? archive->directory.path : path), "command",
			 command_of(archive->meta.command));
}

char *hl_control_answer_whose(const struct hl_control_subject *subject, pid_t pid)
{
	json_t *object = describe_recording(subject);
	const struct hl_tracked *process = *subject->tracked;

	while (process && (process->pid != pid || !hl_tracked_is_running(process)))
		process = process->next;
	if (json_object_set_new(object, "recorded", json_boolean(process != NULL)) == 0)
		return hl_control_answer_write(object);
	json_decref(object);
	return NULL;
}

char *hl_control_answer_status(const struct hl_control_subject *subject)
{
	json_t *object = describe_recording(subject);
	json_t *rest = json_pack("{s:s, s:I, s:I, s:o}", "mode", hl_mode_names[*subject->mode],
				 "ended", (json_int_t)subject->archive->ended_files, "marks",
				 (json_int_t)subject->archive->meta.mark_count, "processes",
				 describe_processes(subject));
	int r = object && rest ? json_object_update(object, rest) : -1;

	json_decref(rest);
	if (r == 0)
		return hl_control_answer_write(object);
	json_decref(object);
	return NULL;
}
