/* SPDX-License-Identifier: BSD-2-Clause */
/* Arrays that grow: doubles the storage behind a pointer, so that appending is cheap. */
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
