/* SPDX-License-Identifier: BSD-2-Clause */
/* Directories, and files that hold files; see log_files.h. */
#include "log/log_files.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int by_kind_process_number(const void *left, const void *right)
{
	const struct hl_log_file *a = left, *b = right;

	if (a->kind != b->kind)
		return strcmp(a->kind->prefix, b->kind->prefix);
	if (a->process != b->process)
		return a->process < b->process ? -1 : 1;
	return (a->number > b->number) - (a->number < b->number);
}

void hl_log_place_sort(struct hl_log_place *place)
{
	if (place->file_count > 1)
		qsort(place->files, place->file_count, sizeof(*place->files),
		      by_kind_process_number);
}

int hl_log_place_add(struct hl_log_place *place, const char *name, uint64_t offset, uint64_t bytes)
{
	struct hl_log_file file = {.offset = offset, .bytes = bytes};

	if (!hl_log_files_parse(name, &file))
		return 0;
	return HL_ARRAY_APPEND(place->files, place->file_count, place->file_capacity, file);
}

int hl_log_place_list(struct hl_log_place *place)
{
	if (!place->is_directory)
		return 0;
	/* A duplicate of the descriptor would share its position. */
	HL_CLOSED int fd = openat(place->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	int r = 0;

	if (!directory)
		return -errno;
	hl_cleanup_take_fd(&fd);
	place->file_count = 0;
	for (const struct dirent *entry; r == 0 && (entry = readdir(directory));)
		r = hl_log_place_add(place, entry->d_name, 0, 0);
	closedir(directory);
	hl_log_place_sort(place);
	return r;
}

int hl_log_place_open_directory(struct hl_log_place *place, const char *path, struct hl_error *err)
{
	*place = (struct hl_log_place){.path = strdup(path), .fd = -1, .is_directory = true};
	if (!place->path)
		return hl_error_set(err, -ENOMEM, "cannot open '%s': out of memory", path);
	place->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = place->fd < 0 ? -errno : hl_log_place_list(place);
	return r < 0 ? hl_error_set(err, r, "cannot open '%s': %s", path, strerror(-r)) : 0;
}

int hl_log_place_open_file(struct hl_log_place *place, int fd, const char *path)
{
	*place = (struct hl_log_place){.path = strdup(path), .fd = -1};
	if (!place->path)
		return -ENOMEM;
	place->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return place->fd < 0 ? -errno : 0;
}

void hl_log_place_release(struct hl_log_place *place)
{
	if (place->fd >= 0)
		close(place->fd);
	free(place->files);
	free(place->path);
	*place = HL_LOG_PLACE_NONE;
}

const struct hl_log_file *hl_log_place_find(const struct hl_log_place *place,
					    const struct hl_log_file_kind *kind, uint32_t process,
					    size_t *ret_count)
{
	const struct hl_log_file *files = place->files;
	struct hl_log_file wanted = {.kind = kind, .process = process};
	size_t first = HL_LOWER_BOUND(i, place->file_count,
				      by_kind_process_number(&files[i], &wanted) < 0);
	size_t end = first;

	while (end < place->file_count && files[end].kind == kind && files[end].process == process)
		end++;
	*ret_count = end - first;
	return files + first;
}

int hl_log_place_open(const struct hl_log_place *place, const struct hl_log_file *file,
		      struct hl_log_extent *ret_extent)
{
	HL_CLOSED int fd = place->is_directory
				   ? openat(place->fd, file->name,
					    O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
				   : fcntl(place->fd, F_DUPFD_CLOEXEC, 0);
	struct stat status;

	if (fd < 0)
		return -errno;
	*ret_extent = (struct hl_log_extent){fd, file->offset, file->bytes};
	if (place->is_directory) {
		if (fstat(fd, &status) < 0)
			return -errno;
		if (!S_ISREG(status.st_mode))
			return -EBADMSG;
		ret_extent->bytes = (uint64_t)status.st_size;
	}
	hl_cleanup_take_fd(&fd);
	return 0;
}
