/* SPDX-License-Identifier: BSD-2-Clause */
/* The context of musl's allocator without symbols; see musl.h. */
#include "heap/musl.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "heap/musl_layout.h"

#include <stdlib.h>
#include <string.h>

/* Searches no more of a module's variables. musl's own are 16 KiB; a static program may have more. */
#define VARIABLES_MAX (UINT64_C(16) << 20)

/* Whether the bytes may be a context: from its counters, before anything else is read. */
static bool looks_like_context(const uint8_t *bytes)
{
	uint64_t head = hl_musl_word(bytes + HL_MUSL_CONTEXT_HEAD);
	uint64_t tail = hl_musl_word(bytes + HL_MUSL_CONTEXT_TAIL);
	uint32_t is_ready;

	memcpy(&is_ready, bytes + HL_MUSL_CONTEXT_READY, sizeof(is_ready));
	return hl_musl_word(bytes) && is_ready == 1 && head && tail &&
	       head % HL_MUSL_AREA_BYTES == 0 && tail % HL_MUSL_AREA_BYTES == 0 &&
	       hl_musl_word(bytes + HL_MUSL_CONTEXT_FREE_METAS) <= HL_MUSL_AREA_METAS &&
	       hl_musl_word(bytes + HL_MUSL_CONTEXT_SHIFT) < 64;
}

/* 0; -EFAULT where there is no area; or another negative errno. */
static int check_area(struct hl_memory *memory, uint64_t address, uint64_t secret)
{
	uint64_t check;
	int r = hl_memory_read_present(memory, address, &check, sizeof(check));

	return r == 0 && check != secret ? -EFAULT : r;
}

/* 0; -ENOTSUP when it is not there; -ENOMEM. */
static int seek(struct hl_memory *memory, const uint8_t *bytes, uint64_t start, uint64_t length,
		struct hl_musl *ret_musl)
{
	for (uint64_t at = 0; at + HL_MUSL_CONTEXT_BYTES <= length; at += 8) {
		if (!looks_like_context(bytes + at))
			continue;
		const struct hl_musl found = {
			.context = start + at,
			.secret = hl_musl_word(bytes + at),
			.first_area = hl_musl_word(bytes + at + HL_MUSL_CONTEXT_HEAD)};
		int r = check_area(memory, found.first_area, found.secret);
		if (r == 0)
			r = check_area(memory, hl_musl_word(bytes + at + HL_MUSL_CONTEXT_TAIL),
				       found.secret);
		if (r == 0)
			*ret_musl = found;
		if (r == 0 || r == -ENOMEM)
			return r;
	}
	return -ENOTSUP;
}

/* A module's variables, and its .bss, which follows them without a file. */
static bool has_variables(const struct hl_maps *maps, size_t index)
{
	const struct hl_map *map = &maps->maps[index];

	if (!(map->flags & HL_MAP_WRITE) || map->flags & (HL_MAP_SHARED | HL_MAP_RECORDER))
		return false;
	return map->inode || (index && map[-1].end == map->start && map[-1].inode);
}

int hl_musl_find(struct hl_memory *memory, struct hl_musl *ret_musl)
{
	HL_CLEANUP(hl_pages_release) struct hl_pages pages = {0};
	HL_FREED uint8_t *bytes = NULL;
	size_t capacity = 0;

	for (size_t i = 0; i < memory->maps.count; i++) {
		const struct hl_map *map = &memory->maps.maps[i];
		uint64_t end = map->end - map->start > VARIABLES_MAX ? map->start + VARIABLES_MAX
								     : map->end;
		if (!has_variables(&memory->maps, i))
			continue;
		if (HL_ARRAY_RESERVE(bytes, capacity, end - map->start) < 0)
			return -ENOMEM;
		memset(bytes, 0, end - map->start);
		pages.count = pages.page_count = 0;
		int r = hl_memory_scan(memory, map->start, end, &pages);
		if (r == -ENOMEM)
			return r;
		if (r < 0)
			continue;
		for (size_t k = 0; k < pages.count; k++)
			(void)hl_memory_read(memory, pages.runs[k].start,
					     bytes + (pages.runs[k].start - map->start),
					     pages.runs[k].end - pages.runs[k].start);
		r = seek(memory, bytes, map->start, end - map->start, ret_musl);
		if (r != -ENOTSUP)
			return r;
	}
	return -ENOTSUP;
}
