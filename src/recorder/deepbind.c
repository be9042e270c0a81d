/* SPDX-License-Identifier: BSD-2-Clause */
/* Enters our functions into libc's symbol table, as it is in memory; see start.h and decision 74. */
#include "recorder/start.h"

#include "recorder/libc.h"
#include "recorder/modules.h"
#include "recorder/recorder.h"
#include "recorder/spin.h"
#include "recorder/sys.h"

#include <link.h>

/* A part of a module as it is mapped, with all that it holds of the file. */
struct segment {
	uintptr_t address; /* that it is to hold */
	uintptr_t start;
	size_t bytes; /* 0: not found */
	int protection;
};

/* By the loader's copy of the headers: those in the file need not be mapped. */
static int find_segment(struct dl_phdr_info *module, size_t size, void *context)
{
	struct segment *segment = context;

	(void)size;
	for (uint32_t i = 0; i < module->dlpi_phnum; i++) {
		const Elf64_Phdr *header = &module->dlpi_phdr[i];
		uintptr_t start = module->dlpi_addr + header->p_vaddr;
		if (header->p_type != PT_LOAD || segment->address - start >= header->p_memsz)
			continue;
		segment->start = start & ~(HL_SYS_PAGE_BYTES - 1);
		segment->bytes = start + header->p_memsz - segment->start;
		segment->protection = (header->p_flags & PF_R ? PROT_READ : 0) |
				      (header->p_flags & PF_W ? PROT_WRITE : 0) |
				      (header->p_flags & PF_X ? PROT_EXEC : 0);
		return 1;
	}
	return 0;
}

static struct {
	const struct link_map *own, *libc; /* NULL: nothing is to be changed */
	struct hl_exports exports;	   /* libc's */
	/* With its symbols. Found before there are threads: that takes a lock of the loader. */
	struct segment segment;
	_Atomic bool is_done;
} deepbind;

/* Whether a library that comes between us and libc has ${name}, or may have it, as its table has another form: a wrapper behind us would
 * come back to us, for ever. What was loaded at the program's start stays, so that no lock of the loader is needed. */
static bool is_wrapped(const char *name)
{
	for (const struct link_map *map = deepbind.own->l_next; map && map != deepbind.libc;
	     map = map->l_next) {
		struct hl_exports exports = hl_exports_of(map->l_ld, map->l_addr);
		if (!exports.hash || hl_exports_symbol(&exports, name))
			return true;
	}
	return false;
}

static void redirect(void *context, const struct hl_exports *own, const Elf64_Sym *symbol)
{
	const struct hl_exports *libc = context;
	const char *name = own->names + symbol->st_name;
	const Elf64_Sym *found = hl_exports_symbol(libc, name);

	if (!found || is_wrapped(name))
		return;
	for (; found; found = hl_exports_next_version(libc, found))
		if (ELF64_ST_TYPE(found->st_info) == STT_FUNC)
			((Elf64_Sym *)found)->st_value =
				own->load_bias + symbol->st_value - libc->load_bias;
}

/* Whether a library that the program is linked with may ask for the next function after its own, which is libc's. The program itself is
 * before us, and would find ours. */
static bool may_ask(const struct link_map *own, const struct link_map *libc)
{
	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
		struct hl_exports exports = hl_exports_of(map->l_ld, map->l_addr);
		if (map != own && map != libc && map->l_prev &&
		    (hl_exports_may_take(&exports, "dlsym") ||
		     hl_exports_may_take(&exports, "dlvsym")))
			return true;
	}
	return false;
}

static void change(void)
{
	const struct hl_exports own = hl_exports_of(deepbind.own->l_ld, deepbind.own->l_addr);
	const struct segment *segment = &deepbind.segment;

	if (HL_SYS(SYS_mprotect, segment->start, segment->bytes, segment->protection | PROT_WRITE) <
	    0)
		return;
	hl_exports_each(&own, redirect, &deepbind.exports);
	HL_SYS(SYS_mprotect, segment->start, segment->bytes, segment->protection);
}

/* Who changes the table waits for nobody, so others may wait for it whatever they hold, as the loader's lock in a constructor. */
void hl_deepbind_complete(void)
{
	_Atomic uint32_t *lock = &hl_recorder->deepbind_lock;
	uint64_t before;

	if (!deepbind.libc || atomic_load(&deepbind.is_done))
		return;
	hl_sys_block_signals(&before);
	hl_spin_lock(lock);
	if (!atomic_load(&deepbind.is_done))
		change();
	atomic_store(&deepbind.is_done, true);
	hl_spin_unlock(lock);
	hl_sys_restore_signals(&before);
}

void hl_deepbind_begin(void)
{
	struct dl_find_object of_libc, of_own;

	if (atomic_load(&hl_recorder->region.header->flags) & HL_REGION_OWN_MALLOC ||
	    !hl_libc_same_module((void *)hl_libc.malloc, (void *)gnu_get_libc_version) ||
	    _dl_find_object((void *)gnu_get_libc_version, &of_libc) != 0 ||
	    _dl_find_object((void *)hl_deepbind_begin, &of_own) != 0)
		return;
	const struct link_map *libc = of_libc.dlfo_link_map;
	deepbind.own = of_own.dlfo_link_map;
	deepbind.exports = hl_exports_of(libc->l_ld, libc->l_addr);
	deepbind.segment.address = (uintptr_t)deepbind.exports.symbols;
	dl_iterate_phdr(find_segment, &deepbind.segment);
	if (!deepbind.segment.bytes)
		return;
	deepbind.libc = libc;
	if (may_ask(deepbind.own, deepbind.libc))
		hl_deepbind_complete();
}
