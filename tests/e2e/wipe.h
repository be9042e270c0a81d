/* SPDX-License-Identifier: BSD-2-Clause */
/* For programs whose tests know each pointer to a block. */
#pragma once

#include "machine.h"

#include <stddef.h>

/* Leaves no copy of a pointer where a root would be seen. */
static __attribute__((noinline)) void wipe(void)
{
	volatile char stack[65536];

	for (size_t i = 0; i < sizeof(stack); i++)
		stack[i] = 0;
	CLEAR_REGISTERS();
}
