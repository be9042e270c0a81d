/* SPDX-License-Identifier: BSD-2-Clause */
/* Compiler attributes under short names; understood by gcc and clang. */
#pragma once

#include <stddef.h>

#define HL_LIKELY(x)	 __builtin_expect(!!(x), 1)
#define HL_UNLIKELY(x)	 __builtin_expect(!!(x), 0)
#define HL_PRINTF(f, a)	 __attribute__((format(printf, f, a)))
#define HL_CLEANUP(f)	 __attribute__((cleanup(f)))
#define HL_EXPORT	 __attribute__((visibility("default")))
#define HL_COUNT_OF(arr) (sizeof(arr) / sizeof((arr)[0]))
