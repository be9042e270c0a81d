/* SPDX-License-Identifier: BSD-2-Clause */
/* Tags that a program sets by itself: hl_tag_push(), hl_tag_pop(). In-process code. */
#pragma once

#include <stdint.h>

#define HL_TAG_DEPTH_MAX \
	16u /* tags remembered within each other; deeper ones are not told apart \
	     */

struct hl_tag_stack {
	uint32_t depth; /* pushes without a pop, also those there was no room for */
	uint16_t tags[HL_TAG_DEPTH_MAX];
};

extern __thread struct hl_tag_stack hl_tag_stack __attribute__((tls_model("initial-exec")));

/* The tag of what this thread allocates; 0: none. */
static inline uint32_t hl_tag_current(void)
{
	uint32_t depth = hl_tag_stack.depth;

	if (__builtin_expect(!depth, 1))
		return 0;
	return hl_tag_stack.tags[depth < HL_TAG_DEPTH_MAX ? depth - 1 : HL_TAG_DEPTH_MAX - 1];
}
