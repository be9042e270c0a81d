/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds an ELF file's symbols with libdwfl, and picks the best name for an address; see
 * symbols_dwarf.h. */
#include "symbols/symbols_dwarf.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file_print.h"
#include "base/go_functions.h"
#include "base/names.h"
#include "base/strings.h"
#include "elf/elf.h"

#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
	int r = hl_symbols_table_init(&symbols->table, module);
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
	hl_symbols_table_release(&symbols->table);
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
	const char *name = hl_symbols_table_find(&symbols->table, address);
	char place[512];

	if (!name)
		name = hl_symbols_table_find_cold(&symbols->table, address);
	if (!name) {
		uint64_t start = hl_symbols_table_function_start(&symbols->table, address);
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
		const char *name = hl_symbols_table_find(&symbols->table, address);
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
