/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes the regions that the collector hands out. */
#pragma once

#include "region/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What every region of a recording says to its recorder. */
struct hl_region_settings {
	enum hl_mode mode;
	bool mappings;
	bool sizes;
	bool no_scripts; /* interpreters are not looked for */
	bool no_objects; /* of interpreters */
	bool lossy;	 /* full rings drop events */
	bool leaks;	 /* processes that exit have their lost blocks looked for */
	bool follow;	 /* programs that the target starts are recorded, too */
	uint64_t sample_bytes;
	uint64_t spare_sample_bytes; /* see header.spare_sample_bytes */
};

struct hl_region {
	struct hl_region_header *header; /* start of the mapping */
	size_t bytes;
	int fd;				/* its memfd */
	struct hl_region_header layout; /* as laid out, where the target cannot write */
};

/*
 * Makes a region and maps it. It takes at most an eighth of ${address_space_limit} (UINT64_MAX: no
 * limit), since the target maps it, too. ${memfd} is an empty one to hold it, which is taken over
 * also on failure; -1: one is made. 0 or a negative errno: -EBADFD when ${memfd} is not an empty memfd
 * whose size can be sealed.
 */
int hl_region_make(const struct hl_region_settings *settings, uint64_t address_space_limit,
		   int memfd, struct hl_region *ret_region);

/* Unmaps and closes it; the target's own mapping is its own. */
void hl_region_release(struct hl_region *region);

/* ---- time stamps ---- */

/* Whether the kernel relies on the time stamp counter, as the file at ${path} says; for tests. */
bool hl_time_stamps_are_clock(const char *path);
