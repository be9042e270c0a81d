/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How far long work has come. Whoever wants to know embeds the struct and passes it down; whoever
 * works reports, as often as it likes, and need not know whether anybody watches.
 */
#pragma once

#include <stdint.h>

struct hl_progress {
	/* ${what}: a phrase such as "naming functions"; ${done} of ${all} units of whatever kind.
	 */
	void (*report)(struct hl_progress *progress, const char *what, uint64_t done, uint64_t all);
};

/* ${progress} may be NULL. */
static inline void hl_progress_report(struct hl_progress *progress, const char *what, uint64_t done,
				      uint64_t all)
{
	if (progress)
		progress->report(progress, what, done, all);
}
