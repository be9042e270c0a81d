/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads ELF files with libelf; see elf.h. */
#include "elf/elf.h"

#include "base/cleanup.h"
#include "base/encode.h"
#include "base/file_print.h"
#include "base/go_functions.h"
#include "base/machine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

Elf *hl_elf_open(int fd)
{
	elf_version(EV_CURRENT);
	/* Not mapped: a file that is cut short meanwhile would end this process with SIGBUS. */
	Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
	if (elf_kind(elf) == ELF_K_ELF)
		return elf;
	elf_end(elf);
	return NULL;
}

bool hl_elf_is_native(Elf *elf)
{
	GElf_Ehdr header;

	return gelf_getehdr(elf, &header) && header.e_ident[EI_CLASS] == ELFCLASS64 &&
	       header.e_ident[EI_DATA] == ELFDATA2LSB && header.e_machine == HL_ELF_MACHINE;
}

/* ---- segments ---- */

bool hl_elf_code_offset(Elf *elf, uint64_t address, uint64_t *ret_offset)
{
	GElf_Phdr segment;

	for (int i = 0; gelf_getphdr(elf, i, &segment); i++) {
		if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X) ||
		    address < segment.p_vaddr || address - segment.p_vaddr >= segment.p_filesz)
			continue;
		*ret_offset = address - segment.p_vaddr + segment.p_offset;
		return true;
	}
	return false;
}

bool hl_elf_address(Elf *elf, uint64_t offset, bool is_code, uint64_t *ret_address)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE); /* loaders round segments to whole ones */
	GElf_Phdr segment;
	bool found = false;

	for (int i = 0; gelf_getphdr(elf, i, &segment); i++) {
		if (segment.p_type != PT_LOAD || offset < (segment.p_offset & ~(page - 1)) ||
		    offset >= segment.p_offset + segment.p_filesz)
			continue;
		if (!found || is_code == ((segment.p_flags & PF_X) != 0))
			*ret_address = segment.p_vaddr + (offset - segment.p_offset);
		found = true;
	}
	return found;
}

const char *hl_elf_loader(Elf *elf)
{
	GElf_Phdr segment;

	for (int i = 0; gelf_getphdr(elf, i, &segment); i++) {
		if (segment.p_type != PT_INTERP)
			continue;
		const Elf_Data *path = elf_getdata_rawchunk(elf, (int64_t)segment.p_offset,
							    segment.p_filesz, ELF_T_BYTE);
		return path && path->d_size && !((const char *)path->d_buf)[path->d_size - 1]
			       ? path->d_buf
			       : NULL;
	}
	return NULL;
}

/* ---- symbols ---- */

/* What is at ${address}, up to ${bytes} of it and the end of its segment; NULL when the file has nothing there. */
static Elf_Data *data_at(Elf *elf, uint64_t address, uint64_t bytes, Elf_Type type)
{
	GElf_Phdr segment;

	for (int i = 0; gelf_getphdr(elf, i, &segment); i++) {
		uint64_t skipped = address - segment.p_vaddr;
		if (segment.p_type != PT_LOAD || skipped >= segment.p_filesz)
			continue;
		uint64_t left = segment.p_filesz - skipped;
		return elf_getdata_rawchunk(elf, (int64_t)(segment.p_offset + skipped),
					    bytes < left ? bytes : left, type);
	}
	return NULL;
}

bool hl_elf_needs(Elf *elf, const char *start)
{
	GElf_Shdr header;
	GElf_Dyn entry;
	Elf_Scn *section = hl_elf_find_section(elf, ".dynamic", &header);
	Elf_Data *content = section ? elf_getdata(section, NULL) : NULL;

	for (int i = 0; content && gelf_getdyn(content, i, &entry) && entry.d_tag != DT_NULL; i++) {
		const char *name = entry.d_tag == DT_NEEDED
					   ? elf_strptr(elf, header.sh_link, entry.d_un.d_val)
					   : NULL;
		if (name && strncmp(name, start, strlen(start)) == 0)
			return true;
	}
	return false;
}

bool hl_elf_is_alone(Elf *elf)
{
	GElf_Shdr header;

	return !hl_elf_loader(elf) ||
	       (hl_elf_find_section(elf, ".dynamic", &header) && !hl_elf_needs(elf, ""));
}

/* How many symbols a DT_GNU_HASH leads to: the last chain ends with an odd word. */
static uint64_t count_by_gnu_hash(Elf *elf, uint64_t address)
{
	const Elf_Data *table = data_at(elf, address, UINT64_MAX, ELF_T_WORD);
	const uint32_t *words = table ? table->d_buf : NULL;
	uint64_t count = table ? table->d_size / sizeof(*words) : 0, last = 0;

	if (count < 4)
		return 0;
	uint64_t buckets = 4 + UINT64_C(2) * words[2], chains = buckets + words[0];
	for (uint64_t i = buckets; i < chains && i < count; i++)
		last = words[i] > last ? words[i] : last;
	if (last < words[1])
		return words[1];
	while (chains + last - words[1] < count && !(words[chains + last - words[1]] & 1))
		last++;
	return last + 1;
}

/* By the dynamic section alone (System V ABI, "Dynamic Linking"). */
static void visit_dynamic(struct hl_elf_symbols *symbols)
{
	enum { SYMBOLS, STRINGS, STRINGS_BYTES, HASH, GNU_HASH, COUNT };
	static const int64_t tags[COUNT] = {DT_SYMTAB, DT_STRTAB, DT_STRSZ, DT_HASH, DT_GNU_HASH};
	uint64_t found[COUNT] = {0};
	Elf_Data *dynamic = NULL;
	GElf_Phdr segment;
	GElf_Dyn entry;

	for (int i = 0; !dynamic && gelf_getphdr(symbols->elf, i, &segment); i++)
		if (segment.p_type == PT_DYNAMIC)
			dynamic = elf_getdata_rawchunk(symbols->elf, (int64_t)segment.p_offset,
						       segment.p_filesz, ELF_T_DYN);
	for (int i = 0; dynamic && gelf_getdyn(dynamic, i, &entry) && entry.d_tag != DT_NULL; i++)
		for (size_t k = 0; k < COUNT; k++)
			if (entry.d_tag == tags[k])
				found[k] = entry.d_un.d_val;
	const Elf_Data *hash = data_at(symbols->elf, found[HASH], 8, ELF_T_WORD);
	uint64_t count = found[HASH] && hash && hash->d_size == 8
				 ? ((const uint32_t *)hash->d_buf)[1]
				 : count_by_gnu_hash(symbols->elf, found[GNU_HASH]);
	if (!found[SYMBOLS] || !count || count > UINT32_MAX)
		return;
	symbols->strings = data_at(symbols->elf, found[STRINGS], found[STRINGS_BYTES], ELF_T_BYTE);
	if (symbols->strings)
		symbols->content =
			data_at(symbols->elf, found[SYMBOLS], count * sizeof(Elf64_Sym), ELF_T_SYM);
	symbols->next = 0;
}

static bool has_no_sections(Elf *elf)
{
	size_t count;

	return elf_getshdrnum(elf, &count) == 0 && count == 0;
}

static const char *name_of(const struct hl_elf_symbols *symbols)
{
	size_t at = symbols->symbol.st_name;

	if (!symbols->strings)
		return elf_strptr(symbols->elf, symbols->names, at);
	const char *strings = symbols->strings->d_buf;
	size_t bytes = symbols->strings->d_size;
	return at < bytes && memchr(strings + at, '\0', bytes - at) ? strings + at : NULL;
}

bool hl_elf_symbols_next(struct hl_elf_symbols *symbols)
{
	GElf_Shdr header;

	for (;;) {
		while (symbols->content &&
		       gelf_getsym(symbols->content, symbols->next++, &symbols->symbol)) {
			symbols->name = name_of(symbols);
			if (symbols->name)
				return true;
		}
		symbols->content = NULL;
		symbols->section = elf_nextscn(symbols->elf, symbols->section);
		if (!symbols->section && !symbols->is_dynamic_visited &&
		    symbols->tables & HL_ELF_DYNSYM && has_no_sections(symbols->elf)) {
			symbols->is_dynamic_visited = true;
			visit_dynamic(symbols);
			if (symbols->content)
				continue;
		}
		if (!symbols->section)
			return false;
		if (!gelf_getshdr(symbols->section, &header) ||
		    !((header.sh_type == SHT_SYMTAB && symbols->tables & HL_ELF_SYMTAB) ||
		      (header.sh_type == SHT_DYNSYM && symbols->tables & HL_ELF_DYNSYM)))
			continue;
		symbols->content = elf_getdata(symbols->section, NULL);
		symbols->names = header.sh_link;
		symbols->next = 0;
	}
}

bool hl_elf_find_symbol(Elf *elf, unsigned tables, const char *name, uint64_t *ret_address)
{
	struct hl_elf_symbols all = {.elf = elf, .tables = tables};

	while (hl_elf_symbols_next(&all))
		if (all.symbol.st_shndx != SHN_UNDEF && strcmp(all.name, name) == 0) {
			*ret_address = all.symbol.st_value;
			return true;
		}
	return false;
}

/* ---- sections ---- */

Elf_Scn *hl_elf_find_section(Elf *elf, const char *name, GElf_Shdr *ret_header)
{
	size_t names;

	if (elf_getshdrstrndx(elf, &names) < 0)
		return NULL;
	for (Elf_Scn *section = NULL; (section = elf_nextscn(elf, section));) {
		const char *found = gelf_getshdr(section, ret_header)
					    ? elf_strptr(elf, names, ret_header->sh_name)
					    : NULL;
		if (found && strcmp(found, name) == 0)
			return section;
	}
	return NULL;
}

bool hl_elf_has_text(Elf *elf, const char *text)
{
	GElf_Shdr header;
	Elf_Scn *section = hl_elf_find_section(elf, ".rodata", &header);
	const Elf_Data *constants = section ? elf_rawdata(section, NULL) : NULL;

	return constants && constants->d_buf &&
	       memmem(constants->d_buf, constants->d_size, text, strlen(text));
}

/* ---- versions ---- */

/* By the program headers, which a file keeps when its section headers are taken away. */
size_t hl_elf_build_id(Elf *elf, const uint8_t **ret_id)
{
	GElf_Phdr header;
	GElf_Nhdr note;
	size_t count, name, id;

	if (elf_getphdrnum(elf, &count) < 0)
		return 0;
	for (size_t i = 0; i < count && gelf_getphdr(elf, (int)i, &header); i++) {
		Elf_Data *notes = header.p_type != PT_NOTE
					  ? NULL
					  : elf_getdata_rawchunk(
						    elf, (int64_t)header.p_offset, header.p_filesz,
						    header.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
		for (size_t at = 0, next;
		     notes && (next = gelf_getnote(notes, at, &note, &name, &id)) > 0; at = next)
			if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && note.n_descsz &&
			    !memcmp((const char *)notes->d_buf + name, "GNU", 4)) {
				*ret_id = (const uint8_t *)notes->d_buf + id;
				return note.n_descsz;
			}
	}
	return 0;
}

static long read_at(int fd, void *buffer, size_t bytes, uint64_t offset)
{
	ssize_t size = pread(fd, buffer, bytes, (off_t)offset);

	return size < 0 ? -errno : size;
}

uint64_t hl_elf_hash(int fd)
{
	return hl_file_print_hash(fd, read_at);
}

bool hl_elf_debug_path(const char *directory, const uint8_t *build_id, size_t build_id_bytes,
		       char *ret_path, size_t capacity)
{
	char head[3], rest[2 * UINT8_MAX + 1];

	if (build_id_bytes < 2 || build_id_bytes > UINT8_MAX)
		return false;
	hl_hex_format(head, build_id, 1);
	hl_hex_format(rest, build_id + 1, build_id_bytes - 1);
	int length =
		snprintf(ret_path, capacity, "%s/.build-id/%s/%s.debug", directory, head, rest);
	return length > 0 && (size_t)length < capacity;
}

enum hl_elf_names hl_elf_names(Elf *elf, const uint8_t *build_id, size_t build_id_bytes)
{
	char path[HL_ELF_DEBUG_PATH_MAX];
	GElf_Shdr header;

	if (!elf)
		return HL_ELF_NAMES_NONE;
	if (hl_elf_find_section(elf, ".debug_info", &header) ||
	    (hl_elf_debug_path(HL_ELF_DEBUG_DIRECTORY, build_id, build_id_bytes, path,
			       sizeof(path)) &&
	     access(path, R_OK) == 0))
		return HL_ELF_NAMES_LINES;
	if (hl_elf_find_section(elf, ".symtab", &header) ||
	    hl_elf_find_section(elf, HL_GO_FUNCTIONS_SECTION, &header))
		return HL_ELF_NAMES_ALL;
	return hl_elf_find_section(elf, ".dynsym", &header) ? HL_ELF_NAMES_EXPORTED
							    : HL_ELF_NAMES_NONE;
}

/* ---- compressed sections ---- */

/*
 * Sections that are compressed: by zlib, which libelf reads, or by zstd, which it reads from 0.189 on, if it was built so. A file that
 * has some of the latter is read from a copy in memory, at whose end they are as they were before.
 */

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
