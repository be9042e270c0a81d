/* SPDX-License-Identifier: BSD-2-Clause */
/* Names addresses: of files from the names kept of earlier runs, then from the files; of code that runtimes made; see symbols.h. */
#include "symbols/symbols.h"

#include "base/compiler.h"
#include "guests/traits.h"
#include "symbols/symbols_dwarf.h"

#include <ctype.h>
#include <errno.h>
#include <libiberty/demangle.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names of code that runtimes made, in parts ---- */

/* After V8's kind of code: interpreted, baseline, and the optimizing compilers, whose code V8 12 and later marks if it serves all closures
 * of a function. */
#define TIERS		"~^+*"
#define OF_ALL_CLOSURES '\''

/* The function's name after V8's kind and tier; NULL: it is not V8's. */
static char *skip_kind(char *name)
{
	static const char *const kinds[] = {"JS:", "LazyCompile:", "Function:", "Eval:", "Script:"};

	for (size_t i = 0; i < HL_COUNT_OF(kinds); i++) {
		size_t length = strlen(kinds[i]);
		if (strncmp(name, kinds[i], length) != 0 || !name[length])
			continue;
		bool has_tier = strchr(TIERS, name[length]) != NULL;
		name += length + has_tier;
		return name + (has_tier && *name == OF_ALL_CLOSURES);
	}
	return NULL;
}

/* Cuts the number after the last colon off; 0 if there is none, and nothing is cut. */
static uint32_t cut_number(char *text)
{
	char *colon = strrchr(text, ':'), *end;

	if (!colon || !isdigit((unsigned char)colon[1]))
		return 0;
	unsigned long number = strtoul(colon + 1, &end, 10);
	if (*end || number > UINT32_MAX)
		return 0;
	*colon = '\0';
	return (uint32_t)number;
}

/* Where the file begins after a function: names of either may have spaces ("get size"), but a file mostly
 * begins with a slash or its scheme. */
static char *find_file(char *text)
{
	static const char *const starts[] = {" /", " node:", " file:"};
	char *first = NULL;

	for (size_t i = 0; i < HL_COUNT_OF(starts); i++) {
		char *start = strstr(text, starts[i]);
		if (start && (!first || start < first))
			first = start;
	}
	return first ? first : strrchr(text, ' ');
}

static bool is_trace(const char *name)
{
	for (size_t i = 0; hl_guest_traits[i]; i++) {
		const char *start = hl_guest_traits[i]->trace;
		if (start && !strncmp(name, start, strlen(start)))
			return true;
	}
	return false;
}

void hl_symbols_split(char *name, struct hl_symbols_frame *ret_frame)
{
	char *function = skip_kind(name), *file = NULL;
	uint32_t line = 0;

	if (function) {
		/* A column, and a line before it; older versions of V8 write the line alone. */
		uint32_t last = cut_number(function);
		line = last ? cut_number(function) : 0;
		line = line ? line : last;
		file = find_file(function);
	} else if (is_trace(name) && (file = strstr(name, "::"))) {
		*file++ = '\0';
		line = cut_number(file + 1);
	}
	if (file)
		*file++ = '\0';
	if (!function)
		function = name;
	*ret_frame = (struct hl_symbols_frame){
		.function = *function ? function : "(anonymous)",
		.function_file = file ? file : "",
		.function_line = line,
		.file = file ? file : "",
		.line = line,
	};
}

/* ---- symbols of a file ---- */

struct hl_symbols {
	struct hl_symbols_cache *cache; /* NULL: no names of this module are kept */
	struct hl_symbols_file *file;	/* NULL: the known names were enough so far */
	bool used_known, used_file;	/* some name came from there */
	char *mixed_reason;	/* where known names are better than the file's; else NULL */
	char *path, *elsewhere; /* the latter may be NULL */
	uint8_t *build_id;
	size_t build_id_bytes;
	struct hl_file_print print;
};

/* Kept names are better than the file's where it was stripped or deleted since. */
static bool known_is_better(const struct hl_symbols *symbols)
{
	return symbols->cache && hl_symbols_cache_has_names(symbols->cache) &&
	       hl_symbols_cache_source(symbols->cache) > hl_symbols_file_source(symbols->file);
}

static bool shows_known(const struct hl_symbols *symbols)
{
	return !symbols->file || (symbols->used_known && known_is_better(symbols));
}

static int open_file(struct hl_symbols *symbols)
{
	int r = hl_symbols_file_open(symbols->path, symbols->elsewhere, symbols->build_id,
				     symbols->build_id_bytes, &symbols->print, &symbols->file);

	if (r == 0 && symbols->cache)
		r = hl_symbols_cache_meet(symbols->cache, symbols->file);
	if (r < 0 || !known_is_better(symbols))
		return r;
	if (asprintf(&symbols->mixed_reason,
		     "names are kept from an earlier run; of addresses that it did not ask for: %s",
		     hl_symbols_file_reason(symbols->file)) >= 0)
		return 0;
	symbols->mixed_reason = NULL;
	return -ENOMEM;
}

int hl_symbols_open(const char *path, const uint8_t *build_id, size_t build_id_bytes,
		    struct hl_symbols **ret_symbols)
{
	return hl_symbols_open_elsewhere(path, NULL, build_id, build_id_bytes, NULL, ret_symbols);
}

int hl_symbols_open_elsewhere(const char *path, const char *elsewhere, const uint8_t *build_id,
			      size_t build_id_bytes, const struct hl_file_print *print,
			      struct hl_symbols **ret_symbols)
{
	struct hl_symbols *symbols = calloc(1, sizeof(*symbols));
	int r = -ENOMEM;

	if (!symbols)
		return r;
	if (print)
		symbols->print = *print;
	symbols->path = strdup(path);
	symbols->elsewhere = elsewhere ? strdup(elsewhere) : NULL;
	symbols->build_id = malloc(build_id_bytes + 1);
	if (symbols->path && symbols->build_id && (!elsewhere || symbols->elsewhere)) {
		if (build_id_bytes)
			memcpy(symbols->build_id, build_id, build_id_bytes);
		symbols->build_id_bytes = build_id_bytes;
		r = hl_symbols_cache_open(path, build_id, build_id_bytes, &symbols->cache);
	}
	if (r == 0 && (!symbols->cache || !hl_symbols_cache_has_names(symbols->cache)))
		r = open_file(symbols);
	if (r < 0)
		hl_symbols_free(symbols);
	else
		*ret_symbols = symbols;
	return r;
}

static bool find_known(struct hl_symbols *symbols, uint64_t address,
		       const struct hl_symbols_frame **ret_frames, size_t *ret_count)
{
	if (!symbols->cache ||
	    !hl_symbols_cache_find(symbols->cache, address, ret_frames, ret_count))
		return false;
	symbols->used_known = true;
	return true;
}

int hl_symbols_find(struct hl_symbols *symbols, uint64_t address,
		    const struct hl_symbols_frame **ret_frames, size_t *ret_count)
{
	bool by_dwarf;
	int r = 0;

	if (find_known(symbols, address, ret_frames, ret_count))
		return 0;
	if (!symbols->file) {
		r = open_file(symbols);
		if (r == 0 && find_known(symbols, address, ret_frames, ret_count))
			return 0;
	}
	if (r == 0)
		r = hl_symbols_file_find(symbols->file, address, ret_frames, ret_count, &by_dwarf);
	symbols->used_file = true;
	if (r == 0 && symbols->cache)
		r = hl_symbols_cache_add(symbols->cache, address, *ret_frames, *ret_count,
					 by_dwarf);
	return r;
}

enum hl_symbols_source hl_symbols_source(const struct hl_symbols *symbols)
{
	return shows_known(symbols) ? hl_symbols_cache_source(symbols->cache)
				    : hl_symbols_file_source(symbols->file);
}

const char *hl_symbols_reason(const struct hl_symbols *symbols)
{
	if (!shows_known(symbols))
		return hl_symbols_file_reason(symbols->file);
	return symbols->used_file ? symbols->mixed_reason : hl_symbols_cache_reason(symbols->cache);
}

const char *hl_symbols_source_name(enum hl_symbols_source source)
{
	static const char *const names[] = {"none", "dynsym", "symtab", "dwarf"};

	return names[source];
}

void hl_symbols_free(struct hl_symbols *symbols)
{
	if (!symbols)
		return;
	hl_symbols_cache_free(symbols->cache); /* whose texts may be the file's */
	hl_symbols_file_free(symbols->file);
	free(symbols->mixed_reason);
	free(symbols->path);
	free(symbols->elsewhere);
	free(symbols->build_id);
	free(symbols);
}

/* ---- names as the programmer wrote them ---- */

static char *demangle(const char *name)
{
	/* AUTO would also take plain C names for those of older schemes, and leaves out D. */
	if (!strncmp(name, "_D", 2) && isdigit((unsigned char)name[2]))
		return cplus_demangle(name, DMGL_PARAMS | DMGL_DLANG);
	if (strncmp(name, "_Z", 2) && strncmp(name, "_R", 2))
		return NULL;
	return cplus_demangle(name, DMGL_PARAMS | DMGL_ANSI | DMGL_AUTO);
}

char *hl_symbols_demangle(const char *name)
{
	/* What compilers append to the name of a function that they split or copied. */
	static const char *const suffixes[] = {
		".cold", ".constprop.", ".isra.", ".llvm.", ".lto_priv.", ".part.",
	};
	size_t length = strlen(name);

	for (size_t i = 0; i < HL_COUNT_OF(suffixes); i++) {
		const char *suffix = strstr(name, suffixes[i]);
		if (suffix && suffix != name && (size_t)(suffix - name) < length)
			length = (size_t)(suffix - name);
	}
	if (!name[length])
		return demangle(name);
	char *plain = strndup(name, length);
	char *demangled = plain ? demangle(plain) : NULL;
	if (!demangled)
		return plain;
	free(plain);
	return demangled;
}
