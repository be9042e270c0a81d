/* SPDX-License-Identifier: BSD-2-Clause */
/* Enters our functions into libc's symbol table, as it is in memory; see deepbind.h and decision 74. */
#include "recorder/deepbind.h"

#include "recorder/exports.h"
#include "recorder/libc.h"
#include "recorder/recorder.h"
#include "recorder/sys.h"

#include <dlfcn.h>
#include <link.h>

#define PAGE_BYTES 4096u

struct segment {
	uintptr_t start;
	size_t bytes;
	int protection;
};

/* The one of ${address}, of a module whose first page is at ${start}; none: zeroes. */
static struct segment segment_of(const char *start, uint64_t load_bias, uintptr_t address)
{
	const Elf64_Ehdr *file = (const Elf64_Ehdr *)(const void *)start;
	const Elf64_Phdr *headers = (const Elf64_Phdr *)(const void *)(start + file->e_phoff);

	for (uint32_t i = 0; i < file->e_phnum; i++) {
		uintptr_t from = load_bias + headers[i].p_vaddr, end = from + headers[i].p_memsz;
		if (headers[i].p_type != PT_LOAD || address < from || address >= end)
			continue;
		from &= ~(uintptr_t)(PAGE_BYTES - 1);
		return (struct segment){from, end - from,
					(headers[i].p_flags & PF_R ? PROT_READ : 0) |
						(headers[i].p_flags & PF_W ? PROT_WRITE : 0) |
						(headers[i].p_flags & PF_X ? PROT_EXEC : 0)};
	}
	return (struct segment){0};
}

static void redirect(void *context, const struct hl_exports *own, const Elf64_Sym *symbol)
{
	const struct hl_exports *libc = context;
	const char *name = own->names + symbol->st_name;
	const Elf64_Sym *found = hl_exports_symbol(libc, name);

	/* A wrapper behind us would come back to us, for ever. */
	if (!found || !hl_libc_same_module(dlsym(RTLD_NEXT, name), (void *)gnu_get_libc_version))
		return;
	for (; found; found = hl_exports_next_version(libc, found))
		if (ELF64_ST_TYPE(found->st_info) == STT_FUNC)
			((Elf64_Sym *)found)->st_value =
				own->load_bias + symbol->st_value - libc->load_bias;
}

void hl_deepbind_begin(void)
{
	struct dl_find_object of_libc, of_own;

	if (atomic_load(&hl_recorder->region.header->flags) & HL_REGION_OWN_MALLOC ||
	    !hl_libc_same_module((void *)hl_libc.malloc, (void *)gnu_get_libc_version) ||
	    _dl_find_object((void *)gnu_get_libc_version, &of_libc) != 0 ||
	    _dl_find_object((void *)hl_deepbind_begin, &of_own) != 0)
		return;
	const struct link_map *map = of_libc.dlfo_link_map, *own_map = of_own.dlfo_link_map;
	struct hl_exports libc = hl_exports_of(map->l_ld, map->l_addr);
	const struct hl_exports own = hl_exports_of(own_map->l_ld, own_map->l_addr);
	struct segment segment =
		segment_of(of_libc.dlfo_map_start, map->l_addr, (uintptr_t)libc.symbols);
	if (!segment.bytes ||
	    HL_SYS(SYS_mprotect, segment.start, segment.bytes, segment.protection | PROT_WRITE) < 0)
		return;
	hl_exports_each(&own, redirect, &libc);
	HL_SYS(SYS_mprotect, segment.start, segment.bytes, segment.protection);
}
