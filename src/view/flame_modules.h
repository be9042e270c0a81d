/* SPDX-License-Identifier: BSD-2-Clause */
/* The modules of a flame graph by the area that they cover, each with a colour of its own. */
#pragma once

#include "view/flame_layout.h"

struct hl_flame_modules {
	uint32_t *by_area; /* modules of the profile that have frames, largest area first */
	size_t count;
	unsigned *colors; /* by module of the profile: index of HL_VIEW_PALETTE_MODULE */
};

/*
 * A module's colour goes by its file name, so that it has the same one in most pictures; where two
 * would share one the smaller takes the next free. 0 or -ENOMEM, after which ${modules} is all
 * zero.
 */
int hl_flame_modules_init(struct hl_flame_modules *modules, const struct hl_profile *profile,
			  const struct hl_flame_layout *layout);

void hl_flame_modules_release(
	struct hl_flame_modules *modules); /* a zero-initialized one is fine */
