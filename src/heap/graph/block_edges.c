/* SPDX-License-Identifier: BSD-2-Clause */
/* Blocks as nodes with edges; see holder_parts.h. */
#include "heap/graph/holder_parts.h"

#include "base/array.h"

#define READ_AHEAD (UINT64_C(256) << 10)
#define EDGES_MAX  (UINT32_MAX - HL_BLOCK_EDGES_HOLDERS_MAX - 64u)
#define BLOCKS_MAX (HL_DOMINATORS_NONE - HL_BLOCK_EDGES_HOLDERS_MAX - 2u)

/* Blocks without a class that are larger share a label by powers of two. */
#define EXACT_SIZE_MAX 1024u

static uint64_t live_bits(const struct hl_graph_page *page, unsigned word)
{
	return page->bits[word].starts & ~page->bits[word].reached;
}

static int count_blocks(struct hl_block_edges *edges)
{
	const struct hl_graph *graph = edges->graph;
	uint64_t count = 0;

	edges->ranks =
		hl_dominators_array(graph->region_count * UINT64_C(256) + 1, sizeof(*edges->ranks));
	if (!edges->ranks)
		return -ENOMEM;
	for (size_t i = 0; i < graph->region_count; i++)
		for (unsigned k = 0; k < HL_GRAPH_REGION_PAGES; k++) {
			edges->ranks[i * HL_GRAPH_REGION_PAGES + k] = (uint32_t)count;
			for (unsigned word = 0; word < HL_GRAPH_PAGE_WORDS; word++)
				count += (unsigned)__builtin_popcountll(
					live_bits(&graph->regions[i]->pages[k], word));
		}
	if (count > BLOCKS_MAX)
		return -E2BIG;
	edges->ranks[graph->region_count * HL_GRAPH_REGION_PAGES] = (uint32_t)count;
	edges->blocks = (uint32_t)count;
	return 0;
}

int hl_block_edges_init(struct hl_block_edges *edges, struct hl_graph *graph,
			struct hl_class_names *classes)
{
	*edges = (struct hl_block_edges){.graph = graph, .classes = classes};
	int r = count_blocks(edges);
	if (r < 0)
		return r;
	uint64_t nodes = edges->blocks + UINT64_C(2) + HL_BLOCK_EDGES_HOLDERS_MAX;
	edges->nodes = hl_dominators_array(nodes, sizeof(*edges->nodes));
	edges->block_labels =
		hl_dominators_array(edges->blocks + UINT64_C(1), sizeof(*edges->block_labels));
	if (!edges->nodes || !edges->block_labels ||
	    HL_ARRAY_RESERVE_ZEROED(edges->targets, edges->edge_capacity,
				    HL_BLOCK_EDGES_HOLDERS_MAX) < 0)
		return -ENOMEM;
	/* The root's edges come first. Those that are not needed lead back to it. */
	edges->edge_count = HL_BLOCK_EDGES_HOLDERS_MAX;
	edges->nodes[0].first = 0;
	edges->begun = 1;
	return 0;
}

void hl_block_edges_release(struct hl_block_edges *edges)
{
	free(edges->ranks);
	free(edges->nodes);
	free(edges->targets);
	free(edges->block_labels);
	free(edges->labels);
	hl_index_release(&edges->label_index);
	*edges = (struct hl_block_edges){0};
}

/* ---- numbers ---- */

static uint32_t node_of(const struct hl_block_edges *edges, uint64_t block)
{
	const struct hl_graph *graph = edges->graph;
	const struct hl_graph_region *region = hl_graph_region(graph, block);
	unsigned number = hl_graph_page_number(graph, block);
	const struct hl_graph_page *page = &region->pages[number];
	unsigned last = block / hl_graph_granules(graph, 64) % HL_GRAPH_PAGE_WORDS;
	uint32_t rank = edges->ranks[region->number * HL_GRAPH_REGION_PAGES + number];

	for (unsigned word = 0; word < last; word++)
		rank += (unsigned)__builtin_popcountll(live_bits(page, word));
	return 1 + rank +
	       (unsigned)__builtin_popcountll(live_bits(page, last) &
					      (hl_graph_bit(graph, block) - 1));
}

uint32_t hl_block_edges_node(const struct hl_block_edges *edges, uint64_t word)
{
	uint64_t block;

	if (!hl_graph_find(edges->graph, word, &block) || hl_graph_is_reached(edges->graph, block))
		return 0;
	return node_of(edges, block);
}

uint64_t hl_block_edges_address(const struct hl_block_edges *edges, uint32_t node)
{
	const struct hl_graph *graph = edges->graph;
	uint32_t rank = node - 1;
	size_t pages = graph->region_count * HL_GRAPH_REGION_PAGES;
	size_t at = HL_LOWER_BOUND(i, pages, edges->ranks[i] <= rank) - 1;
	const struct hl_graph_region *region = graph->regions[at / HL_GRAPH_REGION_PAGES];
	const struct hl_graph_page *page = &region->pages[at % HL_GRAPH_REGION_PAGES];
	uint32_t left = rank - edges->ranks[at];

	for (unsigned word = 0; word < HL_GRAPH_PAGE_WORDS; word++) {
		uint64_t bits = live_bits(page, word);
		for (; bits && left; left--)
			bits &= bits - 1;
		if (bits)
			return region->base +
			       hl_graph_granules(
				       graph, at % HL_GRAPH_REGION_PAGES * HL_GRAPH_PAGE_GRANULES +
						      word * 64 + (unsigned)__builtin_ctzll(bits));
	}
	return 0;
}

int hl_block_edges_each(struct hl_block_edges *edges,
			int (*visit)(void *context, uint32_t node, uint64_t block), void *context)
{
	const struct hl_graph *graph = edges->graph;
	uint32_t node = 1;
	int r = 0;

	for (size_t i = 0; i < graph->region_count; i++)
		for (unsigned at = 0; at < HL_GRAPH_REGION_PAGES * HL_GRAPH_PAGE_WORDS; at++) {
			const struct hl_graph_page *page =
				&graph->regions[i]->pages[at / HL_GRAPH_PAGE_WORDS];
			uint64_t base = graph->regions[i]->base;
			for (uint64_t bits = live_bits(page, at % HL_GRAPH_PAGE_WORDS);
			     bits && r == 0; bits &= bits - 1)
				r = visit(context, node++,
					  base + hl_graph_granules(
							 graph, at * 64 + (unsigned)__builtin_ctzll(
										  bits)));
			if (r != 0)
				return r;
		}
	return r;
}

/* ---- edges ---- */

/* The edges of all nodes up to ${node} begin here, where they have not begun yet. */
static void begin_up_to(struct hl_block_edges *edges, uint32_t node)
{
	while (edges->begun <= node)
		edges->nodes[edges->begun++].first = (uint32_t)edges->edge_count;
}

static int append(struct hl_block_edges *edges, uint32_t source, uint32_t target)
{
	begin_up_to(edges, source);
	if (target == source || (edges->edge_count > edges->nodes[source].first &&
				 edges->targets[edges->edge_count - 1] == target))
		return 0;
	if (edges->edge_count >= EDGES_MAX)
		return -E2BIG;
	return HL_ARRAY_APPEND(edges->targets, edges->edge_count, edges->edge_capacity, target);
}

static int resolve_batch(struct hl_block_edges *edges)
{
	uint32_t node;
	int r = 0;

	for (unsigned i = 0; i < edges->batch_count && r == 0; i++)
		if ((node = hl_block_edges_node(edges, edges->batch[i].word)))
			r = append(edges, edges->batch[i].source, node);
	edges->batch_count = 0;
	return r;
}

struct reading {
	struct hl_block_edges *edges;
	uint32_t node;
	uint64_t block;
	uint64_t words[HL_CLASS_WORDS]; /* it begins with */
	size_t word_count;
};

/* Words that may lead to blocks are kept until their bits have come from memory. */
static int take_edges(void *context, uint64_t address, const uint64_t *words, size_t count)
{
	struct reading *reading = context;
	struct hl_block_edges *edges = reading->edges;
	const struct hl_graph *graph = edges->graph;
	int r = 0;

	(void)address;
	for (size_t i = 0; i < count && r == 0; i++) {
		struct hl_graph_page *page = hl_graph_page(graph, words[i]);
		if (page)
			__builtin_prefetch(hl_graph_bits(graph, page, words[i]));
		else if (!graph->large_count || words[i] < graph->large[0].address ||
			 words[i] >= graph->large_end)
			continue;
		edges->batch[edges->batch_count++] =
			(struct hl_block_edge_word){words[i], reading->node};
		if (edges->batch_count == HL_BLOCK_EDGES_BATCH)
			r = resolve_batch(edges);
	}
	return r;
}

static int take_words(void *context, uint64_t address, const uint64_t *words, size_t count)
{
	struct reading *reading = context;
	struct hl_graph *graph = reading->edges->graph;

	if (address == reading->block) {
		reading->word_count = count < HL_CLASS_WORDS ? count : HL_CLASS_WORDS;
		memcpy(reading->words, words, reading->word_count * sizeof(*words));
	}
	int r = take_edges(reading, address, words, count);
	return r == 0 && graph->reads_unaligned
		       ? hl_graph_each_unaligned(graph, address, words, count, &graph->tail,
						 take_edges, reading)
		       : r;
}

static int find_label(struct hl_block_edges *edges, const struct hl_block_label *wanted,
		      uint32_t *ret_label)
{
	uint32_t hash = hl_hash_pair(wanted->type, wanted->size_max), at = hash, id;

	while ((id = hl_index_next(&edges->label_index, hash, &at))) {
		const struct hl_block_label *label = &edges->labels[id - 1];
		if (label->type == wanted->type && label->size_max == wanted->size_max) {
			*ret_label = id - 1;
			return 0;
		}
	}
	int r = HL_ARRAY_APPEND(edges->labels, edges->label_count, edges->label_capacity, *wanted);
	*ret_label = (uint32_t)edges->label_count - 1;
	return r == 0 ? hl_index_add(&edges->label_index, hash, (uint32_t)edges->label_count) : r;
}

static int label_block(struct reading *reading, uint64_t usable)
{
	struct hl_block_edges *edges = reading->edges;
	uint64_t size = hl_graph_counted(edges->graph, reading->block);
	struct hl_block_label label = {.size_min = size, .size_max = size};
	int r = hl_class_names_find(edges->classes, reading->block, usable, reading->words,
				    reading->word_count, &label.type);

	if (!label.type && size > EXACT_SIZE_MAX) {
		label.size_min = (UINT64_C(1) << (63 - __builtin_clzll(size - 1))) + 1;
		label.size_max = (label.size_min - 1) * 2;
	}
	return r == 0 ? find_label(edges, &label, &edges->block_labels[reading->node]) : r;
}

static int read_block(void *context, uint32_t node, uint64_t block)
{
	struct hl_block_edges *edges = context;
	struct reading reading = {.edges = edges, .node = node, .block = block};
	uint64_t usable = hl_graph_usable(edges->graph, block);

	hl_memory_keep_time_of_block(edges->graph->memory, usable);
	int r = hl_graph_read(edges->graph, block, block + usable, block + READ_AHEAD, take_words,
			      &reading);

	return r == 0 ? label_block(&reading, usable) : r;
}

int hl_block_edges_read(struct hl_block_edges *edges)
{
	edges->graph->window_end = 0;
	int r = hl_block_edges_each(edges, read_block, edges);
	if (r == 0)
		r = resolve_batch(edges);
	begin_up_to(edges, edges->blocks);
	return r;
}

/* ---- holders ---- */

int hl_block_edges_add_holder(struct hl_block_edges *edges)
{
	if (edges->holders == HL_BLOCK_EDGES_HOLDERS_MAX)
		return -E2BIG;
	uint32_t node = edges->blocks + ++edges->holders;
	edges->targets[edges->holders - 1] = node;
	begin_up_to(edges, node);
	return 0;
}

int hl_block_edges_add_to_holder(struct hl_block_edges *edges, uint32_t node)
{
	return append(edges, edges->blocks + edges->holders, node);
}

struct hl_digraph hl_block_edges_finish(struct hl_block_edges *edges)
{
	uint32_t count = edges->blocks + edges->holders + 1;

	begin_up_to(edges, count);
	return (struct hl_digraph){edges->nodes, count, edges->targets};
}
