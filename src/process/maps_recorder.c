/* SPDX-License-Identifier: BSD-2-Clause */
/* Which mappings are those of heapline's recorder; see maps.h. */
#include "process/maps.h"
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

static void mark(const char *text, bool has_recorder, struct hl_maps *maps)
{
	struct hl_map *map = NULL;
	size_t index = 0;

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
		if (!map || strncmp(line, "VmFlags:", 8) != 0)
			continue;
		if (has_recorder && is_recorders(map, line, (size_t)(end - line)))
			map->flags |= HL_MAP_RECORDER;
		if (!map->inode && has_flag(line, (size_t)(end - line), " nr "))
			map->flags |= HL_MAP_NORESERVE;
		if (has_flag(line, (size_t)(end - line), " ht "))
			map->flags |= HL_MAP_HUGE_PAGES;
	}
}

static bool has_huge_pages(pid_t pid)
{
	char status[4096];
	const char *line = hl_proc_read_status(pid, status, sizeof(status)) > 0
				   ? strstr(status, "\nHugetlbPages:")
				   : NULL;

	return line && strtoull(line + strlen("\nHugetlbPages:"), NULL, 10) > 0;
}

bool hl_maps_mark_recorder(pid_t pid, struct hl_maps *maps)
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
		mark(text, has_recorder, maps);
	free(text);
	return has_recorder;
}
