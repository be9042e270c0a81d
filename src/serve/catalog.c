/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists what there is to serve; see catalog.h. */
#include "serve/catalog.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/names.h"
#include "collector/control_ask.h"
#include "process/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATUS_WAIT_NS	 (2 * HL_NS_PER_SECOND)
#define RECORDINGS_MAX	 1000 /* older ones are counted as left out */
#define RECORDING_SUFFIX ".hl"

/* ---- recordings ---- */

/* Takes over ${path}. 0 or -ENOMEM. */
static int add_recording(struct hl_catalog *catalog, char *path, pid_t collector,
			 const struct hl_user *owner, const struct stat *status)
{
	HL_FREED char *owned_path = path;
	HL_FREED char *name = strdup(hl_path_basename(path));
	HL_FREED struct hl_user *copy = owner ? hl_user_copy(owner) : NULL;

	if (!name || (owner && !copy) ||
	    HL_ARRAY_RESERVE(catalog->recordings, catalog->recording_capacity,
			     catalog->recording_count + 1) < 0)
		return -ENOMEM;
	catalog->recordings[catalog->recording_count++] = (struct hl_catalog_recording){
		.name = HL_TAKE(name),
		.path = HL_TAKE(owned_path),
		.owner = HL_TAKE(copy),
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
			    : add_recording(catalog, path, 0, NULL, &status);
	}
	if (stream)
		closedir(stream);
	return r;
}

/* ---- processes ---- */

/* The user whose collectors are being asked; NULL: this one. */
struct asked {
	const struct hl_user *user;
	size_t first;	   /* of processes in the catalog: the user's begin here */
	uint64_t until_ns; /* when the rest of the user's collectors is left out */
};

static int64_t number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* Its service and its container. */
static void name_process(struct hl_catalog_process *process)
{
	char path[48], executable[PATH_MAX], cgroups[4096], pod[HL_SERVICE_CONTAINER_MAX];

	snprintf(path, sizeof(path), "/proc/%d/exe", process->pid);
	ssize_t length = readlink(path, executable, sizeof(executable) - 1);
	executable[length > 0 ? length : 0] = '\0';
	hl_service_of(process->command, executable, &process->service);
	if (hl_proc_read(process->pid, "cgroup", cgroups, sizeof(cgroups)) < 0)
		cgroups[0] = '\0';
	hl_service_container(cgroups, process->container, pod);
}

static int add_process(struct hl_catalog *catalog, const json_t *from, pid_t pid,
		       const struct hl_process_status *status)
{
	const char *mode = json_string_value(json_object_get(from, "mode"));
	struct hl_catalog_process process = {
		.pid = pid,
		.recording = (uint32_t)catalog->recording_count - 1,
		.sequence = (uint32_t)number(from, "sequence"),
		.uid = status->uid,
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
		.recorder_bytes = -1,
		.asked_recorder_bytes = json_object_get(from, "recorder_bytes")
						? number(from, "recorder_bytes")
						: -1,
		.rss_bytes = status->rss_bytes,
		.cached_bytes = -1,
		.retained_bytes = -1,
		.heap_age_s = -1,
	};

	snprintf(process.mode, sizeof(process.mode), "%s", mode ? mode : "");
	if (process.command)
		name_process(&process);
	if (!process.command || HL_ARRAY_APPEND(catalog->processes, catalog->process_count,
						catalog->process_capacity, process) < 0) {
		free(process.command);
		return -ENOMEM;
	}
	return 0;
}

/* Processes of one answer; of another user's collector only those that are that user's, once each. */
static int add_processes(struct hl_catalog *catalog, const json_t *processes, struct asked *asked)
{
	const json_t *from;
	size_t i;
	int r = 0;

	json_array_foreach(processes, i, from) {
		pid_t pid = (pid_t)number(from, "pid");
		const struct hl_process_status status = hl_process_status_read(pid);
		if (asked->user && catalog->process_count - asked->first >= HL_CATALOG_OTHERS_MAX)
			catalog->others_left_out++;
		else if (asked->user &&
			 (status.uid != asked->user->uid || hl_catalog_process(catalog, pid)))
			catalog->foreign++;
		else
			r = add_process(catalog, from, pid, &status);
		if (r < 0)
			return r;
	}
	return 0;
}

/* What the collector writes, as its user sees it. */
static int stat_recording(struct hl_catalog *catalog, const struct hl_control_peer *peer,
			  struct stat *ret_status)
{
	HL_CLEANUP(hl_user_leave) struct hl_user_scope scope = {0};

	int r = hl_user_enter(peer->user, &scope);
	if (r < 0) {
		catalog->denied++;
		return r;
	}
	if (stat(peer->recording, ret_status) == 0)
		return 0;
	catalog->foreign += peer->user && errno != ENOENT;
	return -errno;
}

/* One that has ended, or does not answer, is left out. */
static int add_collector(struct hl_catalog *catalog, struct hl_control_peer *peer,
			 struct asked *asked)
{
	const struct hl_control_request request = {.verb = HL_CONTROL_STATUS};
	uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);
	struct stat status;
	json_t *answer;

	if (peer->user && (!asked->user || asked->user->uid != peer->user->uid))
		*asked =
			(struct asked){peer->user, catalog->process_count, now_ns + STATUS_WAIT_NS};
	else if (!peer->user)
		*asked = (struct asked){0};
	peer->wait_ns = STATUS_WAIT_NS;
	if (peer->user && now_ns >= asked->until_ns) {
		catalog->others_left_out++;
		return 0;
	}
	if (peer->user)
		peer->wait_ns = asked->until_ns - now_ns;
	int r = stat_recording(catalog, peer, &status);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	if (hl_control_ask(peer, &request, &answer, NULL) < 0)
		return 0;
	char *path = strdup(peer->recording);
	r = path ? add_recording(catalog, path, peer->pid, peer->user, &status) : -ENOMEM;
	if (r == 0)
		r = add_processes(catalog, json_object_get(answer, "processes"), asked);
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
		free(last->owner);
	}
}

int hl_catalog_read(struct hl_catalog *catalog, const char *const *directories, size_t count)
{
	HL_CLEANUP(hl_control_ask_release) struct hl_control_peers peers;
	struct asked asked = {0};

	*catalog = (struct hl_catalog){0};
	int r = hl_control_ask_list(&peers);
	catalog->others_left_out = peers.left_out;
	catalog->denied = peers.denied;
	for (size_t i = 0; r == 0 && i < peers.count; i++)
		r = add_collector(catalog, &peers.peers[i], &asked);
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
		free(catalog->recordings[i].owner);
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

bool hl_catalog_hidden(const struct hl_catalog *catalog, char sentence[HL_CATALOG_HIDDEN_MAX])
{
	const struct {
		size_t count;
		const char *reason;
	} each[] = {
		{catalog->denied, "%zu collectors of other users are not shown: to ask them and to "
				  "read as their users, root needs CAP_SETUID and CAP_SETGID"},
		{catalog->foreign, "%zu processes and recordings are not shown: another user's "
				   "collector names them, and they are not that user's"},
		{catalog->others_left_out, "%zu collectors and processes are not shown: their user "
					   "has too many, or they do not answer"},
	};
	size_t length = 0;

	for (size_t i = 0; i < HL_COUNT_OF(each); i++)
		if (each[i].count && length + 2 < HL_CATALOG_HIDDEN_MAX) {
			length +=
				(size_t)snprintf(sentence + length, HL_CATALOG_HIDDEN_MAX - length,
						 "%s", length ? "; " : "");
			length +=
				(size_t)snprintf(sentence + length, HL_CATALOG_HIDDEN_MAX - length,
						 each[i].reason, each[i].count);
		}
	return length > 0;
}
