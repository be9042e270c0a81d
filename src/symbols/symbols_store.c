/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds, makes and bounds the directory of known names; see symbols_cache.h. */
#include "symbols/symbols_cache.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/file_print.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".hls"

/* ---- the directory ---- */

static bool is_ours(int fd)
{
	struct stat status;

	return fstat(fd, &status) == 0 && status.st_uid == geteuid();
}

/* Opens ${path}, then ${names} below one another, up to NULL. A new directory is made only where the
 * old ones are ours. */
static int open_path(const char *path, const char *const *names, bool create)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	int fd = open(path, flags);

	if (fd < 0)
		return -errno;
	for (; *names && fd >= 0; names++) {
		int below = openat(fd, *names, flags);
		if (below < 0 && errno == ENOENT && create && is_ours(fd) &&
		    mkdirat(fd, *names, 0700) == 0)
			below = openat(fd, *names, flags);
		if (below < 0)
			below = -errno;
		close(fd);
		fd = below;
	}
	return fd;
}

/* Opens the directory below ${cache}, which may have to be made, too. */
static int open_in_cache(const char *cache, bool create)
{
	char *parent = strdup(cache);
	size_t length = parent ? strlen(parent) : 0;

	if (!parent)
		return -ENOMEM;
	while (length > 1 && parent[length - 1] == '/')
		parent[--length] = '\0';
	char *name = strrchr(parent, '/') + 1;
	const char *const names[] = {name[0] ? name : ".", "heapline", "symbols", NULL};
	name[-1] = '\0';
	int fd = open_path(parent[0] ? parent : "/", names, create);
	free(parent);
	return fd;
}

int hl_symbols_store_open(bool create)
{
	static const char *const in_home[] = {".cache", "heapline", "symbols", NULL};
	const char *word = getenv(HL_SYMBOLS_STORE_SWITCH);
	const char *cache = getenv("XDG_CACHE_HOME");
	const char *home = getenv("HOME");
	int fd = -ENOENT;

	if (word && !strcmp(word, "off"))
		return -ENOENT;
	/* As the XDG Base Directory Specification has it: a relative path counts for nothing. */
	if (cache && cache[0] == '/')
		fd = open_in_cache(cache, create);
	else if (home && home[0] == '/')
		fd = open_path(home, in_home, create);
	if (fd >= 0 && !is_ours(fd)) {
		close(fd);
		return -EPERM;
	}
	return fd;
}

bool hl_symbols_store_name(const uint8_t *build_id, size_t build_id_bytes,
			   char ret_name[HL_SYMBOLS_STORE_NAME_MAX])
{
	if (build_id_bytes < HL_BUILD_ID_UNIQUE || build_id_bytes > HL_BUILD_ID_MAX)
		return false;
	hl_hex_format(ret_name, build_id, build_id_bytes);
	memcpy(ret_name + 2 * build_id_bytes, SUFFIX, sizeof(SUFFIX));
	return true;
}

/* ---- its bounds ---- */

struct kept_file {
	char name[HL_SYMBOLS_STORE_NAME_MAX + sizeof("..tmp")];
	uint64_t bytes;
	struct timespec written;
};

static int oldest_first(const void *left, const void *right)
{
	const struct timespec *a = &((const struct kept_file *)left)->written;
	const struct timespec *b = &((const struct kept_file *)right)->written;

	if (a->tv_sec != b->tv_sec)
		return a->tv_sec < b->tv_sec ? -1 : 1;
	return (a->tv_nsec > b->tv_nsec) - (a->tv_nsec < b->tv_nsec);
}

void hl_symbols_store_trim(int directory_fd, uint64_t bytes_max)
{
	HL_FREED struct kept_file *files = NULL;
	uint64_t bytes = 0;
	size_t count = 0, capacity = 0;
	int r = 0;
	HL_CLOSED int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);

	if (!directory)
		return;
	hl_cleanup_take_fd(&fd);
	/* All files, leftovers of interrupted writers too. */
	for (const struct dirent *entry; r == 0 && (entry = readdir(directory));) {
		struct kept_file file;
		struct stat status;
		if (strlen(entry->d_name) >= sizeof(file.name) ||
		    fstatat(directory_fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(status.st_mode))
			continue;
		strcpy(file.name, entry->d_name);
		file.bytes = (uint64_t)status.st_size;
		file.written = status.st_mtim;
		r = HL_ARRAY_APPEND(files, count, capacity, file);
		bytes += file.bytes;
	}
	closedir(directory);
	if (r < 0 || bytes <= bytes_max)
		return;
	qsort(files, count, sizeof(*files), oldest_first);
	for (size_t i = 0; i < count && bytes > bytes_max; i++) {
		unlinkat(directory_fd, files[i].name, 0);
		bytes -= files[i].bytes;
	}
}
