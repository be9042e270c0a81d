/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * On what the names of a module's addresses depend, beside its build id: which files were there,
 * and whom else one could have asked. As long as two descriptions are equal, asking again would
 * give no better names.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Describes them for the file ${path}, whose separate debug file would be found by its build id or
 * by the name ${debug_link} (NULL: none). NULL for want of memory.
 */
json_t *hl_circumstances_new(const char *path, const uint8_t *build_id, size_t build_id_bytes,
			     const char *debug_link);

/* Whether ${recorded}, read from somewhere, is how the file ${path} would be described now. */
bool hl_circumstances_are_those_of(const json_t *recorded, const char *path);
