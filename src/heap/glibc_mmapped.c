/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks that have a mapping of their own: glibc keeps no list of them, only their number and sum.
 * A block begins where a page's first words look like its header, but other pages may look so, too:
 * the blocks are those candidates whose number and sum equal glibc's. They are looked for at the
 * beginnings of mappings and after each other, where the kernel has joined mappings; then on every
 * page, where joined mappings hold other things, too; then inside candidates as well, which may be
 * false. Among them may be pieces of main_arena.
 */
#include "heap/glibc_reader.h"

#include "base/array.h"
#include "heap/extents.h"

#include <string.h>

/* Limit of the search among candidates: some milliseconds. */
#define STEPS_MAX (UINT64_C(1) << 20)

enum depth {
	CHAINS,	    /* where mappings begin, and after what was found there */
	EVERY_PAGE, /* that no candidate before it covers */
	INSIDE,	    /* and those */
};

struct candidate {
	uint64_t start, end;
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

/* Whether the words at ${address} are a mapped block's header: its end in ${ret_end}. */
static bool is_block(struct search *search, uint64_t address, uint64_t end, uint64_t *ret_end)
{
	uint64_t words[2], size;

	if (!hl_pages_contain(&search->pages, address) ||
	    hl_memory_read(search->memory, address, words, sizeof(words)) < 0)
		return false;
	size = words[1] & ~HL_CHUNK_FLAGS;
	if (words[0] != 0 || (words[1] & HL_CHUNK_FLAGS) != HL_CHUNK_MMAPPED || !size ||
	    size & (search->memory->page_bytes - 1) || size > end - address ||
	    size > search->reader->common.mmapped_bytes)
		return false;
	*ret_end = address + size;
	return true;
}

/* What begins at ${at}: a block, or a piece of main_arena; its end, or ${at}, in ${ret_end}. */
static int read_one(struct search *search, uint64_t at, uint64_t end, bool is_chained,
		    uint64_t *ret_end)
{
	*ret_end = at;
	if (is_block(search, at, end, ret_end))
		return HL_ARRAY_APPEND(search->candidates, search->count, search->capacity,
				       (struct candidate){
					       .start = at,
					       .end = *ret_end,
					       .is_chained = is_chained,
					       .merits = (uint8_t)(is_chained + (*ret_end == end)),
				       });
	if (search->depth == INSIDE || !hl_glibc_main_lacks_pieces(search->reader) ||
	    !hl_pages_contain(&search->pages, at))
		return 0;
	hl_account_pages(&search->reader->account, &search->pages);
	return hl_glibc_main_read_piece(search->reader, at, end, ret_end);
}

/* The first page that is in memory, from ${at} on; UINT64_MAX when there is none. ${run}: cursor.
 */
static uint64_t next_present(const struct hl_pages *pages, size_t *run, uint64_t at)
{
	while (*run < pages->count && pages->runs[*run].end <= at)
		++*run;
	if (*run == pages->count)
		return UINT64_MAX;
	return pages->runs[*run].start > at ? pages->runs[*run].start : at;
}

/* Memory that no carrier has: [${start}, ${end}). */
static int search_gap(void *context, uint64_t start, uint64_t end)
{
	struct search *search = context;
	uint64_t chain = start; /* where the next block in a row would begin */
	size_t run = 0;
	int r;

	search->pages.count = 0;
	search->pages.page_count = 0;
	if ((r = hl_memory_scan(search->memory, start, end, &search->pages)) < 0)
		return r;
	for (uint64_t at = start, next; r == 0 && at < end; at = next) {
		r = read_one(search, at, end, at == chain, &next);
		if (next == at && search->depth == CHAINS)
			break;
		if (at == chain)
			chain = next > at ? next : UINT64_MAX;
		if (next == at || search->depth == INSIDE)
			next = next_present(&search->pages, &run, at + search->memory->page_bytes);
	}
	return r;
}

static int search_mappings(struct search *search)
{
	const struct hl_maps *maps = &search->memory->maps;
	int r = hl_extents_of_carriers(&search->reader->heap->carriers, search->memory->page_bytes,
				       &search->extents);
	struct hl_glibc_stretch stretch;
	size_t index = 0;

	search->count = 0;
	while (r == 0 && (stretch = hl_glibc_main_next_stretch(maps, &index)).end)
		r = hl_extents_gaps(&search->extents, stretch.start, stretch.end, search_gap,
				    search);
	return r;
}

/* ---- which of them are blocks ---- */

/* How many candidates are chosen, and their sum. */
struct sum {
	uint64_t blocks, bytes;
};

/* Chooses the candidates that no other covers; ${chained}: only those in chains. Their sum. */
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

/* Whether ${sum} can be a part of what glibc counts, some of which was not in memory, say: where
 * one of both is all, the other must be. */
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

static bool is_hopeless(const struct way *way, const struct sum *goal, const struct sum *rest)
{
	return way->taken.blocks >= goal->blocks || way->taken.bytes >= goal->bytes ||
	       way->taken.blocks + rest->blocks < goal->blocks ||
	       way->taken.bytes + rest->bytes < goal->bytes;
}

/* The way after ${candidate}, which is taken unless it overlaps the one before. */
static struct way step(struct way way, struct candidate *candidate)
{
	candidate->is_taken = candidate->start >= way.end;
	if (!candidate->is_taken)
		return way;
	way.taken.blocks++;
	way.taken.bytes += candidate->end - candidate->start;
	way.merits += candidate->merits;
	way.end = candidate->end;
	return way;
}

/* A way has led to the goal, on which the first ${count} candidates are decided: those are chosen
 * that it has in common with the ways since the one that was ${is_first}. */
static void keep_common(struct search *search, size_t count, bool is_first)
{
	for (size_t i = 0; i < search->count; i++) {
		struct candidate *candidate = &search->candidates[i];
		bool is_taken = i < count && candidate->is_taken;
		candidate->is_chosen = is_taken && (is_first || candidate->is_chosen);
	}
}

/*
 * Looks for candidates that do not overlap and whose number and sum are ${goal}'s; of several ways
 * those with most merits count, and what they have in common is chosen. ${ways} before each
 * candidate and after the last; ${rests} as many: what candidates from there on sum up to. Whether
 * there is a way, and all were tried.
 */
static bool choose(struct search *search, const struct sum *goal, struct way *ways,
		   const struct sum *rests)
{
	struct candidate *candidates = search->candidates;
	uint64_t most_merits = 0;
	bool is_found = false;
	size_t i = 0;

	for (uint64_t steps = 0; steps < STEPS_MAX; steps++) {
		const struct way *way = &ways[i];
		bool is_goal = way->taken.blocks == goal->blocks && way->taken.bytes == goal->bytes;
		bool is_better = is_goal && (!is_found || way->merits > most_merits);
		if (is_better || (is_goal && way->merits == most_merits)) {
			keep_common(search, i, is_better);
			most_merits = way->merits;
			is_found = true;
		}
		if (!is_goal && !is_hopeless(way, goal, &rests[i])) {
			ways[i + 1] = step(ways[i], &candidates[i]);
			i++;
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

/* Whether a choice equals what glibc counts: 1, 0 or -ENOMEM. */
static int choose_exactly(struct search *search)
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
		r = choose(search, &goal, ways, rests);
	free(ways);
	free(rests);
	return r;
}

/* Where no choice is exact, only what cannot be too much is located. */
static void choose_part(struct search *search)
{
	const struct hl_glibc_common *common = &search->reader->common;

	if (is_part(choose_outer(search, false), common) ||
	    is_part(choose_outer(search, true), common))
		return;
	for (size_t i = 0; i < search->count; i++)
		search->candidates[i].is_chosen = false;
}

/* ---- accounting ---- */

/* memalign moves the header to just before the first aligned address after it, and leaves the old
 * one as it was. */
static uint64_t find_header(struct search *search, uint64_t start, uint64_t bytes)
{
	uint64_t words[2];

	for (uint64_t alignment = 32; alignment < bytes; alignment *= 2) {
		uint64_t block = start + HL_CHUNK_BLOCK + alignment - 1;
		uint64_t shift = (block & ~(alignment - 1)) - HL_CHUNK_BLOCK - start;
		if (shift && shift < HL_CHUNK_MIN)
			shift += alignment;
		if (shift && shift + HL_CHUNK_MIN <= bytes &&
		    hl_pages_contain(&search->pages, start + shift) &&
		    hl_memory_read(search->memory, start + shift, words, sizeof(words)) == 0 &&
		    words[0] == shift && words[1] == ((bytes - shift) | HL_CHUNK_MMAPPED))
			return start + shift;
	}
	return start;
}

static int account_block(struct search *search, const struct candidate *block)
{
	struct hl_account *account = &search->reader->account;
	uint64_t last_word = 0;

	search->pages.count = 0;
	search->pages.page_count = 0;
	int r = hl_memory_scan(search->memory, block->start, block->end, &search->pages);
	if (r < 0)
		return r;
	if (account->settings->block && hl_pages_contain(&search->pages, block->end - 8))
		hl_memory_read(search->memory, block->end - 8, &last_word, sizeof(last_word));
	hl_account_pages(account, &search->pages);
	return hl_account_mmapped(account, block->start, block->end,
				  find_header(search, block->start, block->end - block->start) +
					  HL_CHUNK_BLOCK,
				  last_word);
}

static int search_and_choose(struct search *search)
{
	struct hl_glibc_reader *reader = search->reader;
	int r = 0;

	for (search->depth = CHAINS; search->depth <= INSIDE; search->depth++) {
		if ((r = search_mappings(search)) != 0 ||
		    (r = hl_glibc_state_common(reader->memory, reader->glibc, &reader->common)) <
			    0 ||
		    (r = choose_exactly(search)) < 0)
			return r;
		bool needs_pieces = search->depth == CHAINS && hl_glibc_main_lacks_pieces(reader);
		if (r > 0 && !needs_pieces)
			return 0;
	}
	choose_part(search);
	return 0;
}

int hl_glibc_mmapped_read(struct hl_glibc_reader *reader)
{
	struct search search = {.reader = reader, .memory = reader->memory};
	int r = search_and_choose(&search);

	for (size_t i = 0; i < search.count && r == 0; i++)
		if (search.candidates[i].is_chosen)
			r = account_block(&search, &search.candidates[i]);
	hl_account_pages(&reader->account, NULL);
	hl_extents_release(&search.extents);
	hl_pages_release(&search.pages);
	free(search.candidates);
	return r;
}
