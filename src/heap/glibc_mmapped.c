/* SPDX-License-Identifier: BSD-2-Clause */
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
#include "heap/glibc_reader.h"

#include "base/array.h"
#include "heap/extents.h"

#include <stdlib.h>
#include <string.h>

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
	size_t aligned =
		search->reader->glibc->layout->mmapped_lack ? sizeof(page) : HL_CHUNK_BLOCK;
	int r = 0;

	*ret_end = at;
	if (!hl_pages_contain(&search->pages, at))
		return 0;
	if (hl_memory_read(search->memory, at, page, aligned) < 0)
		aligned = 0;
	/* A header is followed by an address of some alignment. */
	for (size_t next = HL_CHUNK_BLOCK; next <= aligned && r == 0; next *= 2) {
		uint64_t words[2];
		memcpy(words, page + next - sizeof(words), sizeof(words));
		r = add_candidate(search, gap, at + next - sizeof(words), words, at, is_chained,
				  ret_end);
	}
	if (r < 0 || *ret_end > at)
		return r;
	if (search->depth == INSIDE || !hl_glibc_main_lacks_pieces(search->reader))
		return 0;
	hl_account_pages(&search->reader->account, &search->pages);
	return hl_glibc_main_read_piece(search->reader, at, gap->end, ret_end);
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
		struct hl_glibc_stretch stretch;
		size_t index = 0;
		int r = hl_extents_of_carriers(&reader->heap->carriers, search->memory->page_bytes,
					       &search->extents);
		search->count = 0;
		while (r == 0 &&
		       (stretch = hl_glibc_main_next_stretch(&search->memory->maps, &index)).end)
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
