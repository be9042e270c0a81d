/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists what there is to serve; see catalog.h. */
#include "serve/catalog.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "collector/control_ask.h"
#include "process/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STATUS_WAIT_NS	 (2 * HL_NS_PER_SECOND)
#define RECORDINGS_MAX	 1000 /* older ones are counted as left out */
#define RECORDING_SUFFIX ".hl"

/* ---- recordings ---- */

/* Takes over ${path}. 0 or -ENOMEM. */
static int add_recording(struct hl_catalog *catalog, char *path, pid_t collector,
			 const struct stat *status)
{
	HL_FREED char *owned_path = path;
	HL_FREED char *name = strdup(hl_path_basename(path));

	if (!name || HL_ARRAY_RESERVE(catalog->recordings, catalog->recording_capacity,
				      catalog->recording_count + 1) < 0)
		return -ENOMEM;
	catalog->recordings[catalog->recording_count++] = (struct hl_catalog_recording){
		.name = HL_TAKE(name),
		.path = HL_TAKE(owned_path),
		.collector = collector,
		.changed_s = status->st_mtim.tv_sec,
		.device = status->st_dev,
		.inode = status->st_ino,
	};
	return 0;
}

static int by_name(const void *left, const void *right)
{
	const struct hl_catalog_recording *const *a = left, *const *b = right;

	return strcmp((*a)->name, (*b)->name);
}

static int add_number(struct hl_catalog_recording *recording)
{
	char *name;

	if (asprintf(&name, "%s~%" PRIx64, recording->name,
		     (uint64_t)recording->device << 32 ^ recording->inode) < 0)
		return -ENOMEM;
	free(recording->name);
	recording->name = name;
	return 0;
}

/* Adds to each name that several have a number, which is the file's own: it stays, whatever else comes and goes. */
static int tell_apart(struct hl_catalog *catalog)
{
	size_t count = catalog->recording_count, end;
	HL_FREED struct hl_catalog_recording **sorted = calloc(count + 1, sizeof(*sorted));
	int r = sorted ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < count; i++)
		sorted[i] = &catalog->recordings[i];
	if (r == 0)
		qsort(sorted, count, sizeof(*sorted), by_name);
	for (size_t i = 0; r == 0 && i < count; i = end) {
		for (end = i + 1; end < count && by_name(&sorted[i], &sorted[end]) == 0;)
			end++;
		for (size_t k = i; r == 0 && end > i + 1 && k < end; k++)
			r = add_number(sorted[k]);
	}
	return r;
}

/* Whether one that goes on is the one at ${status}. */
static bool is_live(const struct hl_catalog *catalog, const struct stat *status)
{
	for (size_t i = 0; i < catalog->recording_count; i++)
		if (catalog->recordings[i].collector &&
		    catalog->recordings[i].device == status->st_dev &&
		    catalog->recordings[i].inode == status->st_ino)
			return true;
	return false;
}

static bool is_recordings_name(const char *name)
{
	size_t length = strlen(name), suffix = strlen(RECORDING_SUFFIX);

	return name[0] != '.' && length > suffix &&
	       strcmp(name + length - suffix, RECORDING_SUFFIX) == 0;
}

static int add_directory(struct hl_catalog *catalog, const char *directory)
{
	DIR *stream = opendir(directory);
	int r = 0;

	for (const struct dirent *entry; stream && r == 0 && (entry = readdir(stream));) {
		struct stat status;
		char *path;
		/* A link would lead out of the directory. */
		if (!is_recordings_name(entry->d_name) ||
		    fstatat(dirfd(stream), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
		    (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode)) ||
		    is_live(catalog, &status))
			continue;
		r = asprintf(&path, "%s/%s", directory, entry->d_name) < 0
			    ? -ENOMEM
			    : add_recording(catalog, path, 0, &status);
	}
	if (stream)
		closedir(stream);
	return r;
}

/* ---- processes ---- */

static int64_t number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static int add_process(struct hl_catalog *catalog, const json_t *from)
{
	const char *mode = json_string_value(json_object_get(from, "mode"));
	pid_t pid = (pid_t)number(from, "pid");
	struct hl_catalog_process process = {
		.pid = pid,
		.recording = (uint32_t)catalog->recording_count - 1,
		.sequence = (uint32_t)number(from, "sequence"),
		.command = hl_control_ask_words(json_object_get(from, "command")),
		.ms = number(from, "ms"),
		.inuse_bytes = number(from, "inuse_bytes"),
		.inuse_objects = number(from, "inuse_objects"),
		.peak_bytes = number(from, "peak_bytes"),
		.alloc_bytes = number(from, "alloc_bytes"),
		.alloc_objects = number(from, "alloc_objects"),
		.free_bytes = number(from, "free_bytes"),
		.free_objects = number(from, "free_objects"),
		.lost_events = number(from, "lost_events"),
		.lost_log_events = number(from, "lost_log_events"),
		.region_bytes = number(from, "region_bytes"),
		.rss_bytes = hl_process_status_read(pid).rss_bytes,
		.cached_bytes = -1,
		.retained_bytes = -1,
	};

	snprintf(process.mode, sizeof(process.mode), "%s", mode ? mode : "");
	if (!process.command || HL_ARRAY_APPEND(catalog->processes, catalog->process_count,
						catalog->process_capacity, process) < 0) {
		free(process.command);
		return -ENOMEM;
	}
	return 0;
}

/* One that has ended, or does not answer, is left out. */
static int add_collector(struct hl_catalog *catalog, struct hl_control_peer *peer)
{
	const struct hl_control_request request = {.verb = HL_CONTROL_STATUS};
	struct stat status;
	json_t *answer;
	const json_t *process;
	size_t i;

	peer->wait_ns = STATUS_WAIT_NS;
	if (stat(peer->recording, &status) < 0 || hl_control_ask(peer, &request, &answer, NULL) < 0)
		return 0;
	char *path = strdup(peer->recording);
	int r = path ? add_recording(catalog, path, peer->pid, &status) : -ENOMEM;
	json_array_foreach(json_object_get(answer, "processes"), i, process) if (r == 0) r =
		add_process(catalog, process);
	json_decref(answer);
	return r;
}

/* ---- all of it ---- */

static int newest_first(const void *left, const void *right)
{
	const struct hl_catalog_recording *a = left, *b = right;

	if (a->changed_s != b->changed_s)
		return a->changed_s < b->changed_s ? 1 : -1;
	return strcmp(a->path, b->path);
}

/* The newest stay. */
static void leave_out(struct hl_catalog *catalog, size_t first)
{
	for (; catalog->recording_count > first; catalog->left_out++) {
		struct hl_catalog_recording *last =
			&catalog->recordings[--catalog->recording_count];
		free(last->name);
		free(last->path);
	}
}

int hl_catalog_read(struct hl_catalog *catalog, const char *const *directories, size_t count)
{
	HL_CLEANUP(hl_control_ask_release) struct hl_control_peers peers;

	*catalog = (struct hl_catalog){0};
	int r = hl_control_ask_list(&peers);
	for (size_t i = 0; r == 0 && i < peers.count; i++)
		r = add_collector(catalog, &peers.peers[i]);
	/* Processes name those that go on by their place, which they keep. */
	size_t live = catalog->recording_count;
	for (size_t i = 0; r == 0 && i < count; i++)
		r = add_directory(catalog, directories[i]);
	if (r == 0)
		r = tell_apart(catalog);
	if (r == 0 && catalog->recording_count > live)
		qsort(catalog->recordings + live, catalog->recording_count - live,
		      sizeof(*catalog->recordings), newest_first);
	if (r == 0)
		leave_out(catalog, live > RECORDINGS_MAX ? live : RECORDINGS_MAX);
	return r;
}

void hl_catalog_release(struct hl_catalog *catalog)
{
	for (size_t i = 0; i < catalog->process_count; i++)
		free(catalog->processes[i].command);
	for (size_t i = 0; i < catalog->recording_count; i++) {
		free(catalog->recordings[i].name);
		free(catalog->recordings[i].path);
	}
	free(catalog->processes);
	free(catalog->recordings);
	*catalog = (struct hl_catalog){0};
}

const struct hl_catalog_process *hl_catalog_process(const struct hl_catalog *catalog, pid_t pid)
{
	for (size_t i = 0; i < catalog->process_count; i++)
		if (catalog->processes[i].pid == pid)
			return &catalog->processes[i];
	return NULL;
}

const struct hl_catalog_recording *hl_catalog_recording(const struct hl_catalog *catalog,
							const char *name)
{
	for (size_t i = 0; i < catalog->recording_count; i++)
		if (strcmp(catalog->recordings[i].name, name) == 0)
			return &catalog->recordings[i];
	return NULL;
}
