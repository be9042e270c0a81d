/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds .debug_frame in a module's file; see debug_frame.h. The only file that the recorder ever
 * opens, read-only and only for modules without .eh_frame_hdr (built with
 * -fno-asynchronous-unwind-tables).
 */
#include "recorder/debug_frame.h"

#include "recorder/sys.h"

#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

struct file {
	const uint8_t *bytes;
	size_t size;
};

static bool map_file(const char *path, struct file *ret_file)
{
	const char *name = *path ? path : "/proc/self/exe";
	int fd = (int)hl_sys6(SYS_openat, AT_FDCWD, (long)name, O_RDONLY | O_CLOEXEC, 0, 0, 0);
	if (fd < 0)
		return false;
	struct stat status;
	long result = HL_SYS(SYS_fstat, fd, &status, 0);
	if (result == 0 && status.st_size > (off_t)sizeof(Elf64_Ehdr)) {
		ret_file->size = (size_t)status.st_size;
		ret_file->bytes = hl_sys_mmap(ret_file->size, PROT_READ, MAP_PRIVATE, fd);
	}
	hl_sys_close(fd);
	return ret_file->bytes != NULL;
}

static bool inside(const struct file *file, uint64_t offset, uint64_t bytes)
{
	return offset <= file->size && bytes <= file->size - offset;
}

static const Elf64_Shdr *section_headers(const struct file *file, const Elf64_Ehdr *header)
{
	if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
	    header->e_shentsize != sizeof(Elf64_Shdr) ||
	    !inside(file, header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr)) ||
	    header->e_shstrndx >= header->e_shnum)
		return NULL;
	return (const Elf64_Shdr *)(file->bytes + header->e_shoff);
}

static const uint8_t *find_section(const struct file *file, size_t *ret_bytes)
{
	static const char wanted[] = ".debug_frame";
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)file->bytes;
	const Elf64_Shdr *sections = section_headers(file, header);
	if (!sections)
		return NULL;
	const Elf64_Shdr *names = &sections[header->e_shstrndx];
	for (uint16_t i = 0; i < header->e_shnum; i++) {
		const Elf64_Shdr *section = &sections[i];
		uint64_t name = names->sh_offset + section->sh_name;
		if (section->sh_type == SHT_NOBITS || section->sh_flags & SHF_COMPRESSED ||
		    !inside(file, name, sizeof(wanted)) ||
		    memcmp(file->bytes + name, wanted, sizeof(wanted)) != 0 ||
		    !inside(file, section->sh_offset, section->sh_size))
			continue;
		*ret_bytes = section->sh_size;
		return file->bytes + section->sh_offset;
	}
	return NULL;
}

const uint8_t *hl_debug_frame_map(const char *path, size_t *ret_bytes)
{
	struct file file = {0};
	if (!map_file(path, &file))
		return NULL;
	const uint8_t *section = find_section(&file, ret_bytes);
	if (!section)
		hl_sys_munmap((void *)file.bytes, file.size);
	return section;
}
