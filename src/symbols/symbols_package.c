/* SPDX-License-Identifier: BSD-2-Clause */
/* Carves each split unit that is asked for out of the package, as an ELF file in memory; see symbols_dwarf.h. */
#include "symbols/symbols_dwarf.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "elf/elf.h"

#include <dwarf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#define HEADER_BYTES	   16u
#define SLOT_BYTES	   12u /* a unit's id, and elsewhere its row */
#define COLUMNS_MAX	   16u /* the specification has 8 */
#define RANGE_HEADER_BYTES 12u /* of .debug_rnglists, before its offsets */

/* Sections that have a part for each unit, by their numbers in the index. */
enum part {
	PART_INFO = 1,
	PART_ABBREV = 3,
	PART_LINE = 4,
	PART_STR_OFFSETS = 6,
	PART_RNGLISTS = 8, /* in DWARF 4 macros, of which nobody asks */
	PART_COUNT,
};

static const char *const part_names[PART_COUNT] = {
	[PART_INFO] = ".debug_info",	     [PART_ABBREV] = ".debug_abbrev",
	[PART_LINE] = ".debug_line",	     [PART_STR_OFFSETS] = ".debug_str_offsets",
	[PART_RNGLISTS] = ".debug_rnglists",
};

/* Within a section. */
struct bytes {
	const uint8_t *at;
	size_t count;
};

struct hl_package_unit {
	uint64_t id;
	uint64_t base; /* address to which lists of ranges are relative */
	struct bytes range_lists;
	Elf *elf;
	Dwarf *dwarf;
	Dwarf_Die root;
};

struct hl_package {
	int fd;
	Elf *elf;
	struct bytes strings;
	struct bytes parts[PART_COUNT];
	/* of the index */
	uint32_t slots, columns, rows;
	const uint8_t *ids, *row_numbers, *kinds, *offsets, *sizes;
	struct hl_package_unit **units; /* that were asked for */
	size_t unit_count, unit_capacity;
};

static uint32_t load_u32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static uint64_t load_u64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

/* What ${section} of the file contains, decompressed; nothing when it is missing. */
static struct bytes section_bytes(Elf *elf, const char *name)
{
	GElf_Shdr header;
	Elf_Scn *section = hl_elf_find_section(elf, name, &header);
	Elf_Data *content;

	if (!section || header.sh_type == SHT_NOBITS ||
	    (header.sh_flags & SHF_COMPRESSED && elf_compress(section, 0, 0) < 0))
		return (struct bytes){0};
	content = elf_getdata(section, NULL);
	return content && content->d_buf ? (struct bytes){content->d_buf, content->d_size}
					 : (struct bytes){0};
}

/* ---- the index ---- */

/* False: the index is missing or makes no sense. Versions 2 (a draft, for DWARF 4) and 5 differ in the
 * numbers of sections that heapline does not read. */
static bool read_index(struct hl_package *package)
{
	struct bytes index = section_bytes(package->elf, ".debug_cu_index");

	if (index.count < HEADER_BYTES || (load_u32(index.at) != 2 && load_u32(index.at) != 5))
		return false;
	package->columns = load_u32(index.at + 4);
	package->rows = load_u32(index.at + 8);
	package->slots = load_u32(index.at + 12);
	uint64_t table = UINT64_C(4) * package->columns * package->rows;
	uint64_t hashed = UINT64_C(1) * SLOT_BYTES * package->slots;
	if (!package->slots || package->slots & (package->slots - 1) ||
	    package->columns > COLUMNS_MAX || package->rows > index.count ||
	    HEADER_BYTES + hashed + UINT64_C(4) * package->columns + 2 * table > index.count)
		return false;
	package->ids = index.at + HEADER_BYTES;
	package->row_numbers = package->ids + UINT64_C(8) * package->slots;
	package->kinds = package->ids + hashed;
	package->offsets = package->kinds + UINT64_C(4) * package->columns;
	package->sizes = package->offsets + table;
	return true;
}

/* The row of the unit, from 1 on; 0: the package does not have it. */
static uint32_t find_row(const struct hl_package *package, uint64_t id)
{
	uint32_t mask = package->slots - 1, slot = (uint32_t)id & mask;
	uint32_t step = ((uint32_t)(id >> 32) & mask) | 1;

	for (uint32_t tries = 0; tries < package->slots; tries++) {
		uint32_t row = load_u32(package->row_numbers + UINT64_C(4) * slot);
		if (!row)
			return 0;
		if (load_u64(package->ids + UINT64_C(8) * slot) == id)
			return row <= package->rows ? row : 0;
		slot = (slot + step) & mask;
	}
	return 0;
}

/* The unit's part of section ${part}; nothing when it has none, or it is not within the section. */
static struct bytes find_part(const struct hl_package *package, uint32_t row, enum part part)
{
	struct bytes all = package->parts[part];

	for (uint32_t column = 0; column < package->columns; column++) {
		uint64_t cell = UINT64_C(4) * ((uint64_t)(row - 1) * package->columns + column);
		uint32_t offset = load_u32(package->offsets + cell);
		uint32_t size = load_u32(package->sizes + cell);
		if (load_u32(package->kinds + UINT64_C(4) * column) == part &&
		    offset <= all.count && size <= all.count - offset)
			return (struct bytes){all.at + offset, size};
	}
	return (struct bytes){0};
}

static bool unit_id(Dwarf_Die *skeleton, uint64_t *ret_id)
{
	uint8_t type;

	return dwarf_cu_info(skeleton->cu, NULL, &type, NULL, NULL, ret_id, NULL, NULL) == 0 &&
	       type == DW_UT_skeleton;
}

bool hl_package_has(const struct hl_package *package, Dwarf_Die *skeleton)
{
	uint64_t id;

	return package && unit_id(skeleton, &id) && find_row(package, id);
}

/* ---- one unit as a file ---- */

static const char section_names[] =
	"\0.debug_info\0.debug_abbrev\0.debug_line\0.debug_str_offsets\0"
	".debug_rnglists\0.debug_str\0.debug_addr\0.debug_ranges\0"
	".debug_line_str\0.shstrtab";

/* Adds a section, unless it is empty; ${bytes} must outlive ${elf}. False: out of memory. */
static bool add_section(Elf *elf, const char *name, uint32_t type, struct bytes bytes)
{
	Elf_Scn *section = bytes.count ? elf_newscn(elf) : NULL;
	Elf_Data *content = section ? elf_newdata(section) : NULL;
	GElf_Shdr header;

	if (!bytes.count)
		return true;
	if (!content || !gelf_getshdr(section, &header))
		return false;
	*content = (Elf_Data){
		.d_buf = (void *)bytes.at, /* only read */
		.d_size = bytes.count,
		.d_align = 1,
		.d_type = ELF_T_BYTE,
		.d_version = EV_CURRENT,
	};
	const char *at = memmem(section_names, sizeof(section_names), name, strlen(name) + 1);
	header.sh_name = (uint32_t)(at - section_names);
	header.sh_type = type;
	header.sh_size = bytes.count;
	return gelf_update_shdr(section, &header);
}

/* The program's section ${name}, from where an attribute of the skeleton says, if it has that. */
static struct bytes skeleton_part(Dwarf_Die *skeleton, const char *name, unsigned attribute_name,
				  unsigned older_name)
{
	struct bytes all = section_bytes(dwarf_getelf(dwarf_cu_getdwarf(skeleton->cu)), name);
	Dwarf_Attribute attribute;
	Dwarf_Word from;

	if (!dwarf_attr(skeleton, attribute_name, &attribute) &&
	    !dwarf_attr(skeleton, older_name, &attribute))
		return all;
	if (dwarf_formudata(&attribute, &from) != 0 || from > all.count)
		return (struct bytes){0};
	return (struct bytes){all.at + from, all.count - from};
}

/*
 * The unit as a file. libdw links a split unit to its skeleton by the path of its file alone; so this one also
 * contains what the unit reads of the program: addresses, ranges (DWARF 4) and, where it has no table,
 * names of files. They begin where the skeleton's part of them does, as libdw expects without a link.
 */
static Elf *make_file(const struct hl_package *package, Dwarf_Die *skeleton, uint32_t row)
{
	static const struct {
		const char *name;
		unsigned attribute, older_attribute;
	} shared[] = {
		{".debug_addr", DW_AT_addr_base, DW_AT_GNU_addr_base},
		{".debug_ranges", DW_AT_GNU_ranges_base, 0},
		{".debug_line_str", 0, 0},
	};
	const struct bytes names = {(const uint8_t *)section_names, sizeof(section_names)};
	Elf *elf = elf_begin(package->fd, ELF_C_WRITE, NULL); /* nothing is written */
	GElf_Ehdr header = {0};
	size_t sections = 0;

	bool is_made = elf && gelf_newehdr(elf, ELFCLASS64);
	for (enum part part = 0; part < PART_COUNT && is_made; part++) {
		struct bytes bytes = find_part(package, row, part);
		if (part == PART_LINE && !bytes.count)
			bytes = skeleton_part(skeleton, ".debug_line", DW_AT_stmt_list, 0);
		if (part_names[part])
			is_made = add_section(elf, part_names[part], SHT_PROGBITS, bytes);
	}
	for (size_t i = 0; i < HL_COUNT_OF(shared) && is_made; i++)
		is_made = add_section(elf, shared[i].name, SHT_PROGBITS,
				      skeleton_part(skeleton, shared[i].name, shared[i].attribute,
						    shared[i].older_attribute));
	is_made = is_made && add_section(elf, ".debug_str", SHT_PROGBITS, package->strings) &&
		  add_section(elf, ".shstrtab", SHT_STRTAB, names) &&
		  elf_getshdrnum(elf, &sections) == 0 && gelf_getehdr(elf, &header);
	header.e_ident[EI_CLASS] = ELFCLASS64;
	header.e_ident[EI_DATA] = ELFDATA2LSB;
	header.e_shstrndx = (uint16_t)(sections - 1);
	if (is_made && gelf_update_ehdr(elf, &header))
		return elf;
	elf_end(elf);
	return NULL;
}

/* False: the unit is damaged, or there is no memory. */
static bool open_unit(struct hl_package_unit *unit)
{
	Dwarf_CU *cu = NULL;
	uint64_t id;
	uint8_t type;

	unit->dwarf = unit->elf ? dwarf_begin_elf(unit->elf, DWARF_C_READ, NULL) : NULL;
	if (!unit->dwarf ||
	    dwarf_get_units(unit->dwarf, NULL, &cu, NULL, &type, &unit->root, NULL) != 0)
		return false;
	unit->range_lists = section_bytes(unit->elf, part_names[PART_RNGLISTS]);
	return type == DW_UT_split_compile &&
	       dwarf_cu_info(cu, NULL, NULL, NULL, NULL, &id, NULL, NULL) == 0 && id == unit->id;
}

static void free_unit(struct hl_package_unit *unit)
{
	dwarf_end(unit->dwarf);
	elf_end(unit->elf);
	free(unit);
}

const struct hl_package_unit *hl_package_find(struct hl_package *package, Dwarf_Die *skeleton)
{
	struct hl_package_unit *unit;
	uint64_t id;

	uint32_t row = package && unit_id(skeleton, &id) ? find_row(package, id) : 0;
	if (!row || !(unit = calloc(1, sizeof(*unit))))
		return NULL;
	unit->id = id;
	unit->elf = make_file(package, skeleton, row);
	if (dwarf_lowpc(skeleton, &unit->base) != 0)
		unit->base = 0;
	if (open_unit(unit) &&
	    HL_ARRAY_APPEND(package->units, package->unit_count, package->unit_capacity, unit) == 0)
		return unit;
	free_unit(unit);
	return NULL;
}

Dwarf_Die hl_package_unit_root(const struct hl_package_unit *unit)
{
	return unit->root;
}

/* Changes the number of a list of ranges to its offset. */
static bool find_list(const struct hl_package_unit *unit, Dwarf_Word *list)
{
	struct bytes lists = unit->range_lists;

	if (lists.count < RANGE_HEADER_BYTES || load_u32(lists.at) == UINT32_MAX ||
	    *list >= (lists.count - RANGE_HEADER_BYTES) / sizeof(uint32_t))
		return false;
	*list = RANGE_HEADER_BYTES +
		load_u32(lists.at + RANGE_HEADER_BYTES + *list * sizeof(uint32_t));
	return true;
}

ptrdiff_t hl_package_unit_ranges(const struct hl_package_unit *unit, Dwarf_Die *entry, ptrdiff_t at,
				 Dwarf_Addr *base, Dwarf_Addr *ret_start, Dwarf_Addr *ret_end)
{
	Dwarf_Attribute attribute;
	Dwarf_Word list;

	if (!unit || at || !dwarf_attr(entry, DW_AT_ranges, &attribute) ||
	    dwarf_formudata(&attribute, &list) != 0)
		return dwarf_ranges(entry, at, base, ret_start, ret_end);
	if (attribute.form == DW_FORM_rnglistx && !find_list(unit, &list))
		return 0;
	*base = unit->base;
	if (list)
		return dwarf_ranges(entry, (ptrdiff_t)list, base, ret_start, ret_end);
	/* At 0 libdw begins with the base address 0, and DWARF 4, which alone has a list there, adds it to all ranges. */
	ptrdiff_t next = dwarf_ranges(entry, 0, base, ret_start, ret_end);
	if (next > 0 && !*base) {
		*base = unit->base;
		*ret_start += *base;
		*ret_end += *base;
	}
	return next;
}

/* ---- the package ---- */

int hl_package_open(const char *path, struct hl_package **ret_package)
{
	HL_FREED char *package_path = NULL;
	struct hl_package *package;

	*ret_package = NULL;
	if (asprintf(&package_path, "%s.dwp", path) < 0)
		return -ENOMEM;
	HL_CLOSED int fd = open(package_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return 0;
	package = calloc(1, sizeof(*package));
	if (!package)
		return -ENOMEM;
	package->fd = hl_elf_zstd_copy(fd);
	if (package->fd < 0)
		package->fd = hl_cleanup_take_fd(&fd);
	package->elf = hl_elf_open(package->fd);
	if (!package->elf || gelf_getclass(package->elf) != ELFCLASS64 || !read_index(package)) {
		package->slots = 0;
		*ret_package = package;
		return 0;
	}
	package->strings = section_bytes(package->elf, ".debug_str.dwo");
	for (enum part part = 0; part < PART_COUNT; part++) {
		char name[32];
		snprintf(name, sizeof(name), "%s.dwo", part_names[part] ? part_names[part] : "");
		package->parts[part] = section_bytes(package->elf, name);
	}
	*ret_package = package;
	return 0;
}

void hl_package_free(struct hl_package *package)
{
	if (!package)
		return;
	for (size_t i = 0; i < package->unit_count; i++)
		free_unit(package->units[i]);
	free(package->units);
	elf_end(package->elf);
	hl_cleanup_close(&package->fd);
	free(package);
}
