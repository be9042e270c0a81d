/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks that have a mapping of their own: glibc keeps no list of them. They are known by their
 * headers at the beginnings of anonymous mappings, or behind each other where the kernel has
 * joined mappings; glibc's own count says whether all were found.
 */
#pragma once

#include "heap/account.h"

/* Finds and accounts them, in the mappings that no carrier of ${account} has yet. 0, a negative
 * errno, or what the visitor of blocks said. */
int hl_glibc_mmapped_read(struct hl_memory *memory, const struct hl_glibc_common *common,
			  struct hl_account *account);
