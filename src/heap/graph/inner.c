/* SPDX-License-Identifier: BSD-2-Clause */
/* Pointers to the inside of blocks that C++ makes by convention, or a program by habit, so that they keep
 * a block. */
#include "heap/graph/graph.h"

#include "base/array.h"
#include "base/cleanup.h"

#include <unistd.h>

#define COW_HEADER_BYTES 24u /* of std::string before C++11: length, capacity, references */
#define COW_SLACK_BYTES	 4096u
#define ALIGNMENT_MAX	 64u

/* Classes: see struct hl_graph_offsets. */
#define CLASS_OF_ALL	 0u
#define CLASS_OF_BITS	 1u  /* the first of 48 */
#define CLASS_OF_SIZES	 49u /* the first of 64, by 16 bytes */
#define CLASSES_OF_BLOCK 3u

/* An offset is a habit of a class if more than half of its blocks, and at least this many, are pointed
 * to there. All blocks together need more, as these decide for classes of few blocks. */
#define HABIT_BLOCKS	 16u
#define HABIT_BLOCKS_ALL 256u

/* Where a file is mapped, the bytes that a core file leaves out are in it. */
static int copy_from_file(const struct hl_graph *graph, uint64_t address, void *bytes,
			  size_t length)
{
	const struct hl_map *map = hl_maps_find(&graph->memory->maps, address);

	if (!map || !map->inode || length > map->end - address)
		return -EFAULT;
	HL_CLOSED int fd = hl_memory_open_file(graph->memory, map);
	if (fd < 0)
		return -EFAULT;
	off_t offset = (off_t)(map->offset + (address - map->start));
	return pread(fd, bytes, length, offset) == (ssize_t)length ? 0 : -EFAULT;
}

int hl_graph_copy(const struct hl_graph *graph, uint64_t address, void *bytes, size_t length)
{
	if (hl_memory_read(graph->memory, address, bytes, length) == 0)
		return 0;
	return copy_from_file(graph, address, bytes, length);
}

/* Whether the object at ${offset} of the block has a virtual table that says so: the word before
 * the type's in the table is how far the whole object begins before (Itanium C++ ABI, 2.5.2). An
 * array begins after its count. */
static bool is_base_class(const struct hl_graph *graph, uint64_t table, uint64_t offset)
{
	const struct hl_map *map = hl_maps_find(&graph->memory->maps, table);
	int64_t to_top;

	return map && map->inode && !(table & 7) &&
	       hl_graph_copy(graph, table - 16, &to_top, sizeof(to_top)) == 0 && to_top < 0 &&
	       ((uint64_t)-to_top == offset || (uint64_t)-to_top + 8 == offset);
}

bool hl_graph_is_explained(const struct hl_graph *graph, uint64_t word, uint64_t block)
{
	uint64_t usable = hl_graph_usable(graph, block), offset = word - block, at[3], there;

	if (offset & 7 || offset + 8 > usable ||
	    hl_memory_read(graph->memory, block, at, sizeof(at)) < 0 ||
	    hl_memory_read(graph->memory, word, &there, sizeof(there)) < 0)
		return false;
	/* std::string of the old ABI points to its text. */
	if (offset == COW_HEADER_BYTES && at[0] <= at[1] && at[1] < usable - offset &&
	    usable - offset - at[1] <= COW_SLACK_BYTES)
		return true;
	/* new[] of an aligned type has its count before the first element. */
	if (offset <= ALIGNMENT_MAX && !(offset & (offset - 1)) &&
	    hl_memory_read(graph->memory, word - 8, &there, sizeof(there)) == 0 && there &&
	    there <= (usable - offset) / offset)
		return true;
	return hl_memory_read(graph->memory, word, &there, sizeof(there)) == 0 &&
	       is_base_class(graph, there, offset);
}

/* ---- habits ---- */

/* The classes of ${block}; how many they are. */
static unsigned classes_of(const struct hl_graph *graph, uint64_t block,
			   unsigned ret_classes[CLASSES_OF_BLOCK])
{
	uint64_t usable = hl_graph_usable(graph, block);
	unsigned highest = 63 - (unsigned)__builtin_clzll(usable | 1);
	uint64_t steps = usable / 16;

	ret_classes[0] = CLASS_OF_ALL;
	ret_classes[1] = CLASS_OF_BITS + (highest < 48 ? highest : 47);
	ret_classes[2] = CLASS_OF_SIZES + (unsigned)(steps < 64 ? steps : 0);
	return steps < 64 ? 3 : 2;
}

bool hl_graph_is_at_offset(struct hl_graph *graph, uint64_t word, uint64_t block)
{
	struct hl_graph_offsets *offsets = graph->offsets;
	unsigned classes[CLASSES_OF_BLOCK];
	uint64_t offset = word - block;
	bool is_start = false;

	if (!offsets || offset >= HL_GRAPH_OFFSETS)
		return false;
	unsigned count = classes_of(graph, block, classes);
	for (unsigned i = 0; i < count; i++)
		is_start |= offsets->starts[classes[i]][offset / 64] >> offset % 64 & 1;
	for (unsigned i = 0; i < count && is_start; i++)
		offsets->blocks[classes[i]]++;
	return is_start;
}

/* Blocks that were not reached: how many have pointers to their inside, and to each offset. */
struct counts {
	uint64_t blocks[HL_GRAPH_CLASSES];
	uint64_t at[HL_GRAPH_CLASSES][HL_GRAPH_OFFSETS];
};

static void count_offsets(const struct hl_graph *graph, struct counts *counts)
{
	const struct hl_addresses *inner = &graph->inner;
	uint64_t block, last_block = 0, last_word = 0;
	unsigned classes[CLASSES_OF_BLOCK];

	for (size_t i = 0; i < inner->count; i++) {
		uint64_t word = inner->addresses[i];
		if (word == last_word || !hl_graph_find(graph, word, &block) ||
		    hl_graph_is_reached(graph, block))
			continue;
		unsigned count = classes_of(graph, block, classes);
		for (unsigned k = 0; k < count; k++) {
			counts->blocks[classes[k]] += block != last_block;
			if (word - block < HL_GRAPH_OFFSETS)
				counts->at[classes[k]][word - block]++;
		}
		last_block = block;
		last_word = word;
	}
}

int hl_graph_learn_offsets(struct hl_graph *graph)
{
	HL_FREED struct counts *counts = calloc(1, sizeof(*counts));
	struct hl_graph_offsets *offsets = graph->offsets;
	bool is_new = false;

	if (!counts)
		return -ENOMEM;
	hl_addresses_sort(&graph->inner);
	count_offsets(graph, counts);
	for (unsigned class = 0; class < HL_GRAPH_CLASSES; class ++)
		for (uint64_t at = 0; at < HL_GRAPH_OFFSETS; at++) {
			uint64_t known = counts->blocks[class] + offsets->blocks[class];
			uint64_t least = class == CLASS_OF_ALL ? HABIT_BLOCKS_ALL : HABIT_BLOCKS;
			if (counts->at[class][at] < least || counts->at[class][at] <= known / 2)
				continue;
			offsets->starts[class][at / 64] |= UINT64_C(1) << at % 64;
			is_new = true;
		}
	return is_new;
}
