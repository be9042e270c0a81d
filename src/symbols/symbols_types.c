/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the variables of a file lie, which types have which names, and what the word at an offset in an object is called; see symbols.h. */
#include "symbols/symbols.h"

#include "base/array.h"
#include "base/index.h"
#include "symbols/symbols_dwarf.h"

#include <dwarf.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- members: from an offset in an object to those that lead there ---- */

#define DEPTH_MAX	32u    /* members within members */
#define VISITS_MAX	10000u /* types that one search looks at: unions may contain each other */
#define LINKS_MAX	32     /* typedefs and qualifiers in a row */
#define DIMENSIONS_MAX	8u
#define WORD_BYTES	8u
#define SMALLEST_USABLE 24u /* glibc gives no less */

/* ---- the types of members ---- */

/* The type that ${entry} refers to. False: none, which is void. */
static bool type_of(const Dwarf_Die *entry, unsigned attribute_name, Dwarf_Die *ret_type)
{
	Dwarf_Attribute attribute;

	return dwarf_attr_integrate((Dwarf_Die *)entry, attribute_name, &attribute) &&
	       dwarf_formref_die(&attribute, ret_type);
}

bool hl_symbols_type_is_declared(const Dwarf_Die *type)
{
	bool is_declared = false;
	Dwarf_Attribute attribute;

	return dwarf_attr((Dwarf_Die *)type, DW_AT_declaration, &attribute) &&
	       dwarf_formflag(&attribute, &is_declared) == 0 && is_declared;
}

bool hl_symbols_type_peel(Dwarf_Die *type)
{
	for (int i = 0; i < LINKS_MAX; i++)
		switch (dwarf_tag(type)) {
		case DW_TAG_typedef:
		case DW_TAG_const_type:
		case DW_TAG_volatile_type:
		case DW_TAG_restrict_type:
		case DW_TAG_atomic_type:
			if (!type_of(type, DW_AT_type, type))
				return false;
			break;
		case DW_TAG_structure_type:
		case DW_TAG_class_type:
		case DW_TAG_union_type:
			/* Other units have only a declaration of a type unit's type, with its signature. */
			if (dwarf_hasattr(type, DW_AT_signature) &&
			    hl_symbols_type_is_declared(type) &&
			    type_of(type, DW_AT_signature, type))
				break;
			return true;
		default:
			return dwarf_tag(type) != DW_TAG_invalid;
		}
	return false;
}

uint64_t hl_symbols_type_bytes(const Dwarf_Die *type)
{
	Dwarf_Word bytes;

	return dwarf_aggregate_size((Dwarf_Die *)type, &bytes) == 0 ? bytes : 0;
}

static bool is_class(Dwarf_Die *type)
{
	int tag = dwarf_tag(type);

	return tag == DW_TAG_structure_type || tag == DW_TAG_class_type || tag == DW_TAG_union_type;
}

int hl_symbols_type_name(const Dwarf_Die *type, struct hl_strings *strings, uint32_t *ret_name)
{
	Dwarf_Die named = *type, peeled = *type;

	*ret_name = 0;
	if (!hl_symbols_type_peel(&peeled) || !is_class(&peeled))
		return 0;
	/* One without a name is called as its typedef. */
	if (dwarf_hasattr(&peeled, DW_AT_name))
		return hl_symbols_entry_name(&peeled, strings, ret_name);
	for (int i = 0; i < LINKS_MAX && !dwarf_hasattr(&named, DW_AT_name); i++)
		if (!type_of(&named, DW_AT_type, &named))
			return 0;
	return dwarf_hasattr(&named, DW_AT_name) ? hl_symbols_entry_name(&named, strings, ret_name)
						 : 0;
}

/* ---- the search ---- */

enum found {
	FOUND_NOTHING,
	FOUND_SCALAR, /* a word that is not a pointer by its type */
	FOUND_POINTER,
};

struct search {
	struct hl_symbols_member *member;
	size_t length; /* of the path so far */
	unsigned visits;
	enum found least; /* what is good enough */
};

static enum found seek(struct search *search, Dwarf_Die type, uint64_t offset, unsigned depth);

__attribute__((format(printf, 2, 3))) static bool extend(struct search *search, const char *format,
							 ...)
{
	size_t room = sizeof(search->member->path) - search->length;
	va_list arguments;

	va_start(arguments, format);
	int added = vsnprintf(search->member->path + search->length, room, format, arguments);
	va_end(arguments);
	if (added < 0 || (size_t)added >= room)
		return false;
	search->length += (size_t)added;
	return true;
}

/* Sets how many elements each dimension has; 0: not known. False: there are too many dimensions, or none. */
static bool read_dimensions(Dwarf_Die *array, uint64_t ret_counts[DIMENSIONS_MAX],
			    unsigned *ret_count)
{
	Dwarf_Attribute attribute;
	Dwarf_Word value;
	Dwarf_Die child;
	unsigned count = 0;

	if (dwarf_child(array, &child) != 0)
		return false;
	do {
		if (dwarf_tag(&child) != DW_TAG_subrange_type)
			continue;
		if (count == DIMENSIONS_MAX)
			return false;
		ret_counts[count] = 0;
		if (dwarf_attr(&child, DW_AT_count, &attribute)) {
			if (dwarf_formudata(&attribute, &value) == 0)
				ret_counts[count] = value;
		} else if (dwarf_attr(&child, DW_AT_upper_bound, &attribute) &&
			   dwarf_formudata(&attribute, &value) == 0) {
			ret_counts[count] = value + 1;
		}
		count++;
	} while (dwarf_siblingof(&child, &child) == 0);
	*ret_count = count;
	return count > 0;
}

static enum found seek_in_array(struct search *search, Dwarf_Die *array, uint64_t offset,
				unsigned depth)
{
	uint64_t counts[DIMENSIONS_MAX], stride;
	size_t length = search->length;
	unsigned dimensions;
	Dwarf_Die element;

	if (!type_of(array, DW_AT_type, &element) || !(stride = hl_symbols_type_bytes(&element)) ||
	    !read_dimensions(array, counts, &dimensions))
		return FOUND_NOTHING;
	uint64_t index = offset / stride, inner = 1;
	for (unsigned i = 1; i < dimensions; i++)
		if (!counts[i] || __builtin_mul_overflow(inner, counts[i], &inner))
			return FOUND_NOTHING;
	for (unsigned i = 0; i < dimensions; i++) {
		if (!extend(search, "[%llu]", (unsigned long long)(index / inner)))
			return FOUND_NOTHING;
		index %= inner;
		inner /= i + 1 < dimensions ? counts[i + 1] : 1;
	}
	enum found found = seek(search, element, offset % stride, depth + 1);
	if (!found)
		search->length = length;
	return found;
}

/* How many bytes a member may have: an array without a bound at the end of a type goes on as far as its
 * block does. */
static uint64_t reach_of(const Dwarf_Die *type)
{
	Dwarf_Die peeled = *type;
	uint64_t bytes = hl_symbols_type_bytes(type);

	if (!bytes && hl_symbols_type_peel(&peeled) && dwarf_tag(&peeled) == DW_TAG_array_type)
		return UINT64_MAX;
	return bytes;
}

/* Where a member or a base class begins. False: it has no place of its own (static, virtual), or none
 * at a byte. */
static bool read_place(Dwarf_Die *member, uint64_t *ret_place)
{
	Dwarf_Attribute attribute;
	Dwarf_Word place = 0;

	if (dwarf_hasattr(member, DW_AT_bit_size) || dwarf_hasattr(member, DW_AT_data_bit_offset) ||
	    dwarf_hasattr(member, DW_AT_external) || dwarf_hasattr(member, DW_AT_declaration))
		return false;
	if (dwarf_attr(member, DW_AT_data_member_location, &attribute) &&
	    dwarf_formudata(&attribute, &place) != 0)
		return false;
	*ret_place = place;
	return true;
}

static enum found seek_in_members(struct search *search, Dwarf_Die *type, uint64_t offset,
				  unsigned depth)
{
	size_t length = search->length;
	Dwarf_Attribute attribute;
	Dwarf_Die child, of_member;
	uint64_t place;

	if (dwarf_child(type, &child) != 0)
		return FOUND_NOTHING;
	do {
		int tag = dwarf_tag(&child);
		if ((tag != DW_TAG_member && tag != DW_TAG_inheritance) ||
		    !read_place(&child, &place) || offset < place ||
		    !type_of(&child, DW_AT_type, &of_member) ||
		    offset - place >= reach_of(&of_member))
			continue;
		const char *name =
			tag == DW_TAG_member && dwarf_attr(&child, DW_AT_name, &attribute)
				? dwarf_formstring(&attribute)
				: NULL;
		if (name && !extend(search, ".%s", name))
			return FOUND_NOTHING;
		enum found found = seek(search, of_member, offset - place, depth + 1);
		if (found)
			return found;
		search->length = length;
	} while (search->visits < VISITS_MAX && dwarf_siblingof(&child, &child) == 0);
	return FOUND_NOTHING;
}

static enum found take_pointer(struct search *search, Dwarf_Die *pointer)
{
	struct hl_symbols_member *member = search->member;
	Dwarf_Die peeled;

	member->is_pointer = true;
	member->has_target = type_of(pointer, DW_AT_type, &member->target);
	peeled = member->target;
	if (member->has_target)
		member->has_target = hl_symbols_type_peel(&peeled) &&
				     dwarf_tag(&peeled) != DW_TAG_subroutine_type;
	return FOUND_POINTER;
}

/* Finds the word ${offset} bytes into ${type}, and extends the path by the way to it. */
static enum found seek(struct search *search, Dwarf_Die type, uint64_t offset, unsigned depth)
{
	if (depth == DEPTH_MAX || search->visits++ >= VISITS_MAX || !hl_symbols_type_peel(&type))
		return FOUND_NOTHING;
	switch (dwarf_tag(&type)) {
	case DW_TAG_structure_type:
	case DW_TAG_class_type:
	case DW_TAG_union_type:
		return seek_in_members(search, &type, offset, depth);
	case DW_TAG_array_type:
		return seek_in_array(search, &type, offset, depth);
	case DW_TAG_pointer_type:
	case DW_TAG_reference_type:
	case DW_TAG_rvalue_reference_type:
		return offset == 0 ? take_pointer(search, &type) : FOUND_NOTHING;
	default:
		return offset == 0 && search->least == FOUND_SCALAR &&
				       hl_symbols_type_bytes(&type) == WORD_BYTES
			       ? FOUND_SCALAR
			       : FOUND_NOTHING;
	}
}

/* A union is what it is a pointer in, if it is one in any. */
static bool search_from(struct search *search, const char *before, const Dwarf_Die *type,
			uint64_t offset)
{
	static const enum found wanted[] = {FOUND_POINTER, FOUND_SCALAR};

	for (unsigned i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		search->length = 0;
		search->visits = 0;
		search->least = wanted[i];
		if (extend(search, "%s", before) && seek(search, *type, offset, 0)) {
			search->member->path[search->length] = '\0';
			return true;
		}
	}
	return false;
}

bool hl_symbols_member_find(const Dwarf_Die *type, uint64_t bytes, uint64_t slack, uint64_t offset,
			    struct hl_symbols_member *ret_member)
{
	struct search search = {.member = ret_member};
	uint64_t size = hl_symbols_type_bytes(type);
	char element[32] = "";

	*ret_member = (struct hl_symbols_member){0};
	/* Also behind its end, where its last member is an array without a bound. */
	if (search_from(&search, "", type, offset)) {
		/* In an array of pointers, the first one. */
		if (!ret_member->path[0] && bytes >= 2 * size && bytes > SMALLEST_USABLE)
			snprintf(ret_member->path, sizeof(ret_member->path), "[0]");
		return true;
	}
	if (!size || offset < size || bytes < size ||
	    (bytes > SMALLEST_USABLE && bytes % size > slack))
		return false;
	snprintf(element, sizeof(element), "[%llu]", (unsigned long long)(offset / size));
	return search_from(&search, element, type, offset % size);
}

/* ---- variables and named types ---- */

#define NESTING_MAX 64u /* scopes in scopes; what lies deeper is not listed */

struct variable {
	uint64_t address; /* thread-local: in the module's storage */
	bool is_thread_local;
	Dwarf_Die entry;
};

struct hl_symbols_types {
	struct variable *variables; /* thread-local ones last, each part by address */
	size_t variable_count, variable_capacity, thread_local_at;
	Dwarf_Die *types;
	size_t type_count, type_capacity;
	struct hl_index type_index; /* by name without scopes; number + 1 */
	struct hl_strings names;    /* of what was asked for and compared */
};

/* ---- variables ---- */

static bool indirect_address(Dwarf_Attribute *location, const Dwarf_Op *operation,
			     uint64_t *ret_address)
{
	Dwarf_Attribute attribute;
	Dwarf_Word value;

	if (dwarf_getlocation_attr(location, operation, &attribute) != 0)
		return false;
	if (dwarf_formaddr(&attribute, ret_address) == 0)
		return true;
	bool has_value = dwarf_formudata(&attribute, &value) == 0;
	if (has_value)
		*ret_address = value;
	return has_value;
}

/* Sets where ${entry} lies. False: nowhere for as long as the program runs. */
static bool read_location(Dwarf_Die *entry, struct variable *variable)
{
	Dwarf_Attribute attribute;
	Dwarf_Op *operations;
	size_t count;

	if (!dwarf_attr(entry, DW_AT_location, &attribute) ||
	    dwarf_getlocation(&attribute, &operations, &count) != 0 || count < 1 || count > 2)
		return false;
	variable->is_thread_local = count == 2;
	if (count == 2 && operations[1].atom != DW_OP_form_tls_address &&
	    operations[1].atom != DW_OP_GNU_push_tls_address)
		return false;
	switch (operations[0].atom) {
	case DW_OP_const4u:
	case DW_OP_const8u:
		if (count == 1)
			return false;
		/* fall through */
	case DW_OP_addr:
		variable->address = operations[0].number;
		return true;
	case DW_OP_addrx:
	case DW_OP_constx:
	case DW_OP_GNU_addr_index:
	case DW_OP_GNU_const_index:
		return indirect_address(&attribute, &operations[0], &variable->address);
	default:
		return false;
	}
}

static int add_variable(struct hl_symbols_types *types, Dwarf_Die *entry)
{
	struct variable variable = {.entry = *entry};

	if (!read_location(entry, &variable))
		return 0;
	return HL_ARRAY_APPEND(types->variables, types->variable_count, types->variable_capacity,
			       variable);
}

static int by_place(const void *left, const void *right)
{
	const struct variable *a = left, *b = right;

	if (a->is_thread_local != b->is_thread_local)
		return a->is_thread_local ? 1 : -1;
	return (a->address > b->address) - (a->address < b->address);
}

bool hl_symbols_types_variable(struct hl_symbols_types *types, uint64_t address,
			       bool is_thread_local, uint64_t *ret_start, Dwarf_Die *ret_type)
{
	size_t from = is_thread_local ? types->thread_local_at : 0;
	size_t count = (is_thread_local ? types->variable_count : types->thread_local_at) - from;
	const struct variable *variables = types->variables + from;
	size_t end = HL_LOWER_BOUND(i, count, variables[i].address <= address);
	Dwarf_Attribute attribute;

	if (!end)
		return false;
	const struct variable *variable = &variables[end - 1];
	if (!dwarf_attr_integrate((Dwarf_Die *)&variable->entry, DW_AT_type, &attribute) ||
	    !dwarf_formref_die(&attribute, ret_type) ||
	    address - variable->address >= hl_symbols_type_bytes(ret_type))
		return false;
	*ret_start = variable->address;
	return true;
}

/* ---- the types of members ---- */

static uint32_t hash_name(const char *name)
{
	return hl_hash_bytes(name, strlen(name));
}

static int add_type(struct hl_symbols_types *types, Dwarf_Die *entry)
{
	Dwarf_Attribute attribute;
	const char *name =
		dwarf_attr(entry, DW_AT_name, &attribute) ? dwarf_formstring(&attribute) : NULL;

	if (!name || hl_symbols_type_is_declared(entry))
		return 0;
	int r = HL_ARRAY_APPEND(types->types, types->type_count, types->type_capacity, *entry);
	return r == 0 ? hl_index_add(&types->type_index, hash_name(name),
				     (uint32_t)types->type_count)
		      : r;
}

/* "b<c::d>" of "a::b<c::d>". */
static const char *without_scopes(const char *name)
{
	const char *last = name;
	unsigned depth = 0;

	for (const char *at = name; *at; at++) {
		depth += *at == '<' || *at == '(';
		depth -= depth && (*at == '>' || *at == ')');
		if (!depth && at[0] == ':' && at[1] == ':')
			last = at + 2;
	}
	return last;
}

bool hl_symbols_types_find(struct hl_symbols_types *types, const char *name, Dwarf_Die *ret_type)
{
	uint32_t hash = hash_name(without_scopes(name)), at = hash, id, found;

	while ((id = hl_index_next(&types->type_index, hash, &at)))
		if (hl_symbols_type_name(&types->types[id - 1], &types->names, &found) == 0 &&
		    strcmp(hl_strings_text(&types->names, found), name) == 0) {
			*ret_type = types->types[id - 1];
			return true;
		}
	return false;
}

/* ---- all ---- */

static int list_children(struct hl_symbols_types *types, Dwarf_Die *scope, unsigned depth)
{
	Dwarf_Die child;
	int r = 0;

	if (depth == NESTING_MAX || dwarf_child(scope, &child) != 0)
		return 0;
	do {
		switch (dwarf_tag(&child)) {
		case DW_TAG_variable:
			r = add_variable(types, &child);
			break;
		case DW_TAG_structure_type:
		case DW_TAG_class_type:
		case DW_TAG_union_type:
			r = add_type(types, &child);
			/* fall through */
		case DW_TAG_namespace:
		case DW_TAG_subprogram:
		case DW_TAG_lexical_block:
		case DW_TAG_module:
			if (r == 0)
				r = list_children(types, &child, depth + 1);
			break;
		default:
			break;
		}
	} while (r == 0 && dwarf_siblingof(&child, &child) == 0);
	return r;
}

int hl_symbols_types_new(Dwarf *dwarf, struct hl_symbols_types **ret_types)
{
	struct hl_symbols_types *types = calloc(1, sizeof(*types));
	Dwarf_CU *cu = NULL;
	Dwarf_Die root, split;
	uint8_t type;
	int r = types ? 0 : -ENOMEM;

	while (r == 0 && dwarf_get_units(dwarf, cu, &cu, NULL, &type, &root, &split) == 0) {
		bool is_split = type == DW_UT_skeleton && dwarf_tag(&split) == DW_TAG_compile_unit;
		r = list_children(types, is_split ? &split : &root, 0);
	}
	if (r < 0) {
		hl_symbols_types_free(types);
		return r;
	}
	if (types->variable_count)
		qsort(types->variables, types->variable_count, sizeof(*types->variables), by_place);
	types->thread_local_at =
		HL_LOWER_BOUND(i, types->variable_count, !types->variables[i].is_thread_local);
	*ret_types = types;
	return 0;
}

void hl_symbols_types_free(struct hl_symbols_types *types)
{
	if (!types)
		return;
	free(types->variables);
	free(types->types);
	hl_index_release(&types->type_index);
	hl_strings_release(&types->names);
	free(types);
}
