/* SPDX-License-Identifier: BSD-2-Clause */
/* The names of tags: a table in libheapline-tags.so that a walk of the heap reads from outside. */
#pragma once

#include <stdint.h>

#define HL_TAG_NAMES_MAX   1024u /* tags that a program may name */
#define HL_TAG_NAME_BYTES  64u	 /* of a name, with its NUL */
#define HL_TAG_TABLE_MAGIC UINT64_C(0x73676174656c7068)
#define HL_TAG_SYMBOL	   "hl_tag_table" /* in the library's dynamic symbol table */

/* Only ever appended to. Tag i is names[i - 1]; "" as long as it is being written. */
struct hl_tag_table {
	uint64_t magic;
	uint32_t name_bytes; /* HL_TAG_NAME_BYTES */
	_Atomic uint32_t count;
	char names[HL_TAG_NAMES_MAX][HL_TAG_NAME_BYTES];
};
