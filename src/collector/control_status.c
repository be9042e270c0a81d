/* SPDX-License-Identifier: BSD-2-Clause */
/* Describes recordings that go on; see control_status.h. */
#include "collector/control_status.h"

#include "collector/region_figures.h"
#include "recording/fields.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *hl_control_write(json_t *object)
{
	char *text = object ? json_dumps(object, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
	char *line = NULL;
	json_decref(object);
	if (text && asprintf(&line, "%s\n", text) < 0)
		line = NULL;
	free(text);
	return line;
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

static int add_log(json_t *object, const struct hl_tracked *tracked, const struct log_files *files)
{
	if (!tracked->log)
		return 0;
	json_t *log = json_pack("{s:I, s:I, s:I}", "log_segments", (json_int_t)files->count,
				"log_segments_kept", (json_int_t)tracked->mailbox.log_segments,
				"log_bytes", (json_int_t)files->bytes);
	int r = log ? json_object_update(object, log) : -1;
	json_decref(log);
	return r;
}

/* ---- processes ---- */

static const char *mode_name(const struct hl_tracked *tracked)
{
	uint32_t mode = hl_mode_of(atomic_load(&tracked->region.header->mode));
	return mode < HL_MODE_COUNT ? hl_mode_names[mode] : "unknown";
}

/* Its command line in one text. */
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

static json_t *describe_process(const struct hl_tracked *tracked, const struct log_files *files)
{
	struct hl_region_view view = hl_tracked_view(tracked);
	struct hl_region_figures figures;
	hl_region_read_figures(&view, &figures);
	json_t *object = json_pack(
		"{s:i, s:i, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:I}", "pid",
		tracked->pid, "sequence", tracked->sequence, "command",
		command_of(tracked->identity.command), "mode", mode_name(tracked), "inuse_bytes",
		(json_int_t)figures.inuse_bytes, "inuse_objects", (json_int_t)figures.inuse_objects,
		"peak_bytes", (json_int_t)figures.peak_bytes, "stack_nodes",
		(json_int_t)figures.stack_nodes, "events",
		(json_int_t)(figures.alloc_objects + figures.free_objects), "lost_events",
		(json_int_t)figures.lost_events, "lost_log_events",
		(json_int_t)figures.lost_log_events, "damaged", tracked->totals.damaged, "ms",
		(json_int_t)hl_control_tick(tracked));
	if (object && add_log(object, tracked, files) < 0) {
		json_decref(object);
		return NULL;
	}
	return object;
}

/* Appends those that run; ${files} by place in the list. */
static int append_processes(json_t *array, const struct hl_tracked *tracked,
			    const struct log_files *files)
{
	int r = 0;
	for (; r == 0 && tracked; tracked = tracked->next, files++)
		if (hl_tracked_is_running(tracked))
			r = json_array_append_new(array, describe_process(tracked, files));
	return r;
}

static json_t *describe_processes(const struct hl_control_subject *subject)
{
	size_t count = 1;
	for (const struct hl_tracked *it = *subject->tracked; it; it = it->next)
		count++;
	struct log_files *files = calloc(count, sizeof(*files));
	json_t *array = json_array();
	int r = files && array ? 0 : -1;
	if (r == 0) {
		count_segments(subject, files);
		r = append_processes(array, *subject->tracked, files);
	}
	free(files);
	if (r == 0)
		return array;
	json_decref(array);
	return NULL;
}

/* ---- recordings ---- */

/* Whatever it was called when it began: whoever asks may be elsewhere. */
static json_t *path_of(const struct hl_archive *archive)
{
	char link[64], path[PATH_MAX];
	snprintf(link, sizeof(link), "/proc/self/fd/%d", archive->directory.fd);
	ssize_t length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return hl_text_to_json(archive->directory.path);
	path[length] = '\0';
	return hl_text_to_json(path);
}

static json_t *describe_recording(const struct hl_control_subject *subject)
{
	return json_pack("{s:i, s:o, s:o}", "collector", getpid(), "recording",
			 path_of(subject->archive), "command",
			 command_of(subject->archive->meta.command));
}

char *hl_control_whose(const struct hl_control_subject *subject, pid_t pid)
{
	json_t *object = describe_recording(subject);
	if (json_object_set_new(object, "recorded",
				json_boolean(hl_control_find(subject, pid) != NULL)) == 0)
		return hl_control_write(object);
	json_decref(object);
	return NULL;
}

char *hl_control_status(const struct hl_control_subject *subject)
{
	json_t *object = describe_recording(subject);
	json_t *rest = json_pack("{s:s, s:I, s:I, s:o}", "mode", hl_mode_names[*subject->mode],
				 "ended", (json_int_t)subject->archive->ended_files, "marks",
				 (json_int_t)subject->archive->meta.mark_count, "processes",
				 describe_processes(subject));
	int r = object && rest ? json_object_update(object, rest) : -1;
	json_decref(rest);
	if (r == 0)
		return hl_control_write(object);
	json_decref(object);
	return NULL;
}
