/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds jemalloc's tree of pages by what its leaves lead to, and lists the extents; see jemalloc.h. */
#include "allocators/outside/jemalloc.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/machine.h"

#include <errno.h>
#include <stdlib.h>

#define TRIES	      3u		    /* how often an extent is read until it fits */
#define VARIABLES_MAX (UINT64_C(256) << 20) /* searches no more of a module's variables */
#define ROOT_WORDS    128u
#define ROOT_USED_MAX \
	16u /* of these; the last of many that are used in a row have less behind them */
#define CANDIDATES_MAX 2000u		     /* words of a module that might lead to a leaf */
#define ELEMENTS_MAX   64u		     /* of a leaf, to prove it */
#define CHUNK	       (UINT64_C(256) << 10) /* is read at once */
#define REPEATS_MAX    16u		     /* nodes that are read again */
#define EXTENTS_MAX    (UINT64_C(1) << 28)

const struct hl_jemalloc_layout hl_jemalloc_layouts[] = {
	{.releases = "5.3",
	 .descriptor_alignment = 128,
	 .state_bits = 3,
	 .state_shift = 17,
	 .class_shift = 20,
	 .free_shift = 28},
	{.releases = "5.2",
	 .descriptor_alignment = 64,
	 .state_bits = 2,
	 .state_shift = 16,
	 .class_shift = 18,
	 .free_shift = 26,
	 .is_5_2 = true},
};
const size_t hl_jemalloc_layout_count = HL_COUNT_OF(hl_jemalloc_layouts);

/* Built for addresses of 48 and of 57 bits, and for pages of 64 KiB: their bits of places have sums above them. */
#define SMALL_PAGES .page_bits = 12, .page = 1 << 12, .places = 512, .descriptor_bytes = 64 + 64
#define LARGE_PAGES \
	.page_bits = 16, .page = 1 << 16, .places = 8192, .descriptor_bytes = 64 + 131 * 8
const struct hl_jemalloc_shape hl_jemalloc_shapes[] = {
	{SMALL_PAGES, .levels = 2, .bits = {18, 18}, .element_bytes = 8},
	{SMALL_PAGES, .levels = 3, .bits = {15, 15, 15}, .element_bytes = 16},
	{LARGE_PAGES, .levels = 2, .bits = {16, 16}, .element_bytes = 8},
};
const size_t hl_jemalloc_shape_count = HL_COUNT_OF(hl_jemalloc_shapes);

/* ---- descriptors ---- */

/* Reads ${bytes} as the beginning of the descriptor at ${address}. False: it cannot be one of an extent. */
static bool parse(const struct hl_jemalloc *jemalloc, uint64_t address, const uint8_t *bytes,
		  struct hl_jemalloc_extent *ret_extent)
{
	const struct hl_jemalloc_layout *layout = jemalloc->layout;
	uint64_t page_mask = ~(jemalloc->shape->page - 1);
	uint64_t bits = hl_jemalloc_word(bytes);
	uint64_t block = hl_jemalloc_word(bytes + HL_JEMALLOC_AT_BLOCK);
	uint64_t size = hl_jemalloc_word(bytes + HL_JEMALLOC_AT_SIZE) & page_mask;
	uint64_t start = block & page_mask;

	if (!start || !size || start + size < start)
		return false;
	*ret_extent = (struct hl_jemalloc_extent){
		.start = start,
		.end = start + size,
		.block = block,
		.descriptor = address,
		.arena = bits & (HL_JEMALLOC_ARENAS - 1),
		.is_slab = bits >> 12 & 1,
		.is_of_huge_page = !layout->is_5_2 && bits >> 14 & 1,
		.state = (uint32_t)(bits >> layout->state_shift) & ((1u << layout->state_bits) - 1),
		.size_class = bits >> layout->class_shift & 255,
		.free_places =
			(uint32_t)(bits >> layout->free_shift) & (2 * jemalloc->shape->places - 1)};
	return ret_extent->arena != HL_JEMALLOC_NO_ARENA;
}

/* Notes which places of a slab are free, as the descriptor's ${bytes} have them. 0 or -ENOMEM. */
static int keep_places(struct hl_jemalloc *jemalloc, const uint8_t *bytes,
		       struct hl_jemalloc_extent *extent)
{
	size_t words = extent->is_slab ? jemalloc->shape->places / 64 : 0;
	int r = HL_ARRAY_RESERVE(jemalloc->free_places, jemalloc->free_capacity,
				 jemalloc->free_count + words);

	if (r < 0 || !words)
		return r;
	extent->free_at = jemalloc->free_count;
	memcpy(jemalloc->free_places + extent->free_at, bytes + HL_JEMALLOC_HEAD_BYTES, 8 * words);
	jemalloc->free_count += words;
	return 0;
}

/* The descriptor that a leaf element names; 0: none. */
static uint64_t descriptor_of(const struct hl_jemalloc *jemalloc, const uint8_t *element)
{
	uint64_t word = hl_jemalloc_word(element);

	if (jemalloc->shape->element_bytes == 8)
		word &= (UINT64_C(1) << 48) -
			1; /* no program has bit 47 on x86-64, as it has on aarch64 */
	return word & ~(uint64_t)(jemalloc->layout->descriptor_alignment - 1);
}

/* Whether a leaf element says the same of an extent as its descriptor. */
static bool agrees(const struct hl_jemalloc *jemalloc, const uint8_t *element,
		   const struct hl_jemalloc_extent *extent)
{
	const struct hl_jemalloc_layout *layout = jemalloc->layout;
	uint64_t word = hl_jemalloc_word(element), size_class, low = word;

	if (jemalloc->shape->element_bytes == 8) {
		size_class = word >> 48 & 255;
	} else {
		low = hl_jemalloc_word(element + 8);
		size_class = layout->is_5_2 ? low & UINT32_MAX : low >> 5 & 255;
		low = layout->is_5_2 ? low >> 32 : low;
	}
	if (hl_jemalloc_has_blocks(extent) &&
	    (size_class != extent->size_class || (low & 1) != extent->is_slab))
		return false;
	return layout->is_5_2 ? (low & 62) == 0 : (low >> 2 & 7) == extent->state;
}

/* ---- arrays of words ---- */

typedef int visit_element(void *context, uint64_t index, const uint8_t *element);

/* Calls ${visit} for each element of an array that is not 0 and in memory, until it returns non-zero; returns that. */
static int each_element(struct hl_memory *memory, uint64_t array, uint64_t count, uint64_t bytes,
			visit_element *visit, void *context)
{
	HL_CLEANUP(hl_pages_release) struct hl_pages pages = {0};
	HL_FREED uint8_t *buffer = malloc(CHUNK);
	uint64_t mask = memory->page_bytes - 1, end = array + count * bytes;
	int r = buffer ? hl_memory_scan(memory, array & ~mask, (end + mask) & ~mask, &pages)
		       : -ENOMEM;

	for (size_t i = 0; i < pages.count && r == 0; i++) {
		uint64_t from = pages.runs[i].start > array ? pages.runs[i].start : array;
		uint64_t to = pages.runs[i].end < end ? pages.runs[i].end : end;
		for (uint64_t next; from < to && r == 0; from = next) {
			next = to - from > CHUNK ? from + CHUNK : to;
			if (hl_memory_read(memory, from, buffer, next - from) < 0)
				continue; /* gone meanwhile */
			for (uint64_t at = 0; at + bytes <= next - from && r == 0; at += bytes)
				if (hl_jemalloc_word(buffer + at))
					r = visit(context, (from + at - array) / bytes,
						  buffer + at);
		}
	}
	return r;
}

static uint64_t count_of(const struct hl_jemalloc_shape *shape, uint32_t level)
{
	return UINT64_C(1) << shape->bits[level];
}

static uint64_t array_bytes(const struct hl_jemalloc_shape *shape, uint32_t level)
{
	return count_of(shape, level) *
	       (level + 1 == shape->levels ? shape->element_bytes : sizeof(uint64_t));
}

/* The lowest bit of an address that level ${level} resolves. */
static uint32_t shift_of(const struct hl_jemalloc_shape *shape, uint32_t level)
{
	uint32_t shift = shape->page_bits;

	for (uint32_t i = level + 1; i < shape->levels; i++)
		shift += shape->bits[i];
	return shift;
}

/* Whether an array of ${bytes} can lie at ${address}, in memory that has no file. */
static bool can_be_array(const struct hl_maps *maps, uint64_t address, uint64_t bytes)
{
	const struct hl_map *map = address % 64 == 0 ? hl_maps_find(maps, address) : NULL;

	return map && !map->inode && map->flags & HL_MAP_WRITE &&
	       !(map->flags & (HL_MAP_SHARED | HL_MAP_RECORDER)) && bytes <= map->end - address;
}

/* ---- finding it ---- */

/* A leaf that is to be proven. */
struct proof {
	struct hl_memory *memory;
	struct hl_jemalloc *jemalloc;
	uint64_t above;	     /* bits of its addresses that higher levels resolve */
	uint64_t descriptor; /* of the element before */
	uint32_t seen, agreeing;
	bool is_out_of_memory;
};

static int prove_element(void *context, uint64_t index, const uint8_t *element)
{
	struct proof *proof = context;
	const struct hl_jemalloc_shape *shape = proof->jemalloc->shape;
	uint32_t shift = shift_of(shape, shape->levels - 2);
	uint64_t descriptor = descriptor_of(proof->jemalloc, element);
	uint8_t bytes[HL_JEMALLOC_HEAD_BYTES];
	struct hl_jemalloc_extent extent;

	if (!descriptor || descriptor == proof->descriptor)
		return 0;
	proof->descriptor = descriptor;
	proof->seen++;
	int r = hl_memory_read_present(proof->memory, descriptor, bytes, sizeof(bytes));
	proof->is_out_of_memory |= r == -ENOMEM;
	if (r == 0 && parse(proof->jemalloc, descriptor, bytes, &extent) &&
	    agrees(proof->jemalloc, element, &extent)) {
		uint64_t mask = (UINT64_C(1) << shift) - 1, at = index << shape->page_bits;
		uint64_t page = (extent.start & mask) == at
					? extent.start
					: extent.end - proof->jemalloc->shape->page;
		if ((page & mask) == at && (!proof->agreeing || page >> shift == proof->above)) {
			proof->above = page >> shift;
			proof->agreeing++;
		}
	}
	/* What leads nowhere at first is not a leaf. */
	return proof->seen == ELEMENTS_MAX || (proof->seen == 4 && !proof->agreeing) ? 1 : 0;
}

/* Whether there is a leaf at ${address} of one of the releases; sets the one that fits best. */
static bool prove_leaf(struct proof *proof, uint64_t address)
{
	const struct hl_jemalloc_shape *shape = proof->jemalloc->shape;
	const struct hl_jemalloc_layout *best = NULL;
	uint32_t last = shape->levels - 1, most = 0;
	uint64_t above = 0;

	if (!can_be_array(&proof->memory->maps, address, array_bytes(shape, last)))
		return false;
	for (size_t i = 0; i < hl_jemalloc_layout_count; i++) {
		proof->jemalloc->layout = &hl_jemalloc_layouts[i];
		proof->descriptor = 0;
		proof->seen = proof->agreeing = 0;
		int r = each_element(proof->memory, address, count_of(shape, last),
				     shape->element_bytes, prove_element, proof);
		proof->is_out_of_memory |= r == -ENOMEM;
		if (proof->agreeing <= most || proof->agreeing * 2 < proof->seen)
			continue;
		most = proof->agreeing;
		best = proof->jemalloc->layout;
		above = proof->above;
	}
	proof->jemalloc->layout = best;
	proof->above = above;
	return best;
}

/* A node between root and leaves: the first one that it leads to. */
static int prove_child(void *context, uint64_t index, const uint8_t *element)
{
	struct proof *proof = context;
	uint64_t mask = count_of(proof->jemalloc->shape, 1) - 1;

	if (!prove_leaf(proof, hl_jemalloc_word(element)) || (proof->above & mask) != index)
		return -ENOENT;
	proof->above >>= proof->jemalloc->shape->bits[1];
	return 1;
}

/* Whether ${word}, which lies at ${address}, is an element of a root; sets where that begins. */
static bool prove_root(struct proof *proof, uint64_t address, uint64_t word)
{
	struct hl_jemalloc *jemalloc = proof->jemalloc;
	const struct hl_jemalloc_shape *shape = jemalloc->shape;

	if (shape->levels == 2) {
		if (!prove_leaf(proof, word))
			return false;
	} else if (each_element(proof->memory, word, count_of(shape, 1), sizeof(uint64_t),
				prove_child, proof) != 1) {
		return false;
	}
	if (proof->above >= count_of(shape, 0) || address < proof->above * sizeof(uint64_t))
		return false;
	jemalloc->root = address - proof->above * sizeof(uint64_t);
	return jemalloc->root >= jemalloc->variables &&
	       jemalloc->root + array_bytes(shape, 0) <= jemalloc->variables_end;
}

/* Sizes of the classes: some, then four between powers of two. Blocks are multiples of 16 bytes but for those of 8, or of 8. */
static uint32_t list_classes(uint64_t quantum, uint64_t *ret_bytes)
{
	uint32_t count = 0;

	if (quantum > 8)
		ret_bytes[count++] = 8;
	for (uint64_t bytes = quantum; bytes <= 4 * quantum; bytes += quantum)
		ret_bytes[count++] = bytes;
	for (uint64_t base = 4 * quantum; base < UINT64_C(1) << 63; base *= 2)
		for (uint64_t i = 1; i <= 4 && base + base / 4 * i < UINT64_C(1) << 63; i++)
			ret_bytes[count++] = base + base / 4 * i;
	return count;
}

/* The table of sizes is among the module's variables as well. */
static void find_classes(struct hl_jemalloc *jemalloc, const uint8_t *bytes,
			 const struct hl_pages *pages)
{
	static const uint64_t quanta[] = {16, 8};
	uint64_t table[HL_JEMALLOC_CLASSES_MAX];

	for (size_t i = 0; i < HL_COUNT_OF(quanta) && !jemalloc->class_count; i++) {
		uint32_t count = list_classes(quanta[i], table);
		for (size_t k = 0; k < pages->count && !jemalloc->class_count; k++) {
			uint64_t from = pages->runs[k].start - jemalloc->variables;
			uint64_t to = pages->runs[k].end - jemalloc->variables;
			uint64_t all = jemalloc->variables_end - jemalloc->variables;
			for (uint64_t at = from; at < to && at + count * 8 <= all; at += 8)
				if (hl_jemalloc_word(bytes + at) == 8 &&
				    memcmp(bytes + at, table, count * 8) == 0)
					jemalloc->class_count = count;
		}
		if (jemalloc->class_count)
			memcpy(jemalloc->class_bytes, table, count * 8);
	}
	while (jemalloc->slab_classes < jemalloc->class_count &&
	       jemalloc->class_bytes[jemalloc->slab_classes] <= 7 * jemalloc->shape->page / 2)
		jemalloc->slab_classes++;
}

/* A module's variables: of its file, and its .bss, which follows without one. */
static bool find_variables(const struct hl_maps *maps, size_t *at, uint64_t *ret_start,
			   uint64_t *ret_end)
{
	const uint32_t others = HL_MAP_SHARED | HL_MAP_RECORDER;

	for (; *at < maps->count; (*at)++) {
		const struct hl_map *map = &maps->maps[*at], *end = maps->maps + maps->count;
		if (!map->inode || map->flags & others || !(map->flags & HL_MAP_WRITE))
			continue;
		*ret_start = map->start;
		while (map + 1 < end && map[1].start == map->end && map[1].flags & HL_MAP_WRITE &&
		       !(map[1].flags & others) && map->inode)
			map++;
		*ret_end = map->end;
		*at = (size_t)(map - maps->maps) + 1;
		return true;
	}
	return false;
}

struct search {
	struct hl_memory *memory;
	struct hl_jemalloc *first, **last;
};

/* Whether the words around ${words}, of which there are ${before} before and ${count} from there on, may be of a root: most are 0, and the
 * others lead to arrays. Where a program's addresses lead to the last word of a root, as on aarch64, other variables may follow. */
static bool can_be_of_root(const struct hl_maps *maps, const struct hl_jemalloc_shape *shape,
			   const uint8_t *words, uint64_t before, uint64_t count)
{
	uint64_t sure = count_of(shape, 0) - ((HL_USER_END - 1) >> shift_of(shape, 0)), used = 0;
	uint64_t after = sure < ROOT_WORDS ? sure : ROOT_WORDS;

	before = before < ROOT_WORDS - after ? before : ROOT_WORDS - after;
	after = count < after ? count : after;
	words -= before * 8;
	for (uint64_t i = 0; i < before + after; i++) {
		uint64_t word = hl_jemalloc_word(words + i * 8);
		used += word != 0;
		if (word &&
		    (used > ROOT_USED_MAX || !can_be_array(maps, word, array_bytes(shape, 1))))
			return false;
	}
	return true;
}

/* Tries each word of a module's variables, whose copy is ${bytes}. 1: found. */
static int search_words(struct search *search, struct hl_jemalloc *jemalloc, const uint8_t *bytes,
			const struct hl_pages *pages)
{
	uint64_t all = jemalloc->variables_end - jemalloc->variables;
	uint32_t candidates = 0;

	for (size_t i = 0; i < pages->count; i++) {
		uint64_t from = pages->runs[i].start - jemalloc->variables;
		uint64_t to = pages->runs[i].end - jemalloc->variables;
		for (uint64_t at = from; at + 8 <= to; at += 8) {
			uint64_t word = hl_jemalloc_word(bytes + at);
			for (size_t k = 0; word && word % 64 == 0 && k < hl_jemalloc_shape_count;
			     k++) {
				struct proof proof = {.memory = search->memory,
						      .jemalloc = jemalloc};
				jemalloc->shape = &hl_jemalloc_shapes[k];
				if (array_bytes(jemalloc->shape, 0) > all ||
				    !can_be_of_root(&search->memory->maps, jemalloc->shape,
						    bytes + at, at / 8, (all - at) / 8))
					continue;
				if (candidates++ >= CANDIDATES_MAX)
					return 0;
				bool is_root = prove_root(&proof, jemalloc->variables + at, word);
				if (is_root || proof.is_out_of_memory)
					return is_root ? 1 : -ENOMEM;
			}
		}
	}
	return 0;
}

static int search_variables(struct search *search, uint64_t start, uint64_t end)
{
	HL_CLEANUP(hl_pages_release) struct hl_pages pages = {0};
	HL_FREED uint8_t *bytes = NULL;
	uint64_t least = array_bytes(&hl_jemalloc_shapes[1], 0);
	struct hl_jemalloc *jemalloc;

	if (end - start > VARIABLES_MAX)
		end = start + VARIABLES_MAX;
	if (end - start < least)
		return 0;
	int r = hl_memory_scan(search->memory, start, end, &pages);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	bytes = calloc(1, end - start);
	jemalloc = calloc(1, sizeof(*jemalloc));
	for (size_t i = 0; bytes && i < pages.count; i++)
		(void)hl_memory_read(search->memory, pages.runs[i].start,
				     bytes + (pages.runs[i].start - start),
				     pages.runs[i].end - pages.runs[i].start);
	if (bytes && jemalloc) {
		jemalloc->variables = start;
		jemalloc->variables_end = end;
		r = search_words(search, jemalloc, bytes, &pages);
	} else {
		r = -ENOMEM;
	}
	if (r != 1) {
		free(jemalloc);
		return r;
	}
	find_classes(jemalloc, bytes, &pages);
	*search->last = jemalloc;
	search->last = &jemalloc->next;
	return 0;
}

int hl_jemalloc_find(struct hl_memory *memory, struct hl_jemalloc **ret_first)
{
	struct search search = {.memory = memory, .last = &search.first};
	uint64_t start, end;
	size_t at = 0;
	int r = 0;

	while (r == 0 && find_variables(&memory->maps, &at, &start, &end))
		r = search_variables(&search, start, end);
	if (r < 0)
		hl_jemalloc_free(search.first);
	else
		*ret_first = search.first;
	return r;
}

/* ---- listing extents ---- */

/* A leaf element. */
struct element {
	uint64_t descriptor; /* first, to be sorted by it */
	uint64_t page;
	uint8_t bytes[16];
};

struct lister {
	struct hl_memory *memory;
	struct hl_jemalloc *jemalloc;
	uint64_t above; /* as in a proof, of the leaf that is being read */
	struct element *elements;
	size_t count, capacity;
	struct hl_extents nodes;   /* that were read */
	uint32_t repeats;	   /* of those, read again */
	struct hl_addresses again; /* pages whose elements did not fit */
};

static int list_element(void *context, uint64_t index, const uint8_t *bytes)
{
	struct lister *lister = context;
	const struct hl_jemalloc *jemalloc = lister->jemalloc;
	struct element element = {.descriptor = descriptor_of(jemalloc, bytes),
				  .page = lister->above + (index << jemalloc->shape->page_bits)};

	/* What follows the first element of an extent. */
	if (!element.descriptor ||
	    (lister->count && lister->elements[lister->count - 1].descriptor == element.descriptor))
		return 0;
	if (lister->count >= EXTENTS_MAX)
		return -EFBIG;
	memcpy(element.bytes, bytes, jemalloc->shape->element_bytes);
	return HL_ARRAY_APPEND(lister->elements, lister->count, lister->capacity, element);
}

/* Whether a node of level ${level} may be at ${address}, and is to be read. 1, 0, or -ENOMEM. A damaged tree may lead to one node
 * again and again; the element that is right may come later. */
static int claim_node(struct lister *lister, uint64_t address, uint32_t level)
{
	uint64_t bytes = array_bytes(lister->jemalloc->shape, level);

	if (!can_be_array(&lister->memory->maps, address, bytes))
		return 0;
	int r = hl_extents_claim(&lister->nodes, address, address + bytes);
	return r == 0 && lister->repeats++ < REPEATS_MAX ? 1 : r;
}

static int list_leaf(struct lister *lister, uint64_t leaf)
{
	const struct hl_jemalloc_shape *shape = lister->jemalloc->shape;
	uint32_t last = shape->levels - 1;

	int r = claim_node(lister, leaf, last);
	return r == 1 ? each_element(lister->memory, leaf, count_of(shape, last),
				     shape->element_bytes, list_element, lister)
		      : r;
}

static int list_child(void *context, uint64_t index, const uint8_t *element)
{
	struct lister *lister = context;
	uint32_t shift = shift_of(lister->jemalloc->shape, 1);
	uint64_t above = lister->above;

	lister->above += index << shift;
	int r = list_leaf(lister, hl_jemalloc_word(element));
	lister->above = above;
	return r;
}

static int list_root(void *context, uint64_t index, const uint8_t *element)
{
	struct lister *lister = context;
	const struct hl_jemalloc_shape *shape = lister->jemalloc->shape;
	uint64_t child = hl_jemalloc_word(element);

	lister->above = index << shift_of(shape, 0);
	if (shape->levels == 2)
		return list_leaf(lister, child);
	int r = claim_node(lister, child, 1);
	return r == 1 ? each_element(lister->memory, child, count_of(shape, 1), sizeof(uint64_t),
				     list_child, lister)
		      : r;
}

/* Adds the extent of an element, whose descriptor's bytes are there, or has it read again. */
static int add_extent(struct lister *lister, const struct element *element, const uint8_t *bytes)
{
	struct hl_jemalloc *jemalloc = lister->jemalloc;
	struct hl_jemalloc_extent extent;

	if (bytes && parse(jemalloc, element->descriptor, bytes, &extent) &&
	    extent.start == element->page && agrees(jemalloc, element->bytes, &extent)) {
		int r = keep_places(jemalloc, bytes, &extent);
		return r < 0 ? r
			     : HL_ARRAY_APPEND(jemalloc->extents, jemalloc->extent_count,
					       jemalloc->extent_capacity, extent);
	}
	return HL_ARRAY_APPEND(lister->again.addresses, lister->again.count, lister->again.capacity,
			       element->page);
}

/* Reads the descriptors of elements [${first}, ${end}), which lie together. */
static int read_descriptors(struct lister *lister, size_t first, size_t end, uint8_t *buffer)
{
	HL_CLEANUP(hl_pages_release) struct hl_pages pages = {0};
	uint64_t mask = lister->memory->page_bytes - 1;
	uint64_t start = lister->elements[first].descriptor & ~mask;
	uint64_t stop = (lister->elements[end - 1].descriptor +
			 lister->jemalloc->shape->descriptor_bytes + mask) &
			~mask;
	int r = hl_memory_scan(lister->memory, start, stop, &pages);

	if (r == -ENOMEM)
		return r;
	memset(buffer, 0, stop - start);
	for (size_t i = 0; i < pages.count; i++)
		(void)hl_memory_read(lister->memory, pages.runs[i].start,
				     buffer + (pages.runs[i].start - start),
				     pages.runs[i].end - pages.runs[i].start);
	r = 0;
	for (size_t i = first; i < end && r == 0; i++)
		r = add_extent(lister, &lister->elements[i],
			       buffer + (lister->elements[i].descriptor - start));
	return r;
}

static int read_all_descriptors(struct lister *lister)
{
	HL_FREED uint8_t *buffer = malloc(2 * CHUNK);
	int r = buffer ? 0 : -ENOMEM;

	if (lister->count)
		qsort(lister->elements, lister->count, sizeof(*lister->elements),
		      hl_addresses_compare);
	for (size_t i = 0, next; i < lister->count && r == 0; i = next) {
		uint64_t start = lister->elements[i].descriptor;
		if (start > UINT64_MAX - 2 * CHUNK) {
			next = lister->count;
			continue;
		}
		for (next = i + 1;
		     next < lister->count && lister->elements[next].descriptor - start < CHUNK;
		     next++) {
		}
		r = read_descriptors(lister, i, next, buffer);
	}
	return r;
}

static int read_element(struct hl_memory *memory, const struct hl_jemalloc *jemalloc, uint64_t page,
			uint8_t *element)
{
	const struct hl_jemalloc_shape *shape = jemalloc->shape;
	uint64_t array = jemalloc->root;

	for (uint32_t i = 0; i < shape->levels; i++) {
		bool is_leaf = i + 1 == shape->levels;
		uint64_t bytes = is_leaf ? shape->element_bytes : sizeof(uint64_t);
		uint64_t index = page >> shift_of(shape, i);
		if (i == 0 && index >= count_of(shape, 0))
			return -ENOENT;
		index &= count_of(shape, i) - 1;
		int r = hl_memory_read_present(memory, array + index * bytes, element, bytes);
		if (r < 0)
			return r == -ENOMEM ? r : -ENOENT;
		array = hl_jemalloc_word(element);
		if (!array)
			return -ENOENT;
	}
	return 0;
}

/* Whether the tree has ${descriptor} for the page at ${start}. */
static bool names(struct hl_memory *memory, const struct hl_jemalloc *jemalloc, uint64_t start,
		  uint64_t descriptor)
{
	uint8_t element[16];

	return read_element(memory, jemalloc, start, element) == 0 &&
	       descriptor_of(jemalloc, element) == descriptor;
}

int hl_jemalloc_reread(struct hl_memory *memory, struct hl_jemalloc *jemalloc, uint64_t start,
		       struct hl_jemalloc_extent *ret_extent)
{
	uint8_t element[16], bytes[HL_JEMALLOC_DESCRIPTOR_BYTES_MAX];
	struct hl_jemalloc_extent extent;
	int r = read_element(memory, jemalloc, start, element);

	if (r < 0)
		return r;
	uint64_t descriptor = descriptor_of(jemalloc, element);
	r = hl_memory_read_present(memory, descriptor, bytes, jemalloc->shape->descriptor_bytes);
	if (r < 0)
		return r == -ENOMEM ? r : -EBADMSG;
	if (!parse(jemalloc, descriptor, bytes, &extent))
		return -EBADMSG;
	if (extent.start != start) /* elements of pages that are not used any more stay */
		return names(memory, jemalloc, extent.start, descriptor) ? -ENOENT : -EBADMSG;
	if (!agrees(jemalloc, element, &extent))
		return -EBADMSG;
	r = keep_places(jemalloc, bytes, &extent);
	if (r == 0)
		*ret_extent = extent;
	return r;
}

/* Sorts the extents, and puts the first pages of those that overlap on the list again. Of these none stays. */
static int sort_extents(struct lister *lister)
{
	struct hl_jemalloc *jemalloc = lister->jemalloc;
	struct hl_jemalloc_extent *extents = jemalloc->extents;
	size_t kept = 0, count = jemalloc->extent_count;
	uint64_t end = 0;

	if (count)
		qsort(extents, count, sizeof(*extents), hl_addresses_compare);
	for (size_t i = 0; i < count; i++) {
		bool is_twice = kept && extents[kept - 1].start == extents[i].start;
		if (is_twice) {
			extents[kept - 1] = extents[i];
		} else if (extents[i].start < end ||
			   (i + 1 < count && extents[i + 1].start < extents[i].end &&
			    extents[i + 1].start != extents[i].start)) {
			int r = HL_ARRAY_APPEND(lister->again.addresses, lister->again.count,
						lister->again.capacity, extents[i].start);
			if (r < 0)
				return r;
			end = extents[i].end > end ? extents[i].end : end;
			continue;
		} else {
			extents[kept++] = extents[i];
		}
		end = extents[i].end > end ? extents[i].end : end;
	}
	jemalloc->extent_count = kept;
	return 0;
}

/* The page of what could not be read, up to the next extent. */
static int add_bad(struct lister *lister)
{
	struct hl_jemalloc *jemalloc = lister->jemalloc;
	size_t count = jemalloc->extent_count;

	for (size_t i = 0; i < lister->again.count; i++) {
		uint64_t page = lister->again.addresses[i];
		size_t at = HL_LOWER_BOUND(k, count, jemalloc->extents[k].end <= page);
		if (at < count && jemalloc->extents[at].start <= page)
			continue;
		const struct hl_jemalloc_extent bad = {
			.start = page, .end = page + jemalloc->shape->page, .is_bad = true};
		int r = HL_ARRAY_APPEND(jemalloc->extents, jemalloc->extent_count,
					jemalloc->extent_capacity, bad);
		if (r < 0)
			return r;
	}
	if (jemalloc->extent_count > count)
		qsort(jemalloc->extents, jemalloc->extent_count, sizeof(*jemalloc->extents),
		      hl_addresses_compare);
	return 0;
}

static int settle(struct lister *lister)
{
	struct hl_jemalloc *jemalloc = lister->jemalloc;
	int r = sort_extents(lister);

	for (unsigned i = 1; i < TRIES && lister->again.count && r == 0; i++) {
		struct hl_addresses again = lister->again;
		lister->again = (struct hl_addresses){0};
		hl_addresses_sort(&again);
		jemalloc->rereads += again.count;
		for (size_t k = 0; k < again.count && r == 0; k++) {
			struct hl_jemalloc_extent extent;
			r = hl_jemalloc_reread(lister->memory, jemalloc, again.addresses[k],
					       &extent);
			if (r == 0)
				r = HL_ARRAY_APPEND(jemalloc->extents, jemalloc->extent_count,
						    jemalloc->extent_capacity, extent);
			else if (r == -ENOENT)
				r = 0;
			else if (r == -EBADMSG)
				r = HL_ARRAY_APPEND(lister->again.addresses, lister->again.count,
						    lister->again.capacity, again.addresses[k]);
		}
		hl_addresses_release(&again);
		if (r == 0)
			r = sort_extents(lister);
	}
	return r == 0 ? add_bad(lister) : r;
}

/* With a page to spare blocks begin at different places of their first page. */
static uint64_t large_pad(const struct hl_jemalloc *jemalloc)
{
	for (size_t i = 0; i < jemalloc->extent_count; i++) {
		const struct hl_jemalloc_extent *extent = &jemalloc->extents[i];
		bool is_large = !extent->is_bad && !extent->is_slab &&
				hl_jemalloc_has_blocks(extent) &&
				extent->size_class >= jemalloc->slab_classes;
		if (is_large &&
		    (extent->block != extent->start ||
		     extent->end - extent->start > jemalloc->class_bytes[extent->size_class]))
			return jemalloc->shape->page;
	}
	return 0;
}

int hl_jemalloc_list(struct hl_memory *memory, struct hl_jemalloc *jemalloc)
{
	struct lister lister = {.memory = memory, .jemalloc = jemalloc};
	int r = each_element(memory, jemalloc->root, count_of(jemalloc->shape, 0), sizeof(uint64_t),
			     list_root, &lister);

	if (r == 0)
		r = read_all_descriptors(&lister);
	if (r == 0)
		r = settle(&lister);
	jemalloc->large_pad = large_pad(jemalloc);
	free(lister.elements);
	hl_extents_release(&lister.nodes);
	hl_addresses_release(&lister.again);
	return r;
}

void hl_jemalloc_free(struct hl_jemalloc *jemalloc)
{
	while (jemalloc) {
		struct hl_jemalloc *next = jemalloc->next;
		free(jemalloc->extents);
		free(jemalloc->free_places);
		free(jemalloc->blocks);
		hl_addresses_release(&jemalloc->cached);
		hl_addresses_release(&jemalloc->own);
		free(jemalloc);
		jemalloc = next;
	}
}
