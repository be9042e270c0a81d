/* SPDX-License-Identifier: BSD-2-Clause */
/* Directories, and files that hold files; see log_place.h. */
#include "log/log_place.h"

#include "base/array.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int hl_log_place_open_directory(struct hl_log_place *place, const char *path, struct hl_error *err)
{
	*place = (struct hl_log_place){.path = strdup(path), .fd = -1, .is_directory = true};
	if (!place->path)
		return hl_error_set(err, -ENOMEM, "cannot open '%s': out of memory", path);
	place->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (place->fd < 0)
		return hl_error_set(err, -errno, "cannot open '%s': %s", path, strerror(errno));
	return 0;
}

int hl_log_place_open_file(struct hl_log_place *place, int fd, const char *path)
{
	*place = (struct hl_log_place){.path = strdup(path), .fd = -1};
	if (!place->path)
		return -ENOMEM;
	place->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return place->fd < 0 ? -errno : 0;
}

int hl_log_place_add(struct hl_log_place *place, const char *name, uint64_t offset, uint64_t bytes)
{
	if (HL_ARRAY_RESERVE(place->files, place->file_capacity, place->file_count + 1) < 0)
		return -ENOMEM;
	char *copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	place->files[place->file_count++] = (struct hl_log_place_file){copy, offset, bytes};
	return 0;
}

void hl_log_place_release(struct hl_log_place *place)
{
	if (place->fd >= 0)
		close(place->fd);
	for (size_t i = 0; i < place->file_count; i++)
		free(place->files[i].name);
	free(place->files);
	free(place->path);
	*place = HL_LOG_PLACE_NONE;
}

int hl_log_place_each(const struct hl_log_place *place,
		      int (*take)(void *context, const char *name), void *context)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < place->file_count; i++)
		r = take(context, place->files[i].name);
	if (!place->is_directory)
		return r;
	int fd = openat(place->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	if (!directory) {
		r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	for (const struct dirent *entry; r == 0 && (entry = readdir(directory));)
		r = take(context, entry->d_name);
	closedir(directory);
	return r;
}

static int open_in_directory(const struct hl_log_place *place, const char *name,
			     struct hl_log_extent *ret_extent)
{
	struct stat status;
	int fd = openat(place->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0)
		return -errno;
	int r = fstat(fd, &status) < 0 ? -errno : S_ISREG(status.st_mode) ? 0 : -EBADMSG;
	if (r < 0) {
		close(fd);
		return r;
	}
	*ret_extent = (struct hl_log_extent){fd, 0, (uint64_t)status.st_size};
	return 0;
}

int hl_log_place_open(const struct hl_log_place *place, const char *name,
		      struct hl_log_extent *ret_extent)
{
	if (place->is_directory)
		return open_in_directory(place, name, ret_extent);
	for (size_t i = 0; i < place->file_count; i++) {
		const struct hl_log_place_file *file = &place->files[i];
		if (strcmp(file->name, name) != 0)
			continue;
		int fd = fcntl(place->fd, F_DUPFD_CLOEXEC, 0);
		if (fd < 0)
			return -errno;
		*ret_extent = (struct hl_log_extent){fd, file->offset, file->bytes};
		return 0;
	}
	return -ENOENT;
}
