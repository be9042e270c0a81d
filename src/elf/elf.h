/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ELF files: segments, symbols, sections, versions, debug files. Files are not trusted: a damaged
 * one gives fewer answers, and does no harm.
 */
#pragma once

#include "base/compiler.h"

#include <gelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Opens the file ${fd}, which the caller keeps open until elf_end(). NULL when it is not an ELF
 * file, or when out of memory. The functions below take NULL only where they say so.
 */
Elf *hl_elf_open(int fd);

/* For HL_CLEANUP(). */
static inline void hl_elf_cleanup(Elf **elf)
{
	elf_end(*elf);
}

/* Whether the file has code for the machine that heapline was built for. False if ${elf} is NULL.
 * */
bool hl_elf_is_native(Elf *elf);

/* ---- segments ---- */

/* The offset in the file of the code at ${address}; false when the file has no such code. */
bool hl_elf_code_offset(Elf *elf, uint64_t address, uint64_t *ret_offset);

/*
 * The address of the file's byte at ${offset}; false when it has none. Mappings begin at pages,
 * segments need not: several may share the page at ${offset}, and ${is_code} chooses one.
 */
bool hl_elf_address(Elf *elf, uint64_t offset, bool is_code, uint64_t *ret_address);

/* The dynamic loader that the program asks for; NULL when there is none, or it makes no sense: the
 * program is static. Valid as long as the file is open. */
const char *hl_elf_loader(Elf *elf);

/* Whether the name of a library that it is linked with begins with ${start}. */
bool hl_elf_needs(Elf *elf, const char *start);

/* Whether it is linked with no library: it is static, or names a loader though it needs none, as Go's programs of -buildmode=pie. */
bool hl_elf_is_alone(Elf *elf);

/* ---- symbols ---- */

enum hl_elf_table {
	HL_ELF_SYMTAB = 1 << 0,
	HL_ELF_DYNSYM = 1 << 1,
};

/*
 * Visits the symbols of the chosen tables:
 *
 *	struct hl_elf_symbols all = {.elf = elf, .tables = HL_ELF_SYMTAB | HL_ELF_DYNSYM};
 *	while (hl_elf_symbols_next(&all))
 *		use(all.name, &all.symbol);
 *
 * A file without section headers has the symbols that its dynamic section names.
 */
struct hl_elf_symbols {
	Elf *elf;
	unsigned tables; /* enum hl_elf_table */

	GElf_Sym symbol;
	const char *name; /* valid as long as the file is open */

	Elf_Scn *section;	     /* where the visit is */
	Elf_Data *content, *strings; /* strings: without section headers */
	size_t names;
	int next;
	bool is_dynamic_visited;
};

bool hl_elf_symbols_next(struct hl_elf_symbols *symbols);

/* The address of the symbol ${name} as the file defines it, or false. */
bool hl_elf_find_symbol(Elf *elf, unsigned tables, const char *name, uint64_t *ret_address);

/* ---- sections ---- */

/* The section ${name} and its header, or NULL. */
Elf_Scn *hl_elf_find_section(Elf *elf, const char *name, GElf_Shdr *ret_header);

/* Whether its constants, .rodata, hold ${text}. */
bool hl_elf_has_text(Elf *elf, const char *text);

/* ---- compressed sections ---- */

/* A copy of the ELF file ${fd} that libelf can read, where some sections are compressed by zstd: a descriptor (close-on-exec);
 * -1 where there are none, or it cannot be made. */
int hl_elf_zstd_copy(int fd);

/* What the compressed section ${name} of the file was, by zlib or zstd; the bytes are to be freed. 0, -ENOENT where the file
 * has no such section or it is not compressed, -EBADMSG, -ENOMEM. */
int hl_elf_decompress(int fd, const char *name, uint8_t **ret_bytes, size_t *ret_count);

/* The best that a file says of its functions. */
enum hl_elf_names {
	HL_ELF_NAMES_NONE,
	HL_ELF_NAMES_EXPORTED, /* .dynsym */
	HL_ELF_NAMES_ALL,      /* .symtab, or Go's own table */
	HL_ELF_NAMES_LINES,    /* .debug_info, in the file or in a separate debug file */
};

/* ${build_id}: the file's, to look for the separate one. NULL for ${elf} has no names. */
enum hl_elf_names hl_elf_names(Elf *elf, const uint8_t *build_id, size_t build_id_bytes);

/* ---- versions ---- */

/* The build id, within the file's data: how many bytes; 0: it has none. Valid as long as the file is open. */
size_t hl_elf_build_id(Elf *elf, const uint8_t **ret_id);

/* The hash of the file for its fingerprint, see base/file_print.h. */
uint64_t hl_elf_hash(int fd);

/* Where distributions put separate debug files. */
#define HL_ELF_DEBUG_DIRECTORY "/usr/lib/debug"
#define HL_ELF_DEBUG_PATH_MAX  1024u

/*
 * Where the separate debug file of a build id would lie below ${directory}; false when the id is
 * too short for one, or ${ret_path} for its path.
 */
bool hl_elf_debug_path(const char *directory, const uint8_t *build_id, size_t build_id_bytes,
		       char *ret_path, size_t capacity);
