/* SPDX-License-Identifier: BSD-2-Clause */
/* Files of a spool: numbers in order, each written under another name first. See spool.h. */
#include "push/spool.h"

#include "base/array.h"
#include "base/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#define SUFFIX	       ".push"
#define NEW_FILE       "new"
#define LOCK	       "lock"
#define NAME_MAX_BYTES 32

struct item {
	uint64_t number, size;
};

struct hl_push_spool {
	char *path;
	int fd, lock_fd; /* -1: the directory is not there yet */
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

/* Takes over what an earlier process left. */
static int list_items(struct hl_push_spool *spool)
{
	int fd = openat(spool->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);

	if (!stream)
		return -errno;
	for (const struct dirent *entry; r == 0 && (entry = readdir(stream));) {
		char name[NAME_MAX_BYTES];
		struct stat status;
		uint64_t number = strtoull(entry->d_name, NULL, 16);
		put_name(name, number);
		if (strcmp(name, entry->d_name) != 0 ||
		    fstatat(spool->fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(status.st_mode))
			continue;
		spool->bytes += (uint64_t)status.st_size;
		r = HL_ARRAY_APPEND(spool->items, spool->count, spool->capacity,
				    (struct item){number, (uint64_t)status.st_size});
	}
	closedir(stream);
	if (spool->count)
		qsort(spool->items, spool->count, sizeof(*spool->items), by_number);
	return r;
}

static int open_and_lock(struct hl_push_spool *spool, struct hl_error *err)
{
	spool->fd = open(spool->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (spool->fd < 0)
		return errno == ENOENT ? 0 : fail(spool, "open", err);
	spool->lock_fd = openat(spool->fd, LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (spool->lock_fd < 0)
		return fail(spool, "lock", err);
	if (flock(spool->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return hl_error_set(
			err, -EBUSY,
			"cannot use the spool '%s': another 'heapline push' to the same place "
			"uses it; end that one, or name another with --spool",
			spool->path);
	int r = list_items(spool);
	if (r < 0)
		errno = -r;
	return r < 0 ? fail(spool, "read", err) : 0;
}

/* Opens the directory, where it is there. What belongs to another push is not kept open. */
static int open_directory(struct hl_push_spool *spool, struct hl_error *err)
{
	int r = open_and_lock(spool, err);

	if (r < 0) {
		hl_cleanup_close(&spool->fd);
		hl_cleanup_close(&spool->lock_fd);
		spool->fd = spool->lock_fd = -1;
	}
	return r;
}

int hl_push_spool_open(const char *path, uint64_t most, struct hl_push_spool **ret_spool,
		       struct hl_error *err)
{
	struct hl_push_spool *spool = calloc(1, sizeof(*spool));

	if (!spool)
		return hl_error_set(err, -ENOMEM, "out of memory");
	*spool =
		(struct hl_push_spool){.path = strdup(path), .fd = -1, .lock_fd = -1, .most = most};
	int r = spool->path ? open_directory(spool, err)
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
	int r = spool->fd < 0 ? make_directories(spool->path) : 0;

	if (r == 0 && spool->fd < 0 && (r = open_directory(spool, err)) < 0) {
		++*dropped;
		return r;
	}
	if (r == 0 && spool->fd < 0)
		r = -ENOENT; /* it went again */
	for (; hl_push_spool_count(spool) && spool->bytes + size > spool->most; ++*dropped)
		hl_push_spool_pop(spool);
	if (r == 0 && size > spool->most) {
		++*dropped;
		return 0;
	}
	if (r == 0)
		r = write_new(spool, bytes, size);
	uint64_t number = spool->count ? spool->items[spool->count - 1].number + 1 : 1;
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
