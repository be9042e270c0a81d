/* SPDX-License-Identifier: BSD-2-Clause */
/* Knows such programs by their names and by what they export; see maps.h. */
#include "process/maps.h"

#include "allocators/traits.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "elf/elf.h"
#include "guests/traits.h"
#include "recording/recording.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct program {
	const char *name;
	Elf *elf; /* NULL: it could not be read */
	const struct hl_maps *maps;
};

static bool exports(const struct program *program, const char *name)
{
	uint64_t address;

	return program->elf && hl_elf_find_symbol(program->elf, HL_ELF_DYNSYM, name, &address);
}

static bool begins_with(const char *text, const char *beginning)
{
	return strncmp(text, beginning, strlen(beginning)) == 0;
}

static bool has_library(const struct program *program, const char *library)
{
	for (size_t i = 0; program->maps && i < program->maps->count; i++)
		if (begins_with(hl_path_basename(program->maps->maps[i].path), library))
			return true;
	return false;
}

static bool find(const struct program *program, struct hl_own_memory *own)
{
	for (size_t i = 0; i < hl_pool_count; i++) {
		const struct hl_pool_traits *pool = &hl_pool_traits[i];
		if (!exports(program, pool->exported) && !has_library(program, pool->library))
			continue;
		snprintf(own->what, sizeof(own->what), "the allocator of %s", pool->name);
		own->by_malloc = pool->by_malloc;
		return true;
	}
	for (size_t i = 0; hl_guest_traits[i]; i++) {
		const struct hl_guest_traits *guest = hl_guest_traits[i];
		const struct hl_guest_allocator *allocator = guest->allocator;
		if (guest->objects && (begins_with(program->name, guest->program) ||
				       has_library(program, guest->library))) {
			snprintf(own->what, sizeof(own->what), "%s", guest->objects);
			own->is_objects = true;
			own->listed_by = guest->lists_objects;
			return true;
		}
		if (allocator && (exports(program, allocator->exported) ||
				  has_library(program, allocator->library))) {
			snprintf(own->what, sizeof(own->what), "the allocator of %s",
				 allocator->name);
			return true;
		}
	}
	return false;
}

bool hl_own_memory_find(const char *executable, pid_t pid, const struct hl_maps *maps,
			struct hl_own_memory *ret_own)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	HL_CLOSED int fd = hl_maps_open_regular(maps ? path : executable);
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = fd < 0 ? NULL : hl_elf_open(fd);
	const struct program program = {hl_path_basename(executable), elf, maps};
	struct hl_own_memory own = {0};

	if (!find(&program, &own))
		return false;
	*ret_own = own;
	return true;
}

bool hl_own_memory_has_services(const struct hl_maps *maps)
{
	const struct hl_guest_traits *guest = hl_guest_host();

	return guest && hl_maps_have_file(maps, guest->host->library);
}

static bool runs_scripts(const struct hl_guest_traits *guest, const char *file)
{
	const struct hl_guest_command *command = guest->providers ? guest->commands : NULL;
	const char *name = begins_with(file, "lib") ? file + strlen("lib") : file;

	for (; command && command->name; command++)
		if (begins_with(name, command->name))
			return true;
	return guest->host && strcmp(file, guest->host->library) == 0;
}

bool hl_own_memory_has_scripts(const struct hl_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++) {
		const char *path = maps->maps[i].inode ? maps->maps[i].path : "";
		const struct hl_code_runtime *runtime = hl_code_runtime_of(path);
		if (runtime && runtime->write_names)
			return true;
		for (size_t guest = 0; *path && hl_guest_traits[guest]; guest++)
			if (runs_scripts(hl_guest_traits[guest], hl_path_basename(path)))
				return true;
	}
	return false;
}
