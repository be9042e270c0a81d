/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stacks whose innermost frames change from one to the next: walk_path() calls leaf(), which the
 * program defines, through 3 to 7 functions that a path chooses.
 */
#pragma once

#include <stdint.h>

#define PATHS	  4096u
#define VARY_MIN  3u
#define VARY_MAX  7u
#define NOINLINE  __attribute__((noinline))
#define BRANCHES  8u
#define PATH_BITS 3u /* log2 of BRANCHES */

static uint64_t paths[PATHS];
static volatile unsigned sink;

static void leaf(void);

/* Eight functions that differ in the size of their frames; which calls which is the path's choice.
 */
static void branch(unsigned depth, uint64_t path);

#define DEFINE_BRANCH(n)                                               \
	static NOINLINE void branch_##n(unsigned depth, uint64_t path) \
	{                                                              \
		volatile char frame[16 + 24 * n];                      \
		frame[n] = (char)depth;                                \
		if (depth)                                             \
			branch(depth - 1, path >> PATH_BITS);          \
		else                                                   \
			leaf();                                        \
		sink = sink + (unsigned)frame[n];                      \
	}

DEFINE_BRANCH(0)
DEFINE_BRANCH(1)
DEFINE_BRANCH(2)
DEFINE_BRANCH(3)
DEFINE_BRANCH(4)
DEFINE_BRANCH(5)
DEFINE_BRANCH(6)
DEFINE_BRANCH(7)

static inline __attribute__((always_inline)) void branch(unsigned depth, uint64_t path)
{
	static void (*const branches[BRANCHES])(unsigned, uint64_t) = {
		branch_0, branch_1, branch_2, branch_3, branch_4, branch_5, branch_6, branch_7,
	};
	branches[path % BRANCHES](depth, path);
}

static inline __attribute__((always_inline)) void walk_path(uint64_t path)
{
	unsigned varying = VARY_MIN + (unsigned)(path >> 40) % (VARY_MAX - VARY_MIN + 1);

	branch(varying - 1, path);
}

static void make_paths(void)
{
	uint64_t random = 88172645463325252;

	for (unsigned i = 0; i < PATHS; i++) { /* xorshift64 */
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		paths[i] = random;
	}
}
