/* SPDX-License-Identifier: BSD-2-Clause */
/* Recognizes other allocators by their files and texts; see other_allocators.h. */
#include "heap/other_allocators.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "elf/elf.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool is_file_of(const struct hl_allocator_traits *allocator, const char *path)
{
	const char *library = allocator->library;

	return library && (strncmp(hl_path_basename(path), library, strlen(library)) == 0 ||
			   (allocator->folder && strstr(path, allocator->folder)));
}

struct hl_other_found hl_other_allocator_library(const struct hl_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++)
		for (size_t k = 0; maps->maps[i].inode && k < hl_allocator_count; k++)
			if (is_file_of(&hl_allocator_traits[k], maps->maps[i].path))
				return (struct hl_other_found){.allocator =
								       &hl_allocator_traits[k]};
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
	found.hides_functions = !hl_elf_symbols_next(&any);
	for (size_t i = 0; i < hl_allocator_count && !found.allocator; i++) {
		const char *text = hl_allocator_traits[i].inside;
		if (file && text && memmem(file, length, text, strlen(text)))
			found.allocator = &hl_allocator_traits[i];
	}
	uint64_t address;
	if (!found.allocator && hl_elf_is_alone(elf) &&
	    !hl_elf_find_symbol(elf, HL_ELF_SYMTAB | HL_ELF_DYNSYM, "malloc", &address))
		found.hides_functions = true;
	return found;
}

const char *hl_other_allocator_remedy(const struct hl_other_found *found,
				      const struct hl_maps *maps, pid_t pid,
				      char text[HL_OTHER_REMEDY_MAX])
{
	static const struct hl_allocator_traits unknown = {0};
	const struct hl_allocator_traits *allocator =
		found->allocator ? found->allocator : &unknown;
	bool can_trace = !allocator->hides_calls && !(found->is_built_in && found->hides_functions);
	bool can_be_asked = !found->is_built_in && allocator->answers_as;
	bool has_recorder = pid && hl_maps_have_file(maps, "memfd:heapline");
	const char *more = can_be_asked
				   ? "while 'heapline attach' or 'heapline record' records it, it "
				     "can be asked: 'heapline carriers --ask -p PID'"
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
	if (has_recorder && can_be_asked)
		snprintf(text, HL_OTHER_REMEDY_MAX,
			 "%s; 'heapline carriers -p %d --ask' asks it for its own figures", command,
			 (int)pid);
	else
		snprintf(text, HL_OTHER_REMEDY_MAX, "%s%s%s", command, pid && more ? "; " : "",
			 more ? more : "");
	return text;
}
