/* SPDX-License-Identifier: BSD-2-Clause */
/* Attributes under short names, and macros over the extensions that gcc and clang share. */
#pragma once

#include <stddef.h>

#define HL_LIKELY(x)	 __builtin_expect(!!(x), 1)
#define HL_UNLIKELY(x)	 __builtin_expect(!!(x), 0)
#define HL_PRINTF(f, a)	 __attribute__((format(printf, f, a)))
#define HL_CLEANUP(f)	 __attribute__((cleanup(f)))
#define HL_EXPORT	 __attribute__((visibility("default")))
#define HL_HIDDEN	 __attribute__((visibility("hidden"))) /* of data: needs no GOT */
#define HL_COUNT_OF(arr) (sizeof(arr) / sizeof((arr)[0]))

/*
 * Binary search in ${count} sorted elements: the first index for which ${is_before}, an expression
 * over the index ${i}, is false; ${count} when it is true for all.
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
