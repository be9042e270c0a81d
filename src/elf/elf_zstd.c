/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sections that are compressed: by zlib, which libelf reads, or by zstd, which it reads from 0.189 on, if it was built so. A file that
 * has some of the latter is read from a copy in memory, at whose end they are as they were before.
 */
#include "elf/elf.h"

#include "base/cleanup.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#ifndef ELFCOMPRESS_ZSTD
#define ELFCOMPRESS_ZSTD 2
#endif

/* A larger section is left as it is. */
#define SECTION_BYTES_MAX (UINT64_C(2) << 30)

/* Whether ${section} of the file is compressed by zstd, and from what. */
static bool is_compressed(int fd, const GElf_Shdr *section, Elf64_Chdr *ret_header)
{
	return section->sh_flags & SHF_COMPRESSED && section->sh_size > sizeof(*ret_header) &&
	       section->sh_size <= SECTION_BYTES_MAX &&
	       pread(fd, ret_header, sizeof(*ret_header), (off_t)section->sh_offset) ==
		       (ssize_t)sizeof(*ret_header) &&
	       ret_header->ch_type == ELFCOMPRESS_ZSTD && ret_header->ch_size <= SECTION_BYTES_MAX;
}

static int copy_all(int from, off_t size)
{
	off_t at = 0;
	int to = memfd_create("heapline-symbols", MFD_CLOEXEC);

	while (to >= 0 && at < size && sendfile(to, from, &at, (size_t)(size - at)) > 0)
		continue;
	if (to >= 0 && at < size) {
		close(to);
		return -1;
	}
	return to;
}

/* What ${section} was, with room for a byte more; NULL: it is damaged, or there is no memory. */
static uint8_t *decompress(int fd, const GElf_Shdr *section, const Elf64_Chdr *compressed)
{
	uint64_t bytes = section->sh_size - sizeof(*compressed);
	HL_FREED uint8_t *stored = malloc(bytes), *raw = malloc(compressed->ch_size + 1);

	if (!stored || !raw ||
	    pread(fd, stored, bytes, (off_t)(section->sh_offset + sizeof(*compressed))) !=
		    (ssize_t)bytes ||
	    ZSTD_decompress(raw, compressed->ch_size, stored, bytes) != compressed->ch_size)
		return NULL;
	return HL_TAKE(raw);
}

/* Puts what ${section} was at ${end} of the copy, and its header to ${header_at}. How many bytes it has; 0: it stays as it is. */
static uint64_t append(int copy, const GElf_Shdr *section, const Elf64_Chdr *compressed,
		       uint64_t end, uint64_t header_at)
{
	HL_FREED uint8_t *raw = decompress(copy, section, compressed);
	Elf64_Shdr header;

	if (!raw ||
	    pwrite(copy, raw, compressed->ch_size, (off_t)end) != (ssize_t)compressed->ch_size ||
	    pread(copy, &header, sizeof(header), (off_t)header_at) != (ssize_t)sizeof(header))
		return 0;
	header.sh_offset = end;
	header.sh_size = compressed->ch_size;
	header.sh_addralign = compressed->ch_addralign;
	header.sh_flags &= ~(uint64_t)SHF_COMPRESSED;
	return pwrite(copy, &header, sizeof(header), (off_t)header_at) == (ssize_t)sizeof(header)
		       ? compressed->ch_size
		       : 0;
}

int hl_elf_zstd_copy(int fd)
{
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	GElf_Ehdr file;
	GElf_Shdr section;
	Elf64_Chdr header;
	struct stat status;
	int copy = -1;

	if (!elf || gelf_getclass(elf) != ELFCLASS64 || !gelf_getehdr(elf, &file) ||
	    file.e_shentsize != sizeof(Elf64_Shdr) || fstat(fd, &status) < 0)
		return -1;
	uint64_t end = (uint64_t)status.st_size;
	for (Elf_Scn *at = NULL; (at = elf_nextscn(elf, at));) {
		if (!gelf_getshdr(at, &section) || !is_compressed(fd, &section, &header))
			continue;
		if (copy < 0)
			copy = copy_all(fd, status.st_size);
		if (copy < 0)
			return -1;
		end = (end + 15) & ~UINT64_C(15);
		end += append(copy, &section, &header, end,
			      file.e_shoff + elf_ndxscn(at) * sizeof(Elf64_Shdr));
	}
	if (copy >= 0)
		lseek(copy, 0, SEEK_SET); /* from where libdwfl reads on */
	return copy;
}

int hl_elf_decompress(int fd, const char *name, uint8_t **ret_bytes, size_t *ret_count)
{
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	GElf_Shdr header;
	Elf64_Chdr compressed;

	Elf_Scn *section = elf ? hl_elf_find_section(elf, name, &header) : NULL;
	if (!section || gelf_getclass(elf) != ELFCLASS64 || !(header.sh_flags & SHF_COMPRESSED))
		return -ENOENT;
	if (is_compressed(fd, &header, &compressed)) {
		uint8_t *raw = decompress(fd, &header, &compressed);
		if (!raw)
			return -EBADMSG;
		*ret_bytes = raw;
		*ret_count = compressed.ch_size;
		return 0;
	}
	Elf_Data *content = elf_compress(section, 0, 0) < 0 ? NULL : elf_getdata(section, NULL);
	if (!content || !content->d_buf)
		return -EBADMSG;
	uint8_t *raw = malloc(content->d_size + 1);
	if (!raw)
		return -ENOMEM;
	memcpy(raw, content->d_buf, content->d_size);
	*ret_bytes = raw;
	*ret_count = content->d_size;
	return 0;
}
