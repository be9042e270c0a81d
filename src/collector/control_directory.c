/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes, lists and cleans the directory of sockets; see control_protocol.h. */
#include "collector/control_protocol.h"

#include "base/array.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define NAME_BYTES 32
#define BACKLOG	   16

/* ---- directories ---- */

/* The directory ${name} within ${base_fd}, if it is private to ${uid}. */
static int open_private(int base_fd, const char *name, uid_t uid, bool make)
{
	bool made = make && mkdirat(base_fd, name, 0700) == 0;

	int fd = openat(base_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ELOOP || errno == ENOTDIR ? -EPERM : -errno;
	/* A umask may have taken from our own permissions. */
	struct stat status;
	if ((made && fchmod(fd, 0700) < 0) || fstat(fd, &status) < 0 || status.st_uid != uid ||
	    (status.st_mode & 07777) != 0700) {
		close(fd);
		return -EPERM;
	}
	return fd;
}

/* A user's own runtime directory. It is kept as it is: another user's (as sudo may leave it in the
 * environment) must not get a directory of ours. */
static int open_in_runtime_dir(const char *path, uid_t uid, bool make)
{
	struct stat status;

	int base_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (base_fd < 0)
		return -errno;
	int r = -EPERM;
	if (fstat(base_fd, &status) == 0 && status.st_uid == uid)
		r = open_private(base_fd, "heapline", uid, make);
	close(base_fd);
	return r;
}

static int open_place(unsigned place, uid_t uid, bool make)
{
	char path[64];
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");

	switch (place) {
	case HL_CONTROL_IN_RUNTIME_DIR:
		if (!runtime || runtime[0] != '/' || uid != geteuid())
			return -ENOENT;
		return open_in_runtime_dir(runtime, uid, make);
	case HL_CONTROL_IN_RUN_USER:
		snprintf(path, sizeof(path), "/run/user/%u", uid);
		return open_in_runtime_dir(path, uid, make);
	default:
		snprintf(path, sizeof(path), "/tmp/heapline-%u", uid);
		return open_private(AT_FDCWD, path, uid, make);
	}
}

int hl_control_directory_open(unsigned place, uid_t uid)
{
	return open_place(place, uid, false);
}

int hl_control_directory_make(void)
{
	int fd = -ENOENT;

	for (unsigned place = 0; fd < 0 && place < HL_CONTROL_PLACES; place++)
		fd = open_place(place, geteuid(), true);
	return fd;
}

/* ---- sockets ---- */

/* The process that the socket ${name} belongs to; 0: it is not a socket's name. */
static pid_t pid_of_name(const char *name)
{
	char expected[NAME_BYTES];

	long pid = strtol(name, NULL, 10);
	if (pid <= 0 || pid > INT32_MAX)
		return 0;
	snprintf(expected, sizeof(expected), "%ld.sock", pid);
	return strcmp(name, expected) == 0 ? (pid_t)pid : 0;
}

int hl_control_directory_list(int directory_fd, pid_t **ret_pids, size_t *ret_count)
{
	int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	if (!stream) {
		int r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	pid_t *pids = NULL;
	size_t count = 0, capacity = 0;
	int r = 0;
	for (const struct dirent *entry; r == 0 && (entry = readdir(stream));) {
		pid_t pid = pid_of_name(entry->d_name);
		if (pid)
			r = HL_ARRAY_APPEND(pids, count, capacity, pid);
	}
	closedir(stream);
	if (r < 0) {
		free(pids);
		return r;
	}
	*ret_pids = pids;
	*ret_count = count;
	return 0;
}

static void remove_name(int directory_fd, pid_t pid)
{
	char name[NAME_BYTES];

	snprintf(name, sizeof(name), "%d.sock", pid);
	unlinkat(directory_fd, name, 0);
}

void hl_control_directory_remove(int directory_fd)
{
	remove_name(directory_fd, getpid());
}

void hl_control_directory_clean(int directory_fd)
{
	pid_t *pids;
	size_t count;

	if (hl_control_directory_list(directory_fd, &pids, &count) < 0)
		return;
	for (size_t i = 0; i < count; i++) {
		int fd = hl_control_directory_connect(directory_fd, pids[i]);
		if (fd >= 0)
			close(fd);
		else if (fd == -ECONNREFUSED)
			remove_name(directory_fd, pids[i]);
	}
	free(pids);
}

/* The path goes by way of the descriptor: it fits whatever the directory's name is, and nobody can
 * put another directory in its place. */
static struct sockaddr_un address_of(int directory_fd, const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", directory_fd,
		 name);
	return address;
}

static int new_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd < 0 ? -errno : fd;
}

int hl_control_directory_listen(int directory_fd)
{
	char before[NAME_BYTES], name[NAME_BYTES];

	snprintf(before, sizeof(before), ".%d.new", getpid());
	snprintf(name, sizeof(name), "%d.sock", getpid());
	int fd = new_socket();
	if (fd < 0)
		return fd;
	/* Under another name until it listens, so that under its own name a socket that refuses is
	 * one of the dead. */
	struct sockaddr_un address = address_of(directory_fd, before);
	unlinkat(directory_fd, before, 0);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
	    fchmodat(directory_fd, before, 0600, 0) == 0 && listen(fd, BACKLOG) == 0 &&
	    renameat2(directory_fd, before, directory_fd, name, RENAME_NOREPLACE) == 0)
		return fd;
	int r = -errno;
	unlinkat(directory_fd, before, 0);
	close(fd);
	return r;
}

int hl_control_directory_connect(int directory_fd, pid_t pid)
{
	char name[NAME_BYTES];

	snprintf(name, sizeof(name), "%d.sock", pid);
	struct sockaddr_un address = address_of(directory_fd, name);
	int fd = new_socket();
	if (fd < 0)
		return fd;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	int r = -errno;
	close(fd);
	return r;
}
