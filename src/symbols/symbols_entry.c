/* SPDX-License-Identifier: BSD-2-Clause */
/* What functions are called by their DWARF entries, with their scopes; see symbols_dwarf.h. */
#include "symbols/symbols_dwarf.h"

#include <dwarf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARENTS_MAX 128 /* of a function; one that lies deeper has no scope in its name */
#define ORIGINS_MAX 16	/* abstract_origin and specification in a row */

Dwarf_Die hl_symbols_entry_origin(Dwarf_Die entry)
{
	for (int i = 0; i < ORIGINS_MAX; i++) {
		Dwarf_Attribute attribute;
		Dwarf_Die origin;
		if (!dwarf_attr(&entry, DW_AT_abstract_origin, &attribute) ||
		    !dwarf_formref_die(&attribute, &origin))
			break;
		entry = origin;
	}
	return entry;
}

static const char *text_attribute(Dwarf_Die *entry, unsigned name)
{
	Dwarf_Attribute attribute;

	if (!dwarf_attr_integrate(entry, name, &attribute))
		return NULL;
	return dwarf_formstring(&attribute);
}

const char *hl_symbols_entry_path(Dwarf_Die *root, struct hl_strings *strings, const char *path)
{
	const char *folder = path && path[0] != '/' ? text_attribute(root, DW_AT_comp_dir) : NULL;
	char *joined;
	uint32_t id;

	if (!folder || !path[0])
		return path ? path : "";
	if (asprintf(&joined, "%s/%s", folder, path) < 0)
		return path;
	if (hl_strings_intern(strings, joined, &id) == 0)
		path = hl_strings_text(strings, id);
	free(joined);
	return path;
}

const char *hl_symbols_entry_file(Dwarf_Die *root, struct hl_strings *strings, Dwarf_Word number)
{
	Dwarf_Files *files;
	size_t count;

	if (dwarf_getsrcfiles(root, &files, &count) != 0 || number >= count)
		return "";
	return hl_symbols_entry_path(root, strings, dwarf_filesrc(files, number, NULL, NULL));
}

/* The file that declares ${entry}. dwarf_decl_file() would abort on units without a line table. */
static const char *declaration_file(Dwarf_Die *entry, struct hl_strings *strings)
{
	Dwarf_Attribute attribute;
	Dwarf_Word number;
	Dwarf_Die root;

	if (!dwarf_attr_integrate(entry, DW_AT_decl_file, &attribute) ||
	    dwarf_formudata(&attribute, &number) != 0 ||
	    !dwarf_cu_die(attribute.cu, &root, NULL, NULL, NULL, NULL, NULL, NULL))
		return "";
	return hl_symbols_entry_file(&root, strings, number);
}

/* Fills ${ret_parents} with the entries that enclose ${entry}, the unit's root first, and returns
 * their number; 0 when it was not found. Entries are ordered by offset, parents first. */
static int parents_of(Dwarf_Die *entry, Dwarf_Die ret_parents[PARENTS_MAX])
{
	Dwarf_Off wanted = dwarf_dieoffset(entry);
	Dwarf_Die parent, child;

	if (!dwarf_cu_die(entry->cu, &parent, NULL, NULL, NULL, NULL, NULL, NULL))
		return 0;
	for (int depth = 0; depth < PARENTS_MAX && dwarf_child(&parent, &child) == 0;) {
		Dwarf_Die next = child;
		ret_parents[depth++] = parent;
		do
			child = next;
		while (dwarf_siblingof(&child, &next) == 0 && dwarf_dieoffset(&next) <= wanted);
		if (dwarf_dieoffset(&child) == wanted)
			return depth;
		parent = child;
	}
	return 0;
}

/* The entry in the class or namespace that ${entry}, written outside, belongs to. */
static Dwarf_Die specification_of(Dwarf_Die *entry)
{
	Dwarf_Attribute attribute;
	Dwarf_Die declared;

	return dwarf_attr(entry, DW_AT_specification, &attribute) &&
			       dwarf_formref_die(&attribute, &declared)
		       ? declared
		       : *entry;
}

/* ---- names with their scopes ---- */

static bool is_class(Dwarf_Die *entry)
{
	int tag = dwarf_tag(entry);

	return tag == DW_TAG_structure_type || tag == DW_TAG_class_type || tag == DW_TAG_union_type;
}

/* "<lambda()>" is what some versions of gcc call a class without a name. */
static bool is_nameless_class(Dwarf_Die *entry)
{
	const char *name = is_class(entry) ? text_attribute(entry, DW_AT_name) : "";

	return !name || name[0] == '<';
}

static bool is_lambda(Dwarf_Die *class)
{
	Dwarf_Die child;

	if (dwarf_child(class, &child) != 0)
		return false;
	do {
		const char *name = dwarf_tag(&child) == DW_TAG_subprogram
					   ? text_attribute(&child, DW_AT_name)
					   : NULL;
		if (name && !strncmp(name, "operator()", strlen("operator()")))
			return true;
	} while (dwarf_siblingof(&child, &child) == 0);
	return false;
}

/* How many classes in ${scope} and its blocks have no name, up to and including that at ${last}. */
static unsigned count_nameless(Dwarf_Die *scope, Dwarf_Off last, int depth)
{
	unsigned count = 0;
	Dwarf_Die child;

	if (depth == PARENTS_MAX || dwarf_child(scope, &child) != 0)
		return 0;
	do {
		if (dwarf_tag(&child) == DW_TAG_lexical_block)
			count += count_nameless(&child, last, depth + 1);
		else
			count += is_nameless_class(&child);
	} while (dwarf_siblingof(&child, &child) == 0 && dwarf_dieoffset(&child) <= last);
	return count;
}

/* The index of the innermost of ${parents} that is not a block; -1: none. */
static int innermost_scope(const Dwarf_Die *parents, int count)
{
	while (count && dwarf_tag((Dwarf_Die *)&parents[count - 1]) == DW_TAG_lexical_block)
		count--;
	return count - 1;
}

/* Writes the scopes of ${entry} and its name as the demangler does, without parameters. Nested
 * functions, which C++ does not have, are written without their scopes. */
static void write_qualified(FILE *out, Dwarf_Die *entry, int depth)
{
	Dwarf_Die origin = hl_symbols_entry_origin(*entry), declared = specification_of(&origin);
	Dwarf_Die parents[PARENTS_MAX];
	const char *name = text_attribute(&origin, DW_AT_name);
	int count = depth < ORIGINS_MAX ? parents_of(&declared, parents) : 0;
	int scope = innermost_scope(parents, count), first = 1;

	if (scope >= 0 && dwarf_tag(&parents[scope]) == DW_TAG_subprogram)
		first = count;
	for (int i = first; i < count; i++)
		if (dwarf_tag(&parents[i]) == DW_TAG_subprogram)
			first = i;
	for (int i = first; i < count; i++) {
		Dwarf_Die *parent = &parents[i];
		const char *text = text_attribute(parent, DW_AT_name);
		if (dwarf_tag(parent) == DW_TAG_subprogram) {
			write_qualified(out, parent, depth + 1);
			fputs("::", out);
		} else if (dwarf_tag(parent) == DW_TAG_namespace) {
			fprintf(out, "%s::", text ? text : "(anonymous namespace)");
		} else if (is_class(parent) && !is_nameless_class(parent)) {
			fprintf(out, "%s::", text);
		} else if (is_class(parent)) {
			/* Numbered as the symbol table does, provided that no class of the scope
			 * was optimized away. */
			int around = innermost_scope(parents, i);
			unsigned number = count_nameless(&parents[around < 0 ? 0 : around],
							 dwarf_dieoffset(parent), 0);
			fprintf(out, "{%s#%u}::", is_lambda(parent) ? "lambda" : "unnamed type",
				number);
		}
	}
	fputs(name ? name : "", out);
}

/* Saves the search for scopes in languages that have none. */
static bool has_scopes(Dwarf_Die *entry)
{
	Dwarf_Die root;

	if (!dwarf_cu_die(entry->cu, &root, NULL, NULL, NULL, NULL, NULL, NULL))
		return false;
	switch (dwarf_srclang(&root)) {
	case DW_LANG_C89:
	case DW_LANG_C:
	case DW_LANG_C99:
	case DW_LANG_C11:
	case DW_LANG_Go:
	case DW_LANG_Mips_Assembler:
		return false;
	default:
		return true;
	}
}

int hl_symbols_entry_name(Dwarf_Die *entry, struct hl_strings *strings, uint32_t *ret_name)
{
	const char *name = text_attribute(entry, DW_AT_name);
	char *text = NULL;
	size_t bytes;

	if (!name || !has_scopes(entry))
		return hl_strings_intern(strings, name, ret_name);
	FILE *out = open_memstream(&text, &bytes);
	if (!out)
		return -ENOMEM;
	write_qualified(out, entry, 0);
	int r = fclose(out) == 0 ? hl_strings_intern(strings, text, ret_name) : -ENOMEM;
	free(text);
	return r;
}

int hl_symbols_entry_function(Dwarf_Die *entry, struct hl_strings *strings,
			      struct hl_symbols_entry_function *ret_function)
{
	const char *name = text_attribute(entry, DW_AT_linkage_name);
	Dwarf_Die declaration = *entry, parents[PARENTS_MAX];
	Dwarf_Attribute attribute;
	int line = 0;

	if (!name)
		name = text_attribute(entry, DW_AT_MIPS_linkage_name);
	struct hl_symbols_entry_function function = {.has_linkage_name = name != NULL};
	char *demangled = name ? hl_symbols_demangle(name) : NULL;
	int r = name ? hl_strings_intern(strings, demangled ? demangled : name, &function.name)
		     : hl_symbols_entry_name(entry, strings, &function.name);
	free(demangled);
	/* A function that the compiler made, such as gcc's operator() of a lambda, begins at the
	 * line of its class. */
	if (!dwarf_attr_integrate(entry, DW_AT_decl_file, &attribute)) {
		Dwarf_Die declared = specification_of(entry);
		int count = parents_of(&declared, parents);
		if (count > 1)
			declaration = parents[count - 1];
	}
	if (r == 0)
		r = hl_strings_intern(strings, declaration_file(&declaration, strings),
				      &function.file);
	if (r < 0)
		return r;
	dwarf_decl_line(&declaration, &line);
	function.line = line > 0 ? (uint32_t)line : 0;
	*ret_function = function;
	return 0;
}
