/* SPDX-License-Identifier: BSD-2-Clause */
/* Sorts what libdwfl collects from .symtab, .dynsym, .gnu_debugdata, and Go's table; see symbols_dwarf.h. */
#include "symbols/symbols_dwarf.h"

#include "base/array.h"
#include "base/compiler.h"
#include "base/go_functions.h"
#include "elf/elf.h"

#include <string.h>

#define OVERLAPS_MAX 8 /* how many symbols before the nearest may enclose an address */

struct hl_symbols_table_entry {
	uint64_t address, size;
	const char *name;
	uint32_t rank; /* of names for the same address the lowest is kept */
};

static int by_address(const void *left, const void *right)
{
	const struct hl_symbols_table_entry *a = left, *b = right;

	if (a->address != b->address)
		return a->address < b->address ? -1 : 1;
	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	return strcmp(a->name, b->name);
}

/* Names of Go's own table, after all others of the same address. The bytes belong to the module. */
static int read_go_functions(struct hl_symbols_table *table, Dwfl_Module *module, size_t *count,
			     size_t *capacity)
{
	struct hl_go_functions functions;
	struct hl_go_function function;
	GElf_Addr bias;
	GElf_Shdr header;
	Elf *elf = dwfl_module_getelf(module, &bias);
	Elf_Scn *section = elf ? hl_elf_find_section(elf, HL_GO_FUNCTIONS_SECTION, &header) : NULL;
	Elf_Data *content = section ? elf_rawdata(section, NULL) : NULL;

	if (!content || !hl_go_functions_open(content->d_buf, content->d_size, &functions))
		return 0;
	for (uint32_t i = 0; i < functions.count; i++)
		if (hl_go_functions_get(&functions, i, &function) && function.name &&
		    HL_ARRAY_APPEND(table->entries, *count, *capacity,
				    (struct hl_symbols_table_entry){function.start + bias,
								    function.end - function.start,
								    function.name, UINT32_MAX}) < 0)
			return -ENOMEM;
	return 0;
}

/* Only one of several names for an address is kept: `malloc` rather than `__libc_malloc`, a global name
 * rather than a weak or local alias. */
static int read_symbols(struct hl_symbols_table *table, Dwfl_Module *module)
{
	int total = dwfl_module_getsymtab(module);
	size_t capacity = 0, count = 0;

	for (int i = 1; i < total; i++) {
		GElf_Sym symbol = {0};
		GElf_Addr address;
		const char *name =
			dwfl_module_getsym_info(module, i, &symbol, &address, NULL, NULL, NULL);
		unsigned type = GELF_ST_TYPE(symbol.st_info), bind = GELF_ST_BIND(symbol.st_info);
		if (!name || !name[0] || symbol.st_shndx == SHN_UNDEF ||
		    (type != STT_FUNC && type != STT_GNU_IFUNC))
			continue;
		uint32_t rank = (uint32_t)strspn(name, "_") * 4 + (bind == STB_GLOBAL ? 0
								   : bind == STB_WEAK ? 1
										      : 2);
		if (HL_ARRAY_APPEND(table->entries, count, capacity,
				    (struct hl_symbols_table_entry){address, symbol.st_size, name,
								    rank}) < 0)
			return -ENOMEM;
	}
	if (read_go_functions(table, module, &count, &capacity) < 0)
		return -ENOMEM;
	if (count)
		qsort(table->entries, count, sizeof(*table->entries), by_address);
	for (size_t i = 0; i < count; i++)
		if (!i || table->entries[table->count - 1].address != table->entries[i].address)
			table->entries[table->count++] = table->entries[i];
	return 0;
}

/* The table's layout: Linux Standard Base, "Exception Frame Header". Only the encodings that
 * linkers write are taken: pc-relative pointer, 4-byte count, 4-byte header-relative pairs. */
static void find_unwind_table(struct hl_symbols_table *table, Dwfl_Module *module)
{
	static const unsigned char expected[4] = {1, 0x1b, 0x03, 0x3b};
	uint32_t count;
	GElf_Addr bias;
	GElf_Shdr header;
	Elf *elf = dwfl_module_getelf(module, &bias);
	Elf_Scn *section = elf ? hl_elf_find_section(elf, ".eh_frame_hdr", &header) : NULL;

	if (!section || header.sh_type == SHT_NOBITS)
		return;
	Elf_Data *content = elf_rawdata(section, NULL);
	const unsigned char *bytes = content ? content->d_buf : NULL;
	if (!bytes || content->d_size < 12 || memcmp(bytes, expected, sizeof(expected)) != 0)
		return;
	memcpy(&count, bytes + 8, sizeof(count));
	if (count > (content->d_size - 12) / 8)
		return;
	table->unwind_starts = bytes + 12;
	table->unwind_count = count;
	table->unwind_base = header.sh_addr;
}

static void find_code(struct hl_symbols_table *table, Dwfl_Module *module)
{
	GElf_Addr bias;
	GElf_Shdr header;
	Elf *elf = dwfl_module_getelf(module, &bias);
	Elf_Scn *section = elf ? hl_elf_find_section(elf, ".text", &header) : NULL;
	Elf_Data *content =
		section && header.sh_type != SHT_NOBITS ? elf_rawdata(section, NULL) : NULL;

	GElf_Ehdr file;
	if (!content || !content->d_buf || !gelf_getehdr(elf, &file) || file.e_machine != EM_X86_64)
		return;
	table->code = content->d_buf;
	table->code_bytes = content->d_size;
	table->code_base = header.sh_addr;
}

int hl_symbols_table_init(struct hl_symbols_table *table, Dwfl_Module *module)
{
	*table = (struct hl_symbols_table){0};
	find_unwind_table(table, module);
	find_code(table, module);
	int r = read_symbols(table, module);
	if (r < 0)
		hl_symbols_table_release(table);
	return r;
}

void hl_symbols_table_release(struct hl_symbols_table *table)
{
	free(table->entries);
	*table = (struct hl_symbols_table){0};
}

/* The symbol whose bytes ${address} is one of, or NULL; *${ret_end}: the number of symbols up to it. */
static const struct hl_symbols_table_entry *find_sized(const struct hl_symbols_table *table,
						       uint64_t address, size_t *ret_end)
{
	size_t end = HL_LOWER_BOUND(i, table->count, table->entries[i].address <= address);
	size_t stop = end > OVERLAPS_MAX ? end - OVERLAPS_MAX : 0;

	*ret_end = end;
	for (size_t i = end; i > stop; i--) {
		const struct hl_symbols_table_entry *entry = &table->entries[i - 1];
		if (address - entry->address < entry->size)
			return entry;
	}
	return NULL;
}

const char *hl_symbols_table_find(const struct hl_symbols_table *table, uint64_t address)
{
	size_t end;
	const struct hl_symbols_table_entry *entry = find_sized(table, address, &end);

	/* Without a size (hand-written assembly) a function reaches to the next one. */
	if (!entry && end && !table->entries[end - 1].size)
		entry = &table->entries[end - 1];
	return entry ? entry->name : NULL;
}

static uint64_t unwind_start(const struct hl_symbols_table *table, size_t i)
{
	int32_t offset;

	memcpy(&offset, table->unwind_starts + 8 * i, sizeof(offset));
	return table->unwind_base + (uint64_t)(int64_t)offset;
}

uint64_t hl_symbols_table_function_start(const struct hl_symbols_table *table, uint64_t address)
{
	size_t at = HL_LOWER_BOUND(i, table->unwind_count, unwind_start(table, i) <= address);

	return at ? unwind_start(table, at - 1) : address;
}

/* Where the jump in the code at ${i} leads, its operand of four bytes; 0: no such jump is there. */
static uint64_t jump_target(const struct hl_symbols_table *table, uint64_t i)
{
	const unsigned char *code = table->code + i;
	int32_t distance;

	if (i + 6 > table->code_bytes)
		return 0;
	size_t opcode_bytes = code[0] == 0xe9 ? 1 : code[0] == 0x0f && code[1] >> 4 == 8 ? 2 : 0;
	memcpy(&distance, code + opcode_bytes, sizeof(distance));
	return opcode_bytes ? table->code_base + i + opcode_bytes + sizeof(distance) +
				      (uint64_t)(int64_t)distance
			    : 0;
}

/* Whether ${function} jumps into [${start}, ${end}). */
static bool jumps_into(const struct hl_symbols_table *table,
		       const struct hl_symbols_table_entry *function, uint64_t start, uint64_t end)
{
	for (uint64_t i = 0; function->address >= table->code_base && i < function->size; i++)
		if (jump_target(table, function->address - table->code_base + i) - start <
		    end - start)
			return true;
	return false;
}

const char *hl_symbols_table_find_cold(const struct hl_symbols_table *table, uint64_t address)
{
	size_t at = HL_LOWER_BOUND(i, table->unwind_count, unwind_start(table, i) <= address);
	const struct hl_symbols_table_entry *found = NULL;
	size_t unused;

	if (!at || at == table->unwind_count)
		return NULL;
	uint64_t start = unwind_start(table, at - 1), end = unwind_start(table, at);
	for (uint64_t i = start; i >= table->code_base && i < end; i++) {
		uint64_t target = jump_target(table, i - table->code_base);
		/* A jump to the beginning of a function is a call. */
		if (!target || (target >= start && target < end) ||
		    hl_symbols_table_function_start(table, target) == target)
			continue;
		const struct hl_symbols_table_entry *function = find_sized(table, target, &unused);
		if (!function || function->address == target)
			continue;
		if (found && strcmp(found->name, function->name) != 0)
			return NULL;
		found = function;
	}
	/* Any bytes may look like a jump: the function that a part belongs to jumps there, too. */
	return found && jumps_into(table, found, start, end) ? found->name : NULL;
}
