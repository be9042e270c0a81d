/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes and replaces recording directories; see directory.h. */
#include "collector/directory.h"

#include "base/cleanup.h"
#include "recording/recording_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

/* For more files (a build's children) the whole file system is synced, which waits for the disk
 * once. */
#define SYNCED_FILES_MAX 16

/*
 * Holds the files of the recording that is replaced until the new one has begun for good. The
 * meta file tells who was killed in between: it leaves the old recording before all other files, and comes
 * back after them. So the files in OLDER are those to keep if it is among them.
 */
#define OLDER ".older"

int hl_directory_copy_bytes(int from_fd, int to_fd, uint64_t bytes)
{
	off_t at = 0;

	while ((uint64_t)at < bytes) {
		size_t left = (size_t)(bytes - (uint64_t)at);
		ssize_t size = copy_file_range(from_fd, &at, to_fd, NULL, left, 0);
		/* Not between all file systems, and not on old kernels. */
		if (size < 0)
			size = sendfile(to_fd, from_fd, &at, left);
		if (size < 0)
			return -errno;
		if (size == 0)
			break;
	}
	return 0;
}

bool hl_directory_is_file(const char *name)
{
	static const char *const patterns[] = {HL_META_FILE,
					       "." HL_META_FILE ".tmp",
					       "process-[0-9]*-[0-9]*.hlp",
					       ".process-[0-9]*-[0-9]*.hlp.tmp",
					       "memlog-[0-9]*-[0-9]*.hll",
					       "events-[0-9]*-[0-9]*.hle",
					       HL_MODULE_FILE_START "*" HL_MODULE_FILE_END,
					       "." HL_MODULE_FILE_START "*" HL_MODULE_FILE_END
					       ".tmp"};

	for (size_t i = 0; i < HL_COUNT_OF(patterns); i++)
		if (fnmatch(patterns[i], name, 0) == 0)
			return true;
	return false;
}

/* A stream over the open directory that leaves ${fd} open; NULL with errno. */
static DIR *list(int fd)
{
	int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	DIR *stream = own < 0 ? NULL : fdopendir(own);
	if (!stream && own >= 0)
		close(own);
	return stream;
}

static int open_older(int fd)
{
	return openat(fd, OLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static bool holds_only_files(int fd, bool may_have_older)
{
	DIR *stream = list(fd);

	if (!stream)
		return false;
	bool good = true;
	for (const struct dirent *entry; good && (entry = readdir(stream));) {
		HL_CLOSED int older = -1;
		if (may_have_older && strcmp(entry->d_name, OLDER) == 0)
			older = open_older(fd);
		good = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
		       hl_directory_is_file(entry->d_name) ||
		       (older >= 0 && holds_only_files(older, false));
	}
	closedir(stream);
	return good;
}

/* Whether the directory holds nothing that is not a recording's. */
static bool may_be_replaced(int fd)
{
	return holds_only_files(fd, true);
}

/* ---- the recording that is replaced ---- */

static int move_file(int from, const char *name, int to)
{
	int r = to < 0 ? unlinkat(from, name, 0) : renameat(from, name, to, name);

	return r < 0 && errno != ENOENT ? -errno : 0;
}

/* Moves the recording's files to the directory ${to}; -1: removes them. */
static int move_files(int from, int to, bool meta_first)
{
	int r = meta_first ? move_file(from, HL_META_FILE, to) : 0;
	DIR *stream = list(from);

	if (!stream)
		return r < 0 ? r : -errno;
	for (const struct dirent *entry; r == 0 && (entry = readdir(stream));)
		if (hl_directory_is_file(entry->d_name) && strcmp(entry->d_name, HL_META_FILE) != 0)
			r = move_file(from, entry->d_name, to);
	closedir(stream);
	return r < 0 || meta_first ? r : move_file(from, HL_META_FILE, to);
}

static int empty(int fd)
{
	return move_files(fd, -1, false);
}

static int set_aside(int fd)
{
	if (mkdirat(fd, OLDER, 0777) < 0)
		return -errno;
	HL_CLOSED int older = open_older(fd);
	return older < 0 ? -errno : move_files(fd, older, true);
}

/* Ends OLDER: its files go to ${to}, the directory that it is in, or with -1 away. */
static int end_older(int fd, int to)
{
	HL_CLOSED int older = open_older(fd);

	int r = older < 0 ? -errno : move_files(older, to, to < 0);
	if (r == 0 && unlinkat(fd, OLDER, AT_REMOVEDIR) < 0)
		r = -errno;
	return r;
}

static bool has_meta(int fd)
{
	return faccessat(fd, HL_META_FILE, F_OK, 0) == 0;
}

/* Completes what somebody was killed at: the old recording is back, unless the new one had begun. */
static int recover(int fd)
{
	HL_CLOSED int older = open_older(fd);
	int r = 0;

	if (older < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!has_meta(older))
		return end_older(fd, -1);
	if (has_meta(fd))
		r = empty(fd);
	return r < 0 ? r : end_older(fd, fd);
}

/* ---- making ---- */

static int open_existing(const char *path)
{
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/*
 * Makes the directory ours until ${fd}, or the process, is gone. False: it is another collector's.
 * A file system that knows no locks is not a reason not to record.
 */
static bool own(int fd)
{
	return flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

static bool is_owned(const char *path)
{
	HL_CLOSED int fd = open_existing(path);

	return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

static int refuse_owned(const char *path, struct hl_error *err)
{
	return hl_error_set(err, -EBUSY,
			    "cannot replace '%s': it is still being recorded; choose another name "
			    "with -o, or wait for its end",
			    path);
}

static bool is_directory(const char *path)
{
	HL_CLOSED int fd = open_existing(path);

	return fd >= 0 || (errno != ENOTDIR && errno != ELOOP);
}

static int refuse_other(const char *path, const char *verb, struct hl_error *err)
{
	return hl_error_set(err, -EEXIST,
			    "cannot %s '%s': it is not a recording; choose another name with -o",
			    verb, path);
}

static int replace_existing(struct hl_directory *directory, struct hl_error *err)
{
	const char *path = directory->path;

	directory->fd = open_existing(path);
	if (directory->fd < 0 && errno != ENOTDIR && errno != ELOOP)
		return hl_error_set(err, -errno, "cannot replace '%s': %s", path, strerror(errno));
	if (directory->fd >= 0 && !own(directory->fd))
		return refuse_owned(path, err);
	if (directory->fd < 0 || !may_be_replaced(directory->fd))
		return refuse_other(path, "replace", err);
	int r = recover(directory->fd);
	if (r == 0) {
		r = set_aside(directory->fd);
		directory->has_older = r == 0;
		if (r < 0)
			end_older(directory->fd, directory->fd);
	}
	if (r < 0)
		return hl_error_set(err, r, "cannot replace '%s': %s", path, strerror(-r));
	return 0;
}

static int make(struct hl_directory *directory, bool replace, struct hl_error *err)
{
	const char *path = directory->path;

	if (mkdir(path, 0777) == 0) {
		directory->fd = open_existing(path);
		if (directory->fd >= 0 && !own(directory->fd)) /* replaced before we came to it */
			return refuse_owned(path, err);
		if (directory->fd >= 0)
			return 0;
	}
	int code = errno;
	if (code == EEXIST && replace)
		return replace_existing(directory, err);
	if (code == EEXIST && is_owned(path))
		return refuse_owned(path, err);
	if (code == EEXIST && !is_directory(path))
		return refuse_other(path, "create", err);
	if (code == EEXIST)
		return hl_error_set(
			err, -EEXIST,
			"cannot create '%s': it exists; use --force to replace a recording", path);
	return hl_error_set(err, -code, "cannot create '%s': %s", path, strerror(code));
}

int hl_directory_init(struct hl_directory *directory, const char *path, bool replace,
		      struct hl_error *err)
{
	*directory = (struct hl_directory){.path = strdup(path), .fd = -1};
	int r = directory->path ? make(directory, replace, err)
				: hl_error_set(err, -ENOMEM, "out of memory");
	if (r < 0)
		hl_directory_release(directory);
	return r;
}

int hl_directory_revive(struct hl_directory *directory)
{
	struct stat status;

	if (fstat(directory->fd, &status) == 0 && status.st_nlink > 0)
		return 0;
	if (mkdir(directory->path, 0777) < 0 && errno != EEXIST)
		return -errno;
	int fd = open_existing(directory->path);
	if (fd < 0)
		return -errno;
	/* Somebody else's directory may stand there now. */
	if (!own(fd) || !may_be_replaced(fd)) {
		close(fd);
		return -EEXIST;
	}
	close(directory->fd);
	directory->fd = fd;
	return 1;
}

void hl_directory_sync(const struct hl_directory *directory)
{
	DIR *stream = list(directory->fd);

	if (!stream)
		return;
	unsigned files = 0;
	for (const struct dirent *entry; (entry = readdir(stream));) {
		if (!hl_directory_is_file(entry->d_name))
			continue;
		if (files++ == SYNCED_FILES_MAX) {
			syncfs(directory->fd);
			break;
		}
		HL_CLOSED int fd = openat(directory->fd, entry->d_name, O_RDONLY | O_CLOEXEC);
		if (fd >= 0)
			fsync(fd);
	}
	closedir(stream);
}

void hl_directory_keep(struct hl_directory *directory)
{
	if (directory->has_older)
		end_older(directory->fd, -1);
	directory->has_older = false;
}

void hl_directory_remove(struct hl_directory *directory)
{
	if (directory->fd < 0)
		return;
	int r = empty(directory->fd);
	if (!directory->has_older)
		rmdir(directory->path);
	else if (r == 0)
		end_older(directory->fd, directory->fd);
	directory->has_older = false;
}

void hl_directory_release(struct hl_directory *directory)
{
	hl_directory_keep(directory);
	if (directory->fd >= 0)
		close(directory->fd);
	free(directory->path);
	*directory = (struct hl_directory){.fd = -1};
}
