/* SPDX-License-Identifier: BSD-2-Clause */
/* Which glibc it is, and its main_arena and mp_: from its file, and without symbols; see glibc.h. */
#include "heap/glibc_reader.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "heap/glibc.h"

#include <elfutils/libdwelf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the file of a libc ---- */

#define DEFAULT_THRESHOLD  (128u << 10) /* initial trim_threshold, top_pad and mmap_threshold */
#define DEFAULT_ARENA_TEST 8u

/* The minor version that the file states: x of 2.x; 0 when it states none. */
static uint32_t file_minor(Elf *elf)
{
	static const char banner[] = "GNU C Library ", release[] = " release version 2.";
	size_t left;
	const char *file = elf_rawfile(elf, &left);
	const char *end = file + left;
	const char *at = file ? memmem(file, left, banner, strlen(banner)) : NULL;

	if (!at)
		return 0;
	left = (size_t)(end - at);
	at = memmem(at, left < 256 ? left : 256, release, strlen(release));
	if (!at)
		return 0;
	uint32_t minor = 0;
	for (at += strlen(release); at < end && *at >= '0' && *at <= '9' && minor <= 1000; at++)
		minor = minor * 10 + (uint32_t)(*at - '0');
	return minor;
}

static void find_symbols(Elf *elf, struct hl_glibc_symbols *symbols)
{
	hl_elf_find_symbol(elf, HL_ELF_SYMTAB, "main_arena", &symbols->main_arena);
	hl_elf_find_symbol(elf, HL_ELF_SYMTAB, "mp_", &symbols->mp);
}

struct hl_glibc_symbols hl_glibc_file_symbols(Elf *elf, const char *debug_directory)
{
	struct hl_glibc_symbols symbols = {0};
	char path[HL_ELF_DEBUG_PATH_MAX];
	const void *build_id;

	find_symbols(elf, &symbols);
	if (symbols.main_arena && symbols.mp)
		return symbols;
	ssize_t bytes = dwelf_elf_gnu_build_id(elf, &build_id);
	if (bytes < 0 ||
	    !hl_elf_debug_path(debug_directory, build_id, (size_t)bytes, path, sizeof(path)))
		return symbols;
	HL_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC);
	HL_CLEANUP(hl_elf_cleanup) Elf *debug = hl_elf_open(fd);
	if (debug)
		find_symbols(debug, &symbols);
	return symbols;
}

typedef bool place_test(const uint8_t *bytes, uint64_t address,
			const struct hl_glibc_layout *layout);

/* Until there is a second arena, main_arena links to itself, and one thread is attached to it. */
static bool is_main_arena(const uint8_t *bytes, uint64_t address,
			  const struct hl_glibc_layout *layout)
{
	return hl_glibc_word(bytes + layout->arena.next) == address &&
	       hl_glibc_word(bytes + layout->arena.attached_threads) == 1;
}

static bool is_mp(const uint8_t *bytes, uint64_t address, const struct hl_glibc_layout *layout)
{
	(void)address;
	return hl_glibc_word(bytes + layout->mp.trim_threshold) == DEFAULT_THRESHOLD &&
	       hl_glibc_word(bytes + layout->mp.top_pad) == DEFAULT_THRESHOLD &&
	       hl_glibc_word(bytes + layout->mp.mmap_threshold) == DEFAULT_THRESHOLD &&
	       hl_glibc_word(bytes + layout->mp.arena_test) == DEFAULT_ARENA_TEST;
}

/* The one place of ${size} bytes in the writable segments that passes ${test}. */
static uint64_t find_place(Elf *elf, place_test *test, uint64_t size,
			   const struct hl_glibc_layout *layout)
{
	size_t length = 0;
	const uint8_t *file = (const uint8_t *)elf_rawfile(elf, &length);
	uint64_t found = 0;
	GElf_Phdr segment;

	for (int i = 0; file && gelf_getphdr(elf, i, &segment); i++) {
		if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_W) ||
		    segment.p_offset > length || segment.p_filesz > length - segment.p_offset)
			continue;
		uint64_t skip = -segment.p_vaddr & 7;
		for (uint64_t at = skip; at + size <= segment.p_filesz; at += 8) {
			uint64_t address = segment.p_vaddr + at;
			if (!test(file + segment.p_offset + at, address, layout))
				continue;
			if (found)
				return 0;
			found = address;
		}
	}
	return found;
}

/* main_arena by its initial values; 0 unless exactly one place fits. */
static uint64_t file_main_arena(Elf *elf, const struct hl_glibc_layout *layout)
{
	return find_place(elf, is_main_arena, layout->arena.bytes, layout);
}

uint64_t hl_glibc_file_mp(Elf *elf, const struct hl_glibc_layout *layout)
{
	return find_place(elf, is_mp, layout->mp.bytes, layout);
}

/* ---- main_arena and mp_ without symbols ---- */

/* Searches no more bytes of variables than this. libc has 64 KiB; a static program may have
 * gigabytes. */
#define VARIABLES_MAX (UINT64_C(16) << 20)

#define TRIED_MINOR_FIRST  35u /* roots do not tell older layouts from each other */
#define STATED_MINOR_LEAST 26u /* older ones have no thread caches, and are refused */

#define ARENAS_MAX 65536u /* in a ring that closes */

#define HEADERS_MAX   64u
#define ENTRIES_MAX   256u /* of a dynamic section */
#define LIBRARIES_MAX 10000u

/* The variables of a library, or of a static program. */
struct variables {
	uint64_t start, length;
	uint8_t *bytes;
};

/* ---- which file is the libc ---- */

static bool is_libc(const struct hl_map *map)
{
	const char *name = hl_path_basename(map->path);

	return map->inode && (strcmp(name, "libc.so.6") == 0 || strncmp(name, "libc-2.", 7) == 0);
}

/* The first element of the dynamic loader's list, to which the program's own headers lead; 0: they do not. */
static uint64_t find_libraries(struct hl_memory *memory)
{
	uint64_t headers = memory->program_headers, bias = 0, dynamic = 0, pair[2], list;
	Elf64_Phdr header;

	for (unsigned i = 0; headers && i < HEADERS_MAX; i++) {
		if (hl_memory_read_present(memory, headers + i * sizeof(header), &header,
					   sizeof(header)) < 0)
			return 0;
		if (header.p_type == PT_PHDR)
			bias = headers - header.p_vaddr;
		else if (header.p_type == PT_DYNAMIC)
			dynamic = bias + header.p_vaddr;
		if (dynamic)
			break;
	}
	for (unsigned i = 0; dynamic && i < ENTRIES_MAX; i++) {
		if (hl_memory_read_present(memory, dynamic + i * sizeof(pair), pair, sizeof(pair)) <
			    0 ||
		    pair[0] == DT_NULL)
			return 0;
		if (pair[0] == DT_DEBUG)
			return pair[1] && hl_memory_read_present(
						  memory, pair[1] + offsetof(struct r_debug, r_map),
						  &list, sizeof(list)) == 0
				       ? list
				       : 0;
	}
	return 0;
}

/* The first mapping of the libc that the program itself uses: dlmopen() may have loaded others. NULL: the list does not tell. */
static const struct hl_map *find_main_libc(struct hl_memory *memory)
{
	uint64_t library = find_libraries(memory), dynamic;

	for (unsigned i = 0; library && i < LIBRARIES_MAX; i++) {
		if (hl_memory_read_present(memory, library + offsetof(struct link_map, l_ld),
					   &dynamic, sizeof(dynamic)) < 0)
			return NULL;
		const struct hl_map *map = hl_maps_find(&memory->maps, dynamic);
		if (map && is_libc(map)) {
			while (map > memory->maps.maps && map->offset &&
			       hl_maps_same_file(map, map - 1))
				map--;
			return map;
		}
		if (hl_memory_read_present(memory, library + offsetof(struct link_map, l_next),
					   &library, sizeof(library)) < 0)
			return NULL;
	}
	return NULL;
}

/* The first mapping of libc, or of a program without libraries, which may have glibc inside; NULL
 * when there is neither. */
static const struct hl_map *find_module(struct hl_memory *memory, bool *ret_is_static)
{
	const struct hl_maps *maps = &memory->maps;
	const struct hl_map *program = NULL;
	bool has_libraries = false;

	for (size_t i = 0; i < maps->count; i++) {
		const struct hl_map *map = &maps->maps[i];
		const char *name = hl_path_basename(map->path);
		if (!map->inode)
			continue;
		if (is_libc(map)) {
			const struct hl_map *main_libc = find_main_libc(memory);
			*ret_is_static = false;
			return main_libc ? main_libc : map;
		}
		has_libraries = has_libraries || strstr(name, ".so.") || !strncmp(name, "ld-", 3);
		if (!program && map->flags & (HL_MAP_EXEC | HL_MAP_WRITE))
			program = map;
	}
	*ret_is_static = true;
	return has_libraries ? NULL : program;
}

/* ---- its variables ---- */

/* Copies the variables in ${data} and in the .bss, if that follows. Reads only pages that are in
 * memory; the others were never written to and stay zero. */
static int read_variables(struct hl_memory *memory, const struct hl_map *data,
			  struct variables *ret)
{
	const struct hl_map *end = memory->maps.maps + memory->maps.count, *next = data + 1;
	struct variables variables = {.start = data->start, .length = data->end - data->start};
	HL_CLEANUP(hl_pages_release) struct hl_pages pages = {0};

	if (next < end && next->start == data->end && !next->inode && !next->path[0] &&
	    next->flags & HL_MAP_WRITE)
		variables.length += next->end - next->start;
	if (variables.length > VARIABLES_MAX)
		variables.length = VARIABLES_MAX;
	HL_FREED uint8_t *bytes = calloc(1, variables.length);
	if (!bytes)
		return -ENOMEM;
	int r = hl_memory_scan(memory, variables.start, variables.start + variables.length, &pages);
	for (size_t i = 0; r == 0 && i < pages.count; i++) {
		const struct hl_page_run *run = &pages.runs[i];
		r = hl_memory_read(memory, run->start, bytes + (run->start - variables.start),
				   run->end - run->start);
	}
	if (r < 0)
		return r;
	variables.bytes = HL_TAKE(bytes);
	*ret = variables;
	return 0;
}

/* ---- the live test ---- */

/* Whether all bins hold addresses, and at least one is empty: it leads back to itself. */
static bool has_bins(const uint8_t *bytes, uint64_t address, const struct hl_glibc_layout *layout)
{
	const uint8_t *bins = bytes + layout->arena.bins;
	bool has_empty = false;

	for (uint32_t i = 0; i < HL_GLIBC_BINS; i++) {
		uint64_t word = hl_glibc_word(bins + i * 8),
			 bin = address + layout->arena.bins + (i & ~UINT32_C(1)) * 8 - 16;
		if (!word || (word != bin && word & 15))
			return false;
		has_empty = has_empty || word == bin;
	}
	return has_empty;
}

/* Whether the ring of arenas leads back to the one at ${address}. */
static bool ring_closes(struct hl_memory *memory, uint64_t address, uint64_t next,
			const struct hl_glibc_layout *layout)
{
	for (uint32_t i = 0; i < ARENAS_MAX && next != address; i++)
		if (!next || next & 7 ||
		    hl_memory_read(memory, next + layout->arena.next, &next, sizeof(next)) < 0)
			return false;
	return next == address;
}

static uint64_t find_live_arena(struct hl_memory *memory, const struct variables *variables,
				const struct hl_glibc_layout *layout)
{
	for (uint64_t at = 0; at + layout->arena.bytes <= variables->length; at += 8) {
		const uint8_t *bytes = variables->bytes + at;
		uint64_t address = variables->start + at;
		if (has_bins(bytes, address, layout) &&
		    ring_closes(memory, address, hl_glibc_word(bytes + layout->arena.next), layout))
			return address;
	}
	return 0;
}

#define MP_VOTES_NEEDED 3
#define SMALL_TCACHES	64u /* of each version's lists those that are always used */

/* The place with most of the constants that only tunables change. */
static uint64_t find_live_mp(const struct variables *variables,
			     const struct hl_glibc_layout *layout)
{
	uint64_t found = 0;
	int most = MP_VOTES_NEEDED - 1;
	uint64_t mmapped_rest = layout->mmapped_lack ? layout->mmapped_lack - 1 : 4095;

	for (uint64_t at = 0; at + layout->mp.bytes <= variables->length; at += 8) {
		const uint8_t *bytes = variables->bytes + at;
		int32_t n_mmaps, n_mmaps_max;
		memcpy(&n_mmaps, bytes + layout->mp.n_mmaps, sizeof(n_mmaps));
		memcpy(&n_mmaps_max, bytes + layout->mp.n_mmaps_max, sizeof(n_mmaps_max));
		if (n_mmaps < 0 || hl_glibc_word(bytes + layout->mp.mmapped_mem) & mmapped_rest ||
		    hl_glibc_word(bytes + layout->mp.sbrk_base) & 7)
			continue;
		int votes =
			(hl_glibc_word(bytes + layout->mp.top_pad) == 131072) +
			(hl_glibc_word(bytes + layout->mp.arena_test) == 8) +
			(n_mmaps_max == 65536) +
			(hl_glibc_word(bytes + layout->mp.tcache_bins) == SMALL_TCACHES) +
			(hl_glibc_word(bytes + layout->mp.tcache_max_bytes) ==
			 layout->tcache_max_bytes) +
			(hl_glibc_word(bytes + layout->mp.tcache_count) == layout->tcache_count);
		if (votes > most) {
			most = votes;
			found = variables->start + at;
		}
	}
	return found;
}

/* ---- all ways ---- */

/* The file that may hold the roots: libc or a static program. */
struct module {
	const struct hl_map *map, *data; /* the first mapping, and that of its variables */
	Elf *elf;
	bool is_static;
	struct variables variables;
};

/* The address of a root as each way found it; 0: it found nothing. */
struct ways {
	uint64_t live, in_file, by_symbol;
};

static bool is_confirmed(const struct ways *ways)
{
	return (ways->live && (ways->live == ways->in_file || ways->live == ways->by_symbol)) ||
	       (ways->by_symbol && ways->by_symbol == ways->in_file);
}

/* Symbols are never wrong; the other ways must not contradict each other. */
static uint64_t choose(const struct ways *ways)
{
	if (ways->by_symbol)
		return ways->by_symbol;
	if (ways->live && ways->in_file && ways->live != ways->in_file)
		return 0;
	return ways->live ? ways->live : ways->in_file;
}

/* The process' address for ${address} of the file; ${in_file} is the file's address for ${data}. */
static uint64_t loaded_at(uint64_t address, const struct hl_map *data, uint64_t in_file)
{
	return address ? data->start + (address - in_file) : 0;
}

/* Tries ${layout}. Symbols are looked up only where the quick ways leave a doubt. Where ${must_be_live}, the module
 * may have another: there the live memory must agree, for the others are the same in many. */
static bool try_layout(struct hl_memory *memory, const struct module *module,
		       const struct hl_glibc_layout *layout, bool must_be_live,
		       struct hl_glibc *ret)
{
	struct ways arena = {.live = find_live_arena(memory, &module->variables, layout)};
	struct ways mp = {.live = find_live_mp(&module->variables, layout)};
	const struct hl_map *data = module->data;
	uint64_t in_file;

	if (hl_elf_address(module->elf, data->offset, false, &in_file)) {
		arena.in_file = loaded_at(file_main_arena(module->elf, layout), data, in_file);
		mp.in_file = loaded_at(hl_glibc_file_mp(module->elf, layout), data, in_file);
		if (!is_confirmed(&arena) || !is_confirmed(&mp)) {
			struct hl_glibc_symbols symbols =
				hl_glibc_file_symbols(module->elf, HL_ELF_DEBUG_DIRECTORY);
			arena.by_symbol = loaded_at(symbols.main_arena, data, in_file);
			mp.by_symbol = loaded_at(symbols.mp, data, in_file);
		}
	}
	const struct hl_glibc found = {
		.layout = layout,
		.main_arena = choose(&arena),
		.mp = choose(&mp),
		.is_confirmed = is_confirmed(&arena) && is_confirmed(&mp),
	};
	bool fits = !must_be_live || (found.main_arena == arena.live && found.mp == mp.live);
	if (!found.main_arena || !found.mp || !fits)
		return false;
	*ret = found;
	return true;
}

/* ---- layouts ---- */

/* Tries the layouts that roots tell from each other, newest first. The roots prove one of a static program; one of
 * mixed parts, and any of a library whose version is not known, must agree with the whole heap: the first that does in
 * its thread caches, too, or else the first. 1; 0: none does; or a negative errno. */
static int find_layout(struct hl_memory *memory, const struct module *module, struct hl_glibc *ret)
{
	const struct hl_glibc_layout *layout;
	int best = HL_GLIBC_DISAGREES;

	for (uint32_t i = 0;
	     (layout = hl_glibc_layout_at(i)) && layout->first_minor >= TRIED_MINOR_FIRST; i++) {
		struct hl_glibc tried;
		if (!try_layout(memory, module, layout, true, &tried))
			continue;
		int agreement = module->is_static && !layout->is_mixed
					? HL_GLIBC_AGREES
					: hl_glibc_heap_agreement(memory, &tried);
		if (agreement < 0)
			return agreement;
		if (agreement <= best || (layout->is_mixed && agreement != HL_GLIBC_AGREES))
			continue;
		best = agreement;
		*ret = tried;
		if (best == HL_GLIBC_AGREES)
			break;
	}
	return best != HL_GLIBC_DISAGREES;
}

/* ---- the module ---- */

static void put_name(const struct module *module, uint32_t minor, struct hl_glibc *glibc)
{
	char versions[40];

	hl_glibc_layout_name(glibc->layout, versions, sizeof(versions));
	if (module->is_static)
		snprintf(glibc->name, sizeof(glibc->name), "glibc %s, static", versions);
	else if (minor)
		snprintf(glibc->name, sizeof(glibc->name), "glibc 2.%u", minor);
	else
		snprintf(glibc->name, sizeof(glibc->name), "glibc, version not stated");
}

static int refuse_version(const struct module *module, uint32_t minor, struct hl_glibc *ret,
			  struct hl_error *err)
{
	ret->is_unknown = true;
	if (!minor)
		return hl_error_set(
			err, -ENOTSUP,
			"'%s' does not say which glibc it is, and its heap agrees with no "
			"layout; versions " HL_GLIBC_KNOWN " are known",
			module->map->path);
	return hl_error_set(
		err, -ENOTSUP,
		"the C library is glibc 2.%u, whose heap is not known, and agrees with no "
		"layout that is; versions " HL_GLIBC_KNOWN " are known",
		minor);
}

static int find_in_module(struct hl_memory *memory, struct module *module, struct hl_glibc *ret,
			  struct hl_error *err)
{
	uint32_t minor = module->is_static ? 0 : file_minor(module->elf);
	const struct hl_glibc_layout *layout = module->is_static ? NULL : hl_glibc_layout(minor);

	if (minor && minor < STATED_MINOR_LEAST)
		return refuse_version(module, minor, ret, err);
	for (size_t i = (size_t)(module->map - memory->maps.maps);
	     i < memory->maps.count && !module->data; i++) {
		const struct hl_map *map = &memory->maps.maps[i];
		if (map->flags & HL_MAP_WRITE && hl_maps_same_file(map, module->map))
			module->data = map;
	}
	if (!module->data)
		return hl_error_set(err, -ENOTSUP, "'%s' has no variables", module->map->path);
	int r = read_variables(memory, module->data, &module->variables);
	if (r < 0)
		return hl_error_set(err, r, "cannot read the variables of '%s': %s",
				    module->map->path, strerror(-r));
	r = layout ? try_layout(memory, module, layout, false, ret)
		   : find_layout(memory, module, ret);
	free(module->variables.bytes);
	if (r < 0)
		return hl_error_set(err, r, "cannot read the heap: %s", strerror(-r));
	if (r == 0 && !layout && !module->is_static)
		return refuse_version(module, minor, ret, err);
	if (r == 0)
		return hl_error_set(
			err, -ENOTSUP,
			"found no heap of glibc in '%s': it has another allocator or another C "
			"library",
			module->map->path);
	ret->minor = minor;
	ret->is_unknown = !layout && !module->is_static;
	put_name(module, minor, ret);
	return 0;
}

int hl_glibc_roots_find(struct hl_memory *memory, struct hl_glibc *ret_glibc, struct hl_error *err)
{
	struct module module = {0};

	module.map = find_module(memory, &module.is_static);
	if (!module.map)
		return hl_error_set(err, -ENOTSUP, "found no glibc in the process");
	HL_CLOSED int fd = hl_memory_open_file(memory, module.map);
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	if (!elf)
		return hl_error_set(err, -ENOTSUP, "cannot open the file '%s' of the process",
				    module.map->path);
	module.elf = elf;
	return find_in_module(memory, &module, ret_glibc, err);
}
