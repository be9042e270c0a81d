/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists where variables lie, and which types have which names; see symbols_types.h. */
#include "symbols/symbols_types.h"

#include "base/array.h"
#include "base/index.h"
#include "symbols/symbols_dwarf.h"

#include <dwarf.h>

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

/* ---- types ---- */

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
