/* SPDX-License-Identifier: BSD-2-Clause */
/* What a loaded module exports, read from its dynamic section in memory. Takes no lock. */
#pragma once

#include <elf.h>
#include <stdint.h>

struct hl_exports {
	uint64_t load_bias;
	const Elf64_Sym *symbols;
	const char *names;
	const uint32_t *hash; /* DT_GNU_HASH; NULL: nothing is found */
};

/* ${dynamic}: the module's dynamic section; NULL: it has none. */
struct hl_exports hl_exports_of(const Elf64_Dyn *dynamic, uint64_t load_bias);

/*
 * The code around ${inside}, an exported function whose name begins with ${prefix}: from the first to
 * the last of such functions without another exported one in between.
 */
void hl_exports_range(const struct hl_exports *exports, const char *prefix, uint64_t inside,
		      uint64_t *ret_start, uint64_t *ret_end);

/* The address of the function called ${name}, or 0. */
uint64_t hl_exports_find(const struct hl_exports *exports, const char *name);

/* The symbol called ${name}, a function's or a variable's; NULL if there is none. */
const Elf64_Sym *hl_exports_symbol(const struct hl_exports *exports, const char *name);

/* Another definition of the name of ${symbol}, of another version; NULL if there is none after it. */
const Elf64_Sym *hl_exports_next_version(const struct hl_exports *exports, const Elf64_Sym *symbol);

typedef void hl_exports_visit_fn(void *context, const struct hl_exports *exports,
				 const Elf64_Sym *symbol);

/* Calls ${visit} for each exported function. */
void hl_exports_each(const struct hl_exports *exports, hl_exports_visit_fn *visit, void *context);
