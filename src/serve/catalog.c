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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STATUS_WAIT_NS	 (2 * HL_NS_PER_SECOND)
#define RECORDINGS_MAX	 1000 /* of all directories; further ones are left out */
#define RECORDING_SUFFIX ".hl"

/* ---- recordings ---- */

/* Whether another recording is called ${name}. */
static bool is_taken(const struct hl_catalog *catalog, const char *name)
{
	return hl_catalog_recording(catalog, name) != NULL;
}

/* Takes over ${path}. 0 or -ENOMEM. */
static int add_recording(struct hl_catalog *catalog, char *path, pid_t collector, int64_t changed_s)
{
	const char *base = hl_path_basename(path);
	HL_FREED char *owned_path = path;
	HL_FREED char *name = strdup(base);

	for (unsigned number = 2; name && is_taken(catalog, name); number++) {
		free(name);
		if (asprintf(&name, "%s~%u", base, number) < 0)
			name = NULL;
	}
	if (!name || HL_ARRAY_RESERVE(catalog->recordings, catalog->recording_capacity,
				      catalog->recording_count + 1) < 0)
		return -ENOMEM;
	catalog->recordings[catalog->recording_count++] = (struct hl_catalog_recording){
		.name = HL_TAKE(name),
		.path = HL_TAKE(owned_path),
		.collector = collector,
		.changed_s = changed_s,
	};
	return 0;
}

/* Whether one that goes on is the one at ${status}. */
static bool is_live(const struct hl_catalog *catalog, const struct stat *status)
{
	struct stat other;

	for (size_t i = 0; i < catalog->recording_count; i++)
		if (catalog->recordings[i].collector &&
		    stat(catalog->recordings[i].path, &other) == 0 &&
		    other.st_dev == status->st_dev && other.st_ino == status->st_ino)
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
		    catalog->recording_count >= RECORDINGS_MAX ||
		    fstatat(dirfd(stream), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
		    (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode)) ||
		    is_live(catalog, &status))
			continue;
		r = asprintf(&path, "%s/%s", directory, entry->d_name) < 0
			    ? -ENOMEM
			    : add_recording(catalog, path, 0, status.st_mtim.tv_sec);
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

static int64_t read_rss(pid_t pid)
{
	char status[4096];

	if (hl_proc_read(pid, "status", status, sizeof(status)) <= 0)
		return 0;
	const char *rss = strstr(status, "\nVmRSS:");
	return rss ? 1024 * strtoll(rss + strlen("\nVmRSS:"), NULL, 10) : 0;
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
		.rss_bytes = read_rss(pid),
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
	int r = path ? add_recording(catalog, path, peer->pid, status.st_mtim.tv_sec) : -ENOMEM;
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
	return strcmp(a->name, b->name);
}

int hl_catalog_read(struct hl_catalog *catalog, const char *const *directories, size_t count)
{
	HL_CLEANUP(hl_control_ask_release) struct hl_control_peers peers;

	*catalog = (struct hl_catalog){0};
	int r = hl_control_ask_list(&peers);
	for (size_t i = 0; r == 0 && i < peers.count; i++)
		r = add_collector(catalog, &peers.peers[i]);
	size_t live = catalog->recording_count;
	for (size_t i = 0; r == 0 && i < count; i++)
		r = add_directory(catalog, directories[i]);
	if (r == 0 && catalog->recording_count > live)
		qsort(catalog->recordings + live, catalog->recording_count - live,
		      sizeof(*catalog->recordings), newest_first);
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
