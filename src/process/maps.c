/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads /proc/PID/maps and opens what is mapped; see maps.h. */
#include "process/maps.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/encode.h"
#include "base/names.h"
#include "process/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define DELETED " (deleted)"

/* What is left of a line. */
struct cursor {
	const char *at, *end;
};

static bool skip(struct cursor *cursor, char c)
{
	if (cursor->at == cursor->end || *cursor->at != c)
		return false;
	cursor->at++;
	return true;
}

static bool read_number(struct cursor *cursor, int base, uint64_t max, uint64_t *ret_number)
{
	uint64_t number = 0;
	const char *first = cursor->at;

	for (; cursor->at < cursor->end; cursor->at++) {
		int digit = hl_hex_digit(*cursor->at);
		if (digit < 0 || digit >= base)
			break;
		if (number > (max - (uint64_t)digit) / (uint64_t)base)
			return false;
		number = number * (uint64_t)base + (uint64_t)digit;
	}
	*ret_number = number;
	return cursor->at != first;
}

/* "rwxp" with '-' for what is not allowed, and 's' for shared. */
static bool read_flags(struct cursor *cursor, uint32_t *ret_flags)
{
	static const struct {
		char set, unset;
		uint32_t flag;
	} letters[] = {
		{'r', '-', HL_MAP_READ},
		{'w', '-', HL_MAP_WRITE},
		{'x', '-', HL_MAP_EXEC},
		{'s', 'p', HL_MAP_SHARED},
	};
	uint32_t flags = 0;

	for (size_t i = 0; i < HL_COUNT_OF(letters); i++)
		if (skip(cursor, letters[i].set))
			flags |= letters[i].flag;
		else if (!skip(cursor, letters[i].unset))
			return false;
	*ret_flags = flags;
	return true;
}

/* The fields before the path. */
static bool read_fields(struct cursor *cursor, struct hl_map *map)
{
	uint64_t major_number = 0, minor_number = 0;
	bool is_read = read_number(cursor, 16, UINT64_MAX, &map->start) && skip(cursor, '-') &&
		       read_number(cursor, 16, UINT64_MAX, &map->end) && skip(cursor, ' ') &&
		       read_flags(cursor, &map->flags) && skip(cursor, ' ') &&
		       read_number(cursor, 16, UINT64_MAX, &map->offset) && skip(cursor, ' ') &&
		       read_number(cursor, 16, UINT32_MAX, &major_number) && skip(cursor, ':') &&
		       read_number(cursor, 16, UINT32_MAX, &minor_number) && skip(cursor, ' ') &&
		       read_number(cursor, 10, UINT64_MAX, &map->inode) &&
		       (cursor->at == cursor->end || skip(cursor, ' '));

	map->dev_major = (uint32_t)major_number;
	map->dev_minor = (uint32_t)minor_number;
	return is_read && map->start < map->end;
}

static int read_path(struct cursor *cursor, struct hl_map *map)
{
	while (skip(cursor, ' '))
		continue;
	size_t length = (size_t)(cursor->end - cursor->at), suffix = strlen(DELETED);
	map->path = strndup(cursor->at, length);
	if (!map->path)
		return -ENOMEM;
	length = strlen(map->path);
	map->deleted = length > suffix && !strcmp(map->path + length - suffix, DELETED);
	if (map->deleted)
		map->path[length - suffix] = '\0';
	/* The kernel writes a newline in a name as \012 and escapes nothing else. */
	char *to = map->path;
	for (const char *from = map->path; *from; to++) {
		bool newline = !strncmp(from, "\\012", 4);
		*to = newline ? '\n' : *from;
		from += newline ? 4 : 1;
	}
	*to = '\0';
	return 0;
}

static int add_line(struct cursor line, struct hl_maps *maps)
{
	struct hl_map map = {0};
	uint64_t floor = maps->count ? maps->maps[maps->count - 1].end : 0;

	if (!read_fields(&line, &map))
		return -EBADMSG;
	/* The kernel writes a list that is longer than a page in several steps, between which a
	 * mapping may have grown into the next one. */
	if (map.start < floor) {
		map.offset += map.inode ? floor - map.start : 0;
		map.start = floor;
	}
	if (map.start >= map.end)
		return 0;
	if (HL_ARRAY_RESERVE(maps->maps, maps->capacity, maps->count + 1) || read_path(&line, &map))
		return -ENOMEM;
	maps->maps[maps->count++] = map;
	return 0;
}

int hl_maps_parse(const char *text, size_t length, struct hl_maps *ret_maps, struct hl_error *err)
{
	struct hl_maps maps = {0};
	const char *end = text + length;

	for (size_t line = 1; text < end; line++) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		const char *line_end = newline ? newline : end;
		int r = add_line((struct cursor){text, line_end}, &maps);
		if (r) {
			hl_maps_release(&maps);
			return r == -ENOMEM
				       ? hl_error_set(err, r,
						      "cannot read a list of mappings: "
						      "out of memory")
				       : hl_error_set(err, r,
						      "line %zu of a list of mappings makes no "
						      "sense",
						      line);
		}
		text = newline ? newline + 1 : end;
	}
	*ret_maps = maps;
	return 0;
}

int hl_maps_read(pid_t pid, struct hl_maps *ret_maps, struct hl_error *err)
{
	HL_FREED char *text = NULL;
	size_t length;

	int r = hl_proc_read_all(pid, "maps", &text, &length);
	if (r < 0)
		return hl_proc_error(pid, r, "the mappings", err);
	if (length == 0)
		return hl_error_set(
			err, -ESRCH,
			"process '%d' has no memory; it has ended, or is a thread of the "
			"kernel",
			pid);
	return hl_maps_parse(text, length, ret_maps, err);
}

const struct hl_map *hl_maps_find(const struct hl_maps *maps, uint64_t address)
{
	size_t at = HL_LOWER_BOUND(i, maps->count, maps->maps[i].end <= address);

	return at < maps->count && maps->maps[at].start <= address ? &maps->maps[at] : NULL;
}

bool hl_maps_have_file(const struct hl_maps *maps, const char *name)
{
	size_t length = strlen(name);

	for (size_t i = 0; i < maps->count; i++) {
		const char *file = hl_path_basename(maps->maps[i].path);
		if (!strncmp(file, name, length) && (!file[length] || file[length] == '.'))
			return true;
	}
	return false;
}

bool hl_maps_are_32_bit(const struct hl_maps *maps)
{
	return maps->count && maps->maps[maps->count - 1].end <= UINT64_C(1) << 32;
}

bool hl_maps_same_file(const struct hl_map *a, const struct hl_map *b)
{
	return a->inode && a->inode == b->inode && a->dev_major == b->dev_major &&
	       a->dev_minor == b->dev_minor;
}

/*
 * Whether ${fd} is the file of ${map}. Maps have the file system's device, which stat() hides on
 * btrfs (each subvolume has one); on overlayfs, the inode too may be that of a lower layer.
 */
static bool is_file_of(int fd, const struct hl_map *map)
{
	struct stat status;
	struct statfs system;

	if (fstat(fd, &status) || fstatfs(fd, &system) || !S_ISREG(status.st_mode))
		return false;
	if (system.f_type == OVERLAYFS_SUPER_MAGIC)
		return true;
	return status.st_ino == map->inode &&
	       (system.f_type == BTRFS_SUPER_MAGIC ||
		(major(status.st_dev) == map->dev_major && minor(status.st_dev) == map->dev_minor));
}

/* Finds ${path}, without opening it: devices may do things when opened. */
static int find_if_same(const char *path, const struct hl_map *map)
{
	int fd = open(path, O_PATH | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (is_file_of(fd, map))
		return fd;
	close(fd);
	return -ENOENT;
}

static int print_path(char *path, size_t capacity, int length)
{
	if (length < 0 || (size_t)length >= capacity) {
		path[0] = '\0';
		return -ENAMETOOLONG;
	}
	return 0;
}

/* The file that was executed, which needs fewer rights than map_files does. By its path, too: is_file_of() may not
 * tell. */
static int reach_executable(pid_t pid, const struct hl_map *map, char *path, size_t capacity)
{
	char link[PATH_MAX];
	size_t bytes = strlen(map->path);
	int r = print_path(path, capacity,
			   snprintf(path, capacity, "/proc/%d/exe", hl_proc_thread(pid)));
	ssize_t read = r ? -1 : readlink(path, link, sizeof(link) - 1);

	if (read < 0)
		return -ENOENT;
	link[read] = '\0';
	if (strncmp(link, map->path, bytes) != 0 || (link[bytes] && strcmp(link + bytes, DELETED)))
		return -ENOENT;
	return find_if_same(path, map);
}

/* Tries each way; the path that worked is in ${path}. An O_PATH descriptor or a negative errno. */
static int reach_file(pid_t pid, const struct hl_map *map, char *path, size_t capacity)
{
	if (!map->inode)
		return -ENOENT;
	int r = print_path(path, capacity,
			   snprintf(path, capacity, "/proc/%d/map_files/%" PRIx64 "-%" PRIx64,
				    hl_proc_thread(pid), map->start, map->end));
	if (r)
		return r;
	int fd = find_if_same(path, map);
	if (fd < 0)
		fd = reach_executable(pid, map, path, capacity);
	if (fd >= 0 || map->deleted || map->path[0] != '/')
		return fd >= 0 ? fd : -ENOENT;
	r = print_path(path, capacity,
		       snprintf(path, capacity, "/proc/%d/root%s", hl_proc_thread(pid), map->path));
	if (r)
		return r;
	fd = find_if_same(path, map);
	return fd >= 0 ? fd : -ENOENT;
}

/* Opens what an O_PATH descriptor stands for, and closes that. */
static int open_found(int found)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", found);
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	int r = fd < 0 ? -errno : fd;
	close(found);
	return r;
}

static int open_if_regular(int found)
{
	struct stat status;

	if (fstat(found, &status) == 0 && S_ISREG(status.st_mode))
		return open_found(found);
	close(found);
	return -ENOENT;
}

int hl_maps_open_regular(const char *path)
{
	int found = open(path, O_PATH | O_CLOEXEC);

	return found < 0 ? -errno : open_if_regular(found);
}

int hl_maps_open_file(pid_t pid, const struct hl_map *map)
{
	char path[PATH_MAX + 64];

	int found = reach_file(pid, map, path, sizeof(path));
	return found < 0 ? found : open_found(found);
}

int hl_maps_open_path(pid_t pid, const char *path)
{
	char root_path[32];
	const struct open_how how = {.flags = O_PATH | O_CLOEXEC,
				     .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};

	snprintf(root_path, sizeof(root_path), "/proc/%d/root", hl_proc_thread(pid));
	HL_CLOSED int root = open(root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -errno;
	int found = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
	return found < 0 ? -errno : open_if_regular(found);
}

int hl_maps_file_path(pid_t pid, const struct hl_map *map, char *ret_path, size_t capacity)
{
	char path[PATH_MAX + 64];

	int fd = reach_file(pid, map, path, sizeof(path));
	if (fd < 0)
		return fd;
	close(fd);
	if (strlen(path) >= capacity)
		return -ENAMETOOLONG;
	strcpy(ret_path, path);
	return 0;
}

void hl_maps_release(struct hl_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++)
		free(maps->maps[i].path);
	free(maps->maps);
	*maps = (struct hl_maps){0};
}

/* ---- heapline's recorder ---- */

/* What a recorder gets is shared memory. While a process has about as much of it as before, its mappings are not looked at, for so long. */
#define SHARED_KNOWN_NS	    (60 * HL_NS_PER_SECOND)
#define SHARED_CHANGE_PARTS 16 /* of what the recorder has */

static bool has_flag(const char *line, size_t length, const char *flag)
{
	return memmem(line, length, flag, strlen(flag)) != NULL;
}

/*
 * Whether ${map}, whose VmFlags are ${line}, is the recorder's own memory. What is preloaded is not
 * inherited on fork (shared mappings), or neither dumped nor of huge pages where a child needs it, or wiped (private
 * ones). What attach brings is private and not read ahead, and not dumped (recorder/image/private_map.c) or without huge
 * pages (hook/attach_prepare.c), which nobody else says of memory without a file.
 */
static bool is_recorders(const struct hl_map *map, const char *line, size_t length)
{
	if (strcmp(map->path, "/dev/zero") == 0 && map->flags & HL_MAP_SHARED)
		return has_flag(line, length, " dc ") ||
		       (has_flag(line, length, " dd ") && has_flag(line, length, " nh "));
	if (map->inode)
		return false;
	return has_flag(line, length, " wf ") ||
	       (has_flag(line, length, " rr ") &&
		(has_flag(line, length, " dd ") || has_flag(line, length, " nh ")));
}

/* Returns how many KiB of the recorder's mappings are in RAM. */
static uint64_t mark(const char *text, bool has_recorder, struct hl_maps *maps)
{
	struct hl_map *map = NULL;
	size_t index = 0;
	uint64_t sum = 0, kib = 0;

	for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
		char *rest;
		/* Not by sscanf(), which looks for the end of all the text in each line. */
		uint64_t start = strtoull(line, &rest, 16);
		if (*rest == '-') {
			while (index < maps->count && maps->maps[index].start < start)
				index++;
			map = index < maps->count && maps->maps[index].start == start
				      ? &maps->maps[index]
				      : NULL;
			continue;
		}
		if (strncmp(line, "Rss:", 4) == 0)
			kib = strtoull(line + 4, NULL, 10);
		if (!map || strncmp(line, "VmFlags:", 8) != 0) /* the last line of a mapping */
			continue;
		if (has_recorder && is_recorders(map, line, (size_t)(end - line)))
			map->flags |= HL_MAP_RECORDER;
		if (!map->inode && has_flag(line, (size_t)(end - line), " nr "))
			map->flags |= HL_MAP_NORESERVE;
		if (has_flag(line, (size_t)(end - line), " ht "))
			map->flags |= HL_MAP_HUGE_PAGES;
		if (map->flags & HL_MAP_RECORDER)
			sum += kib;
	}
	return sum;
}

static bool has_huge_pages(pid_t pid)
{
	char status[4096];
	const char *line = hl_proc_read_status(pid, status, sizeof(status)) > 0
				   ? strstr(status, "\nHugetlbPages:")
				   : NULL;

	return line && strtoull(line + strlen("\nHugetlbPages:"), NULL, 10) > 0;
}

static bool find_recorder(pid_t pid, struct hl_maps *maps, uint64_t *ret_kib)
{
	bool has_recorder = false;
	char *text = NULL;
	size_t length;

	for (size_t i = 0; i < maps->count; i++)
		if (strcmp(maps->maps[i].path, "/memfd:heapline") == 0) {
			maps->maps[i].flags |= HL_MAP_RECORDER;
			has_recorder = true;
		}
	if ((has_recorder || has_huge_pages(pid)) &&
	    hl_proc_read_all(pid, "smaps", &text, &length) == 0)
		*ret_kib = mark(text, has_recorder, maps);
	free(text);
	return has_recorder;
}

bool hl_maps_mark_recorder(pid_t pid, struct hl_maps *maps)
{
	uint64_t ignored;

	return find_recorder(pid, maps, &ignored);
}

int64_t hl_maps_recorder_bytes(pid_t pid)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};
	struct hl_error ignored = {0};
	uint64_t kib = 0;

	if (hl_maps_read(pid, &maps, &ignored) == 0)
		find_recorder(pid, &maps, &kib);
	return (int64_t)kib * 1024;
}

/* Pages of shared memory and of files that ${pid} has in RAM; 0: that cannot be read. */
static uint64_t read_shared_pages(pid_t pid)
{
	char text[128];
	unsigned long size, resident, shared;

	return hl_proc_read(pid, "statm", text, sizeof(text)) > 0 &&
			       sscanf(text, "%lu %lu %lu", &size, &resident, &shared) == 3
		       ? shared
		       : 0;
}

bool hl_recorder_memory_look(struct hl_recorder_memory *memory, pid_t pid, unsigned parts)
{
	uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC),
		 cpu_ns = hl_clock_ns(CLOCK_THREAD_CPUTIME_ID);

	if (now_ns < memory->looked_ns + memory->cpu_ns * parts)
		return false;
	uint64_t shared_pages = read_shared_pages(pid);
	int64_t grown = ((int64_t)shared_pages - (int64_t)memory->shared_pages) * getpagesize();
	if (memory->bytes && shared_pages && llabs(grown) <= memory->bytes / SHARED_CHANGE_PARTS &&
	    now_ns < memory->looked_ns + SHARED_KNOWN_NS) {
		memory->bytes += grown;
		memory->shared_pages = shared_pages;
		return true;
	}
	int64_t bytes = hl_maps_recorder_bytes(pid);
	memory->shared_pages = shared_pages;
	memory->looked_ns = now_ns;
	memory->cpu_ns = hl_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
	if (bytes)
		memory->bytes = bytes;
	return bytes > 0;
}
