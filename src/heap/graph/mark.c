/* SPDX-License-Identifier: BSD-2-Clause */
/* Reaching blocks from roots and from each other; see graph.h. */
#include "heap/graph/graph.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "heap/glibc.h"

#include <unistd.h>

/* ---- pointers into blocks that the conventions of C++ and the program's own habits explain ---- */

#define COW_HEADER_BYTES 24u /* of std::string before C++11: length, capacity, references */
#define COW_SLACK_BYTES	 4096u
#define ALIGNMENT_MAX	 64u

/* Classes: see struct hl_graph_offsets. */
#define CLASS_OF_ALL	 0u
#define CLASS_OF_BITS	 1u  /* the first of 48 */
#define CLASS_OF_SIZES	 49u /* the first of 64, by 16 bytes */
#define CLASSES_OF_BLOCK 3u

/* An offset is a habit of a class if more than half of its blocks, and at least this many, are pointed
 * to there. All blocks together need more, as these decide for classes of few blocks. */
#define HABIT_BLOCKS	 16u
#define HABIT_BLOCKS_ALL 256u

/* Where a file is mapped, the bytes that a core file leaves out are in it. */
static int copy_from_file(const struct hl_graph *graph, uint64_t address, void *bytes,
			  size_t length)
{
	const struct hl_map *map = hl_maps_find(&graph->memory->maps, address);

	if (!map || !map->inode || length > map->end - address)
		return -EFAULT;
	HL_CLOSED int fd = hl_memory_open_file(graph->memory, map);
	if (fd < 0)
		return -EFAULT;
	off_t offset = (off_t)(map->offset + (address - map->start));
	return pread(fd, bytes, length, offset) == (ssize_t)length ? 0 : -EFAULT;
}

int hl_graph_copy(const struct hl_graph *graph, uint64_t address, void *bytes, size_t length)
{
	if (hl_memory_read(graph->memory, address, bytes, length) == 0)
		return 0;
	return copy_from_file(graph, address, bytes, length);
}

/* Whether the object at ${offset} of the block has a virtual table that says so: the word before
 * the type's in the table is how far the whole object begins before (Itanium C++ ABI, 2.5.2). An
 * array begins after its count. */
static bool is_base_class(const struct hl_graph *graph, uint64_t table, uint64_t offset)
{
	const struct hl_map *map = hl_maps_find(&graph->memory->maps, table);
	int64_t to_top;

	return map && map->inode && !(table & 7) &&
	       hl_graph_copy(graph, table - 16, &to_top, sizeof(to_top)) == 0 && to_top < 0 &&
	       ((uint64_t)-to_top == offset || (uint64_t)-to_top + 8 == offset);
}

/* Whether a convention explains why ${word} points into ${block}, not to its start. */
static bool is_explained(const struct hl_graph *graph, uint64_t word, uint64_t block)
{
	uint64_t usable = hl_graph_usable(graph, block), offset = word - block, at[3], there;

	if (offset & 7 || offset + 8 > usable ||
	    hl_memory_read(graph->memory, block, at, sizeof(at)) < 0 ||
	    hl_memory_read(graph->memory, word, &there, sizeof(there)) < 0)
		return false;
	/* std::string of the old ABI points to its text. */
	if (offset == COW_HEADER_BYTES && at[0] <= at[1] && at[1] < usable - offset &&
	    usable - offset - at[1] <= COW_SLACK_BYTES)
		return true;
	/* new[] of an aligned type has its count before the first element. */
	if (offset <= ALIGNMENT_MAX && !(offset & (offset - 1)) &&
	    hl_memory_read(graph->memory, word - 8, &there, sizeof(there)) == 0 && there &&
	    there <= (usable - offset) / offset)
		return true;
	return hl_memory_read(graph->memory, word, &there, sizeof(there)) == 0 &&
	       is_base_class(graph, there, offset);
}

/* ---- habits ---- */

/* The classes of ${block}; how many they are. */
static unsigned classes_of(const struct hl_graph *graph, uint64_t block,
			   unsigned ret_classes[CLASSES_OF_BLOCK])
{
	uint64_t usable = hl_graph_usable(graph, block);
	unsigned highest = 63 - (unsigned)__builtin_clzll(usable | 1);
	uint64_t steps = usable / 16;

	ret_classes[0] = CLASS_OF_ALL;
	ret_classes[1] = CLASS_OF_BITS + (highest < 48 ? highest : 47);
	ret_classes[2] = CLASS_OF_SIZES + (unsigned)(steps < 64 ? steps : 0);
	return steps < 64 ? 3 : 2;
}

/* Whether ${word} points as far into ${block} as graph->offsets have it. The block is counted there. */
static bool is_at_offset(struct hl_graph *graph, uint64_t word, uint64_t block)
{
	struct hl_graph_offsets *offsets = graph->offsets;
	unsigned classes[CLASSES_OF_BLOCK];
	uint64_t offset = word - block;
	bool is_start = false;

	if (!offsets || offset >= HL_GRAPH_OFFSETS)
		return false;
	unsigned count = classes_of(graph, block, classes);
	for (unsigned i = 0; i < count; i++)
		is_start |= offsets->starts[classes[i]][offset / 64] >> offset % 64 & 1;
	for (unsigned i = 0; i < count && is_start; i++)
		offsets->blocks[classes[i]]++;
	return is_start;
}

/* Blocks that were not reached: how many have pointers to their inside, and to each offset. */
struct counts {
	uint64_t blocks[HL_GRAPH_CLASSES];
	uint64_t at[HL_GRAPH_CLASSES][HL_GRAPH_OFFSETS];
};

static void count_offsets(const struct hl_graph *graph, struct counts *counts)
{
	const struct hl_addresses *inner = &graph->inner;
	uint64_t block, last_block = 0, last_word = 0;
	unsigned classes[CLASSES_OF_BLOCK];

	for (size_t i = 0; i < inner->count; i++) {
		uint64_t word = inner->addresses[i];
		if (word == last_word || !hl_graph_find(graph, word, &block) ||
		    hl_graph_is_reached(graph, block))
			continue;
		unsigned count = classes_of(graph, block, classes);
		for (unsigned k = 0; k < count; k++) {
			counts->blocks[classes[k]] += block != last_block;
			if (word - block < HL_GRAPH_OFFSETS)
				counts->at[classes[k]][word - block]++;
		}
		last_block = block;
		last_word = word;
	}
}

/*
 * Adds to graph->offsets each one at which graph->inner, which this sorts, points into most blocks of a
 * class that are known by their inside alone. 1: there is a new one; 0; or -ENOMEM.
 */
static int learn_offsets(struct hl_graph *graph)
{
	HL_FREED struct counts *counts = calloc(1, sizeof(*counts));
	struct hl_graph_offsets *offsets = graph->offsets;
	bool is_new = false;

	if (!counts)
		return -ENOMEM;
	hl_addresses_sort(&graph->inner);
	count_offsets(graph, counts);
	for (unsigned class = 0; class < HL_GRAPH_CLASSES; class ++)
		for (uint64_t at = 0; at < HL_GRAPH_OFFSETS; at++) {
			uint64_t known = counts->blocks[class] + offsets->blocks[class];
			uint64_t least = class == CLASS_OF_ALL ? HABIT_BLOCKS_ALL : HABIT_BLOCKS;
			if (counts->at[class][at] < least || counts->at[class][at] <= known / 2)
				continue;
			offsets->starts[class][at / 64] |= UINT64_C(1) << at % 64;
			is_new = true;
		}
	return is_new;
}

/* ---- reaching blocks from roots and from each other ---- */

#define WINDOW_BYTES (UINT64_C(256) << 10)
#define PAGE_BYTES   4096u /* of memory */

/* Pointers inside blocks that are kept for later: 8 MiB. What comes beyond counts as starts, so that
 * nothing is called lost that is not. */
#define INNER_MAX (UINT64_C(1) << 20)

#define LINKS_MAX   (1u << 20) /* in all: a program's own ring may look like such a list */
#define FASTBIN_MAX 183u       /* size of a chunk in a fastbin, with its flags */

/* ---- words ---- */

/* Drops the pointers whose blocks were reached meanwhile; those too that are left if there are many.
 */
static void shrink_inner(struct hl_graph *graph)
{
	struct hl_addresses *inner = &graph->inner;
	size_t kept = 0;
	uint64_t block;

	for (size_t i = 0; i < inner->count; i++)
		if (hl_graph_find(graph, inner->addresses[i], &block) &&
		    !hl_graph_is_reached(graph, block))
			inner->addresses[kept++] = inner->addresses[i];
	inner->count = kept;
	while (kept > INNER_MAX / 2 && inner->count)
		if (hl_graph_find(graph, inner->addresses[--inner->count], &block) &&
		    !hl_graph_is_reached(graph, block))
			hl_graph_reach(graph, block);
}

void hl_graph_keep_inner(struct hl_graph *graph, uint64_t word)
{
	struct hl_addresses *inner = &graph->inner;

	if (inner->count && inner->addresses[inner->count - 1] == word)
		return;
	if (inner->count == INNER_MAX)
		shrink_inner(graph);
	if (HL_ARRAY_APPEND(inner->addresses, inner->count, inner->capacity, word) < 0)
		graph->error = -ENOMEM;
}

/* Follows ${word}, which lies in the block ${source}. Pointers 8 or 16 bytes into a block count as
 * starts: the counts of new[], sizes that wrappers of malloc keep, heads of a garbage
 * collector, glibc's dtv. */
static void follow(struct hl_graph *graph, uint64_t word, uint64_t source)
{
	struct hl_graph_page *page = hl_graph_page(graph, word);
	uint64_t block = word;

	if (!(page && !(word & (hl_graph_granules(graph, 1) - 1)) &&
	      hl_graph_bits(graph, page, word)->starts & hl_graph_bit(graph, word)) &&
	    !hl_graph_find(graph, word, &block))
		return;
	if (block == source)
		return;
	if (hl_graph_is_reached(graph, block)) {
		if (graph->phase == HL_GRAPH_LOST && graph->on_again && !graph->error)
			graph->error = graph->on_again(graph->context, block);
		return;
	}
	if (word == block || word == block + 8 || word == block + 16 ||
	    graph->phase != HL_GRAPH_DEFINITE || is_at_offset(graph, word, block))
		hl_graph_reach(graph, block);
	else
		hl_graph_keep_inner(graph, word);
}

/* Whether ${word}, which lies on ${page} if there is one, may lead to a block. */
static inline bool may_lead(const struct hl_graph *graph, const struct hl_graph_page *page,
			    uint64_t word)
{
	return page ||
	       (graph->large_count && word >= graph->large[0].address && word < graph->large_end);
}

/* Follows ${word} a little later, when its bits have come from memory. */
static inline void follow_later(struct hl_graph *graph, uint64_t word, uint64_t source)
{
	struct hl_graph_page *page = hl_graph_page(graph, word);

	if (!may_lead(graph, page, word))
		return;
	if (page)
		__builtin_prefetch(hl_graph_bits(graph, page, word));
	struct hl_graph_word *place = &graph->waiting[graph->waiting_at++ % HL_GRAPH_WAITING];
	const struct hl_graph_word before = *place;
	*place = (struct hl_graph_word){word, source};
	if (before.word)
		follow(graph, before.word, before.source);
}

static void follow_waiting(struct hl_graph *graph)
{
	for (unsigned i = 0; i < HL_GRAPH_WAITING; i++) {
		const struct hl_graph_word waiting = graph->waiting[i];
		graph->waiting[i] = (struct hl_graph_word){0};
		if (waiting.word)
			follow(graph, waiting.word, waiting.source);
	}
}

static bool is_present(const struct hl_graph *graph, uint64_t address)
{
	const struct hl_pages *pages = &graph->pages;
	size_t run = HL_LOWER_BOUND(i, pages->count, pages->runs[i].end <= address);

	return run < pages->count && pages->runs[run].start <= address;
}

/* Reaches the blocks of free chunks that hang on ${chunk}: malloc_consolidate() takes a whole fastbin
 * and then has its chunks in no list. */
static void follow_links(struct hl_graph *graph, uint64_t chunk)
{
	struct {
		uint64_t size, link;
	} words;
	uint64_t block;

	for (; graph->links < LINKS_MAX && !(chunk & 15) && is_present(graph, chunk);
	     graph->links++) {
		if (hl_memory_read(graph->memory, chunk + 8, &words, sizeof(words)) < 0 ||
		    (words.size & ~HL_CHUNK_FLAGS) < HL_CHUNK_MIN || words.size > FASTBIN_MAX)
			return;
		if (hl_graph_find(graph, chunk + HL_CHUNK_BLOCK, &block) &&
		    block == chunk + HL_CHUNK_BLOCK && !hl_graph_is_reached(graph, block))
			hl_graph_reach(graph, block);
		chunk = words.link ^ (graph->has_safe_links ? (chunk + HL_CHUNK_BLOCK) >> 12 : 0);
	}
}

void hl_graph_see_root(struct hl_graph *graph, const uint64_t *words, size_t count,
		       bool has_headers)
{
	uint64_t block;

	for (size_t i = 0; i < count; i++) {
		uint64_t word = words[i];
		if (!word)
			continue;
		follow_later(graph, word, 0);
		if (has_headers && graph->follows_links)
			follow_links(graph, word);
		if (has_headers && !(word & 15) && hl_graph_find(graph, word + 16, &block) &&
		    block == word + 16)
			follow_later(graph, block, 0);
	}
}

int hl_graph_each_unaligned(const struct hl_graph *graph, uint64_t address, const uint64_t *words,
			    size_t count, struct hl_graph_tail *tail, hl_graph_visit *visit,
			    void *context)
{
	bool goes_on = tail->end == address;
	uint64_t before = tail->word;
	int r = 0;

	for (size_t i = 0; i < count && r == 0; before = words[i++])
		for (unsigned at = 1; (i || goes_on) && at < 8 && r == 0; at++) {
			uint64_t word = before >> at * 8 | words[i] << (64 - at * 8);
			if (may_lead(graph, hl_graph_page(graph, word), word))
				r = visit(context, address + i * 8 - 8 + at, &word, 1);
		}
	*tail = (struct hl_graph_tail){address + count * 8, before};
	return r;
}

/* ---- reading ---- */

/* Asks for what follows the window in ${run}, by a thread that has nothing else to do. */
static void read_ahead(struct hl_graph *graph, const struct hl_page_run *run)
{
	uint64_t start = graph->window_end, end = start + WINDOW_BYTES;

	if (!graph->crew || start >= run->end || !hl_graph_crew_is_hungry(graph->crew))
		return;
	if (!graph->ahead && hl_ahead_new(graph->memory, WINDOW_BYTES, &graph->ahead) < 0)
		return;
	hl_ahead_ask(graph->ahead, start, end < run->end ? end : run->end);
}

/*
 * Reads what lies around ${at}: whole pages, up to ${end}, better up to ${ahead}. Where windows
 * follow each other, as in a list in order, upwards or downwards, each is twice as large as the one
 * before. Whether ${at} could be read.
 */
static bool load(struct hl_graph *graph, uint64_t at, uint64_t end, uint64_t ahead)
{
	const struct hl_pages *pages = &graph->pages;
	const uint64_t mask = PAGE_BYTES - 1;
	uint64_t start = at & ~mask, page_end = start + PAGE_BYTES;
	size_t run = HL_LOWER_BOUND(i, pages->count, pages->runs[i].end <= at);

	bool rises = at >= graph->read_end && at - graph->read_end < PAGE_BYTES;
	bool falls = at < graph->window_start && end + PAGE_BYTES > graph->window_start;
	graph->ahead_bytes = !rises && !falls			 ? PAGE_BYTES
			     : graph->ahead_bytes < WINDOW_BYTES ? 2 * graph->ahead_bytes
								 : WINDOW_BYTES;
	graph->window_end = 0;
	if (run == pages->count || pages->runs[run].start > at)
		return false;
	if (graph->ahead && hl_ahead_take(graph->ahead, at, &graph->window, &graph->window_start,
					  &graph->window_end)) {
		graph->read_end = graph->window_end;
		read_ahead(graph, &pages->runs[run]);
		return true;
	}
	if (falls)
		start = page_end - pages->runs[run].start > graph->ahead_bytes
				? page_end - graph->ahead_bytes
				: pages->runs[run].start;
	end = end > ahead ? end : ahead;
	if (end < start + graph->ahead_bytes)
		end = start + graph->ahead_bytes;
	end = (end + mask) & ~mask;
	if (end > pages->runs[run].end)
		end = pages->runs[run].end;
	if (end > start + WINDOW_BYTES)
		end = start + WINDOW_BYTES;
	if (hl_memory_read(graph->memory, start, graph->window, end - start) < 0) {
		/* A page has gone since. */
		start = at & ~mask;
		end = page_end;
		if (hl_memory_read(graph->memory, start, graph->window, end - start) < 0)
			return false;
	}
	graph->window_start = start;
	graph->window_end = graph->read_end = end;
	if (rises && graph->ahead_bytes == WINDOW_BYTES)
		read_ahead(graph, &pages->runs[run]);
	return true;
}

/* Where to go on after a page that could not be read: the next one that is in memory. */
static uint64_t next_present(const struct hl_graph *graph, uint64_t at)
{
	const struct hl_pages *pages = &graph->pages;
	uint64_t next = (at & ~(uint64_t)(PAGE_BYTES - 1)) + PAGE_BYTES;
	size_t run = HL_LOWER_BOUND(i, pages->count, pages->runs[i].end <= next);

	if (run == pages->count)
		return UINT64_MAX;
	return pages->runs[run].start > next ? pages->runs[run].start : next;
}

int hl_graph_read(struct hl_graph *graph, uint64_t start, uint64_t end, uint64_t ahead,
		  hl_graph_visit *visit, void *context)
{
	int r = 0;

	if (!graph->window && !(graph->window = malloc(WINDOW_BYTES)))
		return -ENOMEM;
	for (uint64_t at = start, to; at < end && r == 0; at = to) {
		if ((at < graph->window_start || at >= graph->window_end) &&
		    !load(graph, at, end, ahead)) {
			to = next_present(graph, at);
			continue;
		}
		to = end < graph->window_end ? end : graph->window_end;
		r = visit(context, at, graph->window + (at - graph->window_start) / 8,
			  (to - at) / 8);
	}
	return r;
}

/* ---- blocks ---- */

struct look {
	struct hl_graph *graph;
	uint64_t block, usable_bytes;
};

static int follow_unaligned(void *context, uint64_t address, const uint64_t *words, size_t count)
{
	const struct look *look = context;

	(void)address;
	for (size_t i = 0; i < count; i++)
		follow_later(look->graph, words[i], look->block);
	return 0;
}

static int look_at_words(void *context, uint64_t address, const uint64_t *words, size_t count)
{
	const struct look *look = context;
	struct hl_graph *graph = look->graph;

	if (address == look->block && graph->on_block && !graph->error)
		graph->error =
			graph->on_block(graph->context, address, look->usable_bytes, words, count);
	for (size_t i = 0; i < count; i++)
		follow_later(graph, words[i], look->block);
	if (graph->reads_unaligned)
		hl_graph_each_unaligned(graph, address, words, count, &graph->tail,
					follow_unaligned, context);
	return graph->error;
}

int hl_graph_mark_next(struct hl_graph *graph)
{
	uint64_t block;
	bool is_pending = hl_graph_take(graph, &block);

	if (!is_pending) {
		follow_waiting(graph);
		is_pending = hl_graph_take(graph, &block);
	}
	if (!is_pending)
		return graph->error;
	struct look look = {graph, block, hl_graph_usable(graph, block)};
	bool is_read = block >= graph->window_start && block < graph->window_end;
	uint64_t ahead = is_read ? graph->window_end : hl_graph_pending_end(graph, block);
	int r = hl_graph_read(graph, block, block + look.usable_bytes, ahead, look_at_words, &look);
	return r == 0 ? 1 : r;
}

int hl_graph_drain(struct hl_graph *graph)
{
	follow_waiting(graph);
	int r = hl_graph_mark_together(graph);

	if (r == 0)
		while ((r = hl_graph_mark_next(graph)) > 0)
			;
	return r == 0 ? graph->error : r;
}

/* ---- pointers inside blocks ---- */

/* Reaches the blocks of pointers from number ${*judged} on that are explained, and what these lead to. */
static int explain(struct hl_graph *graph, size_t *judged)
{
	struct hl_addresses *inner = &graph->inner;
	int r;

	do {
		size_t kept = *judged;
		uint64_t block;
		for (size_t i = *judged; i < inner->count; i++) {
			uint64_t word = inner->addresses[i];
			if (!hl_graph_find(graph, word, &block) ||
			    hl_graph_is_reached(graph, block))
				continue;
			if (is_at_offset(graph, word, block) || is_explained(graph, word, block))
				hl_graph_reach(graph, block);
			else
				inner->addresses[kept++] = word;
		}
		inner->count = *judged = kept;
		r = hl_graph_drain(graph);
	} while (r == 0 && inner->count > *judged);
	return r;
}

int hl_graph_explain_inner(struct hl_graph *graph, bool learns)
{
	size_t judged = 0;
	int r = explain(graph, &judged), learned = 1;

	while (r == 0 && learns && (learned = learn_offsets(graph)) > 0) {
		judged = 0;
		r = explain(graph, &judged);
	}
	return learned < 0 ? learned : r;
}

int hl_graph_reach_possible(struct hl_graph *graph)
{
	uint64_t block;

	graph->phase = HL_GRAPH_POSSIBLE;
	for (size_t i = 0; i < graph->inner.count; i++)
		if (hl_graph_find(graph, graph->inner.addresses[i], &block) &&
		    !hl_graph_is_reached(graph, block))
			hl_graph_reach(graph, block);
	graph->inner.count = 0;
	return hl_graph_drain(graph);
}
