/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory of main_arena: what the break gave it, with a gap wherever the program has moved the
 * break itself; and pieces from mmap, where the break could not be moved. Nothing leads from one
 * to the next but the chunks in lists, so pieces are known by their chunks, which must fit to each
 * other up to the guards at their end, or to the top.
 */
#include "heap/glibc_reader.h"

#include <errno.h>
#include <string.h>

#define GROWTH_MAX (UINT64_C(1) << 30) /* while we read */
#define TRIES_MAX  10000u	       /* places that are tried for the start of a piece */
#define GAP_WINDOW (UINT64_C(64) << 10)
#define GAP_MAX	   (UINT64_C(256) << 20) /* how far the program may have moved the break */

/* ---- stretches ---- */

static bool is_plain(const struct hl_map *map)
{
	return (map->flags & (HL_MAP_READ | HL_MAP_WRITE | HL_MAP_SHARED | HL_MAP_RECORDER)) ==
		       (HL_MAP_READ | HL_MAP_WRITE) &&
	       (!map->inode || strstr(map->path, "anon_hugepage")) &&
	       strncmp(map->path, "[stack", 6) != 0;
}

struct hl_glibc_stretch hl_glibc_main_next_stretch(const struct hl_maps *maps, size_t *index)
{
	struct hl_glibc_stretch stretch = {0};
	size_t i = *index;

	while (i < maps->count && !is_plain(&maps->maps[i]))
		i++;
	if (i < maps->count)
		stretch.start = stretch.end = maps->maps[i].start;
	for (; i < maps->count && is_plain(&maps->maps[i]) && maps->maps[i].start == stretch.end;
	     i++)
		stretch.end = maps->maps[i].end;
	*index = i;
	return stretch;
}

/* The end up to which memory that ended at ${end} can have grown since the mappings were read. */
static uint64_t growth_limit(const struct hl_maps *maps, uint64_t end)
{
	uint64_t limit = end + GROWTH_MAX;

	for (size_t i = 0; i < maps->count; i++)
		if (maps->maps[i].start >= end && maps->maps[i].start < limit)
			return maps->maps[i].start;
	return limit;
}

/* ---- pieces ---- */

/* main_arena's memory ends where pages end. */
static bool is_break(const struct hl_glibc_reader *reader, uint64_t address)
{
	return !(address & (reader->memory->page_bytes - 1));
}

/* The run from ${start} to the top, if that lies in the stretch, else to ${end}. */
static struct hl_run run_of(const struct hl_glibc_reader *reader, uint64_t start, uint64_t end)
{
	const struct hl_glibc_arena *arena = &reader->arenas[0];
	struct hl_run run = {
		.own_start = start,
		.start = start,
		.end = end,
		.limit = end,
		.arena = arena->address,
		.is_main = true,
	};

	if (arena->top >= start && arena->top < end) {
		uint64_t top_end = arena->top + arena->top_bytes;
		run.top = arena->top;
		run.limit = growth_limit(&reader->memory->maps, end);
		run.end = is_break(reader, top_end) && top_end > arena->top && top_end <= run.limit
				  ? top_end
				  : end;
	}
	return run;
}

/* Whether consistent chunks lead from the start of ${run} to guards or to the top. */
static bool is_piece(struct hl_glibc_reader *reader, const struct hl_run *run)
{
	uint64_t words[2], end, size;

	if (hl_memory_read(reader->memory, run->start, words, sizeof(words)) < 0)
		return false;
	size = words[1] & ~HL_CHUNK_FLAGS;
	return (words[1] & HL_CHUNK_FLAGS) == HL_CHUNK_IN_USE_BEFORE && !(size & 8) &&
	       size >= HL_CHUNK_MIN && size <= run->end - run->start &&
	       reader->tries++ < TRIES_MAX && hl_glibc_walker_run(reader->strict, run, &end) == 0;
}

bool hl_glibc_main_lacks_pieces(const struct hl_glibc_reader *reader)
{
	return reader->main_bytes < reader->arenas[0].system_bytes;
}

int hl_glibc_main_read_piece(struct hl_glibc_reader *reader, uint64_t start, uint64_t end,
			     uint64_t *ret_end)
{
	struct hl_run run = run_of(reader, start, end);

	*ret_end = start;
	if (!is_piece(reader, &run))
		return 0;
	reader->account.trim_unit = 0;
	int r = hl_account_begin(&reader->account, "main heap", start, run.end, 0);
	if (r == 0)
		r = hl_glibc_walker_run(reader->walker, &run, ret_end);
	if (r == 0) {
		hl_account_end(&reader->account, *ret_end);
		reader->main_bytes += *ret_end - start;
	}
	return r;
}

/* ---- the break ---- */

/* The first place in a window of memory where a piece begins, or ${end}. */
static uint64_t find_in_window(struct hl_glibc_reader *reader, uint64_t start, uint64_t end,
			       uint64_t bound)
{
	uint64_t window[GAP_WINDOW / 8];

	if (hl_memory_read(reader->memory, start, window, end - start) < 0)
		return end;
	for (uint64_t at = start; at + 16 <= end; at += 16) {
		uint64_t head = window[(at - start) / 8 + 1];
		if ((head & 15) != HL_CHUNK_IN_USE_BEFORE || head <= HL_CHUNK_MIN ||
		    head > bound - at)
			continue;
		const struct hl_run run = run_of(reader, at, bound);
		if (is_piece(reader, &run))
			return at;
	}
	return end;
}

/* Where main_arena continues after a gap that begins at ${start}; 0: nowhere. */
static uint64_t find_next(struct hl_glibc_reader *reader, uint64_t start, uint64_t bound)
{
	struct hl_pages pages = {0};
	uint64_t page = reader->memory->page_bytes, found = 0, from = start;
	uint64_t last = bound - start > GAP_MAX ? start + GAP_MAX : bound;

	if (hl_memory_scan(reader->memory, start & ~(page - 1), bound, &pages) < 0)
		last = from;
	for (uint64_t to; from < last && !found; from = to) {
		to = (from & ~(GAP_WINDOW - 1)) + GAP_WINDOW;
		to = to < last ? to : last;
		if (hl_pages_count_in(&pages, from & ~(page - 1), (to + page - 1) & ~(page - 1)))
			found = find_in_window(reader, from, to, bound);
		if (found == to)
			found = 0;
	}
	hl_pages_release(&pages);
	return found;
}

/* The end of the break's memory, which may have grown since the mappings were read; 0: no stretch
 * holds ${base}. */
static uint64_t break_end(const struct hl_glibc_reader *reader, uint64_t base)
{
	const struct hl_glibc_arena *arena = &reader->arenas[0];
	const struct hl_maps *maps = &reader->memory->maps;
	uint64_t top_end = arena->top + arena->top_bytes;
	struct hl_glibc_stretch stretch;
	size_t index = 0;

	do
		stretch = hl_glibc_main_next_stretch(maps, &index);
	while (stretch.end && stretch.end <= base);
	if (!stretch.end || stretch.start > base)
		return 0;
	bool has_grown = arena->is_contiguous && is_break(reader, top_end) &&
			 top_end > stretch.end && top_end <= growth_limit(maps, stretch.end);
	return has_grown ? top_end : stretch.end;
}

static int tell_foreign(const struct hl_glibc_reader *reader, uint64_t start, uint64_t end)
{
	const struct hl_heap_settings *settings = reader->account.settings;

	return settings->foreign && start < end ? settings->foreign(settings->context, start, end)
						: 0;
}

int hl_glibc_main_read_break(struct hl_glibc_reader *reader)
{
	uint64_t base = reader->common.sbrk_base, start = (base + 15) & ~UINT64_C(15), end = 0;
	uint64_t bound = break_end(reader, base);
	const struct hl_glibc_arena *arena = &reader->arenas[0];

	if (!base || !bound || (!arena->top && !arena->is_damaged))
		return 0;
	struct hl_run run = run_of(reader, start, bound);
	run.own_start = base & ~(reader->memory->page_bytes - 1);
	/* The top is given back only while the break is where glibc has put it. */
	uint64_t huge_page = reader->common.thp_page_bytes;
	reader->account.trim_unit = !arena->is_contiguous || arena->top + arena->top_bytes != bound
					    ? 0
				    : huge_page ? huge_page
						: reader->memory->page_bytes;
	int r = hl_account_begin(&reader->account, "main heap", base, run.end, 0);
	if (r == 0)
		r = tell_foreign(reader, run.own_start, base);
	while (r == 0 && run.start) {
		r = hl_glibc_walker_run(reader->walker, &run, &end);
		/* Guards end the run where the program moved the break; the top may lie after them.
		 */
		bool goes_on =
			r == 0 && arena->is_contiguous && arena->top >= end && arena->top < bound;
		start = goes_on ? find_next(reader, end, bound) : 0;
		if (r == 0)
			r = tell_foreign(reader, end, start);
		run = run_of(reader, start, bound);
		run.own_start = end;
	}
	if (r == 0) {
		hl_account_end(&reader->account, end);
		reader->main_bytes += end - base;
	}
	return r;
}
