/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table that Go's linker writes into each program for its own tracebacks, section .gopclntab:
 * where functions begin, and their names. It stays when symbols are left out (-ldflags=-s). Of Go
 * 1.18 and newer (src/internal/abi/symtab.go, src/debug/gosym/pclntab.go of Go).
 *
 * No allocation; reads nothing outside the bytes it was given, which are not trusted.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HL_GO_FUNCTIONS_SECTION ".gopclntab"

struct hl_go_functions {
	const uint8_t *bytes;
	size_t size;
	uint32_t count;
	uint64_t text;	/* the address that functions count from */
	uint64_t names; /* offsets into bytes */
	uint64_t entries;
};

struct hl_go_function {
	uint64_t start, end; /* as addresses of the file */
	const char *name;    /* NULL: damaged; else within the bytes */
};

/* False when the bytes are not such a table. Neither is one whose addresses the loader completes: that
 * of a position-independent program. */
bool hl_go_functions_open(const uint8_t *bytes, size_t size, struct hl_go_functions *ret_functions);

/* The function ${index}, below ${functions}->count; they are sorted. False: damaged. */
bool hl_go_functions_get(const struct hl_go_functions *functions, size_t index,
			 struct hl_go_function *ret_function);

/* The function that holds ${address}. */
bool hl_go_functions_find(const struct hl_go_functions *functions, uint64_t address,
			  struct hl_go_function *ret_function);
