/* SPDX-License-Identifier: BSD-2-Clause */
/* What libdw and libdwfl say of one module: the sources of names that symbols_file.c chooses from.
 */
#pragma once

#include "symbols/symbols.h"

#include "base/strings.h"

#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

/*
 * ---- symbols_package.c: a .dwp package ----
 * The split units (-gsplit-dwarf) of one program, which libdw reads itself from 0.191 on. An index gives
 * each unit its parts of the package's sections: DWARF 5, section 7.3.5, and its draft for DWARF 4.
 * Packages are not trusted: a damaged one has fewer units.
 */

struct hl_package;
struct hl_package_unit;

/* Opens the package beside the file ${path}; a damaged one has no units. ${ret_package} is NULL if there is none, or it
 * may not be read. 0 or -ENOMEM. */
int hl_package_open(const char *path, struct hl_package **ret_package);

/* Whether the index has the split unit of ${skeleton}, the root of a unit of the program. NULL for ${package} has none. */
bool hl_package_has(const struct hl_package *package, Dwarf_Die *skeleton);

/* The split unit of ${skeleton}; valid until both the package and the program's DWARF are released. NULL when it is
 * damaged, or out of memory. */
const struct hl_package_unit *hl_package_find(struct hl_package *package, Dwarf_Die *skeleton);

/* The root of the unit's entries. */
Dwarf_Die hl_package_unit_root(const struct hl_package_unit *unit);

/* Like dwarf_ranges(), for an entry of ${unit}, which may be NULL: libdw does not know the base address of packaged units. */
ptrdiff_t hl_package_unit_ranges(const struct hl_package_unit *unit, Dwarf_Die *entry, ptrdiff_t at,
				 Dwarf_Addr *base, Dwarf_Addr *ret_start, Dwarf_Addr *ret_end);

void hl_package_free(struct hl_package *package); /* NULL is fine */

/* ---- symbols_table.c: function symbols, sorted; and where functions begin, by unwind tables ----
 */

struct hl_symbols_table {
	struct hl_symbols_table_entry *entries; /* by address, one for each */
	size_t count;
	const unsigned char *unwind_starts; /* .eh_frame_hdr's table: pairs of int32 relative to
					       unwind_base; belongs to the module */
	size_t unwind_count;
	uint64_t unwind_base;
	const unsigned char *code; /* .text of x86-64; else NULL; belongs to the module */
	uint64_t code_bytes, code_base;
};

/* Reads the tables of ${module}, whose names stay its property. 0 or -ENOMEM. */
int hl_symbols_table_init(struct hl_symbols_table *table, Dwfl_Module *module);

void hl_symbols_table_release(struct hl_symbols_table *table);

/* The name of the function at ${address} as it stands in the table (mangled), or NULL. */
const char *hl_symbols_table_find(const struct hl_symbols_table *table, uint64_t address);

/* Where the function around ${address} begins; ${address} itself when that is not known. */
uint64_t hl_symbols_table_function_start(const struct hl_symbols_table *table, uint64_t address);

/* The name of the function that ${address}, which has no name, is a part of: compilers move the code of a function that
 * rarely runs elsewhere, and it jumps back. NULL: unknown. */
const char *hl_symbols_table_find_cold(const struct hl_symbols_table *table, uint64_t address);

/* ---- symbols_entry.c: what entries of DWARF are called ---- */

/* A function as its entry describes it; texts by number in the strings. */
struct hl_symbols_entry_function {
	uint32_t name, file, line;
	bool has_linkage_name; /* else `name` has no parameters */
};

/* The entry that ${entry} is an instance of; follows such links to the end. */
Dwarf_Die hl_symbols_entry_origin(Dwarf_Die entry);

/* What ${entry} is called with its scopes, as the demangler writes it, without parameters; for functions that
 * have no linkage name, and types. 0 or -ENOMEM. */
int hl_symbols_entry_name(Dwarf_Die *entry, struct hl_strings *strings, uint32_t *ret_name);

/* Names the function at ${entry}, an origin. 0 or -ENOMEM. */
int hl_symbols_entry_function(Dwarf_Die *entry, struct hl_strings *strings,
			      struct hl_symbols_entry_function *ret_function);

/*
 * Makes ${path} (NULL: none) absolute: line tables of the unit ${root} may give it relative to
 * where the unit was compiled. Returns ${path} as it is when out of memory.
 */
const char *hl_symbols_entry_path(Dwarf_Die *root, struct hl_strings *strings, const char *path);

/* Path number ${number} of the line table of ${root}; "" when there is none. */
const char *hl_symbols_entry_file(Dwarf_Die *root, struct hl_strings *strings, Dwarf_Word number);

/* ---- symbols_dwarf.c ---- */

/*
 * DWARF, indexed for lookups of many addresses: each compilation unit, when first reached, becomes one
 * sorted array of address segments, each with its innermost function, real or inlined.
 */
struct hl_dwarf;

struct hl_dwarf_frame {
	struct hl_symbols_frame frame;
	bool has_linkage_name; /* else `function` has no parameters */
};

/* Lists the units of ${dwarf}, whose split units may be in ${package} (NULL: they are not). Both must outlive it, as
 * must ${strings}, where names are kept. 0 or -ENOMEM. */
int hl_symbols_dwarf_new(Dwarf *dwarf, struct hl_package *package, struct hl_strings *strings,
			 struct hl_dwarf **ret_dwarf);

/* How many units have their entries in files that were not found (-gsplit-dwarf). */
size_t hl_symbols_dwarf_missing(const struct hl_dwarf *dwarf);

/*
 * The frames at ${address}, innermost first; ${ret_count} is 0 where DWARF knows no function. The
 * array is valid until the next call. 0 or -ENOMEM.
 */
int hl_symbols_dwarf_find(struct hl_dwarf *dwarf, uint64_t address,
			  const struct hl_dwarf_frame **ret_frames, size_t *ret_count);

/* Source line of ${address} in ${ret_file} and ${ret_line}; "" and 0 when not known. */
void hl_symbols_dwarf_find_line(struct hl_dwarf *dwarf, uint64_t address, const char **ret_file,
				uint32_t *ret_line);

void hl_symbols_dwarf_free(struct hl_dwarf *dwarf);
