/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds files that processes have open or mapped; see pod_files.h. Only statx(2) with AT_STATX_DONT_SYNC looks at them, which asks no
 * server: opening a pipe, a device or a file of a network may do something, or block forever.
 */
#include "heap/pod_files.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "process/maps.h"
#include "process/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/stat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

#define MEMORY_BLOCK_BYTES 512u /* of stx_blocks */

static uint64_t device_of(const struct statx *seen)
{
	return makedev(seen->stx_dev_major, seen->stx_dev_minor);
}

/* Looks at ${path} without asking a server or mounting anything. -EACCES: it may not be seen. */
static int look(const char *path, struct statx *ret_seen)
{
	int r = statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT,
		      STATX_TYPE | STATX_INO | STATX_BLOCKS | STATX_MNT_ID, ret_seen);

	return r == 0 ? 0 : errno == EPERM || errno == EACCES ? -EACCES : -ENOENT;
}

/* ---- file systems ---- */

/* Those whose files are opened without asking a server; of others a disk of their own says as much. */
static bool is_local(const char *type, unsigned major)
{
	static const char *const types[] = {"overlay", "btrfs", "zfs", "bcachefs", "erofs"};

	for (size_t i = 0; i < HL_COUNT_OF(types); i++)
		if (!strcmp(type, types[i]))
			return true;
	return major != 0 && strncmp(type, "fuse", 4) != 0;
}

struct system {
	uint64_t device;
	struct hl_mount mount;
	bool is_local;
};

static bool next_system(const char **mounts, struct system *ret_system)
{
	struct hl_mount *mount = &ret_system->mount;

	if (!hl_mount_next(mounts, mount))
		return false;
	ret_system->device = makedev(mount->dev_major, mount->dev_minor);
	ret_system->is_local = is_local(mount->type, mount->dev_major);
	return true;
}

/* The file system of mount ${id} in a text of mountinfo. Whether it is there. */
static bool find_system(const char *mounts, uint64_t id, struct system *ret_system)
{
	while (next_system(&mounts, ret_system))
		if (ret_system->mount.id == id)
			return true;
	return false;
}

/* Where memfd_create(2), shmget(2) and MAP_SHARED without a file have theirs. */
static uint64_t memory_device(void)
{
	HL_CLOSED int fd = memfd_create("heapline", MFD_CLOEXEC);
	struct stat seen;

	return fd >= 0 && fstat(fd, &seen) == 0 ? seen.st_dev : 0;
}

static int add_tmpfs(struct hl_pod_files *files, const struct system *system, pid_t thread)
{
	char path[PATH_MAX + 32];
	struct statvfs seen;
	struct statx root;

	for (size_t i = 0; i < files->tmpfs_count; i++)
		if (files->tmpfs[i].device == system->device)
			return 0;
	snprintf(path, sizeof(path), "/proc/%d/root%s", thread, system->mount.point);
	/* Something else may be mounted over it; without a limit it does not count. */
	if (look(path, &root) < 0 || device_of(&root) != system->device ||
	    statvfs(path, &seen) < 0 || !seen.f_blocks)
		return 0;
	char *mount = strdup(system->mount.point);
	if (!mount)
		return -ENOMEM;
	const struct hl_pod_tmpfs found = {
		.device = system->device,
		.mount = mount,
		.used_bytes = (uint64_t)(seen.f_blocks - seen.f_bfree) * seen.f_frsize,
	};
	int r = HL_ARRAY_APPEND(files->tmpfs, files->tmpfs_count, files->tmpfs_capacity, found);
	if (r < 0)
		free(mount);
	return r;
}

static int add_all_tmpfs(struct hl_pod_files *files, const char *mounts, pid_t thread)
{
	struct system system;
	int r = 0;

	while (r == 0 && next_system(&mounts, &system))
		if (!strcmp(system.mount.type, "tmpfs"))
			r = add_tmpfs(files, &system, thread);
	return r;
}

/* ---- what one process has ---- */

struct adding {
	struct hl_pod_files *files;
	const char *mounts, *comm;
	pid_t pid;
	pid_t thread;	     /* through which the kernel shows its files */
	uint64_t last_mount; /* of the file before, mostly the next one's too */
	struct system last_system;
	bool has_last_system;
};

static const struct system *system_of(struct adding *adding, uint64_t mount)
{
	if (mount != adding->last_mount) {
		adding->last_mount = mount;
		adding->has_last_system = find_system(adding->mounts, mount, &adding->last_system);
	}
	return adding->has_last_system ? &adding->last_system : NULL;
}

/* Adds a file that ${seen} tells of; ${found} has how it was reached, ${name} is copied. */
static int add_file(struct adding *adding, const struct statx *seen, const char *name,
		    struct hl_pod_open_file *found)
{
	struct hl_pod_files *files = adding->files;

	found->device = device_of(seen);
	found->inode = seen->stx_ino;
	found->pid = adding->pid;
	found->is_memory = found->device == files->memory_device;
	found->is_pipe = S_ISFIFO(seen->stx_mode) && files->with_pipes;
	if (!S_ISREG(seen->stx_mode) && !found->is_pipe)
		return 0;
	bool has_system = !found->is_memory && seen->stx_mask & STATX_MNT_ID; /* Linux 5.8 */
	const struct system *system = has_system ? system_of(adding, seen->stx_mnt_id) : NULL;
	if (system) {
		found->is_memory = !strcmp(system->mount.type, "tmpfs");
		found->has_cache = !found->is_memory && system->is_local;
		found->is_overlay = !strcmp(system->mount.type, "overlay");
	}
	if (!found->is_memory && !found->has_cache && !found->is_pipe)
		return 0;
	found->bytes = found->is_memory ? seen->stx_blocks * MEMORY_BLOCK_BYTES : 0;
	snprintf(found->comm, sizeof(found->comm), "%s", adding->comm);
	found->name = strdup(name);
	if (!found->name)
		return -ENOMEM;
	int r = HL_ARRAY_APPEND(files->files, files->count, files->capacity, *found);
	if (r < 0)
		free(found->name);
	return r;
}

/* Adds what the process has open. -EACCES, -ENOENT, -ENOMEM. */
static int add_descriptors(struct adding *adding)
{
	char folder[64], path[128], name[PATH_MAX];
	struct statx seen;
	int r = 0;

	snprintf(folder, sizeof(folder), "/proc/%d/fd", adding->thread);
	DIR *list = opendir(folder);
	if (!list)
		return -errno;
	for (const struct dirent *entry; r == 0 && (entry = readdir(list));) {
		ssize_t length = readlinkat(dirfd(list), entry->d_name, name, sizeof(name) - 1);
		name[length > 0 ? length : 0] = '\0';
		bool is_pipe = adding->files->with_pipes && !strncmp(name, "pipe:", 5);
		if (name[0] != '/' && !is_pipe) /* "socket:[1]" */
			continue;
		struct hl_pod_open_file found = {.fd_pid = adding->pid, .fd = atoi(entry->d_name)};
		snprintf(path, sizeof(path), "%s/%.32s", folder, entry->d_name);
		if (look(path, &seen) == 0)
			r = add_file(adding, &seen, name, &found);
	}
	closedir(list);
	return r;
}

static int compare_mapped(const void *left, const void *right)
{
	const struct hl_map *a = left, *b = right;

	if (a->inode != b->inode)
		return a->inode > b->inode ? 1 : -1;
	if (a->dev_major != b->dev_major)
		return a->dev_major > b->dev_major ? 1 : -1;
	return (a->dev_minor > b->dev_minor) - (a->dev_minor < b->dev_minor);
}

/* Without the right to follow map_files: by the path, if the same file is still there. */
static bool look_by_path(const struct adding *adding, const struct hl_map *map,
			 struct statx *ret_seen)
{
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "/proc/%d/root%s", adding->thread, map->path);
	return map->path[0] == '/' && !map->deleted && look(path, ret_seen) == 0 &&
	       ret_seen->stx_ino == map->inode;
}

/* Of a file that only its descriptor leads to. */
static void mark_mapped(struct adding *adding, const struct hl_map *map)
{
	struct hl_pod_files *files = adding->files;

	for (size_t i = 0; i < files->count; i++)
		if (files->files[i].fd_pid == adding->pid && files->files[i].inode == map->inode &&
		    files->files[i].device == makedev(map->dev_major, map->dev_minor))
			files->files[i].is_mapped = true;
}

/* Adds what the process has mapped, each file once. 0 or -ENOMEM. */
static int add_mapped(struct adding *adding)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};
	bool are_by_path = false;
	struct statx seen;
	char path[128];

	int r = hl_maps_read(adding->pid, &maps, NULL);
	if (r == 0 && maps.count)
		qsort(maps.maps, maps.count, sizeof(*maps.maps), compare_mapped);
	for (size_t i = 0; r == 0 && i < maps.count; i++) {
		const struct hl_map *map = &maps.maps[i];
		struct hl_pod_open_file found = {.is_mapped = true};
		/* The first segment of System V has the inode 0. */
		if (map->path[0] != '/' || (i && !compare_mapped(map - 1, map)))
			continue;
		snprintf(found.place, sizeof(found.place), "%d/map_files/%lx-%lx", adding->thread,
			 map->start, map->end);
		snprintf(path, sizeof(path), "/proc/%s", found.place);
		int looked = look(path, &seen);
		if (looked == -EACCES) {
			found.place[0] = '\0';
			are_by_path = true;
			looked = look_by_path(adding, map, &seen) ? 0 : -ENOENT;
		}
		if (looked == 0)
			r = add_file(adding, &seen, map->path, &found);
		else
			mark_mapped(adding, map);
	}
	adding->files->by_path_count += are_by_path;
	return r == -ENOMEM ? r : 0;
}

int hl_pod_files_add(struct hl_pod_files *files, pid_t pid, const char *comm)
{
	HL_FREED char *mounts = NULL;
	size_t length;

	if (!files->memory_device)
		files->memory_device = memory_device();
	pid_t thread = hl_proc_thread(pid);
	int r = hl_proc_read_all(thread, "mountinfo", &mounts, &length);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	struct adding adding = {
		.files = files, .mounts = mounts, .comm = comm, .pid = pid, .thread = thread};
	r = add_descriptors(&adding);
	if (r == -EACCES)
		files->unread_count++;
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	r = add_all_tmpfs(files, mounts, thread);
	return r == 0 ? add_mapped(&adding) : r;
}

void hl_pod_files_truncate(struct hl_pod_files *files, size_t count)
{
	while (files->count > count)
		free(files->files[--files->count].name);
}

/* ---- all of them ---- */

/* Of one file the mapped ones first, then the lowest PID. */
static int compare_files(const void *left, const void *right)
{
	const struct hl_pod_open_file *a = left, *b = right;

	if (a->device != b->device)
		return a->device > b->device ? 1 : -1;
	if (a->inode != b->inode)
		return a->inode > b->inode ? 1 : -1;
	if (a->is_mapped != b->is_mapped)
		return a->is_mapped ? -1 : 1;
	return (a->pid > b->pid) - (a->pid < b->pid);
}

void hl_pod_files_merge(struct hl_pod_files *files)
{
	size_t kept = 0;

	if (files->count)
		qsort(files->files, files->count, sizeof(*files->files), compare_files);
	for (size_t i = 0; i < files->count; i++) {
		struct hl_pod_open_file *file = &files->files[i];
		struct hl_pod_open_file *last = kept ? &files->files[kept - 1] : NULL;
		if (!last || last->device != file->device || last->inode != file->inode) {
			files->files[kept++] = *file;
			continue;
		}
		if (!last->fd_pid) {
			last->fd_pid = file->fd_pid;
			last->fd = file->fd;
		}
		free(file->name);
	}
	files->count = kept;
}

/* ---- the page cache ---- */

/* A second descriptor of what the process has open, which opens nothing. */
static int copy_descriptor(pid_t pid, int fd)
{
	HL_CLOSED int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

	return pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
}

/* Whether somebody holds a lease of the file: "1: LEASE  ACTIVE    WRITE 29534 fe:00:131 0 EOF" */
static bool is_leased(struct hl_pod_files *files, const struct hl_pod_open_file *file)
{
	char inode[32];
	size_t length;

	if (!files->locks) {
		HL_CLOSED int fd = open("/proc/locks", O_RDONLY | O_CLOEXEC);
		if (fd < 0 || hl_proc_read_open(fd, &files->locks, &length) < 0)
			return true;
	}
	snprintf(inode, sizeof(inode), ":%lu ", file->inode);
	for (const char *line = files->locks; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		const char *end = strchrnul(line, '\n'), *kind = strstr(line, "LEASE"),
			   *found = strstr(line, inode);
		if (kind && kind < end && found && found < end)
			return true;
	}
	return false;
}

static int open_mapped(struct hl_pod_files *files, const struct hl_pod_open_file *file)
{
	char path[96];

	if (!file->place[0] || is_leased(files, file))
		return -1;
	snprintf(path, sizeof(path), "/proc/%s", file->place);
	return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

/* By mincore(2), which brings nothing in. Of other users' files it would say that all is there. */
static bool count_by_mapping(int fd, uint64_t bytes, uint64_t *ret_pages)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page;
	unsigned char resident[16384];
	uint8_t *start = geteuid() == 0 && bytes ? mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0)
						 : MAP_FAILED;

	*ret_pages = 0;
	if (start == MAP_FAILED)
		return !bytes;
	bool is_known = true;
	for (uint64_t at = 0; is_known && at < pages; at += sizeof(resident)) {
		uint64_t count = pages - at < sizeof(resident) ? pages - at : sizeof(resident);
		is_known = mincore(start + at * page, count * page, resident) == 0;
		for (uint64_t i = 0; is_known && i < count; i++)
			*ret_pages += resident[i] & 1;
	}
	munmap(start, bytes);
	return is_known;
}

bool hl_pod_files_cached(struct hl_pod_files *files, const struct hl_pod_open_file *file,
			 uint64_t *ret_cached_bytes, uint64_t *ret_dirty_bytes)
{
	struct {
		uint64_t start, bytes;
	} whole = {0, 0};
	struct {
		uint64_t cached, dirty, writeback, evicted, recently_evicted;
	} pages = {0};
	struct stat seen;

	HL_CLOSED int fd =
		file->fd_pid ? copy_descriptor(file->fd_pid, file->fd) : open_mapped(files, file);
	if (fd < 0 || fstat(fd, &seen) < 0 || seen.st_ino != file->inode ||
	    seen.st_dev != file->device)
		return false;
	/* cachestat() sees nothing of files on overlay: their pages are those of the files below. */
	if (file->is_overlay ? !count_by_mapping(fd, (uint64_t)seen.st_size, &pages.cached)
			     : syscall(SYS_cachestat, fd, &whole, &pages, 0) < 0)
		return false;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	*ret_cached_bytes = pages.cached * page;
	*ret_dirty_bytes = pages.dirty * page;
	return true;
}

/* ---- others ---- */

bool hl_pod_files_pipe(const struct hl_pod_open_file *pipe, uint64_t *ret_bytes,
		       uint64_t *ret_capacity_bytes)
{
	HL_CLOSED int fd = copy_descriptor(pipe->fd_pid, pipe->fd);
	struct stat seen;
	int bytes, capacity;

	if (fd < 0 || fstat(fd, &seen) < 0 || seen.st_ino != pipe->inode ||
	    ioctl(fd, FIONREAD, &bytes) < 0 || (capacity = fcntl(fd, F_GETPIPE_SZ)) < 0)
		return false;
	*ret_bytes = (uint64_t)bytes;
	*ret_capacity_bytes = (uint64_t)capacity;
	return true;
}

void hl_pod_files_name(const struct hl_pod_open_file *file, char name[HL_POD_NAME_MAX])
{
	bool has_prefix = !strncmp(file->name, "/memfd:", 7) || !strncmp(file->name, "/SYSV", 5);

	snprintf(name, HL_POD_NAME_MAX, "%s", file->name + has_prefix);
	size_t length = strlen(name), suffix = strlen(" (deleted)");
	bool is_deleted = length > suffix && !strcmp(name + length - suffix, " (deleted)");
	/* A path says that it leads nowhere any more. */
	if (is_deleted && (has_prefix || !strncmp(name, "/dev/zero", 9)))
		name[length - suffix] = '\0';
	if (!strcmp(name, "/dev/zero"))
		snprintf(name, HL_POD_NAME_MAX, "shared anonymous memory");
}

void hl_pod_files_release(struct hl_pod_files *files)
{
	for (size_t i = 0; i < files->count; i++)
		free(files->files[i].name);
	for (size_t i = 0; i < files->tmpfs_count; i++)
		free(files->tmpfs[i].mount);
	free(files->files);
	free(files->tmpfs);
	free(files->locks);
	*files = (struct hl_pod_files){0};
}
