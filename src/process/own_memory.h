/* SPDX-License-Identifier: BSD-2-Clause */
/* Who, in a process, cuts objects from memory that it maps for itself, so that malloc does not show them, and 'heapline
 * attach' does. */
#pragma once

#include "process/maps.h"

#include <stdbool.h>
#include <sys/types.h>

#define HL_OWN_MEMORY_MAX 64 /* bytes of its name, with the NUL */

struct hl_own_memory {
	char what[HL_OWN_MEMORY_MAX]; /* that is recorded, as "the allocator of PHP" */
	const char
		*by_malloc; /* a clause: how to start it so that it allocates by malloc; or NULL */
	/* Of a guest: they are recorded from its next call of malloc on, and are a part of RSS by name. */
	bool is_objects;
};

/* Of the program at ${executable}, and where ${maps} are not NULL, of process ${pid}, whose maps they are. False: there is
 * nothing that is known. */
bool hl_own_memory_find(const char *executable, pid_t pid, const struct hl_maps *maps,
			struct hl_own_memory *ret_own);
