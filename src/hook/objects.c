/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads the ELF objects of a process, from their files and its memory, and looks in them for what rules name; see entries.h. */
#include "hook/entries.h"
#include "hook/machine.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/names.h"
#include "guests/traits.h"
#include "process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINKED_OBJECTS_MAX 65536 /* a list in memory may be damaged, and never end */
#define DYNAMIC_MAX	   512

bool hl_objects_peek(const struct hl_objects *objects, uint64_t address, void *bytes, size_t size)
{
	return address <= INT64_MAX &&
	       pread(objects->memory, bytes, size, (off_t)address) == (ssize_t)size;
}

/* ---- symbols ---- */

/* A visit of the names that equal a text: several users may ask for the same. */
struct name_visit {
	const char *text;
	uint32_t hash, at;
};

static struct name_visit visit_names(const char *text)
{
	uint32_t hash = hl_hash_bytes(text, strlen(text));

	return (struct name_visit){text, hash, hash};
}

static bool next_name(const struct hl_objects *objects, struct name_visit *visit, size_t *ret_name)
{
	uint32_t id;

	while ((id = hl_index_next(&objects->index, visit->hash, &visit->at)))
		if (strcmp(objects->names[id - 1], visit->text) == 0) {
			*ret_name = id - 1;
			return true;
		}
	return false;
}

/* What others may call goes before what they may not, and global symbols before local ones. */
static void keep_symbol(struct hl_object_symbol *kept, const GElf_Sym *symbol, uint64_t bias,
			bool is_exported)
{
	unsigned type = GELF_ST_TYPE(symbol->st_info);
	bool is_local = GELF_ST_BIND(symbol->st_info) == STB_LOCAL;

	if (symbol->st_shndx == SHN_UNDEF) {
		kept->is_requested |= is_exported;
		return;
	}
	if (!symbol->st_value || symbol->st_shndx == SHN_ABS ||
	    (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE && type != STT_OBJECT))
		return;
	if (kept->address && (kept->is_exported || !kept->is_local || is_local))
		return;
	kept->address = symbol->st_value + bias;
	kept->bytes = symbol->st_size;
	kept->is_exported = is_exported;
	kept->is_local = is_local;
	kept->is_indirect = type == STT_GNU_IFUNC;
	kept->is_data = type == STT_OBJECT;
}

static void read_symbols(const struct hl_objects *objects, struct hl_object *object, Elf *elf,
			 unsigned table)
{
	struct hl_elf_symbols all = {.elf = elf, .tables = table};

	while (hl_elf_symbols_next(&all)) {
		struct name_visit visit = visit_names(all.name);
		size_t name;
		object->has_symbols |= table == HL_ELF_SYMTAB;
		while (next_name(objects, &visit, &name))
			keep_symbol(&object->symbols[name], &all.symbol, object->bias,
				    table == HL_ELF_DYNSYM);
	}
}

/*
 * What heapline.h puts into programs, by the note that it leaves: it is there in stripped files, too. Of each
 * name the distance from where that distance stands.
 */
static void read_annotations(const struct hl_objects *objects, struct hl_object *object, Elf *elf)
{
	static const char *const told[] = {HL_HOOK_ANNOTATED_WORD, "hl_pool_alloc_here",
					   "hl_pool_free_here", "hl_mark_here", "hl_mode_here"};
	GElf_Shdr header;
	GElf_Nhdr note;
	size_t name_at, at, name;
	uint64_t distance;
	Elf_Scn *section = hl_elf_find_section(elf, ".note.heapline", &header);
	Elf_Data *content = section ? elf_getdata(section, NULL) : NULL;

	if (!content || !gelf_getnote(content, 0, &note, &name_at, &at) ||
	    note.n_descsz < HL_COUNT_OF(told) * sizeof(distance))
		return;
	for (size_t i = 0; i < HL_COUNT_OF(told); i++, at += sizeof(distance)) {
		struct name_visit visit = visit_names(told[i]);
		memcpy(&distance, (const char *)content->d_buf + at, sizeof(distance));
		while (next_name(objects, &visit, &name))
			object->symbols[name] = (struct hl_object_symbol){
				.address = header.sh_addr + at + distance + object->bias};
		if (i == 0)
			object->annotated_word = header.sh_addr + at + distance + object->bias;
	}
}

static bool peek(const void *objects, uint64_t address, void *bytes, size_t size)
{
	return hl_objects_peek(objects, address, bytes, size);
}

/* Allocators of guests, where no symbol tells of them. */
static void read_guests(const struct hl_objects *objects, struct hl_object *object, Elf *elf)
{
	for (size_t i = 0, name; hl_guest_traits[i]; i++) {
		const struct hl_guest_allocator *allocator = hl_guest_traits[i]->allocator;
		if (!allocator)
			continue;
		struct name_visit visit = visit_names(allocator->symbol);
		uint64_t found = allocator->find(elf, object->bias, peek, objects);
		while (found && next_name(objects, &visit, &name))
			if (!object->symbols[name].address)
				object->symbols[name] = (struct hl_object_symbol){.address = found,
										  .is_local = true};
	}
}

/* Reads the separate debug file of ${elf}: the target's own, else this machine's. */
static void read_debug_file(const struct hl_objects *objects, struct hl_object *object, Elf *elf)
{
	char path[HL_ELF_DEBUG_PATH_MAX];
	const uint8_t *build_id;
	size_t bytes = hl_elf_build_id(elf, &build_id);
	const pid_t owners[] = {objects->pid, getpid()};

	if (!bytes ||
	    !hl_elf_debug_path(HL_ELF_DEBUG_DIRECTORY, build_id, bytes, path, sizeof(path)))
		return;
	for (size_t i = 0; i < HL_COUNT_OF(owners) && !object->has_symbols; i++) {
		HL_CLOSED int fd = hl_maps_open_path(owners[i], path);
		HL_CLEANUP(hl_elf_cleanup) Elf *debug = fd < 0 ? NULL : hl_elf_open(fd);
		if (debug && hl_elf_is_native(debug))
			read_symbols(objects, object, debug, HL_ELF_SYMTAB);
	}
}

/* Programs may move their code to huge pages: anonymous memory then follows the header of the file. */
static bool is_moved_code(const struct hl_map *map)
{
	return map->flags & HL_MAP_EXEC && !map->inode && !map->path[0];
}

/* Whether code of ${object} lies at ${address}. */
static bool has_code(const struct hl_objects *objects, const struct hl_object *object,
		     uint64_t address)
{
	const struct hl_map *map = hl_maps_find(objects->maps, address);

	if (map && is_moved_code(map))
		return address >= object->code_start && address < object->code_end;
	if (!map || !(map->flags & HL_MAP_EXEC) || !hl_maps_same_file(map, object->map))
		return false;
	/* of the copy of the file that the object is, if it is loaded twice */
	return map->start - map->offset == object->map->start - object->map->offset;
}

/* ---- relocations ---- */

/* What a slot leads to. One of the procedure linkage table may still lead to the linker: another one
 * may tell more. */
static void keep_slot(const struct hl_objects *objects, const struct hl_object *object,
		      uint64_t slot, struct hl_object_symbol *kept)
{
	uint64_t reached;

	if (hl_objects_peek(objects, slot + object->bias, &reached, sizeof(reached)) &&
	    (!kept->reached || has_code(objects, object, kept->reached)))
		kept->reached = reached;
}

/* Slots of indirect functions have no name, but the address of the function that resolves them. */
static void read_indirect(const struct hl_objects *objects, const struct hl_object *object,
			  const GElf_Rela *entry)
{
	for (size_t i = 0; i < objects->name_count; i++)
		if (object->symbols[i].is_indirect &&
		    object->symbols[i].address - object->bias == (uint64_t)entry->r_addend)
			keep_slot(objects, object, entry->r_offset, &object->symbols[i]);
}

static void read_relocation(const struct hl_objects *objects, const struct hl_object *object,
			    Elf *elf, const GElf_Rela *entry, Elf_Data *symbols, size_t names)
{
	unsigned type = GELF_R_TYPE(entry->r_info);
	GElf_Sym symbol;
	size_t i;

	if (type == HL_RELOCATION_INDIRECT)
		read_indirect(objects, object, entry);
	if ((type != HL_RELOCATION_SLOT && type != HL_RELOCATION_DATA &&
	     type != HL_RELOCATION_WORD) ||
	    entry->r_addend || !symbols ||
	    !gelf_getsym(symbols, (int)GELF_R_SYM(entry->r_info), &symbol))
		return;
	const char *name = elf_strptr(elf, names, symbol.st_name);
	struct name_visit visit = visit_names(name ? name : "");
	while (next_name(objects, &visit, &i)) {
		object->symbols[i].is_requested = true;
		keep_slot(objects, object, entry->r_offset, &object->symbols[i]);
	}
}

static void read_slots(const struct hl_objects *objects, struct hl_object *object, Elf *elf)
{
	for (Elf_Scn *section = NULL; (section = elf_nextscn(elf, section));) {
		GElf_Shdr header, table = {0};
		GElf_Rela entry;
		if (!gelf_getshdr(section, &header) || header.sh_type != SHT_RELA ||
		    !(header.sh_flags & SHF_ALLOC))
			continue;
		Elf_Scn *symbols = header.sh_link ? elf_getscn(elf, header.sh_link) : NULL;
		Elf_Data *symbol_content = symbols && gelf_getshdr(symbols, &table)
						   ? elf_getdata(symbols, NULL)
						   : NULL;
		Elf_Data *content = elf_getdata(section, NULL);
		for (int i = 0; content && gelf_getrela(content, i, &entry); i++) {
			read_relocation(objects, object, elf, &entry, symbol_content,
					table.sh_link);
			if (object->annotated_word == entry.r_offset + object->bias)
				object->word_addend = header.sh_addr + object->bias +
						      i * sizeof(Elf64_Rela) +
						      offsetof(Elf64_Rela, r_addend);
		}
	}
}

/* ---- objects ---- */

static void read_headers(struct hl_object *object, Elf *elf)
{
	GElf_Ehdr header;
	GElf_Phdr segment;
	uint64_t address;

	if (!gelf_getehdr(elf, &header))
		return;
	object->entry = header.e_entry + object->bias;
	if (hl_elf_address(elf, header.e_phoff, false, &address)) {
		object->headers = address + object->bias;
		object->header_count = header.e_phnum;
	}
	object->is_alone = hl_elf_is_alone(elf);
	for (int i = 0; gelf_getphdr(elf, i, &segment); i++) {
		if (segment.p_type == PT_DYNAMIC)
			object->dynamic = segment.p_vaddr + object->bias;
		object->has_loader |= segment.p_type == PT_INTERP;
		if (segment.p_type == PT_LOAD && segment.p_flags & PF_X && !object->code_end) {
			object->code_start = segment.p_vaddr + object->bias;
			object->code_end = object->code_start + segment.p_memsz;
		}
	}
}

static bool is_known(const struct hl_objects *objects, const struct hl_map *map, uint64_t bias)
{
	for (size_t i = 0; i < objects->count; i++)
		if (objects->objects[i].bias == bias &&
		    hl_maps_same_file(objects->objects[i].map, map))
			return true;
	return false;
}

Elf *hl_objects_open(const struct hl_objects *objects, const struct hl_map *map, int *ret_fd)
{
	*ret_fd = hl_maps_open_file(objects->pid, map);
	Elf *elf = *ret_fd < 0 ? NULL : hl_elf_open(*ret_fd);
	if (elf && !hl_elf_is_native(elf)) {
		elf_end(elf);
		return NULL;
	}
	return elf;
}

/* What has code and is not an object of this machine's, or cannot be read, is left out. */
static int add_object(struct hl_objects *objects, const struct hl_map *map)
{
	HL_CLOSED int fd = -1;
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_objects_open(objects, map, &fd);
	struct hl_object object = {.map = map};
	uint64_t address;

	if (!elf || !hl_elf_address(elf, map->offset, map->flags & HL_MAP_EXEC, &address))
		return 0;
	object.bias = map->start - address;
	if (is_known(objects, map, object.bias))
		return 0;
	object.symbols = calloc(objects->name_count, sizeof(*object.symbols));
	if (!object.symbols ||
	    HL_ARRAY_APPEND(objects->objects, objects->count, objects->capacity, object) < 0) {
		free(object.symbols);
		return -ENOMEM;
	}
	struct hl_object *added = &objects->objects[objects->count - 1];
	read_headers(added, elf);
	read_symbols(objects, added, elf, HL_ELF_DYNSYM);
	read_symbols(objects, added, elf, HL_ELF_SYMTAB);
	read_annotations(objects, added, elf);
	read_guests(objects, added, elf);
	read_slots(objects, added, elf);
	return 0;
}

static bool may_be_object(const struct hl_maps *maps, size_t i)
{
	const struct hl_map *map = &maps->maps[i];

	return map->inode && (map->flags & HL_MAP_EXEC ||
			      (!map->offset && i + 1 < maps->count && is_moved_code(map + 1)));
}

static int add_all(struct hl_objects *objects)
{
	int r = hl_index_reserve(&objects->index, objects->name_count);

	for (size_t i = 0; i < objects->name_count && r == 0; i++)
		r = hl_index_add(&objects->index,
				 hl_hash_bytes(objects->names[i], strlen(objects->names[i])),
				 (uint32_t)i + 1);
	for (size_t i = 0; i < objects->maps->count && r == 0; i++)
		if (may_be_object(objects->maps, i))
			r = add_object(objects, &objects->maps->maps[i]);
	return r;
}

struct hl_definition hl_objects_definition(const struct hl_objects *objects, size_t name,
					   uint64_t address)
{
	for (size_t i = 0; address && i < objects->count; i++) {
		const struct hl_object *object = &objects->objects[i];
		const struct hl_object_symbol *symbol = &object->symbols[name];
		if (!hl_object_symbol_is_function(symbol))
			continue;
		if (!symbol->is_indirect && symbol->address == address)
			return (struct hl_definition){object, address, symbol->bytes};
		if (symbol->is_indirect && has_code(objects, object, address))
			return (struct hl_definition){object, address, 0};
	}
	return (struct hl_definition){0};
}

/* ---- their order ---- */

static void put_at(struct hl_objects *objects, size_t from, size_t to)
{
	struct hl_object moved = objects->objects[from];

	if (from < to)
		return;
	memmove(&objects->objects[to + 1], &objects->objects[to],
		(from - to) * sizeof(*objects->objects));
	objects->objects[to] = moved;
}

/* The program by its headers, which the kernel has told it. */
static bool put_program_first(struct hl_objects *objects)
{
	uint64_t headers = hl_process_auxv(objects->pid, AT_PHDR);
	const struct hl_map *map = hl_maps_find(objects->maps, headers);

	for (size_t i = 0; map && i < objects->count; i++)
		if (objects->objects[i].headers == headers ||
		    hl_maps_same_file(objects->objects[i].map, map)) {
			put_at(objects, i, 0);
			return true;
		}
	return false;
}

/* If a program was started as an argument of its loader, the kernel knows only the loader. */
static uint64_t debug_of_loader(const struct hl_objects *objects)
{
	uint64_t address, place;

	for (size_t i = 0; i < objects->count; i++) {
		const struct hl_object *object = &objects->objects[i];
		HL_CLOSED int fd = -1;
		HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_objects_open(objects, object->map, &fd);
		if (!elf)
			continue;
		if (hl_elf_find_symbol(elf, HL_ELF_DYNSYM, "_r_debug", &address))
			return address + object->bias;
		if (hl_elf_find_symbol(elf, HL_ELF_DYNSYM, "_dl_debug_addr", &address) && /* musl */
		    hl_objects_peek(objects, address + object->bias, &place, sizeof(place)))
			return place;
	}
	return 0;
}

uint64_t hl_objects_debug_place(const struct hl_objects *objects)
{
	uint64_t at = objects->objects[0].dynamic;

	ElfW(Dyn) entry;

	for (unsigned i = 0; at && i < DYNAMIC_MAX; i++, at += sizeof(entry)) {
		if (!hl_objects_peek(objects, at, &entry, sizeof(entry)) || entry.d_tag == DT_NULL)
			break;
		if (entry.d_tag == DT_DEBUG)
			return at + offsetof(ElfW(Dyn), d_un);
	}
	return 0;
}

/* The address of the first struct link_map, the linker's list of modules; 0 if there is none. */
static uint64_t linked_list(const struct hl_objects *objects)
{
	uint64_t at = hl_objects_debug_place(objects), place = 0, list;

	if (!at || !hl_objects_peek(objects, at, &place, sizeof(place)))
		place = 0;
	if (!place && !objects->objects[0].has_loader)
		place = debug_of_loader(objects);
	return place && hl_objects_peek(objects, place + offsetof(struct r_debug, r_map), &list,
					sizeof(list))
		       ? list
		       : 0;
}

/* As the linker has them; what it does not know of stays behind. */
static void put_in_order(struct hl_objects *objects)
{
	uint64_t at = linked_list(objects);
	struct link_map linked;
	size_t sorted = 0;

	for (unsigned i = 0; at && i < LINKED_OBJECTS_MAX && sorted < objects->count; i++) {
		if (!hl_objects_peek(objects, at, &linked, sizeof(linked)))
			return;
		for (size_t k = sorted; k < objects->count; k++)
			if (objects->objects[k].dynamic &&
			    objects->objects[k].dynamic == (uint64_t)(uintptr_t)linked.l_ld) {
				put_at(objects, k, sorted++);
				break;
			}
		at = (uint64_t)(uintptr_t)linked.l_next;
	}
}

/* For the program, the symbols in its separate debug file count too. */
static void complete_program(const struct hl_objects *objects)
{
	struct hl_object *program = &objects->objects[0];
	HL_CLOSED int fd = -1;
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_objects_open(objects, program->map, &fd);

	if (elf && !program->has_symbols)
		read_debug_file(objects, program, elf);
}

int hl_objects_read_more(pid_t pid, const struct hl_maps *maps, const char *const *names,
			 size_t name_count, struct hl_objects *ret_objects, struct hl_error *err)
{
	int memory = hl_proc_open_memory(pid, O_RDONLY);

	if (memory < 0)
		return hl_proc_error(pid, memory, "the memory", err);
	struct hl_objects objects = {.pid = pid,
				     .memory = memory,
				     .maps = maps,
				     .names = names,
				     .name_count = name_count};
	int r = add_all(&objects);
	if (r < 0) {
		hl_objects_release(&objects);
		return hl_error_set(
			err, r, "cannot read the objects of process '%d': out of memory", (int)pid);
	}
	*ret_objects = objects;
	return 0;
}

int hl_objects_read(pid_t pid, const struct hl_maps *maps, const char *const *names,
		    size_t name_count, struct hl_objects *ret_objects, struct hl_error *err)
{
	struct hl_objects objects;

	int r = hl_objects_read_more(pid, maps, names, name_count, &objects, err);
	if (r < 0)
		return r;
	if (!objects.count || !put_program_first(&objects)) {
		hl_objects_release(&objects);
		if (hl_process_has_ended(pid))
			return hl_error_set(err, -ESRCH, "process '%d' has ended", (int)pid);
		return hl_error_set(err, -ENOENT,
				    "process '%d' has no program of this machine that can be read",
				    (int)pid);
	}
	put_in_order(&objects);
	complete_program(&objects);
	*ret_objects = objects;
	return 0;
}

void hl_objects_release(struct hl_objects *objects)
{
	for (size_t i = 0; i < objects->count; i++)
		free(objects->objects[i].symbols);
	free(objects->objects);
	hl_index_release(&objects->index);
	if (objects->memory >= 0)
		close(objects->memory);
	*objects = (struct hl_objects){.memory = -1};
}

/* ---- what rules name ---- */

struct lookup {
	const struct hl_objects *objects;
	const struct hl_hook_rules *rules;
	size_t first_name;
	const struct hl_object *allocator;
};

void hl_rule_lookup_names(const struct hl_hook_rules *rules, const char **ret_names)
{
	for (size_t i = 0; i < rules->count; i++) {
		ret_names[HL_RULE_LOOKUP_NAMES * i] = rules->rules[i].symbol;
		ret_names[HL_RULE_LOOKUP_NAMES * i + 1] = rules->rules[i].when;
	}
}

static size_t symbol_of(const struct lookup *lookup, size_t rule)
{
	return lookup->first_name + HL_RULE_LOOKUP_NAMES * rule;
}

static bool holds(const struct lookup *lookup, size_t rule)
{
	bool is_there = lookup->rules->rules[rule].holds;

	for (size_t i = 0; i < lookup->objects->count && lookup->rules->rules[rule].when[0]; i++)
		is_there |= hl_object_symbol_is_function(
			&lookup->objects->objects[i].symbols[symbol_of(lookup, rule) + 1]);
	return is_there;
}

/* "libpool.so" is libpool.so.3, too. */
static bool is_module(const struct hl_object *object, const char *module)
{
	const char *name = hl_path_basename(object->map->path);
	size_t length = strlen(module);

	return strncmp(name, module, length) == 0 && (!name[length] || name[length] == '.');
}

/*
 * An allocator that serves malloc() may have prefixed functions within, which see the same calls
 * once more. They count if another object calls them.
 */
static bool is_within(const struct lookup *lookup, const struct hl_object *object, size_t rule)
{
	const struct hl_objects *objects = lookup->objects;

	if (lookup->rules->rules[rule].is_asked || lookup->rules->rules[rule].is_beside ||
	    object != lookup->allocator)
		return false;
	for (size_t i = 0; i < objects->count; i++)
		if (&objects->objects[i] != object &&
		    objects->objects[i].symbols[symbol_of(lookup, rule)].is_requested)
			return false;
	return true;
}

static struct hl_definition find_function(const struct lookup *lookup, size_t index)
{
	const struct hl_objects *objects = lookup->objects;
	const struct hl_hook_rule *rule = &lookup->rules->rules[index];
	size_t name = symbol_of(lookup, index);
	struct hl_definition found = {0};

	for (size_t i = 0; i < objects->count && !found.object; i++) {
		const struct hl_object *object = &objects->objects[i];
		const struct hl_object_symbol *symbol = &object->symbols[name];
		uint64_t address = rule->address + object->bias;
		/* A recorder that is linked exports what allocators do, and passes calls on. */
		if (!rule->is_asked && is_module(object, "libheapline.so"))
			continue;
		/* An address without a module is the program's. */
		if (rule->module[0] ? !is_module(object, rule->module) : rule->address && i > 0)
			continue;
		if (rule->address && has_code(objects, object, address))
			found = (struct hl_definition){object, address, 0};
		else if (hl_object_symbol_is_function(symbol) && !is_within(lookup, object, index))
			found = hl_objects_definition(objects, name,
						      symbol->is_indirect ? symbol->reached
									  : symbol->address);
	}
	return found;
}

static bool is_loaded(const struct hl_objects *objects, const char *module)
{
	for (size_t i = 0; i < objects->count; i++)
		if (is_module(&objects->objects[i], module))
			return true;
	return false;
}

/* One function of a requested preset is enough: versions differ. */
static bool is_missing(const struct hl_hook_rules *rules, const struct hl_definition *found,
		       size_t index)
{
	const struct hl_hook_rule *rule = &rules->rules[index];
	bool is_there = found[index].object != NULL;

	for (size_t i = 0; i < rules->count && rule->preset[0]; i++)
		is_there |= found[i].object && strcmp(rules->rules[i].preset, rule->preset) == 0;
	return rule->is_asked && !is_there;
}

int hl_rule_lookup(const struct hl_objects *objects, struct hl_hook_rules *rules, size_t first_name,
		   const struct hl_object *allocator, bool may_come,
		   struct hl_definition *ret_found, struct hl_error *err)
{
	struct lookup lookup = {objects, rules, first_name, allocator};

	for (size_t i = 0; i < rules->count; i++)
		if (!rules->rules[i].tells && holds(&lookup, i)) {
			rules->rules[i].holds = true;
			ret_found[i] = find_function(&lookup, i);
		}
	for (size_t i = 0; i < rules->count; i++) {
		struct hl_hook_rule *rule = &rules->rules[i];
		rule->is_awaited = is_missing(rules, ret_found, i);
		if (rule->is_awaited &&
		    (!may_come || !rule->module[0] || is_loaded(objects, rule->module)))
			return hl_error_set(err, -ENOENT,
					    "process '%d' has no function '%s'%s%s%s, which --hook "
					    "names; 'nm' lists the functions of a file that is not "
					    "stripped%s",
					    (int)objects->pid, rule->symbol,
					    rule->module[0] ? " in '" : "", rule->module,
					    rule->module[0] ? "'" : "",
					    may_come ? ", and a library that is loaded later is "
						       "to be named: 'malloc=LIBRARY!NAME'"
						     : "");
	}
	return 0;
}

/* In one library that was loaded later; such a function has been called by nobody yet. */
static struct hl_definition find_in(const struct lookup *lookup, const struct hl_object *object,
				    size_t index)
{
	const struct hl_hook_rule *rule = &lookup->rules->rules[index];
	const struct hl_object_symbol *symbol = &object->symbols[symbol_of(lookup, index)];
	uint64_t address = rule->address + object->bias;

	if (rule->module[0] ? !is_module(object, rule->module) : rule->address != 0)
		return (struct hl_definition){0};
	if (rule->address)
		return has_code(lookup->objects, object, address)
			       ? (struct hl_definition){object, address, 0}
			       : (struct hl_definition){0};
	/* What an indirect function becomes is not known before it is called. */
	return hl_object_symbol_is_function(symbol) && !symbol->is_indirect
		       ? (struct hl_definition){object, symbol->address, symbol->bytes}
		       : (struct hl_definition){0};
}

bool hl_rule_lookup_next(const struct hl_objects *objects, const struct hl_hook_rules *rules,
			 struct hl_rule_visit *visit, size_t *ret_rule,
			 struct hl_definition *ret_found)
{
	const struct lookup lookup = {objects, rules, visit->first_name, NULL};

	for (; visit->object < objects->count; visit->object++, visit->rule = 0)
		while (visit->rule < rules->count) {
			size_t rule = visit->rule++;
			if (visit->tells_alone && !rules->rules[rule].tells)
				continue;
			if (!holds(&lookup, rule))
				continue;
			*ret_found = find_in(&lookup, &objects->objects[visit->object], rule);
			*ret_rule = rule;
			if (ret_found->object)
				return true;
		}
	return false;
}

bool hl_rule_lookup_is_usual(const struct hl_hook_rule *rule)
{
	return !rule->size_at && !rule->count_at && !rule->pointer_at && !rule->has_size &&
	       !rule->resets;
}

bool hl_rule_lookup_serves(const struct hl_hook_rules *rules, const struct hl_definition *found,
			   bool is_asked)
{
	bool allocates = false, frees = false;

	for (size_t i = 0; i < rules->count; i++) {
		const struct hl_hook_rule *rule = &rules->rules[i];
		bool is_usual = hl_rule_lookup_is_usual(rule);
		if (rule->tells || rule->resets || !found[i].object || rule->is_asked != is_asked)
			continue;
		/* Blocks that are freed or moved unseen would be counted for good. */
		if (!is_usual && (rule->call == HL_HOOK_FREE || rule->call == HL_HOOK_REALLOC))
			return false;
		allocates |= is_usual && rule->call == HL_HOOK_MALLOC;
		frees |= rule->call == HL_HOOK_FREE;
	}
	return allocates && frees;
}
