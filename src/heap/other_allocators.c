/* SPDX-License-Identifier: BSD-2-Clause */
/* Knows other allocators by their files and texts; see other_allocators.h. */
#include "heap/other_allocators.h"

#include "base/compiler.h"
#include "base/path.h"
#include "heap/glibc_file.h"

#include <string.h>
#include <unistd.h>

#define ASK                                                                                       \
	"under 'heapline record' it can be asked ('heapline carriers --ask'); 'heapline stacks' " \
	"shows what it hands out"

static const struct hl_other_allocator allocators[] = {
	{"jemalloc", "libjemalloc.", "<jemalloc>: ", ASK},
	{"mimalloc", "libmimalloc", "mimalloc: ", ASK},
	{"tcmalloc", "libtcmalloc", "TCMALLOC_SAMPLE_PARAMETER", ASK},
	{"musl's malloc", "ld-musl", NULL, "'heapline stacks' shows what it hands out"},
	{"the address sanitizer's malloc", "libasan.",
	 "AddressSanitizer: ", "run a build without the sanitizer"},
};

const struct hl_other_allocator *hl_other_allocator_library(const struct hl_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++) {
		const char *name = hl_path_basename(maps->maps[i].path);
		for (size_t k = 0; maps->maps[i].inode && k < HL_COUNT_OF(allocators); k++)
			if (strncmp(name, allocators[k].library, strlen(allocators[k].library)) ==
			    0)
				return &allocators[k];
	}
	return NULL;
}

/* The first file that is mapped: the program, but where it was moved behind its libraries. */
static const struct hl_map *program_of(const struct hl_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++)
		if (maps->maps[i].inode)
			return &maps->maps[i];
	return NULL;
}

const struct hl_other_allocator *hl_other_allocator_built_in(struct hl_memory *memory)
{
	const struct hl_map *program = program_of(&memory->maps);
	const struct hl_other_allocator *found = NULL;
	struct hl_glibc_file file;
	int fd = program ? hl_memory_open_file(memory, program) : -1;

	if (fd < 0)
		return NULL;
	int r = hl_glibc_file_map(fd, &file);
	close(fd);
	if (r < 0)
		return NULL;
	for (size_t i = 0; i < HL_COUNT_OF(allocators) && !found; i++) {
		const char *text = allocators[i].inside;
		if (text && memmem(file.bytes, file.length, text, strlen(text)))
			found = &allocators[i];
	}
	hl_glibc_file_release(&file);
	return found;
}
