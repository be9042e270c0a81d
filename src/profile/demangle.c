/* SPDX-License-Identifier: BSD-2-Clause */
/* Turns mangled C++ and Rust names into what the programmer wrote; libiberty does the work. */
#include "profile/symbols.h"

#include <libiberty/demangle.h>
#include <string.h>

char *hl_symbols_demangle(const char *name)
{
	/* AUTO would also take plain C names for those of older schemes. */
	if (strncmp(name, "_Z", 2) && strncmp(name, "_R", 2) && strncmp(name, "_GLOBAL_", 8))
		return NULL;
	return cplus_demangle(name, DMGL_PARAMS | DMGL_ANSI | DMGL_AUTO);
}
