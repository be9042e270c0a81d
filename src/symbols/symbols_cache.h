/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The names that the addresses of a module had in earlier runs, in one file for each build id in
 * a directory of their own. Names from DWARF stay; others are used only until something
 * changes that could make them better. docs/format.md describes the file.
 */
#pragma once

#include "symbols/symbols_file.h"

#include <jansson.h>

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
