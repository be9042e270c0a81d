/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the chain to one block, and names words by the types that programs declare; see holder_parts.h. */
#include "heap/graph/holder_parts.h"

#include "base/array.h"
#include "heap/graph/holders.h"
#include "symbols/symbols.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- declared types: what words are called, from a variable by the type of each pointer to the next block, for as long as
 * types are known; from the debug information of all files that the process maps ---- */

/* Memory of which the type is known. */
struct declared {
	uint64_t address; /* 0: nothing is known */
	Dwarf_Die type;
};

/* malloc() rounds up to granules, less its header; what has a mapping of its own, to pages. */
#define SLACK_BYTES	 15u
#define PAGE_SLACK_BYTES 4095u

struct file {
	bool is_read;
	struct hl_symbols_types *types; /* NULL: it has none */
	uint64_t bias;			/* address in memory = address in DWARF + bias */
};

struct declared_types {
	struct hl_root_names *names;
	struct hl_strings *strings;
	struct file *files; /* by number of module */
	size_t count;
};

static void declared_types_free(struct declared_types *types)
{
	if (!types)
		return;
	for (size_t i = 0; types->files && i < types->count; i++)
		hl_symbols_types_free(types->files[i].types);
	free(types->files);
	free(types);
}

/* Both must outlive the types. Debug information of a file is read when first needed. 0 or -ENOMEM. */
static int declared_types_new(struct hl_root_names *names, struct hl_strings *strings,
			      struct declared_types **ret_types)
{
	struct declared_types *types = calloc(1, sizeof(*types));

	if (!types)
		return -ENOMEM;
	types->names = names;
	types->strings = strings;
	types->count = hl_root_names_modules(names);
	types->files = calloc(types->count + 1, sizeof(*types->files));
	if (!types->files) {
		declared_types_free(types);
		return -ENOMEM;
	}
	*ret_types = types;
	return 0;
}

static int open_file(struct declared_types *types, size_t number, struct file **ret_file)
{
	struct file *file = &types->files[number];

	*ret_file = file;
	if (file->is_read)
		return 0;
	file->is_read = true;
	Dwarf *dwarf = hl_root_names_dwarf(types->names, number, &file->bias);
	return dwarf ? hl_symbols_types_new(dwarf, &file->types) : 0;
}

/* The variable that has ${address}. 0 or -ENOMEM. */
static int declared_types_variable(struct declared_types *types, uint64_t address,
				   struct declared *ret_variable)
{
	struct hl_root_place place;
	uint64_t start;
	struct file *file;

	ret_variable->address = 0;
	if (!hl_root_names_place(types->names, address, &place))
		return 0;
	int r = open_file(types, place.module, &file);
	if (r < 0 || !file->types)
		return r;
	uint64_t in_file = place.is_thread_local ? place.offset : address - file->bias;
	if (hl_symbols_types_variable(file->types, in_file, place.is_thread_local, &start,
				      &ret_variable->type))
		ret_variable->address = address - (in_file - start);
	return 0;
}

/* Looks for the type of the name, first where ${near} lies, 0: nowhere. */
static int find_type(struct declared_types *types, uint64_t near, const char *name,
		     Dwarf_Die *ret_type, bool *ret_found)
{
	struct hl_root_place place;
	size_t first = near && hl_root_names_place(types->names, near, &place) ? place.module : 0;
	struct file *file;
	int r = 0;

	*ret_found = false;
	for (size_t i = 0; i < types->count && r == 0 && !*ret_found; i++) {
		r = open_file(types, (first + i) % types->count, &file);
		*ret_found =
			r == 0 && file->types && hl_symbols_types_find(file->types, name, ret_type);
	}
	return r;
}

/* An object at ${address} of the class ${name}, whose virtual table is at ${table}. 0 or -ENOMEM. */
static int declared_types_object(struct declared_types *types, uint64_t address, const char *name,
				 uint64_t table, struct declared *ret_object)
{
	bool is_found;
	int r = find_type(types, table, name, &ret_object->type, &is_found);

	ret_object->address = r == 0 && is_found ? address : 0;
	return r;
}

/* What is but declared where the pointer is declared is looked for under its name. */
static int complete(struct declared_types *types, Dwarf_Die *type, bool *ret_is_whole)
{
	Dwarf_Die peeled = *type;
	uint32_t name = 0;

	*ret_is_whole = hl_symbols_type_peel(&peeled);
	if (!*ret_is_whole || !hl_symbols_type_is_declared(&peeled))
		return 0;
	*ret_is_whole = false;
	int r = hl_symbols_type_name(&peeled, types->strings, &name);
	return r == 0 && name ? find_type(types, 0, hl_strings_text(types->strings, name), type,
					  ret_is_whole)
			      : r;
}

/*
 * The word at ${word}, whose value is ${value}, in a block that ends at ${end} and of which ${object} is
 * known, or in a variable (${end} 0). ${ret_member} is what it is called, in the strings:
 * "stats.buckets[17]", in variables ".stats.buckets[17]"; 0: nothing. ${ret_target} (may be NULL) is what it
 * points to. 0 or -ENOMEM.
 */
static int declared_types_word(struct declared_types *types, const struct declared *object,
			       uint64_t end, uint64_t word, uint64_t value, uint32_t *ret_member,
			       struct declared *ret_target)
{
	struct hl_symbols_member member;
	bool is_whole = false;

	*ret_member = 0;
	if (ret_target)
		ret_target->address = 0;
	if (!object->address || word < object->address)
		return 0;
	uint64_t bytes = end ? end - object->address : hl_symbols_type_bytes(&object->type);
	uint64_t slack = bytes & 15 ? SLACK_BYTES : PAGE_SLACK_BYTES;
	if (!hl_symbols_member_find(&object->type, bytes, slack, word - object->address, &member))
		return 0;
	int r = hl_strings_intern(types->strings, member.path + (end && member.path[0] == '.'),
				  ret_member);
	if (r == 0 && ret_target && member.has_target)
		r = complete(types, &member.target, &is_whole);
	if (r == 0 && is_whole)
		*ret_target = (struct declared){value, member.target};
	return r;
}

/* The name of the type; 0: it has none. 0 or -ENOMEM. */
static int declared_types_name(struct declared_types *types, const struct declared *object,
			       uint32_t *ret_name)
{
	return hl_symbols_type_name(&object->type, types->strings, ret_name);
}

/* ---- the chain to one block ---- */

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
static int know_object(struct hl_holder_finder *finder, struct declared_types *types,
		       struct hl_holder_step *step, struct declared *target)
{
	struct hl_holders *holders = finder->holders;
	struct declared object = {0};
	uint64_t table;
	int r = 0;

	/* By its virtual table a block's class is known better than by a pointer to a base. Types of guests are
	 * not what C calls them. */
	if (step->type && !finder->classes.has_guest_types &&
	    hl_graph_copy(&finder->graph, step->address, &table, sizeof(table)) == 0)
		r = declared_types_object(types, step->address,
					  hl_strings_text(&holders->names, step->type), table,
					  &object);
	if (object.address)
		*target = object;
	else if (target->address - step->address >= step->size)
		target->address = 0;
	if (r == 0 && !step->type && target->address == step->address)
		r = declared_types_name(types, target, &step->type);
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
	struct declared_types *types = NULL;
	struct declared object = {0}, target;
	uint64_t value;
	int r = holders->chain_count ? declared_types_new(finder->names, &holders->names, &types)
				     : 0;

	for (size_t i = 0; i < holders->chain_count && r == 0; i++) {
		struct hl_holder_step *step = &holders->chain[i];
		uint64_t word = step->holder ? step->address : step->address + step->offset;
		if (!step->holder)
			r = know_object(finder, types, step, &object);
		else if (word)
			r = declared_types_variable(types, word, &object);
		if (r < 0 || i + 1 == holders->chain_count || !word)
			continue;
		step->is_stale = hl_graph_copy(&finder->graph, word, &value, sizeof(value)) < 0 ||
				 !leads_on(finder, step, value);
		if (step->is_stale) {
			step->offset = object.address = 0;
			continue;
		}
		r = declared_types_word(types, &object,
					step->holder ? 0 : step->address + step->size, word, value,
					&step->member, &target);
		object = target;
	}
	declared_types_free(types);
	return r;
}

int hl_holder_name_words(struct hl_holder_finder *finder)
{
	struct hl_holders *holders = finder->holders;
	struct declared_types *types = NULL;
	struct declared variable;
	int r = finder->settings->names_words
			? declared_types_new(finder->names, &holders->names, &types)
			: 0;

	for (size_t i = 0; i < holders->holder_count && types && r == 0; i++) {
		struct hl_holder *holder = &holders->holders[i];
		if (!holder->first_word || (holder->kind != HL_HOLDER_VARIABLE &&
					    holder->kind != HL_HOLDER_THREAD_VARIABLE))
			continue;
		r = declared_types_variable(types, holder->first_word, &variable);
		if (r == 0)
			r = declared_types_word(types, &variable, 0, holder->first_word, 0,
						&holder->member, NULL);
	}
	declared_types_free(types);
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
