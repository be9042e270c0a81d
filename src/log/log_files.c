/* SPDX-License-Identifier: BSD-2-Clause */
/* Names, headers, and which files are kept; see log_files.h. */
#include "log/log_files.h"

#include "base/array.h"
#include "log/interval.h"

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
};
const struct hl_log_file_kind hl_log_event_files = {
	.prefix = "events",
	.suffix = "hle",
	.magic = HL_EVENTS_MAGIC,
	.version = HL_EVENTS_VERSION,
	.name = "events",
	.pronoun = "them",
	.record_options = "--mode log-fast --events",
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

/* Whether ${name} is that of such a file; then its process and its number are set. */
static bool is_file(const char *name, const struct hl_log_file_kind *kind, uint32_t *ret_process,
		    uint32_t *ret_number)
{
	char date[16], again[HL_SEGMENT_NAME_MAX];
	size_t prefix = strlen(kind->prefix);
	unsigned process, number;

	if (strlen(name) >= sizeof(again) || strncmp(name, kind->prefix, prefix) != 0 ||
	    sscanf(name + prefix, "-%u-%15[0-9T]-%u.", &process, date, &number) != 3 || !number)
		return false;
	snprintf(again, sizeof(again), "%s-%u-%s-%06u.%s", kind->prefix, process, date, number,
		 kind->suffix);
	*ret_process = process;
	*ret_number = number;
	return !strcmp(name, again);
}

const struct hl_log_file_kind *hl_log_files_parse(const char *name, uint32_t *ret_process,
						  uint32_t *ret_number)
{
	static const struct hl_log_file_kind *const kinds[] = {&hl_log_segments,
							       &hl_log_event_files};

	for (size_t i = 0; i < HL_COUNT_OF(kinds); i++)
		if (is_file(name, kinds[i], ret_process, ret_number))
			return kinds[i];
	return NULL;
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
	struct hl_log_file_list *kept = &rotation->kept;

	if (HL_ARRAY_RESERVE(kept->items, kept->capacity, kept->count + 1) < 0)
		return -ENOMEM;
	struct hl_log_file *newest = &kept->items[kept->count];
	newest->number = rotation->number + 1;
	name_file(rotation, first_interval, newest);
	int fd = openat(rotation->directory_fd, newest->name,
			O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	rotation->number++;
	kept->count++;
	return fd;
}

void hl_log_rotation_abandon(struct hl_log_rotation *rotation)
{
	struct hl_log_file *newest = &rotation->kept.items[--rotation->kept.count];

	unlinkat(rotation->directory_fd, newest->name, 0);
	rotation->number--;
}

void hl_log_rotation_delete_oldest(struct hl_log_rotation *rotation)
{
	struct hl_log_file_list *kept = &rotation->kept;
	size_t surplus = kept->count > rotation->most ? kept->count - rotation->most : 0;

	for (size_t i = 0; i < surplus; i++)
		unlinkat(rotation->directory_fd, kept->items[i].name, 0);
	if (surplus)
		memmove(kept->items, kept->items + surplus,
			(kept->count - surplus) * sizeof(*kept->items));
	kept->count -= surplus;
}

void hl_log_rotation_release(struct hl_log_rotation *rotation)
{
	free(rotation->kept.items);
	rotation->kept = (struct hl_log_file_list){0};
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

/* ---- listing ---- */

static int by_number(const void *left, const void *right)
{
	const struct hl_log_file *a = left, *b = right;
	return (a->number > b->number) - (a->number < b->number);
}

struct listing {
	const struct hl_log_file_kind *kind;
	uint32_t process;
	struct hl_log_file_list *list;
};

static int add_entry(void *context, const char *name)
{
	const struct listing *listing = context;
	struct hl_log_file_list *list = listing->list;
	struct hl_log_file file;
	uint32_t process;

	if (!is_file(name, listing->kind, &process, &file.number) || process != listing->process)
		return 0;
	strcpy(file.name, name);
	return HL_ARRAY_APPEND(list->items, list->count, list->capacity, file);
}

int hl_log_files_list(const struct hl_log_place *place, const struct hl_log_file_kind *kind,
		      uint32_t process, struct hl_log_file_list *list)
{
	struct listing listing = {kind, process, list};

	int r = hl_log_place_each(place, add_entry, &listing);
	if (r == 0 && list->count > 1)
		qsort(list->items, list->count, sizeof(*list->items), by_number);
	return r;
}

/* What is damaged, or none at all, is not foreign: whoever opens it says what is wrong with it. */
static bool is_foreign(const struct hl_log_place *place, const char *name,
		       const struct hl_log_file_kind *kind, uint64_t start_realtime_ns)
{
	struct hl_segment_header header;
	struct hl_log_extent extent;

	if (hl_log_place_open(place, name, &extent) < 0)
		return false;
	bool is_whole =
		extent.bytes >= sizeof(header) &&
		pread(extent.fd, &header, sizeof(header), (off_t)extent.offset) == sizeof(header) &&
		!hl_log_files_check_header(kind, header.process, &header);
	close(extent.fd);
	return is_whole && header.start_realtime_ns != start_realtime_ns;
}

/* Returns how many files that are of another recording it took out of the list. */
static size_t drop_foreign(const struct hl_log_place *place, const struct hl_log_file_kind *kind,
			   uint64_t start_realtime_ns, struct hl_log_file_list *list)
{
	size_t left = 0, count = list->count;

	for (size_t i = 0; i < count; i++)
		if (!is_foreign(place, list->items[i].name, kind, start_realtime_ns))
			list->items[left++] = list->items[i];
	list->count = left;
	return count - left;
}

/* Returns how many files that are older than a gap in the numbers it took out of the list. */
static size_t drop_old(struct hl_log_file_list *list)
{
	size_t first = list->count ? list->count - 1 : 0;

	while (first > 0 && list->items[first - 1].number + 1 == list->items[first].number)
		first--;
	list->count -= first;
	if (first)
		memmove(list->items, list->items + first, list->count * sizeof(*list->items));
	return first;
}

int hl_log_files_find(const struct hl_log_place *place, const struct hl_log_file_kind *kind,
		      uint32_t process, uint64_t start_realtime_ns, struct hl_log_run *run,
		      struct hl_error *err)
{
	int r = hl_log_files_list(place, kind, process, &run->list);
	if (r < 0)
		return r;
	if (start_realtime_ns)
		run->foreign_count =
			(uint32_t)drop_foreign(place, kind, start_realtime_ns, &run->list);
	if (!run->list.count && run->foreign_count)
		return hl_error_set(err, -EBADMSG,
				    "cannot use the %s in '%s': every file is of another recording",
				    kind->name, place->path);
	if (!run->list.count)
		return hl_error_set(err, -ENOENT,
				    "'%s' holds no %s of this process; 'heapline record %s' keeps "
				    "%s",
				    place->path, kind->name, kind->record_options, kind->pronoun);
	run->ignored_count = (uint32_t)drop_old(&run->list);
	return 0;
}
