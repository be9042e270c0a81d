/* SPDX-License-Identifier: BSD-2-Clause */
/* Recognizes other allocators by their files and texts; see other_allocators.h. */
#include "heap/other_allocators.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "elf/elf.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct hl_other_allocator allocators[] = {
	{"jemalloc", "libjemalloc.", NULL, "<jemalloc>: ",
	 "if it was built with profiling, MALLOC_CONF=prof:true,prof_final:true in the "
	 "environment makes it write profiles that 'heapline top' reads",
	 true, true, false},
	{"mimalloc", "libmimalloc", NULL, "mimalloc: ", NULL, true, true, false},
	{"tcmalloc", "libtcmalloc", NULL, "TCMALLOC_SAMPLE_PARAMETER",
	 "HEAPPROFILE=/tmp/app in the environment makes the full tcmalloc write profiles that "
	 "'heapline top' reads",
	 true, true, false},
	{"musl's malloc", "ld-musl", "-linux-musl/", NULL, NULL, false, true, true},
	{"Go's runtime", "libgo.", NULL, "\xff Go buildinf:",
	 "its own profiles (net/http/pprof, /debug/pprof/heap) open in 'heapline top'", false,
	 false, false},
	{"the address sanitizer's malloc", "libasan.", NULL,
	 "AddressSanitizer: ", "run a build without the sanitizer", false, true, false},
};

struct hl_other_found hl_other_allocator_library(const struct hl_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++) {
		const char *path = maps->maps[i].path, *name = hl_path_basename(path);
		for (size_t k = 0; maps->maps[i].inode && k < HL_COUNT_OF(allocators); k++)
			if (strncmp(name, allocators[k].library, strlen(allocators[k].library)) ==
				    0 ||
			    (allocators[k].folder && strstr(path, allocators[k].folder)))
				return (struct hl_other_found){.allocator = &allocators[k]};
	}
	return (struct hl_other_found){0};
}

/* A mapping of the program's file, or NULL. */
static const struct hl_map *find_program(const struct hl_memory *memory)
{
	const struct hl_maps *maps = &memory->maps;
	const struct hl_map *program = hl_maps_find(maps, memory->program_headers);

	for (size_t i = 0; i < maps->count && !(program && program->inode); i++)
		if (maps->maps[i].inode && !(maps->maps[i].flags & HL_MAP_RECORDER))
			program = &maps->maps[i];
	return program && program->inode ? program : NULL;
}

struct hl_other_found hl_other_allocator_built_in(struct hl_memory *memory)
{
	const struct hl_map *program = find_program(memory);
	struct hl_other_found found = {.is_built_in = true};
	HL_CLOSED int fd = program ? hl_memory_open_file(memory, program) : -1;
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);

	if (!elf)
		return found;
	/* First: what libelf has of sections before it reads the whole file, elf_end() does not free. */
	size_t length;
	const char *file = elf_rawfile(elf, &length);
	struct hl_elf_symbols any = {.elf = elf, .tables = HL_ELF_SYMTAB | HL_ELF_DYNSYM};
	found.is_stripped = !hl_elf_symbols_next(&any);
	for (size_t i = 0; i < HL_COUNT_OF(allocators) && !found.allocator; i++) {
		const char *text = allocators[i].inside;
		if (file && text && memmem(file, length, text, strlen(text)))
			found.allocator = &allocators[i];
	}
	return found;
}

const char *hl_other_allocator_remedy(const struct hl_other_found *found,
				      const struct hl_maps *maps, pid_t pid,
				      char text[HL_OTHER_REMEDY_MAX])
{
	static const struct hl_other_allocator unknown = {.has_malloc = true};
	const struct hl_other_allocator *allocator = found->allocator ? found->allocator : &unknown;
	bool can_trace = allocator->has_malloc && !(found->is_built_in && found->is_stripped);
	bool can_be_asked = !found->is_built_in && allocator->can_be_asked;
	bool has_recorder = pid && hl_maps_have_file(maps, "memfd:heapline");
	bool is_whole = has_recorder && hl_maps_have_file(maps, "libheapline.so");
	const char *more = can_be_asked ? "started with 'heapline record', it can be asked: "
					  "'heapline carriers --ask -p PID'"
					: allocator->profiles;
	char command[192] = "";

	if (has_recorder)
		snprintf(command, sizeof(command),
			 "'heapline allocations -p %d' shows the live blocks that the recorder in "
			 "it "
			 "has seen",
			 (int)pid);
	else if (pid)
		snprintf(command, sizeof(command), "'heapline %s -p %d 60' shows %s",
			 can_trace ? "stacks" : "pgfault", (int)pid,
			 can_trace ? "what it allocates and keeps" : "what makes it grow");
	if (is_whole && can_be_asked)
		snprintf(text, HL_OTHER_REMEDY_MAX,
			 "%s; 'heapline carriers -p %d --ask' asks it for its own figures", command,
			 (int)pid);
	else
		snprintf(text, HL_OTHER_REMEDY_MAX, "%s%s%s", command, pid && more ? "; " : "",
			 more ? more : "");
	return text;
}
