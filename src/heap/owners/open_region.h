/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The region of a recorder in another process, copied: header, modules, strings, threads, nodes and
 * cells as they are now. Whoever may read the process' memory may do this; its file, which has no
 * name, is not needed.
 */
#pragma once

#include "collector/region_reader.h"
#include "heap/owners/owner_names.h"

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
