/* SPDX-License-Identifier: BSD-2-Clause */
/* The blocks of a heap and their bits; see graph.h. */
#include "heap/graph/graph.h"

#include "base/array.h"
#include "heap/glibc.h"

#define UPPER_COUNT (UINT64_C(1) << HL_GRAPH_UPPER_BITS)

/* From here on pages within a block have no bits of their own. */
#define LARGE_BYTES (UINT64_C(256) << 10)

int hl_graph_init(struct hl_graph *graph, struct hl_memory *memory)
{
	*graph = (struct hl_graph){.memory = memory,
				   .granule_bits = HL_GRAPH_GRANULE_BITS,
				   .header_bytes = HL_CHUNK_HEADER};
	graph->table = calloc(UPPER_COUNT, sizeof(*graph->table));
	return graph->table ? 0 : -ENOMEM;
}

void hl_graph_expect_slabs(struct hl_graph *graph, bool marks)
{
	graph->header_bytes = 0;
	if (!marks)
		graph->granule_bits = HL_GRAPH_GRANULE_BITS_SMALL;
}

void hl_graph_release(struct hl_graph *graph)
{
	for (size_t i = 0; i < graph->region_count; i++)
		free(graph->regions[i]);
	for (uint64_t i = 0; graph->table && i < UPPER_COUNT; i++)
		free(graph->table[i]);
	free(graph->table);
	free(graph->regions);
	free(graph->pending);
	free(graph->large);
	free(graph->window);
	free(graph->threads);
	hl_addresses_release(&graph->inner);
	hl_pages_release(&graph->pages);
	*graph = (struct hl_graph){0};
}

/* ---- bits ---- */

/*
 * Several threads may mark: they set bits of ${reached}, and those that say where blocks are pending. Who sets one
 * looks for the coarser one afterwards; who clears a coarser one looks for finer ones afterwards: in
 * the one order of all these operations one of them sees what the other did. Bits in ${read}
 * belong to the thread that has the region.
 */
static uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

/* Whether ${bit} was not set. */
static inline bool set_bit(const struct hl_graph *graph, uint64_t *word, uint64_t bit)
{
	if (graph->crew)
		return !(__atomic_fetch_or(word, bit, __ATOMIC_SEQ_CST) & bit);
	bool is_new = !(*word & bit);
	*word |= bit;
	return is_new;
}

static void clear_bit(const struct hl_graph *graph, uint64_t *word, uint64_t bit)
{
	if (graph->crew)
		__atomic_fetch_and(word, ~bit, __ATOMIC_SEQ_CST);
	else
		*word &= ~bit;
}

/* The page of bits for ${address}, made if there is none. NULL for want of memory. */
static struct hl_graph_page *make_page(struct hl_graph *graph, uint64_t address)
{
	uint64_t number = address >> (graph->granule_bits + 16);
	uint64_t upper = number >> HL_GRAPH_MIDDLE_BITS;
	struct hl_graph_region **place;

	if (!graph->table[upper] &&
	    !(graph->table[upper] = calloc(HL_GRAPH_MIDDLE_COUNT, sizeof(**graph->table))))
		return NULL;
	place = &graph->table[upper][number & (HL_GRAPH_MIDDLE_COUNT - 1)];
	if (!*place) {
		if (HL_ARRAY_RESERVE(graph->regions, graph->region_capacity,
				     graph->region_count + 1) < 0 ||
		    !(*place = calloc(1, sizeof(**place))))
			return NULL;
		(*place)->base =
			address & ~(hl_graph_granules(graph, HL_GRAPH_REGION_GRANULES) - 1);
		graph->regions[graph->region_count++] = *place;
	}
	return hl_graph_page(graph, address);
}

/* ---- blocks ---- */

static int add_large(struct hl_graph *graph, struct hl_graph_large large)
{
	return HL_ARRAY_APPEND(graph->large, graph->large_count, graph->large_capacity, large);
}

int hl_graph_add_counted(struct hl_graph *graph, uint64_t block, uint64_t usable_bytes,
			 uint64_t counted_bytes)
{
	uint64_t granule = hl_graph_granules(graph, 1),
		 page_bytes = hl_graph_granules(graph, HL_GRAPH_PAGE_GRANULES);
	/* The next block, or where none can be, as the end of a mapping. */
	uint64_t next = block + usable_bytes + graph->header_bytes, end = next & ~(granule - 1);
	bool is_large = next != end || usable_bytes >= LARGE_BYTES || counted_bytes != usable_bytes;

	if (block & (granule - 1) || end <= block ||
	    end >> (graph->granule_bits + 16 + HL_GRAPH_MIDDLE_BITS + HL_GRAPH_UPPER_BITS))
		return 0;
	bool is_on_one_page = (block ^ end) < page_bytes;
	struct hl_graph_page *page = make_page(graph, block);
	struct hl_graph_page *last = is_on_one_page ? page : make_page(graph, end);
	if (!page || !last || (!is_on_one_page && !make_page(graph, block + granule)) ||
	    (is_large &&
	     add_large(graph, (struct hl_graph_large){block, usable_bytes, counted_bytes}) < 0))
		return -ENOMEM;
	if (!(hl_graph_bits(graph, last, end)->starts & hl_graph_bit(graph, end))) {
		hl_graph_bits(graph, last, end)->starts |= hl_graph_bit(graph, end);
		hl_graph_bits(graph, last, end)->reached |= hl_graph_bit(graph, end);
		hl_graph_bits(graph, last, end)->read |= hl_graph_bit(graph, end);
	}
	hl_graph_bits(graph, page, block)->starts |= hl_graph_bit(graph, block);
	hl_graph_bits(graph, page, block)->reached &= ~hl_graph_bit(graph, block);
	hl_graph_bits(graph, page, block)->read &= ~hl_graph_bit(graph, block);
	uint64_t first_page = block / page_bytes;
	for (uint64_t i = first_page + 1; !is_large && i <= (end - 1) / page_bytes; i++) {
		struct hl_graph_page *inner = make_page(graph, i * page_bytes);
		if (!inner)
			return -ENOMEM;
		inner->back = (uint32_t)(i - first_page);
	}
	graph->live_blocks++;
	graph->live_bytes += counted_bytes;
	return 0;
}

static int compare_regions(const void *left, const void *right)
{
	const struct hl_graph_region *a = *(struct hl_graph_region *const *)left;
	const struct hl_graph_region *b = *(struct hl_graph_region *const *)right;

	return (a->base > b->base) - (a->base < b->base);
}

int hl_graph_settle(struct hl_graph *graph, const struct hl_extents *extents)
{
	uint64_t mask = graph->memory->page_bytes - 1, scanned = 0;
	int r = 0;

	if (graph->region_count)
		qsort(graph->regions, graph->region_count, sizeof(*graph->regions),
		      compare_regions);
	if (graph->large_count)
		qsort(graph->large, graph->large_count, sizeof(*graph->large),
		      hl_addresses_compare);
	if (graph->large_count) {
		const struct hl_graph_large *last = &graph->large[graph->large_count - 1];
		graph->large_end = last->address + last->usable_bytes;
	}
	for (size_t i = 0; i < graph->region_count; i++)
		graph->regions[i]->number = (uint32_t)i;
	graph->pending = calloc(graph->region_count / 64 + 1, sizeof(*graph->pending));
	if (!graph->pending)
		return -ENOMEM;
	/* Extents of single blocks may share pages. */
	for (size_t i = 0; i < extents->count && r == 0; i++) {
		uint64_t start = extents->extents[i].start & ~mask;
		uint64_t end = (extents->extents[i].end + mask) & ~mask;
		start = start > scanned ? start : scanned;
		if (start < end)
			r = hl_memory_scan(graph->memory, start, end, &graph->pages);
		scanned = end > scanned ? end : scanned;
	}
	return r;
}

/* The large block that begins last before ${address}, or at it. */
static const struct hl_graph_large *large_before(const struct hl_graph *graph, uint64_t address)
{
	size_t at = HL_LOWER_BOUND(i, graph->large_count, graph->large[i].address <= address);

	return at ? &graph->large[at - 1] : NULL;
}

/* The last start on a page among the granules up to ${granule}. */
static bool last_start(const struct hl_graph_page *page, unsigned granule, unsigned *ret_granule)
{
	unsigned word = granule / 64;
	uint64_t bits = page->bits[word].starts & (UINT64_MAX >> (63 - granule % 64));

	while (!bits && word)
		bits = page->bits[--word].starts;
	if (!bits)
		return false;
	*ret_granule = word * 64 + 63 - (unsigned)__builtin_clzll(bits);
	return true;
}

bool hl_graph_find(const struct hl_graph *graph, uint64_t address, uint64_t *ret_block)
{
	const struct hl_graph_page *page = hl_graph_page(graph, address);
	uint64_t in_page = address & ~(hl_graph_granules(graph, HL_GRAPH_PAGE_GRANULES) - 1);
	unsigned last = HL_GRAPH_PAGE_GRANULES - 1, granule;
	unsigned at = (unsigned)(address >> graph->granule_bits) & last;
	bool is_found = page && last_start(page, at, &granule);

	if (!is_found && page && page->back) {
		in_page -= page->back * hl_graph_granules(graph, HL_GRAPH_PAGE_GRANULES);
		page = hl_graph_page(graph, in_page);
		is_found = page && last_start(page, last, &granule);
	}
	if (is_found) {
		*ret_block = in_page + hl_graph_granules(graph, granule);
		return true;
	}
	const struct hl_graph_large *large = large_before(graph, address);
	if (!large || address - large->address >= large->usable_bytes)
		return false;
	*ret_block = large->address;
	return true;
}

uint64_t hl_graph_usable(const struct hl_graph *graph, uint64_t block)
{
	const struct hl_graph_large *large = large_before(graph, block);

	if (large && large->address == block)
		return large->usable_bytes;
	uint64_t first = block + hl_graph_granules(graph, 1), word = hl_graph_granules(graph, 64);
	for (uint64_t at = first;
	     at < block + LARGE_BYTES + hl_graph_granules(graph, HL_GRAPH_PAGE_GRANULES);) {
		struct hl_graph_page *page = hl_graph_page(graph, at);
		uint64_t bits = page ? hl_graph_bits(graph, page, at)->starts >>
						(at >> graph->granule_bits & 63)
				     : 0;
		if (bits)
			return at + ((uint64_t)__builtin_ctzll(bits) << graph->granule_bits) -
			       block - graph->header_bytes;
		at = (at & ~(word - 1)) + word;
	}
	return 0;
}

uint64_t hl_graph_counted(const struct hl_graph *graph, uint64_t block)
{
	const struct hl_graph_large *large = large_before(graph, block);

	return large && large->address == block ? large->counted_bytes
						: hl_graph_usable(graph, block);
}

bool hl_graph_is_reached(const struct hl_graph *graph, uint64_t block)
{
	struct hl_graph_page *page = hl_graph_page(graph, block);

	return !page ||
	       load(&hl_graph_bits(graph, page, block)->reached) & hl_graph_bit(graph, block);
}

uint64_t hl_graph_next_lost(const struct hl_graph *graph, uint64_t address)
{
	uint64_t region_bytes = hl_graph_granules(graph, HL_GRAPH_REGION_GRANULES),
		 word = hl_graph_granules(graph, 64);
	size_t at = HL_LOWER_BOUND(i, graph->region_count,
				   graph->regions[i]->base + region_bytes <= address);

	for (; at < graph->region_count; at++) {
		struct hl_graph_region *region = graph->regions[at];
		uint64_t from = address > region->base ? address : region->base;
		for (uint64_t end = region->base + region_bytes; from < end;
		     from = (from & ~(word - 1)) + word) {
			struct hl_graph_page *page =
				&region->pages[hl_graph_page_number(graph, from)];
			uint64_t bits = hl_graph_bits(graph, page, from)->starts &
					~hl_graph_bits(graph, page, from)->reached &
					~(hl_graph_bit(graph, from) - 1);
			if (bits)
				return (from & ~(word - 1)) +
				       ((uint64_t)__builtin_ctzll(bits) << graph->granule_bits);
		}
	}
	return 0;
}

void hl_graph_refer(struct hl_graph *graph, uint64_t block)
{
	uint64_t second = block + hl_graph_granules(graph, 1);

	hl_graph_bits(graph, hl_graph_page(graph, second), second)->reached |=
		hl_graph_bit(graph, second);
}

bool hl_graph_is_referred(const struct hl_graph *graph, uint64_t block)
{
	uint64_t second = block + hl_graph_granules(graph, 1);

	return hl_graph_bits(graph, hl_graph_page(graph, second), second)->reached &
	       hl_graph_bit(graph, second);
}

/* ---- pending blocks ---- */

/* Notes that page ${number} of ${region} has a pending block. */
static void add_page(struct hl_graph *graph, struct hl_graph_region *region, unsigned number)
{
	uint64_t *pages = &region->pending[number / 64];
	uint64_t *regions = &graph->pending[region->number / 64];

	if (load(pages) >> number % 64 & 1 || !set_bit(graph, pages, UINT64_C(1) << number % 64) ||
	    load(regions) >> region->number % 64 & 1)
		return;
	if (set_bit(graph, regions, UINT64_C(1) << region->number % 64) && graph->crew)
		hl_graph_crew_wake(graph->crew);
}

void hl_graph_reach(struct hl_graph *graph, uint64_t block)
{
	struct hl_graph_region *region = hl_graph_region(graph, block);
	unsigned number = hl_graph_page_number(graph, block);
	struct hl_graph_bits *bits = hl_graph_bits(graph, &region->pages[number], block);

	if (set_bit(graph, &bits->reached, hl_graph_bit(graph, block)))
		add_page(graph, region, number);
}

/* Takes the first pending block of a page. False if there is none. */
static bool take_in_page(struct hl_graph_page *page, unsigned *ret_granule)
{
	for (unsigned word = 0; word < HL_GRAPH_PAGE_WORDS; word++) {
		struct hl_graph_bits *bits = &page->bits[word];
		uint64_t pending = load(&bits->reached) & bits->starts & ~bits->read;
		if (pending) {
			*ret_granule = word * 64 + (unsigned)__builtin_ctzll(pending);
			bits->read |= pending & -pending;
			return true;
		}
	}
	return false;
}

/* The first set bit from ${from} on, of ${count}; ${count}: none. */
static size_t next_bit(const uint64_t *bits, size_t from, size_t count)
{
	for (size_t word = from / 64; word * 64 < count; word++) {
		uint64_t left = load(&bits[word]) &
				(word == from / 64 ? UINT64_MAX << from % 64 : UINT64_MAX);
		if (left)
			return word * 64 + (size_t)__builtin_ctzll(left);
	}
	return count;
}

uint64_t hl_graph_pending_end(const struct hl_graph *graph, uint64_t block)
{
	const struct hl_graph_region *region = hl_graph_region(graph, block);
	size_t page = hl_graph_page_number(graph, block);

	/* The block itself may have been the last one of its page. */
	do
		page++;
	while (page < HL_GRAPH_REGION_PAGES && load(&region->pending[page / 64]) >> page % 64 & 1);
	return region->base + page * hl_graph_granules(graph, HL_GRAPH_PAGE_GRANULES);
}

/* Takes a block of ${region} from the page of the cursor on. */
static bool take_in_region(struct hl_graph *graph, struct hl_graph_region *region,
			   uint64_t *ret_block)
{
	size_t page = graph->cursor_page;
	unsigned granule;

	for (; (page = next_bit(region->pending, page, HL_GRAPH_REGION_PAGES)) <
	       HL_GRAPH_REGION_PAGES;
	     page++) {
		uint64_t *pages = &region->pending[page / 64], bit = UINT64_C(1) << page % 64;
		graph->cursor_page = page;
		bool is_taken = take_in_page(&region->pages[page], &granule);
		if (!is_taken) {
			clear_bit(graph, pages, bit);
			is_taken = take_in_page(&region->pages[page], &granule);
			if (is_taken)
				set_bit(graph, pages, bit);
		}
		if (is_taken) {
			granule += (unsigned)page * HL_GRAPH_PAGE_GRANULES;
			*ret_block = region->base + hl_graph_granules(graph, granule);
			return true;
		}
	}
	return false;
}

static bool has_pending(const struct hl_graph_region *region)
{
	return next_bit(region->pending, 0, HL_GRAPH_REGION_PAGES) < HL_GRAPH_REGION_PAGES;
}

size_t hl_graph_next_pending(const struct hl_graph *graph, size_t number)
{
	return next_bit(graph->pending, number, graph->region_count);
}

void hl_graph_leave_region(struct hl_graph *graph, struct hl_graph_region *region)
{
	uint64_t *regions = &graph->pending[region->number / 64];
	uint64_t bit = UINT64_C(1) << region->number % 64;

	if (has_pending(region))
		return;
	clear_bit(graph, regions, bit);
	if (has_pending(region))
		set_bit(graph, regions, bit);
}

bool hl_graph_take(struct hl_graph *graph, uint64_t *ret_block)
{
	size_t number = graph->cursor_region;

	if (graph->region)
		return take_in_region(graph, graph->region, ret_block);
	for (unsigned rounds = 0; rounds < 2; rounds++, number = 0, graph->cursor_page = 0)
		for (; (number = hl_graph_next_pending(graph, number)) < graph->region_count;
		     number++) {
			if (number != graph->cursor_region)
				graph->cursor_page = 0;
			graph->cursor_region = number;
			if (take_in_region(graph, graph->regions[number], ret_block))
				return true;
			hl_graph_leave_region(graph, graph->regions[number]);
		}
	return false;
}
