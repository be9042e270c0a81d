/* SPDX-License-Identifier: BSD-2-Clause */
/* Symbols of glibc's allocator; see glibc_symbols.h. */
#include "heap/glibc_symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BUILD_ID_MAX 64u

static void keep(struct hl_glibc_symbols *symbols, const char *name, uint64_t address)
{
	if (!name)
		return;
	if (strcmp(name, "main_arena") == 0)
		symbols->main_arena = address;
	if (strcmp(name, "mp_") == 0)
		symbols->mp = address;
}

static void read_table(Elf *elf, Elf_Scn *section, const GElf_Shdr *header,
		       struct hl_glibc_symbols *symbols)
{
	Elf_Data *data = elf_getdata(section, NULL);
	size_t count = data && header->sh_entsize ? data->d_size / header->sh_entsize : 0;
	GElf_Sym symbol;

	for (size_t i = 0; i < count && i < INT_MAX; i++)
		if (gelf_getsym(data, (int)i, &symbol) && symbol.st_shndx != SHN_UNDEF)
			keep(symbols, elf_strptr(elf, header->sh_link, symbol.st_name),
			     symbol.st_value);
}

static void read_symbols(Elf *elf, struct hl_glibc_symbols *symbols)
{
	Elf_Scn *section = NULL;
	GElf_Shdr header;

	while ((section = elf_nextscn(elf, section)))
		if (gelf_getshdr(section, &header) && header.sh_type == SHT_SYMTAB)
			read_table(elf, section, &header, symbols);
}

/* Bytes of the build id in ${ret_id}; 0 when there is none. */
static size_t read_build_id(Elf *elf, uint8_t ret_id[BUILD_ID_MAX])
{
	size_t count = 0, name, content, at;
	GElf_Phdr segment;
	GElf_Nhdr note;

	elf_getphdrnum(elf, &count);
	for (size_t i = 0; i < count && i < INT_MAX; i++) {
		if (!gelf_getphdr(elf, (int)i, &segment) || segment.p_type != PT_NOTE)
			continue;
		Elf_Data *data = elf_getdata_rawchunk(elf, (int64_t)segment.p_offset,
						      segment.p_filesz, ELF_T_NHDR);
		for (at = 0; data && (at = gelf_getnote(data, at, &note, &name, &content)) > 0;)
			if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
			    memcmp((char *)data->d_buf + name, "GNU", 4) == 0 &&
			    note.n_descsz <= BUILD_ID_MAX) {
				memcpy(ret_id, (char *)data->d_buf + content, note.n_descsz);
				return note.n_descsz;
			}
	}
	return 0;
}

/* The separate debug file of a build id; a descriptor, or -1. */
static int open_debug_file(Elf *elf, const char *directory)
{
	uint8_t id[BUILD_ID_MAX] = {0};
	char path[PATH_MAX];
	size_t bytes = read_build_id(elf, id);
	int length = snprintf(path, sizeof(path), "%s/.build-id/%02x/", directory, id[0]);

	if (bytes < 2 || length < 0 || (size_t)length + 2 * bytes + 8 > sizeof(path))
		return -1;
	for (size_t i = 1; i < bytes; i++)
		length += sprintf(path + length, "%02x", id[i]);
	strcpy(path + length, ".debug");
	return open(path, O_RDONLY | O_CLOEXEC);
}

static void read_debug_file(int fd, struct hl_glibc_symbols *symbols)
{
	Elf *elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);

	if (elf)
		read_symbols(elf, symbols);
	elf_end(elf);
	close(fd);
}

struct hl_glibc_symbols hl_glibc_symbols_find(int fd, const char *debug_directory)
{
	struct hl_glibc_symbols symbols = {0};

	elf_version(EV_CURRENT);
	Elf *elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	if (!elf)
		return symbols;
	read_symbols(elf, &symbols);
	if (!symbols.main_arena || !symbols.mp) {
		int debug = open_debug_file(elf, debug_directory);
		if (debug >= 0)
			read_debug_file(debug, &symbols);
	}
	elf_end(elf);
	return symbols;
}

bool hl_glibc_symbols_exist(int fd)
{
	bool exist = false;
	Elf_Scn *section = NULL;
	GElf_Shdr header;

	elf_version(EV_CURRENT);
	Elf *elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	while (elf && !exist && (section = elf_nextscn(elf, section)))
		exist = gelf_getshdr(section, &header) &&
			(header.sh_type == SHT_SYMTAB || header.sh_type == SHT_DYNSYM);
	elf_end(elf);
	return exist;
}
