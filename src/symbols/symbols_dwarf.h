/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * DWARF, indexed for lookups of many addresses: each compilation unit, when first met, becomes one
 * sorted array of address segments, each with its innermost function, real or inlined.
 */
#pragma once

#include "symbols/symbols.h"

#include "base/strings.h"

#include <elfutils/libdw.h>

struct hl_dwarf;

struct hl_dwarf_frame {
	struct hl_symbols_frame frame;
	bool has_linkage_name; /* else `function` is without parameters */
};

/* Lists the units of ${dwarf}, which must outlive it, as must ${strings}, where names are kept. 0
 * or -ENOMEM. */
int hl_dwarf_new(Dwarf *dwarf, struct hl_strings *strings, struct hl_dwarf **ret_dwarf);

/*
 * The frames at ${address}, innermost first; ${ret_count} is 0 where DWARF knows no function. The
 * array is valid until the next call. 0 or -ENOMEM.
 */
int hl_dwarf_find(struct hl_dwarf *dwarf, uint64_t address,
		  const struct hl_dwarf_frame **ret_frames, size_t *ret_count);

/* Source line of ${address} in ${ret_file} and ${ret_line}; "" and 0 when not known. */
void hl_dwarf_find_line(struct hl_dwarf *dwarf, uint64_t address, const char **ret_file,
			uint32_t *ret_line);

void hl_dwarf_free(struct hl_dwarf *dwarf);
