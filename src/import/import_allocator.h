/* SPDX-License-Identifier: BSD-2-Clause */
/* Which functions allocate for their callers, and so stand at the end of every stack. */
#pragma once

#include <stdbool.h>

/* Whether the one called ${function}, in the file ${module_path} ("": none), does. */
bool hl_import_is_allocator(const char *function, const char *module_path);
