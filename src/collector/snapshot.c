/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies recordings that go on; see snapshot.h. */
#include "collector/snapshot.h"

#include "base/clock.h"
#include "recording/recording_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

struct hl_snapshot {
	struct hl_directory directory;
	int source_fd; /* the recording's directory */
	int done_fd;
	pthread_t thread;
	int result; /* the thread's, until it has ended */
};

/* ---- what lies there already ---- */

/* All but what is being written. */
static bool is_copied(const char *name)
{
	return hl_directory_is_file(name) && name[0] != '.';
}

/* Copies as much as there is now: the log that is being written grows, and any part of it that
 * begins at its start can be read. */
static int copy_bytes(int from, int to)
{
	struct stat status;
	if (fstat(from, &status) < 0)
		return -errno;
	for (off_t left = status.st_size; left > 0;) {
		ssize_t size = copy_file_range(from, NULL, to, NULL, (size_t)left, 0);
		/* Not between all file systems, and not on old kernels. */
		if (size < 0)
			size = sendfile(to, from, NULL, (size_t)left);
		if (size < 0)
			return -errno;
		if (size == 0)
			return 0;
		left -= size;
	}
	return 0;
}

/* Whose file it is may have put anything in its place. */
static int open_source(int directory_fd, const char *name)
{
	struct stat status;
	int fd = openat(directory_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int r = fstat(fd, &status) < 0 ? -errno : S_ISREG(status.st_mode) ? fd : -EINVAL;
	if (r < 0)
		close(fd);
	return r;
}

/* A file that is gone by now was an old segment; one that is there is newer than what is copied:
 * the meta data, and processes that were running. */
static int copy_file(int from_fd, int to_fd, const char *name)
{
	int from = open_source(from_fd, name);
	if (from < 0)
		return from == -ENOENT ? 0 : from;
	int to = openat(to_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	int r = to < 0 ? (errno == EEXIST ? 0 : -errno) : copy_bytes(from, to);
	if (to >= 0)
		close(to);
	close(from);
	return r;
}

static int copy_files(int from_fd, int to_fd)
{
	int fd = openat(from_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	if (!stream) {
		int r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	int r = 0;
	for (const struct dirent *entry; r == 0 && (entry = readdir(stream));)
		if (is_copied(entry->d_name))
			r = copy_file(from_fd, to_fd, entry->d_name);
	closedir(stream);
	return r;
}

static void *run(void *argument)
{
	struct hl_snapshot *snapshot = argument;
	snapshot->result = copy_files(snapshot->source_fd, snapshot->directory.fd);
	eventfd_write(snapshot->done_fd, 1);
	return NULL;
}

/* Signals are for the thread that supervises the program. */
static int start_thread(struct hl_snapshot *snapshot)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&snapshot->thread, NULL, run, snapshot);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -error;
}

/* ---- what is written now ---- */

static int write_processes(const struct hl_snapshot *snapshot, const struct hl_tracked *tracked,
			   struct hl_error *err)
{
	int r = 0;
	for (; r == 0 && tracked; tracked = tracked->next)
		if (hl_tracked_has_begun(tracked))
			r = hl_tracked_copy(tracked, snapshot->directory.fd, err);
	return r;
}

static int write_meta(const struct hl_snapshot *snapshot, const struct hl_archive *archive,
		      struct hl_error *err)
{
	struct hl_recording meta = archive->meta;
	meta.duration_ns = hl_clock_ns(CLOCK_MONOTONIC) - archive->start_ns;
	meta.complete = false;
	meta.snapshot = true;
	return hl_recording_write_meta(snapshot->directory.fd, &meta, err);
}

/* To replace the recording by a copy of itself would end it. */
static int check_path(const struct hl_archive *archive, const char *path, struct hl_error *err)
{
	struct stat own, other;
	if (fstat(archive->directory.fd, &own) < 0 || stat(path, &other) < 0 ||
	    own.st_dev != other.st_dev || own.st_ino != other.st_ino)
		return 0;
	return hl_error_set(err, -EEXIST,
			    "cannot write a snapshot to '%s': it is the recording itself; choose "
			    "another name",
			    path);
}

static void release(struct hl_snapshot *snapshot)
{
	hl_directory_release(&snapshot->directory);
	if (snapshot->source_fd >= 0)
		close(snapshot->source_fd);
	if (snapshot->done_fd >= 0)
		close(snapshot->done_fd);
	free(snapshot);
}

static int open_descriptors(struct hl_snapshot *snapshot, const struct hl_archive *archive,
			    struct hl_error *err)
{
	snapshot->source_fd = fcntl(archive->directory.fd, F_DUPFD_CLOEXEC, 0);
	snapshot->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (snapshot->source_fd >= 0 && snapshot->done_fd >= 0)
		return 0;
	return hl_error_set(err, -errno, "cannot make a snapshot: %s", strerror(errno));
}

/* All but making the directory, which is taken away again on failure. */
static int begin(struct hl_snapshot *snapshot, const struct hl_archive *archive,
		 const struct hl_tracked *tracked, struct hl_error *err)
{
	int r = open_descriptors(snapshot, archive, err);
	if (r == 0)
		r = write_processes(snapshot, tracked, err);
	if (r == 0)
		r = write_meta(snapshot, archive, err);
	if (r < 0)
		return r;
	r = start_thread(snapshot);
	if (r < 0)
		return hl_error_set(err, r, "cannot make a snapshot: %s", strerror(-r));
	return 0;
}

int hl_snapshot_begin(const struct hl_archive *archive, const struct hl_tracked *tracked,
		      const char *path, bool replace, struct hl_snapshot **ret_snapshot,
		      struct hl_error *err)
{
	int r = check_path(archive, path, err);
	if (r < 0)
		return r;
	struct hl_snapshot *snapshot = calloc(1, sizeof(*snapshot));
	if (!snapshot)
		return hl_error_set(err, -ENOMEM, "out of memory");
	snapshot->directory.fd = snapshot->source_fd = snapshot->done_fd = -1;
	r = hl_directory_init(&snapshot->directory, path, replace, err);
	if (r == 0) {
		r = begin(snapshot, archive, tracked, err);
		if (r < 0)
			hl_directory_remove(&snapshot->directory);
	}
	if (r < 0) {
		release(snapshot);
		return r;
	}
	*ret_snapshot = snapshot;
	return 0;
}

int hl_snapshot_fd(const struct hl_snapshot *snapshot)
{
	return snapshot->done_fd;
}

int hl_snapshot_end(struct hl_snapshot *snapshot, struct hl_error *err)
{
	pthread_join(snapshot->thread, NULL);
	int r = snapshot->result;
	if (r < 0) {
		hl_error_set(err, r, "cannot complete the snapshot '%s': %s",
			     snapshot->directory.path, strerror(-r));
		hl_directory_remove(&snapshot->directory);
	}
	release(snapshot);
	return r;
}

int hl_snapshot_fetch(const char *path, const struct hl_directory *directory, struct hl_error *err)
{
	struct hl_directory passed = {
		.path = (char *)path,
		.fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
	};
	int r = passed.fd < 0 ? -errno : copy_files(passed.fd, directory->fd);
	hl_directory_remove(&passed);
	if (passed.fd >= 0)
		close(passed.fd);
	if (r < 0)
		return hl_error_set(err, r, "cannot copy the snapshot to '%s': %s", directory->path,
				    strerror(-r));
	return 0;
}
