/* SPDX-License-Identifier: BSD-2-Clause */
/* Walks each unit's tree of DWARF entries once; see symbols_dwarf.h. */
#include "symbols/symbols_dwarf.h"

#include "base/array.h"
#include "base/compiler.h"

#include <dwarf.h>

#define NO_SCOPE       UINT32_MAX
#define NO_FUNCTION    UINT32_MAX
#define NESTING_MAX    512 /* deeper entries (damaged files) are not looked at */
#define RANGE_OVERLAPS 8   /* how many unit ranges before the nearest may enclose an address */

/* A function, real or inlined, as one unit's code has it. */
struct scope {
	Dwarf_Off entry;   /* DW_TAG_subprogram or DW_TAG_inlined_subroutine */
	uint32_t parent;   /* what it is inlined into; NO_SCOPE: it is a real function */
	uint32_t function; /* NO_FUNCTION until the first lookup */
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
	Dwarf_Die split; /* root of the split unit, where there is one; else the same as root */
	const struct hl_package_unit *packed; /* where that is in a package */
	bool is_packed, indexed;
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
	struct hl_symbols_entry_function named;
};

struct hl_dwarf {
	struct hl_strings *strings;
	struct hl_package *package;
	struct unit *units;
	struct unit_range *ranges; /* by start */
	struct function *functions;
	struct hl_dwarf_frame *frames; /* of the last lookup */
	size_t unit_count, unit_capacity;
	size_t missing_count; /* units whose split part was not found */
	size_t range_count, range_capacity;
	size_t function_count, function_capacity;
	size_t frame_capacity;
	struct hl_index function_index;
};

/* What indexing one unit collects. */
struct indexing {
	const struct hl_package_unit *packed;
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

int hl_symbols_dwarf_new(Dwarf *handle, struct hl_package *package, struct hl_strings *strings,
			 struct hl_dwarf **ret_dwarf)
{
	struct hl_dwarf *dwarf = calloc(1, sizeof(*dwarf));
	Dwarf_CU *cu = NULL;
	Dwarf_Die root, split;
	Dwarf_Addr base, start, end;
	uint8_t type;
	int r = 0;

	if (!dwarf)
		return -ENOMEM;
	dwarf->strings = strings;
	dwarf->package = package;
	while (r == 0 && dwarf_get_units(handle, cu, &cu, NULL, &type, &root, &split) == 0) {
		if (type != DW_UT_compile && type != DW_UT_skeleton)
			continue;
		bool is_split = type == DW_UT_skeleton && dwarf_tag(&split) == DW_TAG_compile_unit;
		bool is_packed =
			type == DW_UT_skeleton && !is_split && hl_package_has(package, &root);
		dwarf->missing_count += type == DW_UT_skeleton && !is_split && !is_packed;
		const struct unit unit = {
			.root = root, .split = is_split ? split : root, .is_packed = is_packed};
		uint32_t number = (uint32_t)dwarf->unit_count;
		r = HL_ARRAY_APPEND(dwarf->units, dwarf->unit_count, dwarf->unit_capacity, unit);
		for (ptrdiff_t at = 0;
		     r == 0 && (at = dwarf_ranges(&root, at, &base, &start, &end)) > 0;)
			if (start < end)
				r = HL_ARRAY_APPEND(dwarf->ranges, dwarf->range_count,
						    dwarf->range_capacity,
						    (struct unit_range){start, end, number});
	}
	if (r < 0) {
		hl_symbols_dwarf_free(dwarf);
		return r;
	}
	if (dwarf->range_count)
		qsort(dwarf->ranges, dwarf->range_count, sizeof(*dwarf->ranges), by_range_start);
	*ret_dwarf = dwarf;
	return 0;
}

size_t hl_symbols_dwarf_missing(const struct hl_dwarf *dwarf)
{
	return dwarf->missing_count;
}

void hl_symbols_dwarf_free(struct hl_dwarf *dwarf)
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

/* Adds a scope for ${entry} if it has code; ${ret_scope} is NO_SCOPE if it has none. */
static int add_scope(struct indexing *indexing, Dwarf_Die *entry, uint32_t parent, uint32_t depth,
		     uint32_t *ret_scope)
{
	size_t extents_before = indexing->extent_count;
	struct scope scope = {
		.entry = dwarf_dieoffset(entry), .parent = parent, .function = NO_FUNCTION};
	Dwarf_Addr base, start, end;

	*ret_scope = NO_SCOPE;
	for (ptrdiff_t at = 0;
	     (at = hl_package_unit_ranges(indexing->packed, entry, at, &base, &start, &end)) > 0;)
		if (start < end &&
		    HL_ARRAY_APPEND(indexing->extents, indexing->extent_count,
				    indexing->extent_capacity,
				    (struct extent){start, end, (uint32_t)indexing->scope_count,
						    depth}) < 0)
			return -ENOMEM;
	if (indexing->extent_count == extents_before)
		return 0;
	if (parent != NO_SCOPE) {
		scope.call_file = unsigned_attribute(entry, DW_AT_call_file);
		scope.call_line = unsigned_attribute(entry, DW_AT_call_line);
	}
	*ret_scope = (uint32_t)indexing->scope_count;
	return HL_ARRAY_APPEND(indexing->scopes, indexing->scope_count, indexing->scope_capacity,
			       scope);
}

static int index_children(struct indexing *indexing, Dwarf_Die *entry, uint32_t scope,
			  uint32_t depth)
{
	Dwarf_Die child;
	int r = 0;

	if (depth == NESTING_MAX || dwarf_child(entry, &child) != 0)
		return 0;
	do {
		uint32_t inner = scope;
		switch (dwarf_tag(&child)) {
		case DW_TAG_subprogram:
			inner = NO_SCOPE;
			/* fall through */
		case DW_TAG_inlined_subroutine:
			r = add_scope(indexing, &child, inner, depth + 1, &inner);
			if (r < 0 || inner == NO_SCOPE)
				continue;
			break;
		case DW_TAG_lexical_block:
		case DW_TAG_try_block:
		case DW_TAG_catch_block:
		case DW_TAG_namespace:
		case DW_TAG_module:
		case DW_TAG_structure_type:
		case DW_TAG_class_type:
		case DW_TAG_union_type:
			break;
		default:
			continue;
		}
		r = index_children(indexing, &child, inner, depth + 1);
	} while (r == 0 && dwarf_siblingof(&child, &child) == 0);
	return r;
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
 * Sweeps the extents in order of address. DWARF wants them nested; one that is not is cut off at
 * the end of the enclosing one. Each extent opens one segment and closes one.
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

static int index_unit(struct hl_dwarf *dwarf, struct unit *unit)
{
	unit->packed = unit->is_packed ? hl_package_find(dwarf->package, &unit->root) : NULL;
	struct indexing indexing = {.packed = unit->packed};

	if (unit->packed)
		unit->split = hl_package_unit_root(unit->packed);
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

/* ---- functions ---- */

/* Fills in scope->function. Instances of one function share it. */
static int resolve_function(struct hl_dwarf *dwarf, struct unit *unit, struct scope *scope)
{
	Dwarf_Die entry;

	if (!dwarf_offdie(dwarf_cu_getdwarf(unit->split.cu), scope->entry, &entry))
		return 0;
	entry = hl_symbols_entry_origin(entry);
	uint32_t hash = hl_hash_pair((uintptr_t)entry.addr, 0), at = hash, id;
	while ((id = hl_index_next(&dwarf->function_index, hash, &at)))
		if (dwarf->functions[id - 1].entry == entry.addr) {
			scope->function = id - 1;
			return 0;
		}
	struct function function = {.entry = entry.addr};
	int r = hl_symbols_entry_function(&entry, dwarf->strings, &function.named);
	if (r == 0 && unit->packed) { /* only the skeleton says where the unit was compiled */
		const char *file = hl_strings_text(dwarf->strings, function.named.file);
		file = hl_symbols_entry_path(&unit->root, dwarf->strings, file);
		r = hl_strings_intern(dwarf->strings, file, &function.named.file);
	}
	if (r == 0)
		r = HL_ARRAY_RESERVE(dwarf->functions, dwarf->function_capacity,
				     dwarf->function_count + 1);
	if (r == 0)
		r = hl_index_add(&dwarf->function_index, hash, (uint32_t)dwarf->function_count + 1);
	if (r < 0)
		return r;
	scope->function = (uint32_t)dwarf->function_count;
	dwarf->functions[dwarf->function_count++] = function;
	return 0;
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
	const struct hl_symbols_entry_function *function = &dwarf->functions[scope->function].named;
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

	*ret_file = hl_symbols_entry_path(&unit->root, dwarf->strings,
					  line ? dwarf_linesrc(line, NULL, NULL) : NULL);
	*ret_line = line && dwarf_lineno(line, &number) == 0 ? (uint32_t)number : 0;
}

void hl_symbols_dwarf_find_line(struct hl_dwarf *dwarf, uint64_t address, const char **ret_file,
				uint32_t *ret_line)
{
	struct unit *unit = unit_at(dwarf, address);

	*ret_file = "";
	*ret_line = 0;
	if (unit)
		unit_line(dwarf, unit, address, ret_file, ret_line);
}

int hl_symbols_dwarf_find(struct hl_dwarf *dwarf, uint64_t address,
			  const struct hl_dwarf_frame **ret_frames, size_t *ret_count)
{
	struct unit *unit = unit_at(dwarf, address);
	const char *file = "";
	uint32_t line = 0;
	size_t count = 0;
	int r;

	if (unit && !unit->indexed && (r = index_unit(dwarf, unit)) < 0)
		return r;
	if (unit)
		unit_line(dwarf, unit, address, &file, &line);
	size_t segment =
		unit ? HL_LOWER_BOUND(i, unit->segment_count, unit->segments[i].start <= address)
		     : 0;
	for (uint32_t at = segment ? unit->segments[segment - 1].scope : NO_SCOPE;
	     at != NO_SCOPE;) {
		struct scope *scope = &unit->scopes[at];
		r = put_frame(dwarf, unit, scope, count);
		if (r < 0)
			return r;
		dwarf->frames[count].frame.file = file;
		dwarf->frames[count++].frame.line = line;
		file = scope->parent == NO_SCOPE
			       ? ""
			       : hl_symbols_entry_file(&unit->root, dwarf->strings,
						       scope->call_file);
		line = scope->call_line;
		at = scope->parent;
	}
	*ret_frames = dwarf->frames;
	*ret_count = count;
	return 0;
}
