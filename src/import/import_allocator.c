/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of allocators and of their functions; see import_allocator.h. */
#include "import/import_allocator.h"

#include "base/compiler.h"
#include "base/path.h"

#include <string.h>

static bool is_one_of(const char *name, const char *const *names)
{
	size_t length = strcspn(name, "("); /* C++ names come with their parameters */

	for (; *names; names++)
		if (strlen(*names) == length && !strncmp(name, *names, length))
			return true;
	return false;
}

/* A C function's name without what allocators and glibc put before it. */
static const char *without_prefixes(const char *name)
{
	static const char *const prefixes[] = {"__GI_", "__libc_", "je_", "tc_"};

	for (size_t i = 0; i < HL_COUNT_OF(prefixes); i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			name += strlen(prefixes[i]);
	return name;
}

/* Whether the function allocates for its callers. */
static bool is_allocator_name(const char *name)
{
	static const char *const names[] = {"aligned_alloc", "calloc",	       "malloc",  "mallocx",
					    "memalign",	     "posix_memalign", "pvalloc", "rallocx",
					    "realloc",	     "reallocarray",   "valloc",  NULL};
	static const char *const operators[] = {
		"operator new",	  "operator new[]",	 "tc_new", "tc_newarray",
		"tc_new_nothrow", "tc_newarray_nothrow", NULL};

	return is_one_of(name, operators) || is_one_of(without_prefixes(name), names);
}

static bool is_allocator_module(const char *path)
{
	const char *name = hl_path_basename(path);

	return !strncmp(name, "libjemalloc", strlen("libjemalloc")) ||
	       !strncmp(name, "libtcmalloc", strlen("libtcmalloc"));
}

bool hl_import_is_allocator(const char *function, const char *module_path)
{
	return is_allocator_name(function) || is_allocator_module(module_path);
}
