/* SPDX-License-Identifier: BSD-2-Clause */
/* Names, headers, and which files are kept; see log_files.h. */
#include "log/log_files.h"

#include "base/array.h"
#include "log/interval.h"
#include "log/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define TICK_NS	      UINT64_C(1000000)
#define NS_PER_SECOND UINT64_C(1000000000)

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
	.read = hl_segment_find_parts,
};

/* ---- names ---- */

static void name_file(const struct hl_log_rotation *rotation, uint64_t first_interval,
		      struct hl_log_file *file)
{
	uint64_t start_ns =
		rotation->start_realtime_ns + first_interval * HL_INTERVAL_TICKS * TICK_NS;
	time_t seconds = (time_t)(start_ns / NS_PER_SECOND);
	struct tm utc;
	char date[16];

	gmtime_r(&seconds, &utc);
	strftime(date, sizeof(date), "%Y%m%dT%H%M%S", &utc);
	snprintf(file->name, sizeof(file->name), "%s-%u-%s-%06u.%s", rotation->kind->prefix,
		 rotation->process, date, file->number, rotation->kind->suffix);
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

bool hl_log_files_parse(const char *name, struct hl_log_file *file)
{
	return is_file(name, &hl_log_segments, file) || is_file(name, &hl_log_event_files, file);
}

void hl_log_files_name(const struct hl_log_file_kind *kind, const struct hl_segment_header *header,
		       char name[HL_SEGMENT_NAME_MAX])
{
	struct hl_log_file file = {.number = header->number};
	const struct hl_log_rotation rotation = {
		.kind = kind,
		.process = header->process,
		.start_realtime_ns = header->start_realtime_ns,
	};

	name_file(&rotation, header->first_interval, &file);
	memcpy(name, file.name, sizeof(file.name));
}

/* ---- writing ---- */

int hl_log_rotation_create(struct hl_log_rotation *rotation, uint64_t first_interval)
{
	if (HL_ARRAY_RESERVE(rotation->kept, rotation->kept_capacity, rotation->kept_count + 1) < 0)
		return -ENOMEM;
	struct hl_log_file *newest = &rotation->kept[rotation->kept_count];
	newest->number = rotation->number + 1;
	name_file(rotation, first_interval, newest);
	int fd = openat(rotation->directory_fd, newest->name,
			O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	rotation->number++;
	rotation->kept_count++;
	return fd;
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

/* ---- headers ---- */

static uint64_t hash_of(const struct hl_segment_header *header)
{
	return XXH3_64bits(header, offsetof(struct hl_segment_header, hash));
}

struct hl_segment_header hl_log_rotation_header(const struct hl_log_rotation *rotation,
						uint64_t first_interval)
{
	struct hl_segment_header header = {
		.version = rotation->kind->version,
		.header_bytes = sizeof(header),
		.process = rotation->process,
		.number = rotation->number,
		.first_interval = first_interval,
		.start_realtime_ns = rotation->start_realtime_ns,
		.tick_ns = TICK_NS,
		.interval_ticks = HL_INTERVAL_TICKS,
	};

	memcpy(header.magic, rotation->kind->magic, sizeof(header.magic));
	header.hash = hash_of(&header);
	return header;
}

const char *hl_log_files_check_header(const struct hl_log_file_kind *kind, uint32_t process,
				      const struct hl_segment_header *header)
{
	if (memcmp(header->magic, kind->magic, sizeof(header->magic)) != 0)
		return kind == &hl_log_segments ? "it is no log segment"
						: "it is no file of events";
	if (header->version != kind->version)
		return "another version of heapline wrote it";
	if (header->hash != hash_of(header) || header->header_bytes != sizeof(*header) ||
	    header->tick_ns != TICK_NS || header->interval_ticks != HL_INTERVAL_TICKS)
		return "its header is damaged";
	if (header->process != process)
		return "it is of another process than its name says";
	return NULL;
}
