/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks up exported functions; see exports.h. */
#include "recorder/exports.h"

#include <stdbool.h>
#include <stddef.h>

/* glibc's loader has added the bias to addresses in the section; others leave it as it was. */
static const void *address_in(uint64_t address, uint64_t load_bias)
{
	return (const void *)(address < load_bias ? address + load_bias : address);
}

struct hl_exports hl_exports_of(const Elf64_Dyn *dynamic, uint64_t load_bias)
{
	struct hl_exports exports = {.load_bias = load_bias};

	for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
		const void *address = address_in(dynamic->d_un.d_ptr, load_bias);
		if (dynamic->d_tag == DT_SYMTAB)
			exports.symbols = address;
		else if (dynamic->d_tag == DT_STRTAB)
			exports.names = address;
		else if (dynamic->d_tag == DT_GNU_HASH)
			exports.hash = address;
	}
	if (!exports.symbols || !exports.names)
		exports.hash = NULL;
	return exports;
}

static uint32_t hash_of(const char *name)
{
	uint32_t hash = 5381;

	for (; *name; name++)
		hash = hash * 33 + (uint8_t)*name;
	return hash;
}

static bool is_same(const char *a, const char *b)
{
	for (; *a && *a == *b; a++)
		b++;
	return *a == *b;
}

/* The table: counts of buckets, of symbols outside of it, of words of a filter, a shift; the filter;
 * for each bucket the first symbol; for each symbol its hash, odd for the last one of a bucket. */
uint64_t hl_exports_find(const struct hl_exports *exports, const char *name)
{
	const uint32_t *table = exports->hash;
	uint32_t hash = hash_of(name);

	if (!table || !table[0])
		return 0;
	const uint32_t *buckets = table + 4 + 2 * table[2], *hashes = buckets + table[0];
	uint32_t first = table[1], at = buckets[hash % table[0]];
	for (; at >= first; at++) {
		const Elf64_Sym *symbol = &exports->symbols[at];
		if ((hashes[at - first] | 1) == (hash | 1) &&
		    ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx &&
		    is_same(exports->names + symbol->st_name, name))
			return exports->load_bias + symbol->st_value;
		if (hashes[at - first] & 1)
			break;
	}
	return 0;
}
