/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds memory control groups and reads their files; see cgroup.h. */
#include "process/cgroup.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "process/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX \
	64 /* of subgroups; the kernel's own limit is 32 by default on systems that set one */

/* Version 1 has no word for "no limit": the largest number of pages. */
#define V1_NO_LIMIT (UINT64_C(1) << 62)

/* ---- where hierarchies are mounted ---- */

/* Whether ${word} is one of the words of ${list}, a line or its end, which commas separate. */
static bool has_word(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = list; at && *at != '\n'; at = strpbrk(at, ",\n")) {
		at += *at == ',';
		if (!strncmp(at, word, length) && strchr(", \n", at[length])) /* or at its end */
			return true;
	}
	return false;
}

/* How long it is known where a hierarchy is mounted. */
#define MOUNT_KNOWN_NS (30 * HL_NS_PER_SECOND)

/* The mount of the memory controller of version 1, or of version 2; the first that is there. 1, 0 if there is none, or a negative errno. */
static int look_for_mount(bool is_v2, struct hl_mount *ret_mount)
{
	HL_FREED char *text = NULL;
	size_t length;

	int r = hl_proc_read_all(getpid(), "mountinfo", &text, &length);
	if (r < 0)
		return r;
	for (const char *rest = text; hl_mount_next(&rest, ret_mount);)
		if (is_v2 ? !strcmp(ret_mount->type, "cgroup2")
			  : !strcmp(ret_mount->type, "cgroup") &&
				    has_word(ret_mount->options, "memory")) {
			ret_mount->options = NULL; /* lies in the text */
			return 1;
		}
	return 0;
}

/* ---- mounts that show more than our namespace of groups ---- */

/*
 * A container has a namespace of groups, and names in /proc/PID/cgroup begin at its root: "/../../other" is not in it. Where the host's
 * hierarchy is mounted all the same, the mount has a root like "/../..", and its directories are found from there.
 */
struct hierarchy {
	struct hl_mount mount;
	bool is_wider;
	char origin
		[PATH_MAX]; /* the root of our namespace below the mount, where that is wider: "/pods/one", or "" */
};

/* How many levels above our namespace a mount begins: those of "/../.."; 0: it does not, or beside it. */
static unsigned count_levels(const char *root)
{
	unsigned levels = 0;

	for (; !strncmp(root, "/..", 3); root += 3)
		levels++;
	return *root ? 0 : levels;
}

/* The path of the group of a process, from the text of /proc/PID/cgroup. NULL: it has no such line. */
static char *find_name(char *text, bool is_v2)
{
	for (char *line; (line = strsep(&text, "\n"));) {
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(++controllers, ':') : NULL;
		if (!path)
			continue;
		*path++ = '\0';
		if (is_v2 ? !*controllers : has_word(controllers, "memory"))
			return path;
	}
	return NULL;
}

/* Whether our process is in the group ${name} below the directory ${path}. */
static bool is_ours(const char *path, const char *name)
{
	HL_FREED char *file = NULL, *text = NULL;
	size_t length;
	unsigned long own = (unsigned long)getpid();

	if (asprintf(&file, "%s%s/cgroup.procs", path, name) < 0) {
		file = NULL;
		return false;
	}
	HL_CLOSED int fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || hl_proc_read_open(fd, &text, &length) < 0)
		return false;
	for (char *line, *rest = text; (line = strsep(&rest, "\n"));)
		if (strtoul(line, NULL, 10) == own)
			return true;
	return false;
}

/* Extends ${path}, of ${length} bytes, by ${levels} directories, to the one below which our group is called ${name}. */
static bool find_origin(char *path, size_t length, unsigned levels, const char *name)
{
	struct dirent *entry;
	bool is_found = false;

	if (!levels)
		return is_ours(path, name);
	DIR *directory = opendir(path);
	while (directory && !is_found && (entry = readdir(directory))) {
		size_t added = strlen(entry->d_name) + 1;
		if (entry->d_type != DT_DIR || entry->d_name[0] == '.' ||
		    length + added >= PATH_MAX)
			continue;
		sprintf(path + length, "/%s", entry->d_name);
		is_found = find_origin(path, length + added, levels - 1, name);
	}
	if (!is_found)
		path[length] = '\0';
	if (directory)
		closedir(directory);
	return is_found;
}

static void find_width(struct hierarchy *hierarchy, bool is_v2)
{
	const struct hl_mount *mount = &hierarchy->mount;
	unsigned levels = count_levels(mount->root);
	HL_FREED char *text = NULL;
	char path[PATH_MAX];
	size_t length = strlen(mount->point);

	hierarchy->is_wider = false;
	if (!levels || hl_proc_read_all(getpid(), "cgroup", &text, &(size_t){0}) < 0)
		return;
	const char *name = find_name(text, is_v2);
	strcpy(path, mount->point);
	if (!name || !find_origin(path, length, levels, strcmp(name, "/") ? name : ""))
		return;
	strcpy(hierarchy->origin, path + length);
	hierarchy->is_wider = true;
}

/* Where the group ${name} lies below the mount. False: not below it. */
static bool resolve(const struct hierarchy *hierarchy, const char *name, char ret_path[PATH_MAX])
{
	size_t length = strlen(hierarchy->origin);

	strcpy(ret_path, hierarchy->origin);
	while (*name == '/') {
		size_t part = strcspn(name + 1, "/") + 1;
		if (part == 3 && !strncmp(name, "/..", 3)) {
			char *slash = strrchr(ret_path, '/');
			if (!slash)
				return false;
			length = (size_t)(slash - ret_path);
		} else if (part > 1 && length + part < PATH_MAX) {
			memcpy(ret_path + length, name, part);
			length += part;
		}
		ret_path[length] = '\0';
		name += part;
	}
	return true;
}

/* The same as look_for_mount(), as it was a while ago, for whoever asks for the groups of many processes, or again and again. */
static int find_hierarchy(bool is_v2, struct hierarchy *ret_hierarchy)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct {
		uint64_t until_ns;
		int found;
		struct hierarchy hierarchy;
	} all[2];
	uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);

	pthread_mutex_lock(&lock);
	if (now_ns >= all[is_v2].until_ns) {
		all[is_v2].found = look_for_mount(is_v2, &all[is_v2].hierarchy.mount);
		all[is_v2].until_ns = all[is_v2].found < 0 ? 0 : now_ns + MOUNT_KNOWN_NS;
		if (all[is_v2].found > 0)
			find_width(&all[is_v2].hierarchy, is_v2);
	}
	int r = all[is_v2].found;
	*ret_hierarchy = all[is_v2].hierarchy;
	pthread_mutex_unlock(&lock);
	return r;
}

static int find_mount(bool is_v2, struct hl_mount *ret_mount)
{
	struct hierarchy hierarchy;

	int r = find_hierarchy(is_v2, &hierarchy);
	*ret_mount = hierarchy.mount;
	return r;
}

/* Whether ${path} is ${directory} or below it; *${ret_rest} is what follows, "" or "/...". */
static bool is_below(const char *path, const char *directory, const char **ret_rest)
{
	size_t length = strcmp(directory, "/") ? strlen(directory) : 0;

	*ret_rest = path + length;
	return !strncmp(path, directory, length) && (!path[length] || path[length] == '/');
}

/* ---- one group ---- */

static bool has_memory(const struct hl_cgroup *group)
{
	return faccessat(group->fd, group->is_v2 ? "memory.current" : "memory.usage_in_bytes", F_OK,
			 0) == 0;
}

static int open_directory(struct hl_cgroup *group)
{
	group->fd = open(group->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (group->fd < 0)
		return -errno;
	group->is_topmost =
		!group->is_v2 && faccessat(group->fd, "cgroup.sane_behavior", F_OK, 0) == 0;
	return 0;
}

/* The next one above; false at the mount. */
static bool go_up(struct hl_cgroup *group)
{
	char *slash = strrchr(group->path + group->mount_length, '/');

	if (!slash)
		return false;
	*slash = '\0';
	return true;
}

/* Opens what lies at ${group}->path, or the nearest above it that has the controller. */
static int open_nearest(struct hl_cgroup *group)
{
	for (;;) {
		int r = open_directory(group);
		if (r < 0)
			return r;
		if (has_memory(group))
			return 0;
		hl_cgroup_release(group);
		if (!group->is_v2 || !go_up(group))
			return -ENODATA;
	}
}

/* Opens what lies at ${rest}, "/..." or "/", below the mount. */
static int open_below(const struct hl_mount *mount, bool is_v2, const char *rest,
		      struct hl_cgroup *ret_group)
{
	*ret_group = (struct hl_cgroup){.is_v2 = is_v2, .mount_length = strlen(mount->point)};
	if (!strcmp(rest, "/"))
		rest = "";
	int length = snprintf(ret_group->path, sizeof(ret_group->path), "%s%s", mount->point, rest);
	if (length < 0 || (size_t)length >= sizeof(ret_group->path))
		return -ENAMETOOLONG;
	return open_nearest(ret_group);
}

/* Opens the group called ${name} in one hierarchy. ${is_of_host}: where the mount shows more than our namespace, that is its name below the mount. */
static int open_named(const char *name, bool is_v2, bool is_of_host, struct hl_cgroup *ret_group)
{
	struct hierarchy hierarchy;
	char path[PATH_MAX];
	const char *rest = path;

	int r = find_hierarchy(is_v2, &hierarchy);
	if (r < 0)
		return r;
	bool is_there = r > 0;
	if (is_there && hierarchy.is_wider && is_of_host)
		rest = name;
	else if (is_there && hierarchy.is_wider)
		is_there = resolve(&hierarchy, name, path);
	else if (is_there)
		is_there = strncmp(name, "/../", 4) && strcmp(name, "/..") &&
			   is_below(name, hierarchy.mount.root, &rest);
	return is_there ? open_below(&hierarchy.mount, is_v2, rest, ret_group) : -EXDEV;
}

static int error_of_name(const char *name, int code, struct hl_error *err)
{
	if (code == -EXDEV)
		return hl_error_set(
			err, -ENOENT,
			"cannot find the group '%s': it lies outside of what is mounted "
			"here; run heapline on the host, or in the container itself",
			name);
	if (code == -ENODATA)
		return hl_error_set(
			err, -ENOENT,
			"cannot use the group '%s': the memory controller is not enabled "
			"in it or above it; name a group whose directory has memory.current",
			name);
	return hl_error_set(err, code, "cannot open the group '%s': %s", name, strerror(-code));
}

int hl_cgroup_open_of(pid_t pid, struct hl_cgroup *ret_group, struct hl_error *err)
{
	HL_FREED char *text = NULL;
	HL_FREED char *copy = NULL;
	size_t length;

	ret_group->fd = -1;
	int r = hl_proc_read_all(hl_proc_thread(pid), "cgroup", &text, &length);
	if (r < 0)
		return hl_proc_error(pid, r, "the control group", err);
	copy = strdup(text);
	if (!copy)
		return hl_error_set(err, -ENOMEM, "out of memory");
	const char *name = find_name(text, false);
	bool is_v2 = !name;
	if (!name)
		name = find_name(copy, true);
	if (!name)
		return hl_error_set(
			err, -ENOENT,
			"process %d is in no memory control group; the kernel has none, "
			"or they are off",
			pid);
	r = open_named(name, is_v2, false, ret_group);
	return r < 0 ? error_of_name(name, r, err) : 0;
}

/* Opens ${path} as a directory of either hierarchy. -EXDEV: it is in none. */
static int open_by_directory(const char *path, struct hl_cgroup *ret_group)
{
	HL_FREED char *whole = realpath(path, NULL);

	if (!whole)
		return -errno;
	for (int is_v2 = 0; is_v2 < 2; is_v2++) {
		struct hl_mount mount;
		const char *rest;
		int r = find_mount(is_v2, &mount);
		if (r < 0)
			return r;
		if (r == 0 || !is_below(whole, mount.point, &rest))
			continue;
		*ret_group =
			(struct hl_cgroup){.is_v2 = is_v2, .mount_length = strlen(mount.point)};
		snprintf(ret_group->path, sizeof(ret_group->path), "%s", whole);
		r = open_directory(ret_group);
		if (r == 0 && !has_memory(ret_group)) {
			hl_cgroup_release(ret_group);
			r = -ENODATA;
		}
		return r;
	}
	return -EXDEV;
}

int hl_cgroup_open(const char *path, struct hl_cgroup *ret_group, struct hl_error *err)
{
	ret_group->fd = -1;
	int r = open_by_directory(path, ret_group);
	bool is_elsewhere = r == -EXDEV || r == -ENOENT || r == -ENOTDIR;
	if (is_elsewhere && path[0] == '/') {
		r = -ENOENT;
		for (unsigned way = 0; way < 4 && r < 0 && r != -EACCES; way++)
			r = open_named(path, way & 1, way < 2, ret_group);
	}
	if (r == -EXDEV || r == -ENOENT || r == -ENOTDIR)
		return hl_error_set(
			err, r == -ENOENT ? -ENOENT : -EINVAL,
			"'%s' is not a memory control group; name its directory, or its "
			"path as /proc/PID/cgroup has it",
			path);
	return r < 0 ? error_of_name(path, r, err) : 0;
}

void hl_cgroup_release(struct hl_cgroup *group)
{
	if (group->fd >= 0)
		close(group->fd);
	group->fd = -1;
}

const char *hl_cgroup_name(const struct hl_cgroup *group)
{
	const char *name = group->path + group->mount_length;

	return *name ? name : "/";
}

/* ---- its files ---- */

static ssize_t read_at(int directory, const char *name, char *text, size_t capacity)
{
	HL_CLOSED int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
	size_t length = 0;

	if (fd < 0)
		return -errno;
	for (ssize_t bytes = 1; bytes > 0 && length < capacity - 1; length += (size_t)bytes) {
		bytes = read(fd, text + length, capacity - 1 - length);
		if (bytes < 0)
			return -errno;
	}
	text[length] = '\0';
	return (ssize_t)length;
}

ssize_t hl_cgroup_read(const struct hl_cgroup *group, const char *name, char *text, size_t capacity)
{
	return read_at(group->fd, name, text, capacity);
}

bool hl_cgroup_find(const char *text, const char *key, uint64_t *ret_number)
{
	size_t length = strlen(key);

	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, length) && line[length] == ' ') {
			*ret_number = strtoull(line + length, NULL, 10);
			return true;
		}
	}
	return false;
}

/* A file that is one number, or "max": HL_CGROUP_UNKNOWN, as where there is no such file. */
static uint64_t number_at(int directory, const char *name)
{
	char text[64], *end;

	if (read_at(directory, name, text, sizeof(text)) <= 0)
		return HL_CGROUP_UNKNOWN;
	uint64_t number = strtoull(text, &end, 10);
	return end == text ? HL_CGROUP_UNKNOWN : number;
}

static uint64_t limit_at(int directory, bool is_v2)
{
	uint64_t limit = number_at(directory, is_v2 ? "memory.max" : "memory.limit_in_bytes");

	return !is_v2 && limit >= V1_NO_LIMIT ? HL_CGROUP_UNKNOWN : limit;
}

/* Of version 2 the lower one of memory.max and memory.high. */
static uint64_t bound_at(int directory, bool is_v2)
{
	uint64_t limit = limit_at(directory, is_v2);
	uint64_t high = is_v2 ? number_at(directory, "memory.high") : HL_CGROUP_UNKNOWN;

	return high < limit ? high : limit;
}

uint64_t hl_cgroup_own_limit(const struct hl_cgroup *group)
{
	return bound_at(group->fd, group->is_v2);
}

/* The lowest limit on the way up, and whose it is. */
static void find_limit(const struct hl_cgroup *group, struct hl_cgroup_figures *figures)
{
	struct hl_cgroup at = *group;
	bool is_at_mount = false;

	figures->limit = HL_CGROUP_UNKNOWN;
	for (; !is_at_mount; is_at_mount = !go_up(&at)) {
		HL_CLOSED int fd = open(at.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			continue;
		uint64_t limit = limit_at(fd, at.is_v2);
		if (limit >= figures->limit)
			continue;
		figures->limit = limit;
		snprintf(figures->limit_path, sizeof(figures->limit_path), "%s",
			 hl_cgroup_name(&at));
	}
}

void hl_cgroup_gauge_release(struct hl_cgroup_gauge *gauge)
{
	for (unsigned i = 0; i < gauge->count; i++) {
		close(gauge->levels[i].directory);
		close(gauge->levels[i].usage);
	}
	gauge->count = 0;
}

static bool open_level(const struct hl_cgroup *at, struct hl_cgroup_level *ret_level)
{
	HL_CLOSED int directory = open(at->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (directory < 0)
		return false;
	uint64_t limit = bound_at(directory, at->is_v2);
	if (limit == HL_CGROUP_UNKNOWN)
		return false;
	int usage = openat(directory, at->is_v2 ? "memory.current" : "memory.usage_in_bytes",
			   O_RDONLY | O_CLOEXEC);
	if (usage < 0)
		return false;
	*ret_level = (struct hl_cgroup_level){directory, usage, at->is_v2, limit};
	directory = -1;
	return true;
}

void hl_cgroup_gauge_open(struct hl_cgroup_gauge *gauge, const struct hl_cgroup *group)
{
	struct hl_cgroup at = *group;
	bool is_at_mount = false;

	hl_cgroup_gauge_release(gauge);
	for (; !is_at_mount && gauge->count < HL_CGROUP_LEVELS_MAX; is_at_mount = !go_up(&at))
		gauge->count += open_level(&at, &gauge->levels[gauge->count]);
}

int64_t hl_cgroup_level_left(const struct hl_cgroup_level *level)
{
	char text[32];
	ssize_t length = pread(level->usage, text, sizeof(text) - 1, 0);

	if (length <= 0)
		return INT64_MAX;
	text[length] = '\0';
	return (int64_t)level->limit - (int64_t)strtoull(text, NULL, 10);
}

int64_t hl_cgroup_level_cache(const struct hl_cgroup_level *level)
{
	static const char *const keys[] = {"inactive_file", "active_file", "total_inactive_file",
					   "total_active_file"};
	char text[8192];
	int64_t sum = 0;

	if (read_at(level->directory, "memory.stat", text, sizeof(text)) <= 0)
		return 0;
	for (unsigned i = 0; i < 2; i++) {
		uint64_t bytes = 0;
		hl_cgroup_find(text, keys[level->is_v2 ? i : i + 2], &bytes);
		sum += (int64_t)bytes;
	}
	return sum;
}

static uint64_t number_after(const struct hl_cgroup *group, const char *file, const char *key)
{
	char text[8192];
	uint64_t number;

	return hl_cgroup_read(group, file, text, sizeof(text)) > 0 &&
			       hl_cgroup_find(text, key, &number)
		       ? number
		       : HL_CGROUP_UNKNOWN;
}

uint64_t hl_cgroup_oom_kills(const struct hl_cgroup *group)
{
	return number_after(group, group->is_v2 ? "memory.events" : "memory.oom_control",
			    "oom_kill");
}

int hl_cgroup_read_figures(const struct hl_cgroup *group, struct hl_cgroup_figures *ret_figures,
			   struct hl_error *err)
{
	bool is_v2 = group->is_v2;

	*ret_figures = (struct hl_cgroup_figures){
		.usage = number_at(group->fd, is_v2 ? "memory.current" : "memory.usage_in_bytes"),
		.peak = number_at(group->fd, is_v2 ? "memory.peak" : "memory.max_usage_in_bytes"),
		.oom_kills = hl_cgroup_oom_kills(group),
		.swap = is_v2 ? number_at(group->fd, "memory.swap.current")
			      : number_after(group, "memory.stat", "total_swap"),
		.swap_limit = is_v2 ? number_at(group->fd, "memory.swap.max") : HL_CGROUP_UNKNOWN,
	};
	if (ret_figures->usage == HL_CGROUP_UNKNOWN)
		return hl_error_set(err, -ENOENT, "the group '%s' has gone", hl_cgroup_name(group));
	find_limit(group, ret_figures);
	return 0;
}

/* ---- who is in it ---- */

struct processes {
	pid_t *pids;
	size_t count, capacity, strangers;
};

/* A threaded subgroup (EOPNOTSUPP) has threads of processes that are in the group above. */
static int add_processes(int directory, struct processes *processes)
{
	int fd = openat(directory, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	int pid, r = 0;

	if (!file) {
		if (fd >= 0)
			close(fd);
		return fd < 0 && errno != ENOENT && errno != ENODEV ? -errno : 0;
	}
	while (r == 0 && fscanf(file, "%d", &pid) == 1) {
		if (pid)
			r = HL_ARRAY_APPEND(processes->pids, processes->count, processes->capacity,
					    pid);
		else
			processes->strangers++;
	}
	fclose(file);
	return r;
}

static int add_below(int directory, unsigned depth, struct processes *processes)
{
	int r = add_processes(directory, processes);
	int fd = r == 0 ? openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	DIR *list = fd < 0 ? NULL : fdopendir(fd);

	if (!list && fd >= 0)
		close(fd);
	for (const struct dirent *entry; r == 0 && list && (entry = readdir(list));) {
		if (entry->d_type != DT_DIR || entry->d_name[0] == '.' || depth == DEPTH_MAX)
			continue;
		/* What cannot be opened has been removed since. */
		HL_CLOSED int below = openat(directory, entry->d_name,
					     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (below >= 0)
			r = add_below(below, depth + 1, processes);
	}
	if (list)
		closedir(list);
	return r;
}

static int visit_below(struct hl_cgroup *group, unsigned depth, hl_cgroup_visit_fn *visit,
		       void *context)
{
	size_t length = strlen(group->path);
	int r = !group->is_v2 || has_memory(group) ? visit(group, context) : 0;
	struct stat status;

	/* A directory of cgroupfs has two links more than subgroups. */
	bool has_below = fstat(group->fd, &status) == 0 && status.st_nlink != 2;
	DIR *list = r == 0 && has_below ? opendir(group->path) : NULL;

	for (const struct dirent *entry; r == 0 && list && (entry = readdir(list));) {
		if (entry->d_type != DT_DIR || entry->d_name[0] == '.' || depth == DEPTH_MAX ||
		    length + 1 + strlen(entry->d_name) >= sizeof(group->path))
			continue;
		struct hl_cgroup below = *group;
		below.path[length] = '/';
		strcpy(below.path + length + 1, entry->d_name);
		below.is_topmost = false;
		below.fd = open(below.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (below.fd < 0)
			continue; /* it has been removed since */
		r = visit_below(&below, depth + 1, visit, context);
		hl_cgroup_release(&below);
	}
	if (list)
		closedir(list);
	return r;
}

int hl_cgroup_each(hl_cgroup_visit_fn *visit, void *context, struct hl_error *err)
{
	struct hl_mount mount;

	int r = find_mount(false, &mount);
	bool is_v2 = r == 0;
	if (is_v2)
		r = find_mount(true, &mount);
	if (r <= 0)
		return hl_error_set(err, r < 0 ? r : -ENOENT,
				    "no memory control groups are mounted here");
	struct hl_cgroup group = {.is_v2 = is_v2, .mount_length = strlen(mount.point)};
	snprintf(group.path, sizeof(group.path), "%s", mount.point);
	r = open_directory(&group);
	if (r < 0)
		return error_of_name("/", r, err);
	r = visit_below(&group, 0, visit, context);
	hl_cgroup_release(&group);
	return r;
}

static int compare_pids(const void *left, const void *right)
{
	const pid_t *a = left, *b = right;

	return (*a > *b) - (*a < *b);
}

int hl_cgroup_processes(const struct hl_cgroup *group, pid_t **ret_pids, size_t *ret_count,
			size_t *ret_strangers)
{
	struct processes found = {0};
	size_t kept = 0;

	int r = add_below(group->fd, 0, &found);
	if (r < 0) {
		free(found.pids);
		return r;
	}
	/* One that moved meanwhile may be there twice. */
	if (found.count)
		qsort(found.pids, found.count, sizeof(*found.pids), compare_pids);
	for (size_t i = 0; i < found.count; i++)
		if (!kept || found.pids[kept - 1] != found.pids[i])
			found.pids[kept++] = found.pids[i];
	*ret_pids = found.pids;
	*ret_count = kept;
	*ret_strangers = found.strangers;
	return 0;
}
