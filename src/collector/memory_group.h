/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory control group of a recorded process. The recorder's memory counts to it, and the kernel kills a process when
 * it reaches its limit.
 */
#pragma once

#include "collector/warnings.h"

#include <stdbool.h>
#include <sys/types.h>

struct hl_memory_group;

/* Looks at the group of ${pid} as it is now. NULL: it cannot be read from here, or there is no memory. */
struct hl_memory_group *hl_memory_group_open(pid_t pid);

/*
 * Whether the kernel has killed processes of the group for want of memory since, which is what may have ended ${pid};
 * ${sentence} says so, with the limit. False where the group has been removed.
 */
bool hl_memory_group_describe_kill(const struct hl_memory_group *group, pid_t pid,
				   char sentence[HL_WARNING_BYTES]);

/* Whether an exact recording of ${pid} may need what is left below the limit; ${sentence} says so. */
bool hl_memory_group_describe_room(const struct hl_memory_group *group, pid_t pid,
				   char sentence[HL_WARNING_BYTES]);

void hl_memory_group_free(struct hl_memory_group *group); /* NULL is fine */
