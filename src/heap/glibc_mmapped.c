/* SPDX-License-Identifier: BSD-2-Clause */
/* What no list leads to: the memory of main_arena, and blocks that have a mapping of their own; see glibc_reader.h. */
#include "heap/glibc_reader.h"

#include "base/array.h"
#include "heap/extents.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the memory of main_arena ---- */

/*
 * The memory of main_arena: what the break gave it, with a gap wherever the program has moved the
 * break itself; and pieces from mmap, where the break could not be moved. Nothing leads from one
 * to the next but the chunks in lists, so pieces are known by their chunks, which must fit to each
 * other up to the guards at their end, or to the top.
 */

#define GROWTH_MAX (UINT64_C(1) << 30) /* while we read */
#define TRIES_MAX  10000u	       /* places that are tried for the start of a piece */
#define GAP_WINDOW (UINT64_C(64) << 10)
#define GAP_MAX	   (UINT64_C(256) << 20) /* how far the program may have moved the break */

/* Contiguous writable memory without a file. It may have several mappings: madvise() and mlock()
 * split them. */
struct stretch {
	uint64_t start, end;
};

static bool is_plain(const struct hl_map *map)
{
	return (map->flags & (HL_MAP_READ | HL_MAP_WRITE | HL_MAP_SHARED | HL_MAP_RECORDER)) ==
		       (HL_MAP_READ | HL_MAP_WRITE) &&
	       (!map->inode || strstr(map->path, "anon_hugepage")) &&
	       strncmp(map->path, "[stack", 6) != 0;
}

/* The next stretch from mapping *${index} on, which it advances; empty when there is none. */
static struct stretch next_stretch(const struct hl_maps *maps, size_t *index)
{
	struct stretch stretch = {0};
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

/* Walks the piece of main_arena that begins at ${start}, in a stretch that ends at ${end}.
 * ${ret_end} is the end of the piece, or ${start} when none begins there. */
static int read_piece(struct hl_glibc_reader *reader, uint64_t start, uint64_t end,
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
	struct stretch stretch;
	size_t index = 0;

	do
		stretch = next_stretch(maps, &index);
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

/* ---- blocks with mappings of their own ---- */

/*
 * Blocks that have a mapping of their own: glibc keeps no list of them, only their number and sum.
 * A block begins where a page's first words look like its header, but other pages may look so, too:
 * the blocks are those candidates whose number and sum equal glibc's. They are looked for at the
 * beginnings of mappings and after each other, where the kernel has joined mappings; then on every
 * page, where joined mappings hold other things, too; then inside candidates as well, which may be
 * false. Among them may be pieces of main_arena.
 *
 * From 2.43 on a header stands right before its block, wherever that was aligned to, and tells where
 * the mapping begins; and the sum is wrong where realloc() has moved mappings.
 */

/* Bounds the search among candidates to some milliseconds. */
#define STEPS_MAX (UINT64_C(1) << 20)

enum depth {
	CHAINS,	    /* at the start of mappings, and directly after each block found there */
	EVERY_PAGE, /* that no candidate before it covers */
	INSIDE,	    /* and those */
};

struct candidate {
	uint64_t start, end;
	uint64_t header; /* before its block, unless memalign() of before 2.43 has moved it */
	bool is_chained; /* as CHAINS finds it */
	uint8_t merits;	 /* that, and that its end is the mapping's */
	bool is_taken;	 /* while a choice is looked for */
	bool is_chosen;	 /* it is a block */
};

struct search {
	struct hl_glibc_reader *reader;
	struct hl_memory *memory;
	enum depth depth;
	struct hl_pages pages; /* of the gap that is searched, then of a block */
	struct hl_extents extents;
	struct candidate *candidates; /* in rising order of their beginnings */
	size_t count, capacity;
};

/* ---- candidates ---- */

/* A gap between carriers that is searched. */
struct gap {
	uint64_t start, end;
};

/* Appends the block whose header, at ${header}, has ${words}, if it is one. ${ret_end}: its end, if
 * it begins at ${at}. */
static int add_candidate(struct search *search, const struct gap *gap, uint64_t header,
			 const uint64_t words[2], uint64_t at, bool is_chained, uint64_t *ret_end)
{
	uint64_t lack = search->reader->glibc->layout->mmapped_lack;
	uint64_t before = lack ? words[0] & ~UINT64_C(1) : 0, size = words[1] & ~HL_CHUNK_FLAGS;
	uint64_t start = header - before, bytes = before + size + lack;

	if ((!lack && words[0]) || (words[1] & HL_CHUNK_FLAGS) != HL_CHUNK_MMAPPED || !size ||
	    before > header - gap->start || size > gap->end - header ||
	    (start | bytes) & (search->memory->page_bytes - 1) || bytes > gap->end - start ||
	    bytes > search->reader->common.mmapped_bytes)
		return 0;
	is_chained = is_chained && start == at;
	if (start == at)
		*ret_end = at + bytes;
	return HL_ARRAY_APPEND(
		search->candidates, search->count, search->capacity,
		(struct candidate){
			.start = start,
			.end = start + bytes,
			.header = header,
			.is_chained = is_chained,
			.merits = (uint8_t)(is_chained + (start + bytes == gap->end)),
		});
}

/* Reads what begins at ${at}: a block or a piece of main_arena. ${ret_end} is its end, or ${at}
 * where neither begins. Headers on the page may be those of blocks that begin before it. */
static int read_one(struct search *search, const struct gap *gap, uint64_t at, bool is_chained,
		    uint64_t *ret_end)
{
	uint8_t page[4096];
	size_t aligned = search->reader->glibc->layout->mmapped_lack ? search->memory->page_bytes
								     : HL_CHUNK_BLOCK;
	size_t known = aligned < sizeof(page) ? aligned : sizeof(page);
	int r = 0;

	*ret_end = at;
	if (!hl_pages_contain(&search->pages, at))
		return 0;
	if (hl_memory_read(search->memory, at, page, known) < 0)
		aligned = 0;
	/* A header is followed by an address of some alignment. */
	for (size_t next = HL_CHUNK_BLOCK; next <= aligned && r == 0; next *= 2) {
		uint64_t words[2];
		if (next <= known)
			memcpy(words, page + next - sizeof(words), sizeof(words));
		else if (hl_memory_read(search->memory, at + next - sizeof(words), words,
					sizeof(words)) < 0)
			break;
		r = add_candidate(search, gap, at + next - sizeof(words), words, at, is_chained,
				  ret_end);
	}
	if (r < 0 || *ret_end > at)
		return r;
	if (search->depth == INSIDE || !hl_glibc_main_lacks_pieces(search->reader))
		return 0;
	hl_account_pages(&search->reader->account, &search->pages);
	return read_piece(search->reader, at, gap->end, ret_end);
}

/* Searches [${start}, ${end}), which no carrier occupies. */
static int search_gap(void *context, uint64_t start, uint64_t end)
{
	struct search *search = context;
	const struct hl_pages *pages = &search->pages;
	const struct gap gap = {start, end};
	uint64_t chain = start; /* where the next block in a row would begin */
	size_t run = 0;
	int r;

	search->pages.count = 0;
	search->pages.page_count = 0;
	if ((r = hl_memory_scan(search->memory, start, end, &search->pages)) < 0)
		return r;
	for (uint64_t at = start, next; r == 0 && at < end; at = next) {
		r = read_one(search, &gap, at, at == chain, &next);
		if (next == at && search->depth == CHAINS)
			break;
		if (at == chain)
			chain = next > at ? next : UINT64_MAX;
		if (next > at && search->depth != INSIDE)
			continue;
		next = at + search->memory->page_bytes;
		while (run < pages->count && pages->runs[run].end <= next)
			run++;
		if (run == pages->count)
			break; /* no page after it is in memory */
		if (pages->runs[run].start > next)
			next = pages->runs[run].start;
	}
	return r;
}

/* ---- which of them are blocks ---- */

static int compare_candidates(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;

	if (a->start != b->start)
		return (a->start > b->start) - (a->start < b->start);
	return (a->header > b->header) - (a->header < b->header);
}

/* In rising order of their beginnings. If several headers lead to the same one, the last is true:
 * memalign() from 2.43 on leaves a first one, and realloc() does not change it. */
static void sort_candidates(struct search *search)
{
	struct candidate *candidates = search->candidates;
	size_t kept = 0;

	if (search->count)
		qsort(candidates, search->count, sizeof(*candidates), compare_candidates);
	for (size_t i = 0; i < search->count; i++) {
		kept -= kept && candidates[kept - 1].start == candidates[i].start;
		candidates[kept++] = candidates[i];
	}
	search->count = kept;
}

/* The number of the chosen candidates, and their bytes. */
struct sum {
	uint64_t blocks, bytes;
};

/* Chooses the candidates that no other covers, and returns their sum. ${chained}: only those in
 * chains. */
static struct sum choose_outer(struct search *search, bool chained)
{
	struct sum sum = {0};
	uint64_t end = 0;

	for (size_t i = 0; i < search->count; i++) {
		struct candidate *candidate = &search->candidates[i];
		candidate->is_chosen =
			candidate->start >= end && (candidate->is_chained || !chained);
		if (!candidate->is_chosen)
			continue;
		end = candidate->end;
		sum.blocks++;
		sum.bytes += candidate->end - candidate->start;
	}
	return sum;
}

/* Whether ${sum} can be a part of what glibc counts, as when some blocks were not in memory. If the
 * number or the bytes equal glibc's, both must. */
static bool is_part(struct sum sum, const struct hl_glibc_common *common)
{
	if (sum.blocks == common->mmapped_blocks || sum.bytes == common->mmapped_bytes)
		return sum.blocks == common->mmapped_blocks && sum.bytes == common->mmapped_bytes;
	return sum.blocks < common->mmapped_blocks && sum.bytes < common->mmapped_bytes;
}

/* A way through the candidates, each of which is taken or left. */
struct way {
	struct sum taken;
	uint64_t merits;
	uint64_t end; /* of the last one that is taken */
};

/* A way that decides the first ${count} candidates has led to the goal. Chooses the candidates that
 * it has in common with all such ways since the last that was ${is_first}. */
static void keep_common(struct search *search, size_t count, bool is_first)
{
	for (size_t i = 0; i < search->count; i++) {
		struct candidate *candidate = &search->candidates[i];
		bool is_taken = i < count && candidate->is_taken;
		candidate->is_chosen = is_taken && (is_first || candidate->is_chosen);
	}
}

/*
 * Looks for candidates that do not overlap, whose number equals that of ${goal}, and whose bytes are
 * between ${least} and those of ${goal}. Of several
 * ways those with most merits count, and what they have in common is chosen. ${ways} has room for a
 * way before each candidate and one after the last; ${rests} holds, for each, the sum of the
 * candidates from there on. True if there is a way and all were tried.
 */
static bool choose(struct search *search, const struct sum *goal, uint64_t least, struct way *ways,
		   const struct sum *rests)
{
	struct candidate *candidates = search->candidates;
	uint64_t most_merits = 0;
	bool is_found = false;
	size_t i = 0;

	for (uint64_t steps = 0; steps < STEPS_MAX; steps++) {
		const struct way *way = &ways[i];
		bool is_goal = way->taken.blocks == goal->blocks && way->taken.bytes >= least &&
			       way->taken.bytes <= goal->bytes;
		bool is_better = is_goal && (!is_found || way->merits > most_merits);
		bool is_hopeless = way->taken.blocks >= goal->blocks ||
				   way->taken.bytes >= goal->bytes ||
				   way->taken.blocks + rests[i].blocks < goal->blocks ||
				   way->taken.bytes + rests[i].bytes < least;
		if (is_better || (is_goal && way->merits == most_merits)) {
			keep_common(search, i, is_better);
			most_merits = way->merits;
			is_found = true;
		}
		if (!is_goal && !is_hopeless) {
			/* A candidate is taken unless it overlaps the one before. */
			struct candidate *candidate = &candidates[i++];
			candidate->is_taken = candidate->start >= way->end;
			ways[i] = *way;
			if (candidate->is_taken) {
				ways[i].taken.blocks++;
				ways[i].taken.bytes += candidate->end - candidate->start;
				ways[i].merits += candidate->merits;
				ways[i].end = candidate->end;
			}
			continue;
		}
		while (i && !candidates[i - 1].is_taken)
			i--;
		if (!i)
			return is_found;
		candidates[i - 1].is_taken = false;
		ways[i] = ways[i - 1];
	}
	return false;
}

/* Chooses candidates that equal what glibc counts, where ${is_exact}; else that are as many, and no
 * larger. 1; 0 when there is no such choice; -ENOMEM. */
static int choose_counted(struct search *search, bool is_exact)
{
	const struct sum goal = {search->reader->common.mmapped_blocks,
				 search->reader->common.mmapped_bytes};
	struct way *ways = calloc(search->count + 1, sizeof(*ways));
	struct sum *rests = calloc(search->count + 1, sizeof(*rests));
	int r = ways && rests ? 0 : -ENOMEM;

	for (size_t i = search->count; i-- > 0 && r == 0;) {
		const struct candidate *candidate = &search->candidates[i];
		rests[i].blocks = rests[i + 1].blocks + 1;
		rests[i].bytes = rests[i + 1].bytes + candidate->end - candidate->start;
	}
	if (r == 0)
		r = choose(search, &goal, is_exact ? goal.bytes : 0, ways, rests);
	free(ways);
	free(rests);
	return r;
}

/* ---- accounting ---- */

/* memalign moves the header to just before the first aligned address after it, and leaves the old
 * one as it was. */
static uint64_t find_header(struct search *search, uint64_t start, uint64_t bytes)
{
	uint64_t lack = search->reader->glibc->layout->mmapped_lack, words[2];

	for (uint64_t alignment = 32; alignment < bytes; alignment *= 2) {
		uint64_t block = start + HL_CHUNK_BLOCK + alignment - 1;
		uint64_t shift = (block & ~(alignment - 1)) - HL_CHUNK_BLOCK - start;
		if (shift && shift < HL_CHUNK_MIN)
			shift += alignment;
		if (shift && shift + HL_CHUNK_MIN <= bytes &&
		    hl_pages_contain(&search->pages, start + shift) &&
		    hl_memory_read(search->memory, start + shift, words, sizeof(words)) == 0 &&
		    (lack ? words[0] & ~UINT64_C(1) : words[0]) == shift &&
		    words[1] == ((bytes - shift - lack) | HL_CHUNK_MMAPPED))
			return start + shift;
	}
	return start;
}

static int search_and_choose(struct search *search)
{
	struct hl_glibc_reader *reader = search->reader;

	for (search->depth = CHAINS; search->depth <= INSIDE; search->depth++) {
		struct stretch stretch;
		size_t index = 0;
		int r = hl_extents_of_carriers(&reader->heap->carriers, search->memory->page_bytes,
					       &search->extents);
		search->count = 0;
		while (r == 0 && (stretch = next_stretch(&search->memory->maps, &index)).end)
			r = hl_extents_gaps(&search->extents, stretch.start, stretch.end,
					    search_gap, search);
		sort_candidates(search);
		if (r != 0 ||
		    (r = hl_glibc_state_common(reader->memory, reader->glibc, &reader->common)) <
			    0 ||
		    (r = choose_counted(search, true)) < 0)
			return r;
		bool needs_pieces = search->depth == CHAINS && hl_glibc_main_lacks_pieces(reader);
		if (r > 0 && !needs_pieces)
			return 0;
	}
	if (reader->glibc->layout->mmapped_lack) { /* glibc's sum may be too large */
		int r = choose_counted(search, false);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	/* Without an exact choice, a sum is taken only if it cannot be too large. */
	if (is_part(choose_outer(search, false), &reader->common) ||
	    is_part(choose_outer(search, true), &reader->common))
		return 0;
	for (size_t i = 0; i < search->count; i++)
		search->candidates[i].is_chosen = false;
	return 0;
}

int hl_glibc_mmapped_read(struct hl_glibc_reader *reader)
{
	struct search search = {.reader = reader, .memory = reader->memory};
	struct hl_account *account = &reader->account;
	uint64_t unused = reader->glibc->layout->mmapped_lack ? HL_CHUNK_HEADER : 0;
	int r = account->settings->no_mapped_blocks && !hl_glibc_main_lacks_pieces(reader)
			? 0
			: search_and_choose(&search);

	for (size_t i = 0; i < search.count && r == 0; i++) {
		uint64_t start = search.candidates[i].start, end = search.candidates[i].end;
		uint64_t header = search.candidates[i].header, last_word = 0;
		if (!search.candidates[i].is_chosen)
			continue;
		search.pages.count = 0;
		search.pages.page_count = 0;
		if ((r = hl_memory_scan(search.memory, start, end, &search.pages)) < 0)
			break;
		uint64_t last = end - unused - sizeof(last_word);
		if (account->settings->block && hl_pages_contain(&search.pages, last))
			hl_memory_read(search.memory, last, &last_word, sizeof(last_word));
		hl_account_pages(account, &search.pages);
		if (header == start)
			header = find_header(&search, start, end - start);
		uint64_t block = header + HL_CHUNK_BLOCK;
		r = hl_account_mmapped(account, start, end, block, end - unused - block, last_word);
	}
	hl_account_pages(account, NULL);
	hl_extents_release(&search.extents);
	hl_pages_release(&search.pages);
	free(search.candidates);
	return r;
}
