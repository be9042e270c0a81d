/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the addresses of one module were named before: kept in one file for each build id, in the
 * directory of symbols_store.h. What DWARF named stays; other names are used only while nothing has
 * changed that could make them better. docs/format.md describes the file.
 */
#pragma once

#include "symbols/symbols.h"
#include "symbols/symbols_file.h"

struct hl_symbols_cache;

/*
 * Reads what is known of ${path} with ${build_id}. ${ret_cache} is NULL where nothing may be kept
 * of it: there is no build id, or no directory. A damaged file is no file. 0 or -ENOMEM.
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
 * Says that ${file} was opened, which may give better names: then those that are known are not
 * found any more. 0 or -ENOMEM.
 */
int hl_symbols_cache_meet(struct hl_symbols_cache *cache, const struct hl_symbols_file *file);

/* Adds what ${file}, which must outlive the cache, said of an address. 0 or -ENOMEM. */
int hl_symbols_cache_add(struct hl_symbols_cache *cache, uint64_t address,
			 const struct hl_symbols_frame *frames, size_t count, bool by_dwarf);

/* Writes the file if something was added; if that fails, nothing is kept. NULL is fine. */
void hl_symbols_cache_free(struct hl_symbols_cache *cache);
