/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where symbols.c looks: files with DWARF and symbol tables, and the names that a module's addresses had in
 * earlier runs.
 */
#pragma once

#include "base/strings.h"
#include "symbols/symbols.h"

#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <jansson.h>

/* ---- symbols dwarf ---- */

/* What libdw and libdwfl say of one module: the sources of names that symbols_file.c chooses from.
 */

/*
 * ---- symbols_package.c: a .dwp package ----
 * The split units (-gsplit-dwarf) of one program, which libdw reads itself from 0.191 on. An index gives
 * each unit its parts of the package's sections: DWARF 5, section 7.3.5, and its draft for DWARF 4.
 * Packages are not trusted: a damaged one has fewer units.
 */

struct hl_package;
struct hl_package_unit;

/* Opens the package beside the file ${path}; a damaged one has no units. ${ret_package} is NULL if there is none, or it
 * may not be read. 0 or -ENOMEM. */
int hl_package_open(const char *path, struct hl_package **ret_package);

/* Whether the index has the split unit of ${skeleton}, the root of a unit of the program. NULL for ${package} has none. */
bool hl_package_has(const struct hl_package *package, Dwarf_Die *skeleton);

/* The split unit of ${skeleton}; valid until both the package and the program's DWARF are released. NULL when it is
 * damaged, or out of memory. */
const struct hl_package_unit *hl_package_find(struct hl_package *package, Dwarf_Die *skeleton);

/* The root of the unit's entries. */
Dwarf_Die hl_package_unit_root(const struct hl_package_unit *unit);

/* Like dwarf_ranges(), for an entry of ${unit}, which may be NULL: libdw does not know the base address of packaged units. */
ptrdiff_t hl_package_unit_ranges(const struct hl_package_unit *unit, Dwarf_Die *entry, ptrdiff_t at,
				 Dwarf_Addr *base, Dwarf_Addr *ret_start, Dwarf_Addr *ret_end);

void hl_package_free(struct hl_package *package); /* NULL is fine */

/* ---- symbols_file.c: function symbols, sorted; and where functions begin, by unwind tables ----
 */

struct hl_symbols_table {
	struct hl_symbols_table_entry *entries; /* by address, one for each */
	size_t count;
	const unsigned char *unwind_starts; /* .eh_frame_hdr's table: pairs of int32 relative to
					       unwind_base; belongs to the module */
	size_t unwind_count;
	uint64_t unwind_base;
	const unsigned char *code; /* .text of x86-64; else NULL; belongs to the module */
	uint64_t code_bytes, code_base;
	const char **cold_names; /* by unwind_starts, once asked for: see symbols_file.c; or NULL */
};

/* ---- symbols_entry.c: what entries of DWARF are called ---- */

/* A function as its entry describes it; texts by number in the strings. */
struct hl_symbols_entry_function {
	uint32_t name, file, line;
	bool has_linkage_name; /* else `name` has no parameters */
};

/* The entry that ${entry} is an instance of; follows such links to the end. */
Dwarf_Die hl_symbols_entry_origin(Dwarf_Die entry);

/* What ${entry} is called with its scopes, as the demangler writes it, without parameters; for functions that
 * have no linkage name, and types. 0 or -ENOMEM. */
int hl_symbols_entry_name(Dwarf_Die *entry, struct hl_strings *strings, uint32_t *ret_name);

/* Names the function at ${entry}, an origin. 0 or -ENOMEM. */
int hl_symbols_entry_function(Dwarf_Die *entry, struct hl_strings *strings,
			      struct hl_symbols_entry_function *ret_function);

/*
 * Makes ${path} (NULL: none) absolute: line tables of the unit ${root} may give it relative to
 * where the unit was compiled. Returns ${path} as it is when out of memory.
 */
const char *hl_symbols_entry_path(Dwarf_Die *root, struct hl_strings *strings, const char *path);

/* Path number ${number} of the line table of ${root}; "" when there is none. */
const char *hl_symbols_entry_file(Dwarf_Die *root, struct hl_strings *strings, Dwarf_Word number);

/* ---- symbols_dwarf.c ---- */

/*
 * DWARF, indexed for lookups of many addresses: each compilation unit, when first reached, becomes one
 * sorted array of address segments, each with its innermost function, real or inlined.
 */
struct hl_dwarf;

struct hl_dwarf_frame {
	struct hl_symbols_frame frame;
	bool has_linkage_name; /* else `function` has no parameters */
};

/* Lists the units of ${dwarf}, whose split units may be in ${package} (NULL: they are not). Both must outlive it, as
 * must ${strings}, where names are kept. 0 or -ENOMEM. */
int hl_symbols_dwarf_new(Dwarf *dwarf, struct hl_package *package, struct hl_strings *strings,
			 struct hl_dwarf **ret_dwarf);

/* How many units have their entries in files that were not found (-gsplit-dwarf). */
size_t hl_symbols_dwarf_missing(const struct hl_dwarf *dwarf);

/*
 * The frames at ${address}, innermost first; ${ret_count} is 0 where DWARF knows no function. The
 * array is valid until the next call. 0 or -ENOMEM.
 */
int hl_symbols_dwarf_find(struct hl_dwarf *dwarf, uint64_t address,
			  const struct hl_dwarf_frame **ret_frames, size_t *ret_count);

/* Source line of ${address} in ${ret_file} and ${ret_line}; "" and 0 when not known. */
void hl_symbols_dwarf_find_line(struct hl_dwarf *dwarf, uint64_t address, const char **ret_file,
				uint32_t *ret_line);

void hl_symbols_dwarf_free(struct hl_dwarf *dwarf);

/* ---- what symbols.h promises, from the files themselves, and without remembering anything ---- */

struct hl_symbols_file;

/* Like hl_symbols_open_elsewhere(). */
int hl_symbols_file_open(const char *path, const char *elsewhere, const uint8_t *build_id,
			 size_t build_id_bytes, const struct hl_file_print *print,
			 struct hl_symbols_file **ret_symbols);

/* Like hl_symbols_find(). ${ret_by_dwarf}: DWARF knows the function, so there is no better answer. */
int hl_symbols_file_find(struct hl_symbols_file *symbols, uint64_t address,
			 const struct hl_symbols_frame **ret_frames, size_t *ret_count,
			 bool *ret_by_dwarf);

enum hl_symbols_source hl_symbols_file_source(const struct hl_symbols_file *symbols);
const char *hl_symbols_file_reason(const struct hl_symbols_file *symbols);

/* Whether there was a file to be read. */
bool hl_symbols_file_is_there(const struct hl_symbols_file *symbols);

/* Whether split units (-gsplit-dwarf) of the file were not found. */
bool hl_symbols_file_misses_units(const struct hl_symbols_file *symbols);

/* The file's own name for its separate debug file, or NULL. */
const char *hl_symbols_file_debug_link(const struct hl_symbols_file *symbols);

void hl_symbols_file_free(struct hl_symbols_file *symbols); /* NULL is fine */

/* ---- symbols cache ---- */

/*
 * The names that the addresses of a module had in earlier runs, in one file for each build id in
 * a directory of their own. Names from DWARF stay; others are used only until something
 * changes that could make them better. docs/format.md describes the file.
 */

struct hl_symbols_cache;

/*
 * Reads the known names of ${path} with ${build_id}. ${ret_cache} is NULL where none may be kept:
 * there is no build id, or no directory. A damaged file counts as absent. 0 or -ENOMEM.
 */
int hl_symbols_cache_open(const char *path, const uint8_t *build_id, size_t build_id_bytes,
			  struct hl_symbols_cache **ret_cache);

/* Whether a file was read; else source and reason are not known. */
bool hl_symbols_cache_has_names(const struct hl_symbols_cache *cache);
enum hl_symbols_source hl_symbols_cache_source(const struct hl_symbols_cache *cache);
const char *hl_symbols_cache_reason(const struct hl_symbols_cache *cache);

/* The frames at ${address}, valid until hl_symbols_cache_free(); false when they are not known. */
bool hl_symbols_cache_find(const struct hl_symbols_cache *cache, uint64_t address,
			   const struct hl_symbols_frame **ret_frames, size_t *ret_count);

/*
 * Tells the cache that ${file} was opened. If its names may be better, the known ones are no longer
 * found. 0 or -ENOMEM.
 */
int hl_symbols_cache_meet(struct hl_symbols_cache *cache, const struct hl_symbols_file *file);

/* Adds the frames at an address; their texts belong to the file, which must outlive the cache. 0 or
 * -ENOMEM. */
int hl_symbols_cache_add(struct hl_symbols_cache *cache, uint64_t address,
			 const struct hl_symbols_frame *frames, size_t count, bool by_dwarf);

/* Writes the file if something was added; if that fails, nothing is kept. NULL is fine. */
void hl_symbols_cache_free(struct hl_symbols_cache *cache);

/* ---- the file of known names of one module ---- */

struct hl_cached_address {
	uint64_t address;
	uint32_t first, count; /* its frames, innermost first */
	uint32_t by_dwarf;     /* 0 or 1; see hl_symbols_file_find() */
};

struct hl_cached_names {
	json_t *circumstances; /* see hl_symbols_circumstances_new() */
	enum hl_symbols_source source;
	char *reason;
	struct hl_cached_address *addresses; /* ascending */
	struct hl_symbols_frame *frames;
	size_t count, frame_count;
	char *texts; /* of frames that were read */
};

/* Fills ${names}, which must be zero and are to be released; on failure they stay zero. 0 or a
 * negative errno. ${name} is for messages, which are not shown. */
int hl_symbols_cache_file_read(int fd, const char *name, struct hl_cached_names *names);

void hl_symbols_cache_file_release(struct hl_cached_names *names);

/* ---- circumstances ---- */

/*
 * Circumstances are all that the names of a module's addresses depend on besides its build id:
 * which files were there, and which servers could have been asked. While two descriptions are
 * equal, looking again would give no better names.
 *
 * Describes them for the file ${path}, whose separate debug file would be found by its build id or
 * by the name ${debug_link} (NULL: none). NULL for want of memory.
 */
json_t *hl_symbols_circumstances_new(const char *path, const uint8_t *build_id,
				     size_t build_id_bytes, const char *debug_link);

/* Whether ${recorded}, read from a file, describes the file ${path} as it is now. */
bool hl_symbols_circumstances_hold(const json_t *recorded, const char *path);

/* ---- the directory ---- */

/*
 * The directory that keeps names between runs: $XDG_CACHE_HOME/heapline/symbols, else
 * $HOME/.cache/heapline/symbols. Without it nothing is kept, which is not an error.
 * HL_SYMBOLS_STORE_SWITCH=off disables it.
 */
#define HL_SYMBOLS_STORE_SWITCH "HEAPLINE_SYMBOL_CACHE"

/* Removes the oldest files until the rest has at most ${bytes_max}. */
void hl_symbols_store_trim(int directory_fd, uint64_t bytes_max);
