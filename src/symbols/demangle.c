/* SPDX-License-Identifier: BSD-2-Clause */
/* Turns mangled C++ and Rust names into what the programmer wrote; libiberty does the work. */
#include "symbols/symbols.h"

#include "base/compiler.h"

#include <libiberty/demangle.h>
#include <stdlib.h>
#include <string.h>

/* What compilers append to the name of a function that they split or copied. */
static const char *const clone_suffixes[] = {
	".cold", ".constprop.", ".isra.", ".llvm.", ".lto_priv.", ".part.",
};

/* Length of ${name} without them. */
static size_t length_without_clones(const char *name)
{
	size_t length = strlen(name);

	for (size_t i = 0; i < HL_COUNT_OF(clone_suffixes); i++) {
		const char *suffix = strstr(name, clone_suffixes[i]);
		if (suffix && suffix != name && (size_t)(suffix - name) < length)
			length = (size_t)(suffix - name);
	}
	return length;
}

static char *demangle(const char *name)
{
	/* AUTO would also take plain C names for those of older schemes. */
	if (strncmp(name, "_Z", 2) && strncmp(name, "_R", 2))
		return NULL;
	return cplus_demangle(name, DMGL_PARAMS | DMGL_ANSI | DMGL_AUTO);
}

char *hl_symbols_demangle(const char *name)
{
	size_t length = length_without_clones(name);

	if (!name[length])
		return demangle(name);
	char *plain = strndup(name, length);
	char *demangled = plain ? demangle(plain) : NULL;
	if (!demangled)
		return plain;
	free(plain);
	return demangled;
}
