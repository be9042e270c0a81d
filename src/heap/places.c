/* SPDX-License-Identifier: BSD-2-Clause */
/* Stacks, segments of mapped ELF files, and the tables of HotSpot; see extents.h. */
#include "heap/extents.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/machine.h"
#include "base/names.h"
#include "elf/elf.h"
#include "heap/thread.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The place of ${kind} is added, widened to whole pages of ${page_bytes}. 0 or -ENOMEM. */
static int places_add(struct hl_places *places, uint64_t page_bytes, uint64_t start, uint64_t end,
		      enum hl_place_kind kind)
{
	const struct hl_place place = {start & ~(page_bytes - 1),
				       (end + page_bytes - 1) & ~(page_bytes - 1), kind};

	return HL_ARRAY_APPEND(places->places, places->count, places->capacity, place);
}

/* Of places that overlap, the later one begins where the one before ends. */
static void sort_places(struct hl_places *places)
{
	uint64_t end = 0;
	size_t kept = 0;

	if (places->count)
		qsort(places->places, places->count, sizeof(*places->places), hl_addresses_compare);
	for (size_t i = 0; i < places->count; i++) {
		struct hl_place place = places->places[i];
		place.start = place.start > end ? place.start : end;
		if (place.start >= place.end)
			continue;
		places->places[kept++] = place;
		end = place.end;
	}
	places->count = kept;
}

void hl_places_release(struct hl_places *places)
{
	free(places->places);
	*places = (struct hl_places){0};
}

/* ---- ELF files ---- */

#define HEADERS_BYTES 4096u /* of a file, in which its program headers lie */

/* The file's bytes from ${offset} on, from memory or, where the first ones are not there, from the file. How many; 0: they cannot
 * be read. */
static size_t read_headers(struct hl_memory *memory, const struct hl_map *map, uint64_t offset,
			   uint8_t bytes[HEADERS_BYTES])
{
	if (!offset && map->flags & HL_MAP_READ &&
	    hl_memory_read_present(memory, map->start, bytes, HEADERS_BYTES) == 0)
		return HEADERS_BYTES;
	HL_CLOSED int fd = hl_memory_open_file(memory, map);
	ssize_t count = fd < 0 ? 0 : pread(fd, bytes, HEADERS_BYTES, (off_t)offset);
	return count > 0 ? (size_t)count : 0;
}

/* Whether the page of ${segment} is mapped where a loader puts it: a tool that maps a whole file to read it does not. */
static bool is_loaded(const struct hl_memory *memory, const struct hl_map *first, uint64_t bias,
		      const Elf64_Phdr *segment)
{
	uint64_t mask = ~(memory->page_bytes - 1), address = (bias + segment->p_vaddr) & mask;
	const struct hl_map *map = hl_maps_find(&memory->maps, address);

	if (!segment->p_filesz)
		return map && !map->inode;
	return map && hl_maps_same_file(map, first) &&
	       map->offset + (address - map->start) == (segment->p_offset & mask);
}

/* Adds the segments of the file whose beginning ${map} maps, if it is an ELF file that was loaded. */
static int add_segments(struct hl_memory *memory, const struct hl_map *map,
			struct hl_places *places)
{
	uint8_t bytes[HEADERS_BYTES];
	size_t count = read_headers(memory, map, 0, bytes);
	Elf64_Ehdr header;
	Elf64_Phdr segment;
	bool has_bias = false;
	uint64_t bias = 0;
	int r = 0;

	memcpy(&header, bytes, sizeof(header));
	if (count < sizeof(header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(segment))
		return 0;
	/* Where BOLT has rewritten the file they do not follow its header. */
	if (header.e_phoff >= HEADERS_BYTES) {
		count = read_headers(memory, map, header.e_phoff, bytes);
		header.e_phoff = 0;
	}
	for (size_t i = 0; i < header.e_phnum && r == 0; i++) {
		if (header.e_phoff > count || (i + 1) * sizeof(segment) > count - header.e_phoff)
			break;
		memcpy(&segment, bytes + header.e_phoff + i * sizeof(segment), sizeof(segment));
		if (segment.p_type != PT_LOAD || !segment.p_memsz)
			continue;
		if (!has_bias)
			bias = map->start - (segment.p_vaddr & ~(memory->page_bytes - 1));
		has_bias = true;
		if (is_loaded(memory, map, bias, &segment))
			r = places_add(places, memory->page_bytes, bias + segment.p_vaddr,
				       bias + segment.p_vaddr + segment.p_memsz,
				       HL_PLACE_VARIABLES);
	}
	return r;
}

/* ---- stacks of threads ---- */

/*
 * Stacks of threads, by the control block (struct pthread) that glibc and musl put at the top of each. It holds a word that it is
 * known by, and, in two words side by side, where the thread's memory begins and how long that is. Their
 * place differs between versions, but no other pair begins below the block and ends just above it.
 */

/* In glibc's struct pthread, in all versions: the links of the list of stacks. */
#define NEXT_WORD   (HL_PTHREAD_LIST / 8)
#define BEFORE_WORD (NEXT_WORD + 1)

#define CONTROL_WORDS	  320u /* of a struct pthread, at most */
#define CONTROL_ALIGNMENT 8u
#define STACK_BYTES_MIN	  4096u

#define RING_MAX      1000000u
#define VARIABLES_MAX (UINT64_C(16) << 20)
#define SEARCHED_MAX  (UINT64_C(16) << 20) /* above a stack pointer */
#define WINDOW_BYTES  (UINT64_C(64) << 10)
#define FIRST_ADDRESS UINT64_C(0x10000)
#define LAST_ADDRESS  (HL_USER_END - 1)

struct search {
	struct hl_memory *memory;
	struct hl_places *places;
	bool has_lists;		      /* of glibc, with all its threads */
	struct hl_addresses pointers; /* of stacks */
	struct hl_pages pages;
	uint64_t window[WINDOW_BYTES / 8];
};

struct control {
	uint64_t address;
	uint64_t words[CONTROL_WORDS];
	size_t count;
};

/* Reads the control block at ${address}; false where there is none. */
static bool read_control(struct search *search, uint64_t address, struct control *control)
{
	const struct hl_map *map = hl_maps_find(&search->memory->maps, address);
	uint64_t bytes = sizeof(control->words), page = search->memory->page_bytes;
	uint64_t in_page = page - address % page;

	if (!map || !(map->flags & HL_MAP_WRITE) || address & (CONTROL_ALIGNMENT - 1))
		return false;
	bytes = map->end - address < bytes ? map->end - address : bytes;
	/* The next page may be the lowest one of another stack, which no one has used. */
	int r = hl_memory_read_present(search->memory, address, control->words, bytes);
	if (r < 0 && in_page < bytes) {
		bytes = in_page;
		r = hl_memory_read_present(search->memory, address, control->words, bytes);
	}
	control->address = address;
	control->count = bytes / 8;
	return r == 0 && control->count > BEFORE_WORD &&
	       (control->words[0] == address || hl_pthread_is_at(control->words, address));
}

/* Adds the stack on top of which ${control} lies, and which holds ${pointer} if that is not 0. 1 if there is one, else 0, or
 * -ENOMEM. */
static int add_stack(struct search *search, const struct control *control, uint64_t pointer)
{
	uint64_t address = control->address;

	for (size_t i = 1; i + 1 < control->count; i++) {
		uint64_t start = control->words[i], bytes = control->words[i + 1];
		if (start < FIRST_ADDRESS || start >= address || bytes < STACK_BYTES_MIN ||
		    bytes <= address - start || bytes - (address - start) > HL_PTHREAD_ABOVE_MAX ||
		    (pointer && pointer < start))
			continue;
		int r = places_add(search->places, search->memory->page_bytes, start, start + bytes,
				   HL_PLACE_STACK);
		return r < 0 ? r : 1;
	}
	return 0;
}

/* ---- glibc's lists of stacks: in use, of the program's own memory, kept of threads that ended ---- */

/* Follows the list whose head at ${head} leads to ${link}, and adds its stacks. 1; 0 where it is another list, or empty;
 * -ENOMEM. */
static int follow_list(struct search *search, uint64_t head, uint64_t link)
{
	struct control control;
	uint64_t before = head;

	for (unsigned i = 0; i < RING_MAX && link != head; i++) {
		if (link < FIRST_ADDRESS || link > LAST_ADDRESS || link & 7 ||
		    !read_control(search, link - NEXT_WORD * 8, &control) ||
		    !hl_pthread_is_at(control.words, control.address) ||
		    control.words[BEFORE_WORD] != before)
			return 0;
		int r = add_stack(search, &control, 0);
		if (r < 0)
			return r;
		before = link;
		link = control.words[NEXT_WORD];
	}
	return before != head;
}

/* Looks for heads of lists in [${start}, ${end}). */
static int find_lists(struct search *search, uint64_t start, uint64_t end)
{
	search->pages.count = search->pages.page_count = 0;
	int r = hl_memory_scan(search->memory, start, end, &search->pages);

	for (size_t i = 0; i < search->pages.count && r == 0; i++) {
		uint64_t to, run_end = search->pages.runs[i].end;
		for (uint64_t at = search->pages.runs[i].start; at < run_end && r == 0; at = to) {
			to = run_end - at > WINDOW_BYTES ? at + WINDOW_BYTES : run_end;
			if (hl_memory_read(search->memory, at, search->window, to - at) < 0)
				continue;
			for (uint64_t word = at; word < to && r == 0; word += 8) {
				int followed =
					follow_list(search, word, search->window[(word - at) / 8]);
				search->has_lists = search->has_lists || followed > 0;
				r = followed < 0 ? followed : 0;
			}
		}
	}
	return r;
}

static bool holds_lists(const char *path)
{
	return hl_path_is_glibc_loader(path) ||
	       strncmp(hl_path_basename(path), "libpthread", 10) == 0;
}

static int read_lists(struct search *search)
{
	const struct hl_maps *maps = &search->memory->maps;
	size_t count = search->places->count;
	bool is_static = true;
	int r = 0;

	for (size_t i = 0; i < maps->count; i++)
		is_static = is_static && !(maps->maps[i].inode && holds_lists(maps->maps[i].path));
	for (size_t i = 0; i < count && r == 0; i++) {
		const struct hl_place place = search->places->places[i];
		const struct hl_map *map = hl_maps_find(maps, place.start);
		if (place.kind == HL_PLACE_VARIABLES && map &&
		    place.end - place.start <= VARIABLES_MAX &&
		    (is_static || holds_lists(map->path)))
			r = find_lists(search, place.start, place.end);
	}
	return r;
}

/* ---- stack pointers ---- */

static int add_pointer(void *context, const struct hl_thread_registers *registers)
{
	struct search *search = context;

	return HL_ARRAY_APPEND(search->pointers.addresses, search->pointers.count,
			       search->pointers.capacity, hl_thread_registers_sp(registers));
}

/* Looks above the stack pointer ${pointer} for the control block of its thread. */
static int search_above(struct search *search, uint64_t pointer)
{
	const struct hl_map *map = hl_maps_find(&search->memory->maps, pointer);
	uint64_t page = search->memory->page_bytes, start = pointer & ~(page - 1), end, to;
	struct control control;
	int found = 0;

	if (!map || map->inode || map->path[0] == '[')
		return 0;
	end = map->end - start > SEARCHED_MAX ? start + SEARCHED_MAX : map->end;
	search->pages.count = search->pages.page_count = 0;
	int r = hl_memory_scan(search->memory, start, end, &search->pages);
	for (size_t i = 0; i < search->pages.count && r == 0 && !found; i++) {
		uint64_t run_end = search->pages.runs[i].end;
		for (uint64_t at = search->pages.runs[i].start; at < run_end && !found; at = to) {
			to = run_end - at > WINDOW_BYTES ? at + WINDOW_BYTES : run_end;
			if (hl_memory_read(search->memory, at, search->window, to - at) < 0)
				continue;
			for (uint64_t word = at; word < to && !found; word += CONTROL_ALIGNMENT) {
				uint64_t block =
					hl_pthread_by_mark(word, search->window[(word - at) / 8]);
				if (block > pointer && read_control(search, block, &control))
					found = add_stack(search, &control, pointer);
			}
		}
	}
	return found < 0 ? found : r;
}

static int read_pointers(struct search *search)
{
	struct hl_addresses *pointers = &search->pointers;
	int r = hl_memory_threads(search->memory, add_pointer, search);

	if (r == 0 && search->memory->pid && !pointers->count)
		r = hl_process_stack_pointers(search->memory->pid, &pointers->addresses,
					      &pointers->count);
	for (size_t i = 0; i < pointers->count && r == 0; i++)
		r = search_above(search, pointers->addresses[i]);
	return r;
}

/*
 * Adds the stacks of the threads that ${memory} has, and those that glibc keeps of threads that ended: the list of stacks in
 * the dynamic loader's variables, or in those of a static program, which are in ${places}; and what begins below a stack
 * pointer and has its thread's control block on top. Of glibc and musl. The first thread's stack is the mapping that the
 * kernel calls so. 0 or a negative errno.
 */
static int stacks_read(struct hl_memory *memory, struct hl_places *places)
{
	struct search *search = calloc(1, sizeof(*search));
	int r = search ? 0 : -ENOMEM;

	for (size_t i = 0; i < memory->maps.count && r == 0; i++)
		if (strncmp(memory->maps.maps[i].path, "[stack", 6) == 0)
			r = places_add(places, memory->page_bytes, memory->maps.maps[i].start,
				       memory->maps.maps[i].end, HL_PLACE_STACK);
	if (r < 0) {
		free(search);
		return r;
	}
	search->memory = memory;
	search->places = places;
	r = read_lists(search);
	if (r == 0 && !search->has_lists)
		r = read_pointers(search);
	hl_addresses_release(&search->pointers);
	hl_pages_release(&search->pages);
	free(search);
	return r;
}

/* ---- all places ---- */

int hl_places_read(struct hl_memory *memory, const struct hl_jvm *jvm, struct hl_places *ret_places)
{
	struct hl_places places = {0};
	int r = 0;

	for (size_t i = 0; i < memory->maps.count && r == 0; i++) {
		const struct hl_map *map = &memory->maps.maps[i];
		if (map->inode && map->offset == 0 && !(map->flags & HL_MAP_SHARED))
			r = add_segments(memory, map, &places);
	}
	if (r == 0)
		r = stacks_read(memory, &places);
	if (r == 0 && jvm->heap_start)
		r = places_add(&places, memory->page_bytes, jvm->heap_start, jvm->heap_end,
			       HL_PLACE_JAVA);
	if (r == 0 && jvm->code_start)
		r = places_add(&places, memory->page_bytes, jvm->code_start, jvm->code_end,
			       HL_PLACE_CODE);
	sort_places(&places);
	if (r < 0)
		hl_places_release(&places);
	else
		*ret_places = places;
	return r;
}

/* ---- HotSpot ---- */

/*
 * Where HotSpot keeps Java's heap and code, by the table gHotSpotVMStructs that libjvm.so exports for debuggers since JDK 6: for
 * each field of a class its type, its name, and its address if it is static, else its offset. Further symbols say how an
 * entry is laid out.
 */

#define ENTRIES_MAX    20000u
#define NAME_MAX_BYTES 64u

struct tables {
	struct hl_memory *memory;
	Elf *elf;
	int fd;
	uint64_t bias;
	/* Offsets in an entry, and their distance. */
	uint64_t type_name, field_name, offset, address, stride;
};

static bool read_word(const struct tables *tables, uint64_t address, uint64_t *ret_word)
{
	return hl_memory_read_present(tables->memory, address, ret_word, sizeof(*ret_word)) == 0;
}

/* The variable that libjvm.so exports as ${prefix}${name}. */
static bool read_variable(const struct tables *tables, const char *name, uint64_t *ret_word)
{
	char symbol[64];
	uint64_t address;

	snprintf(symbol, sizeof(symbol), "gHotSpotVMStruct%s", name);
	return hl_elf_find_symbol(tables->elf, HL_ELF_DYNSYM, symbol, &address) &&
	       read_word(tables, tables->bias + address, ret_word);
}

/* Whether the text at ${address} is ${name}. Texts are constants, so they are read from the file. */
static bool is_name(const struct tables *tables, uint64_t address, const char *name)
{
	size_t length = strlen(name) + 1;
	char text[NAME_MAX_BYTES];
	GElf_Phdr segment;

	for (int i = 0; gelf_getphdr(tables->elf, i, &segment); i++) {
		uint64_t at = address - tables->bias - segment.p_vaddr;
		if (segment.p_type == PT_LOAD && at < segment.p_filesz)
			return pread(tables->fd, text, length, (off_t)(segment.p_offset + at)) ==
				       (ssize_t)length &&
			       memcmp(text, name, length) == 0;
	}
	return false;
}

struct field {
	const char *type, *name;
	uint64_t place; /* its address, or its offset */
	bool is_static, is_found;
};

static void find_fields(const struct tables *tables, struct field *fields, size_t count)
{
	uint64_t entry, type, name, place;

	if (!read_variable(tables, "s", &entry))
		return;
	for (unsigned i = 0; i < ENTRIES_MAX; i++, entry += tables->stride) {
		if (!read_word(tables, entry + tables->type_name, &type) || !type ||
		    !read_word(tables, entry + tables->field_name, &name))
			return;
		for (size_t k = 0; k < count; k++) {
			struct field *field = &fields[k];
			if (field->is_found || !is_name(tables, name, field->name) ||
			    !is_name(tables, type, field->type))
				continue;
			field->is_found = read_word(
				tables,
				entry + (field->is_static ? tables->address : tables->offset),
				&place);
			field->place = field->is_found ? place : 0;
		}
	}
}

enum {
	COLLECTED_HEAP,
	RESERVED,
	REGION_START,
	REGION_WORDS,
	CODE_LOW,
	CODE_HIGH,
	FIELDS,
};

static struct hl_jvm read_fields(const struct tables *tables)
{
	struct field fields[FIELDS] = {
		[COLLECTED_HEAP] = {"Universe", "_collectedHeap", .is_static = true},
		[RESERVED] = {"CollectedHeap", "_reserved", .place = 0},
		[REGION_START] = {"MemRegion", "_start", .place = 0},
		[REGION_WORDS] = {"MemRegion", "_word_size", .place = 0},
		[CODE_LOW] = {"CodeCache", "_low_bound", .is_static = true},
		[CODE_HIGH] = {"CodeCache", "_high_bound", .is_static = true},
	};
	struct hl_jvm jvm = {0};
	uint64_t heap, start, words, low, high;

	find_fields(tables, fields, FIELDS);
	if (fields[COLLECTED_HEAP].is_found && fields[RESERVED].is_found &&
	    fields[REGION_START].is_found && fields[REGION_WORDS].is_found &&
	    read_word(tables, fields[COLLECTED_HEAP].place, &heap) && heap &&
	    read_word(tables, heap + fields[RESERVED].place + fields[REGION_START].place, &start) &&
	    read_word(tables, heap + fields[RESERVED].place + fields[REGION_WORDS].place, &words) &&
	    start && words && words < (UINT64_MAX - start) / 8) {
		jvm.heap_start = start;
		jvm.heap_end = start + words * 8;
	}
	if (fields[CODE_LOW].is_found && fields[CODE_HIGH].is_found &&
	    read_word(tables, fields[CODE_LOW].place, &low) &&
	    read_word(tables, fields[CODE_HIGH].place, &high) && low && low < high) {
		jvm.code_start = low;
		jvm.code_end = high;
	}
	return jvm;
}

struct hl_jvm hl_jvm_find(struct hl_memory *memory)
{
	const struct hl_map *map = memory->maps.maps;
	const struct hl_map *end = map + memory->maps.count;
	struct tables tables = {.memory = memory};
	uint64_t in_file;

	while (map < end && !(map->inode && strcmp(hl_path_basename(map->path), "libjvm.so") == 0))
		map++;
	HL_CLOSED int fd = map < end ? hl_memory_open_file(memory, map) : -1;
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	if (!elf || !hl_elf_address(elf, map->offset, false, &in_file))
		return (struct hl_jvm){0};
	tables.elf = elf;
	tables.fd = fd;
	tables.bias = map->start - in_file;
	if (!read_variable(&tables, "EntryTypeNameOffset", &tables.type_name) ||
	    !read_variable(&tables, "EntryFieldNameOffset", &tables.field_name) ||
	    !read_variable(&tables, "EntryOffsetOffset", &tables.offset) ||
	    !read_variable(&tables, "EntryAddressOffset", &tables.address) ||
	    !read_variable(&tables, "EntryArrayStride", &tables.stride))
		return (struct hl_jvm){0};
	return read_fields(&tables);
}
