/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A .dwp package: the split units (-gsplit-dwarf) of one program, which libdw reads itself from 0.191 on. An index gives
 * each unit its parts of the package's sections: DWARF 5, section 7.3.5, and its draft for DWARF 4.
 * Packages are not trusted: a damaged one has fewer units.
 */
#pragma once

#include <elfutils/libdw.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
