/* SPDX-License-Identifier: BSD-2-Clause */
/* Types of variables and of what they point to, from the debug information of all files that a process
 * maps; see declared_types.h. */
#include "heap/graph/declared_types.h"

#include <errno.h>
#include <stdlib.h>

/* malloc() rounds up to granules, less its header; what has a mapping of its own, to pages. */
#define SLACK_BYTES	 15u
#define PAGE_SLACK_BYTES 4095u

struct file {
	bool is_read;
	struct hl_symbols_types *types; /* NULL: it has none */
	uint64_t bias;			/* address in memory = address in DWARF + bias */
};

struct hl_declared_types {
	struct hl_root_names *names;
	struct hl_strings *strings;
	struct file *files; /* by number of module */
	size_t count;
};

int hl_declared_types_new(struct hl_root_names *names, struct hl_strings *strings,
			  struct hl_declared_types **ret_types)
{
	struct hl_declared_types *types = calloc(1, sizeof(*types));

	if (!types)
		return -ENOMEM;
	types->names = names;
	types->strings = strings;
	types->count = hl_root_names_modules(names);
	types->files = calloc(types->count + 1, sizeof(*types->files));
	if (!types->files) {
		hl_declared_types_free(types);
		return -ENOMEM;
	}
	*ret_types = types;
	return 0;
}

static int open_file(struct hl_declared_types *types, size_t number, struct file **ret_file)
{
	struct file *file = &types->files[number];

	*ret_file = file;
	if (file->is_read)
		return 0;
	file->is_read = true;
	Dwarf *dwarf = hl_root_names_dwarf(types->names, number, &file->bias);
	return dwarf ? hl_symbols_types_new(dwarf, &file->types) : 0;
}

int hl_declared_types_variable(struct hl_declared_types *types, uint64_t address,
			       struct hl_declared *ret_variable)
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
static int find_type(struct hl_declared_types *types, uint64_t near, const char *name,
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

int hl_declared_types_object(struct hl_declared_types *types, uint64_t address, const char *name,
			     uint64_t table, struct hl_declared *ret_object)
{
	bool is_found;
	int r = find_type(types, table, name, &ret_object->type, &is_found);

	ret_object->address = r == 0 && is_found ? address : 0;
	return r;
}

/* What is but declared where the pointer is declared is looked for under its name. */
static int complete(struct hl_declared_types *types, Dwarf_Die *type, bool *ret_is_whole)
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

int hl_declared_types_word(struct hl_declared_types *types, const struct hl_declared *object,
			   uint64_t end, uint64_t word, uint64_t value, uint32_t *ret_member,
			   struct hl_declared *ret_target)
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
		*ret_target = (struct hl_declared){value, member.target};
	return r;
}

int hl_declared_types_name(struct hl_declared_types *types, const struct hl_declared *object,
			   uint32_t *ret_name)
{
	return hl_symbols_type_name(&object->type, types->strings, ret_name);
}

void hl_declared_types_free(struct hl_declared_types *types)
{
	if (!types)
		return;
	for (size_t i = 0; types->files && i < types->count; i++)
		hl_symbols_types_free(types->files[i].types);
	free(types->files);
	free(types);
}
