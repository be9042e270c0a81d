/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads a recorder's block table in another process (region/block_format.h) while that goes on.
 */
#pragma once

#include "region/block_format.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_block_reader;

/*
 * ${array}, ${hash}: where the tables are in process ${pid}; array 0: there is only the hash. What
 * the hash holds is read now. 0, -ENOMEM, -EBADMSG when it makes no sense, or as process_vm_readv.
 */
int hl_block_reader_new(pid_t pid, uint64_t array, uint64_t hash,
			struct hl_block_reader **ret_reader);

bool hl_block_reader_has_array(const struct hl_block_reader *reader);

/* The block at ${address}, of which ${usable} bytes may be used. Fast when called in rising order
 * of address. False when it is in neither table. */
bool hl_block_reader_find(struct hl_block_reader *reader, uint64_t address, uint64_t usable,
			  struct hl_block *ret_block);

/* Gives each block of the hash, in no order. 0, or what ${visit} stopped with. */
int hl_block_reader_each(const struct hl_block_reader *reader,
			 int (*visit)(void *context, struct hl_block block), void *context);

void hl_block_reader_free(struct hl_block_reader *reader); /* NULL is fine */
