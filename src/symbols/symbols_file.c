/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds an ELF file's symbols with libdwfl, and picks the best name for an address; see
 * symbols_dwarf.h. */
#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/file_print.h"
#include "base/go_functions.h"
#include "base/names.h"
#include "base/strings.h"
#include "elf/elf.h"
#include "symbols/symbols_dwarf.h"

#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the symbol table ---- */

/* Sorts what libdwfl collects from .symtab, .dynsym, .gnu_debugdata, and Go's table; see symbols_dwarf.h. */

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

static void symbols_table_release(struct hl_symbols_table *table)
{
	free(table->entries);
	free(table->cold_names);
	*table = (struct hl_symbols_table){0};
}

/* Reads the tables of ${module}, whose names stay its property. 0 or -ENOMEM. */
static int symbols_table_init(struct hl_symbols_table *table, Dwfl_Module *module)
{
	*table = (struct hl_symbols_table){0};
	find_unwind_table(table, module);
	find_code(table, module);
	int r = read_symbols(table, module);
	if (r < 0)
		symbols_table_release(table);
	return r;
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

/* The name of the function at ${address} as it stands in the table (mangled), or NULL. */
static const char *symbols_table_find(const struct hl_symbols_table *table, uint64_t address)
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

/* Where the function around ${address} begins; ${address} itself when that is not known. */
static uint64_t symbols_table_function_start(const struct hl_symbols_table *table, uint64_t address)
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

/* The name of the function that jumps into [${start}, ${end}), which jumps back; NULL: there is none, or several. */
static const char *find_other_part(const struct hl_symbols_table *table, uint64_t start,
				   uint64_t end)
{
	const struct hl_symbols_table_entry *found = NULL;
	size_t unused;

	for (uint64_t i = start; i >= table->code_base && i < end; i++) {
		uint64_t target = jump_target(table, i - table->code_base);
		/* A jump to the beginning of a function is a call. */
		if (!target || (target >= start && target < end) ||
		    symbols_table_function_start(table, target) == target)
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

/* The name of the function that ${address}, which has no name, is a part of: compilers move the code of a function that
 * rarely runs elsewhere. It is looked for once for all addresses of the part. NULL: unknown, or no memory. */
static const char *symbols_table_find_cold(struct hl_symbols_table *table, uint64_t address)
{
	static const char none[] = "";
	size_t at = HL_LOWER_BOUND(i, table->unwind_count, unwind_start(table, i) <= address);

	if (!at || at == table->unwind_count || !table->code)
		return NULL;
	if (!table->cold_names)
		table->cold_names = calloc(table->unwind_count, sizeof(*table->cold_names));
	if (!table->cold_names)
		return NULL;
	const char **name = &table->cold_names[at - 1];
	if (!*name)
		*name = find_other_part(table, unwind_start(table, at - 1),
					unwind_start(table, at));
	if (!*name)
		*name = none;
	return *name == none ? NULL : *name;
}

/* ---- the file ---- */

/* The file that is looked for. */
struct wanted {
	const uint8_t *build_id; /* as kept, see base/file_print.h */
	size_t build_id_bytes;
	struct hl_file_print print;
};

struct hl_symbols_file {
	const char *basename; /* within strings */
	Dwfl *dwfl;
	struct hl_dwarf *dwarf;	    /* NULL without DWARF */
	struct hl_package *package; /* NULL: there is none */
	Dwarf *copied;		    /* of a separate debug file that libdwfl cannot read, or NULL */
	int copy;		    /* its descriptor, or -1 */
	uint64_t dwarf_bias;	    /* address in DWARF = address in the file - bias */
	struct hl_symbols_table table;
	struct hl_strings strings;
	struct hl_symbols_frame *frames; /* of the last lookup */
	size_t frame_capacity;
	enum hl_symbols_source source;
	bool found;
	bool has_compressed_frames;
	const char *debug_link; /* within the file, or NULL */
	char reason[256];
};

static char *default_debug_path; /* NULL: libdwfl's own, :.debug:/usr/lib/debug */

static const Dwfl_Callbacks callbacks = {
	.find_elf = dwfl_build_id_find_elf,
	.find_debuginfo = dwfl_standard_find_debuginfo,
	.section_address = dwfl_offline_section_address,
	.debuginfo_path = &default_debug_path,
};

/* ---- finding the file ---- */

/* Whether ${path} has the fingerprint; of a copy the time may differ. */
static bool has_print(const char *path, const struct hl_file_print *print, bool is_copy)
{
	struct stat status;
	HL_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd >= 0 && fstat(fd, &status) == 0 && (uint64_t)status.st_size == print->bytes &&
	       (is_copy || (uint64_t)status.st_mtim.tv_sec * HL_NS_PER_SECOND +
					   (uint64_t)status.st_mtim.tv_nsec ==
				   print->mtime_ns) &&
	       hl_elf_hash(fd) == print->hash;
}

/* Libdwfl would block on a pipe. */
static bool is_no_file(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

static bool has_compressed_frames(int fd)
{
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	GElf_Shdr header;

	return elf && hl_elf_find_section(elf, ".debug_frame", &header) &&
	       header.sh_flags & SHF_COMPRESSED;
}

/* Reports ${path} to libdwfl, at its own addresses. NULL when it cannot be read. */
static Dwfl_Module *report(struct hl_symbols_file *symbols, const char *path)
{
	HL_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC);
	int copy = fd < 0 ? -1 : hl_elf_zstd_copy(fd);

	symbols->has_compressed_frames = fd >= 0 && has_compressed_frames(fd);
	Dwfl_Module *module =
		dwfl_report_elf(symbols->dwfl, symbols->basename, path, copy, 0, true);

	if (!module && copy >= 0)
		close(copy);
	return module;
}

/* Reports ${path} to libdwfl, at its own addresses. NULL when it is not the wanted file; then sets
 * the reason unless there is one. */
static Dwfl_Module *try_file(struct hl_symbols_file *symbols, const char *path,
			     const struct wanted *wanted, bool is_copy)
{
	Dwfl_Module *module = NULL;
	const char *wrong = NULL;
	GElf_Addr bias, address;
	const unsigned char *bits;
	uint8_t kept[HL_BUILD_ID_MAX];
	int found;

	/* Without this a module of the same size would keep the file of the last try. */
	dwfl_report_begin(symbols->dwfl);
	dwfl_report_end(symbols->dwfl, NULL, NULL);
	dwfl_report_begin(symbols->dwfl);
	if (!is_no_file(path))
		module = report(symbols, path);
	dwfl_report_end(symbols->dwfl, NULL, NULL);
	if (is_no_file(path))
		wrong = "it is not a regular file";
	else if (access(path, R_OK) != 0)
		wrong = strerror(errno); /* libdwfl does not always say why */
	else if (!module || !dwfl_module_getelf(module, &bias))
		wrong = dwfl_errmsg(-1);
	else if (wanted->build_id_bytes &&
		 ((found = dwfl_module_build_id(module, &bits, &address)) <= 0 ||
		  hl_build_id_keep(kept, bits, (size_t)found) != wanted->build_id_bytes ||
		  memcmp(kept, wanted->build_id, wanted->build_id_bytes) != 0))
		wrong = HL_SYMBOLS_CHANGED " (its build id differs)";
	else if (wanted->print.hash && !has_print(path, &wanted->print, is_copy))
		wrong = HL_SYMBOLS_CHANGED " (its size, time or contents differ)";
	if (wrong && !symbols->reason[0])
		snprintf(symbols->reason, sizeof(symbols->reason), "cannot use the file: %s",
			 wrong);
	return wrong ? NULL : module;
}

/* By build id alone: /usr/lib/debug/.build-id/xx/yyy, then debuginfod. */
static Dwfl_Module *try_build_id(struct hl_symbols_file *symbols, const struct wanted *wanted)
{
	GElf_Addr bias;

	if (!wanted->build_id_bytes || !getenv("DEBUGINFOD_URLS"))
		return NULL;
	dwfl_report_begin(symbols->dwfl);
	Dwfl_Module *module = dwfl_report_module(symbols->dwfl, symbols->basename, 0, INT64_MAX);
	if (module)
		dwfl_module_report_build_id(module, wanted->build_id, wanted->build_id_bytes, 0);
	dwfl_report_end(symbols->dwfl, NULL, NULL);
	if (!module || !dwfl_module_getelf(module, &bias) || bias != 0)
		return NULL;
	return module;
}

/* The package beside the file or beside its separate debug file. */
static int open_package(Dwfl_Module *module, struct hl_package **ret_package)
{
	const char *file, *debug_file;

	dwfl_module_info(module, NULL, NULL, NULL, NULL, NULL, &file, &debug_file);
	int r = file ? hl_package_open(file, ret_package) : 0;
	return r == 0 && !*ret_package && debug_file ? hl_package_open(debug_file, ret_package) : r;
}

/* The DWARF of the module's separate debug file if that has sections compressed by zstd: libdwfl opens it itself, after
 * its callback. NULL: it can be read as it is, or there is none. */
static Dwarf *copy_debug_file(struct hl_symbols_file *symbols, Dwfl_Module *module)
{
	const char *path;

	dwfl_module_info(module, NULL, NULL, NULL, NULL, NULL, NULL, &path);
	HL_CLOSED int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	symbols->copy = fd < 0 ? -1 : hl_elf_zstd_copy(fd);
	symbols->copied = symbols->copy < 0 ? NULL : dwarf_begin(symbols->copy, DWARF_C_READ);
	return symbols->copied;
}

static int read_module(struct hl_symbols_file *symbols, Dwfl_Module *module)
{
	Dwarf_Addr bias = 0;
	GElf_Addr elf_bias = 0;
	GElf_Shdr header;
	GElf_Word checksum;
	Dwarf *dwarf = dwfl_module_getdwarf(module, &bias);
	Elf *elf = dwfl_module_getelf(module, &elf_bias);
	Dwarf_CU *cu;

	if (copy_debug_file(symbols, module)) {
		dwarf = symbols->copied;
		bias = elf_bias;
	}
	symbols->found = true;
	symbols->debug_link = dwelf_elf_gnu_debuglink(elf, &checksum);
	int r = symbols_table_init(&symbols->table, module);
	if (r < 0)
		return r;
	if (!symbols->table.count)
		symbols->source = HL_SYMBOLS_NONE;
	else if (elf && (hl_elf_find_section(elf, ".symtab", &header) ||
			 hl_elf_find_section(elf, ".gnu_debugdata", &header) ||
			 hl_elf_find_section(elf, HL_GO_FUNCTIONS_SECTION, &header)))
		symbols->source = HL_SYMBOLS_SYMTAB;
	else
		symbols->source = HL_SYMBOLS_DYNSYM;
	if (!dwarf || dwarf_get_units(dwarf, NULL, &cu, NULL, NULL, NULL, NULL) != 0)
		return 0;
	symbols->dwarf_bias = bias;
	symbols->source = HL_SYMBOLS_DWARF;
	r = open_package(module, &symbols->package);
	return r == 0 ? hl_symbols_dwarf_new(dwarf, symbols->package, &symbols->strings,
					     &symbols->dwarf)
		      : r;
}

static int intern(struct hl_symbols_file *symbols, const char *text, const char **ret_text)
{
	uint32_t id;
	int r = hl_strings_intern(&symbols->strings, text, &id);

	if (r == 0)
		*ret_text = hl_strings_text(&symbols->strings, id);
	return r;
}

static int open_symbols(struct hl_symbols_file *symbols, const char *path, const char *elsewhere,
			const struct wanted *wanted)
{
	const struct wanted by_build_id = {wanted->build_id, wanted->build_id_bytes, {0}};
	char debug_path[HL_ELF_DEBUG_PATH_MAX];

	int r = intern(symbols, hl_path_basename(path), &symbols->basename);
	if (r < 0)
		return r;
	if (path[0] != '/') {
		snprintf(symbols->reason, sizeof(symbols->reason), "there is no file of that name");
		return 0;
	}
	symbols->dwfl = dwfl_begin(&callbacks);
	if (!symbols->dwfl)
		return -ENOMEM;
	Dwfl_Module *module = try_file(symbols, path, wanted, false);
	if (!module && elsewhere) {
		module = try_file(symbols, elsewhere, wanted, true);
		if (module) /* what was wrong with the file's own path does not matter */
			symbols->reason[0] = '\0';
	}
	/* A separate debug file can stand in for the file itself: it has the same addresses. */
	if (!module &&
	    hl_elf_debug_path(HL_ELF_DEBUG_DIRECTORY, wanted->build_id, wanted->build_id_bytes,
			      debug_path, sizeof(debug_path)) &&
	    access(debug_path, R_OK) == 0)
		module = try_file(symbols, debug_path, &by_build_id, true);
	if (!module)
		module = try_build_id(symbols, wanted);
	return module ? read_module(symbols, module) : 0;
}

/* For a file with DWARF: the parts that were not found or not read. */
static void say_what_is_missing(struct hl_symbols_file *symbols)
{
	size_t missing = hl_symbols_dwarf_missing(symbols->dwarf);

	symbols->reason[0] = '\0';
	if (missing)
		snprintf(symbols->reason, sizeof(symbols->reason),
			 "no inlined functions of %zu source file%s: %s", missing,
			 missing == 1 ? "" : "s",
			 symbols->package
				 ? "the .dwp package beside the file does not have them; make it "
				   "again of all .dwo files"
				 : "their .dwo files are not where they were compiled, nor is a "
				   ".dwp package beside the file; put them back, or compile "
				   "without -gsplit-dwarf");
	else if (symbols->has_compressed_frames)
		snprintf(symbols->reason, sizeof(symbols->reason),
			 "stacks of record and attach may end in it: its .debug_frame is "
			 "compressed; run objcopy --decompress-debug-sections on it");
}

int hl_symbols_file_open(const char *path, const char *elsewhere, const uint8_t *build_id,
			 size_t build_id_bytes, const struct hl_file_print *print,
			 struct hl_symbols_file **ret_symbols)
{
	static const char *const reasons[] = {
		[HL_SYMBOLS_NONE] = "no symbols; " HL_SYMBOLS_REMEDY,
		[HL_SYMBOLS_DYNSYM] =
			"stripped, exported functions alone have names; " HL_SYMBOLS_REMEDY,
		[HL_SYMBOLS_SYMTAB] = "no source lines; " HL_SYMBOLS_REMEDY,
	};
	const struct wanted wanted = {build_id, build_id_bytes, *print};
	struct hl_symbols_file *symbols = calloc(1, sizeof(*symbols));

	if (!symbols)
		return -ENOMEM;
	symbols->copy = -1;
	int r = open_symbols(symbols, path, elsewhere, &wanted);
	if (r < 0) {
		hl_symbols_file_free(symbols);
		return r;
	}
	if (symbols->source == HL_SYMBOLS_DWARF)
		say_what_is_missing(symbols);
	else if (!symbols->reason[0])
		snprintf(symbols->reason, sizeof(symbols->reason), "%s", reasons[symbols->source]);
	*ret_symbols = symbols;
	return 0;
}

void hl_symbols_file_free(struct hl_symbols_file *symbols)
{
	if (!symbols)
		return;
	hl_symbols_dwarf_free(symbols->dwarf);
	hl_package_free(symbols->package);
	dwarf_end(symbols->copied);
	hl_cleanup_close(&symbols->copy);
	symbols_table_release(&symbols->table);
	dwfl_end(symbols->dwfl);
	hl_strings_release(&symbols->strings);
	free(symbols->frames);
	free(symbols);
}

enum hl_symbols_source hl_symbols_file_source(const struct hl_symbols_file *symbols)
{
	return symbols->source;
}

const char *hl_symbols_file_reason(const struct hl_symbols_file *symbols)
{
	return symbols->reason;
}

bool hl_symbols_file_is_there(const struct hl_symbols_file *symbols)
{
	return symbols->found;
}

bool hl_symbols_file_misses_units(const struct hl_symbols_file *symbols)
{
	return symbols->dwarf && hl_symbols_dwarf_missing(symbols->dwarf) > 0;
}

const char *hl_symbols_file_debug_link(const struct hl_symbols_file *symbols)
{
	return symbols->debug_link;
}

/* ---- lookup ---- */

/* The table's name for ${address}, demangled; or file+0xSTART. */
static int name_without_dwarf(struct hl_symbols_file *symbols, uint64_t address,
			      const char **ret_name)
{
	const char *name = symbols_table_find(&symbols->table, address);
	char place[512];

	if (!name)
		name = symbols_table_find_cold(&symbols->table, address);
	if (!name) {
		uint64_t start = symbols_table_function_start(&symbols->table, address);
		snprintf(place, sizeof(place), "%s+0x%llx", symbols->basename,
			 (unsigned long long)start);
		return intern(symbols, place, ret_name);
	}
	char *demangled = hl_symbols_demangle(name);
	int r = intern(symbols, demangled ? demangled : name, ret_name);
	free(demangled);
	return r;
}

int hl_symbols_file_find(struct hl_symbols_file *symbols, uint64_t address,
			 const struct hl_symbols_frame **ret_frames, size_t *ret_count,
			 bool *ret_by_dwarf)
{
	const struct hl_dwarf_frame *frames;
	size_t count = 0;
	int r = 0;

	if (symbols->dwarf)
		r = hl_symbols_dwarf_find(symbols->dwarf, address - symbols->dwarf_bias, &frames,
					  &count);
	if (r == 0)
		r = HL_ARRAY_RESERVE(symbols->frames, symbols->frame_capacity, count + 1);
	if (r < 0)
		return r;
	for (size_t i = 0; i < count; i++)
		symbols->frames[i] = frames[i].frame;
	struct hl_symbols_frame *outer = &symbols->frames[count ? count - 1 : 0];
	if (!count) {
		*outer = (struct hl_symbols_frame){.function_file = "", .file = ""};
		if (symbols->dwarf)
			hl_symbols_dwarf_find_line(symbols->dwarf, address - symbols->dwarf_bias,
						   &outer->file, &outer->line);
	}
	/* C++ functions without linkage (lambdas, clones) have their full name in the table alone.
	 */
	if (!count || !frames[count - 1].has_linkage_name) {
		const char *name = symbols_table_find(&symbols->table, address);
		if (!count || !outer->function[0] ||
		    (name && (!strncmp(name, "_Z", 2) || !strncmp(name, "_R", 2))))
			r = name_without_dwarf(symbols, address, &outer->function);
	}
	if (r < 0)
		return r;
	*ret_frames = symbols->frames;
	*ret_count = count ? count : 1;
	*ret_by_dwarf = count > 0;
	return 0;
}
