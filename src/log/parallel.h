/* SPDX-License-Identifier: BSD-2-Clause */
/* The same work on many things, on several threads. */
#pragma once

#include "log/log.h"

#include <stddef.h>

/* Does the work on one of the things. Non-zero: no further ones are begun. */
typedef int hl_parallel_work(void *context, size_t index);

/*
 * Calls ${work} for 0 .. ${count} - 1, on as many threads as ${options} say (NULL: as many as there
 * are cores), the calling one among them, and waits. ${what} is for the progress. Returns 0 or, of
 * what was not 0, what stands first.
 */
int hl_parallel(size_t count, const struct hl_log_options *options, const char *what,
		hl_parallel_work *work, void *context);
