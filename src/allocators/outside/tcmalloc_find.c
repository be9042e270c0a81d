/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the variables of gperftools' tcmalloc; see tcmalloc.h. */
#include "allocators/outside/tcmalloc.h"

#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the page map ---- */

/* 0 where there is none. */
static uint64_t read_word(struct hl_tcmalloc *tcmalloc, struct hl_memory *memory, uint64_t address)
{
	uint64_t word;

	return hl_tcmalloc_read(tcmalloc, memory, address, &word, sizeof(word)) ? word : 0;
}

/* The descriptor that the page map has for ${page}; 0: none. */
static uint64_t look_up(struct hl_tcmalloc *tcmalloc, struct hl_memory *memory, uint64_t page)
{
	uint32_t leaf = tcmalloc->leaf_bits, inner = tcmalloc->inner_bits;

	if (page >> (leaf + inner + tcmalloc->root_bits))
		return 0;
	uint64_t node = read_word(tcmalloc, memory, tcmalloc->root + 8 * (page >> (leaf + inner)));
	if (node && inner)
		node = read_word(tcmalloc, memory,
				 node + 8 * (page >> leaf & ((UINT64_C(1) << inner) - 1)));
	return node ? read_word(tcmalloc, memory, node + 8 * (page & ((UINT64_C(1) << leaf) - 1)))
		    : 0;
}

/* ---- a module's variables ---- */

/* Searches no more of a module's variables; the page map's root alone is 1 MiB. */
#define VARIABLES_MAX (UINT64_C(64) << 20)

struct variables {
	uint64_t start;
	size_t count; /* words */
	uint64_t *words;
};

static uint64_t address_of(const struct variables *variables, size_t at)
{
	return variables->start + 8 * at;
}

enum {
	NEXT = HL_TCMALLOC_SPAN_NEXT / 8,
	PREV = HL_TCMALLOC_SPAN_PREV / 8,
	HEAD = HL_TCMALLOC_SPAN_BYTES / 8
};

/* Whether an empty list begins at this word: its head names itself. */
static bool is_empty_list(const struct variables *variables, size_t at)
{
	uint64_t self = address_of(variables, at);

	return at + HEAD <= variables->count && variables->words[at + NEXT] == self &&
	       variables->words[at + PREV] == self;
}

static bool is_pointer(uint64_t word)
{
	return word >= 4096 && word % 8 == 0 && word >> 48 == 0;
}

/* Whether a list, empty or not, may begin there. */
static bool may_be_list(const struct variables *variables, size_t at)
{
	if (at + HEAD > variables->count)
		return false;
	uint64_t self = address_of(variables, at), next = variables->words[at + NEXT];
	uint64_t prev = variables->words[at + PREV];

	return is_pointer(next) && is_pointer(prev) && (next == self) == (prev == self);
}

/* ---- central lists ---- */

static bool is_central(const struct variables *variables, size_t at, uint64_t number)
{
	const uint64_t *words = variables->words + at;

	return at + HL_TCMALLOC_CENTRAL_SMALL / 8 <= variables->count &&
	       words[HL_TCMALLOC_CENTRAL_CLASS / 8] == number &&
	       may_be_list(variables, at + HL_TCMALLOC_CENTRAL_EMPTY / 8) &&
	       may_be_list(variables, at + HL_TCMALLOC_CENTRAL_NONEMPTY / 8);
}

/* Class 0 has no blocks: both of its lists are empty, always. */
static bool find_central(const struct variables *variables, struct hl_tcmalloc *tcmalloc)
{
	static const uint32_t strides[] = {HL_TCMALLOC_CENTRAL_BYTES, HL_TCMALLOC_CENTRAL_SMALL};

	for (size_t at = 0; at + HL_TCMALLOC_CENTRAL_SMALL / 8 <= variables->count; at++) {
		if (!is_empty_list(variables, at + HL_TCMALLOC_CENTRAL_EMPTY / 8) ||
		    !is_empty_list(variables, at + HL_TCMALLOC_CENTRAL_NONEMPTY / 8) ||
		    variables->words[at + HL_TCMALLOC_CENTRAL_CLASS / 8])
			continue;
		for (size_t i = 0; i < HL_COUNT_OF(strides); i++) {
			uint32_t number = 1;
			while (number < HL_TCMALLOC_CLASSES_MAX &&
			       is_central(variables, at + number * strides[i] / 8, number))
				number++;
			if (number == 1)
				continue;
			tcmalloc->central = address_of(variables, at);
			tcmalloc->central_bytes = strides[i];
			tcmalloc->class_count = number;
			return true;
		}
	}
	return false;
}

/* ---- classes of size ---- */

#define LARGEST_SMALL  262144u /* bytes of a block of the last class */
#define SPAN_PAGES_MAX 4096u   /* of blocks of one class */

/* As tcmalloc numbers requests of ${bytes} in the table of their classes. */
static size_t index_of(uint32_t bytes)
{
	return bytes <= 1024 ? (bytes + 7) / 8 : (bytes + 127 + (120 << 7)) >> 7;
}

static uint32_t half(const struct variables *variables, size_t at)
{
	uint32_t number;

	memcpy(&number, (const uint8_t *)variables->words + 4 * at, sizeof(number));
	return number;
}

/* Reads the classes at the table of their sizes; the tables around it have room for all classes. */
static bool read_classes(const struct variables *variables, size_t at, struct hl_tcmalloc *tcmalloc)
{
	enum {
		TABLE = ((LARGEST_SMALL + 127 + (120 << 7)) >> 7) + 1,
		ROOM = HL_TCMALLOC_CLASSES_MAX
	};
	size_t table = 4 * (at - ROOM), pages = (at + ROOM + 1) / 2;
	const uint8_t *by_size = (const uint8_t *)variables->words + table - (TABLE + 3) / 4 * 4;
	uint32_t count = tcmalloc->class_count;

	if (table < TABLE + 3 || pages + ROOM > variables->count ||
	    half(variables, at + count - 1) != LARGEST_SMALL)
		return false;
	for (uint32_t i = 1; i < count; i++) {
		struct hl_tcmalloc_class *class = &tcmalloc->classes[i];
		class->bytes = half(variables, at + i);
		class->batch = half(variables, at - ROOM + i);
		class->pages = (uint32_t)variables->words[pages + i];
		class->inverse = class->bytes ? (UINT64_C(1) << 32) / class->bytes + 1 : 0;
		if (class->bytes <= tcmalloc->classes[i - 1].bytes ||
		    class->bytes > LARGEST_SMALL || by_size[index_of(class->bytes)] != i ||
		    variables->words[pages + i] - 1 >= SPAN_PAGES_MAX)
			return false;
	}
	return true;
}

static bool find_classes(const struct variables *variables, struct hl_tcmalloc *tcmalloc)
{
	for (size_t at = HL_TCMALLOC_CLASSES_MAX;
	     at + HL_TCMALLOC_CLASSES_MAX < 2 * variables->count; at++)
		if (half(variables, at + 1) == 8 && half(variables, at) == 0 &&
		    half(variables, at + 2) == 16 && read_classes(variables, at, tcmalloc))
			return true;
	return false;
}

/* ---- the page heap ---- */

/* How the page map divides a page's number. ${address_bits}: 48, or 64 where a machine's addresses may be so long. */
static void set_levels(struct hl_tcmalloc *tcmalloc, uint32_t address_bits, uint32_t levels)
{
	uint32_t bits = address_bits - tcmalloc->page_shift;

	tcmalloc->levels = levels;
	tcmalloc->inner_bits = levels == 3 ? (bits + 2) / 3 : 0;
	tcmalloc->leaf_bits = levels == 3 ? bits - 2 * tcmalloc->inner_bits : (bits + 1) / 2;
	tcmalloc->root_bits = bits - tcmalloc->inner_bits - tcmalloc->leaf_bits;
}

/* Counts in ${ret_bad} how often the page map does not lead back to the first span of a list. Returns how often it does. */
static uint32_t check_list(struct hl_memory *memory, const struct variables *variables, size_t at,
			   struct hl_tcmalloc *tcmalloc, uint32_t *ret_bad)
{
	uint64_t self = address_of(variables, at), span = variables->words[at + NEXT];
	uint8_t bytes[HL_TCMALLOC_SPAN_BYTES];

	if (span == self)
		return 0;
	bool fits =
		hl_tcmalloc_read(tcmalloc, memory, span, bytes, sizeof(bytes)) &&
		look_up(tcmalloc, memory, hl_tcmalloc_word(bytes + HL_TCMALLOC_SPAN_START)) == span;
	*ret_bad += !fits;
	return fits;
}

/* Lists change while a process runs: most must fit. */
static bool check_map(struct hl_memory *memory, const struct variables *variables, size_t first,
		      size_t count, struct hl_tcmalloc *tcmalloc)
{
	enum { ENOUGH = 64 };
	size_t central = (tcmalloc->central - variables->start) / 8;
	uint32_t good = 0, bad = 0;

	for (size_t i = 0; i < count && good + bad < ENOUGH; i++)
		good += check_list(memory, variables, first + i * HEAD, tcmalloc, &bad);
	for (uint32_t i = 1; i < tcmalloc->class_count; i++) {
		size_t at = central + i * tcmalloc->central_bytes / 8;
		good += check_list(memory, variables, at + HL_TCMALLOC_CENTRAL_EMPTY / 8, tcmalloc,
				   &bad);
		good += check_list(memory, variables, at + HL_TCMALLOC_CENTRAL_NONEMPTY / 8,
				   tcmalloc, &bad);
	}
	return good > 3 * bad;
}

/* Finds the root before the ${count} lists from ${first} on: between them are the map's function that allocates, and two sets
 * of free spans, whose size depends on the library of C++. */
static bool find_root(struct hl_memory *memory, const struct variables *variables, size_t first,
		      size_t count, struct hl_tcmalloc *tcmalloc)
{
	static const struct {
		uint32_t address_bits, levels;
	} maps[] = {{48, 2}, {48, 3}, {64, 3}};
	static const size_t set_words[] = {6, 3}; /* libstdc++, libc++ */

	tcmalloc->page_heap = address_of(variables, first);
	for (size_t i = 0; i < HL_COUNT_OF(maps); i++)
		for (size_t k = 0; k < HL_COUNT_OF(set_words); k++) {
			set_levels(tcmalloc, maps[i].address_bits, maps[i].levels);
			size_t before = 2 * set_words[k] + 1 +
					((size_t)1 << (maps[i].levels == 3 ? tcmalloc->inner_bits
									   : tcmalloc->root_bits));
			if (before > first ||
			    !is_pointer(variables->words[first - 2 * set_words[k] - 1] &
					~UINT64_C(7)))
				continue;
			tcmalloc->root = address_of(variables, first - before);
			if (check_map(memory, variables, first, count, tcmalloc))
				return true;
		}
	return false;
}

/* Whether the heap's sums follow the lists: what it got from the system is in use by pages or was returned. */
static bool are_sums(const struct variables *variables, size_t at)
{
	enum { SYSTEM, FREE, UNMAPPED, COMMITTED };
	const uint64_t *words = variables->words + at;

	return at + COMMITTED < variables->count && words[SYSTEM] && words[SYSTEM] % 4096 == 0 &&
	       words[FREE] <= words[COMMITTED] &&
	       words[UNMAPPED] + words[COMMITTED] == words[SYSTEM];
}

/* Whether the run of lists before word ${end} is the page heap's: two for each length up to 1 MiB. */
static bool is_page_heap(struct hl_memory *memory, const struct variables *variables, size_t end,
			 size_t lists, struct hl_tcmalloc *tcmalloc)
{
	enum { SHIFT_MIN = 12, SHIFT_MAX = 18, LENGTHS_SHIFT = 20 };

	if (!are_sums(variables, end))
		return false;
	for (uint32_t shift = SHIFT_MIN; shift <= SHIFT_MAX; shift++) {
		size_t count = (size_t)2 << (LENGTHS_SHIFT - shift);
		if (count > lists)
			continue;
		tcmalloc->page_shift = shift;
		if (find_root(memory, variables, end - count * HEAD, count, tcmalloc))
			return true;
	}
	return false;
}

static bool find_page_heap(struct hl_memory *memory, const struct variables *variables,
			   struct hl_tcmalloc *tcmalloc)
{
	enum { BEYOND = 4 }; /* what follows the lists may look like one */
	size_t at = 0;

	while (at + HEAD <= variables->count) {
		size_t first = at, end = at + HEAD;
		if (!is_empty_list(variables, at)) {
			at++;
			continue;
		}
		while (first >= HEAD && may_be_list(variables, first - HEAD))
			first -= HEAD;
		while (may_be_list(variables, end))
			end += HEAD;
		for (size_t i = 0; i < BEYOND && end - i * HEAD > at; i++)
			if (is_page_heap(memory, variables, end - i * HEAD,
					 (end - first) / HEAD - i, tcmalloc))
				return true;
		at = end > at + HEAD ? end : at + 1;
	}
	return false;
}

/* ---- thread caches ---- */

bool hl_tcmalloc_is_cache(const struct hl_tcmalloc *tcmalloc, const uint8_t *bytes)
{
	for (uint32_t i = 0; i < tcmalloc->class_count; i++) {
		uint32_t size;
		memcpy(&size, bytes + i * HL_TCMALLOC_LIST_BYTES + HL_TCMALLOC_LIST_SIZE,
		       sizeof(size));
		if (size != tcmalloc->classes[i].bytes)
			return false;
	}
	return true;
}

static bool has_cache(struct hl_memory *memory, const struct variables *variables,
		      struct hl_tcmalloc *tcmalloc)
{
	uint8_t bytes[HL_TCMALLOC_CACHE_BYTES];
	uint64_t before = 0;

	for (size_t at = 0; at < variables->count; at++) {
		uint64_t word = variables->words[at];
		if (word == before || !is_pointer(word) ||
		    (word >= variables->start && word < address_of(variables, variables->count)) ||
		    !hl_maps_find(&memory->maps, word))
			continue;
		before = word;
		if (hl_tcmalloc_read(tcmalloc, memory, word, bytes, sizeof(bytes)) &&
		    hl_tcmalloc_is_cache(tcmalloc, bytes))
			return true;
	}
	return false;
}

/* ---- the whole ---- */

/* 0; -ENOTSUP: it is not in this module, with a sentence if parts of it are. */
static int search(struct hl_memory *memory, const struct variables *variables,
		  struct hl_tcmalloc *tcmalloc, struct hl_error *err)
{
	const char *missing = NULL;

	if (!find_central(variables, tcmalloc))
		return -ENOTSUP;
	if (!find_classes(variables, tcmalloc))
		missing = "classes of size";
	else if (!find_page_heap(memory, variables, tcmalloc))
		missing = "page heap";
	else if (!has_cache(memory, variables, tcmalloc))
		missing = "thread caches";
	if (tcmalloc->out_of_memory)
		return -ENOMEM;
	if (!missing)
		return 0;
	return hl_error_set(err, -ENOTSUP, "its %s are not as in gperftools 2.9 to 2.18", missing);
}

static bool is_variables(const struct hl_map *map)
{
	return map->flags & HL_MAP_WRITE && !(map->flags & (HL_MAP_SHARED | HL_MAP_RECORDER));
}

/* The variables from map ${first} on: those of a file, and what follows without one. */
static uint64_t end_of_variables(const struct hl_maps *maps, size_t first)
{
	size_t i = first;

	while (i + 1 < maps->count && maps->maps[i + 1].start == maps->maps[i].end &&
	       is_variables(&maps->maps[i + 1]) && !maps->maps[i + 1].inode)
		i++;
	uint64_t start = maps->maps[first].start, end = maps->maps[i].end;
	return end - start > VARIABLES_MAX ? start + VARIABLES_MAX : end;
}

static int read_variables(struct hl_memory *memory, uint64_t start, uint64_t end,
			  struct variables *ret_variables)
{
	HL_CLEANUP(hl_pages_release) struct hl_pages pages = {0};
	uint8_t *bytes = calloc(1, end - start);
	int r = bytes ? hl_memory_scan(memory, start, end, &pages) : -ENOMEM;

	for (size_t i = 0; r == 0 && i < pages.count; i++)
		(void)hl_memory_read(memory, pages.runs[i].start,
				     bytes + (pages.runs[i].start - start),
				     pages.runs[i].end - pages.runs[i].start);
	if (r < 0) {
		free(bytes);
		return r;
	}
	*ret_variables = (struct variables){start, (end - start) / 8, (uint64_t *)(void *)bytes};
	return 0;
}

int hl_tcmalloc_find(struct hl_memory *memory, struct hl_tcmalloc *ret_tcmalloc,
		     struct hl_error *err)
{
	enum { TRIES = 3 };
	const struct hl_maps *maps = &memory->maps;
	int result = -ENOTSUP;

	for (size_t i = 0; i < maps->count; i++) {
		struct hl_tcmalloc tcmalloc = {.variables_start = maps->maps[i].start};
		if (!is_variables(&maps->maps[i]) || !maps->maps[i].inode)
			continue;
		tcmalloc.variables_end = end_of_variables(maps, i);
		for (unsigned k = 0; k < TRIES; k++) {
			struct variables variables;
			struct hl_error why = {0};
			int r = read_variables(memory, tcmalloc.variables_start,
					       tcmalloc.variables_end, &variables);
			if (r == -ENOMEM)
				return r;
			if (r < 0)
				break;
			r = search(memory, &variables, &tcmalloc, &why);
			free(variables.words);
			if (r == 0) {
				*ret_tcmalloc = tcmalloc;
				return 0;
			}
			if (r == -ENOMEM)
				return r;
			if (!why.text[0])
				break;
			if (k + 1 == TRIES)
				result = hl_error_set(err, r, "%s", why.text);
		}
	}
	return result;
}
