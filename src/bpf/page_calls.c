/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the calls in the symbol tables of ELF files; see page_trace.h. */
#include "bpf/page_trace.h"

#include "base/compiler.h"
#include "bpf/probe.h"
#include "elf/elf.h"

#include <string.h>
#include <unistd.h>

/* What only a C library defines. */
#define C_LIBRARY_SYMBOL "__libc_start_main"

#define CODE_BYTES 128 /* of a function: enough for the place of a probe */

static const struct {
	const char *name;
	enum hl_page_call call;
	unsigned arguments; /* that are looked at */
} names[] = {
	{"mmap", HL_PAGE_CALL_MMAP, 4},		{"mmap64", HL_PAGE_CALL_MMAP, 4},
	{"mremap", HL_PAGE_CALL_MREMAP, 3},	{"madvise", HL_PAGE_CALL_MADVISE, 3},
	{"mlock", HL_PAGE_CALL_MLOCK, 2},	{"mlock2", HL_PAGE_CALL_MLOCK2, 3},
	{"mlockall", HL_PAGE_CALL_MLOCKALL, 1},
};

/*
 * Functions that are hardly more than a system call have no place before it that a probe could be
 * cheap at, but the jump after it on an error: the kernel leaves rsp and the first three
 * arguments as they are. Where that is in ${code}, or 0: [endbr64], mov $N,%eax, syscall,
 * cmp $-4096,%rax, a conditional jump.
 */
static uint32_t jump_after_system_call(const uint8_t code[CODE_BYTES])
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
	uint32_t at = memcmp(code, endbr64, sizeof(endbr64)) ? 0 : sizeof(endbr64);
	const uint8_t *mov = code + at, *call = mov + 5, *compare = call + 2, *jump = compare + 6;
	bool is_jump = (jump[0] & 0xf0) == 0x70 || (jump[0] == 0x0f && (jump[1] & 0xf0) == 0x80);

	return mov[0] == 0xb8 && call[0] == 0x0f && call[1] == 0x05 && compare[0] == 0x48 &&
			       compare[1] == 0x3d && is_jump
		       ? (uint32_t)(jump - code)
		       : 0;
}

/* The cheapest place where all arguments are where the call puts them; else the first byte. */
static uint64_t place_in(int fd, uint64_t offset, unsigned arguments)
{
	uint8_t code[CODE_BYTES] = {0};
	ssize_t bytes = offset > INT64_MAX ? -1 : pread(fd, code, sizeof(code), (off_t)offset);

	if (bytes <= 0)
		return offset;
	struct hl_probe_place best = hl_probe_place(code, (size_t)bytes, arguments);
	struct hl_probe_place first = hl_probe_place(code, 0, arguments);
	if (!memcmp(best.arguments, first.arguments, arguments) && best.emulated)
		return offset + best.offset;
	return arguments <= 3 ? offset + jump_after_system_call(code) : offset;
}

/* Aliases are one site. */
static void add_site(struct hl_page_calls *calls, struct hl_page_call_site site)
{
	for (size_t i = 0; i < calls->count; i++)
		if (calls->sites[i].offset == site.offset)
			return;
	if (calls->count < HL_PAGE_CALL_SITES_MAX)
		calls->sites[calls->count++] = site;
}

void hl_page_calls_read(int fd, struct hl_page_calls *ret_calls)
{
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	struct hl_elf_symbols all = {.elf = elf, .tables = HL_ELF_SYMTAB | HL_ELF_DYNSYM};
	uint64_t offset;

	*ret_calls = (struct hl_page_calls){0};
	if (!hl_elf_is_native(elf) ||
	    !hl_elf_find_symbol(elf, all.tables, C_LIBRARY_SYMBOL, &offset))
		return;
	while (hl_elf_symbols_next(&all)) {
		if (all.symbol.st_shndx == SHN_UNDEF ||
		    GELF_ST_TYPE(all.symbol.st_info) != STT_FUNC)
			continue;
		for (size_t i = 0; i < HL_COUNT_OF(names); i++) {
			if (strcmp(all.name, names[i].name) != 0 ||
			    !hl_elf_code_offset(elf, all.symbol.st_value, &offset))
				continue;
			offset = place_in(fd, offset, names[i].arguments);
			add_site(ret_calls, (struct hl_page_call_site){names[i].call, offset});
		}
	}
}

const struct hl_map *hl_page_calls_find(pid_t pid, const struct hl_maps *maps,
					struct hl_page_calls *ret_calls)
{
	for (size_t i = 0; i < maps->count; i++) {
		const struct hl_map *map = &maps->maps[i];
		if (!(map->flags & HL_MAP_EXEC) || !map->inode)
			continue;
		int fd = hl_maps_open_file(pid, map);
		if (fd < 0)
			continue;
		hl_page_calls_read(fd, ret_calls);
		close(fd);
		if (ret_calls->count)
			return map;
	}
	return NULL;
}
