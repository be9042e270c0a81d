/* SPDX-License-Identifier: BSD-2-Clause */
/* Two libraries of test_walk.c: the same function at the same place, with frames of other sizes. */
#include "walk_parts.h"

HL_EXPORT NOINLINE unsigned plugin_call(void (*callback)(void))
{
	volatile unsigned char buffer[PLUGIN_FRAME_BYTES];

	buffer[0] = 1;
	callback();
	return buffer[0];
}
