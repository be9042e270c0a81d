/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Symbols of one ELF file: from an address to functions, inlined ones too, with source lines.
 *
 * Looks, best first, at DWARF (in the file, in its separate debug file, or from debuginfod when
 * DEBUGINFOD_URLS is set), the symbol table, the dynamic symbol table; and where nothing names an
 * address, it is `file+0xADDRESS`, the address being where the function begins if unwind tables say
 * so, so that the calls of one nameless function stay together.
 *
 * Names of addresses in files with a build id are kept for the next run, see symbols_cache.h.
 */
#pragma once

#include "base/file_print.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* The general remedy; profile/symbols_advice.h finds the name of the package. */
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
