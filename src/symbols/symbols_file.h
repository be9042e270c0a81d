/* SPDX-License-Identifier: BSD-2-Clause */
/* What symbols.h promises, from the files themselves, and without remembering anything. */
#pragma once

#include "symbols/symbols.h"

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
