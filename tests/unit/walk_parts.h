/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of test_walk.c share. */
#pragma once

#include "base/compiler.h"

#define NOINLINE __attribute__((noinline))

#define DEBUG_FRAME_DEPTH 5u

unsigned debug_frame_inner(void (*callback)(void), unsigned depth);
unsigned debug_frame_outer(void (*callback)(void));
unsigned plugin_call(void (*callback)(void));
