/* SPDX-License-Identifier: BSD-2-Clause */
/* Files of tools that heapline knows and does not read. */
#pragma once

#include "import/importer.h"

/*
 * What ${input} is and what to do with it, to follow "cannot read 'X': it is "; NULL: nothing that
 * is known here. Some of them would pass for folded text, so ask before its reader.
 */
const char *hl_import_foreign(const struct hl_import_input *input);
