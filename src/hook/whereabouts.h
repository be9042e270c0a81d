/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether a stopped thread is, or will come back to, a range of code. */
#pragma once

#include "hook/remote.h"

#include <stdbool.h>
#include <stdint.h>

struct hl_code_range {
	uint64_t start, end;
};

/* Whether a signal handler of the thread has interrupted it in one of the ranges, whither it will
 * return. What lies deeper than 16 KiB in the stack is not seen. */
bool hl_whereabouts_will_return(const struct hl_remote *remote,
				const struct hl_remote_thread *thread,
				const struct hl_code_range *ranges, size_t count);

/* Whether a word of the thread's stack, that far, points into the inside of one of the ranges, behind
 * its first byte: a return address, if it is not an old one. */
bool hl_whereabouts_may_return(const struct hl_remote *remote,
			       const struct hl_remote_thread *thread,
			       const struct hl_code_range *ranges, size_t count);

static inline bool hl_code_range_holds(const struct hl_code_range *ranges, size_t count,
				       uint64_t address)
{
	for (size_t i = 0; i < count; i++)
		if (address >= ranges[i].start && address < ranges[i].end)
			return true;
	return false;
}
