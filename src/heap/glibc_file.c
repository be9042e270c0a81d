/* SPDX-License-Identifier: BSD-2-Clause */
/* Version and roots from the file of a libc; see glibc.h. */
#include "heap/glibc.h"

#include "base/cleanup.h"

#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <string.h>

#define DEFAULT_THRESHOLD  (128u << 10) /* initial trim_threshold, top_pad and mmap_threshold */
#define DEFAULT_ARENA_TEST 8u

uint32_t hl_glibc_file_minor(Elf *elf)
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

/* ---- places by symbols ---- */

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

/* ---- places by their initial values ---- */

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

uint64_t hl_glibc_file_main_arena(Elf *elf, const struct hl_glibc_layout *layout)
{
	return find_place(elf, is_main_arena, layout->arena.bytes, layout);
}

uint64_t hl_glibc_file_mp(Elf *elf, const struct hl_glibc_layout *layout)
{
	return find_place(elf, is_mp, layout->mp.bytes, layout);
}
