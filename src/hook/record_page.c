/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds and reads the page; see attach_parts.h. */
#include "hook/attach_parts.h"

#include "base/cleanup.h"
#include "process/process.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static_assert(sizeof(struct hl_record_page) <= HL_RECORD_PAGE_BYTES / 4 * 3,
	      "there is room behind it");

static bool makes_sense(const struct hl_record_page *page, uint64_t address)
{
	return page->version != HL_RECORD_PAGE_VERSION ||
	       (page->block_count && page->block_count <= HL_RECORD_BLOCKS_MAX &&
		page->patch_count <= HL_ENTRIES_MAX && page->blocks[0].address == address);
}

bool hl_record_page_find(const struct hl_remote *remote, const struct hl_maps *maps,
			 struct hl_record_page *ret_page)
{
	for (size_t i = 0; i < maps->count; i++) {
		const struct hl_map *map = &maps->maps[i];
		char magic[sizeof(ret_page->magic)];
		if (map->inode || map->path[0] || map->flags != HL_MAP_READ ||
		    !hl_remote_read(remote, map->start, magic, sizeof(magic)) ||
		    memcmp(magic, HL_RECORD_PAGE_MAGIC, sizeof(magic)) != 0)
			continue;
		if (hl_remote_read(remote, map->start, ret_page, sizeof(*ret_page)) &&
		    makes_sense(ret_page, map->start))
			return true;
	}
	return false;
}

static uint64_t own_namespace(void)
{
	struct stat status;

	return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

/* 0 when there is no such process. */
static uint64_t start_ticks(pid_t pid)
{
	HL_CLEANUP(hl_process_facts_release) struct hl_process_facts facts = {0};
	struct hl_error err;

	return hl_process_facts_read(pid, &facts, &err) == 0 ? facts.start_ticks : 0;
}

bool hl_record_page_is_from_here(const struct hl_record_page *page)
{
	return page->tool_namespace == own_namespace();
}

bool hl_record_page_is_owned(const struct hl_record_page *page)
{
	return page->tool_start_ticks &&
	       start_ticks((pid_t)page->tool_pid) == page->tool_start_ticks;
}

void hl_record_page_sign(struct hl_record_page *page, pid_t target)
{
	memcpy(page->magic, HL_RECORD_PAGE_MAGIC, sizeof(page->magic));
	page->version = HL_RECORD_PAGE_VERSION;
	page->tool_pid = (uint32_t)getpid();
	page->tool_start_ticks = start_ticks(getpid());
	page->tool_namespace = own_namespace();
	page->target_pid = hl_process_inner_pid(target);
}
