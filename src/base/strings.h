/* SPDX-License-Identifier: BSD-2-Clause */
/* Strings by number: each text is kept once, so that equal texts have equal ids. */
#pragma once

#include "base/index.h"

/* Zero-initialize for an empty table, in which id 0 is "". */
struct hl_strings {
	const char **texts; /* by id; [0] is unused */
	size_t count, capacity;
	char *block; /* where the next text goes; blocks are linked by their first word */
	size_t block_used, block_bytes;
	struct hl_index index;
};

/* The id of ${text} in ${ret_id}; NULL and "" have 0. 0 or -ENOMEM. */
int hl_strings_intern(struct hl_strings *strings, const char *text, uint32_t *ret_id);

/* The text of ${id}, valid until release. */
const char *hl_strings_text(const struct hl_strings *strings, uint32_t id);

void hl_strings_release(struct hl_strings *strings);
