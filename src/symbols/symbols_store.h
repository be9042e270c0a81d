/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The directory where the names of a module's addresses are kept between runs:
 * $XDG_CACHE_HOME/heapline/symbols, else $HOME/.cache/heapline/symbols. It is nothing to rely on:
 * where it cannot be had, nothing is kept.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "off" in this environment variable turns it off. */
#define HL_SYMBOLS_STORE_SWITCH "HEAPLINE_SYMBOL_CACHE"

/* What is kept at most, in all. */
#define HL_SYMBOLS_STORE_BYTES ((uint64_t)256 << 20)

/* Room for the file name of any build id. */
#define HL_SYMBOLS_STORE_NAME_MAX 72

/*
 * Opens the directory, to be closed by the caller; ${create}: makes it where it is missing. A
 * directory that belongs to another user is not used: what root keeps in a user's home, the user
 * could not remove, and what a user keeps, root should not trust. A negative errno when there is
 * none.
 */
int hl_symbols_store_open(bool create);

/* The name in it of the file of a module; false for a build id of unusual length. */
bool hl_symbols_store_name(const uint8_t *build_id, size_t build_id_bytes,
			   char ret_name[HL_SYMBOLS_STORE_NAME_MAX]);

/* Removes the files that were written longest ago until the rest has at most ${bytes_max}. */
void hl_symbols_store_trim(int directory_fd, uint64_t bytes_max);
