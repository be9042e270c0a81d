/* SPDX-License-Identifier: BSD-2-Clause */
/* Which mappings are those of heapline's recorder; see maps.h. */
#include "process/maps.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "process/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_flag(const char *line, size_t length, const char *flag)
{
	return memmem(line, length, flag, strlen(flag)) != NULL;
}

/*
 * Whether ${map}, whose VmFlags are ${line}, is the recorder's own memory. What is preloaded is not
 * inherited on fork (shared mappings), or neither dumped nor of huge pages where a child needs it, or wiped (private
 * ones). What attach brings is private and not read ahead, and not dumped (recorder/image/private_map.c) or without huge
 * pages (hook/attach_place.c), which nobody else says of memory without a file.
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
	unsigned long long kib = 0;
	uint64_t sum = 0;

	for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
		unsigned long long start, map_end;
		if (sscanf(line, "%llx-%llx ", &start, &map_end) == 2) {
			while (index < maps->count && maps->maps[index].start < start)
				index++;
			map = index < maps->count && maps->maps[index].start == start
				      ? &maps->maps[index]
				      : NULL;
			continue;
		}
		sscanf(line, "Rss: %llu kB", &kib);
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

bool hl_recorder_memory_look(struct hl_recorder_memory *memory, pid_t pid, unsigned parts)
{
	uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC),
		 cpu_ns = hl_clock_ns(CLOCK_THREAD_CPUTIME_ID);

	if (now_ns < memory->looked_ns + memory->cpu_ns * parts)
		return false;
	int64_t bytes = hl_maps_recorder_bytes(pid);
	memory->looked_ns = now_ns;
	memory->cpu_ns = hl_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
	if (bytes)
		memory->bytes = bytes;
	return bytes > 0;
}
