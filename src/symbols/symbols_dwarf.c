/* SPDX-License-Identifier: BSD-2-Clause */
/* Walks each unit's tree of DWARF entries once; see symbols_dwarf.h. */
#include "symbols/symbols_dwarf.h"

#include "base/array.h"
#include "base/search.h"

#include <dwarf.h>
#include <stdio.h>
#include <string.h>

#define NO_SCOPE       UINT32_MAX
#define NO_FUNCTION    UINT32_MAX
#define NESTING_MAX    512 /* deeper entries (damaged files) are not looked at */
#define PARENTS_MAX    128 /* of a function; one that lies deeper has no scope in its name */
#define ORIGINS_MAX    16  /* abstract_origin and specification in a row */
#define RANGE_OVERLAPS 8   /* how many unit ranges before the nearest may enclose an address */

/* A function, real or inlined, as one unit's code has it. */
struct scope {
	Dwarf_Off entry;   /* DW_TAG_subprogram or DW_TAG_inlined_subroutine */
	uint32_t parent;   /* what it is inlined into; NO_SCOPE: it is a real function */
	uint32_t function; /* NO_FUNCTION until somebody asks */
	uint32_t call_file, call_line;
};

/* An address range of a scope; while indexing only. */
struct extent {
	uint64_t start, end;
	uint32_t scope, depth;
};

/* From here to the next segment the innermost function is scope. */
struct segment {
	uint64_t start;
	uint32_t scope; /* or NO_SCOPE */
};

struct unit {
	Dwarf_Die root;	 /* has the line table and the ranges */
	Dwarf_Die split; /* root of the .dwo unit, where there is one; else the same as root */
	bool indexed;
	struct scope *scopes;
	struct segment *segments;
	size_t scope_count, segment_count;
};

struct unit_range {
	uint64_t start, end;
	uint32_t unit;
};

struct function {
	const void *entry; /* the innermost origin's address, by which it is found again */
	uint32_t name, file, line;
	bool has_linkage_name;
};

struct hl_dwarf {
	Dwarf *dwarf;
	struct hl_strings *strings;
	struct unit *units;
	struct unit_range *ranges; /* by start */
	struct function *functions;
	struct hl_dwarf_frame *frames; /* of the last lookup */
	size_t unit_count, unit_capacity;
	size_t range_count, range_capacity;
	size_t function_count, function_capacity;
	size_t frame_capacity;
	struct hl_index function_index;
};

/* What indexing one unit collects. */
struct indexing {
	struct scope *scopes;
	struct extent *extents;
	size_t scope_count, scope_capacity;
	size_t extent_count, extent_capacity;
};

/* ---- units ---- */

static int by_range_start(const void *left, const void *right)
{
	const struct unit_range *a = left, *b = right;

	return (a->start > b->start) - (a->start < b->start);
}

static int add_unit_ranges(struct hl_dwarf *dwarf, uint32_t unit)
{
	Dwarf_Addr base, start, end;

	for (ptrdiff_t next = 0;
	     (next = dwarf_ranges(&dwarf->units[unit].root, next, &base, &start, &end)) > 0;) {
		if (start >= end)
			continue;
		if (HL_ARRAY_APPEND(dwarf->ranges, dwarf->range_count, dwarf->range_capacity,
				    (struct unit_range){start, end, unit}) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int list_units(struct hl_dwarf *dwarf)
{
	Dwarf_CU *cu = NULL;
	Dwarf_Die root, split;
	uint8_t type;

	while (dwarf_get_units(dwarf->dwarf, cu, &cu, NULL, &type, &root, &split) == 0) {
		if (type != DW_UT_compile && type != DW_UT_skeleton)
			continue;
		if (HL_ARRAY_RESERVE(dwarf->units, dwarf->unit_capacity, dwarf->unit_count + 1) < 0)
			return -ENOMEM;
		bool is_split = type == DW_UT_skeleton && dwarf_tag(&split) == DW_TAG_compile_unit;
		dwarf->units[dwarf->unit_count] =
			(struct unit){.root = root, .split = is_split ? split : root};
		if (add_unit_ranges(dwarf, (uint32_t)dwarf->unit_count++) < 0)
			return -ENOMEM;
	}
	if (dwarf->range_count)
		qsort(dwarf->ranges, dwarf->range_count, sizeof(*dwarf->ranges), by_range_start);
	return 0;
}

int hl_dwarf_new(Dwarf *handle, struct hl_strings *strings, struct hl_dwarf **ret_dwarf)
{
	struct hl_dwarf *dwarf = calloc(1, sizeof(*dwarf));

	if (!dwarf)
		return -ENOMEM;
	dwarf->dwarf = handle;
	dwarf->strings = strings;
	if (list_units(dwarf) < 0) {
		hl_dwarf_free(dwarf);
		return -ENOMEM;
	}
	*ret_dwarf = dwarf;
	return 0;
}

void hl_dwarf_free(struct hl_dwarf *dwarf)
{
	if (!dwarf)
		return;
	for (size_t i = 0; i < dwarf->unit_count; i++) {
		free(dwarf->units[i].scopes);
		free(dwarf->units[i].segments);
	}
	free(dwarf->units);
	free(dwarf->ranges);
	free(dwarf->functions);
	free(dwarf->frames);
	hl_index_release(&dwarf->function_index);
	free(dwarf);
}

static struct unit *unit_at(struct hl_dwarf *dwarf, uint64_t address)
{
	size_t at = HL_LOWER_BOUND(i, dwarf->range_count, dwarf->ranges[i].start <= address);

	size_t stop = at > RANGE_OVERLAPS ? at - RANGE_OVERLAPS : 0;
	for (size_t i = at; i > stop; i--)
		if (address < dwarf->ranges[i - 1].end)
			return &dwarf->units[dwarf->ranges[i - 1].unit];
	return NULL;
}

/* ---- indexing one unit: entries to extents ---- */

static uint32_t unsigned_attribute(Dwarf_Die *entry, unsigned name)
{
	Dwarf_Attribute attribute;
	Dwarf_Word value;

	if (!dwarf_attr(entry, name, &attribute) || dwarf_formudata(&attribute, &value) != 0)
		return 0;
	return (uint32_t)value;
}

static int add_extents(struct indexing *indexing, Dwarf_Die *entry, uint32_t scope, uint32_t depth)
{
	Dwarf_Addr base, start, end;

	for (ptrdiff_t next = 0; (next = dwarf_ranges(entry, next, &base, &start, &end)) > 0;) {
		if (start >= end)
			continue;
		if (HL_ARRAY_APPEND(indexing->extents, indexing->extent_count,
				    indexing->extent_capacity,
				    (struct extent){start, end, scope, depth}) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* Adds a scope for ${entry} if it has code; ${ret_scope} is NO_SCOPE if it has none. */
static int add_scope(struct indexing *indexing, Dwarf_Die *entry, uint32_t parent, uint32_t depth,
		     uint32_t *ret_scope)
{
	size_t extents_before = indexing->extent_count;
	uint32_t scope = (uint32_t)indexing->scope_count;

	int r = add_extents(indexing, entry, scope, depth);
	if (r < 0)
		return r;
	if (indexing->extent_count == extents_before) {
		*ret_scope = NO_SCOPE;
		return 0;
	}
	if (HL_ARRAY_APPEND(
		    indexing->scopes, indexing->scope_count, indexing->scope_capacity,
		    (struct scope){
			    .entry = dwarf_dieoffset(entry),
			    .parent = parent,
			    .function = NO_FUNCTION,
			    .call_file = parent == NO_SCOPE
						 ? 0
						 : unsigned_attribute(entry, DW_AT_call_file),
			    .call_line = parent == NO_SCOPE
						 ? 0
						 : unsigned_attribute(entry, DW_AT_call_line),
		    }) < 0)
		return -ENOMEM;
	*ret_scope = scope;
	return 0;
}

static int index_children(struct indexing *indexing, Dwarf_Die *entry, uint32_t scope,
			  uint32_t depth);

static int index_entry(struct indexing *indexing, Dwarf_Die *entry, uint32_t scope, uint32_t depth)
{
	uint32_t inner;
	int r;

	switch (dwarf_tag(entry)) {
	case DW_TAG_subprogram:
		r = add_scope(indexing, entry, NO_SCOPE, depth, &inner);
		if (r < 0 || inner == NO_SCOPE)
			return r;
		return index_children(indexing, entry, inner, depth);
	case DW_TAG_inlined_subroutine:
		r = add_scope(indexing, entry, scope, depth, &inner);
		if (r < 0 || inner == NO_SCOPE)
			return r;
		return index_children(indexing, entry, inner, depth);
	case DW_TAG_lexical_block:
	case DW_TAG_try_block:
	case DW_TAG_catch_block:
	case DW_TAG_namespace:
	case DW_TAG_module:
	case DW_TAG_structure_type:
	case DW_TAG_class_type:
	case DW_TAG_union_type:
		return index_children(indexing, entry, scope, depth);
	default:
		return 0;
	}
}

static int index_children(struct indexing *indexing, Dwarf_Die *entry, uint32_t scope,
			  uint32_t depth)
{
	Dwarf_Die child;

	if (depth == NESTING_MAX || dwarf_child(entry, &child) != 0)
		return 0;
	do {
		int r = index_entry(indexing, &child, scope, depth + 1);
		if (r < 0)
			return r;
	} while (dwarf_siblingof(&child, &child) == 0);
	return 0;
}

/* ---- indexing one unit: extents to segments ---- */

static int outer_first(const void *left, const void *right)
{
	const struct extent *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	if (a->end != b->end)
		return a->end > b->end ? -1 : 1;
	return (a->depth > b->depth) - (a->depth < b->depth);
}

/* A later segment with the same start replaces the earlier one. */
static void put_segment(struct unit *unit, uint64_t start, uint32_t scope)
{
	if (unit->segment_count && unit->segments[unit->segment_count - 1].start == start)
		unit->segment_count--;
	unit->segments[unit->segment_count++] = (struct segment){start, scope};
}

/* Closes the extents on the stack that end at or before ${address}; returns the stack's depth. */
static size_t close_extents(struct unit *unit, const struct extent *stack, size_t depth,
			    uint64_t address)
{
	while (depth && stack[depth - 1].end <= address) {
		uint64_t end = stack[--depth].end;
		put_segment(unit, end, depth ? stack[depth - 1].scope : NO_SCOPE);
	}
	return depth;
}

/*
 * Sweeps the extents in order of address. They are nested, as DWARF wants it; one that is not is
 * cut off at the end of what it lies in. Each extent opens one segment and closes one.
 */
static int flatten(struct unit *unit, struct extent *extents, size_t count)
{
	unit->segments = reallocarray(NULL, 2 * count + 1, sizeof(*unit->segments));
	struct extent *stack = reallocarray(NULL, count + 1, sizeof(*stack));
	size_t depth = 0;

	if (!unit->segments || !stack) {
		free(stack);
		return -ENOMEM;
	}
	if (count)
		qsort(extents, count, sizeof(*extents), outer_first);
	for (size_t i = 0; i < count; i++) {
		struct extent extent = extents[i];
		depth = close_extents(unit, stack, depth, extent.start);
		if (depth && extent.end > stack[depth - 1].end)
			extent.end = stack[depth - 1].end;
		put_segment(unit, extent.start, extent.scope);
		stack[depth++] = extent;
	}
	close_extents(unit, stack, depth, UINT64_MAX);
	free(stack);
	return 0;
}

static int index_unit(struct unit *unit)
{
	struct indexing indexing = {0};

	int r = index_children(&indexing, &unit->split, NO_SCOPE, 0);
	if (r == 0)
		r = flatten(unit, indexing.extents, indexing.extent_count);
	free(indexing.extents);
	if (r < 0) {
		free(indexing.scopes);
		free(unit->segments);
		unit->segments = NULL;
		unit->segment_count = 0;
		return r;
	}
	unit->scopes = indexing.scopes;
	unit->scope_count = indexing.scope_count;
	unit->indexed = true;
	return 0;
}

static uint32_t scope_at(const struct unit *unit, uint64_t address)
{
	size_t at = HL_LOWER_BOUND(i, unit->segment_count, unit->segments[i].start <= address);

	return at ? unit->segments[at - 1].scope : NO_SCOPE;
}

/* ---- names ---- */

/* The entry that ${entry} is an instance of, and that one's, to the end. */
static Dwarf_Die origin_of(Dwarf_Die entry)
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

/*
 * ${path} (NULL: none) of a file of the unit ${root}: line tables may give it relative to where the
 * unit was compiled. Without memory it stays so.
 */
static const char *whole_path(struct hl_dwarf *dwarf, Dwarf_Die *root, const char *path)
{
	const char *folder = path && path[0] != '/' ? text_attribute(root, DW_AT_comp_dir) : NULL;
	char *joined;
	uint32_t id;

	if (!folder || !path[0])
		return path ? path : "";
	if (asprintf(&joined, "%s/%s", folder, path) < 0)
		return path;
	if (hl_strings_intern(dwarf->strings, joined, &id) == 0)
		path = hl_strings_text(dwarf->strings, id);
	free(joined);
	return path;
}

/* Path number ${number} of the line table of ${root}; "" when there is none. */
static const char *source_file(struct hl_dwarf *dwarf, Dwarf_Die *root, Dwarf_Word number)
{
	Dwarf_Files *files;
	size_t count;

	if (dwarf_getsrcfiles(root, &files, &count) != 0 || number >= count)
		return "";
	return whole_path(dwarf, root, dwarf_filesrc(files, number, NULL, NULL));
}

/* Where ${entry} is declared. dwarf_decl_file() would abort on units that have no line table. */
static const char *declaration_file(struct hl_dwarf *dwarf, Dwarf_Die *entry)
{
	Dwarf_Attribute attribute;
	Dwarf_Word number;
	Dwarf_Die root;

	if (!dwarf_attr_integrate(entry, DW_AT_decl_file, &attribute) ||
	    dwarf_formudata(&attribute, &number) != 0 ||
	    !dwarf_cu_die(attribute.cu, &root, NULL, NULL, NULL, NULL, NULL, NULL))
		return "";
	return source_file(dwarf, &root, number);
}

/* The entries that ${entry} lies in, the unit's root first; their number, 0 where it was not found.
 * Entries come in order of their offsets, parents first. */
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

/* The entry that says where ${entry} begins: of what nobody wrote, as the operator() that gcc makes
 * of a lambda, its class. */
static Dwarf_Die declaration_of(Dwarf_Die *entry)
{
	Dwarf_Attribute attribute;
	Dwarf_Die declared, parents[PARENTS_MAX];

	if (dwarf_attr_integrate(entry, DW_AT_decl_file, &attribute))
		return *entry;
	declared = specification_of(entry);
	int count = parents_of(&declared, parents);
	return count > 1 ? parents[count - 1] : *entry;
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

/* Where names of ${parents} are to be looked for: not in blocks. */
static int innermost_scope(const Dwarf_Die *parents, int count)
{
	while (count && dwarf_tag((Dwarf_Die *)&parents[count - 1]) == DW_TAG_lexical_block)
		count--;
	return count - 1;
}

/* Numbers as the symbol table has them, if no class of the scope was optimized away. */
static void write_class(FILE *out, Dwarf_Die *parents, int at)
{
	if (!is_nameless_class(&parents[at])) {
		fprintf(out, "%s::", text_attribute(&parents[at], DW_AT_name));
		return;
	}
	int scope = innermost_scope(parents, at);
	fprintf(out, "{%s#%u}::", is_lambda(&parents[at]) ? "lambda" : "unnamed type",
		count_nameless(&parents[scope < 0 ? 0 : scope], dwarf_dieoffset(&parents[at]), 0));
}

/* The scopes of ${entry} and its own name, as the demangler writes them, without parameters. A
 * function within a function, which C++ does not have, is written without. */
static void write_qualified(FILE *out, Dwarf_Die *entry, int depth)
{
	Dwarf_Die origin = origin_of(*entry), declared = specification_of(&origin);
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
		const char *text = text_attribute(&parents[i], DW_AT_name);
		if (dwarf_tag(&parents[i]) == DW_TAG_subprogram) {
			write_qualified(out, &parents[i], depth + 1);
			fputs("::", out);
		} else if (dwarf_tag(&parents[i]) == DW_TAG_namespace) {
			fprintf(out, "%s::", text ? text : "(anonymous namespace)");
		} else if (is_class(&parents[i])) {
			write_class(out, parents, i);
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

/* Of a function without a linkage name. */
static int intern_qualified(struct hl_dwarf *dwarf, Dwarf_Die *entry, uint32_t *ret_name)
{
	const char *name = text_attribute(entry, DW_AT_name);
	char *text = NULL;
	size_t bytes;

	if (!name || !has_scopes(entry))
		return hl_strings_intern(dwarf->strings, name, ret_name);
	FILE *out = open_memstream(&text, &bytes);
	if (!out)
		return -ENOMEM;
	write_qualified(out, entry, 0);
	int r = fclose(out) == 0 ? hl_strings_intern(dwarf->strings, text, ret_name) : -ENOMEM;
	free(text);
	return r;
}

static int name_function(struct hl_dwarf *dwarf, Dwarf_Die *entry, struct function *ret_function)
{
	const char *name = text_attribute(entry, DW_AT_linkage_name);
	int line = 0;

	if (!name)
		name = text_attribute(entry, DW_AT_MIPS_linkage_name);
	struct function function = {.entry = entry->addr, .has_linkage_name = name != NULL};
	char *demangled = name ? hl_symbols_demangle(name) : NULL;
	int r = name ? hl_strings_intern(dwarf->strings, demangled ? demangled : name,
					 &function.name)
		     : intern_qualified(dwarf, entry, &function.name);
	free(demangled);
	Dwarf_Die declaration = declaration_of(entry);
	if (r == 0)
		r = hl_strings_intern(dwarf->strings, declaration_file(dwarf, &declaration),
				      &function.file);
	if (r < 0)
		return r;
	dwarf_decl_line(&declaration, &line);
	function.line = line > 0 ? (uint32_t)line : 0;
	*ret_function = function;
	return 0;
}

static int add_function(struct hl_dwarf *dwarf, Dwarf_Die *entry, uint32_t hash,
			uint32_t *ret_function)
{
	struct function function;

	int r = name_function(dwarf, entry, &function);
	if (r < 0)
		return r;
	if (HL_ARRAY_RESERVE(dwarf->functions, dwarf->function_capacity,
			     dwarf->function_count + 1) < 0)
		return -ENOMEM;
	dwarf->functions[dwarf->function_count] = function;
	r = hl_index_add(&dwarf->function_index, hash, (uint32_t)dwarf->function_count + 1);
	if (r < 0)
		return r;
	*ret_function = (uint32_t)dwarf->function_count++;
	return 0;
}

/* Fills in scope->function. Instances of one function share it. */
static int resolve_function(struct hl_dwarf *dwarf, struct unit *unit, struct scope *scope)
{
	Dwarf_Die entry;

	if (!dwarf_offdie(dwarf_cu_getdwarf(unit->split.cu), scope->entry, &entry))
		return 0;
	entry = origin_of(entry);
	uint32_t hash = hl_hash_pair((uintptr_t)entry.addr, 0), at = hash, id;
	while ((id = hl_index_next(&dwarf->function_index, hash, &at)))
		if (dwarf->functions[id - 1].entry == entry.addr) {
			scope->function = id - 1;
			return 0;
		}
	return add_function(dwarf, &entry, hash, &scope->function);
}

/* ---- lookup ---- */

static int put_frame(struct hl_dwarf *dwarf, struct unit *unit, struct scope *scope, size_t i)
{
	if (scope->function == NO_FUNCTION) {
		int r = resolve_function(dwarf, unit, scope);
		if (r < 0)
			return r;
	}
	if (HL_ARRAY_RESERVE(dwarf->frames, dwarf->frame_capacity, i + 1) < 0)
		return -ENOMEM;
	struct hl_dwarf_frame *frame = &dwarf->frames[i];
	*frame = (struct hl_dwarf_frame){.frame = {.function = "",
						   .function_file = "",
						   .file = "",
						   .inlined = scope->parent != NO_SCOPE}};
	if (scope->function == NO_FUNCTION)
		return 0;
	const struct function *function = &dwarf->functions[scope->function];
	frame->frame.function = hl_strings_text(dwarf->strings, function->name);
	frame->frame.function_file = hl_strings_text(dwarf->strings, function->file);
	frame->frame.function_line = function->line;
	frame->has_linkage_name = function->has_linkage_name;
	return 0;
}

static void unit_line(struct hl_dwarf *dwarf, struct unit *unit, uint64_t address,
		      const char **ret_file, uint32_t *ret_line)
{
	Dwarf_Line *line = dwarf_getsrc_die(&unit->root, address);
	int number = 0;

	*ret_file = whole_path(dwarf, &unit->root, line ? dwarf_linesrc(line, NULL, NULL) : NULL);
	*ret_line = line && dwarf_lineno(line, &number) == 0 ? (uint32_t)number : 0;
}

void hl_dwarf_find_line(struct hl_dwarf *dwarf, uint64_t address, const char **ret_file,
			uint32_t *ret_line)
{
	struct unit *unit = unit_at(dwarf, address);

	*ret_file = "";
	*ret_line = 0;
	if (unit)
		unit_line(dwarf, unit, address, ret_file, ret_line);
}

int hl_dwarf_find(struct hl_dwarf *dwarf, uint64_t address,
		  const struct hl_dwarf_frame **ret_frames, size_t *ret_count)
{
	struct unit *unit = unit_at(dwarf, address);
	const char *file = "";
	uint32_t line = 0;
	size_t count = 0;
	int r;

	if (unit && !unit->indexed && (r = index_unit(unit)) < 0)
		return r;
	if (unit)
		unit_line(dwarf, unit, address, &file, &line);
	for (uint32_t at = unit ? scope_at(unit, address) : NO_SCOPE; at != NO_SCOPE;) {
		struct scope *scope = &unit->scopes[at];
		r = put_frame(dwarf, unit, scope, count);
		if (r < 0)
			return r;
		dwarf->frames[count].frame.file = file;
		dwarf->frames[count++].frame.line = line;
		file = scope->parent == NO_SCOPE
			       ? ""
			       : source_file(dwarf, &unit->root, scope->call_file);
		line = scope->call_line;
		at = scope->parent;
	}
	*ret_frames = dwarf->frames;
	*ret_count = count;
	return 0;
}
