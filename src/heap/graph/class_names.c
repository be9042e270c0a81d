/* SPDX-License-Identifier: BSD-2-Clause */
/* Classes of C++ and types of guests; see graph.h. */
#include "heap/graph/graph.h"

#include "base/array.h"
#include "symbols/symbols.h"

#include <string.h>

#define CLASS_NAME_MAX 1024u
#define PREFIX	       "_ZTS" /* of the name of a type's name */

void hl_class_names_init(struct hl_class_names *ret_classes, struct hl_graph *graph,
			 struct hl_strings *names)
{
	*ret_classes = (struct hl_class_names){
		.graph = graph,
		.names = names,
	};
}

static bool is_in_file(const struct hl_class_names *classes, uint64_t address)
{
	const struct hl_map *map = hl_maps_find(&classes->graph->memory->maps, address);

	return map && (map->inode || (map > classes->graph->memory->maps.maps && map[-1].inode &&
				      map[-1].end == map->start));
}

/* Reads the mangled name of the type, "3Foo". False if it cannot be read. */
static bool read_type_name(const struct hl_class_names *classes, uint64_t table,
			   char ret_name[CLASS_NAME_MAX])
{
	const struct hl_graph *graph = classes->graph;
	uint64_t before[2], type[2];

	/* Before a virtual table lie how far the object begins before, and the type; the second
	 * word of a type is its name (Itanium C++ ABI, 2.5.2 and 2.9.5). */
	if (table & 7 || !is_in_file(classes, table) ||
	    hl_graph_copy(graph, table - 16, before, sizeof(before)) < 0 || before[0] != 0 ||
	    before[1] & 7 || !is_in_file(classes, before[1]) ||
	    hl_graph_copy(graph, before[1], type, sizeof(type)) < 0 ||
	    !is_in_file(classes, type[0]) || !is_in_file(classes, type[1]))
		return false;
	/* A star begins names that only their file knows. By byte: the next may not be there. */
	uint64_t at = type[1];
	size_t length = sizeof(PREFIX) - 1;
	memcpy(ret_name, PREFIX, length);
	for (; length < CLASS_NAME_MAX; at++) {
		char *letter = &ret_name[length];
		if (hl_graph_copy(graph, at, letter, 1) < 0 || (unsigned char)*letter >= 0x7f)
			return false;
		if (!*letter)
			return length >= sizeof(PREFIX);
		if (*letter <= ' ')
			return false;
		length += *letter != '*' || at != type[1];
	}
	return false;
}

static int name_class(struct hl_class_names *classes, uint64_t word, uint32_t *ret_name)
{
	static const char prefix[] = "typeinfo name for ";
	char mangled[CLASS_NAME_MAX];

	*ret_name = 0;
	if (!read_type_name(classes, word, mangled))
		return 0;
	char *name = hl_symbols_demangle(mangled);
	bool is_type = name && strncmp(name, prefix, sizeof(prefix) - 1) == 0;
	int r = is_type ? hl_strings_intern(classes->names, name + sizeof(prefix) - 1, ret_name)
			: 0;
	free(name);
	return r;
}

static int find_class(struct hl_class_names *classes, uint64_t word, uint32_t *ret_name)
{
	uint32_t hash = hl_hash_pair(word, 0), at = hash, id;

	if (!word || word & 7 || hl_graph_page(classes->graph, word) || !is_in_file(classes, word))
		return 0;
	while ((id = hl_index_next(&classes->index, hash, &at)))
		if (classes->words[id - 1].word == word) {
			*ret_name = classes->words[id - 1].type;
			return 0;
		}
	struct hl_class_word first = {.word = word};
	int r = name_class(classes, word, &first.type);
	if (r == 0)
		r = HL_ARRAY_APPEND(classes->words, classes->count, classes->capacity, first);
	if (r == 0)
		r = hl_index_add(&classes->index, hash, (uint32_t)classes->count);
	*ret_name = first.type;
	return r;
}

static int find_guest_type(struct hl_class_names *classes, const uint64_t *words, size_t count,
			   uint32_t *ret_name)
{
	int r = 0;

	for (size_t i = 0; hl_guests_outside[i] && r == 0 && !*ret_name; i++)
		if (hl_guests_outside[i]->types.find)
			r = hl_guests_outside[i]->types.find(&classes->guest_types[i],
							     classes->graph->memory, classes->names,
							     words, count, ret_name);
	classes->has_guest_types = classes->has_guest_types || *ret_name;
	return r;
}

int hl_class_names_find(struct hl_class_names *classes, uint64_t block, uint64_t bytes,
			const uint64_t *words, size_t count, uint32_t *ret_name)
{
	size_t needed = bytes / 8 < HL_CLASS_WORDS ? bytes / 8 : HL_CLASS_WORDS;
	uint64_t whole[HL_CLASS_WORDS];

	*ret_name = 0;
	/* A block is read in pieces where what was read ahead ends. */
	if (count < needed && hl_graph_copy(classes->graph, block, whole, needed * 8) == 0) {
		words = whole;
		count = needed;
	}
	int r = count ? find_class(classes, words[0], ret_name) : 0;
	return r == 0 && !*ret_name ? find_guest_type(classes, words, count, ret_name) : r;
}

void hl_class_names_release(struct hl_class_names *classes)
{
	hl_index_release(&classes->index);
	for (size_t i = 0; hl_guests_outside[i]; i++)
		if (hl_guests_outside[i]->types.free)
			hl_guests_outside[i]->types.free(classes->guest_types[i]);
	free(classes->words);
	*classes = (struct hl_class_names){0};
}
