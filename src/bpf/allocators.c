/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the malloc family in ELF files by their symbol tables; see allocators.h. */
#include "bpf/allocators.h"

#include "base/array.h"
#include "base/names.h"
#include "elf/elf.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CODE_BYTES_MAX	   4096 /* of a function; the rest is not searched for jumps */
#define CODE_BYTES_DEFAULT 64	/* of a function without a size, written in assembly */
#define STUB_BYTES	   12	/* of a stub of a procedure linkage table */

/* A function while its file is read. */
struct candidate {
	char name[sizeof(((struct hl_allocator_function *)0)->name)];
	enum hl_heap_call call;
	bool throws;
	uint32_t rank;	  /* of its name */
	uint64_t address; /* as the file has it */
	uint64_t offset;  /* in the file */
	size_t bytes;
};

struct reading {
	int fd;
	Elf *elf;
	struct candidate *candidates;
	size_t count, capacity;
};

/* What an indirect function (STT_GNU_IFUNC) is at run time only its own code knows: it is left out.
 */
static int add_symbol(struct reading *reading, const GElf_Sym *symbol, const char *name)
{
	struct hl_allocator_name known;

	if (!hl_allocator_name_find(name, &known) || GELF_ST_TYPE(symbol->st_info) != STT_FUNC ||
	    symbol->st_shndx == SHN_UNDEF)
		return 0;
	struct candidate added = {.call = known.call,
				  .throws = known.throws,
				  .rank = known.rank,
				  .address = symbol->st_value,
				  .bytes = symbol->st_size ? symbol->st_size : CODE_BYTES_DEFAULT};
	strncpy(added.name, name, sizeof(added.name) - 1);
	if (!hl_elf_code_offset(reading->elf, added.address, &added.offset))
		return 0;
	/* Of aliases the plainer name stays, and what holds for either. */
	for (size_t i = 0; i < reading->count; i++) {
		struct candidate *alias = &reading->candidates[i];
		if (alias->address != added.address)
			continue;
		alias->throws |= added.throws;
		if (added.rank < alias->rank) {
			memcpy(alias->name, added.name, sizeof(alias->name));
			alias->rank = added.rank;
			alias->call = added.call;
		}
		return 0;
	}
	return HL_ARRAY_APPEND(reading->candidates, reading->count, reading->capacity, added);
}

static size_t read_code(int fd, uint64_t offset, size_t bytes, uint8_t *code)
{
	ssize_t got = offset > INT64_MAX ? -1 : pread(fd, code, bytes, (off_t)offset);

	return got < 0 ? 0 : (size_t)got;
}

/* The symbol whose address the loader puts at ${slot}, or NULL. */
static const char *symbol_of_slot(Elf *elf, uint64_t slot)
{
	for (Elf_Scn *section = NULL; (section = elf_nextscn(elf, section));) {
		GElf_Shdr header, table;
		if (!gelf_getshdr(section, &header) || header.sh_type != SHT_RELA ||
		    !header.sh_entsize)
			continue;
		Elf_Scn *symbols = elf_getscn(elf, header.sh_link);
		Elf_Data *content = elf_getdata(section, NULL);
		GElf_Rela entry;
		GElf_Sym symbol;
		for (size_t i = 0; content && i < header.sh_size / header.sh_entsize; i++)
			if (gelf_getrela(content, (int)i, &entry) && entry.r_offset == slot &&
			    symbols && gelf_getshdr(symbols, &table) &&
			    gelf_getsym(elf_getdata(symbols, NULL), (int)GELF_R_SYM(entry.r_info),
					&symbol))
				return elf_strptr(elf, table.sh_link, symbol.st_name);
	}
	return NULL;
}

/* The symbol that a stub of the procedure linkage table at ${address} jumps to; NULL when there is
 * no stub. */
static const char *symbol_of_stub(const struct reading *reading, uint64_t address)
{
	uint8_t code[STUB_BYTES];
	uint64_t offset;

	if (!hl_elf_code_offset(reading->elf, address, &offset))
		return NULL;
	size_t bytes = read_code(reading->fd, offset, sizeof(code), code);
	uint64_t slot = hl_probe_place_stub_slot(code, bytes, address);
	return slot ? symbol_of_slot(reading->elf, slot) : NULL;
}

struct call_search {
	const struct reading *reading;
	const struct candidate *caller;
};

/* Whether a branch of a candidate leads to another candidate, directly or by a stub. */
static bool leads_to_candidate(int64_t target, void *context)
{
	const struct call_search *search = context;
	const struct reading *reading = search->reading;
	uint64_t address = search->caller->address + (uint64_t)target;

	if (target >= 0 && target < (int64_t)search->caller->bytes)
		return false;
	const char *stub = symbol_of_stub(reading, address);
	for (size_t i = 0; i < reading->count; i++)
		if (&reading->candidates[i] != search->caller &&
		    (reading->candidates[i].address == address ||
		     (stub && strcmp(reading->candidates[i].name, stub) == 0)))
			return true;
	return false;
}

static bool is_operator(const struct candidate *candidate)
{
	return strncmp(candidate->name, "_Z", 2) == 0;
}

/* Operators of a file without a malloc of its own use the malloc of another one. */
static bool has_c_function(const struct reading *reading)
{
	for (size_t i = 0; i < reading->count; i++)
		if (!is_operator(&reading->candidates[i]))
			return true;
	return false;
}

/* How much of the code runs in any case: up to a jump that is always taken, if it comes first;
 * all, when every branch is to be looked at. */
static size_t bytes_to_search(const struct candidate *candidate, const uint8_t *code, size_t bytes,
			      const struct hl_probe_place *place)
{
	bool is_new = is_operator(candidate) && candidate->call == HL_HEAP_MALLOC;

	if (candidate->throws || is_new || candidate->call == HL_HEAP_REALLOCARRAY)
		return bytes;
	size_t jump = hl_probe_place_jump_bytes(code + place->offset, bytes - place->offset);
	return jump ? place->offset + jump : 0;
}

unsigned hl_allocators_call_arguments(enum hl_heap_call call)
{
	switch (call) {
	case HL_HEAP_FREE:
	case HL_HEAP_MALLOC:
		return 1;
	case HL_HEAP_CALLOC:
	case HL_HEAP_MEMALIGN:
	case HL_HEAP_REALLOC:
		return 2;
	default:
		return 3;
	}
}

static void place_candidate(const struct reading *reading, const struct candidate *candidate,
			    struct hl_allocator_functions *found)
{
	struct call_search search = {reading, candidate};
	uint8_t code[CODE_BYTES_MAX];
	size_t wanted = candidate->bytes < sizeof(code) ? candidate->bytes : sizeof(code);
	size_t bytes = read_code(reading->fd, candidate->offset, wanted, code);

	if (!bytes || (is_operator(candidate) && !has_c_function(reading)))
		return;
	struct hl_probe_place place =
		hl_probe_place(code, bytes, hl_allocators_call_arguments(candidate->call));
	if (hl_probe_place_visit_branches(code, bytes_to_search(candidate, code, bytes, &place),
					  leads_to_candidate, &search))
		return;
	struct hl_allocator_function *function = &found->functions[found->count++];
	*function = (struct hl_allocator_function){
		.call = candidate->call,
		.throws = candidate->throws,
		.offset = candidate->offset,
		.place = place,
		.calls_others =
			hl_probe_place_visit_branches(code, bytes, leads_to_candidate, &search),
	};
	memcpy(function->name, candidate->name, sizeof(function->name));
}

static int by_offset(const void *left, const void *right)
{
	const struct hl_allocator_function *a = left, *b = right;

	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

int hl_allocators_read_functions(int fd, struct hl_allocator_functions *ret_found)
{
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	struct hl_allocator_functions found = {0};
	struct reading reading = {.fd = fd, .elf = elf};
	struct hl_elf_symbols all = {.elf = elf, .tables = HL_ELF_SYMTAB | HL_ELF_DYNSYM};
	int r = 0;

	if (hl_elf_is_native(elf))
		while (r == 0 && hl_elf_symbols_next(&all))
			r = add_symbol(&reading, &all.symbol, all.name);
	if (r == 0)
		r = HL_ARRAY_RESERVE(found.functions, found.capacity, reading.count);
	if (r == 0) {
		for (size_t i = 0; i < reading.count; i++)
			place_candidate(&reading, &reading.candidates[i], &found);
		if (found.count)
			qsort(found.functions, found.count, sizeof(*found.functions), by_offset);
		*ret_found = found;
	}
	free(reading.candidates);
	return r;
}

void hl_allocators_release_functions(struct hl_allocator_functions *functions)
{
	free(functions->functions);
	*functions = (struct hl_allocator_functions){0};
}

static bool was_seen(const struct hl_allocators *allocators, const struct hl_map *map)
{
	for (size_t i = 0; i < allocators->seen_count; i++)
		if (allocators->seen[i].inode == map->inode &&
		    allocators->seen[i].dev_major == map->dev_major &&
		    allocators->seen[i].dev_minor == map->dev_minor)
			return true;
	return false;
}

static int keep_seen(struct hl_allocators *allocators, const struct hl_map *map)
{
	return HL_ARRAY_APPEND(
		allocators->seen, allocators->seen_count, allocators->seen_capacity,
		(struct hl_allocator_file){map->dev_major, map->dev_minor, map->inode});
}

static int add_allocator(struct hl_allocators *allocators, const struct hl_map *map,
			 const struct hl_allocator_functions *found)
{
	int r = HL_ARRAY_RESERVE(allocators->allocators, allocators->capacity,
				 allocators->count + 1);
	char *path = r == 0 ? strdup(map->path) : NULL;

	if (!path)
		return -ENOMEM;
	struct hl_allocator *added = &allocators->allocators[allocators->count++];
	*added = (struct hl_allocator){*map, *found};
	added->map.path = path;
	return 0;
}

static int look_through(struct hl_allocators *allocators, pid_t pid, const struct hl_map *map)
{
	struct hl_allocator_functions found = {0};
	int fd = hl_maps_open_file(pid, map);

	if (fd < 0)
		return fd == -ENOMEM ? fd : keep_seen(allocators, map);
	int r = hl_allocators_read_functions(fd, &found);
	close(fd);
	if (r == 0 && found.count)
		r = add_allocator(allocators, map, &found);
	if (r < 0 || !found.count)
		hl_allocators_release_functions(&found);
	return r < 0 ? r : keep_seen(allocators, map);
}

int hl_allocators_add(struct hl_allocators *allocators, pid_t pid, const struct hl_maps *maps,
		      const char *object)
{
	for (size_t i = 0; i < maps->count; i++) {
		const struct hl_map *map = &maps->maps[i];
		/* glibc's loader has a malloc for the time before libc is there; musl's is its
		 * libc. */
		if (!(map->flags & HL_MAP_EXEC) || !map->inode ||
		    hl_path_is_glibc_loader(map->path) || (object && !strstr(map->path, object)) ||
		    was_seen(allocators, map))
			continue;
		int r = look_through(allocators, pid, map);
		if (r < 0)
			return r;
	}
	return 0;
}

int hl_allocators_find(pid_t pid, const struct hl_maps *maps, const char *object,
		       struct hl_allocators *ret_allocators, struct hl_error *err)
{
	struct hl_allocators allocators = {0};
	int r = hl_allocators_add(&allocators, pid, maps, object);

	if (r < 0)
		hl_error_set(err, r, "cannot look for allocators: out of memory");
	else if (!allocators.count && object)
		r = hl_error_set(
			err, -ENOENT,
			"no allocator function found in the parts of '%s' that process '%d' "
			"has mapped; leave out -O to look everywhere",
			object, (int)pid);
	else if (!allocators.count && hl_maps_are_32_bit(maps))
		r = hl_error_set(err, -ENOTSUP,
				 "process '%d' is a 32-bit program, whose allocations cannot be "
				 "traced; 'heapline pgfault -p %d 60' counts the pages that it "
				 "brings in",
				 (int)pid, (int)pid);
	else if (!allocators.count)
		r = hl_error_set(err, -ENOENT,
				 "process '%d' has no known allocation function: its program is "
				 "static and stripped, or has another allocator (Go); 'heapline "
				 "pgfault -p %d 60' shows what makes its memory grow",
				 (int)pid, (int)pid);
	if (r < 0)
		hl_allocators_release(&allocators);
	else
		*ret_allocators = allocators;
	return r;
}

void hl_allocators_release(struct hl_allocators *allocators)
{
	for (size_t i = 0; i < allocators->count; i++) {
		hl_allocators_release_functions(&allocators->allocators[i].found);
		free(allocators->allocators[i].map.path);
	}
	free(allocators->allocators);
	free(allocators->seen);
	*allocators = (struct hl_allocators){0};
}
