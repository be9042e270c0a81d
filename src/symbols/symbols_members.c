/* SPDX-License-Identifier: BSD-2-Clause */
/* From an offset in an object to the members that lead there; see symbols_types.h. */
#include "symbols/symbols_types.h"

#include "symbols/symbols_dwarf.h"

#include <dwarf.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX	32u    /* members within members */
#define VISITS_MAX	10000u /* types that one search looks at: unions may contain each other */
#define LINKS_MAX	32     /* typedefs and qualifiers in a row */
#define DIMENSIONS_MAX	8u
#define WORD_BYTES	8u
#define SMALLEST_USABLE 24u /* glibc gives no less */

/* ---- types ---- */

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
