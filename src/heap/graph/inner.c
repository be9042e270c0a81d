/* SPDX-License-Identifier: BSD-2-Clause */
/* Pointers to the inside of blocks that C++ makes by convention, so that they keep a block. */
#include "heap/graph/graph.h"

#include "base/cleanup.h"

#include <unistd.h>

#define COW_HEADER_BYTES 24u /* of std::string before C++11: length, capacity, references */
#define COW_SLACK_BYTES	 4096u
#define ALIGNMENT_MAX	 64u

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
