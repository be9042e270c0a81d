/* SPDX-License-Identifier: BSD-2-Clause */
/* Entries of a bounded directory; see store.h. */
#include "watch/store.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "base/text.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#define TIME_FORM    "dddddddd.dddddd.ddd."
#define TIME_LITERAL "        T      .   Z" /* what stands between the digits of TIME_FORM */
#define GROUP_MAX    48
#define DEPTH_MAX    8
#define FREE_MIN     (UINT64_C(64) << 10)
#define LOCK	     "lock"
#define LOCK_TRIES   20 /* a child of a service that was killed just now may still have it */
#define LOCK_WAIT_US 50000
#define NEW	     "new" /* a file of an entry that is being written */

static const char *const kind_names[HL_WATCH_KINDS] = {"snapshot", "kill", "recording"};

const char *hl_watch_kind_name(enum hl_watch_kind kind)
{
	return kind_names[kind];
}

/* ---- names ---- */

void hl_watch_name_make(uint64_t realtime_ns, enum hl_watch_kind kind, const char *group,
			char ret_name[HL_WATCH_NAME_MAX])
{
	time_t seconds = (time_t)(realtime_ns / HL_NS_PER_SECOND);
	char when[32] = "", part[GROUP_MAX + 1];
	struct tm parts;
	size_t length = 0;

	if (gmtime_r(&seconds, &parts))
		strftime(when, sizeof(when), "%Y%m%dT%H%M%S", &parts);
	for (const char *at = hl_path_basename(group); *at && length < GROUP_MAX; at++)
		part[length++] =
			isalnum((unsigned char)*at) || (*at && strchr("._-", *at)) ? *at : '_';
	part[length] = '\0';
	if (length >= strlen(HL_WATCH_PARTIAL) &&
	    !strcmp(part + length - strlen(HL_WATCH_PARTIAL), HL_WATCH_PARTIAL))
		part[length - strlen(HL_WATCH_PARTIAL)] = '_';
	snprintf(ret_name, HL_WATCH_NAME_MAX, "%s.%03uZ-%s-%s", when,
		 (unsigned)(realtime_ns / 1000000 % 1000), kind_names[kind], part);
}

bool hl_watch_name_parse(const char *name, struct hl_watch_entry *ret_entry)
{
	size_t time_length = strlen(TIME_FORM), length = strlen(name);
	struct hl_watch_entry entry = {0};

	if (length <= time_length || length >= sizeof(entry.name))
		return false;
	for (size_t i = 0; i < time_length; i++)
		if (TIME_FORM[i] == 'd' ? !isdigit((unsigned char)name[i])
					: name[i] != TIME_LITERAL[i])
			return false;
	for (unsigned kind = 0; kind < HL_WATCH_KINDS; kind++) {
		size_t kind_length = strlen(kind_names[kind]);
		if (name[time_length] != '-' ||
		    strncmp(name + time_length + 1, kind_names[kind], kind_length) != 0 ||
		    name[time_length + 1 + kind_length] != '-')
			continue;
		size_t suffix = strlen(HL_WATCH_PARTIAL);
		entry.kind = kind;
		entry.is_partial =
			length > suffix && !strcmp(name + length - suffix, HL_WATCH_PARTIAL);
		snprintf(entry.name, sizeof(entry.name), "%s", name);
		*ret_entry = entry;
		return true;
	}
	return false;
}

/* ---- the directory ---- */

static int fail(const char *what, const char *path, int code, struct hl_error *err)
{
	return hl_error_set(err, code,
			    "cannot %s the directory '%s': %s; name one that can be written with "
			    "--dir DIR",
			    what, path, strerror(-code));
}

/* The last part alone is made, and one above it: /var/lib/heapline/watch. */
static int make_directory(const char *path)
{
	HL_FREED char *above = strdup(path);

	if (!above)
		return -ENOMEM;
	for (size_t length = strlen(above); length > 1 && above[length - 1] == '/';)
		above[--length] = '\0';
	char *slash = strrchr(above, '/');
	if (slash && slash != above) {
		*slash = '\0';
		if (mkdir(above, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

static int open_directory(struct hl_watch_store *store, const char *path)
{
	*store = (struct hl_watch_store){.path = path, .fd = -1, .lock = -1};
	store->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return store->fd < 0 ? -errno : 0;
}

/* Removes the folder ${name} with all that is in it. Whether it is gone: some may not be removed. */
static bool remove_folder(int directory, const char *name, unsigned depth)
{
	int fd = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);

	if (!list && fd >= 0)
		close(fd);
	for (const struct dirent *entry; list && (entry = readdir(list));) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (unlinkat(fd, entry->d_name, 0) < 0 && depth < DEPTH_MAX)
			remove_folder(fd, entry->d_name, depth + 1);
	}
	if (list)
		closedir(list);
	return unlinkat(directory, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

static uint64_t folder_bytes(int directory, const char *name, unsigned depth)
{
	int fd = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	uint64_t bytes = 0;

	if (!list && fd >= 0)
		close(fd);
	for (const struct dirent *entry; list && (entry = readdir(list));) {
		struct stat status;
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
		    fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		bytes += (uint64_t)status.st_blocks * 512;
		if (S_ISDIR(status.st_mode) && depth < DEPTH_MAX)
			bytes += folder_bytes(fd, entry->d_name, depth + 1);
	}
	if (list)
		closedir(list);
	return bytes;
}

static void remove_partial(struct hl_watch_store *store)
{
	HL_FREED struct hl_watch_entry *entries = NULL;
	size_t count = 0;

	hl_watch_store_list(store, &entries, &count);
	for (size_t i = 0; i < count; i++) {
		char *name = entries[i].name, file[HL_WATCH_NAME_MAX + 16];
		if (!entries[i].is_partial)
			continue;
		snprintf(file, sizeof(file), "%s/kill.json", name);
		bool has_figures = entries[i].kind == HL_WATCH_KILL &&
				   faccessat(store->fd, file, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
		name[strlen(name) - strlen(HL_WATCH_PARTIAL)] = '\0';
		if (!has_figures || hl_watch_store_commit(store, name) < 0)
			hl_watch_store_abandon(store, name);
	}
}

int hl_watch_store_open(struct hl_watch_store *store, const char *path, uint64_t keep,
			uint64_t bytes_max, struct hl_error *err)
{
	int r = make_directory(path);

	if (r == 0)
		r = open_directory(store, path);
	if (r == 0 && faccessat(store->fd, ".", W_OK, 0) < 0)
		r = -errno;
	if (r < 0)
		return fail("write to", path, r, err);
	store->keep = keep;
	store->bytes_max = bytes_max;
	store->lock = openat(store->fd, LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (store->lock < 0)
		return fail("write to", path, -errno, err);
	bool is_ours = flock(store->lock, LOCK_EX | LOCK_NB) == 0;
	for (int tries = LOCK_TRIES; !is_ours && tries > 0; tries--) {
		usleep(LOCK_WAIT_US);
		is_ours = flock(store->lock, LOCK_EX | LOCK_NB) == 0;
	}
	if (!is_ours)
		return hl_error_set(err, -EBUSY,
				    "cannot write to the directory '%s': another 'heapline watch' "
				    "writes there; name another one with --dir DIR",
				    path);
	remove_partial(store);
	hl_watch_store_trim(store);
	return 0;
}

int hl_watch_store_open_read(struct hl_watch_store *store, const char *path, struct hl_error *err)
{
	int r = open_directory(store, path);

	return r < 0 ? hl_error_set(err, r,
				    "cannot read the directory '%s': %s; name the one that "
				    "'heapline watch' writes to with --dir DIR",
				    path, strerror(-r))
		     : 0;
}

void hl_watch_store_close(struct hl_watch_store *store)
{
	if (store->fd >= 0)
		close(store->fd);
	if (store->lock >= 0)
		close(store->lock);
	store->fd = store->lock = -1;
}

static bool is_folder(int directory, const struct dirent *entry)
{
	struct stat status;

	return entry->d_type == DT_DIR ||
	       (entry->d_type == DT_UNKNOWN &&
		fstatat(directory, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
		S_ISDIR(status.st_mode));
}

static int newest_first(const void *left, const void *right)
{
	return strcmp(((const struct hl_watch_entry *)right)->name,
		      ((const struct hl_watch_entry *)left)->name);
}

int hl_watch_store_list(const struct hl_watch_store *store, struct hl_watch_entry **ret_entries,
			size_t *ret_count)
{
	HL_FREED struct hl_watch_entry *entries = NULL;
	size_t count = 0, capacity = 0;
	struct hl_watch_entry found;
	int r = 0;

	int fd = openat(store->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	if (!list)
		return -errno;
	for (const struct dirent *entry; r == 0 && (entry = readdir(list));)
		if (hl_watch_name_parse(entry->d_name, &found) && is_folder(fd, entry))
			r = HL_ARRAY_APPEND(entries, count, capacity, found);
	closedir(list);
	if (r < 0)
		return r;
	if (count)
		qsort(entries, count, sizeof(*entries), newest_first);
	*ret_entries = HL_TAKE(entries);
	*ret_count = count;
	return 0;
}

/* ---- bounds ---- */

static bool is_in_use(const struct hl_watch_store *store, const struct hl_watch_entry *entry)
{
	for (size_t i = 0; i < HL_WATCH_IN_USE_MAX; i++)
		if (!strcmp(store->in_use[i], entry->name))
			return true;
	return entry->is_partial;
}

void hl_watch_store_use(struct hl_watch_store *store, const char *name, bool in_use)
{
	for (size_t i = 0; i < HL_WATCH_IN_USE_MAX; i++)
		if (!strcmp(store->in_use[i], in_use ? "" : name)) {
			snprintf(store->in_use[i], HL_WATCH_NAME_MAX, "%s", in_use ? name : "");
			return;
		}
}

void hl_watch_store_trim(struct hl_watch_store *store)
{
	HL_FREED struct hl_watch_entry *entries = NULL;
	size_t count = 0;
	uint64_t bytes = 0, kept[HL_WATCH_KINDS] = {0};
	bool is_over = false;

	hl_watch_store_list(store, &entries, &count);
	for (size_t i = 0; i < count; i++) {
		uint64_t own_bytes = folder_bytes(store->fd, entries[i].name, 0);
		/* The newest stays, however large; it is what has just been written. */
		is_over = is_over || (i && bytes + own_bytes > store->bytes_max);
		if (!is_in_use(store, &entries[i]) &&
		    (is_over || kept[entries[i].kind] >= store->keep) &&
		    remove_folder(store->fd, entries[i].name, 0))
			continue;
		kept[entries[i].kind] += !entries[i].is_partial;
		bytes += own_bytes;
	}
}

bool hl_watch_store_drop_oldest(struct hl_watch_store *store)
{
	HL_FREED struct hl_watch_entry *entries = NULL;
	size_t count = 0;

	hl_watch_store_list(store, &entries, &count);
	while (count-- > 0)
		if (!is_in_use(store, &entries[count]) &&
		    remove_folder(store->fd, entries[count].name, 0))
			return true;
	return false;
}

static bool has_no_room(int error)
{
	return error == ENOSPC || error == EDQUOT;
}

bool hl_watch_store_is_full(const struct hl_watch_store *store)
{
	struct statvfs disk;

	/* A quota is in no figure of the disk. */
	HL_CLOSED int fd = openat(store->fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	int error = fd < 0 ? errno : posix_fallocate(fd, 0, FREE_MIN);
	return has_no_room(error) || (fd < 0 && fstatvfs(store->fd, &disk) == 0 &&
				      (uint64_t)disk.f_bavail * disk.f_frsize < FREE_MIN);
}

/* ---- entries ---- */

int hl_watch_store_begin(struct hl_watch_store *store, uint64_t realtime_ns,
			 enum hl_watch_kind kind, const char *group,
			 char ret_name[HL_WATCH_NAME_MAX], int *ret_fd)
{
	char name[HL_WATCH_NAME_MAX], partial[HL_WATCH_NAME_MAX + 16];
	const char *suffix = kind == HL_WATCH_RECORDING ? "" : HL_WATCH_PARTIAL;

	for (;; realtime_ns += 1000000) { /* a name that is taken is a millisecond late */
		hl_watch_name_make(realtime_ns, kind, group, name);
		snprintf(partial, sizeof(partial), "%s%s", name, suffix);
		if (faccessat(store->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			continue;
		if (mkdirat(store->fd, partial, 0700) == 0)
			break;
		if (has_no_room(errno) && hl_watch_store_drop_oldest(store))
			continue;
		if (errno != EEXIST)
			return -errno;
	}
	*ret_fd = openat(store->fd, partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*ret_fd < 0) {
		int r = -errno;
		remove_folder(store->fd, partial, 0);
		return r;
	}
	snprintf(ret_name, HL_WATCH_NAME_MAX, "%s", name);
	return 0;
}

int hl_watch_store_commit(struct hl_watch_store *store, const char *name)
{
	char partial[HL_WATCH_NAME_MAX + 16], file[HL_WATCH_NAME_MAX + 32];

	snprintf(partial, sizeof(partial), "%s%s", name, HL_WATCH_PARTIAL);
	snprintf(file, sizeof(file), "%s/" NEW, partial);
	unlinkat(store->fd, file, 0); /* of a child that ended early */
	if (renameat(store->fd, partial, store->fd, name) < 0)
		return -errno;
	fsync(store->fd);
	hl_watch_store_trim(store);
	return 0;
}

void hl_watch_store_abandon(struct hl_watch_store *store, const char *name)
{
	char partial[HL_WATCH_NAME_MAX + 16];

	snprintf(partial, sizeof(partial), "%s%s", name, HL_WATCH_PARTIAL);
	bool is_partial = faccessat(store->fd, partial, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	remove_folder(store->fd, is_partial ? partial : name, 0); /* a recording is never partial */
}

json_t *hl_watch_text(const char *text)
{
	HL_FREED char *clean = hl_utf8_clean(text);

	return clean ? json_string(clean) : NULL;
}

static int write_new(int entry_fd, const char *text)
{
	HL_CLOSED int fd = openat(entry_fd, NEW, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	size_t length = strlen(text);

	if (fd < 0)
		return -errno;
	for (size_t done = 0; done < length;) {
		ssize_t bytes = write(fd, text + done, length - done);
		if (bytes < 0)
			return -errno;
		done += (size_t)bytes;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

static int write_once(int entry_fd, const char *file, const char *text)
{
	int r = write_new(entry_fd, text);

	if (r == 0 && renameat(entry_fd, NEW, entry_fd, file) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(entry_fd, NEW, 0);
	else
		fsync(entry_fd);
	return r;
}

int hl_watch_store_write(struct hl_watch_store *store, int entry_fd, const char *file,
			 const json_t *document)
{
	HL_FREED char *text = json_dumps(document, JSON_INDENT(2));
	int r;

	if (!text)
		return -ENOMEM;
	do
		r = write_once(entry_fd, file, text);
	while (has_no_room(-r) && hl_watch_store_drop_oldest(store));
	return r;
}
