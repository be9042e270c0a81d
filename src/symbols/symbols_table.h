/* SPDX-License-Identifier: BSD-2-Clause */
/* The function symbols of an ELF file, sorted; and where functions begin, by its unwind tables. */
#pragma once

#include <elfutils/libdwfl.h>
#include <stddef.h>
#include <stdint.h>

struct hl_symbols_table {
	struct hl_symbols_entry *entries; /* by address, one for each */
	size_t count;
	const unsigned char *unwind_starts; /* .eh_frame_hdr's table: pairs of int32 relative to
					       unwind_base; belongs to the module */
	size_t unwind_count;
	uint64_t unwind_base;
};

/* Reads the tables of ${module}, whose names stay its property. 0 or -ENOMEM. */
int hl_symbols_table_init(struct hl_symbols_table *table, Dwfl_Module *module);

void hl_symbols_table_release(struct hl_symbols_table *table);

/* The name of the function at ${address} as it stands in the table (mangled), or NULL. */
const char *hl_symbols_table_find(const struct hl_symbols_table *table, uint64_t address);

/* Where the function around ${address} begins; ${address} itself when that is not known. */
uint64_t hl_symbols_table_function_start(const struct hl_symbols_table *table, uint64_t address);
