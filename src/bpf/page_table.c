/* SPDX-License-Identifier: BSD-2-Clause */
/* Blocks of 2 MiB by a hash index, one word for each page; see pages.h. */
#include "bpf/pages.h"

#include "base/array.h"
#include "base/compiler.h"
#include "base/index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A word of a page: index of its stack, 0 when nobody owns it, and what is so about it. */
#define ONLY_READ (UINT32_C(1) << 31)
#define CAME_WITH (UINT32_C(1) << 30) /* another page, if it was there at all */
#define STACK_OF  (CAME_WITH - 1)

/* Ranges name blocks that may never be touched; past this many (2 TiB) they are not remembered. */
#define BLOCKS_MAX (UINT32_C(1) << 20)

struct block {
	uint64_t number; /* address >> HL_PAGE_BLOCK_SHIFT */
	uint32_t *words; /* of each page; NULL: all 0 */
	uint32_t rest;	 /* index of the stack of all pages that have none */
};

struct hl_page_table {
	struct block *blocks;
	size_t block_count, block_capacity;
	struct hl_index block_index; /* ids are indices + 1 */
	size_t latest;		     /* index of the block found last: touches come in runs */
	uint64_t *stacks;	     /* stacks[index - 1] */
	size_t stack_count, stack_capacity;
	struct hl_index stack_index;
};

int hl_page_table_new(struct hl_page_table **ret_table)
{
	struct hl_page_table *table = calloc(1, sizeof(*table));

	if (!table)
		return -ENOMEM;
	*ret_table = table;
	return 0;
}

void hl_page_table_free(struct hl_page_table *table)
{
	if (!table)
		return;
	for (size_t i = 0; i < table->block_count; i++)
		free(table->blocks[i].words);
	free(table->blocks);
	hl_index_release(&table->block_index);
	free(table->stacks);
	hl_index_release(&table->stack_index);
	free(table);
}

/* ---- stacks ---- */

/* The index of ${stack}, a new one when it was not seen before; 0 for no stack. */
static int intern(struct hl_page_table *table, uint64_t stack, uint32_t *ret_index)
{
	uint32_t hash = hl_hash_pair(stack, 0), at = hash, id;

	*ret_index = 0;
	if (!stack)
		return 0;
	while ((id = hl_index_next(&table->stack_index, hash, &at)))
		if (table->stacks[id - 1] == stack) {
			*ret_index = id;
			return 0;
		}
	if (table->stack_count == STACK_OF)
		return -ENOMEM;
	if (HL_ARRAY_RESERVE(table->stacks, table->stack_capacity, table->stack_count + 1) < 0)
		return -ENOMEM;
	id = (uint32_t)table->stack_count + 1;
	if (hl_index_add(&table->stack_index, hash, id) < 0)
		return -ENOMEM;
	table->stacks[table->stack_count++] = stack;
	*ret_index = id;
	return 0;
}

uint64_t hl_page_table_stack(const struct hl_page_table *table, uint32_t index)
{
	return table->stacks[index - 1];
}

uint32_t hl_page_table_stack_count(const struct hl_page_table *table)
{
	return (uint32_t)table->stack_count;
}

/* ---- blocks ---- */

static struct block *find_block(const struct hl_page_table *table, uint64_t number)
{
	uint32_t hash = hl_hash_pair(number, 1), at = hash, id;

	while ((id = hl_index_next(&table->block_index, hash, &at)))
		if (table->blocks[id - 1].number == number)
			return &table->blocks[id - 1];
	return NULL;
}

/* The block, made if need be; NULL: no memory. */
static struct block *get_block(struct hl_page_table *table, uint64_t number)
{
	if (HL_LIKELY(table->latest < table->block_count &&
		      table->blocks[table->latest].number == number))
		return &table->blocks[table->latest];
	struct block *block = find_block(table, number);
	if (!block) {
		if (HL_ARRAY_RESERVE(table->blocks, table->block_capacity, table->block_count + 1) <
			    0 ||
		    hl_index_add(&table->block_index, hl_hash_pair(number, 1),
				 (uint32_t)table->block_count + 1) < 0)
			return NULL;
		block = &table->blocks[table->block_count++];
		*block = (struct block){.number = number};
	}
	table->latest = (size_t)(block - table->blocks);
	return block;
}

static int need_words(struct block *block)
{
	if (!block->words)
		block->words = calloc(HL_PAGE_BLOCK_PAGES, sizeof(*block->words));
	return block->words ? 0 : -ENOMEM;
}

/* Which page of its block an address is in. */
static uint32_t page_in_block(uint64_t address)
{
	return (uint32_t)((address & (HL_PAGE_BLOCK_BYTES - 1)) / HL_PAGE_BYTES);
}

/* ---- single pages ---- */

int hl_page_table_touch(struct hl_page_table *table, uint64_t address, uint64_t stack,
			uint32_t touch)
{
	uint32_t index;
	struct block *block = get_block(table, address >> HL_PAGE_BLOCK_SHIFT);

	if (!block || need_words(block) < 0 || intern(table, stack, &index) < 0)
		return -ENOMEM;
	uint32_t *word = &block->words[page_in_block(address)];
	uint32_t owner = *word ? *word : block->rest;
	if (touch & HL_PAGE_TOUCH_PRESENT && owner && !(owner & ONLY_READ))
		return 0;
	*word = index && !(touch & HL_PAGE_TOUCH_WRITE) ? index | ONLY_READ : index;
	return 0;
}

/* ---- ranges ---- */

/* Part of a range that is in one block. */
struct part {
	uint64_t start, end;
};

static bool is_whole_block(const struct part *part)
{
	return part->end - part->start == HL_PAGE_BLOCK_BYTES;
}

/* The next part of [${*at}, ${end}), which then begins after it; false at the end. */
static bool next_part(uint64_t *at, uint64_t end, struct part *ret_part)
{
	if (*at >= end)
		return false;
	uint64_t block_end = (*at | (HL_PAGE_BLOCK_BYTES - 1)) + 1;
	*ret_part = (struct part){*at, block_end < end ? block_end : end};
	*at = ret_part->end;
	return true;
}

/* Gives pages that only the block's rest speaks for words of their own. */
static int spell_out_rest(struct block *block)
{
	if (!block->rest)
		return 0;
	if (need_words(block) < 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < HL_PAGE_BLOCK_PAGES; i++)
		if (!block->words[i])
			block->words[i] = block->rest;
	block->rest = 0;
	return 0;
}

static int populate_part(struct hl_page_table *table, const struct part *part, uint32_t index)
{
	struct block *block = get_block(table, part->start >> HL_PAGE_BLOCK_SHIFT);

	if (!block)
		return -ENOMEM;
	if (block->rest)
		return 0;
	uint32_t first = page_in_block(part->start), last = page_in_block(part->end - 1);
	for (uint32_t i = first; block->words && i <= last; i++)
		if (block->words[i] & CAME_WITH) /* by assumption only */
			block->words[i] = 0;
	if (is_whole_block(part)) {
		block->rest = index;
		return 0;
	}
	if (need_words(block) < 0)
		return -ENOMEM;
	for (uint32_t i = first; i <= last; i++)
		if (!block->words[i])
			block->words[i] = index;
	return 0;
}

static uint64_t round_down(uint64_t address)
{
	return address & ~(HL_PAGE_BYTES - 1);
}

static uint64_t round_up(uint64_t address)
{
	return round_down(address + HL_PAGE_BYTES - 1);
}

int hl_page_table_populate(struct hl_page_table *table, uint64_t start, uint64_t end,
			   uint64_t stack)
{
	uint64_t at = round_down(start);
	uint32_t index;
	struct part part;

	if (end < start || (end - start) >> HL_PAGE_BLOCK_SHIFT >= BLOCKS_MAX - table->block_count)
		return -E2BIG;
	if (intern(table, stack, &index) < 0)
		return -ENOMEM;
	if (!index)
		return 0;
	while (next_part(&at, round_up(end), &part))
		if (populate_part(table, &part, index) < 0)
			return -ENOMEM;
	return 0;
}

static void forget_part(struct block *block, const struct part *part)
{
	/* Without memory for words the whole block is forgotten: rather nobody than a wrong one. */
	if (is_whole_block(part) || spell_out_rest(block) < 0)
		block->rest = 0;
	if (!block->words)
		return;
	uint32_t first = page_in_block(part->start), last = page_in_block(part->end - 1);
	memset(block->words + first, 0, (last - first + 1) * sizeof(*block->words));
}

/* The part of [${start}, ${end}) that is in ${block}; false when there is none. */
static bool part_of_block(const struct block *block, uint64_t start, uint64_t end,
			  struct part *ret_part)
{
	uint64_t block_start = block->number << HL_PAGE_BLOCK_SHIFT;
	uint64_t block_end = block_start + HL_PAGE_BLOCK_BYTES;

	*ret_part = (struct part){
		.start = start > block_start ? start : block_start,
		.end = end < block_end ? end : block_end,
	};
	return ret_part->start < ret_part->end;
}

void hl_page_table_forget(struct hl_page_table *table, uint64_t start, uint64_t end)
{
	uint64_t at = round_down(start);
	struct part part;

	if (start >= end)
		return;
	end = round_up(end);
	if ((end - at) >> HL_PAGE_BLOCK_SHIFT > table->block_count) { /* fewer to look at */
		for (size_t i = 0; i < table->block_count; i++)
			if (part_of_block(&table->blocks[i], at, end, &part))
				forget_part(&table->blocks[i], &part);
		return;
	}
	while (next_part(&at, end, &part)) {
		struct block *block = find_block(table, part.start >> HL_PAGE_BLOCK_SHIFT);
		if (block)
			forget_part(block, &part);
	}
}

/* ---- moves ---- */

static int move_page(struct hl_page_table *table, uint64_t from, uint64_t to)
{
	const struct block *before = find_block(table, from >> HL_PAGE_BLOCK_SHIFT);
	uint32_t word = before && before->words ? before->words[page_in_block(from)] : 0;

	if (before && !word)
		word = before->rest;
	if (!word)
		return 0;
	struct block *block = get_block(table, to >> HL_PAGE_BLOCK_SHIFT);
	if (!block || need_words(block) < 0)
		return -ENOMEM;
	block->words[page_in_block(to)] = word;
	return 0;
}

int hl_page_table_move(struct hl_page_table *table, uint64_t from, uint64_t to, uint64_t bytes)
{
	uint64_t start = round_down(from), end = round_up(from + bytes);
	uint64_t distance = round_down(to) - start;
	size_t block_count = table->block_count; /* those that moving adds have nothing to move */
	struct part part;
	int r = 0;

	if (end <= start || !distance)
		return 0;
	hl_page_table_forget(table, start + distance, end + distance);
	for (size_t i = 0; i < block_count; i++) {
		if (!part_of_block(&table->blocks[i], start, end, &part))
			continue;
		for (uint64_t page = part.start; page < part.end && r == 0; page += HL_PAGE_BYTES)
			r = move_page(table, page, page + distance); /* wraps around for down */
	}
	hl_page_table_forget(table, start, end);
	return r;
}

/* ---- pages that came with others ---- */

/* Gives those of ${count} words that are 0 the nearest other; of two the one before. */
static void spread(uint32_t *words, uint32_t count)
{
	uint32_t before = count, after = 0; /* count: none */

	for (uint32_t i = 0; i < count; i++) {
		if (words[i]) {
			before = i;
			continue;
		}
		for (after = after > i ? after : i + 1; after < count && !words[after];)
			after++;
		if (before < count && (after == count || i - before <= after - i))
			words[i] = words[before];
		else if (after < count)
			words[i] = words[after];
	}
}

/* The words of a block's pages in ${part}, and, where there is none, of the page that they came
 * with if it was one of these. */
static void spread_in_block(const struct block *block, const struct part *part,
			    uint32_t words[HL_PAGE_BLOCK_PAGES])
{
	uint32_t first = page_in_block(part->start), last = page_in_block(part->end - 1);

	memset(words, 0, HL_PAGE_BLOCK_PAGES * sizeof(*words));
	for (uint32_t i = first; i <= last; i++) {
		uint32_t word = block->words ? block->words[i] : 0;
		words[i] = word ? word : block->rest;
	}
	for (uint32_t i = 0; i < HL_PAGE_BLOCK_PAGES; i += HL_PAGE_GROUP_PAGES)
		spread(words + i, HL_PAGE_GROUP_PAGES);
	spread(words, HL_PAGE_BLOCK_PAGES);
}

/* Before pages go that others may have come with: these have words of their own from now on. */
static void spell_out_company(struct block *block, const struct part *leaving)
{
	uint64_t start = block->number << HL_PAGE_BLOCK_SHIFT;
	const struct part all = {start, start + HL_PAGE_BLOCK_BYTES};
	uint32_t words[HL_PAGE_BLOCK_PAGES];
	uint32_t first = page_in_block(leaving->start), last = page_in_block(leaving->end - 1);

	if (!block->words || is_whole_block(leaving))
		return;
	spread_in_block(block, &all, words);
	for (uint32_t i = 0; i < HL_PAGE_BLOCK_PAGES; i++)
		if (!block->words[i] && (i < first || i > last) && words[i])
			block->words[i] = words[i] | CAME_WITH;
}

void hl_page_table_discard(struct hl_page_table *table, uint64_t start, uint64_t end)
{
	const uint64_t ends[] = {start, end - 1}; /* other blocks leave as a whole */
	struct part part;

	if (start >= end)
		return;
	for (size_t i = 0; i < HL_COUNT_OF(ends); i++) {
		struct block *block = find_block(table, ends[i] >> HL_PAGE_BLOCK_SHIFT);
		if (block && part_of_block(block, round_down(start), round_up(end), &part))
			spell_out_company(block, &part);
	}
	hl_page_table_forget(table, start, end);
}

void hl_page_table_owners(const struct hl_page_table *table, uint64_t block, uint64_t low,
			  uint64_t high, uint32_t ret_owners[HL_PAGE_BLOCK_PAGES])
{
	const struct block *known = find_block(table, block >> HL_PAGE_BLOCK_SHIFT);
	struct part part;

	memset(ret_owners, 0, HL_PAGE_BLOCK_PAGES * sizeof(*ret_owners));
	if (!known || !part_of_block(known, low, high, &part))
		return;
	spread_in_block(known, &part, ret_owners);
	for (uint32_t i = 0; i < HL_PAGE_BLOCK_PAGES; i++)
		ret_owners[i] &= STACK_OF;
}
