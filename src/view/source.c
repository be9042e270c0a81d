/* SPDX-License-Identifier: BSD-2-Clause */
/* Tries ends of paths, and cuts files into lines; see annotate.h. */
#include "view/annotate.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE_LIMIT (64u << 20) /* larger files are not sources that anybody reads */

/* ---- finding ---- */

/* A regular file for reading; anything else, a device or a pipe, could block or never end. */
static int open_regular(const char *path, struct stat *ret_status)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return -errno;
	int r = fstat(fd, ret_status) < 0 ? -errno : S_ISREG(ret_status->st_mode) ? 0 : -EINVAL;
	if (r == 0 && ret_status->st_size > SIZE_LIMIT)
		r = -EFBIG;
	if (r < 0)
		close(fd);
	return r < 0 ? r : fd;
}

/* The longest end of ${recorded} that is below ${folder}, else ${recorded} itself; the path is to
 * be freed. */
static int find(const char *folder, const char *recorded, char **ret_path, struct stat *ret_status)
{
	char *path;
	int fd;

	for (const char *end = folder ? recorded + strspn(recorded, "/") : ""; *end;
	     end += strcspn(end, "/"), end += strspn(end, "/")) {
		if (!strncmp(end, "../", 3) || !strncmp(end, "./", 2))
			continue;
		if (asprintf(&path, "%s/%s", folder, end) < 0)
			return -ENOMEM;
		fd = open_regular(path, ret_status);
		if (fd >= 0) {
			*ret_path = path;
			return fd;
		}
		free(path);
	}
	path = strdup(recorded);
	fd = path ? open_regular(path, ret_status) : -ENOMEM;
	if (fd < 0)
		free(path);
	else
		*ret_path = path;
	return fd;
}

/* ---- reading ---- */

/* Lines end with a newline, or with the end of the file; a carriage return is part of the end. */
static int cut_lines(struct hl_source *source)
{
	size_t count = 1;

	for (const char *at = source->text; (at = strchr(at, '\n')); at++)
		count++;
	source->lines = calloc(count, sizeof(*source->lines));
	if (!source->lines)
		return -ENOMEM;
	for (char *line = source->text, *end; line; line = end) {
		end = strchr(line, '\n');
		if (end)
			*end++ = '\0';
		else if (!*line)
			break;
		line[strcspn(line, "\r")] = '\0';
		source->lines[source->count++] = line;
	}
	return 0;
}

int hl_source_read(struct hl_source *source, const char *recorded, const char *folder)
{
	struct stat status;
	size_t used = 0;
	ssize_t count = 0;

	*source = (struct hl_source){0};
	HL_CLOSED int fd = find(folder, recorded, &source->path, &status);
	if (fd < 0)
		return fd;
	size_t size = (size_t)status.st_size;
	source->changed = status.st_mtime;
	source->text = calloc(size + 1, 1);
	while (source->text && used < size &&
	       (count = read(fd, source->text + used, size - used)) > 0)
		used += (size_t)count;
	int r = !source->text ? -ENOMEM : count < 0 ? -errno : cut_lines(source);
	if (r < 0)
		hl_source_release(source);
	return r;
}

void hl_source_release(struct hl_source *source)
{
	free(source->path);
	free(source->text);
	free(source->lines);
	*source = (struct hl_source){0};
}

const char *hl_source_line(const struct hl_source *source, uint32_t number)
{
	return number && number <= source->count ? source->lines[number - 1] : NULL;
}
