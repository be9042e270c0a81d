/* SPDX-License-Identifier: BSD-2-Clause */
/* The list of carriers. */
#include "heap/carriers.h"

#include "base/array.h"

struct hl_carrier *hl_carriers_add(struct hl_carriers *carriers)
{
	if (HL_ARRAY_RESERVE(carriers->carriers, carriers->capacity, carriers->count + 1) < 0)
		return NULL;
	struct hl_carrier *carrier = &carriers->carriers[carriers->count++];
	*carrier = (struct hl_carrier){0};
	return carrier;
}

void hl_carriers_release(struct hl_carriers *carriers)
{
	for (size_t i = 0; i < carriers->count; i++)
		free(carriers->carriers[i].strip);
	free(carriers->carriers);
	*carriers = (struct hl_carriers){0};
}
