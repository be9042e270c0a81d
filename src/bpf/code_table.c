/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads ELF files and compiles their call frame information; see walker.h. */
#include "bpf/code_table.h"

#include "base/array.h"
#include "base/machine.h"
#include "elf/elf.h"
#include "unwind/cfi.h"
#include "unwind/rule.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the image ---- */

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

static int code_image_read_headers(struct hl_code_image *image)
{
	Elf64_Ehdr *header = &image->header;

	int r = hl_code_image_read(image, header, sizeof(*header), 0);
	if (r < 0)
		return r;
	if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
	    header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
	    header->e_machine != HL_ELF_MACHINE || header->e_phentsize != sizeof(Elf64_Phdr) ||
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

/* ---- segments ---- */

#define MEMORY_PAGE	 UINT64_C(4096)
#define NOTE_BYTES_MAX	 (UINT64_C(1) << 16)
#define CODE_BYTES_MAX	 (UINT64_C(1) << 32) /* rows have offsets of 32 bits */
#define HDR_POINTER_AT	 4u
#define HDR_POINTER_ENDS 8u
#define HDR_PCREL_SDATA4 0x1b

static int take_segments(const struct hl_code_image *image, struct hl_code_table *table)
{
	table->low = table->code_low = UINT64_MAX;
	for (uint16_t i = 0; i < image->header.e_phnum; i++) {
		const Elf64_Phdr *segment = &image->segments[i];
		if (segment->p_type != PT_LOAD)
			continue;
		if (segment->p_vaddr >= HL_FRAME_PC_MASK || segment->p_memsz >= HL_FRAME_PC_MASK ||
		    segment->p_filesz > segment->p_memsz ||
		    (segment->p_vaddr - segment->p_offset) % MEMORY_PAGE != 0 ||
		    table->segment_count == HL_CODE_SEGMENTS_MAX)
			return -ENOEXEC;
		uint64_t low = segment->p_vaddr & ~(MEMORY_PAGE - 1);
		uint64_t high = segment->p_vaddr + segment->p_memsz;
		table->segments[table->segment_count++] = (struct hl_code_segment){
			.offset = segment->p_offset,
			.bytes = segment->p_filesz,
			.address = segment->p_vaddr,
			.is_executable = segment->p_flags & PF_X,
		};
		table->low = low < table->low ? low : table->low;
		table->high = high > table->high ? high : table->high;
		if (!(segment->p_flags & PF_X))
			continue;
		table->code_low = low < table->code_low ? low : table->code_low;
		table->code_high = high > table->code_high ? high : table->code_high;
	}
	if (!table->segment_count)
		return -ENOEXEC;
	if (table->code_low > table->code_high)
		table->code_low = table->code_high = table->low;
	return table->code_high - table->code_low < CODE_BYTES_MAX ? 0 : -ENOEXEC;
}

bool hl_code_table_address(const struct hl_code_table *table, uint64_t offset,
			   uint64_t *ret_address)
{
	const struct hl_code_segment *found = NULL;

	for (uint32_t i = 0; i < table->segment_count; i++) {
		const struct hl_code_segment *segment = &table->segments[i];
		uint64_t first = segment->offset & ~(MEMORY_PAGE - 1);
		if (offset >= first && offset < segment->offset + segment->bytes &&
		    (!found || segment->is_executable))
			found = segment;
	}
	if (found)
		*ret_address = found->address + (offset - found->offset);
	return found != NULL;
}

/* ---- notes ---- */

static void find_build_id(struct hl_code_table *table, const uint8_t *notes, uint64_t bytes)
{
	while (bytes >= sizeof(Elf64_Nhdr)) {
		Elf64_Nhdr note;
		memcpy(&note, notes, sizeof(note));
		uint64_t name = (note.n_namesz + UINT64_C(3)) & ~UINT64_C(3);
		uint64_t size =
			sizeof(note) + name + ((note.n_descsz + UINT64_C(3)) & ~UINT64_C(3));
		if (size > bytes)
			return;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
		    !memcmp(notes + sizeof(note), "GNU", 4)) {
			table->build_id_bytes = hl_build_id_keep(
				table->build_id, notes + sizeof(note) + name, note.n_descsz);
			return;
		}
		notes += size;
		bytes -= size;
	}
}

/* A build id that cannot be read counts as missing. */
static int read_build_id(const struct hl_code_image *image, struct hl_code_table *table)
{
	for (uint16_t i = 0; i < image->header.e_phnum && !table->build_id_bytes; i++) {
		const Elf64_Phdr *segment = &image->segments[i];
		void *notes = NULL;
		if (segment->p_type != PT_NOTE || segment->p_filesz > NOTE_BYTES_MAX)
			continue;
		int r = hl_code_image_read_new(image, segment->p_filesz, segment->p_offset, &notes);
		if (r == -ENOMEM)
			return r;
		if (r < 0)
			continue;
		find_build_id(table, notes, segment->p_filesz);
		free(notes);
	}
	return 0;
}

/* ---- call frame information ---- */

struct frames {
	struct hl_cfi_section section;
	void *bytes;
};

static int load_frames(const struct hl_code_image *image, uint64_t address, uint64_t offset,
		       uint64_t bytes, struct frames *ret_frames)
{
	if (bytes > HL_CODE_IMAGE_FRAME_BYTES_MAX)
		return -ENOEXEC;
	int r = hl_code_image_read_new(image, bytes, offset, &ret_frames->bytes);
	if (r < 0)
		return r;
	ret_frames->section.bytes = ret_frames->bytes;
	ret_frames->section.size = bytes;
	ret_frames->section.address = address;
	return 0;
}

/* Loads .eh_frame from where .eh_frame_hdr says (LSB 5 core, 10.6.2) to the end of its segment: a
 * terminator ends it before that. */
static int load_eh_frame(const struct hl_code_image *image, const struct hl_code_table *table,
			 struct frames *ret_frames)
{
	const Elf64_Phdr *hdr = image->segments, *end = hdr + image->header.e_phnum;
	uint8_t head[HDR_POINTER_ENDS];

	while (hdr < end && hdr->p_type != PT_GNU_EH_FRAME)
		hdr++;
	if (hdr == end)
		return -ENOENT;
	int r = hl_code_image_read(image, head, sizeof(head), hdr->p_offset);
	if (r < 0)
		return r;
	if (head[0] != 1 || head[1] != HDR_PCREL_SDATA4)
		return -ENOEXEC;
	struct hl_cfi_reader reader = {head + HDR_POINTER_AT, head + sizeof(head), false};
	uint64_t address = hdr->p_vaddr + HDR_POINTER_AT + (uint64_t)hl_cfi_read_signed(&reader, 4);
	for (uint32_t i = 0; i < table->segment_count; i++) {
		const struct hl_code_segment *segment = &table->segments[i];
		uint64_t skipped = address - segment->address;
		if (skipped < segment->bytes)
			return load_frames(image, address, segment->offset + skipped,
					   segment->bytes - skipped, ret_frames);
	}
	return -ENOEXEC;
}

static int load_section(const struct hl_code_image *image, const char *wanted,
			struct frames *ret_frames)
{
	Elf64_Shdr section;

	int r = hl_code_image_find_section(image, wanted, &section);
	return r < 0 ? r
		     : load_frames(image, section.sh_addr, section.sh_offset, section.sh_size,
				   ret_frames);
}

/* ---- rows ---- */

/* Bytes after damage are lost, those before it are used. */
static int compile_eh_frames(const struct hl_code_image *image, const struct hl_code_table *table,
			     struct hl_code_image_rows *rows)
{
	struct frames frames = {0};

	int r = load_eh_frame(image, table, &frames);
	if (r < 0 && r != -ENOMEM)
		r = load_section(image, ".eh_frame", &frames);
	if (r == 0)
		r = hl_cfi_compile(&frames.section, table->code_low, hl_code_image_keep_row, rows);
	free(frames.bytes);
	if (r != -ENOMEM)
		rows->count = hl_cfi_rows_finish(rows->rows, rows->count);
	return r == -ENOMEM ? r : 0;
}

/* Code built without .eh_frame may have .debug_frame, beside startup objects that have .eh_frame.
 */
static int compile_debug_frames(const struct hl_code_image *image,
				const struct hl_code_table *table, struct hl_code_image_rows *rows)
{
	struct frames frames = {.section.is_debug_frame = true};
	struct hl_code_image_gaps gaps = {rows, rows->count};

	int r = load_section(image, ".debug_frame", &frames);
	if (r == -ENOENT && !image->start) {
		uint8_t *bytes = NULL;
		r = hl_elf_decompress(image->fd, ".debug_frame", &bytes, &frames.section.size);
		frames.section.bytes = frames.bytes = bytes;
	}
	if (r == 0)
		r = hl_cfi_compile(&frames.section, table->code_low, hl_code_image_keep_row_in_gap,
				   &gaps);
	free(frames.bytes);
	if (r != -ENOMEM && rows->count > gaps.known)
		rows->count = hl_cfi_rows_finish(rows->rows, rows->count);
	return r == -ENOMEM ? r : 0;
}

/* Code at the entry point without rules is where stacks end. */
static int add_entry_rows(const struct hl_code_image *image, const struct hl_code_table *table,
			  struct hl_code_image_rows *rows)
{
	uint64_t entry = image->header.e_entry - table->code_low;
	size_t next = 0;

	if (!rows->count || entry >= table->code_high - table->code_low ||
	    hl_cfi_rows_find(rows->rows, rows->count, (uint32_t)entry) != HL_RULE_NONE)
		return 0;
	while (next < rows->count && rows->rows[next].offset <= entry)
		next++;
	uint64_t end = entry + HL_ENTRY_CODE_BYTES;
	if (next < rows->count && rows->rows[next].offset < end)
		end = rows->rows[next].offset;
	const struct hl_cfi_row first = {.offset = (uint32_t)entry, .rule = HL_RULE_END};
	const struct hl_cfi_row last = {.offset = (uint32_t)end, .rule = HL_RULE_NONE};
	int r = hl_code_image_keep_row(rows, &first);
	if (r == 0)
		r = hl_code_image_keep_row(rows, &last);
	if (r == 0)
		rows->count = hl_cfi_rows_finish(rows->rows, rows->count);
	return r;
}

/* The table's rows, as they are written page by page. */
struct row_writer {
	struct hl_code_table *table;
	size_t capacity;
	uint64_t rule; /* in force */
};

static int write_row(struct row_writer *writer, uint64_t offset, uint64_t rule)
{
	struct hl_code_table *table = writer->table;
	struct hl_code_page *page = &table->pages[offset >> HL_CODE_PAGE_SHIFT];
	uint64_t in_page = offset & (HL_CODE_PAGE_BYTES - 1);

	int r = HL_ARRAY_RESERVE(table->rows, writer->capacity, table->row_count + (size_t)2);
	if (r < 0)
		return r;
	if (!page->row_count) {
		page->first_row = table->row_count;
		if (in_page)
			table->rows[table->row_count++] = HL_RULE_NONE;
	}
	table->rows[table->row_count++] = in_page << HL_ROW_SHIFT | rule;
	page->row_count = table->row_count - page->first_row;
	return 0;
}

/* The rule changes at ${from}. Pages that begin before that have the rule in force there first. */
static int set_rule(struct row_writer *writer, uint64_t *at, uint64_t from, uint64_t rule)
{
	uint64_t end = (uint64_t)writer->table->page_count << HL_CODE_PAGE_SHIFT;

	if (from > end)
		from = end;
	for (; *at < from; *at += HL_CODE_PAGE_BYTES) {
		int r = writer->rule == HL_RULE_NONE ? 0 : write_row(writer, *at, writer->rule);
		if (r < 0)
			return r;
	}
	writer->rule = rule;
	if (from == end || from == *at)
		return 0;
	return write_row(writer, from, rule);
}

static int build_pages(struct hl_code_table *table, const struct hl_code_image_rows *rows)
{
	uint64_t bytes = table->code_high - table->code_low, at = 0;
	struct row_writer writer = {.table = table, .rule = HL_RULE_NONE};
	bool was_none = true;
	int r = 0;

	table->page_count = (uint32_t)((bytes + HL_CODE_PAGE_BYTES - 1) >> HL_CODE_PAGE_SHIFT);
	table->pages = calloc(table->page_count + (size_t)1, sizeof(*table->pages));
	if (!table->pages)
		return -ENOMEM;
	table->has_rows = rows->count > 0;
	for (size_t i = 0; i < rows->count && r == 0; i++) {
		const struct hl_cfi_row *row = &rows->rows[i];
		bool is_none = row->rule == HL_RULE_NONE;
		/* No call pushes a return address that is a function's first byte with nothing of a
		 * function before it: the stack ends there; see src/unwind/rule_cache.c. A frame
		 * pointer is made within a function. */
		if (was_none && !is_none && row->offset && row->rule != HL_RULE_FRAME_POINTER)
			r = set_rule(&writer, &at, row->offset - UINT64_C(1), HL_RULE_END_BEFORE);
		if (r == 0)
			r = set_rule(&writer, &at, row->offset, row->rule);
		was_none = is_none;
	}
	return r < 0 ? r : set_rule(&writer, &at, UINT64_MAX, HL_RULE_NONE);
}

int hl_code_table_read(int fd, uint64_t start, struct hl_code_table *ret_table)
{
	struct hl_code_image image = {.fd = fd, .start = start};
	struct hl_code_table table = {0};
	struct hl_code_image_rows rows = {0};
	struct hl_code_functions functions = {0};

	int r = code_image_read_headers(&image);
	if (r == 0)
		r = take_segments(&image, &table);
	if (r == 0)
		r = read_build_id(&image, &table);
	if (r == 0)
		r = compile_eh_frames(&image, &table, &rows);
	if (r == 0)
		r = hl_code_functions_find(&image, &table, &rows, &functions);
	if (r == 0)
		r = compile_debug_frames(&image, &table, &rows);
	if (r == 0)
		r = add_entry_rows(&image, &table, &rows);
	if (r == 0)
		r = hl_code_functions_add_gap_rows(&image, &table, &rows);
	if (r == 0)
		r = hl_code_functions_add_rows(&functions, &image, &table, &rows);
	if (r == 0)
		r = build_pages(&table, &rows);
	hl_code_functions_release(&functions);
	free(rows.rows);
	free(image.segments);
	if (r == 0)
		*ret_table = table;
	else
		hl_code_table_release(&table);
	return r;
}

uint64_t hl_code_table_rule(const struct hl_code_table *table, uint64_t address)
{
	uint64_t offset = address - table->code_low, rule = HL_RULE_NONE;

	if (offset >> HL_CODE_PAGE_SHIFT >= table->page_count)
		return rule;
	const struct hl_code_page *page = &table->pages[offset >> HL_CODE_PAGE_SHIFT];
	for (uint32_t i = 0; i < page->row_count; i++) {
		uint64_t row = table->rows[page->first_row + i];
		if (row >> HL_ROW_SHIFT <= (offset & (HL_CODE_PAGE_BYTES - 1)))
			rule = row & HL_FRAME_PC_MASK;
	}
	return rule;
}

void hl_code_table_release(struct hl_code_table *table)
{
	free(table->pages);
	free(table->rows);
	*table = (struct hl_code_table){0};
}
