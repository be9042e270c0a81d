/* SPDX-License-Identifier: BSD-2-Clause */
/* Decides which functions a process allocates by; see entries.h. */
#include "hook/entries.h"
#include "hook/machine.h"

#include "allocators/traits.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/names.h"
#include "elf/elf.h"
#include "guests/traits.h"
#include "process/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORDER "libheapline.so"

#define VDSO_BYTES_MAX (1u << 15)

enum known_name {
	/* 0 .. HL_HOOK_COUNT - 1: enum hl_hook */
	NAME_USABLE_SIZE = HL_HOOK_COUNT,
	NAME_FIND_OBJECT,
	NAME_STACK_END,
	NAME_LIBC_MALLOC, /* glibc's other name of its malloc */
	NAME_CURRENT_SERVICE,
	NAME_SERVICE_OF,
	NAME_ALLOCATORS, /* from here on: for each allocator its symbols, its enders, their makers, and those that answer */
};

#define NOBODYS_NAME " " /* no symbol is called this */

#define FIRST_MAKER   (HL_ALLOCATOR_SYMBOLS_MAX + HL_ALLOCATOR_ENDERS_MAX)
#define FIRST_ANSWER  (FIRST_MAKER + HL_ALLOCATOR_ENDERS_MAX)
#define NAMES_OF_EACH (FIRST_ANSWER + HL_ALLOCATOR_ANSWERS_MAX * HL_ALLOCATOR_ANSWERING_MAX)
#define NAME_COUNT    (NAME_ALLOCATORS + hl_allocator_count * NAMES_OF_EACH)

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
	[HL_HOOK_MLOCKALL] = "mlockall",
	[HL_HOOK_PRCTL] = "prctl",
	[HL_HOOK_SYSCALL] = "syscall",
	[HL_HOOK_LIBRARIES] = "_dl_debug_state",
	[NAME_USABLE_SIZE] = "malloc_usable_size",
	[NAME_FIND_OBJECT] = "_dl_find_object",
	[NAME_STACK_END] = "__libc_stack_end",
	[NAME_LIBC_MALLOC] = "__libc_malloc",
};

struct search {
	struct hl_objects objects;
	struct hl_hook_rules *rules;
	bool program_is_first; /* its malloc and free are not exported, but it uses no others */
	struct hl_definition functions[HL_HOOK_COUNT];
	struct hl_definition *ruled; /* by rule */
};

/* ---- which definition of a name the process reaches ---- */

/* glibc's loader has a malloc for the time before libc is there; a recorder that is linked passes calls
 * on. */
static bool counts(const struct hl_object *object, size_t name)
{
	return name == HL_HOOK_LIBRARIES ||
	       (!hl_path_is_glibc_loader(object->map->path) &&
		strncmp(hl_path_basename(object->map->path), RECORDER, strlen(RECORDER)) != 0);
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
		if (!hl_object_symbol_is_function(symbol) || symbol->is_exported ||
		    symbol->is_requested)
			return false;
	}
	return true;
}

/* By what calls lead to, which is the truth; else by the linker's order. */
static struct hl_definition find_function(const struct search *search, size_t name)
{
	const struct hl_objects *objects = &search->objects;
	const struct hl_object_symbol *own = &objects->objects[0].symbols[name];
	struct hl_definition found = {0};

	if (search->program_is_first && hl_object_symbol_is_function(own))
		return hl_objects_definition(objects, name,
					     own->is_indirect ? own->reached : own->address);
	for (size_t i = 0; i < objects->count && !found.object; i++) {
		if (counts(&objects->objects[i], name))
			found = hl_objects_definition(objects, name,
						      objects->objects[i].symbols[name].reached);
		if (found.object && !counts(found.object, name))
			found.object = NULL;
	}
	for (size_t i = 0; i < objects->count && !found.object; i++) {
		const struct hl_object *object = &objects->objects[i];
		const struct hl_object_symbol *symbol = &object->symbols[name];
		if (counts(object, name) && hl_object_symbol_is_function(symbol) &&
		    symbol->is_exported && !symbol->is_indirect)
			found = (struct hl_definition){object, symbol->address, symbol->bytes};
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
	if (hook == HL_HOOK_DLCLOSE || hook == HL_HOOK_LIBRARIES)
		return search->objects.objects[0].has_loader;
	if (hook == HL_HOOK_MALLOC || (hook >= HL_HOOK_MLOCKALL && hook <= HL_HOOK_SYSCALL) ||
	    search->functions[hook].object == search->functions[HL_HOOK_FREE].object)
		return true;
	return hook != HL_HOOK_REALLOCARRAY && hook != HL_HOOK_FREE_SIZED &&
	       hook != HL_HOOK_FREE_ALIGNED_SIZED && is_requested(&search->objects, hook);
}

/* Whether there are malloc and free; without them nothing else of the family counts. */
static bool find_functions(struct search *search)
{
	search->program_is_first = program_is_first(&search->objects.objects[0]);
	for (size_t hook = 0; hook < HL_HOOK_COUNT; hook++)
		search->functions[hook] = find_function(search, hook);
	for (size_t hook = 0; hook < HL_HOOK_COUNT; hook++)
		if (search->functions[hook].object && !is_wanted(search, (enum hl_hook)hook))
			search->functions[hook].object = NULL;
	if (search->functions[HL_HOOK_MALLOC].object && search->functions[HL_HOOK_FREE].object)
		return true;
	for (size_t hook = 0; hook < HL_HOOK_DLCLOSE; hook++)
		search->functions[hook].object = NULL;
	return false;
}

/* ---- what is known of the allocator ---- */

static bool has(const struct hl_object *object, size_t name)
{
	return object->symbols[name].address != 0;
}

static size_t index_of(size_t name)
{
	return (name - NAME_ALLOCATORS) % NAMES_OF_EACH;
}

static bool is_ender(size_t name)
{
	return index_of(name) >= HL_ALLOCATOR_SYMBOLS_MAX && index_of(name) < FIRST_MAKER;
}

static const struct hl_allocator_traits *allocator_of(size_t name)
{
	return &hl_allocator_traits[(name - NAME_ALLOCATORS) / NAMES_OF_EACH];
}

/* NULL: the allocator has fewer. */
static const char *name_of_allocator(size_t name)
{
	const struct hl_allocator_traits *allocator = allocator_of(name);
	size_t index = index_of(name);

	if (is_ender(name))
		return allocator->enders[index - HL_ALLOCATOR_SYMBOLS_MAX];
	if (index >= FIRST_MAKER && index < FIRST_ANSWER)
		return allocator->makers[index - FIRST_MAKER];
	return index < HL_ALLOCATOR_SYMBOLS_MAX
		       ? allocator->symbols[index]
		       : allocator->answering[(index - FIRST_ANSWER) / HL_ALLOCATOR_ANSWERING_MAX]
					     [(index - FIRST_ANSWER) % HL_ALLOCATOR_ANSWERING_MAX];
}

static const struct hl_allocator_traits *find_allocator(const struct hl_object *object)
{
	for (size_t name = NAME_ALLOCATORS; name < NAME_COUNT; name++)
		if (index_of(name) < HL_ALLOCATOR_SYMBOLS_MAX && has(object, name))
			return allocator_of(name);
	return NULL;
}

/* Before 2.34 libc itself had MALLOC_CHECK_, which hides a byte in each block. 0 or 1, or -ENOMEM. */
static int checks_blocks(pid_t pid)
{
	static const char *const settings[] = {"MALLOC_CHECK_=", "glibc.malloc.check="};
	HL_FREED char *text = NULL;
	size_t length;

	int r = hl_proc_read_all(pid, "environ", &text, &length);
	if (r < 0)
		return r == -ENOMEM ? r : 1;
	for (size_t i = 0; i < HL_COUNT_OF(settings); i++)
		if (memmem(text, length, settings[i], strlen(settings[i])))
			return 1;
	return 0;
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

static int add_allocator(const struct search *search, struct hl_entries *entries)
{
	const struct hl_object *object = search->functions[HL_HOOK_FREE].object;
	const struct hl_definition *definition = &search->functions[HL_HOOK_MALLOC];
	const struct hl_object_symbol *symbols = definition->object->symbols;
	const struct hl_allocator_traits *allocator = find_allocator(definition->object);

	snprintf(entries->allocator, sizeof(entries->allocator), "%s",
		 !allocator		 ? hl_path_basename(definition->object->map->path)
		 : allocator->short_name ? allocator->short_name
					 : allocator->name);
	/* Blocks of one allocator must not be shown to another one's function. */
	if (!is_one_allocator(search) ||
	    !hl_object_symbol_is_function(&object->symbols[NAME_USABLE_SIZE]) ||
	    object->symbols[NAME_USABLE_SIZE].is_indirect)
		return 0;
	entries->usable_size = object->symbols[NAME_USABLE_SIZE].address;
	if (strcmp(entries->allocator, "glibc") != 0 ||
	    symbols[NAME_LIBC_MALLOC].address != definition->address)
		return 0;
	int r = checks_blocks(search->objects.pid);
	entries->has_glibc_chunks = r == 0;
	return r < 0 ? r : 0;
}

static bool has_address(const struct hl_entry *entries, uint32_t count, uint64_t address)
{
	for (uint32_t i = 0; i < count; i++)
		if (entries[i].address == address)
			return true;
	return false;
}

static bool has_hook(const struct hl_entries *entries, enum hl_hook hook)
{
	for (uint32_t i = 0; i < entries->count; i++)
		if (entries->entries[i].hook == hook)
			return true;
	return false;
}

/* Adds ${entry}, which has no address yet, for the function ${name}. Of aliases the first one stays. */
static void add_entry(struct hl_entries *entries, struct hl_entry entry, bool is_extra,
		      const char *name, const struct hl_definition *definition)
{
	if (has_address(entries->entries, entries->count, definition->address) ||
	    has_address(entries->extras, entries->extra_count, definition->address))
		return;
	entry.address = definition->address;
	entry.bytes = definition->bytes;
	snprintf(entry.name, sizeof(entry.name), "%.63s", name);
	snprintf(entry.module, sizeof(entry.module), "%s",
		 hl_path_basename(definition->object->map->path));
	if (!is_extra && !has_hook(entries, entry.hook))
		entries->entries[entries->count++] = entry;
	else if (entries->extra_count <= HL_ATTACHED_RULES_MAX)
		entries->extras[entries->extra_count++] = entry;
}

static void add_usual(const struct search *search, struct hl_entries *entries)
{
	for (size_t hook = 0; hook < HL_HOOK_COUNT; hook++)
		if (search->functions[hook].object)
			add_entry(entries, (struct hl_entry){.hook = (enum hl_hook)hook}, false,
				  usual_names[hook], &search->functions[hook]);
}

static struct hl_entry ruled_entry(const struct hl_hook_rule *rule)
{
	return (struct hl_entry){.hook = rule->call,
				 .size_at = rule->size_at,
				 .count_at = rule->count_at,
				 .pointer_at = rule->pointer_at,
				 .type_at = rule->type_at,
				 .has_size = rule->has_size,
				 .size = rule->size,
				 .is_text = rule->is_text,
				 .is_asked = rule->is_asked,
				 .is_beside = rule->is_beside,
				 .pool = rule->pool,
				 .resets = rule->resets,
				 .tells = rule->tells};
}

static void add_visited(const struct hl_objects *objects, const struct hl_hook_rules *rules,
			struct hl_rule_visit visit, struct hl_entries *entries)
{
	enum { OF_ONE_OBJECT = 4 }; /* annotations, in the order of enum hl_rule_does */
	struct hl_definition found;
	bool has_room = true;
	size_t rule;

	while (hl_rule_lookup_next(objects, rules, &visit, &rule, &found)) {
		struct hl_entry entry = ruled_entry(&rules->rules[rule]);
		/* Without room all of an object's are left out, so that frees are not missed alone. */
		if (entry.tells == HL_RULE_TELLS_ALLOC)
			has_room = entries->extra_count + OF_ONE_OBJECT <= HL_ATTACHED_RULES_MAX;
		bool is_annotation = entry.tells && entry.tells != HL_RULE_TELLS_SERVICE;
		if (is_annotation && !has_room)
			continue;
		entry.word = is_annotation ? found.object->annotated_word : 0;
		entry.word_addend = is_annotation ? found.object->word_addend : 0;
		add_entry(entries, entry, true, rules->rules[rule].symbol, &found);
	}
}

static void add_ruled(const struct search *search, bool is_asked, bool are_extra,
		      struct hl_entries *entries)
{
	for (size_t i = 0; i < search->rules->count; i++) {
		const struct hl_hook_rule *rule = &search->rules->rules[i];
		struct hl_entry entry = ruled_entry(rule);
		if (!search->ruled[i].object || rule->is_asked != is_asked)
			continue;
		/* Its blocks may be freed by free(), and those of malloc() by its functions. */
		entry.is_of_malloc =
			!is_asked && !rule->is_beside && rule->preset[0] &&
			search->ruled[i].object == search->functions[HL_HOOK_MALLOC].object;
		add_entry(entries, entry, are_extra || !hl_rule_lookup_is_usual(rule), rule->symbol,
			  &search->ruled[i]);
	}
}

/* ---- operators new and delete, and what else an allocator has ---- */

static struct hl_entry extra_of(const struct hl_allocator_name *known, const char *name)
{
	static const enum hl_hook hooks[HL_HEAP_CALLS] = {
		[HL_HEAP_FREE] = HL_HOOK_FREE,
		[HL_HEAP_MALLOC] = HL_HOOK_MALLOC,
		[HL_HEAP_CALLOC] = HL_HOOK_CALLOC,
		[HL_HEAP_MEMALIGN] = HL_HOOK_MALLOC,
		[HL_HEAP_POSIX_MEMALIGN] = HL_HOOK_POSIX_MEMALIGN,
		[HL_HEAP_REALLOC] = HL_HOOK_REALLOC,
		[HL_HEAP_REALLOCARRAY] = HL_HOOK_REALLOCARRAY,
	};

	return (struct hl_entry){.hook = hooks[known->call],
				 .throws = known->throws,
				 .alignment_at = known->throws && strstr(name, "align") ? 2 : 0,
				 .is_of_malloc = true,
				 .size_at = known->call == HL_HEAP_MEMALIGN ? 2 : 0};
}

/* Whether the program calls the function: libraries that it does not use may do so for nothing. */
static bool is_called(Elf *program, const char *name)
{
	struct hl_elf_symbols all = {.elf = program, .tables = HL_ELF_DYNSYM};

	while (hl_elf_symbols_next(&all))
		if (all.symbol.st_shndx == SHN_UNDEF && strcmp(all.name, name) == 0)
			return true;
	return false;
}

/* Prefixed functions are what these call, or presets know them, but for those that throw. */
static bool find_plain(const GElf_Sym *symbol, const char *name,
		       struct hl_allocator_name *ret_found)
{
	return hl_allocator_name_find(name, ret_found) &&
	       (!ret_found->has_prefix || ret_found->throws) &&
	       GELF_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx != SHN_UNDEF &&
	       GELF_ST_BIND(symbol->st_info) != STB_LOCAL;
}

/* The allocator that a program has built in which has no symbols but those that it exports. */
static const struct hl_allocator_traits *find_inside(Elf *program)
{
	for (size_t i = 0; i < hl_allocator_count; i++)
		if (hl_allocator_traits[i].has_operators && hl_allocator_traits[i].inside &&
		    hl_elf_has_text(program, hl_allocator_traits[i].inside))
			return &hl_allocator_traits[i];
	return NULL;
}

static void add_operators(const struct search *search, struct hl_entries *entries)
{
	const struct hl_object *object = search->functions[HL_HOOK_MALLOC].object;
	const struct hl_object *program = &search->objects.objects[0];
	const struct hl_allocator_traits *allocator = find_allocator(object);
	HL_CLOSED int fd = -1, program_fd = -1;
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_objects_open(&search->objects, object->map, &fd);

	HL_CLEANUP(hl_elf_cleanup)
	Elf *program_elf = hl_objects_open(&search->objects, program->map, &program_fd);
	struct hl_elf_symbols all = {
		.elf = elf, .tables = HL_ELF_DYNSYM | (object == program ? HL_ELF_SYMTAB : 0u)};

	if (!allocator && object == program && !object->has_symbols && elf)
		allocator = find_inside(elf);
	if (allocator && allocator->debugging_inside && elf &&
	    hl_elf_has_text(elf, allocator->debugging_inside))
		entries->debugging = allocator->name;
	while (allocator && allocator->has_operators && elf && hl_elf_symbols_next(&all)) {
		struct hl_allocator_name known;
		struct hl_definition definition = {object, all.symbol.st_value + object->bias,
						   all.symbol.st_size};
		if (find_plain(&all.symbol, all.name, &known) &&
		    (object == program || (program_elf && is_called(program_elf, all.name))))
			add_entry(entries, extra_of(&known, all.name), true, all.name, &definition);
	}
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
	_Alignas(16) char content[VDSO_BYTES_MAX];
	uint64_t address, first, clock = 0;

	if (!size || size > sizeof(content) || !hl_objects_peek(objects, map->start, content, size))
		return 0;
	elf_version(EV_CURRENT);
	Elf *elf = elf_memory(content, size);
	if (elf && hl_elf_is_native(elf) && hl_elf_address(elf, 0, true, &first) &&
	    hl_elf_find_symbol(elf, HL_ELF_DYNSYM, HL_VDSO_CLOCK, &address))
		clock = map->start + address - first;
	elf_end(elf);
	return clock;
}

static void find_eh_frame(const struct hl_objects *objects, struct hl_entries *entries)
{
	const struct hl_object *program = &objects->objects[0];
	HL_CLOSED int fd = -1;
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_objects_open(objects, program->map, &fd);
	GElf_Shdr section;

	if (!elf || !hl_elf_find_section(elf, ".eh_frame", &section))
		return;
	entries->eh_frame = section.sh_addr + program->bias;
	entries->eh_frame_bytes = section.sh_size;
}

static void add_program(const struct hl_objects *objects, struct hl_entries *entries)
{
	const struct hl_object *program = &objects->objects[0];

	entries->find_object = first_address(objects, NAME_FIND_OBJECT);
	entries->clock_gettime = find_clock(objects);
	entries->current_service = first_address(objects, NAME_CURRENT_SERVICE);
	entries->service_of = first_address(objects, NAME_SERVICE_OF);
	entries->program_headers = program->headers;
	entries->program_header_count = program->header_count;
	entries->program_entry = program->entry;
	entries->stack_end = find_stack_end(objects);
	entries->is_static = !program->has_loader;
	entries->debug_place = hl_objects_debug_place(objects);
	find_eh_frame(objects, entries);
}

/* Whether glibc's loader is there, and glibc is not. */
static bool is_loading(const struct hl_maps *maps)
{
	bool has_loader = false, has_libc = false;

	for (size_t i = 0; i < maps->count; i++) {
		const char *name = hl_path_basename(maps->maps[i].path);
		has_loader |= hl_path_is_glibc_loader(name);
		has_libc |= !strncmp(name, "libc.so", 7) || !strncmp(name, "libc-2.", 7);
	}
	return has_loader && !has_libc;
}

static int refuse(const struct hl_objects *objects, struct hl_error *err)
{
	const struct hl_object *program = &objects->objects[0];
	const char *name = hl_path_basename(program->map->path);

	if (!program->is_alone && is_loading(objects->maps))
		return hl_error_set(err, -ENOENT,
				    "cannot find malloc and free in process '%d': '%s' has not "
				    "loaded its libraries yet; try again",
				    (int)objects->pid, name);
	if (program->is_alone && !program->has_symbols)
		return hl_error_set(err, -ENOENT,
				    "cannot find malloc and free in process '%d': '%s' is static "
				    "and stripped; install its separate debug file, run a build "
				    "with symbols, or name their addresses: --hook 'malloc=0x...'",
				    (int)objects->pid, name);
	if (program->symbols[HL_HOOK_MALLOC].is_indirect ||
	    program->symbols[HL_HOOK_FREE].is_indirect)
		return hl_error_set(err, -ENOENT,
				    "cannot find malloc and free in process '%d': those of '%s' "
				    "are indirect functions, and its calls of them lead nowhere; "
				    "name what they become: --hook 'malloc=NAME'",
				    (int)objects->pid, name);
	/* So musl links static programs that call neither free() nor realloc(). */
	if (program->symbols[HL_HOOK_MALLOC].address && !program->symbols[HL_HOOK_FREE].address)
		return hl_error_set(err, -ENOENT,
				    "cannot find free in process '%d': '%s' was linked without it, "
				    "so it keeps what it allocates; 'heapline stacks -p %d 60' "
				    "shows that",
				    (int)objects->pid, name, (int)objects->pid);
	return hl_error_set(err, -ENOENT,
			    "cannot find malloc and free in process '%d': '%s' has another "
			    "allocator; 'heapline pgfault -p %d 60' shows what makes its memory "
			    "grow",
			    (int)objects->pid, name, (int)objects->pid);
}

static void release_search(struct search *search)
{
	hl_objects_release(&search->objects);
	free(search->ruled);
}

#define CODE_BYTES 65536u /* read at once */

/* Whether a call, or a jump, in the code of the program leads to ${address}. What cannot be read has one. */
static bool has_call(const struct hl_objects *objects, uint64_t address)
{
	const struct hl_object *program = &objects->objects[0];
	uint8_t code[CODE_BYTES + 4];

	for (uint64_t at = program->code_start; at + 5 <= program->code_end; at += CODE_BYTES) {
		uint64_t left = program->code_end - at;
		size_t count = left < sizeof(code) ? left : sizeof(code);
		if (!hl_objects_peek(objects, at, code, count))
			return true;
		for (size_t i = 0; i + 5 <= count; i++) {
			int32_t distance;
			memcpy(&distance, code + i + 1, sizeof(distance));
			if ((code[i] == 0xe8 || code[i] == 0xe9) &&
			    at + i + 5 + (uint64_t)(int64_t)distance == address)
				return true;
		}
	}
	return false;
}

/* Whether the program may have heaps beside those of its threads. */
static bool makes_heaps(const struct hl_objects *objects, size_t ender)
{
	size_t first = ender - index_of(ender) + FIRST_MAKER;
	bool has_maker = false;

	for (size_t name = first; name < first + HL_ALLOCATOR_ENDERS_MAX; name++) {
		const struct hl_object_symbol *maker = &objects->objects[0].symbols[name];
		has_maker = has_maker || maker->address;
		if (is_requested(objects, name) ||
		    (hl_object_symbol_is_function(maker) && has_call(objects, maker->address)))
			return true;
	}
	return !has_maker;
}

/* In the program itself they may be there though nobody calls them. */
static void note_enders(const struct hl_objects *objects, struct hl_entries *entries)
{
	for (size_t name = NAME_ALLOCATORS; name < NAME_COUNT && !entries->ender; name++) {
		const struct hl_object_symbol *own = &objects->objects[0].symbols[name];
		if (!is_ender(name))
			continue;
		/* Local functions are of an allocator that a runtime has inside, which may not be used. */
		entries->ender_is_own = hl_object_symbol_is_function(own) && !own->is_local &&
					makes_heaps(objects, name);
		if (entries->ender_is_own || is_requested(objects, name))
			entries->ender = name_of_allocator(name);
	}
}

/* If ${object} has all functions of the row of hl_allocator_traits.answering that begins with ${name}. */
static void find_answering(const struct hl_object *object, size_t name,
			   struct hl_answering *ret_answering)
{
	struct hl_answering found = {.kind = allocator_of(name)->answers_as};

	for (size_t i = 0; i < HL_ALLOCATOR_ANSWERING_MAX && name_of_allocator(name + i); i++) {
		const struct hl_object_symbol *symbol = &object->symbols[name + i];
		if (!hl_object_symbol_is_function(symbol) || symbol->is_indirect)
			return;
		found.functions[i] = symbol->address;
	}
	if (found.functions[0])
		*ret_answering = found;
}

static void add_answering(const struct hl_objects *objects, struct hl_entries *entries)
{
	for (size_t i = 0; i < objects->count && !entries->answering.kind; i++)
		for (size_t name = NAME_ALLOCATORS; name < NAME_COUNT; name++)
			if (index_of(name) >= FIRST_ANSWER &&
			    (index_of(name) - FIRST_ANSWER) % HL_ALLOCATOR_ANSWERING_MAX == 0 &&
			    !entries->answering.kind)
				find_answering(&objects->objects[i], name, &entries->answering);
}

/* The malloc and free of rules take the hooks where there are no others. */
static int add_all(const struct search *search, bool has_usual, struct hl_entries *entries)
{
	bool asked = !has_usual && hl_rule_lookup_serves(search->rules, search->ruled, true);
	bool ruled =
		asked || (!has_usual && hl_rule_lookup_serves(search->rules, search->ruled, false));
	int r = 0;

	if (ruled)
		add_ruled(search, asked, false, entries);
	add_usual(search, entries);
	if (ruled)
		snprintf(entries->allocator, sizeof(entries->allocator), "%s",
			 entries->entries[0].name);
	else if (has_usual)
		r = add_allocator(search, entries);
	add_ruled(search, true, true, entries);
	add_ruled(search, false, true, entries);
	if (has_usual)
		add_operators(search, entries);
	add_visited(&search->objects, search->rules,
		    (struct hl_rule_visit){.first_name = NAME_COUNT, .tells_alone = true}, entries);
	add_program(&search->objects, entries);
	note_enders(&search->objects, entries);
	add_answering(&search->objects, entries);
	return r;
}

int hl_entries_find(pid_t pid, const struct hl_maps *maps, struct hl_hook_rules *rules,
		    struct hl_entries *ret_entries, struct hl_error *err)
{
	HL_CLEANUP(release_search) struct search search = {.objects.memory = -1, .rules = rules};
	size_t name_count = NAME_COUNT + HL_RULE_LOOKUP_NAMES * search.rules->count;
	HL_FREED const char **names = calloc(name_count, sizeof(*names));
	struct hl_entries entries = {0};

	search.ruled = calloc(search.rules->count + 1, sizeof(*search.ruled));
	if (!names || !search.ruled)
		return hl_error_set(err, -ENOMEM, "cannot look for allocators: out of memory");
	memcpy(names, usual_names, sizeof(usual_names));
	const struct hl_guest_traits *guest = hl_guest_host();
	names[NAME_CURRENT_SERVICE] = guest ? guest->host->current_service : NOBODYS_NAME;
	names[NAME_SERVICE_OF] = guest ? guest->host->service_of : NOBODYS_NAME;
	for (size_t i = NAME_ALLOCATORS; i < NAME_COUNT; i++)
		names[i] = name_of_allocator(i) ? name_of_allocator(i) : NOBODYS_NAME;
	hl_rule_lookup_names(search.rules, &names[NAME_COUNT]);
	int r = hl_objects_read(pid, maps, names, name_count, &search.objects, err);
	if (r < 0)
		return r;
	bool has_usual = find_functions(&search);
	r = hl_rule_lookup(&search.objects, search.rules, NAME_COUNT,
			   search.functions[HL_HOOK_FREE].object,
			   search.functions[HL_HOOK_LIBRARIES].object != NULL, search.ruled, err);
	if (r < 0)
		return r;
	if (add_all(&search, has_usual, &entries) < 0)
		return hl_error_set(err, -ENOMEM, "cannot look for allocators: out of memory");
	if (!has_hook(&entries, HL_HOOK_MALLOC) && !entries.extra_count)
		return refuse(&search.objects, err);
	/* Instead of operator new, which may throw, malloc() is called; see struct hl_attached_rule. */
	if (entries.debugging)
		return hl_error_set(
			err, -ENOTSUP,
			"cannot record process '%d': its allocator is %s's version for "
			"debugging, which would end it; where that is a library, 'heapline "
			"record' can start it; 'heapline stacks -p %d 60' enters nothing",
			(int)pid, entries.debugging, (int)pid);
	if (entries.extra_count > HL_ATTACHED_RULES_MAX)
		return hl_error_set(err, -E2BIG,
				    "cannot record process '%d': rules name more than %u functions "
				    "of it; name fewer by --hook",
				    (int)pid, HL_ATTACHED_RULES_MAX);
	*ret_entries = entries;
	return 0;
}

int hl_entries_find_more(pid_t pid, const struct hl_maps *maps, const struct hl_hook_rules *rules,
			 struct hl_entries *ret_entries, struct hl_error *err)
{
	HL_CLEANUP(hl_objects_release) struct hl_objects objects = {.memory = -1};
	HL_FREED const char **names =
		calloc(HL_RULE_LOOKUP_NAMES * rules->count + 1, sizeof(*names));

	if (!names)
		return hl_error_set(err, -ENOMEM, "cannot look for allocators: out of memory");
	hl_rule_lookup_names(rules, names);
	int r = hl_objects_read_more(pid, maps, names, HL_RULE_LOOKUP_NAMES * rules->count,
				     &objects, err);
	if (r < 0)
		return r;
	*ret_entries = (struct hl_entries){0};
	add_visited(&objects, rules, (struct hl_rule_visit){0}, ret_entries);
	return 0;
}

struct hl_attached_rule hl_entry_rule(const struct hl_entry *entry, uint64_t real)
{
	static const struct hl_attached_rule usual[HL_HOOK_COUNT] = {
		[HL_HOOK_MALLOC] = {.size_at = 1},
		[HL_HOOK_CALLOC] = {.size_at = 2, .count_at = 1},
		[HL_HOOK_REALLOC] = {.size_at = 2, .pointer_at = 1},
		[HL_HOOK_REALLOCARRAY] = {.size_at = 3, .count_at = 2, .pointer_at = 1},
		[HL_HOOK_FREE] = {.pointer_at = 1, .does = HL_RULE_FREES},
		[HL_HOOK_POSIX_MEMALIGN] = {.size_at = 3, .result_at = 1},
	};
	struct hl_attached_rule rule = usual[entry->hook];

	if (entry->tells)
		return (struct hl_attached_rule){.real = real, .does = (uint8_t)entry->tells};
	if (entry->resets)
		return (struct hl_attached_rule){.real = real,
						 .does = HL_RULE_RESETS,
						 .pool = entry->pool & HL_RULE_POOLS_MAX};
	rule.real = real;
	rule.pool = entry->pool & HL_RULE_POOLS_MAX;
	rule.size_at = entry->size_at ? entry->size_at : rule.size_at;
	rule.count_at = entry->count_at ? entry->count_at : rule.count_at;
	rule.has_size = entry->has_size;
	rule.is_text = entry->is_text;
	if (entry->has_size)
		rule.size = entry->size;
	rule.pointer_at = entry->pointer_at ? entry->pointer_at : rule.pointer_at;
	rule.alignment_at = entry->alignment_at;
	rule.type_at = entry->type_at;
	rule.throws = entry->throws;
	rule.is_of_malloc = entry->is_of_malloc;
	rule.is_beside = entry->is_beside;
	return rule;
}
