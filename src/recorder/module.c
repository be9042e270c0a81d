/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds and registers modules; see module.h. */
#include "recorder/module.h"

#include "recorder/debug_frame.h"
#include "recorder/real.h"
#include "recorder/sys.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

/* "./a.so" is stored as "DIRECTORY/a.so". */
static const char *without_dot(const char *name)
{
	return name[0] == '.' && name[1] == '/' ? name + 2 : name;
}

/* Whether module ${index} is the one that the loader calls ${name}: the end of its path. */
static bool same_path(const struct hl_shared *shared, uint32_t index, const char *name)
{
	const struct hl_region_module *module = &shared->modules[index];
	uint64_t bytes = strlen(without_dot(name));
	bool relative = name[0] != '/' && strchr(name, '/');
	if (relative ? bytes > module->path_bytes : bytes != module->path_bytes)
		return false;
	return !memcmp(shared->strings + module->path_offset + module->path_bytes - bytes,
		       without_dot(name), bytes);
}

/* Ids of live modules that overlap [start, end) but are not this one are retired. Returns the index
 * or -1. */
static int64_t find_entry(struct hl_modules *modules, const struct dl_find_object *object,
			  bool *ret_replaced)
{
	uint64_t start = (uint64_t)object->dlfo_map_start;
	uint64_t end = (uint64_t)object->dlfo_map_end;
	for (uint32_t i = 0; i < modules->count; i++) {
		struct hl_module_entry *entry = &modules->entries[i];
		if (entry->gone || entry->start >= end || entry->end <= start)
			continue;
		if (entry->start == start && entry->end == end &&
		    same_path(modules->shared, i, object->dlfo_link_map->l_name))
			return i;
		entry->gone = true;
		*ret_replaced = true;
	}
	return -1;
}

struct program_headers {
	const Elf64_Phdr *first;
	size_t count;
	bool anywhere; /* what they describe is mapped, even outside of [start, end) */
};

/*
 * The program's own come from the kernel: its segments may leave gaps, and then [start, end) is one
 * of them, without an ELF header. A library's are read from the ELF header at its start.
 */
static struct program_headers program_headers(const struct hl_region_module *module)
{
	if (!module->path_bytes)
		return (struct program_headers){(const Elf64_Phdr *)getauxval(AT_PHDR),
						getauxval(AT_PHNUM), true};
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)module->start;
	if (module->end - module->start < sizeof(*header) ||
	    memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
	    header->e_phentsize != sizeof(Elf64_Phdr) ||
	    header->e_phoff + (uint64_t)header->e_phnum * sizeof(Elf64_Phdr) > 4096)
		return (struct program_headers){0};
	return (struct program_headers){(const Elf64_Phdr *)(module->start + header->e_phoff),
					header->e_phnum, false};
}

/* Copies the build id out of a note segment. */
static void read_build_id(struct hl_region_module *module, const uint8_t *note, uint64_t bytes)
{
	while (bytes >= sizeof(Elf64_Nhdr)) {
		const Elf64_Nhdr *header = (const Elf64_Nhdr *)note;
		uint64_t name = (header->n_namesz + UINT64_C(3)) & ~UINT64_C(3);
		uint64_t size =
			sizeof(*header) + name + ((header->n_descsz + UINT64_C(3)) & ~UINT64_C(3));
		if (size > bytes)
			return;
		const uint8_t *description = note + sizeof(*header) + name;
		if (header->n_type == NT_GNU_BUILD_ID && header->n_descsz <= HL_BUILD_ID_MAX &&
		    header->n_namesz == 4 && !memcmp(note + sizeof(*header), "GNU", 4)) {
			memcpy(module->build_id, description, header->n_descsz);
			module->build_id_bytes = header->n_descsz;
			return;
		}
		note += size;
		bytes -= size;
	}
}

static void find_build_id(struct hl_region_module *module)
{
	struct program_headers headers = program_headers(module);
	for (size_t i = 0; headers.first && i < headers.count && !module->build_id_bytes; i++) {
		const Elf64_Phdr *header = &headers.first[i];
		uint64_t address = module->load_bias + header->p_vaddr;
		bool mapped = headers.anywhere || (address >= module->start &&
						   address + header->p_memsz <= module->end);
		if (header->p_type == PT_NOTE && mapped)
			read_build_id(module, (const uint8_t *)address, header->p_memsz);
	}
}

/*
 * Writes the working directory and a slash to ${buffer}, of PATH_MAX + 1 bytes; returns how many
 * bytes, 0 when it has no path. A name without a directory is not a file's ("linux-vdso.so.1").
 */
static uint64_t put_directory(char *buffer, const char *name)
{
	if (name[0] == '/' || !strchr(name, '/'))
		return 0;
	long bytes = HL_SYS(SYS_getcwd, buffer, PATH_MAX, 0); /* with its NUL */
	if (bytes < 2 || buffer[0] != '/')
		return 0;
	buffer[bytes - 1] = '/';
	return bytes > 2 ? (uint64_t)bytes : 1;
}

/* The loader knows libraries by the paths that it was given, which may be relative to a directory
 * that the program leaves later. */
static bool store_path(struct hl_shared *shared, const char *name, struct hl_region_module *module)
{
	uint64_t used = atomic_load_explicit(&shared->header->string_bytes, memory_order_relaxed);
	uint64_t bytes = strlen(name);
	if (!hl_shared_commit(shared, HL_AREA_STRINGS, used + PATH_MAX + 1 + bytes + 1))
		return false;
	uint64_t directory = put_directory(shared->strings + used, name);
	if (directory)
		name = without_dot(name);
	bytes = strlen(name);
	memcpy(shared->strings + used + directory, name, bytes);
	module->path_offset = (uint32_t)used;
	module->path_bytes = (uint32_t)(directory + bytes);
	atomic_store_explicit(&shared->header->string_bytes, (uint32_t)(used + directory + bytes),
			      memory_order_release);
	return true;
}

/* Enters the module into the region; returns its index or -1. Under the lock. */
static int64_t add_entry(struct hl_modules *modules, const struct dl_find_object *object)
{
	struct hl_shared *shared = modules->shared;
	uint32_t index = modules->count;
	struct hl_region_module module = {
		.start = (uint64_t)object->dlfo_map_start,
		.end = (uint64_t)object->dlfo_map_end,
		.load_bias = object->dlfo_link_map->l_addr,
	};
	if (index >= HL_MODULES_MAX ||
	    !hl_shared_commit(shared, HL_AREA_MODULES, (index + UINT64_C(1)) * sizeof(module)) ||
	    !store_path(shared, object->dlfo_link_map->l_name, &module)) {
		atomic_fetch_add(&shared->header->lost_modules, 1);
		return -1;
	}
	find_build_id(&module);
	shared->modules[index] = module;
	struct hl_module_entry *entry = &modules->entries[index];
	*entry = (struct hl_module_entry){.start = module.start, .end = module.end};
	if (!object->dlfo_eh_frame)
		entry->debug_frame = hl_debug_frame_map(object->dlfo_link_map->l_name,
							&entry->debug_frame_bytes);
	modules->count = index + 1;
	atomic_store_explicit(&shared->header->module_count, index + 1, memory_order_release);
	return index;
}

bool hl_modules_find(struct hl_modules *modules, uint64_t pc, struct hl_unwind_module *ret_module,
		     bool *ret_replaced)
{
	struct dl_find_object object;
	*ret_replaced = false;
	if (_dl_find_object((void *)pc, &object) != 0)
		return false;
	hl_spin_lock(&modules->lock);
	int64_t index = find_entry(modules, &object, ret_replaced);
	if (index < 0)
		index = add_entry(modules, &object);
	struct hl_module_entry entry =
		index < 0 ? (struct hl_module_entry){0} : modules->entries[index];
	hl_spin_unlock(&modules->lock);
	*ret_module = (struct hl_unwind_module){
		.id = (uint32_t)(index + 1),
		.start = (uint64_t)object.dlfo_map_start,
		.end = (uint64_t)object.dlfo_map_end,
		.eh_frame_hdr = object.dlfo_eh_frame,
		.debug_frame = entry.debug_frame,
		.debug_frame_bytes = entry.debug_frame_bytes,
		.load_bias = object.dlfo_link_map->l_addr,
	};
	return true;
}
