/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stacks of threads, by the control block (struct pthread) that glibc and musl put at the top of each. It holds its own
 * address in the first word, and, in two words side by side, where the thread's memory begins and how long that is. Their
 * place differs between versions, but no other pair begins below the block and ends just above it.
 */
#include "heap/places.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* In glibc's struct pthread, in all versions for x86-64: its own address, twice, and the links of the list of stacks. */
#define SELF_WORD     0u
#define SELF_TOO_WORD 2u
#define NEXT_WORD     88u
#define BEFORE_WORD   89u

#define PAGE_BYTES	  UINT64_C(4096)
#define CONTROL_WORDS	  320u /* of a struct pthread, at most */
#define CONTROL_ALIGNMENT 8u
#define ABOVE_BYTES_MAX	  8192u /* from the control block to the end of its stack */
#define STACK_BYTES_MIN	  4096u

#define RING_MAX      1000000u
#define VARIABLES_MAX (UINT64_C(16) << 20)
#define SEARCHED_MAX  (UINT64_C(16) << 20) /* above a stack pointer */
#define WINDOW_BYTES  (UINT64_C(64) << 10)
#define FIRST_ADDRESS UINT64_C(0x10000)
#define LAST_ADDRESS  UINT64_C(0x7fffffffffff)

struct search {
	struct hl_memory *memory;
	struct hl_places *places;
	bool has_lists;		      /* of glibc, with all its threads */
	struct hl_addresses pointers; /* of stacks */
	struct hl_pages pages;
	uint64_t window[WINDOW_BYTES / 8];
};

/* ---- control blocks ---- */

struct control {
	uint64_t address;
	uint64_t words[CONTROL_WORDS];
	size_t count;
};

/* Reads the control block at ${address}; false where there is none. */
static bool read_control(struct search *search, uint64_t address, struct control *control)
{
	const struct hl_map *map = hl_maps_find(&search->memory->maps, address);
	uint64_t bytes = sizeof(control->words), in_page = PAGE_BYTES - address % PAGE_BYTES;

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
	return r == 0 && control->count > BEFORE_WORD && control->words[SELF_WORD] == address;
}

/* Adds the stack on top of which ${control} lies, and which holds ${pointer} if that is not 0. 1 if there is one, else 0, or
 * -ENOMEM. */
static int add_stack(struct search *search, const struct control *control, uint64_t pointer)
{
	uint64_t address = control->address;

	for (size_t i = 1; i + 1 < control->count; i++) {
		uint64_t start = control->words[i], bytes = control->words[i + 1];
		if (start < FIRST_ADDRESS || start >= address || bytes < STACK_BYTES_MIN ||
		    bytes <= address - start || bytes - (address - start) > ABOVE_BYTES_MAX ||
		    (pointer && pointer < start))
			continue;
		int r = hl_places_add(search->places, start, start + bytes, HL_PLACE_STACK);
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
		    control.words[SELF_TOO_WORD] != control.address ||
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

static int add_pointer(void *context, const struct user_regs_struct *registers)
{
	struct search *search = context;

	return HL_ARRAY_APPEND(search->pointers.addresses, search->pointers.count,
			       search->pointers.capacity, registers->rsp);
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
			for (uint64_t word = at; word < to && !found; word += CONTROL_ALIGNMENT)
				if (word > pointer && search->window[(word - at) / 8] == word &&
				    read_control(search, word, &control))
					found = add_stack(search, &control, pointer);
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

int hl_stacks_read(struct hl_memory *memory, struct hl_places *places)
{
	struct search *search = calloc(1, sizeof(*search));
	int r = search ? 0 : -ENOMEM;

	for (size_t i = 0; i < memory->maps.count && r == 0; i++)
		if (strncmp(memory->maps.maps[i].path, "[stack", 6) == 0)
			r = hl_places_add(places, memory->maps.maps[i].start,
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
