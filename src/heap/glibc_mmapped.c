/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks that have a mapping of their own: glibc keeps no list of them. They are known by their
 * headers at the beginnings of mappings, or behind each other where the kernel has joined mappings;
 * glibc's own count says whether all were found. Among them may be pieces of main_arena.
 */
#include "heap/glibc_reader.h"

#include "heap/extents.h"

#include <string.h>

struct search {
	struct hl_glibc_reader *reader;
	struct hl_memory *memory;
	struct hl_account *account;
	struct hl_pages pages; /* of the gap that is searched */
	struct hl_extents extents;
	bool every_page; /* not only where mappings and blocks begin */
};

/* Whether a mapped block begins at ${address}: its size with the flag, in whole pages. */
static bool is_block(struct search *search, uint64_t address, uint64_t end, uint64_t *ret_bytes)
{
	uint64_t words[2], size;

	if (!hl_pages_contain(&search->pages, address) ||
	    hl_memory_read(search->memory, address, words, sizeof(words)) < 0)
		return false;
	size = words[1] & ~HL_CHUNK_FLAGS;
	if (words[0] != 0 || (words[1] & HL_CHUNK_FLAGS) != HL_CHUNK_MMAPPED || !size ||
	    size & (search->memory->page_bytes - 1) || size > end - address)
		return false;
	*ret_bytes = size;
	return true;
}

/* Whether the header of an aligned block lies ${shift} bytes behind ${start}. */
static bool is_aligned_block(struct search *search, uint64_t start, uint64_t bytes, uint64_t shift)
{
	uint64_t words[2];

	return hl_pages_contain(&search->pages, start + shift) &&
	       hl_memory_read(search->memory, start + shift, words, sizeof(words)) == 0 &&
	       words[0] == shift && words[1] == ((bytes - shift) | HL_CHUNK_MMAPPED);
}

/* memalign moves the header to just before the first aligned address behind it, and leaves the old
 * one as it was. */
static uint64_t find_header(struct search *search, uint64_t start, uint64_t bytes)
{
	for (uint64_t alignment = 32; alignment < bytes; alignment *= 2) {
		uint64_t block = start + HL_CHUNK_BLOCK + alignment - 1;
		uint64_t shift = (block & ~(alignment - 1)) - HL_CHUNK_BLOCK - start;
		if (shift && shift < HL_CHUNK_MIN)
			shift += alignment;
		if (shift && shift + HL_CHUNK_MIN <= bytes &&
		    is_aligned_block(search, start, bytes, shift))
			return start + shift;
	}
	return start;
}

static int account_block(struct search *search, uint64_t start, uint64_t bytes)
{
	uint64_t last_word = 0, end = start + bytes;

	if (search->account->settings->block && hl_pages_contain(&search->pages, end - 8))
		hl_memory_read(search->memory, end - 8, &last_word, sizeof(last_word));
	return hl_account_mmapped(search->account, start, end,
				  find_header(search, start, bytes) + HL_CHUNK_BLOCK, last_word);
}

/* What begins at ${at}: a block, or a piece of main_arena; its end, or 0, in ${ret_end}. */
static int read_one(struct search *search, uint64_t at, uint64_t end, uint64_t *ret_end)
{
	uint64_t bytes;
	int r = 0;

	*ret_end = at;
	if (is_block(search, at, end, &bytes)) {
		hl_account_pages(search->account, &search->pages);
		*ret_end = at + bytes;
		return account_block(search, at, bytes);
	}
	if (hl_glibc_lacks_pieces(search->reader) && hl_pages_contain(&search->pages, at))
		r = hl_glibc_read_piece(search->reader, at, end, ret_end);
	return r;
}

/* Memory that no carrier has: [${start}, ${end}). */
static int search_gap(void *context, uint64_t start, uint64_t end)
{
	struct search *search = context;
	int r;

	search->pages.count = 0;
	search->pages.page_count = 0;
	if ((r = hl_memory_scan(search->memory, start, end, &search->pages)) < 0)
		return r;
	for (uint64_t at = start, next; at < end && r == 0; at = next) {
		r = read_one(search, at, end, &next);
		if (next == at && !search->every_page)
			break;
		if (next == at)
			next += search->memory->page_bytes;
	}
	return r;
}

static int search_mappings(struct search *search)
{
	const struct hl_maps *maps = &search->memory->maps;
	int r = hl_extents_of_carriers(&search->account->heap->carriers, search->memory->page_bytes,
				       &search->extents);
	struct hl_glibc_stretch stretch;
	size_t index = 0;

	while (r == 0 && (stretch = hl_glibc_stretch_next(maps, &index)).end)
		r = hl_extents_gaps(&search->extents, stretch.start, stretch.end, search_gap,
				    search);
	return r;
}

static bool all_were_found(const struct hl_glibc_reader *reader)
{
	return reader->heap->mmapped_blocks >= reader->common.mmapped_blocks &&
	       !hl_glibc_lacks_pieces(reader);
}

int hl_glibc_read_mappings(struct hl_glibc_reader *reader)
{
	struct search search = {
		.reader = reader, .memory = reader->memory, .account = &reader->account};
	int r = search_mappings(&search);

	if (r == 0 && !all_were_found(reader)) {
		search.every_page = true;
		r = search_mappings(&search);
	}
	hl_account_pages(&reader->account, NULL);
	hl_extents_release(&search.extents);
	hl_pages_release(&search.pages);
	return r;
}
