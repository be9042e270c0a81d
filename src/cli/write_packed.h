/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes packed recordings where -o says. */
#pragma once

#include "pack/pack.h"

/* Writes ${profile}, loaded with keep_rows, and ${log} (NULL: none) to ${path}. 0 or a negative
 * errno with a sentence. */
int hl_write_packed(const struct hl_profile *profile, const struct hl_pack_log *log,
		    const char *path, struct hl_error *err);
