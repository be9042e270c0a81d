/* SPDX-License-Identifier: BSD-2-Clause */
/* The roots of glibc by symbols: of the file itself, or of its separate debug file. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct hl_glibc_symbols {
	uint64_t main_arena, mp; /* as virtual addresses of the file; 0: not found */
};

/* Looks in the file ${fd} and, by its build id, below ${debug_directory}. */
struct hl_glibc_symbols hl_glibc_symbols_find(int fd, const char *debug_directory);

/* Whether the file ${fd} has symbols of functions, be they for the loader alone. */
bool hl_glibc_symbols_exist(int fd);
