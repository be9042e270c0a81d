/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies recordings that go on; see control.h. */
#include "collector/control.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/worker.h"
#include "recording/recording_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
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

/* A file that is gone by now was an old segment; one that is there is newer than what is copied:
 * the meta data, and processes that were running. */
static int copy_file(int from_fd, int to_fd, const char *name)
{
	/* Whose file it is may have put anything in its place. */
	HL_CLOSED int from = openat(from_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat status;

	if (from < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(from, &status) < 0)
		return -errno;
	if (!S_ISREG(status.st_mode))
		return -EINVAL;
	HL_CLOSED int to = openat(to_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (to < 0)
		return errno == EEXIST ? 0 : -errno;
	/* As much as there is now: the log that is being written grows, and any part of it that
	 * begins at its start can be read. */
	return hl_directory_copy_bytes(from, to, (uint64_t)status.st_size);
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
		/* All but what is being written */
		if (hl_directory_is_file(entry->d_name) && entry->d_name[0] != '.')
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

/* ---- what is written now ---- */

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

/* All but making the directory, which is taken away again on failure. */
static int begin(struct hl_snapshot *snapshot, const struct hl_archive *archive,
		 const struct hl_tracked *tracked, struct hl_error *err)
{
	struct hl_recording meta = archive->meta;
	int r = 0;

	snapshot->source_fd = fcntl(archive->directory.fd, F_DUPFD_CLOEXEC, 0);
	snapshot->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (snapshot->source_fd < 0 || snapshot->done_fd < 0)
		return hl_error_set(err, -errno, "cannot make a snapshot: %s", strerror(errno));
	for (; r == 0 && tracked; tracked = tracked->next)
		if (hl_tracked_has_begun(tracked))
			r = hl_tracked_copy(tracked, snapshot->directory.fd, err);
	meta.duration_ns = hl_clock_ns(CLOCK_MONOTONIC) - archive->start_ns;
	meta.complete = false;
	meta.snapshot = true;
	if (r == 0)
		r = hl_recording_write_meta(snapshot->directory.fd, &meta, err);
	if (r < 0)
		return r;
	r = hl_worker_start(&snapshot->thread, 0, run, snapshot);
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
		hl_directory_keep(&snapshot->directory); /* the disk need not hold both */
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

bool hl_snapshot_is_done(const struct hl_snapshot *snapshot)
{
	struct pollfd poller = {.fd = snapshot->done_fd, .events = POLLIN};

	return poll(&poller, 1, 0) == 1;
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
