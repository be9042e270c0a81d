/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens and examines files of modules; see module_file.h. */
#include "recorder/module_file.h"

#include "base/clock.h"
#include "recorder/sys.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define COMPARED_MAX 4096u /* bytes of headers: more need not be mapped */

static long read_at(int fd, void *buffer, size_t bytes, uint64_t offset)
{
	return hl_sys6(SYS_pread64, fd, (long)buffer, (long)bytes, (long)offset, 0, 0);
}

/* Whether the file begins with the ELF header and program headers that are at ${image}. */
static bool has_headers_of(int fd, const uint8_t *image)
{
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
	uint64_t end = header->e_phoff + header->e_phnum * sizeof(Elf64_Phdr);
	uint8_t bytes[256];
	for (uint64_t at = 0; at < end && at < COMPARED_MAX; at += sizeof(bytes)) {
		size_t size = end - at < sizeof(bytes) ? (size_t)(end - at) : sizeof(bytes);
		if (read_at(fd, bytes, size, at) != (long)size ||
		    memcmp(bytes, image + at, size) != 0)
			return false;
	}
	return true;
}

int hl_module_file_open(const char *path, const void *image)
{
	const char *name = *path ? path : "/proc/self/exe";
	int fd = (int)hl_sys6(SYS_openat, AT_FDCWD, (long)name, O_RDONLY | O_CLOEXEC | O_NONBLOCK,
			      0, 0, 0);
	if (fd >= 0 && image && !has_headers_of(fd, image)) {
		hl_sys_close(fd);
		return -1;
	}
	return fd;
}

struct hl_file_print hl_module_file_print(int fd)
{
	struct stat status;
	uint64_t hash = hl_file_print_hash(fd, read_at);
	if (!hash || HL_SYS(SYS_fstat, fd, &status, 0) != 0)
		return (struct hl_file_print){.hash = HL_FILE_PRINT_UNKNOWN};
	return (struct hl_file_print){
		.bytes = (uint64_t)status.st_size,
		.mtime_ns = (uint64_t)status.st_mtim.tv_sec * HL_NS_PER_SECOND +
			    (uint64_t)status.st_mtim.tv_nsec,
		.hash = hash,
	};
}

struct file {
	const uint8_t *bytes;
	size_t size;
};

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

static struct hl_unwind_debug_frame find_debug_frame(const struct file *file)
{
	static const char wanted[] = ".debug_frame";
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)file->bytes;
	const Elf64_Shdr *sections = section_headers(file, header);
	if (!sections)
		return (struct hl_unwind_debug_frame){0};
	const Elf64_Shdr *names = &sections[header->e_shstrndx];
	for (uint16_t i = 0; i < header->e_shnum; i++) {
		const Elf64_Shdr *section = &sections[i];
		uint64_t name = names->sh_offset + section->sh_name;
		if (section->sh_type == SHT_NOBITS || section->sh_flags & SHF_COMPRESSED ||
		    !inside(file, name, sizeof(wanted)) ||
		    memcmp(file->bytes + name, wanted, sizeof(wanted)) != 0 ||
		    !inside(file, section->sh_offset, section->sh_size))
			continue;
		return (struct hl_unwind_debug_frame){file->bytes + section->sh_offset,
						      section->sh_size};
	}
	return (struct hl_unwind_debug_frame){0};
}

struct hl_unwind_debug_frame hl_module_file_debug_frame(int fd)
{
	struct stat status;
	if (HL_SYS(SYS_fstat, fd, &status, 0) != 0 || status.st_size <= (off_t)sizeof(Elf64_Ehdr))
		return (struct hl_unwind_debug_frame){0};
	struct file file = {.size = (size_t)status.st_size};
	file.bytes = hl_sys_mmap(file.size, PROT_READ, MAP_PRIVATE, fd);
	if (!file.bytes)
		return (struct hl_unwind_debug_frame){0};
	struct hl_unwind_debug_frame found = find_debug_frame(&file);
	if (!found.bytes)
		hl_sys_munmap((void *)file.bytes, file.size);
	return found;
}
