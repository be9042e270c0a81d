/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names of code and data: symbols of one ELF file, its variables and types, and which functions allocate on
 * behalf of others.
 */
#pragma once

#include "base/file_print.h"
#include "base/strings.h"

#include <elfutils/libdw.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- symbols ---- */

/*
 * Symbols of one ELF file: from an address to functions, inlined ones too, with source lines.
 *
 * Looks, best first, at DWARF (in the file, in its separate debug file, or from debuginfod when
 * DEBUGINFOD_URLS is set), the symbol table, the dynamic symbol table; and where nothing names an
 * address, it is `file+0xADDRESS`, the address being where the function begins if unwind tables say
 * so, so that the calls of one nameless function stay together.
 *
 * Names of addresses in files with a build id are kept for the next run, see symbols_dwarf.h.
 */

enum hl_symbols_source {
	HL_SYMBOLS_NONE,
	HL_SYMBOLS_DYNSYM, /* exported functions alone have names */
	HL_SYMBOLS_SYMTAB, /* all functions have names; no lines, no inlined functions */
	HL_SYMBOLS_DWARF,
};

/* Texts belong to the symbols, are never NULL, and are "" when unknown; lines are then 0. */
struct hl_symbols_frame {
	const char *function;	   /* demangled */
	const char *function_file; /* where the function begins */
	uint32_t function_line;
	const char *file; /* where the address is; of an outer frame, where it calls the inner */
	uint32_t line;
	bool inlined; /* has no frame of its own on the stack: its caller is the next frame */
};

struct hl_symbols;

/*
 * Opens ${path} to name addresses. If the file is missing, or its build id is not ${build_id} of
 * ${build_id_bytes} (0: any), opens symbols that know no names, and say why. ${path} may be a name
 * without a file, such as "[vdso]". 0 or -ENOMEM. Takes milliseconds; costlier work is done when
 * first needed.
 */
int hl_symbols_open(const char *path, const uint8_t *build_id, size_t build_id_bytes,
		    struct hl_symbols **ret_symbols);

/*
 * The same for a file that may be gone from ${path}, or be another one there by now: it is then
 * looked for at ${elsewhere} (NULL: nowhere). A file is used only if it has the ${print} (NULL or
 * all zero: any); of a copy elsewhere the time may differ.
 */
int hl_symbols_open_elsewhere(const char *path, const char *elsewhere, const uint8_t *build_id,
			      size_t build_id_bytes, const struct hl_file_print *print,
			      struct hl_symbols **ret_symbols);

/*
 * The frames at ${address} (in the file's own addresses), innermost first, at least one, the last
 * one not inlined. The array is valid until the next call, the texts until hl_symbols_free(). 0 or
 * -ENOMEM.
 */
int hl_symbols_find(struct hl_symbols *symbols, uint64_t address,
		    const struct hl_symbols_frame **ret_frames, size_t *ret_count);

/* The best source of the names found so far. It may be better than the file now allows, where names
 * were kept from an earlier run. */
enum hl_symbols_source hl_symbols_source(const struct hl_symbols *symbols);

/* The general remedy; profile/profile.h finds the name of the package. */
#define HL_SYMBOLS_REMEDY "install its debug package or set DEBUGINFOD_URLS"

/* Part of the reason where another file lies at the path by now. */
#define HL_SYMBOLS_CHANGED "it is not the one that was recorded"

/* A clause that says why there is nothing better and what would help; "" where all is by DWARF. */
const char *hl_symbols_reason(const struct hl_symbols *symbols);

/* "dwarf", "symtab", "dynsym" or "none". */
const char *hl_symbols_source_name(enum hl_symbols_source source);

void hl_symbols_free(struct hl_symbols *symbols); /* NULL is fine */

/*
 * Splits ${name}, which a runtime wrote for code that it made, into what ${ret_frame} says: function,
 * file and line where it begins. Knows the forms of V8 ("JS:~work /app/shop.js:3:15", whatever its
 * tiers, so that a function stays one) and of guests ("TRACE_7::FILE:3"); any other name is the
 * function's. Texts are within ${name}, which changes.
 */
void hl_symbols_split(char *name, struct hl_symbols_frame *ret_frame);

/*
 * A copy of ${name} as the programmer wrote it: C++ and Rust names demangled, suffixes of
 * compilers' clones (".cold", ".isra.0") cut off. NULL when that changes nothing, or when out of
 * memory; the caller then uses the name as it is.
 */
char *hl_symbols_demangle(const char *name);

/* ---- symbols types ---- */

/*
 * Variables and types of one file, as its DWARF has them: what the word is called that lies at an
 * offset in a variable, or in a block whose type is known. Files may say anything: types that
 * contain or name themselves end a search, and never make it go on for ever.
 */

struct hl_symbols_types;

/* Lists variables and types of ${dwarf}, which must outlive it. 0 or -ENOMEM. */
int hl_symbols_types_new(Dwarf *dwarf, struct hl_symbols_types **ret_types);

void hl_symbols_types_free(struct hl_symbols_types *types); /* NULL is fine */

/*
 * The variable in which ${address} lies, an address of ${dwarf}; of a thread-local one an offset in the
 * module's thread-local storage. False: none is known.
 */
bool hl_symbols_types_variable(struct hl_symbols_types *types, uint64_t address,
			       bool is_thread_local, uint64_t *ret_start, Dwarf_Die *ret_type);

/* The class, structure or union of the name, which has its scopes: "zoo::duck". False: none is
 * known. */
bool hl_symbols_types_find(struct hl_symbols_types *types, const char *name, Dwarf_Die *ret_type);

/* ---- members ---- */

#define HL_SYMBOLS_MEMBER_MAX 512u

/* How a word is reached, and what is known of what it points to. */
struct hl_symbols_member {
	/* ".stats.buckets[17]"; "": it is the whole; where a block has several of the type "[3].next" */
	char path[HL_SYMBOLS_MEMBER_MAX];
	bool is_pointer;
	bool has_target; /* not a void *, nor a pointer to a function */
	Dwarf_Die target;
};

/*
 * The word ${offset} bytes into memory of ${bytes} that begins with an object of ${type}. What is larger
 * than the type is an array of it. ${slack} is how much larger than asked for the memory may be. False:
 * the type has no word there.
 */
bool hl_symbols_member_find(const Dwarf_Die *type, uint64_t bytes, uint64_t slack, uint64_t offset,
			    struct hl_symbols_member *ret_member);

/* Whether ${type} is but declared: its file has it elsewhere, or another one. */
bool hl_symbols_type_is_declared(const Dwarf_Die *type);

/* What a class, structure or union is called with its scopes; 0: it has no name, or ${type} is
 * none. 0 or -ENOMEM. */
int hl_symbols_type_name(const Dwarf_Die *type, struct hl_strings *strings, uint32_t *ret_name);

/* ${type} without qualifiers and typedefs. False: it is void, or leads nowhere. */
bool hl_symbols_type_peel(Dwarf_Die *type);

/* 0: not known. */
uint64_t hl_symbols_type_bytes(const Dwarf_Die *type);

/* ---- plumbing ---- */

/*
 * Allocation plumbing: functions that allocate on behalf of their callers, and so say nothing about
 * who wanted the memory. operator new, the containers of C++ and Rust, wrappers such as xmalloc.
 *
 * A stack ends with a run of such frames, as long as every frame matches a pattern of the table in
 * plumbing.c or of the traits of a guest or an allocator, or is a function without a name that plumbing of the same file calls (stripped programs
 * have names for what they export alone), or lies in a file that is plumbing as a whole: heapline's own
 * recorder, which passes on what an allocator that it has wrapped asks malloc() for, and libffi. Folding gives what the run allocated to the frame outside of it; frames further
 * out are never touched. A stack that consists of plumbing alone keeps its outermost frame.
 */

#define HL_PLUMBING_PATTERNS_MAX  704
#define HL_PLUMBING_OF_OTHERS_MAX 192 /* of these, those of guests and allocators */

/* The patterns by their first byte: indices from 1; 0 ends a list. */
struct hl_plumbing {
	uint16_t first[UINT8_MAX + 1]; /* by byte */
	uint16_t count;
	const char *patterns[HL_PLUMBING_PATTERNS_MAX];
	uint16_t next[HL_PLUMBING_PATTERNS_MAX]; /* by pattern: the next one with the same byte */
};

void hl_plumbing_init(struct hl_plumbing *plumbing);

/* Whether the function ${name}, demangled where it was mangled, is plumbing. */
bool hl_plumbing_matches(const struct hl_plumbing *plumbing, const char *name);

/*
 * Whether the function ${name} of the file ${module}, or of the script ${source}, is what a host of services runs each of
 * them by: where a stack of a service begins with a run of such, they are in every stack, and say nothing.
 */
bool hl_plumbing_runs_services(const char *name, const char *module, const char *source);

/*
 * Whether all functions of the file ${path} are plumbing: the recorder, and libraries that call a
 * function for somebody else (libffi).
 */
bool hl_plumbing_is_module(const char *path);
