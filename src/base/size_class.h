/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Size classes: blocks by the power of two of their requested size. Class 0 is size 0, class c > 0
 * the sizes of c binary digits: 1, 2-3, 4-7, 8-15 ...
 */
#pragma once

#include <stdint.h>

#define HL_SIZE_CLASS_COUNT 65u

static inline uint32_t hl_size_class(uint64_t size)
{
	return size ? 64u - (uint32_t)__builtin_clzll(size) : 0;
}

/* The smallest size in ${size_class}. */
static inline uint64_t hl_size_class_first(uint32_t size_class)
{
	return size_class ? UINT64_C(1) << (size_class - 1) : 0;
}

/* The largest one. */
static inline uint64_t hl_size_class_last(uint32_t size_class)
{
	return size_class ? hl_size_class_first(size_class) * 2 - 1 : 0;
}
