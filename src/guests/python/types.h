/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Types of Python's objects, by what their blocks begin with:
 *
 *	head	0, 16 or 32 bytes that the interpreter puts before an object, by the flags of its type
 *	object	the number of references, then the address of the type
 *
 * A type is an object itself, whose type is one as well; the last one of these is its own, and is called "type".
 * The layout is that of CPython 3.8 to 3.14 with the global lock; no symbols are needed.
 */
#pragma once

#include "base/index.h"
#include "base/strings.h"

#include <stddef.h>
#include <stdint.h>

struct hl_memory;

#define HL_PYTHON_HEAD_MAX   32u
#define HL_PYTHON_WORDS	     (HL_PYTHON_HEAD_MAX / 8 + 2) /* of a block, that tell its type */
#define HL_PYTHON_NAME_BYTES 256u

struct hl_python_type {
	uint64_t address;
	uint32_t name;	     /* in hl_python_types.names; 0 if no type lies there */
	uint32_t head_bytes; /* before each of its objects */
	uint32_t body_bytes; /* of an object, without its items; of strings more than some have */
};

/* Initialize the first two members, which must outlive it, and zero the others. */
struct hl_python_types {
	struct hl_memory *memory;
	struct hl_strings *names;
	struct hl_python_type *types; /* also what was not a type, so that it is read once */
	size_t count, capacity;
	struct hl_index index;
};

/*
 * The type of the object in a block that begins with ${count} ${words}: *${ret_type} is its number, in types->types from
 * 1 on; 0 if no object is there, or if nobody refers to it. 0 or -ENOMEM.
 */
int hl_python_types_find(struct hl_python_types *types, const uint64_t *words, size_t count,
			 uint32_t *ret_type);

void hl_python_types_release(struct hl_python_types *types);
