/* SPDX-License-Identifier: BSD-2-Clause */
/* Code of test_walk.c built without .eh_frame: only .debug_frame describes its frames. */
#include "walk_parts.h"

NOINLINE unsigned debug_frame_inner(void (*callback)(void), unsigned depth)
{
	volatile unsigned buffer[40];

	buffer[depth] = depth;
	if (depth)
		debug_frame_inner(callback, depth - 1);
	else
		callback();
	return buffer[depth];
}

NOINLINE unsigned debug_frame_outer(void (*callback)(void))
{
	return debug_frame_inner(callback, DEBUG_FRAME_DEPTH) + 1;
}
