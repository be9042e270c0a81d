/* SPDX-License-Identifier: BSD-2-Clause */
/* Folders with symbolic links beside the recording, whose targets are its place and labels; see push_folder.h. */
#include "cli/push_folder.h"

#include "base/cleanup.h"
#include "cli/record_child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#define YOUNG_S 60 /* in this time a recorder has begun to record */

static const char *temporary(void)
{
	const char *parent = getenv("TMPDIR");

	return parent && *parent ? parent : "/tmp";
}

static int link_text(const struct hl_push_folder *folder, const char *name, const char *text)
{
	return *text && symlinkat(text, folder->fd, name) < 0 ? -errno : 0;
}

static void read_text(struct hl_push_folder *folder, const char *name, char text[PATH_MAX])
{
	ssize_t length = readlinkat(folder->fd, name, text, PATH_MAX - 1);

	text[length < 0 ? 0 : length] = '\0';
}

int hl_push_folder_make(struct hl_push_folder *folder, struct hl_error *err)
{
	int r = hl_record_child_folder(folder->path, sizeof(folder->path), err);

	if (r < 0)
		return r;
	folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = folder->fd < 0 || flock(folder->fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
	if (r == 0)
		r = link_text(folder, "service", folder->service);
	if (r == 0)
		r = link_text(folder, "version", folder->version);
	/* Last: without it the folder is nobody's. */
	if (r == 0)
		r = link_text(folder, "spool", folder->spool);
	return r == 0 ? 0
		      : hl_error_set(err, r, "cannot prepare the folder '%s': %s", folder->path,
				     strerror(-r));
}

/* Locks ${folder}, which its path names. Whether it was left for ${spool}. */
static bool open_left(struct hl_push_folder *folder, const char *spool)
{
	struct stat status;

	folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (folder->fd < 0 || fstat(folder->fd, &status) < 0 || status.st_uid != geteuid() ||
	    flock(folder->fd, LOCK_EX | LOCK_NB) < 0)
		return false;
	read_text(folder, "spool", folder->spool);
	read_text(folder, "service", folder->service);
	read_text(folder, "version", folder->version);
	if (strcmp(folder->spool, spool) != 0)
		return false;
	/* The recorder outlives its push, and locks the recording. */
	HL_CLOSED int fd =
		openat(folder->fd, HL_PUSH_RECORDING, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd >= 0 ? flock(fd, LOCK_SH | LOCK_NB) == 0
		       : errno == ENOENT && time(NULL) - status.st_mtim.tv_sec > YOUNG_S;
}

void hl_push_folder_find(const char *spool, hl_push_folder_visit *visit, void *context)
{
	DIR *stream = opendir(temporary());

	for (const struct dirent *entry; stream && (entry = readdir(stream));) {
		struct hl_push_folder folder = {.fd = -1};
		if (strncmp(entry->d_name, "heapline-", strlen("heapline-")) != 0 ||
		    snprintf(folder.path, sizeof(folder.path), "%s/%s", temporary(),
			     entry->d_name) >= (int)sizeof(folder.path))
			continue;
		if (open_left(&folder, spool) && visit(context, &folder))
			hl_record_child_remove(folder.path);
		hl_cleanup_close(&folder.fd);
	}
	if (stream)
		closedir(stream);
}
