/* SPDX-License-Identifier: BSD-2-Clause */
/* How the recorder gets into a program that is started: where it is, and the environment. */
#pragma once

#include "base/error.h"

#include <stddef.h>

/* What heapline preloads. */
enum hl_preload_library {
	HL_PRELOAD_RECORDER, /* libheapline.so */
	HL_PRELOAD_TAGS,     /* libheapline-tags.so */
};

/*
 * Finds ${library}: what HEAPLINE_RECORDER or HEAPLINE_TAGS names, else beside this executable in
 * its build directory, else in the library directory that belongs to where this executable is
 * installed, else where it was configured to be installed. Writes an absolute path.
 */
int hl_preload_find(enum hl_preload_library library, char *ret_path, size_t capacity,
		    struct hl_error *err);

/*
 * This process' environment with ${library} in front of LD_PRELOAD and the way to the collector, if
 * there is one. To be freed with hl_preload_environment_free; NULL for want of memory.
 */
char **hl_preload_environment(const char *library, const char *socket, const char *token);

void hl_preload_environment_free(char **environment); /* NULL is fine */
