/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads the ELF file that is built into heapline; see image.h. */
#include "hook/image.h"

#include "elf/elf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES UINT64_C(4096)

/* Made from the recorder's sources, see recorder/meson.build. */
extern const char hl_image[];
extern const size_t hl_image_size;

static uint64_t round_up(uint64_t size)
{
	return (size + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

static int protection_of(uint32_t flags)
{
	return (flags & PF_R ? PROT_READ : 0) | (flags & PF_W ? PROT_WRITE : 0) |
	       (flags & PF_X ? PROT_EXEC : 0);
}

/* Notes where the segments lie, and returns where the last one ends; 0 when they make no sense. */
static uint64_t find_parts(Elf *elf, struct hl_image *image)
{
	uint64_t end = 0;
	size_t count;
	GElf_Phdr segment;

	if (elf_getphdrnum(elf, &count) != 0)
		return 0;
	for (size_t i = 0; i < count && gelf_getphdr(elf, (int)i, &segment); i++) {
		if (segment.p_type != PT_LOAD || !segment.p_memsz)
			continue;
		uint64_t start = segment.p_vaddr & ~(PAGE_BYTES - 1);
		if (image->part_count == HL_IMAGE_PARTS_MAX || start < end ||
		    segment.p_filesz > segment.p_memsz || segment.p_offset > hl_image_size ||
		    segment.p_filesz > hl_image_size - segment.p_offset)
			return 0;
		end = round_up(segment.p_vaddr + segment.p_memsz);
		image->parts[image->part_count].offset = start;
		image->parts[image->part_count].size = end - start;
		image->parts[image->part_count++].protection = protection_of(segment.p_flags);
	}
	return end;
}

static void fill(Elf *elf, struct hl_image *image)
{
	size_t count;
	GElf_Phdr segment;

	elf_getphdrnum(elf, &count);
	for (size_t i = 0; i < count && gelf_getphdr(elf, (int)i, &segment); i++)
		if (segment.p_type == PT_LOAD)
			memcpy(image->bytes + segment.p_vaddr, hl_image + segment.p_offset,
			       segment.p_filesz);
}

int hl_image_load(struct hl_image *ret_image, struct hl_error *err)
{
	struct hl_image image = {0};

	elf_version(EV_CURRENT);
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = elf_memory((char *)hl_image, hl_image_size);
	image.size = elf ? find_parts(elf, &image) : 0;
	if (!image.size ||
	    !hl_elf_find_symbol(elf, HL_ELF_DYNSYM, HL_ATTACHED_SYMBOL, &image.attached))
		return hl_error_set(err, -EBADMSG, "the recorder in heapline is damaged");
	image.bytes = calloc(1, image.size);
	if (!image.bytes)
		return hl_error_set(err, -ENOMEM, "out of memory");
	fill(elf, &image);
	*ret_image = image;
	return 0;
}

void hl_image_relocate(struct hl_image *image, uint64_t base)
{
	GElf_Shdr header;
	GElf_Rela relocation;

	HL_CLEANUP(hl_elf_cleanup) Elf *elf = elf_memory((char *)hl_image, hl_image_size);
	Elf_Scn *section = elf ? hl_elf_find_section(elf, ".rela.dyn", &header) : NULL;
	Elf_Data *content = section ? elf_getdata(section, NULL) : NULL;
	for (int i = 0; content && gelf_getrela(content, i, &relocation); i++) {
		uint64_t address = base + (uint64_t)relocation.r_addend;
		memcpy(image->bytes + relocation.r_offset, &address, sizeof(address));
	}
}

struct hl_attached hl_image_attached(const struct hl_image *image)
{
	struct hl_attached attached;

	memcpy(&attached, image->bytes + image->attached, sizeof(attached));
	return attached;
}

void hl_image_release(struct hl_image *image)
{
	free(image->bytes);
	*image = (struct hl_image){0};
}
