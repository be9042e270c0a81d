/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads ELF headers and the dynamic symbol table; see elf_file.h. */
#include "collector/elf_file.h"

#include "base/compiler.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#define NATIVE_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define NATIVE_MACHINE EM_AARCH64
#endif

/* Larger tables are not looked through; the recorder finds out for itself then. */
#define TABLE_BYTES_MAX (UINT64_C(256) << 20)

static bool read_at(int fd, void *bytes, size_t size, uint64_t offset)
{
	return offset <= INT64_MAX && pread(fd, bytes, size, (off_t)offset) == (ssize_t)size;
}

/* A table in memory that the caller frees, a NUL after it; NULL when it cannot be read. */
static void *read_table(int fd, uint64_t offset, uint64_t size)
{
	char *bytes = size <= TABLE_BYTES_MAX ? malloc(size + 1) : NULL;
	if (!bytes)
		return NULL;
	if (!read_at(fd, bytes, size, offset)) {
		free(bytes);
		return NULL;
	}
	bytes[size] = '\0';
	return bytes;
}

static void read_interpreter(int fd, const Elf64_Ehdr *header, struct hl_elf_file *elf)
{
	for (uint16_t i = 0; i < header->e_phnum; i++) {
		Elf64_Phdr segment;
		if (!read_at(fd, &segment, sizeof(segment), header->e_phoff + i * sizeof(segment)))
			return;
		if (segment.p_type != PT_INTERP || segment.p_filesz >= sizeof(elf->interpreter))
			continue;
		if (!read_at(fd, elf->interpreter, segment.p_filesz, segment.p_offset))
			elf->interpreter[0] = '\0';
		elf->interpreter[segment.p_filesz] = '\0';
		return;
	}
}

/* An undefined symbol may have a value, too: the address of its PLT entry. */
static bool is_definition(const Elf64_Sym *symbol)
{
	int type = ELF64_ST_TYPE(symbol->st_info);
	return symbol->st_shndx != SHN_UNDEF && symbol->st_value != 0 &&
	       (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE) &&
	       ELF64_ST_BIND(symbol->st_info) != STB_LOCAL;
}

static bool table_has(int fd, const Elf64_Shdr *table, const Elf64_Shdr *names, const char *name,
		      bool defined)
{
	Elf64_Sym *symbols = read_table(fd, table->sh_offset, table->sh_size);
	char *texts = read_table(fd, names->sh_offset, names->sh_size);
	bool found = false;
	for (uint64_t i = 0; symbols && texts && i < table->sh_size / sizeof(*symbols); i++)
		if (symbols[i].st_name < names->sh_size &&
		    (!defined || is_definition(&symbols[i])) &&
		    strcmp(texts + symbols[i].st_name, name) == 0)
			found = true;
	free(symbols);
	free(texts);
	return found;
}

static bool read_section(int fd, const Elf64_Ehdr *header, uint32_t index, Elf64_Shdr *section)
{
	return index < header->e_shnum &&
	       read_at(fd, section, sizeof(*section), header->e_shoff + index * sizeof(*section));
}

/* Whether a symbol is in the dynamic table, if ${defined} as one of the file's own. */
static bool has_dynamic_symbol(int fd, const Elf64_Ehdr *header, const char *name, bool defined)
{
	for (uint16_t i = 0; i < header->e_shnum; i++) {
		Elf64_Shdr section, names;
		if (!read_section(fd, header, i, &section))
			return false;
		if (section.sh_type == SHT_DYNSYM &&
		    read_section(fd, header, section.sh_link, &names))
			return table_has(fd, &section, &names, name, defined);
	}
	return false;
}

/* mimalloc, jemalloc, the same in Rust programs, tcmalloc. */
static const char *const allocators[] = {"mi_malloc", "je_malloc", "_rjem_malloc", "tc_malloc"};

static const char *find_allocator(int fd, const Elf64_Shdr *table, const Elf64_Shdr *names)
{
	Elf64_Sym *symbols = read_table(fd, table->sh_offset, table->sh_size);
	char *texts = read_table(fd, names->sh_offset, names->sh_size);
	const char *found = NULL;
	for (uint64_t i = 0; symbols && texts && !found && i < table->sh_size / sizeof(*symbols);
	     i++)
		for (size_t n = 0; n < HL_COUNT_OF(allocators); n++)
			if (symbols[i].st_name < names->sh_size &&
			    symbols[i].st_shndx != SHN_UNDEF &&
			    strcmp(texts + symbols[i].st_name, allocators[n]) == 0)
				found = allocators[n];
	free(symbols);
	free(texts);
	return found;
}

const char *hl_elf_file_allocator(const char *path)
{
	Elf64_Ehdr header = {0};
	const char *found = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return NULL;
	if (read_at(fd, &header, sizeof(header), 0) &&
	    memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64)
		for (uint16_t i = 0; !found && i < header.e_shnum; i++) {
			Elf64_Shdr section, names;
			if (!read_section(fd, &header, i, &section))
				break;
			if ((section.sh_type == SHT_DYNSYM || section.sh_type == SHT_SYMTAB) &&
			    read_section(fd, &header, section.sh_link, &names))
				found = find_allocator(fd, &section, &names);
		}
	close(fd);
	return found;
}

static int read_elf(int fd, struct hl_elf_file *elf)
{
	Elf64_Ehdr header = {0};
	ssize_t size = pread(fd, &header, sizeof(header), 0);
	if (size < 0)
		return -errno;
	if (size < (ssize_t)sizeof(Elf32_Ehdr) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
		return -ENOEXEC;
	elf->is_64_bit = header.e_ident[EI_CLASS] == ELFCLASS64;
	elf->is_native = elf->is_64_bit && header.e_ident[EI_DATA] == ELFDATA2LSB &&
			 header.e_machine == NATIVE_MACHINE;
	if (!elf->is_native)
		return 0;
	read_interpreter(fd, &header, elf);
	elf->defines_malloc = has_dynamic_symbol(fd, &header, "malloc", true);
	elf->needs_asan = has_dynamic_symbol(fd, &header, "__asan_init", false);
	return 0;
}

int hl_elf_file_read(const char *path, struct hl_elf_file *ret_elf)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	struct hl_elf_file elf = {0};
	int r = read_elf(fd, &elf);
	close(fd);
	if (r == 0)
		*ret_elf = elf;
	return r;
}
