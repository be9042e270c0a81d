/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the chain to one block, and names words by their declared types; see holder_parts.h. */
#include "heap/graph/holder_parts.h"

#include "base/array.h"
#include "heap/graph/declared_types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The word of a block by which it leads to ${node}. */
struct sought {
	const struct hl_block_edges *edges;
	uint32_t node;
	uint64_t address; /* 0: not found yet */
};

static int seek_word(void *context, uint64_t address, const uint64_t *words, size_t count)
{
	struct sought *sought = context;
	struct hl_graph *graph = sought->edges->graph;

	for (size_t i = 0; i < count && !sought->address; i++)
		if (hl_block_edges_node(sought->edges, words[i]) == sought->node)
			sought->address = address + i * 8;
	if (!sought->address && graph->reads_unaligned && count > 1)
		hl_graph_each_unaligned(graph, address, words, count, &graph->tail, seek_word,
					sought);
	return sought->address != 0;
}

/* Adds the step from ${node} to ${next}, which is 0 at the end. */
static int add_step(struct hl_holder_finder *finder, uint32_t node, uint32_t next)
{
	struct hl_holders *holders = finder->holders;
	const struct hl_block_edges *edges = &finder->edges;
	const struct hl_holder_look *look = &finder->looks[0];
	struct hl_holder_step step = {0};
	int r = 0;

	if (node > edges->blocks) {
		step.holder = node - edges->blocks;
		size_t at = HL_LOWER_BOUND(i, look->word_count,
					   look->words[i].holder < step.holder - 1);
		while (at < look->word_count && look->words[at].node != next)
			at++;
		if (at < look->word_count &&
		    hl_holder_is_in_memory(finder, look->words[at].address))
			step.address = look->words[at].address;
		/* Others begin in each thread, or each call, elsewhere. */
		const struct hl_holder *holder = &holders->holders[step.holder - 1];
		if (step.address && (holder->kind == HL_HOLDER_VARIABLE ||
				     (holder->kind == HL_HOLDER_MAPPING && holder->place)))
			step.offset = step.address - holder->start;
	} else {
		struct sought sought = {edges, next, 0};
		step.address = hl_block_edges_address(edges, node);
		step.size = hl_graph_counted(&finder->graph, step.address);
		step.type = edges->labels[edges->block_labels[node]].type;
		if (next)
			r = hl_graph_read(&finder->graph, step.address, step.address + step.size, 0,
					  seek_word, &sought);
		if (sought.address)
			step.offset = sought.address - step.address;
	}
	return r < 0 ? r
		     : HL_ARRAY_APPEND(holders->chain, holders->chain_count,
				       holders->chain_capacity, step);
}

/* Finds the shortest way from the root to ${target}: ${before} has the node before each. */
static void find_way(const struct hl_digraph *graph, uint32_t target, uint32_t *before,
		     uint32_t *waiting)
{
	uint32_t taken = 0, count = 1;

	memset(before, 0xff, graph->count * sizeof(*before));
	waiting[0] = before[0] = 0;
	while (taken < count && before[target] == UINT32_MAX) {
		uint32_t node = waiting[taken++];
		for (uint32_t i = graph->nodes[node].first; i < graph->nodes[node + 1].first; i++)
			if (before[graph->targets[i]] == UINT32_MAX) {
				before[graph->targets[i]] = node;
				waiting[count++] = graph->targets[i];
			}
	}
}

static int find_chain(struct hl_holder_finder *finder, uint32_t target)
{
	uint32_t *before = hl_dominators_array(finder->digraph.count, sizeof(*before));
	uint32_t *waiting = hl_dominators_array(finder->digraph.count, sizeof(*waiting));
	uint32_t count = 0;
	int r = before && waiting ? 0 : -ENOMEM;

	if (r == 0) {
		find_way(&finder->digraph, target, before, waiting);
		finder->graph.window_end = 0;
		for (uint32_t node = target; node && before[node] != UINT32_MAX;
		     node = before[node])
			waiting[count++] = node;
	}
	for (; count && r == 0; count--)
		r = add_step(finder, waiting[count - 1], count > 1 ? waiting[count - 2] : 0);
	free(before);
	free(waiting);
	return r;
}

/* What is known of the object at the beginning of a block, which a pointer to ${target} leads to. */
static int know_object(struct hl_holder_finder *finder, struct hl_declared_types *types,
		       struct hl_holder_step *step, struct hl_declared *target)
{
	struct hl_holders *holders = finder->holders;
	struct hl_declared object = {0};
	uint64_t table;
	int r = 0;

	/* By its virtual table a block's class is known better than by a pointer to a base. Types of guests are
	 * not what C calls them. */
	if (step->type && !finder->classes.has_guest_types &&
	    hl_graph_copy(&finder->graph, step->address, &table, sizeof(table)) == 0)
		r = hl_declared_types_object(types, step->address,
					     hl_strings_text(&holders->names, step->type), table,
					     &object);
	if (object.address)
		*target = object;
	else if (target->address - step->address >= step->size)
		target->address = 0;
	if (r == 0 && !step->type && target->address == step->address)
		r = hl_declared_types_name(types, target, &step->type);
	return r;
}

/* Whether the word of ${step}, which now is ${value}, still leads to the step after it. */
static bool leads_on(const struct hl_holder_finder *finder, const struct hl_holder_step *step,
		     uint64_t value)
{
	uint32_t next = hl_block_edges_node(&finder->edges, step[1].address);

	return hl_block_edges_node(&finder->edges, value) == next ||
	       /* on a stack, inside malloc and free: see take_root() */
	       (step->holder &&
		hl_block_edges_node(&finder->edges, value + HL_CHUNK_BLOCK) == next);
}

/* Names the words of the chain by the types that are declared for them, as far as these go. */
static int name_chain(struct hl_holder_finder *finder)
{
	struct hl_holders *holders = finder->holders;
	struct hl_declared_types *types = NULL;
	struct hl_declared object = {0}, target;
	uint64_t value;
	int r = holders->chain_count ? hl_declared_types_new(finder->names, &holders->names, &types)
				     : 0;

	for (size_t i = 0; i < holders->chain_count && r == 0; i++) {
		struct hl_holder_step *step = &holders->chain[i];
		uint64_t word = step->holder ? step->address : step->address + step->offset;
		if (!step->holder)
			r = know_object(finder, types, step, &object);
		else if (word)
			r = hl_declared_types_variable(types, word, &object);
		if (r < 0 || i + 1 == holders->chain_count || !word)
			continue;
		step->is_stale = hl_graph_copy(&finder->graph, word, &value, sizeof(value)) < 0 ||
				 !leads_on(finder, step, value);
		if (step->is_stale) {
			step->offset = object.address = 0;
			continue;
		}
		r = hl_declared_types_word(types, &object,
					   step->holder ? 0 : step->address + step->size, word,
					   value, &step->member, &target);
		object = target;
	}
	hl_declared_types_free(types);
	return r;
}

int hl_holder_name_words(struct hl_holder_finder *finder)
{
	struct hl_holders *holders = finder->holders;
	struct hl_declared_types *types = NULL;
	struct hl_declared variable;
	int r = finder->settings->names_words
			? hl_declared_types_new(finder->names, &holders->names, &types)
			: 0;

	for (size_t i = 0; i < holders->holder_count && types && r == 0; i++) {
		struct hl_holder *holder = &holders->holders[i];
		if (!holder->first_word || (holder->kind != HL_HOLDER_VARIABLE &&
					    holder->kind != HL_HOLDER_THREAD_VARIABLE))
			continue;
		r = hl_declared_types_variable(types, holder->first_word, &variable);
		if (r == 0)
			r = hl_declared_types_word(types, &variable, 0, holder->first_word, 0,
						   &holder->member, NULL);
	}
	hl_declared_types_free(types);
	return r;
}

int hl_holder_follow(struct hl_holder_finder *finder)
{
	uint64_t address = finder->settings->address;
	uint32_t node = address ? hl_block_edges_node(&finder->edges, address) : 0;
	uint64_t block = node ? hl_block_edges_address(&finder->edges, node) : 0;

	if (!address)
		return 0;
	if (!node || address - block >= hl_graph_usable(&finder->graph, block))
		return hl_error_set(finder->err, -ENODATA,
				    "cannot find who keeps 0x%" PRIx64
				    ": no live block is there; 'heapline leaks --show N' and "
				    "debuggers name blocks",
				    address);
	int r = find_chain(finder, node);
	return r == 0 ? name_chain(finder) : r;
}
