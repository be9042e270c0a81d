/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens and examines files of modules; see modules.h. */
#include "recorder/modules.h"

#include "base/clock.h"
#include "recorder/private_map.h"
#include "recorder/sys.h"
#include "unwind/cfi.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define PAGE_BYTES   UINT64_C(4096)
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

/* Maps ${section}; NULL when it is not in the file or cannot be mapped. */
static const uint8_t *map_section(int fd, const Elf64_Shdr *section, uint64_t file_bytes)
{
	uint64_t skipped = section->sh_offset % PAGE_BYTES;

	if (!section->sh_size || section->sh_offset > file_bytes ||
	    section->sh_size > file_bytes - section->sh_offset)
		return NULL;
	long address = hl_sys6(SYS_mmap, 0, (long)(section->sh_size + skipped), PROT_READ,
			       MAP_PRIVATE, fd, (long)(section->sh_offset - skipped));
	if (address < 0 && address > -4096)
		return NULL;
	hl_private_map_keep_file((void *)address, section->sh_size + skipped);
	return (const uint8_t *)address + skipped;
}

static bool read_section(int fd, const Elf64_Ehdr *header, uint32_t index, Elf64_Shdr *ret_section)
{
	uint64_t offset = header->e_shoff + index * sizeof(*ret_section);

	return read_at(fd, ret_section, sizeof(*ret_section), offset) == (long)sizeof(*ret_section);
}

/* The caller compares all of ${name}, with its NUL. */
static bool has_name(int fd, const Elf64_Shdr *names, const Elf64_Shdr *section, const char *name,
		     size_t bytes)
{
	char text[16];

	return read_at(fd, text, bytes, names->sh_offset + section->sh_name) == (long)bytes &&
	       !memcmp(text, name, bytes);
}

static bool is_debug_frame(int fd, const Elf64_Shdr *names, const Elf64_Shdr *section)
{
	static const char name[] = ".debug_frame";

	return section->sh_type != SHT_NOBITS && !(section->sh_flags & SHF_COMPRESSED) &&
	       has_name(fd, names, section, name, sizeof(name));
}

static bool is_eh_frame(int fd, const Elf64_Shdr *names, const Elf64_Shdr *section)
{
	static const char name[] = ".eh_frame";

	return section->sh_flags & SHF_ALLOC && section->sh_type != SHT_NOBITS &&
	       has_name(fd, names, section, name, sizeof(name));
}

static bool is_go_functions(int fd, const Elf64_Shdr *names, const Elf64_Shdr *section)
{
	static const char name[] = HL_GO_FUNCTIONS_SECTION;

	return section->sh_type != SHT_NOBITS && has_name(fd, names, section, name, sizeof(name));
}

/* ---- .eh_frame without an index ---- */

struct rows {
	struct hl_cfi_row *rows; /* NULL: they are only counted */
	size_t count, capacity;
};

static int take_row(void *context, const struct hl_cfi_row *row)
{
	struct rows *rows = context;

	if (rows->rows && rows->count == rows->capacity)
		return -ENOSPC;
	if (rows->rows)
		rows->rows[rows->count] = *row;
	rows->count++;
	return 0;
}

/* A few milliseconds, once, for a program of some megabytes. Damaged information is used as far as
 * it goes. */
struct hl_unwind_file hl_module_file_compile(const struct hl_unwind_module *module,
					     uint64_t address, uint64_t bytes)
{
	struct hl_unwind_file file = {0};

	if (module->eh_frame_hdr || !bytes || address < module->start || address > module->end ||
	    bytes > module->end - address)
		return file;
	const struct hl_cfi_section frames = {
		.bytes = (const uint8_t *)address,
		.size = bytes,
		.address = address,
	};
	struct rows rows = {0};
	hl_cfi_compile(&frames, module->start, take_row, &rows);
	rows.capacity = rows.count;
	rows.count = 0;
	size_t row_bytes = rows.capacity * sizeof(*rows.rows);
	rows.rows = row_bytes ? hl_private_map_new(row_bytes) : NULL;
	if (!rows.rows)
		return file;
	hl_cfi_compile(&frames, module->start, take_row, &rows);
	file.row_count = hl_cfi_rows_finish(rows.rows, rows.count);
	file.rows = rows.rows;
	return file;
}

struct hl_unwind_file hl_module_file_map(int fd, const struct hl_unwind_module *module)
{
	struct hl_unwind_file file = {0};
	Elf64_Ehdr header;
	Elf64_Shdr names, section, symbols = {0}, frames = {0}, eh_frame = {0}, go = {0};
	struct stat status;

	if (HL_SYS(SYS_fstat, fd, &status, 0) != 0 ||
	    read_at(fd, &header, sizeof(header), 0) != (long)sizeof(header) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
	    header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum ||
	    !read_section(fd, &header, header.e_shstrndx, &names))
		return file;
	for (uint32_t i = 0; i < header.e_shnum && read_section(fd, &header, i, &section); i++) {
		if (section.sh_type == SHT_SYMTAB ||
		    (section.sh_type == SHT_DYNSYM && symbols.sh_type != SHT_SYMTAB))
			symbols = section;
		else if (is_debug_frame(fd, &names, &section))
			frames = section;
		else if (is_eh_frame(fd, &names, &section))
			eh_frame = section;
		else if (is_go_functions(fd, &names, &section))
			go = section;
	}
	file = hl_module_file_compile(module, module->load_bias + eh_frame.sh_addr,
				      eh_frame.sh_size);
	file.debug_frame = map_section(fd, &frames, (uint64_t)status.st_size);
	file.debug_frame_bytes = file.debug_frame ? frames.sh_size : 0;
	if (symbols.sh_offset % _Alignof(Elf64_Sym) == 0)
		file.symbols =
			(const Elf64_Sym *)map_section(fd, &symbols, (uint64_t)status.st_size);
	hl_go_functions_open(map_section(fd, &go, (uint64_t)status.st_size), go.sh_size, &file.go);
	file.symbol_count = file.symbols ? symbols.sh_size / sizeof(Elf64_Sym) : 0;
	return file;
}
