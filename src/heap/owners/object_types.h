/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Of which types of Python the live blocks of each stack are: the block table of a recorder in the process
 * says where they are, their words say what they are, see heap/python_usage.h.
 */
#pragma once

#include "base/error.h"
#include "base/strings.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Blocks of one stack and one type. */
struct hl_object_type {
	uint32_t number; /* of the stack, see block_owners.h */
	uint32_t
		type; /* in hl_object_types.names: "list"; of blocks that belong to lists "list (parts)" */
	uint64_t blocks;
	uint64_t
		bytes; /* requested ones; of blocks whose size is not known the mean of their stack's */
};

struct hl_object_types {
	struct hl_block_owners *owners; /* names the stacks */
	struct hl_object_type *rows;	/* by stack; none twice */
	size_t count;
	const struct hl_strings *names;
	struct hl_python_usage *usage; /* has them */
};

/*
 * Reads process ${pid} while it goes on, from pages that are in memory. Blocks that are neither objects nor parts of one
 * are in no row. 0; or a negative errno with a sentence, among them -ENODATA when there is no recorder that
 * knows stacks, and -ENOENT when there is no Python.
 */
int hl_object_types_read(pid_t pid, struct hl_object_types **ret_types, struct hl_error *err);

void hl_object_types_free(struct hl_object_types *types); /* NULL is fine */
