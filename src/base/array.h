/* SPDX-License-Identifier: BSD-2-Clause */
/* Arrays that grow: their storage doubles, so that appending is cheap. */
#pragma once

#include "base/compiler.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*
 * Makes room for ${needed} elements of ${element_bytes}. ${array} points to the pointer to the
 * storage, which holds *${capacity} elements. 0, or -ENOMEM with both unchanged.
 */
static inline int hl_array_reserve(void *array, size_t *capacity, size_t needed,
				   size_t element_bytes)
{
	void *storage;

	if (HL_LIKELY(needed <= *capacity))
		return 0;
	size_t wanted = *capacity * 2 < needed ? needed : *capacity * 2;
	if (wanted < 16)
		wanted = 16;
	memcpy(&storage, array, sizeof(storage)); /* the pointer's own type is not known here */
	storage = reallocarray(storage, wanted, element_bytes);
	if (!storage)
		return -ENOMEM;
	memcpy(array, &storage, sizeof(storage));
	*capacity = wanted;
	return 0;
}

/* The same, and elements that are new are zero. */
static inline int hl_array_reserve_zeroed(void *array, size_t *capacity, size_t needed,
					  size_t element_bytes)
{
	size_t before = *capacity;
	char *storage;

	if (HL_LIKELY(needed <= before))
		return 0;
	int r = hl_array_reserve(array, capacity, needed, element_bytes);
	if (r < 0)
		return r;
	memcpy(&storage, array, sizeof(storage));
	memset(storage + before * element_bytes, 0, (*capacity - before) * element_bytes);
	return 0;
}

/* The same for ${items}, a pointer to elements, and ${capacity}, both variables. */
#define HL_ARRAY_RESERVE(items, capacity, needed) \
	hl_array_reserve(&(items), &(capacity), (needed), sizeof(*(items)))
#define HL_ARRAY_RESERVE_ZEROED(items, capacity, needed) \
	hl_array_reserve_zeroed(&(items), &(capacity), (needed), sizeof(*(items)))

/* Appends a value to ${items}, which holds ${count}. 0, or -ENOMEM with nothing changed. */
#define HL_ARRAY_APPEND(items, count, capacity, ...)                                    \
	({                                                                              \
		int append_r_ = HL_ARRAY_RESERVE(items, capacity, (size_t)(count) + 1); \
		if (append_r_ == 0)                                                     \
			(items)[(count)++] = (__VA_ARGS__);                             \
		append_r_;                                                              \
	})
