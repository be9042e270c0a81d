/* SPDX-License-Identifier: BSD-2-Clause */
/* Hashes the parts of an ELF file that tell its versions apart; see file_print.h. */
#include "base/file_print.h"

#include <elf.h>

#define END_BYTES    1024u /* of each end of a table */
#define CHUNK_BYTES  512u
#define SECTIONS_MAX 512u /* later ones are passed over */

struct hashing {
	int fd;
	hl_read_at_fn *read_at;
	uint64_t hash;
	bool failed;
};

static void add_bytes(struct hashing *hashing, uint64_t offset, uint64_t bytes)
{
	uint8_t chunk[CHUNK_BYTES];

	while (bytes && !hashing->failed) {
		size_t size = bytes < sizeof(chunk) ? (size_t)bytes : sizeof(chunk);
		if (hashing->read_at(hashing->fd, chunk, size, offset) != (long)size) {
			hashing->failed = true;
			return;
		}
		hashing->hash = hl_fnv(hashing->hash, chunk, size);
		offset += size;
		bytes -= size;
	}
}

static void add_ends(struct hashing *hashing, const Elf64_Shdr *table)
{
	uint64_t head = table->sh_size < END_BYTES ? table->sh_size : END_BYTES;
	uint64_t rest = table->sh_size - head;
	uint64_t tail = rest < END_BYTES ? rest : END_BYTES;

	add_bytes(hashing, table->sh_offset, head);
	add_bytes(hashing, table->sh_offset + table->sh_size - tail, tail);
}

static bool read_section(struct hashing *hashing, const Elf64_Ehdr *header, uint32_t index,
			 Elf64_Shdr *ret_section)
{
	uint64_t offset = header->e_shoff + index * sizeof(*ret_section);

	return index < header->e_shnum &&
	       hashing->read_at(hashing->fd, ret_section, sizeof(*ret_section), offset) ==
		       (long)sizeof(*ret_section);
}

/* Adds the section headers, and the ends of the symbol table and of its names: the dynamic ones if
 * there are no others. */
static void add_sections(struct hashing *hashing, const Elf64_Ehdr *header)
{
	Elf64_Shdr section, symbols = {0}, names;

	for (uint32_t i = 0; i < header->e_shnum && i < SECTIONS_MAX; i++) {
		if (!read_section(hashing, header, i, &section))
			return;
		hashing->hash = hl_fnv(hashing->hash, &section, sizeof(section));
		if (section.sh_type == SHT_SYMTAB ||
		    (section.sh_type == SHT_DYNSYM && symbols.sh_type != SHT_SYMTAB))
			symbols = section;
	}
	if (!symbols.sh_type)
		return;
	add_ends(hashing, &symbols);
	if (read_section(hashing, header, symbols.sh_link, &names))
		add_ends(hashing, &names);
}

uint64_t hl_file_print_hash(int fd, hl_read_at_fn *read_at)
{
	struct hashing hashing = {.fd = fd, .read_at = read_at, .hash = HL_FNV_START};
	Elf64_Ehdr header;

	if (read_at(fd, &header, sizeof(header), 0) != (long)sizeof(header) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
		return 0;
	hashing.hash = hl_fnv(hashing.hash, &header, sizeof(header));
	add_bytes(&hashing, header.e_phoff, (uint64_t)header.e_phnum * sizeof(Elf64_Phdr));
	if (header.e_shentsize == sizeof(Elf64_Shdr))
		add_sections(&hashing, &header);
	return hashing.failed ? 0 : (hashing.hash >> 1) | 2; /* never HL_FILE_PRINT_UNKNOWN */
}
