/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where HotSpot keeps Java's heap and code, by the table gHotSpotVMStructs that libjvm.so exports for debuggers since JDK 6: for
 * each field of a class its type, its name, and its address if it is static, else its offset. Further symbols say how an
 * entry is laid out.
 */
#include "heap/places.h"

#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/names.h"
#include "elf/elf.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
