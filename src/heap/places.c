/* SPDX-License-Identifier: BSD-2-Clause */
/* The list of places, and the segments of mapped ELF files; see places.h. */
#include "heap/places.h"

#include "base/array.h"
#include "base/cleanup.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE_BYTES UINT64_C(4096)

#define HEADERS_BYTES 4096u /* of a file, in which its program headers lie */

int hl_places_add(struct hl_places *places, uint64_t start, uint64_t end, enum hl_place_kind kind)
{
	const struct hl_place place = {start & ~(PAGE_BYTES - 1),
				       (end + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1), kind};

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

/* The first bytes of the file, from memory or, where they are not there, from the file. How many; 0: they cannot be read. */
static size_t read_headers(struct hl_memory *memory, const struct hl_map *map,
			   uint8_t bytes[HEADERS_BYTES])
{
	if (map->flags & HL_MAP_READ &&
	    hl_memory_read_present(memory, map->start, bytes, HEADERS_BYTES) == 0)
		return HEADERS_BYTES;
	HL_CLOSED int fd = hl_memory_open_file(memory, map);
	ssize_t count = fd < 0 ? 0 : pread(fd, bytes, HEADERS_BYTES, 0);
	return count > 0 ? (size_t)count : 0;
}

/* Whether the page of ${segment} is mapped where a loader puts it: a tool that maps a whole file to read it does not. */
static bool is_loaded(const struct hl_maps *maps, const struct hl_map *first, uint64_t bias,
		      const Elf64_Phdr *segment)
{
	uint64_t address = (bias + segment->p_vaddr) & ~(PAGE_BYTES - 1);
	const struct hl_map *map = hl_maps_find(maps, address);

	if (!segment->p_filesz)
		return map && !map->inode;
	return map && hl_maps_same_file(map, first) &&
	       map->offset + (address - map->start) == (segment->p_offset & ~(PAGE_BYTES - 1));
}

/* Adds the segments of the file whose beginning ${map} maps, if it is an ELF file that was loaded. */
static int add_segments(struct hl_memory *memory, const struct hl_map *map,
			struct hl_places *places)
{
	uint8_t bytes[HEADERS_BYTES];
	size_t count = read_headers(memory, map, bytes);
	Elf64_Ehdr header;
	Elf64_Phdr segment;
	bool has_bias = false;
	uint64_t bias = 0;
	int r = 0;

	memcpy(&header, bytes, sizeof(header));
	if (count < sizeof(header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(segment))
		return 0;
	for (size_t i = 0; i < header.e_phnum && r == 0; i++) {
		if (header.e_phoff > count || (i + 1) * sizeof(segment) > count - header.e_phoff)
			break;
		memcpy(&segment, bytes + header.e_phoff + i * sizeof(segment), sizeof(segment));
		if (segment.p_type != PT_LOAD || !segment.p_memsz)
			continue;
		if (!has_bias)
			bias = map->start - (segment.p_vaddr & ~(PAGE_BYTES - 1));
		has_bias = true;
		if (is_loaded(&memory->maps, map, bias, &segment))
			r = hl_places_add(places, bias + segment.p_vaddr,
					  bias + segment.p_vaddr + segment.p_memsz,
					  HL_PLACE_VARIABLES);
	}
	return r;
}

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
		r = hl_stacks_read(memory, &places);
	if (r == 0 && jvm->heap_start)
		r = hl_places_add(&places, jvm->heap_start, jvm->heap_end, HL_PLACE_JAVA);
	if (r == 0 && jvm->code_start)
		r = hl_places_add(&places, jvm->code_start, jvm->code_end, HL_PLACE_CODE);
	sort_places(&places);
	if (r < 0)
		hl_places_release(&places);
	else
		*ret_places = places;
	return r;
}
