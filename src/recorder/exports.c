/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks up exported functions; see modules.h. */
#include "recorder/modules.h"

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

static bool is_prefix(const char *prefix, const char *name)
{
	for (; *prefix && *prefix == *name; prefix++)
		name++;
	return !*prefix;
}

/* The table: counts of buckets, of symbols outside of it, of words of a filter, a shift; the filter;
 * for each bucket the first symbol; for each symbol its hash, odd for the last one of a bucket. */
struct table {
	uint32_t bucket_count, first, filter_words, shift;
	const uint64_t *filter;
	const uint32_t *buckets, *hashes;
};

static struct table table_of(const struct hl_exports *exports)
{
	const uint32_t *head = exports->hash;

	if (!head)
		return (struct table){0};
	const uint32_t *buckets = head + 4 + 2 * head[2];
	return (struct table){
		head[0], head[1],	   head[2], head[3], (const uint64_t *)(head + 4),
		buckets, buckets + head[0]};
}

/* What a module takes from others comes before what it exports; where it exports nothing, the table does not tell how much that is. */
bool hl_exports_may_take(const struct hl_exports *exports, const char *name)
{
	struct table table = table_of(exports);
	bool may = !table.bucket_count || (table.bucket_count == 1 && !table.buckets[0]);

	for (uint32_t i = 1; i < table.first && !may; i++) {
		const char *found = exports->names + exports->symbols[i].st_name;
		may = is_prefix(name, found) && is_prefix(found, name);
	}
	return may;
}

static bool is_function(const Elf64_Sym *symbol)
{
	return ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx;
}

static const char *name_of(const struct hl_exports *exports, const Elf64_Sym *symbol)
{
	return is_function(symbol) ? exports->names + symbol->st_name : "";
}

/* The first symbol called ${name} in a bucket, from number ${at} on; NULL: none. */
static const Elf64_Sym *find_from(const struct hl_exports *exports, const char *name, uint32_t hash,
				  uint32_t at)
{
	struct table table = table_of(exports);

	for (; at >= table.first; at++) {
		const Elf64_Sym *symbol = &exports->symbols[at];
		const char *found = exports->names + symbol->st_name;
		if ((table.hashes[at - table.first] | 1) == (hash | 1) && symbol->st_shndx &&
		    is_prefix(name, found) && is_prefix(found, name))
			return symbol;
		if (table.hashes[at - table.first] & 1)
			break;
	}
	return NULL;
}

/* Most names that are looked for are not there, and the filter says so. */
static bool may_have(const struct table *table, uint32_t hash)
{
	uint64_t bits = UINT64_C(1) << hash % 64 | UINT64_C(1) << (hash >> table->shift) % 64;

	return !table->filter_words ||
	       (table->filter[hash / 64 % table->filter_words] & bits) == bits;
}

const Elf64_Sym *hl_exports_symbol(const struct hl_exports *exports, const char *name)
{
	struct table table = table_of(exports);
	uint32_t hash = hash_of(name);

	return table.bucket_count && may_have(&table, hash)
		       ? find_from(exports, name, hash, table.buckets[hash % table.bucket_count])
		       : NULL;
}

const Elf64_Sym *hl_exports_next_version(const struct hl_exports *exports, const Elf64_Sym *symbol)
{
	const char *name = exports->names + symbol->st_name;
	uint32_t at = (uint32_t)(symbol - exports->symbols);
	struct table table = table_of(exports);

	return table.hashes[at - table.first] & 1 ? NULL
						  : find_from(exports, name, hash_of(name), at + 1);
}

void hl_exports_each(const struct hl_exports *exports, hl_exports_visit_fn *visit, void *context)
{
	struct table table = table_of(exports);

	for (uint32_t i = 0; i < table.bucket_count; i++)
		for (uint32_t at = table.buckets[i]; at >= table.first; at++) {
			if (is_function(&exports->symbols[at]))
				visit(context, exports, &exports->symbols[at]);
			if (table.hashes[at - table.first] & 1)
				break;
		}
}

uint64_t hl_exports_find(const struct hl_exports *exports, const char *name)
{
	const Elf64_Sym *symbol = hl_exports_symbol(exports, name);

	return symbol && is_function(symbol) ? exports->load_bias + symbol->st_value : 0;
}

void hl_exports_range(const struct hl_exports *exports, const char *prefix, uint64_t inside,
		      uint64_t *ret_start, uint64_t *ret_end)
{
	struct table table = table_of(exports);
	uint64_t first = inside, last = inside, low = 0, high = UINT64_MAX;

	for (uint32_t i = 0; i < table.bucket_count; i++)
		for (uint32_t at = table.buckets[i]; at >= table.first; at++) {
			const Elf64_Sym *symbol = &exports->symbols[at];
			const char *name = name_of(exports, symbol);
			uint64_t start = exports->load_bias + symbol->st_value;
			uint64_t end = start + symbol->st_size;
			if (is_prefix(prefix, name)) {
				first = start < first ? start : first;
				last = end > last ? end : last;
			} else if (*name && end <= inside) {
				low = end > low ? end : low;
			} else if (*name && start > inside) {
				high = start < high ? start : high;
			}
			if (table.hashes[at - table.first] & 1)
				break;
		}
	*ret_start = first > low ? first : low;
	*ret_end = last < high ? last : high;
}
