/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Variables and types of one file, as its DWARF has them: what the word is called that lies at an
 * offset in a variable, or in a block whose type is known. Files may say anything: types that
 * contain or name themselves end a search, and never make it go on for ever.
 */
#pragma once

#include "base/strings.h"

#include <elfutils/libdw.h>
#include <stdbool.h>
#include <stdint.h>

struct hl_symbols_types;

/* Lists variables and types of ${dwarf}, which must outlive it. 0 or -ENOMEM. */
int hl_symbols_types_new(Dwarf *dwarf, struct hl_symbols_types **ret_types);

void hl_symbols_types_free(struct hl_symbols_types *types); /* NULL is fine */

/*
 * The variable in which ${address} lies, an address of ${dwarf}; of a thread-local one an offset in the
 * module's thread-local storage. False: none is known.
 */
bool hl_symbols_types_variable(struct hl_symbols_types *types, uint64_t address,
			       bool is_thread_local, uint64_t *ret_start, Dwarf_Die *ret_type);

/* The class, structure or union of the name, which has its scopes: "zoo::duck". False: none is
 * known. */
bool hl_symbols_types_find(struct hl_symbols_types *types, const char *name, Dwarf_Die *ret_type);

/* ---- members ---- */

#define HL_SYMBOLS_MEMBER_MAX 512u

/* How a word is reached, and what is known of what it points to. */
struct hl_symbols_member {
	/* ".stats.buckets[17]"; "": it is the whole; where a block has several of the type "[3].next" */
	char path[HL_SYMBOLS_MEMBER_MAX];
	bool is_pointer;
	bool has_target; /* not a void *, nor a pointer to a function */
	Dwarf_Die target;
};

/*
 * The word ${offset} bytes into memory of ${bytes} that begins with an object of ${type}. What is larger
 * than the type is an array of it. ${slack} is how much larger than asked for the memory may be. False:
 * the type has no word there.
 */
bool hl_symbols_member_find(const Dwarf_Die *type, uint64_t bytes, uint64_t slack, uint64_t offset,
			    struct hl_symbols_member *ret_member);

/* Whether ${type} is but declared: its file has it elsewhere, or another one. */
bool hl_symbols_type_is_declared(const Dwarf_Die *type);

/* What a class, structure or union is called with its scopes; 0: it has no name, or ${type} is
 * none. 0 or -ENOMEM. */
int hl_symbols_type_name(const Dwarf_Die *type, struct hl_strings *strings, uint32_t *ret_name);

/* ${type} without qualifiers and typedefs. False: it is void, or leads nowhere. */
bool hl_symbols_type_peel(Dwarf_Die *type);

/* 0: not known. */
uint64_t hl_symbols_type_bytes(const Dwarf_Die *type);
