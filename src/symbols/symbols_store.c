/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds, makes and bounds the directory of known names; see symbols_cache.h. */
#include "symbols/symbols_cache.h"

#include "base/array.h"
#include "base/build_id.h"
#include "base/cleanup.h"
#include "base/hex.h"

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

/* Opens ${name} in the directory ${at}; a new one is made only where the old ones are ours. */
static int open_below(int at, const char *name, bool create)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT && create && is_ours(at) && mkdirat(at, name, 0700) == 0)
		fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Opens ${path}, then ${names} below one another, up to NULL. */
static int open_path(const char *path, const char *const *names, bool create)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	for (; *names && fd >= 0; names++) {
		int below = open_below(fd, *names, create);
		close(fd);
		fd = below;
	}
	return fd;
}

/* The directory ${cache} itself may have to be made, too. */
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

/* Lists the directory's files, leftovers of interrupted writers too; 0 or -ENOMEM. */
static int list_files(DIR *directory, struct kept_file **files, size_t *ret_count)
{
	size_t capacity = 0;

	for (const struct dirent *entry; (entry = readdir(directory));) {
		struct stat status;
		if (strlen(entry->d_name) >= sizeof((*files)->name) ||
		    fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(status.st_mode))
			continue;
		if (HL_ARRAY_RESERVE(*files, capacity, *ret_count + 1) < 0)
			return -ENOMEM;
		struct kept_file *file = &(*files)[(*ret_count)++];
		strcpy(file->name, entry->d_name);
		file->bytes = (uint64_t)status.st_size;
		file->written = status.st_mtim;
	}
	return 0;
}

void hl_symbols_store_trim(int directory_fd, uint64_t bytes_max)
{
	HL_FREED struct kept_file *files = NULL;
	uint64_t bytes = 0;
	size_t count = 0;
	int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);

	if (!directory) {
		if (fd >= 0)
			close(fd);
		return;
	}
	int r = list_files(directory, &files, &count);
	closedir(directory);
	for (size_t i = 0; i < count; i++)
		bytes += files[i].bytes;
	if (r < 0 || bytes <= bytes_max)
		return;
	qsort(files, count, sizeof(*files), oldest_first);
	for (size_t i = 0; i < count && bytes > bytes_max; i++) {
		unlinkat(directory_fd, files[i].name, 0);
		bytes -= files[i].bytes;
	}
}
