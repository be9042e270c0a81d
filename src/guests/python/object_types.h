/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Of which types of Python the live blocks of each stack are: the block table of a recorder in the process
 * says where they are, their words say what they are, see usage.h.
 */
#pragma once

#include "base/error.h"
#include "heap/owners/block_owners.h"

#include <sys/types.h>

/*
 * Reads process ${pid} while it goes on, from pages that are in memory. Labels are types: "list"; of
 * blocks that belong to lists "list (parts)". Blocks that are neither objects nor parts of one
 * are in no row. ${owners}: as hl_inuse_labels_open() gives them. 0; or a negative errno with a sentence, -ENOENT
 * when there is no Python.
 */
int hl_object_types_read(pid_t pid, struct hl_block_owners *owners,
			 struct hl_inuse_labels **ret_types, struct hl_error *err);
