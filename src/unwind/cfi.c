/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads CIEs and FDEs and runs their programs; sorts, merges and searches compiled rows; see cfi.h. */
#include "unwind/cfi.h"

#include "base/compiler.h"
#include "unwind/rule.h"

#include <errno.h>
#include <string.h>

/* LSB 5 core, section 10.5.1: DWARF exception header encoding. */
enum pointer_encoding {
	POINTER_FORMAT = 0x0f,
	POINTER_ABSOLUTE = 0x00,
	POINTER_ULEB = 0x01,
	POINTER_UDATA2 = 0x02,
	POINTER_UDATA4 = 0x03,
	POINTER_UDATA8 = 0x04,
	POINTER_SLEB = 0x09,
	POINTER_SDATA2 = 0x0a,
	POINTER_SDATA4 = 0x0b,
	POINTER_SDATA8 = 0x0c,
	POINTER_BASE = 0x70,
	POINTER_PCREL = 0x10,
	POINTER_DATAREL = 0x30,
	POINTER_INDIRECT = 0x80,
	POINTER_OMIT = 0xff,
};

#define LENGTH_64	  UINT32_C(0xffffffff)
#define LENGTH_RESERVED	  UINT32_C(0xfffffff0)
#define HDR_VERSION	  1
#define HDR_ENTRY_BYTES	  8u
#define HDR_TABLE_OFFSET  12u
#define HDR_TABLE_USUAL	  (POINTER_DATAREL | POINTER_SDATA4)
#define HDR_POINTER_USUAL (POINTER_PCREL | POINTER_SDATA4)

/* One CIE or FDE, its length and id read. */
struct record {
	const uint8_t *start;
	const uint8_t *id_at;
	uint64_t id;
	bool is_cie;
	struct hl_cfi_reader body; /* after the id */
};

static uint64_t address_of(const struct hl_cfi_section *section, const uint8_t *at)
{
	return section->address + (uint64_t)(at - section->bytes);
}

/* A number in one of the pointer formats, without its base. */
static uint64_t read_format(struct hl_cfi_reader *reader, unsigned encoding)
{
	switch (encoding & POINTER_FORMAT) {
	case POINTER_ABSOLUTE:
	case POINTER_UDATA8:
	case POINTER_SDATA8:
		return hl_cfi_read_unsigned(reader, 8);
	case POINTER_ULEB:
		return hl_cfi_read_uleb(reader);
	case POINTER_UDATA2:
		return hl_cfi_read_unsigned(reader, 2);
	case POINTER_UDATA4:
		return hl_cfi_read_unsigned(reader, 4);
	case POINTER_SLEB:
		return (uint64_t)hl_cfi_read_sleb(reader);
	case POINTER_SDATA2:
		return (uint64_t)hl_cfi_read_signed(reader, 2);
	case POINTER_SDATA4:
		return (uint64_t)hl_cfi_read_signed(reader, 4);
	default:
		reader->failed = true;
		return 0;
	}
}

/* ${data_base} is what DW_EH_PE_datarel counts from: the start of .eh_frame_hdr. */
static uint64_t read_pointer(const struct hl_cfi_section *section, struct hl_cfi_reader *reader,
			     unsigned encoding, uint64_t data_base)
{
	uint64_t place = address_of(section, reader->at);
	uint64_t value = read_format(reader, encoding);

	switch (encoding & (POINTER_BASE | POINTER_INDIRECT)) {
	case 0:
		return value + section->bias;
	case POINTER_PCREL:
		return value + place;
	case POINTER_DATAREL:
		return value + data_base;
	default:
		reader->failed = true;
		return 0;
	}
}

uint64_t hl_cfi_read_location(const struct hl_cfi_section *section, struct hl_cfi_reader *reader,
			      const struct hl_cie *cie)
{
	return read_pointer(section, reader, cie->pointer_encoding, 0);
}

/* Takes the record at ${reader}. Returns 1, 0 at the section's end, or -EINVAL. */
static int read_record(const struct hl_cfi_section *section, struct hl_cfi_reader *reader,
		       struct record *ret_record)
{
	struct record record = {.start = reader->at};

	if (!hl_cfi_left(reader))
		return 0;
	uint64_t length = hl_cfi_read_unsigned(reader, 4);
	bool is_64 = length == LENGTH_64;
	if (is_64)
		length = hl_cfi_read_unsigned(reader, 8);
	else if (length >= LENGTH_RESERVED)
		return -EINVAL;
	if (reader->failed || length > hl_cfi_left(reader))
		return -EINVAL;
	if (!length)
		return 0; /* the terminator */
	record.body = (struct hl_cfi_reader){reader->at, reader->at + length, false};
	reader->at += length;
	/* In .eh_frame the id has 4 bytes even where the length has 8 (LSB 5 core, 10.6.1). */
	bool id_is_64 = is_64 && section->is_debug_frame;
	record.id_at = record.body.at;
	record.id = hl_cfi_read_unsigned(&record.body, id_is_64 ? 8 : 4);
	if (record.body.failed)
		return -EINVAL;
	if (section->is_debug_frame)
		record.is_cie = record.id == (id_is_64 ? UINT64_MAX : UINT32_MAX);
	else
		record.is_cie = record.id == 0;
	*ret_record = record;
	return 1;
}

/* One letter of the augmentation string; ${reader} stands in the augmentation data. */
static int read_augmentation(const struct hl_cfi_section *section, struct hl_cfi_reader *reader,
			     char letter, struct hl_cie *cie)
{
	unsigned encoding;

	switch (letter) {
	case 'R':
		cie->pointer_encoding = hl_cfi_read_byte(reader);
		return 0;
	case 'P':
		encoding = hl_cfi_read_byte(reader);
		if (encoding != POINTER_OMIT)
			read_pointer(section, reader, encoding & ~(unsigned)POINTER_INDIRECT, 0);
		return 0;
	case 'L':
		hl_cfi_read_byte(reader);
		return 0;
	case 'S':
		cie->is_signal_frame = true;
		return 0;
	case 'B': /* pointer authentication of other architectures: no data */
		return 0;
	default:
		return -EINVAL;
	}
}

static int read_augmentations(const struct hl_cfi_section *section, struct hl_cfi_reader *reader,
			      const char *letters, struct hl_cie *cie)
{
	if (!*letters)
		return 0;
	if (*letters != 'z')
		return -EINVAL; /* only "z" says how long the unknown is */
	cie->has_augmentation_bytes = true;
	uint64_t length = hl_cfi_read_uleb(reader);
	if (reader->failed || length > hl_cfi_left(reader))
		return -EINVAL;
	struct hl_cfi_reader augmentation = {reader->at, reader->at + length, false};
	reader->at += length;
	for (letters++; *letters; letters++) {
		int error = read_augmentation(section, &augmentation, *letters, cie);
		if (error)
			return error;
	}
	return augmentation.failed ? -EINVAL : 0;
}

/* DWARF 4 added the sizes of addresses and of segment selectors. */
static bool sizes_are_known(struct hl_cfi_reader *reader, unsigned version)
{
	if (version < 4)
		return true;
	unsigned address_bytes = hl_cfi_read_byte(reader);
	unsigned segment_bytes = hl_cfi_read_byte(reader);
	return address_bytes == 8 && segment_bytes == 0;
}

static int parse_cie(const struct hl_cfi_section *section, const uint8_t *at,
		     struct hl_cie *ret_cie)
{
	struct hl_cfi_reader reader = {at, section->bytes + section->size, false};
	struct record record;

	if (read_record(section, &reader, &record) != 1 || !record.is_cie)
		return -EINVAL;
	struct hl_cie cie = {.start = at, .pointer_encoding = POINTER_ABSOLUTE};
	struct hl_cfi_reader *body = &record.body;
	unsigned version = hl_cfi_read_byte(body);
	if (version != 1 && version != 3 && version != 4)
		return -EINVAL;
	const char *letters = (const char *)body->at;
	while (hl_cfi_read_byte(body))
		;
	if (body->failed || !sizes_are_known(body, version))
		return -EINVAL;
	cie.code_align = hl_cfi_read_uleb(body);
	cie.data_align = hl_cfi_read_sleb(body);
	cie.return_register = version == 1 ? hl_cfi_read_byte(body) : hl_cfi_read_uleb(body);
	if (body->failed || read_augmentations(section, body, letters, &cie))
		return -EINVAL;
	cie.program = *body;
	*ret_cie = cie;
	return 0;
}

/* What linkers write over the address of a function that they left out: debug information stays. */
static bool is_left_out(const struct hl_cfi_section *section, uint64_t begin)
{
	uint64_t address = begin - section->bias;

	return section->is_debug_frame && (address == 0 || address >= UINT64_MAX - 1);
}

/* ${cie} is the one parsed last, kept because neighbours mostly share it; start is NULL at first.
 */
static int parse_fde(const struct hl_cfi_section *section, const struct record *record,
		     struct hl_cie *cie, struct hl_fde *ret_fde)
{
	uint64_t back = section->is_debug_frame
				? (uint64_t)(record->id_at - section->bytes) - record->id
				: record->id;

	if (back > (uint64_t)(record->id_at - section->bytes))
		return -EINVAL;
	const uint8_t *cie_at = record->id_at - back;
	if (cie->start != cie_at && parse_cie(section, cie_at, cie))
		return -EINVAL;
	struct hl_fde fde = {.cie = cie, .program = record->body};
	struct hl_cfi_reader *body = &fde.program;
	fde.begin = hl_cfi_read_location(section, body, cie);
	uint64_t bytes = read_format(body, cie->pointer_encoding);
	fde.end = is_left_out(section, fde.begin) ? fde.begin : fde.begin + bytes;
	if (cie->has_augmentation_bytes)
		hl_cfi_skip(body, hl_cfi_read_uleb(body));
	if (body->failed || fde.end < fde.begin)
		return -EINVAL;
	*ret_fde = fde;
	return 0;
}

struct lookup {
	uint64_t pc;
	struct hl_cfi_function *found;
};

#define LOOKUP_FOUND 1

static int match_range(void *context, uint64_t from, uint64_t to, const struct hl_cfi_state *state)
{
	struct lookup *lookup = context;

	if (lookup->pc < from || lookup->pc >= to)
		return 0;
	lookup->found->state = *state;
	return LOOKUP_FOUND;
}

static int find_in_fde(const struct hl_cfi_section *section, const struct hl_fde *fde, uint64_t pc,
		       struct hl_cfi_function *ret_function)
{
	struct lookup lookup = {.pc = pc, .found = ret_function};

	if (pc < fde->begin || pc >= fde->end)
		return -ENOENT;
	ret_function->begin = fde->begin;
	ret_function->end = fde->end;
	ret_function->is_signal_frame = fde->cie->is_signal_frame;
	int result = hl_cfi_program_run(section, fde, match_range, &lookup);
	return result == LOOKUP_FOUND ? 0 : result ? result : -EINVAL;
}

static int find_by_scan(const struct hl_cfi_section *section, uint64_t pc,
			struct hl_cfi_function *ret_function)
{
	struct hl_cfi_reader reader = {section->bytes, section->bytes + section->size, false};
	struct hl_cie cie = {0};
	struct record record;
	struct hl_fde fde;
	int result;

	while ((result = read_record(section, &reader, &record)) == 1) {
		if (record.is_cie)
			continue;
		if (parse_fde(section, &record, &cie, &fde))
			return -EINVAL;
		result = find_in_fde(section, &fde, pc, ret_function);
		if (result != -ENOENT)
			return result;
	}
	return result ? result : -ENOENT;
}

int hl_cfi_find(const struct hl_cfi_section *section, uint64_t pc, hl_rule *ret_rule)
{
	struct hl_cfi_function function;
	int result = find_by_scan(section, pc, &function);

	if (result == 0)
		*ret_rule = hl_arch_rule(&function.state, function.is_signal_frame);
	return result;
}

static int64_t table_target(const uint8_t *table, uint64_t index)
{
	const uint8_t *entry = table + index * HDR_ENTRY_BYTES;
	struct hl_cfi_reader reader = {entry, entry + HDR_ENTRY_BYTES, false};

	return hl_cfi_read_signed(&reader, 4);
}

/* ${memory} is the module's whole mapping. */
static int find_by_table(const struct hl_cfi_section *memory, const uint8_t *hdr, uint64_t pc,
			 struct hl_cfi_function *ret_function)
{
	const uint8_t *end = memory->bytes + memory->size;
	struct hl_cfi_reader reader = {hdr + 8, end, false};
	uint64_t count = hl_cfi_read_unsigned(&reader, 4);
	int64_t target = (int64_t)(pc - address_of(memory, hdr));

	if (reader.failed || count > hl_cfi_left(&reader) / HDR_ENTRY_BYTES)
		return -EINVAL;
	const uint8_t *table = hdr + HDR_TABLE_OFFSET;
	uint64_t after = HL_LOWER_BOUND(i, count, table_target(table, i) <= target);
	if (!after)
		return -ENOENT;
	const uint8_t *entry = table + (after - 1) * HDR_ENTRY_BYTES;
	reader = (struct hl_cfi_reader){entry + 4, entry + HDR_ENTRY_BYTES, false};
	uint64_t fde_offset =
		(uint64_t)(hdr - memory->bytes) + (uint64_t)hl_cfi_read_signed(&reader, 4);
	if (fde_offset >= memory->size)
		return -EINVAL;
	struct hl_cie cie = {0};
	struct record record;
	struct hl_fde fde;
	reader = (struct hl_cfi_reader){memory->bytes + fde_offset, end, false};
	if (read_record(memory, &reader, &record) != 1 || record.is_cie ||
	    parse_fde(memory, &record, &cie, &fde))
		return -EINVAL;
	return find_in_fde(memory, &fde, pc, ret_function);
}

/* Without a usable table: .eh_frame from its start, to its terminator. */
static int find_without_table(const struct hl_cfi_section *memory, const uint8_t *hdr, uint64_t pc,
			      struct hl_cfi_function *ret_function)
{
	struct hl_cfi_reader reader = {hdr + 4, memory->bytes + memory->size, false};
	uint64_t frames = read_pointer(memory, &reader, hdr[1], address_of(memory, hdr));
	uint64_t offset = frames - memory->address;

	if (reader.failed || offset >= memory->size)
		return -EINVAL;
	/* Whole mapping minus what lies before, so that CIE pointers stay inside .eh_frame. */
	struct hl_cfi_section section = *memory;
	section.bytes += offset;
	section.size -= offset;
	section.address += offset;
	return find_by_scan(&section, pc, ret_function);
}

static bool has_usual_table(const uint8_t *hdr)
{
	return hdr[1] == HDR_POINTER_USUAL && hdr[2] == POINTER_UDATA4 && hdr[3] == HDR_TABLE_USUAL;
}

int hl_cfi_find_function(const uint8_t *hdr, uint64_t start, uint64_t end, uint64_t pc,
			 struct hl_cfi_function *ret_function)
{
	struct hl_cfi_section memory = {
		.bytes = (const uint8_t *)start,
		.size = end - start,
		.address = start,
	};

	if (end < start || (uint64_t)hdr < start || (uint64_t)hdr >= end ||
	    end - (uint64_t)hdr < HDR_TABLE_OFFSET || hdr[0] != HDR_VERSION)
		return -EINVAL;
	return has_usual_table(hdr) ? find_by_table(&memory, hdr, pc, ret_function)
				    : find_without_table(&memory, hdr, pc, ret_function);
}

int hl_cfi_find_gap(const uint8_t *hdr, uint64_t start, uint64_t end, uint64_t pc,
		    uint64_t *ret_begin, uint64_t *ret_end)
{
	struct hl_cfi_function before;

	int r = hl_cfi_find_function(hdr, start, end, pc, &before);
	if (r == 0 || r == -EINVAL || !has_usual_table(hdr))
		return r == -EINVAL ? r : -ENOENT;
	const uint8_t *table = hdr + HDR_TABLE_OFFSET;
	uint32_t count;
	memcpy(&count, hdr + HDR_TABLE_OFFSET - sizeof(count), sizeof(count));
	int64_t target = (int64_t)(pc - (uint64_t)hdr);
	uint64_t after = HL_LOWER_BOUND(i, count, table_target(table, i) <= target);
	if (!after || after == count)
		return -ENOENT;
	uint64_t last = (uint64_t)hdr + (uint64_t)table_target(table, after - 1);
	r = hl_cfi_find_function(hdr, start, end, last, &before);
	*ret_begin = before.end;
	*ret_end = (uint64_t)hdr + (uint64_t)table_target(table, after);
	return r;
}

int hl_cfi_find_in_memory(const uint8_t *hdr, uint64_t start, uint64_t end, uint64_t pc,
			  hl_rule *ret_rule)
{
	struct hl_cfi_function function;
	int result = hl_cfi_find_function(hdr, start, end, pc, &function);

	if (result == 0)
		*ret_rule = hl_arch_rule(&function.state, function.is_signal_frame);
	return result;
}

struct compilation {
	uint64_t base;
	bool is_signal_frame;
	hl_cfi_sink_fn *sink;
	void *sink_context;
};

/* Rows are offsets of 32 bits: code outside, like that of sections the linker dropped, has none. */
static int give_row(const struct compilation *compilation, uint64_t pc, hl_rule rule)
{
	uint64_t offset = pc - compilation->base;

	if (pc < compilation->base || offset > UINT32_MAX)
		return 0;
	struct hl_cfi_row row = {.offset = (uint32_t)offset, .rule = rule};
	return compilation->sink(compilation->sink_context, &row);
}

static int compile_range(void *context, uint64_t from, uint64_t to,
			 const struct hl_cfi_state *state)
{
	struct compilation *compilation = context;

	(void)to;
	return give_row(compilation, from, hl_arch_rule(state, compilation->is_signal_frame));
}

int hl_cfi_compile(const struct hl_cfi_section *section, uint64_t base, hl_cfi_sink_fn *sink,
		   void *context)
{
	struct hl_cfi_reader reader = {section->bytes, section->bytes + section->size, false};
	struct compilation compilation = {.base = base, .sink = sink, .sink_context = context};
	struct hl_cie cie = {0};
	struct record record;
	struct hl_fde fde;
	int result;

	while ((result = read_record(section, &reader, &record)) == 1) {
		if (record.is_cie)
			continue;
		if (parse_fde(section, &record, &cie, &fde))
			return -EINVAL;
		if (fde.end == fde.begin)
			continue;
		/* As glibc's rawmemchr of aarch64, which returns by x15: the functions behind it have rules. */
		if (cie.return_register != HL_ARCH_RETURN_REGISTER)
			continue;
		compilation.is_signal_frame = cie.is_signal_frame;
		result = hl_cfi_program_run(section, &fde, compile_range, &compilation);
		if (!result)
			result = give_row(&compilation, fde.end, HL_RULE_NONE);
		if (result)
			return result;
	}
	return result;
}

/* ---- rows ---- */

/* By offset, then rows with information first, then as given (the number is in ${reserved}). */
static bool is_before(const struct hl_cfi_row *a, const struct hl_cfi_row *b)
{
	if (a->offset != b->offset)
		return a->offset < b->offset;
	bool a_none = a->rule == HL_RULE_NONE, b_none = b->rule == HL_RULE_NONE;
	if (a_none != b_none)
		return b_none;
	return a->reserved < b->reserved;
}

static void sift_down(struct hl_cfi_row *rows, size_t root, size_t count)
{
	struct hl_cfi_row moving = rows[root];

	for (size_t child; (child = 2 * root + 1) < count; root = child) {
		if (child + 1 < count && is_before(&rows[child], &rows[child + 1]))
			child++;
		if (!is_before(&moving, &rows[child]))
			break;
		rows[root] = rows[child];
	}
	rows[root] = moving;
}

/* Heapsort: qsort(3) may allocate. */
static void sort_rows(struct hl_cfi_row *rows, size_t count)
{
	for (size_t root = count / 2; root-- > 0;)
		sift_down(rows, root, count);
	for (size_t end = count; end-- > 1;) {
		struct hl_cfi_row greatest = rows[0];
		rows[0] = rows[end];
		rows[end] = greatest;
		sift_down(rows, 0, end);
	}
}

size_t hl_cfi_rows_finish(struct hl_cfi_row *rows, size_t count)
{
	size_t kept = 0;
	uint64_t last_offset = UINT64_MAX;

	for (size_t i = 0; i < count; i++)
		rows[i].reserved = (uint32_t)i;
	sort_rows(rows, count);
	for (size_t i = 0; i < count; i++) {
		bool is_shadowed = rows[i].offset == last_offset;
		bool is_repeated = kept > 0 && rows[i].rule == rows[kept - 1].rule;
		last_offset = rows[i].offset;
		if (!is_shadowed && !is_repeated)
			rows[kept++] = rows[i];
	}
	for (size_t i = 0; i < kept; i++)
		rows[i].reserved = 0;
	return kept;
}

hl_rule hl_cfi_rows_find(const struct hl_cfi_row *rows, size_t count, uint32_t offset)
{
	size_t at = HL_LOWER_BOUND(i, count, rows[i].offset <= offset);

	return at ? rows[at - 1].rule : HL_RULE_NONE;
}
