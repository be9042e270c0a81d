/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of the largest mappings in RAM, and what the kernel counts beside RSS; see rss.h. */
#include "heap/rss.h"

#include "base/cleanup.h"
#include "base/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_MAX 10u /* mappings of one part */

/* The kernel's THREAD_SIZE on x86-64, for each thread. */
#define KERNEL_STACK_BYTES (UINT64_C(16) << 10)

/* ---- names ---- */

/* Copies the type of the file system of device ${major}:${minor} from the text of mountinfo; "": it is not there. */
static void find_file_system(const char *mounts, const struct hl_map *map, char *ret_type,
			     size_t capacity)
{
	unsigned major, minor;

	ret_type[0] = '\0';
	for (const char *line = mounts; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		const char *type = strstr(line, " - "), *end = strchrnul(line, '\n');
		if (sscanf(line, "%*u %*u %u:%u", &major, &minor) != 2 || major != map->dev_major ||
		    minor != map->dev_minor || !type || type > end)
			continue;
		type += 3;
		snprintf(ret_type, capacity, "%.*s", (int)strcspn(type, " \n"), type);
		return;
	}
}

static void name_mapping(const struct hl_map *map, const char *mounts,
			 struct hl_rss_mapping *mapping)
{
	const char *base = hl_path_basename(map->path);
	char type[16];

	find_file_system(mounts, map, type, sizeof(type));
	if (strncmp(map->path, "/dev/shm/", 9) == 0)
		snprintf(mapping->name, sizeof(mapping->name), "shm %.80s", map->path + 9);
	else if (strcmp(map->path, "/dev/zero") == 0 && map->flags & HL_MAP_SHARED)
		snprintf(mapping->name, sizeof(mapping->name), "without a file");
	else if (map->inode && map->path[0])
		snprintf(mapping->name, sizeof(mapping->name), "%.64s%s%s%s", base,
			 strcmp(type, "tmpfs") == 0 ? " (tmpfs" : "",
			 strcmp(type, "tmpfs") == 0 && map->deleted ? ", deleted" : "",
			 strcmp(type, "tmpfs") == 0 ? ")" : "");
	else
		snprintf(mapping->name, sizeof(mapping->name), "%.80s", map->path);
}

/* By part and name, nameless mappings by their own address. */
static int compare_names(const void *left, const void *right)
{
	const struct hl_rss_mapping *a = left, *b = right;
	int order = strcmp(a->part, b->part);

	if (order == 0)
		order = strcmp(a->name, b->name);
	return order ? order : (a->start > b->start) - (a->start < b->start);
}

static int compare_bytes(const void *left, const void *right)
{
	const struct hl_rss_mapping *a = left, *b = right;
	int order = strcmp(a->part, b->part);

	if (order == 0 && a->bytes != b->bytes)
		return a->bytes > b->bytes ? -1 : 1;
	return order ? order : (a->start > b->start) - (a->start < b->start);
}

int hl_rss_name_mappings(struct hl_memory *memory, struct hl_heap_rss *rss)
{
	HL_FREED char *mounts = NULL;
	struct hl_rss_mapping *mappings = rss->mappings;
	size_t length, kept = 0, of_part = 0;

	if (memory->pid)
		hl_proc_read_all(memory->pid, "mountinfo", &mounts, &length);
	for (size_t i = 0; i < rss->mapping_count; i++)
		name_mapping(hl_maps_find(&memory->maps, mappings[i].start), mounts, &mappings[i]);
	if (rss->mapping_count)
		qsort(mappings, rss->mapping_count, sizeof(*mappings), compare_names);
	for (size_t i = 0; i < rss->mapping_count; i++) {
		struct hl_rss_mapping *last = kept ? &mappings[kept - 1] : NULL;
		if (!last || !mappings[i].name[0] || last->part != mappings[i].part ||
		    strcmp(last->name, mappings[i].name) != 0) {
			mappings[kept++] = mappings[i];
			continue;
		}
		last->bytes += mappings[i].bytes;
		last->huge_bytes += mappings[i].huge_bytes;
		last->mapped_bytes += mappings[i].mapped_bytes;
	}
	if (kept)
		qsort(mappings, kept, sizeof(*mappings), compare_bytes);
	rss->mapping_count = 0;
	for (size_t i = 0; i < kept; i++) {
		of_part = i && mappings[i].part == mappings[i - 1].part ? of_part + 1 : 0;
		if (of_part < KEPT_MAX)
			mappings[rss->mapping_count++] = mappings[i];
	}
	return 0;
}

/* ---- beside the parts ---- */

/* The bytes that "${key}: N kB" of ${text} says; 0: it does not. */
static uint64_t kilobytes(const char *text, const char *key)
{
	char line[40];

	snprintf(line, sizeof(line), "\n%s:", key);
	const char *found = strstr(text, line);
	return found ? strtoull(found + strlen(line), NULL, 10) << 10 : 0;
}

void hl_rss_parse_beside(const char *rollup, const char *status, struct hl_rss_beside *ret_beside)
{
	const char *threads = strstr(status, "\nThreads:");

	*ret_beside = (struct hl_rss_beside){
		.huge_page_bytes = kilobytes(status, "HugetlbPages"),
		.swap_bytes = kilobytes(rollup, "Swap"),
		.page_table_bytes = kilobytes(status, "VmPTE"),
		.kernel_stack_bytes = threads ? strtoull(threads + strlen("\nThreads:"), NULL, 10) *
							KERNEL_STACK_BYTES
					      : 0,
		.lazy_free_bytes = kilobytes(rollup, "LazyFree"),
		.transparent_bytes = kilobytes(rollup, "AnonHugePages") +
				     kilobytes(rollup, "ShmemPmdMapped") +
				     kilobytes(rollup, "FilePmdMapped"),
		.shared_bytes =
			kilobytes(rollup, "Shared_Clean") + kilobytes(rollup, "Shared_Dirty"),
		.pss_bytes = kilobytes(rollup, "Pss"),
	};
	if (!ret_beside->swap_bytes)
		ret_beside->swap_bytes = kilobytes(status, "VmSwap");
}

void hl_rss_read_beside(pid_t pid, struct hl_rss_beside *ret_beside)
{
	char rollup[4096] = "", status[4096] = "";

	if (hl_proc_read(pid, "smaps_rollup", rollup, sizeof(rollup)) <= 0)
		rollup[0] = '\0';
	if (hl_proc_read_status(pid, status, sizeof(status)) <= 0)
		status[0] = '\0';
	hl_rss_parse_beside(rollup, status, ret_beside);
}
