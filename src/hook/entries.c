/* SPDX-License-Identifier: BSD-2-Clause */
/* Decides which functions a process allocates by; see entries.h. */
#include "hook/entries.h"

#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/names.h"
#include "elf/elf.h"
#include "hook/objects.h"
#include "process/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VDSO_BYTES_MAX	  (1u << 16)
#define ENVIRONMENT_BYTES (1u << 17)

enum known_name {
	/* 0 .. HL_HOOK_COUNT - 1: enum hl_hook */
	NAME_USABLE_SIZE = HL_HOOK_COUNT,
	NAME_FIND_OBJECT,
	NAME_STACK_END,
	NAME_LIBC_MALLOC, /* glibc's other name of its malloc */
	NAME_ALLOCATORS,  /* from here on: allocators[] */
};

/* Who has a function of this name beside malloc is that allocator. */
static const struct {
	const char *symbol, *allocator;
} allocators[] = {
	{"__asan_init", "AddressSanitizer"}, {"mallctl", "jemalloc"},
	{"je_mallctl", "jemalloc"},	     {"_rjem_mallctl", "jemalloc"},
	{"mi_version", "mimalloc"},	     {"tc_version", "tcmalloc"},
	{"hl_mode_set", "heapline"},	     {"__libc_malloc_impl", "musl"},
	{"_dl_debug_addr", "musl"},	     {"gnu_get_libc_version", "glibc"},
	{"__libc_mallopt", "glibc"},
};

#define NAME_COUNT (NAME_ALLOCATORS + HL_COUNT_OF(allocators))

static const char *const usual_names[NAME_ALLOCATORS] = {
	[HL_HOOK_MALLOC] = "malloc",
	[HL_HOOK_CALLOC] = "calloc",
	[HL_HOOK_REALLOC] = "realloc",
	[HL_HOOK_REALLOCARRAY] = "reallocarray",
	[HL_HOOK_FREE] = "free",
	[HL_HOOK_FREE_SIZED] = "free_sized",
	[HL_HOOK_FREE_ALIGNED_SIZED] = "free_aligned_sized",
	[HL_HOOK_POSIX_MEMALIGN] = "posix_memalign",
	[HL_HOOK_ALIGNED_ALLOC] = "aligned_alloc",
	[HL_HOOK_MEMALIGN] = "memalign",
	[HL_HOOK_VALLOC] = "valloc",
	[HL_HOOK_PVALLOC] = "pvalloc",
	[HL_HOOK_DLCLOSE] = "dlclose",
	[NAME_USABLE_SIZE] = "malloc_usable_size",
	[NAME_FIND_OBJECT] = "_dl_find_object",
	[NAME_STACK_END] = "__libc_stack_end",
	[NAME_LIBC_MALLOC] = "__libc_malloc",
};

/* A function, and the object that has it; NULL: there is none. */
struct definition {
	const struct hl_object *object;
	uint64_t address, bytes;
};

struct search {
	struct hl_objects objects;
	bool program_is_first; /* its malloc and free are not exported, but it uses no others */
	struct definition functions[HL_HOOK_COUNT];
};

/* ---- which definition of a name the process reaches ---- */

/* glibc's loader has a malloc for the time before libc is there. */
static bool counts(const struct hl_object *object)
{
	return !hl_path_is_glibc_loader(object->map->path);
}

static bool is_function(const struct hl_object_symbol *symbol)
{
	return symbol->address && !symbol->is_data;
}

/* What a slot of the dynamic linker's leads to, if it is one that has the name. */
static struct definition definition_at(const struct hl_objects *objects, size_t name,
				       uint64_t address)
{
	for (size_t i = 0; address && i < objects->count; i++) {
		const struct hl_object *object = &objects->objects[i];
		const struct hl_object_symbol *symbol = &object->symbols[name];
		if (!is_function(symbol))
			continue;
		if (!symbol->is_indirect && symbol->address == address)
			return (struct definition){object, address, symbol->bytes};
		if (symbol->is_indirect && hl_objects_has_code(objects, object, address))
			return (struct definition){object, address, 0};
	}
	return (struct definition){0};
}

/*
 * A malloc that is not exported serves the program alone: others use that of libc. It is the
 * program's own when the program has both functions and asks nobody else for either.
 */
static bool program_is_first(const struct hl_object *program)
{
	const struct hl_object_symbol *symbols = program->symbols;

	for (size_t i = 0; i < 2; i++) {
		const struct hl_object_symbol *symbol =
			&symbols[i == 0 ? HL_HOOK_MALLOC : HL_HOOK_FREE];
		if (!is_function(symbol) || symbol->is_exported || symbol->is_requested)
			return false;
	}
	return true;
}

/* By what calls lead to, which is the truth; else by the linker's order. */
static struct definition find_function(const struct search *search, size_t name)
{
	const struct hl_objects *objects = &search->objects;
	const struct hl_object_symbol *own = &objects->objects[0].symbols[name];
	struct definition found = {0};

	if (search->program_is_first && is_function(own))
		return definition_at(objects, name, own->is_indirect ? own->reached : own->address);
	for (size_t i = 0; i < objects->count && !found.object; i++)
		if (counts(&objects->objects[i]))
			found = definition_at(objects, name,
					      objects->objects[i].symbols[name].reached);
	for (size_t i = 0; i < objects->count && !found.object; i++) {
		const struct hl_object *object = &objects->objects[i];
		const struct hl_object_symbol *symbol = &object->symbols[name];
		if (counts(object) && is_function(symbol) && symbol->is_exported &&
		    !symbol->is_indirect)
			found = (struct definition){object, symbol->address, symbol->bytes};
	}
	return found;
}

static bool is_requested(const struct hl_objects *objects, size_t name)
{
	for (size_t i = 0; i < objects->count; i++)
		if (objects->objects[i].symbols[name].is_requested)
			return true;
	return false;
}

/*
 * What is not of the allocator that free() is of counts only where somebody calls it. Not so
 * reallocarray(), which calls realloc(), and functions that free, which get no block of another
 * allocator.
 */
static bool is_wanted(const struct search *search, enum hl_hook hook)
{
	if (hook == HL_HOOK_DLCLOSE)
		return search->objects.objects[0].has_loader || search->objects.count > 1;
	if (hook == HL_HOOK_MALLOC ||
	    search->functions[hook].object == search->functions[HL_HOOK_FREE].object)
		return true;
	return hook != HL_HOOK_REALLOCARRAY && hook != HL_HOOK_FREE_SIZED &&
	       hook != HL_HOOK_FREE_ALIGNED_SIZED && is_requested(&search->objects, hook);
}

static void find_functions(struct search *search)
{
	search->program_is_first = program_is_first(&search->objects.objects[0]);
	for (size_t hook = 0; hook < HL_HOOK_COUNT; hook++)
		search->functions[hook] = find_function(search, hook);
	for (size_t hook = 0; hook < HL_HOOK_COUNT; hook++)
		if (search->functions[hook].object && !is_wanted(search, (enum hl_hook)hook))
			search->functions[hook].object = NULL;
}

/* ---- what is known of the allocator ---- */

static bool has(const struct hl_object *object, size_t name)
{
	return object->symbols[name].address != 0;
}

static void name_allocator(const struct hl_object *object, char name[64])
{
	snprintf(name, 64, "%s", hl_path_basename(object->map->path));
	for (size_t i = 0; i < HL_COUNT_OF(allocators); i++)
		if (has(object, NAME_ALLOCATORS + i)) {
			snprintf(name, 64, "%s", allocators[i].allocator);
			return;
		}
}

/* Before 2.34 libc itself had MALLOC_CHECK_, which hides a byte in each block. */
static bool checks_blocks(pid_t pid)
{
	static const char *const settings[] = {"MALLOC_CHECK_=", "glibc.malloc.check="};
	HL_FREED char *text = malloc(ENVIRONMENT_BYTES);
	ssize_t length = text ? hl_proc_read(pid, "environ", text, ENVIRONMENT_BYTES) : -ENOMEM;

	for (size_t i = 0; length > 0 && i < HL_COUNT_OF(settings); i++)
		if (memmem(text, (size_t)length, settings[i], strlen(settings[i])))
			return true;
	return length < 0;
}

static bool has_glibc_chunks(const struct search *search, const char *allocator)
{
	const struct definition *definition = &search->functions[HL_HOOK_MALLOC];

	return strcmp(allocator, "glibc") == 0 &&
	       definition->object->symbols[NAME_LIBC_MALLOC].address == definition->address &&
	       !checks_blocks(search->objects.pid);
}

/* Whether all blocks come from the allocator that frees them. */
static bool is_one_allocator(const struct search *search)
{
	for (size_t hook = 0; hook < HL_HOOK_DLCLOSE; hook++)
		if (search->functions[hook].object &&
		    search->functions[hook].object != search->functions[HL_HOOK_FREE].object)
			return false;
	return true;
}

static void add_allocator(const struct search *search, struct hl_entries *entries)
{
	const struct hl_object *object = search->functions[HL_HOOK_FREE].object;

	name_allocator(search->functions[HL_HOOK_MALLOC].object, entries->allocator);
	/* Blocks of one allocator must not be shown to another one's function. */
	if (!is_one_allocator(search))
		return;
	if (is_function(&object->symbols[NAME_USABLE_SIZE]) &&
	    !object->symbols[NAME_USABLE_SIZE].is_indirect)
		entries->usable_size = object->symbols[NAME_USABLE_SIZE].address;
	entries->has_glibc_chunks =
		entries->usable_size && has_glibc_chunks(search, entries->allocator);
}

static void add_entry(struct hl_entries *entries, enum hl_hook hook,
		      const struct definition *definition)
{
	struct hl_entry *entry = &entries->entries[entries->count];

	for (uint32_t i = 0; i < entries->count; i++)
		if (entries->entries[i].address == definition->address)
			return;
	if (entries->count == HL_ENTRIES_MAX)
		return;
	*entry = (struct hl_entry){
		.hook = hook, .address = definition->address, .bytes = definition->bytes};
	snprintf(entry->name, sizeof(entry->name), "%s", usual_names[hook]);
	snprintf(entry->module, sizeof(entry->module), "%s",
		 hl_path_basename(definition->object->map->path));
	entries->count++;
}

/* ---- what is known of the program ---- */

static uint64_t first_address(const struct hl_objects *objects, size_t name)
{
	for (size_t i = 0; i < objects->count; i++)
		if (has(&objects->objects[i], name))
			return objects->objects[i].symbols[name].address;
	return 0;
}

static const struct hl_map *find_map(const struct hl_maps *maps, const char *path)
{
	for (size_t i = 0; i < maps->count; i++)
		if (strcmp(maps->maps[i].path, path) == 0)
			return &maps->maps[i];
	return NULL;
}

static uint64_t find_stack_end(const struct hl_objects *objects)
{
	const struct hl_map *stack = find_map(objects->maps, "[stack]");
	uint64_t place = first_address(objects, NAME_STACK_END), end;

	if (place && hl_objects_peek(objects, place, &end, sizeof(end)) && stack &&
	    end > stack->start && end <= stack->end)
		return end;
	return stack ? stack->end : 0;
}

static uint64_t find_clock(const struct hl_objects *objects)
{
	const struct hl_map *map = find_map(objects->maps, "[vdso]");
	size_t size = map ? map->end - map->start : 0;
	HL_FREED char *content = size && size <= VDSO_BYTES_MAX ? malloc(size) : NULL;
	uint64_t address, first, clock = 0;

	if (!content || !hl_objects_peek(objects, map->start, content, size))
		return 0;
	elf_version(EV_CURRENT);
	Elf *elf = elf_memory(content, size);
	if (elf && hl_elf_is_native(elf) && hl_elf_address(elf, 0, true, &first) &&
	    hl_elf_find_symbol(elf, HL_ELF_DYNSYM, "__vdso_clock_gettime", &address))
		clock = map->start + address - first;
	elf_end(elf);
	return clock;
}

static void add_program(const struct hl_objects *objects, struct hl_entries *entries)
{
	const struct hl_object *program = &objects->objects[0];

	entries->find_object = first_address(objects, NAME_FIND_OBJECT);
	entries->clock_gettime = find_clock(objects);
	entries->program_headers = program->headers;
	entries->program_header_count = program->header_count;
	entries->program_entry = program->entry;
	entries->stack_end = find_stack_end(objects);
	entries->is_static = !program->has_loader && objects->count == 1;
}

static int refuse(const struct hl_objects *objects, struct hl_error *err)
{
	const struct hl_object *program = &objects->objects[0];
	const char *name = hl_path_basename(program->map->path);

	if (!program->has_loader && !program->has_symbols && objects->count == 1)
		return hl_error_set(err, -ENOENT,
				    "cannot find malloc and free in process '%d': '%s' is static "
				    "and stripped; install its separate debug file, or run a build "
				    "with symbols",
				    (int)objects->pid, name);
	return hl_error_set(err, -ENOENT,
			    "cannot find malloc and free in process '%d': '%s' has another "
			    "allocator; 'heapline pgfault -p %d 60' shows what makes its memory "
			    "grow",
			    (int)objects->pid, name, (int)objects->pid);
}

static void release_search(struct search *search)
{
	hl_objects_release(&search->objects);
}

int hl_entries_find(pid_t pid, const struct hl_maps *maps, struct hl_entries *ret_entries,
		    struct hl_error *err)
{
	const char *names[NAME_COUNT];
	HL_CLEANUP(release_search) struct search search = {.objects.memory = -1};
	struct hl_entries entries = {0};

	memcpy(names, usual_names, sizeof(usual_names));
	for (size_t i = 0; i < HL_COUNT_OF(allocators); i++)
		names[NAME_ALLOCATORS + i] = allocators[i].symbol;
	int r = hl_objects_read(pid, maps, names, NAME_COUNT, &search.objects, err);
	if (r < 0)
		return r;
	find_functions(&search);
	if (!search.functions[HL_HOOK_MALLOC].object || !search.functions[HL_HOOK_FREE].object)
		return refuse(&search.objects, err);
	for (size_t hook = 0; hook < HL_HOOK_COUNT; hook++)
		if (search.functions[hook].object)
			add_entry(&entries, (enum hl_hook)hook, &search.functions[hook]);
	add_allocator(&search, &entries);
	add_program(&search.objects, &entries);
	*ret_entries = entries;
	return 0;
}
