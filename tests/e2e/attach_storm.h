/* SPDX-License-Identifier: BSD-2-Clause */
/* The ledger that a storm keeps of itself, in memory shared with whoever started it. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define STORM_THREADS_MAX  512
#define STORM_KEPT	   64  /* blocks that each thread keeps at most */
#define STORM_CHILD_BLOCKS 100 /* that each child allocates, and frees */

/* One thread writes, padded to cache lines. */
struct storm_count {
	_Alignas(64) _Atomic uint64_t
		sure;		/* allocations that began and ended while malloc was hooked */
	_Atomic uint64_t maybe; /* while one of both came in between */
	_Atomic uint64_t all;
};

struct storm_ledger {
	_Atomic uint32_t ready; /* threads that run */
	_Atomic uint32_t stop;
	_Atomic uint64_t forks; /* children that have ended */
	_Atomic long steps;	/* of a tool that enters it and is killed */
	struct storm_count counts[STORM_THREADS_MAX];
};

enum storm_kind {
	STORM_THREADS = 1 << 0, /* threads end and others take their places */
	STORM_FORKS = 1 << 1,
	STORM_SIGNALS = 1 << 2,
	STORM_LIBRARIES = 1 << 3, /* dlopen() and dlclose() */
};

/* Allocates and frees in ${threads} threads until ledger->stop. */
void storm(struct storm_ledger *ledger, unsigned threads, unsigned kinds);
