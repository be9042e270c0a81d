/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hills of a timeline: maxima that are told apart.
 *
 * A point is a hill when, on the way to any higher point, what is in use falls by a share of the
 * hill's height at least. The highest point always is one; of equal points without such a valley in
 * between, the first is. So a hill's own ups and downs make no further hills, however many there
 * are.
 */
#pragma once

#include "open/history.h"

struct hl_history_hill {
	size_t point; /* index of history->points */
	/* Since the hill before, or the range's beginning, what was in use was lowest at the end of
	 * this point's interval; SIZE_MAX: before the first one. */
	size_t valley;
	int64_t valley_bytes;
	bool valley_is_known; /* not so where the log begins with the hill, and long after the
				 process; valley_bytes is then 0 */
};

/*
 * The hills of the range in order of time; each falls by ${percent} of its height on both sides.
 * ${ret_hills} is to be freed. 0 or -ENOMEM.
 */
int hl_history_hills(const struct hl_history *history, double percent,
		     struct hl_history_hill **ret_hills, size_t *ret_count);
