/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads ELF images for code tables; see code_image.h. */
#include "bpf/code_image.h"

#include "base/array.h"
#include "unwind/arch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEADERS_MAX 1024u /* program headers; more make no sense */

int hl_code_image_read(const struct hl_code_image *image, void *buffer, uint64_t bytes,
		       uint64_t offset)
{
	char *at = buffer;
	uint64_t place = image->start + offset;

	if (offset > INT64_MAX - image->start || bytes > INT64_MAX - place)
		return -ENOEXEC;
	while (bytes) {
		ssize_t size = pread(image->fd, at, bytes, (off_t)place);
		if (size < 0 && errno == EINTR)
			continue;
		if (size <= 0)
			return size < 0 ? -errno : -ENOEXEC;
		at += size;
		place += (uint64_t)size;
		bytes -= (uint64_t)size;
	}
	return 0;
}

int hl_code_image_read_new(const struct hl_code_image *image, uint64_t bytes, uint64_t offset,
			   void **ret_bytes)
{
	void *buffer = malloc(bytes + 1);

	if (!buffer)
		return -ENOMEM;
	int r = hl_code_image_read(image, buffer, bytes, offset);
	if (r == 0)
		*ret_bytes = buffer;
	else
		free(buffer);
	return r;
}

int hl_code_image_read_headers(struct hl_code_image *image)
{
	Elf64_Ehdr *header = &image->header;

	int r = hl_code_image_read(image, header, sizeof(*header), 0);
	if (r < 0)
		return r;
	if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
	    header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
	    header->e_machine != EM_X86_64 || header->e_phentsize != sizeof(Elf64_Phdr) ||
	    !header->e_phnum || header->e_phnum > HEADERS_MAX)
		return -ENOEXEC;
	return hl_code_image_read_new(image, header->e_phnum * sizeof(Elf64_Phdr), header->e_phoff,
				      (void **)&image->segments);
}

int hl_code_image_read_section(const struct hl_code_image *image, uint32_t number,
			       Elf64_Shdr *ret_section)
{
	return hl_code_image_read(image, ret_section, sizeof(*ret_section),
				  image->header.e_shoff + number * sizeof(*ret_section));
}

int hl_code_image_find_section(const struct hl_code_image *image, const char *wanted,
			       Elf64_Shdr *ret_section)
{
	const Elf64_Ehdr *header = &image->header;
	Elf64_Shdr names, section;
	char name[16];

	if (header->e_shentsize != sizeof(section) || header->e_shstrndx >= header->e_shnum)
		return -ENOENT;
	int r = hl_code_image_read_section(image, header->e_shstrndx, &names);
	for (uint32_t i = 0; r == 0 && i < header->e_shnum; i++) {
		r = hl_code_image_read_section(image, i, &section);
		if (r < 0 || section.sh_type == SHT_NOBITS || section.sh_flags & SHF_COMPRESSED ||
		    hl_code_image_read(image, name, strlen(wanted) + 1,
				       names.sh_offset + section.sh_name) < 0 ||
		    memcmp(name, wanted, strlen(wanted) + 1) != 0)
			continue;
		*ret_section = section;
		return 0;
	}
	return r < 0 ? r : -ENOENT;
}

int hl_code_image_keep_row(void *context, const struct hl_cfi_row *row)
{
	struct hl_code_image_rows *rows = context;

	int r = hl_array_reserve(&rows->rows, &rows->capacity, rows->count + 1, sizeof(*row));
	if (r < 0)
		return r;
	rows->rows[rows->count++] = *row;
	return 0;
}

int hl_code_image_keep_row_in_gap(void *context, const struct hl_cfi_row *row)
{
	struct hl_code_image_gaps *gaps = context;

	if (hl_cfi_rows_find(gaps->rows->rows, gaps->known, row->offset) != HL_RULE_NONE)
		return 0;
	return hl_code_image_keep_row(gaps->rows, row);
}
