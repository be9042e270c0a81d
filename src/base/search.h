/* SPDX-License-Identifier: BSD-2-Clause */
/* Binary search. */
#pragma once

#include <stddef.h>

/*
 * How many of ${count} sorted elements come before the one that is looked for: the first index for
 * which ${is_before}, an expression over the index ${i}, is false; ${count} when it is true for
 *all.
 *
 *	size_t at = HL_LOWER_BOUND(i, maps->count, maps->maps[i].end <= address);
 */
#define HL_LOWER_BOUND(i, count, is_before)                   \
	({                                                    \
		size_t low_ = 0, high_ = (count);             \
		while (low_ < high_) {                        \
			size_t i = low_ + (high_ - low_) / 2; \
			if (is_before)                        \
				low_ = i + 1;                 \
			else                                  \
				high_ = i;                    \
		}                                             \
		low_;                                         \
	})
