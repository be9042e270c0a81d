/* SPDX-License-Identifier: BSD-2-Clause */
/* Files of a spool: numbers in order, each written under another name first. See spool.h. */
#include "push/spool.h"

#include "base/array.h"
#include "base/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#define SUFFIX	       ".push"
#define NEW_FILE       "new"
#define LOCK	       "lock"
#define NAME_MAX_BYTES 32
#define FOLDERS_MAX    64 /* pushes to one place at a time */

struct item {
	uint64_t number, size;
};

struct hl_push_spool {
	char *path;
	int fd, lock_fd; /* of the directory in use: the path's own or one in it; -1: none yet */
	uint64_t most, bytes;
	struct item *items;	       /* in order */
	size_t count, capacity, first; /* items before the first were sent or dropped */
};

static void put_name(char name[NAME_MAX_BYTES], uint64_t number)
{
	snprintf(name, NAME_MAX_BYTES, "%016" PRIx64 SUFFIX, number);
}

static int fail(const struct hl_push_spool *spool, const char *what, struct hl_error *err)
{
	int code = -errno;

	return hl_error_set(err, code, "cannot %s the spool '%s': %s", what, spool->path,
			    strerror(-code));
}

static int by_number(const void *left, const void *right)
{
	const struct item *a = left, *b = right;

	return (a->number > b->number) - (a->number < b->number);
}

/* Adds the files of the open directory ${fd} to ${items}, in order, and their bytes. */
static int list_items(int directory_fd, struct item **items, size_t *count, size_t *capacity,
		      uint64_t *bytes)
{
	int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);

	if (!stream)
		return -errno;
	for (const struct dirent *entry; r == 0 && (entry = readdir(stream));) {
		char name[NAME_MAX_BYTES];
		struct stat status;
		uint64_t number = strtoull(entry->d_name, NULL, 16);
		put_name(name, number);
		if (strcmp(name, entry->d_name) != 0 ||
		    fstatat(directory_fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(status.st_mode))
			continue;
		*bytes += (uint64_t)status.st_size;
		r = HL_ARRAY_APPEND(*items, *count, *capacity,
				    (struct item){number, (uint64_t)status.st_size});
	}
	closedir(stream);
	if (*count)
		qsort(*items, *count, sizeof(**items), by_number);
	return r;
}

static uint64_t next_number(const struct hl_push_spool *spool)
{
	return spool->count ? spool->items[spool->count - 1].number + 1 : 1;
}

/* Moves the files of another directory, whose push has ended, behind the own ones. */
static int adopt(struct hl_push_spool *spool, int fd)
{
	HL_FREED struct item *items = NULL;
	size_t count = 0, capacity = 0;
	uint64_t bytes = 0;
	int r = list_items(fd, &items, &count, &capacity, &bytes);

	for (size_t i = 0; r == 0 && i < count; i++) {
		struct item item = {next_number(spool), items[i].size};
		char from[NAME_MAX_BYTES], to[NAME_MAX_BYTES];
		put_name(from, items[i].number);
		put_name(to, item.number);
		r = HL_ARRAY_RESERVE(spool->items, spool->capacity, spool->count + 1);
		if (r == 0 && renameat(fd, from, spool->fd, to) < 0)
			r = -errno;
		if (r == 0) {
			spool->items[spool->count++] = item;
			spool->bytes += item.size;
		}
	}
	return r;
}

/* Makes the directories of ${path}, as mkdir -p. */
static int make_directories(const char *path)
{
	HL_FREED char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(copy, 0700) < 0 && errno != EEXIST)
			return -errno;
		*slash = '/';
	}
	return mkdir(copy, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

/* Opens and locks the directory of a number from 1 on: the path itself, "2" in it, and so on. 0; -ENOENT; -EBUSY: another push has it. */
static int lock_folder(const struct hl_push_spool *spool, unsigned number, bool makes, int *ret_fd,
		       int *ret_lock_fd)
{
	char path[PATH_MAX];
	int length = snprintf(path, sizeof(path), number > 1 ? "%s/%u" : "%s", spool->path, number);

	if (length >= (int)sizeof(path))
		return -ENAMETOOLONG;
	int r = makes ? make_directories(path) : 0;
	HL_CLOSED int fd = r == 0 ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (fd < 0)
		return r < 0 ? r : -errno;
	HL_CLOSED int lock_fd = openat(fd, LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock_fd < 0)
		return -errno;
	if (flock(lock_fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	*ret_fd = fd;
	*ret_lock_fd = lock_fd;
	fd = lock_fd = -1;
	return 0;
}

/* Takes the first directory that no other push has, and what lies in others without one. 0 where there is none and none is made. */
static int take_folder(struct hl_push_spool *spool, bool makes)
{
	int r = 0;

	for (unsigned number = 1; r == 0 && number <= FOLDERS_MAX; number++) {
		int fd = -1, lock_fd = -1;
		bool is_first = spool->fd < 0;
		r = lock_folder(spool, number, makes && is_first, &fd, &lock_fd);
		if (r == -ENOENT)
			return 0;
		if (r == 0 && is_first) {
			spool->fd = fd;
			spool->lock_fd = lock_fd;
			r = list_items(fd, &spool->items, &spool->count, &spool->capacity,
				       &spool->bytes);
			continue;
		}
		if (r == 0)
			adopt(spool, fd); /* what cannot be moved waits for the next push */
		hl_cleanup_close(&fd);
		hl_cleanup_close(&lock_fd);
		r = r == -EBUSY || spool->fd >= 0 ? 0 : r;
	}
	return r == 0 && spool->fd < 0 ? -EBUSY : r;
}

static int open_folder(struct hl_push_spool *spool, bool makes, struct hl_error *err)
{
	int r = take_folder(spool, makes);

	if (r == 0)
		return 0;
	hl_cleanup_close(&spool->fd);
	hl_cleanup_close(&spool->lock_fd);
	spool->fd = spool->lock_fd = -1;
	spool->first = spool->count = spool->bytes = 0;
	if (r == -EBUSY)
		return hl_error_set(
			err, r,
			"cannot use the spool '%s': %u 'heapline push' to the same place use "
			"it; name another with --spool",
			spool->path, FOLDERS_MAX);
	errno = -r;
	return fail(spool, "use", err);
}

int hl_push_spool_open(const char *path, uint64_t most, struct hl_push_spool **ret_spool,
		       struct hl_error *err)
{
	struct hl_push_spool *spool = calloc(1, sizeof(*spool));

	if (!spool)
		return hl_error_set(err, -ENOMEM, "out of memory");
	*spool =
		(struct hl_push_spool){.path = strdup(path), .fd = -1, .lock_fd = -1, .most = most};
	int r = spool->path ? open_folder(spool, false, err)
			    : hl_error_set(err, -ENOMEM, "out of memory");
	if (r < 0)
		hl_push_spool_free(spool);
	else
		*ret_spool = spool;
	return r;
}

void hl_push_spool_free(struct hl_push_spool *spool)
{
	if (!spool)
		return;
	hl_cleanup_close(&spool->fd);
	hl_cleanup_close(&spool->lock_fd);
	free(spool->items);
	free(spool->path);
	free(spool);
}

size_t hl_push_spool_count(const struct hl_push_spool *spool)
{
	return spool->count - spool->first;
}

bool hl_push_spool_has_room(const struct hl_push_spool *spool, uint64_t size)
{
	return size <= spool->most && spool->bytes <= spool->most - size;
}

void hl_push_spool_pop(struct hl_push_spool *spool)
{
	const struct item *item = &spool->items[spool->first++];
	char name[NAME_MAX_BYTES];

	put_name(name, item->number);
	unlinkat(spool->fd, name, 0);
	spool->bytes -= item->size;
	if (spool->first == spool->count)
		spool->first = spool->count = 0;
}

static int write_new(struct hl_push_spool *spool, const char *bytes, size_t size)
{
	HL_CLOSED int fd = openat(spool->fd, NEW_FILE,
				  O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -errno;
	while (size) {
		ssize_t written = write(fd, bytes, size);
		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return -errno;
		bytes += written;
		size -= (size_t)written;
	}
	return 0;
}

int hl_push_spool_add(struct hl_push_spool *spool, const void *bytes, size_t size,
		      uint64_t *dropped, struct hl_error *err)
{
	char name[NAME_MAX_BYTES];
	int r = spool->fd < 0 ? open_folder(spool, true, err) : 0;

	if (r < 0) {
		++*dropped;
		return r;
	}
	for (; hl_push_spool_count(spool) && spool->bytes + size > spool->most; ++*dropped)
		hl_push_spool_pop(spool);
	if (size > spool->most) {
		++*dropped;
		return 0;
	}
	r = write_new(spool, bytes, size);
	uint64_t number = next_number(spool);
	put_name(name, number);
	if (r == 0)
		r = HL_ARRAY_RESERVE(spool->items, spool->capacity, spool->count + 1);
	if (r == 0 && renameat(spool->fd, NEW_FILE, spool->fd, name) < 0)
		r = -errno;
	if (r < 0) {
		++*dropped;
		errno = -r;
		return fail(spool, "write to", err);
	}
	spool->items[spool->count++] = (struct item){number, size};
	spool->bytes += size;
	return 0;
}

int hl_push_spool_first(struct hl_push_spool *spool, char **ret_bytes, size_t *ret_size,
			struct hl_error *err)
{
	char name[NAME_MAX_BYTES];

	if (!hl_push_spool_count(spool))
		return -ENOENT;
	const struct item *item = &spool->items[spool->first];
	put_name(name, item->number);
	HL_CLOSED int fd = openat(spool->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	HL_FREED char *bytes = malloc(item->size + 1);
	size_t size = 0;
	ssize_t got = 1;

	if (fd < 0 || !bytes)
		return fail(spool, "read from", err);
	while (size < item->size && got > 0) {
		got = read(fd, bytes + size, item->size - size);
		size += got > 0 ? (size_t)got : 0;
	}
	if (size < item->size) {
		errno = got < 0 ? errno : EIO;
		return fail(spool, "read from", err);
	}
	bytes[size] = '\0';
	*ret_bytes = HL_TAKE(bytes);
	*ret_size = size;
	return 0;
}
