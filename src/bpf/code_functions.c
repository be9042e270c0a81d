/* SPDX-License-Identifier: BSD-2-Clause */
/* Rows by the instructions of functions; see code_table.h. */
#include "bpf/code_table.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/go_functions.h"
#include "unwind/cfi.h"
#include "unwind/rule.h"
#include "unwind/rule_cache.h"

#include <errno.h>
#include <stdlib.h>

/* Functions that change stacks are short. */
#define READ_BYTES 512u

/* The symbol table, else the dynamic one, to be freed; NULL when there is none. 0 or -ENOMEM. */
static int load_symbols(const struct hl_code_image *image, Elf64_Sym **ret_symbols,
			size_t *ret_count)
{
	Elf64_Shdr section, found = {0};

	if (image->header.e_shentsize != sizeof(section))
		return 0;
	for (uint32_t i = 0; i < image->header.e_shnum; i++) {
		if (hl_code_image_read_section(image, i, &section) < 0)
			break;
		if (section.sh_type == SHT_SYMTAB ||
		    (section.sh_type == SHT_DYNSYM && found.sh_type != SHT_SYMTAB))
			found = section;
	}
	if (!found.sh_type || found.sh_size > HL_CODE_IMAGE_FRAME_BYTES_MAX)
		return 0;
	int r = hl_code_image_read_new(image, found.sh_size, found.sh_offset, (void **)ret_symbols);
	*ret_count = r == 0 ? found.sh_size / sizeof(**ret_symbols) : 0;
	return r == -ENOMEM ? r : 0;
}

/* Appends what Go's table says, as symbols. 0 or -ENOMEM. */
static int load_go_functions(const struct hl_code_image *image, struct hl_code_functions *functions)
{
	Elf64_Shdr section;
	void *bytes = NULL;
	struct hl_go_functions go;
	struct hl_go_function function;
	size_t capacity = functions->count;

	if (hl_code_image_find_section(image, HL_GO_FUNCTIONS_SECTION, &section) < 0 ||
	    section.sh_size > HL_CODE_IMAGE_FRAME_BYTES_MAX)
		return 0;
	int r = hl_code_image_read_new(image, section.sh_size, section.sh_offset, &bytes);
	uint32_t count = 0;
	if (r == 0 && hl_go_functions_open(bytes, section.sh_size, &go))
		count = go.count;
	for (uint32_t i = 0; i < count && r != -ENOMEM; i++)
		if (hl_go_functions_get(&go, i, &function))
			r = HL_ARRAY_APPEND(functions->symbols, functions->count, capacity,
					    (Elf64_Sym){
						    .st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC),
						    .st_shndx = 1,
						    .st_value = function.start,
						    .st_size = function.end - function.start,
					    });
	free(bytes);
	return r == -ENOMEM ? r : 0;
}

/* Reads code at an address of the file: whether all of it is there. */
static bool read_code(const struct hl_code_image *image, const struct hl_code_table *table,
		      uint64_t address, uint8_t *code, size_t bytes)
{
	const struct hl_code_segment *segment = table->segments,
				     *end = segment + table->segment_count;

	while (segment < end &&
	       (!segment->is_executable || address - segment->address >= segment->bytes))
		segment++;
	return segment < end &&
	       hl_code_image_read(image, code, bytes,
				  segment->offset + (address - segment->address)) == 0;
}

/* Reads the code at a function's start: how many bytes, 0 if there are none. */
static size_t read_function(const struct hl_code_image *image, const struct hl_code_table *table,
			    const Elf64_Sym *symbol, uint8_t *code, size_t size)
{
	size_t bytes = symbol->st_size < size ? symbol->st_size : size;

	if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || !symbol->st_shndx ||
	    symbol->st_value - table->code_low >= table->code_high - table->code_low ||
	    symbol->st_size > table->code_high - symbol->st_value)
		return 0;
	return read_code(image, table, symbol->st_value, code, bytes) ? bytes : 0;
}

static hl_rule rule_of(const struct hl_code_image_rows *rows, size_t known, uint64_t offset)
{
	return hl_cfi_rows_find(rows->rows, known, (uint32_t)offset);
}

/* As the recorder has it: see rule_cache.c. */
static bool calls_register(const struct hl_code_image *image, const struct hl_code_table *table,
			   const uint8_t *code, uint64_t address)
{
	uint64_t called = hl_instructions_called(code, address);
	uint8_t function[HL_HANDED_BYTES];

	return hl_instructions_follow_call_of_register(code) ||
	       (called && read_code(image, table, called, function, sizeof(function)) &&
		hl_instructions_jump_to_register(function, sizeof(function)));
}

/* The rule of lookup pcs that return to ${code}; "no information" when it does not say. */
static hl_rule rule_of_return(const struct hl_code_image *image, const struct hl_code_table *table,
			      const uint8_t *code, size_t bytes, uint64_t address)
{
	if (hl_instructions_leave_stack(code, bytes) && calls_register(image, table, code, address))
		return HL_RULE_OTHER_STACK;
	return hl_instructions_start_stack(code, address) ? HL_RULE_END_BEFORE : HL_RULE_NONE;
}

int hl_code_functions_find(const struct hl_code_image *image, const struct hl_code_table *table,
			   const struct hl_code_image_rows *rows,
			   struct hl_code_functions *functions)
{
	/* What precedes a function does not matter: no return address is looked for there. */
	uint8_t buffer[HL_CALL_BYTES + READ_BYTES] = {0}, *code = buffer + HL_CALL_BYTES;

	int r = load_symbols(image, &functions->symbols, &functions->count);
	if (r == 0)
		r = load_go_functions(image, functions);
	for (size_t i = 0; i < functions->count && r == 0; i++) {
		const Elf64_Sym *symbol = &functions->symbols[i];
		uint64_t offset = symbol->st_value - table->code_low;
		if (offset > UINT32_MAX || rule_of(rows, rows->count, offset) != HL_RULE_NONE)
			continue;
		size_t bytes = read_function(image, table, symbol, code, READ_BYTES);
		for (size_t at = 1; at < bytes && r == 0; at++) {
			struct hl_cfi_row row = {.offset = (uint32_t)(offset + at - 1)};
			row.rule = rule_of_return(image, table, code + at, bytes - at,
						  symbol->st_value + at);
			if (row.rule != HL_RULE_NONE)
				r = hl_code_image_keep_row(&functions->returns, &row);
		}
	}
	return r;
}

/* Rows for a function without rules whose first instructions make rbp its frame pointer. */
static int add_frame_pointer_rows(const struct hl_code_image *image,
				  const struct hl_code_table *table,
				  struct hl_code_image_gaps *gaps, const Elf64_Sym *symbol)
{
	uint8_t code[HL_PROLOGUE_BYTES];
	uint64_t at = symbol->st_value - table->code_low;

	if (at > UINT32_MAX || rule_of(gaps->rows, gaps->known, at) != HL_RULE_NONE)
		return 0;
	size_t bytes = read_function(image, table, symbol, code, sizeof(code));
	size_t made = hl_instructions_frame_pointer_made(code, bytes);
	if (!made)
		return 0;
	const struct hl_cfi_row first = {.offset = (uint32_t)(at + made),
					 .rule = HL_RULE_FRAME_POINTER};
	const struct hl_cfi_row last = {.offset = (uint32_t)(at + symbol->st_size)};
	int r = hl_code_image_keep_row_in_gap(gaps, &first);
	return r < 0 ? r : hl_code_image_keep_row_in_gap(gaps, &last);
}

static void finish(struct hl_code_image_rows *rows, size_t known)
{
	if (rows->count > known)
		rows->count = hl_cfi_rows_finish(rows->rows, rows->count);
}

/* Rows for a gap from ${begin} to ${end} between functions that have rules; ${next}: the rule at its end. */
static int add_rows_of_gap(const struct hl_code_image *image, const struct hl_code_table *table,
			   struct hl_code_image_rows *rows, uint32_t begin, uint32_t end,
			   hl_rule next)
{
	uint8_t code[HL_CFI_GAP_BYTES_MAX];
	const struct hl_cfi_row all = {.offset = begin, .rule = HL_RULE_FRAME_POINTER};
	const struct hl_cfi_row before_next = {.offset = end - 1};
	const Elf64_Sym gap = {.st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC),
			       .st_shndx = 1,
			       .st_value = table->code_low + begin,
			       .st_size = end - begin};
	struct hl_instructions_part part = {0};
	int r = 0;

	if (end - begin >= HL_CFI_GENERATED_BYTES_MIN) {
		r = hl_code_image_keep_row(rows, &all);
		return r < 0 ? r : hl_code_image_keep_row(rows, &before_next);
	}
	size_t bytes = read_function(image, table, &gap, code, sizeof(code));
	while (r == 0 && part.end < bytes && hl_instructions_next_part(code, bytes, &part)) {
		size_t made = hl_instructions_frame_pointer_made(code + part.start,
								 part.end - part.start);
		const struct hl_cfi_row first = {.offset = (uint32_t)(begin + part.start + made),
						 .rule = HL_RULE_FRAME_POINTER};
		const struct hl_cfi_row last = {.offset = (uint32_t)(begin + part.end)};
		if (!made)
			continue;
		r = hl_code_image_keep_row(rows, &first);
		if (r == 0 && last.offset < end)
			r = hl_code_image_keep_row(rows, &last);
	}
	/* A function that runs on into the next one, as glibc's checked copies do; into the entry none does. */
	const struct hl_cfi_row padding = {.offset = begin, .rule = next};
	if (r < 0 || bytes < gap.st_size || end - begin < 2 || next == HL_RULE_END ||
	    !hl_instructions_are_padding(code, bytes))
		return r;
	r = hl_code_image_keep_row(rows, &padding);
	return r < 0 ? r : hl_code_image_keep_row(rows, &before_next);
}

int hl_code_functions_add_gap_rows(const struct hl_code_image *image,
				   const struct hl_code_table *table,
				   struct hl_code_image_rows *rows)
{
	size_t known = rows->count;
	int r = 0;

	for (size_t i = 1; i + 1 < known && r == 0; i++)
		if (rows->rows[i].rule == HL_RULE_NONE)
			r = add_rows_of_gap(image, table, rows, rows->rows[i].offset,
					    rows->rows[i + 1].offset, rows->rows[i + 1].rule);
	if (r == 0)
		finish(rows, known);
	return r;
}

/* What signal handlers return to, where call frame information leaves that out. The lookup pc is of the byte before. */
static int add_trampoline_rows(const struct hl_code_image *image, const struct hl_code_table *table,
			       struct hl_code_image_gaps *gaps)
{
	uint64_t bytes = table->code_high - table->code_low, at = 0;
	int r = 0;

	if (bytes > HL_TRAMPOLINE_CODE_BYTES)
		return 0;
	HL_FREED uint8_t *code = calloc(bytes + 1, 1);
	if (!code)
		return -ENOMEM;
	for (uint32_t i = 0; i < table->segment_count; i++) {
		const struct hl_code_segment *segment = &table->segments[i];
		if (segment->is_executable)
			read_code(image, table, segment->address,
				  code + (segment->address - table->code_low), segment->bytes);
	}
	while (r == 0 && (at += hl_arch_find_trampoline(code + at, bytes - at)) < bytes) {
		const struct hl_cfi_row first = {.offset = (uint32_t)at - 1,
						 .rule = HL_RULE_SIGNAL};
		at += HL_TRAMPOLINE_BYTES;
		const struct hl_cfi_row last = {.offset = (uint32_t)at,
						.rule = rule_of(gaps->rows, gaps->known, at)};
		if (!first.offset)
			continue;
		r = hl_code_image_keep_row_in_gap(gaps, &first);
		if (r == 0)
			r = hl_code_image_keep_row_in_gap(gaps, &last);
	}
	return r;
}

/* Stubs of the procedure linkage table, where call frame information leaves them out. */
static int add_stub_rows(const struct hl_code_image *image, const struct hl_code_table *table,
			 struct hl_code_image_gaps *gaps)
{
	Elf64_Shdr section;

	if (HL_RULE_STUB == HL_RULE_NONE ||
	    hl_code_image_find_section(image, ".plt", &section) < 0 ||
	    section.sh_addr - table->code_low >= table->code_high - table->code_low ||
	    section.sh_size > table->code_high - section.sh_addr)
		return 0;
	const struct hl_cfi_row first = {.offset = (uint32_t)(section.sh_addr - table->code_low),
					 .rule = HL_RULE_STUB};
	const struct hl_cfi_row last = {.offset = first.offset + (uint32_t)section.sh_size};
	int r = hl_code_image_keep_row_in_gap(gaps, &first);
	return r < 0 ? r : hl_code_image_keep_row_in_gap(gaps, &last);
}

/* The one byte that calls return behind has its own rule, unless the rule there is more than what
 * may not know of other stacks. */
static int add_return_rows(const struct hl_code_functions *functions,
			   struct hl_code_image_rows *rows)
{
	size_t known = rows->count;
	int r = 0;

	for (size_t i = 0; i < functions->returns.count && r == 0; i++) {
		const struct hl_cfi_row *row = &functions->returns.rows[i];
		hl_rule before = rule_of(rows, known, row->offset);
		const struct hl_cfi_row next = {.offset = row->offset + 1, .rule = before};
		if (before != HL_RULE_NONE && before != HL_RULE_FRAME_POINTER &&
		    hl_rule_kind_of(before) != HL_RULE_SP)
			continue;
		r = hl_code_image_keep_row(rows, row);
		if (r == 0)
			r = hl_code_image_keep_row(rows, &next);
	}
	return r;
}

int hl_code_functions_add_rows(const struct hl_code_functions *functions,
			       const struct hl_code_image *image, const struct hl_code_table *table,
			       struct hl_code_image_rows *rows)
{
	struct hl_code_image_gaps gaps = {rows, rows->count};
	int r = 0;

	for (size_t i = 0; i < functions->count && r == 0; i++)
		r = add_frame_pointer_rows(image, table, &gaps, &functions->symbols[i]);
	if (r == 0)
		r = add_trampoline_rows(image, table, &gaps);
	if (r == 0)
		r = add_stub_rows(image, table, &gaps);
	if (r < 0)
		return r;
	finish(rows, gaps.known);
	gaps.known = rows->count;
	r = add_return_rows(functions, rows);
	if (r == 0)
		finish(rows, gaps.known);
	return r;
}

void hl_code_functions_release(struct hl_code_functions *functions)
{
	free(functions->symbols);
	free(functions->returns.rows);
}
