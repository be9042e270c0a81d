/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Libraries that are loaded when they are needed: with what they bring along, each start of heapline would take longer, and one
 * for each recorded program is often the collector.
 */
#pragma once

#include "base/error.h"

#include <stddef.h>

/* For lists of functions, #define LIST(FUNCTION) FUNCTION(open) ...: LIST(HL_LIBRARY_NAME) are the names. */
#define HL_LIBRARY_NAME(name) #name,

/*
 * Loads ${library} for the rest of the process and fills ${ret_functions}, a struct of pointers to functions alone, with the ones that
 * are called ${prefix} and each of the ${count} ${names}. 0, or -ENOENT with a sentence: ${purpose} ("serve") cannot be had, and
 * ${package} of Debian brings the library.
 */
int hl_library_load(const char *library, const char *prefix, const char *const *names, size_t count,
		    void *ret_functions, const char *purpose, const char *package,
		    struct hl_error *err);
