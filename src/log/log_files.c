/* SPDX-License-Identifier: BSD-2-Clause */
/* The files of logs: names, headers, the places that hold them, which are kept; see log.h. */
#include "log/log.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "log/events.h"
#include "log/log_writer.h"
#include "log/segment.h"

#define XXH_INLINE_ALL
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define TICK_NS	      UINT64_C(1000000)
#define NS_PER_SECOND UINT64_C(1000000000)

/* Formats change seldom: a larger version is damage. */
#define VERSION_PLAUSIBLE 1000u

const struct hl_log_file_kind hl_log_segments = {
	.prefix = "memlog",
	.suffix = "hll",
	.magic = HL_SEGMENT_MAGIC,
	.version = HL_SEGMENT_VERSION,
	.name = "log",
	.pronoun = "one",
	.record_options = "--mode log-fast",
	.reading = "reading the log",
	.read = hl_segment_read_index,
};
const struct hl_log_file_kind hl_log_event_files = {
	.prefix = "events",
	.suffix = "hle",
	.magic = HL_EVENTS_MAGIC,
	.version = HL_EVENTS_VERSION,
	.name = "events",
	.pronoun = "them",
	.record_options = "--mode log-fast --events",
	.reading = "looking for events",
	.read = hl_event_log_find_parts,
};

/* ---- names ---- */

void hl_log_files_name(const struct hl_log_file_kind *kind, const struct hl_segment_header *header,
		       char name[HL_SEGMENT_NAME_MAX])
{
	uint64_t start_ns =
		header->start_realtime_ns + header->first_interval * HL_INTERVAL_TICKS * TICK_NS;
	time_t seconds = (time_t)(start_ns / NS_PER_SECOND);
	struct tm utc;
	char date[16];

	gmtime_r(&seconds, &utc);
	strftime(date, sizeof(date), "%Y%m%dT%H%M%S", &utc);
	snprintf(name, HL_SEGMENT_NAME_MAX, "%s-%u-%s-%06u.%s", kind->prefix, header->process, date,
		 header->number, kind->suffix);
}

static bool is_file(const char *name, const struct hl_log_file_kind *kind, struct hl_log_file *file)
{
	char date[16];
	size_t prefix = strlen(kind->prefix);
	unsigned process, number;

	if (strlen(name) >= sizeof(file->name) || strncmp(name, kind->prefix, prefix) != 0 ||
	    sscanf(name + prefix, "-%u-%15[0-9T]-%u.", &process, date, &number) != 3 || !number)
		return false;
	file->kind = kind;
	file->process = process;
	file->number = number;
	snprintf(file->name, sizeof(file->name), "%s-%u-%s-%06u.%s", kind->prefix, process, date,
		 number, kind->suffix);
	return !strcmp(name, file->name);
}

/* Whether ${name} is that of a file of a log; then its kind, process, number and name are set. */
static bool log_files_parse(const char *name, struct hl_log_file *file)
{
	return is_file(name, &hl_log_segments, file) || is_file(name, &hl_log_event_files, file);
}

/* ---- headers ---- */

static uint64_t hash_of(const struct hl_segment_header *header)
{
	return XXH3_64bits(header, offsetof(struct hl_segment_header, hash));
}

void hl_log_files_seal_header(const struct hl_log_file_kind *kind, struct hl_segment_header *header)
{
	memcpy(header->magic, kind->magic, sizeof(header->magic));
	header->version = kind->version;
	header->header_bytes = sizeof(*header);
	header->tick_ns = TICK_NS;
	header->interval_ticks = HL_INTERVAL_TICKS;
	header->hash = hash_of(header);
}

const char *hl_log_files_check_header(const struct hl_log_file_kind *kind, uint32_t process,
				      const struct hl_segment_header *header)
{
	if (memcmp(header->magic, kind->magic, sizeof(header->magic)) != 0)
		return kind == &hl_log_segments ? "it is not a log segment"
						: "it is not a file of events";
	if (header->version != kind->version && header->version <= VERSION_PLAUSIBLE)
		return "another version of heapline wrote it";
	if (header->version != kind->version || header->hash != hash_of(header) ||
	    header->header_bytes != sizeof(*header) || header->tick_ns != TICK_NS ||
	    header->interval_ticks != HL_INTERVAL_TICKS)
		return "its header is damaged";
	if (header->process != process)
		return "it is of another process than its name says";
	return NULL;
}

/* ---- places: directories, and files that hold files ---- */

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

	if (!log_files_parse(name, &file))
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

/* ---- rotation ---- */

int hl_log_rotation_begin(struct hl_log_rotation *rotation, uint64_t first_interval,
			  struct hl_piece_writer *pieces)
{
	struct hl_segment_header header = {
		.process = rotation->process,
		.number = rotation->number + 1,
		.first_interval = first_interval,
		.start_realtime_ns = rotation->start_realtime_ns,
	};

	if (HL_ARRAY_RESERVE(rotation->kept, rotation->kept_capacity, rotation->kept_count + 1) < 0)
		return -ENOMEM;
	char *name = rotation->kept[rotation->kept_count].name;
	hl_log_files_seal_header(rotation->kind, &header);
	hl_log_files_name(rotation->kind, &header, name);
	int fd = openat(rotation->directory_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
			0666);
	if (fd < 0)
		return -errno;
	int fd_before = pieces->fd;
	uint64_t position_before = pieces->position;
	pieces->fd = fd;
	pieces->position = 0;
	int r = hl_piece_writer_write_bytes(pieces, &header, sizeof(header));
	if (r < 0) {
		unlinkat(rotation->directory_fd, name, 0);
		close(fd);
		pieces->fd = fd_before;
		pieces->position = position_before;
		return r;
	}
	rotation->number++;
	rotation->kept_count++;
	return 0;
}

void hl_log_rotation_abandon(struct hl_log_rotation *rotation)
{
	unlinkat(rotation->directory_fd, rotation->kept[--rotation->kept_count].name, 0);
	rotation->number--;
}

void hl_log_rotation_delete_oldest(struct hl_log_rotation *rotation)
{
	if (rotation->kept_count <= rotation->most)
		return;
	size_t surplus = rotation->kept_count - rotation->most;
	for (size_t i = 0; i < surplus; i++)
		unlinkat(rotation->directory_fd, rotation->kept[i].name, 0);
	rotation->kept_count = rotation->most;
	memmove(rotation->kept, rotation->kept + surplus,
		rotation->kept_count * sizeof(*rotation->kept));
}

void hl_log_rotation_release(struct hl_log_rotation *rotation)
{
	free(rotation->kept);
	rotation->kept = NULL;
	rotation->kept_count = rotation->kept_capacity = 0;
}
