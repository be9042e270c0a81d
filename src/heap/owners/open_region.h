/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The region of a recorder in another process, copied: header, modules, strings, threads, nodes and
 * cells as they are now. Whoever may read the process' memory may do this; its file, which has no
 * name, is not needed.
 */
#pragma once

#include "collector/region_reader.h"
#include "heap/owners/owner_table.h"
#include "region/block_format.h"

struct hl_open_region {
	pid_t pid;
	uint64_t address; /* in the process */
	void *base;	  /* of the copy */
	size_t bytes;
	struct hl_region_header layout; /* a copy, checked */
	struct hl_region_view view;
};

/* 0; -ENODATA when there is no recorder in ${pid}, or one of another version; or a negative errno.
 */
int hl_open_region(pid_t pid, const struct hl_owner_names *names,
		   struct hl_open_region *ret_region);

static inline const struct hl_region_header *
hl_open_region_header(const struct hl_open_region *region)
{
	return region->base;
}

/* Copies the header again. 0 or a negative errno. */
int hl_open_region_refresh(struct hl_open_region *region);

void hl_open_region_release(struct hl_open_region *region);

/* ---- block_reader.c: its block table, read while the process goes on ---- */

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
