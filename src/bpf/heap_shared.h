/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs that watch an allocator (heap.bpf.c) and their loader (heap_trace.c) share: the
 * kinds of calls, how a probe says which one it stands for, and what is known of live blocks.
 */
#pragma once

#include "allocators/traits.h"

#include <stdint.h>

/*
 * The cookie of a probe. Bits 0-7: enum hl_heap_call. Bits 8-23: numbers of the registers that hold
 * the arguments, four bits each. Bits 32-63: number of the function.
 */
enum {
	HL_SITE_ARGUMENTS = 8,	       /* first bit */
	HL_SITE_MOVED = 1 << 24,       /* the arguments are not where the ABI has them */
	HL_SITE_THROWS = 1 << 25,      /* an exception may leave the function */
	HL_SITE_CALIBRATION = 1 << 26, /* heapline's own call */
	HL_SITE_FUNCTION = 32,	       /* first bit */
};

/* A block that was handed out and not taken back. */
struct hl_live_block {
	uint64_t stack; /* id; 0: its stack could not be walked */
	uint64_t size;	/* bytes requested */
	uint64_t time;	/* CLOCK_MONOTONIC, ns; 0 unless asked for */
};

/* All allocations of one stack; of samples what they stand for, objects in units of 2^-16. */
struct hl_stack_total {
	uint64_t bytes, objects;
};

#define HL_TOTAL_SHIFT 16u
/* A block larger than HL_SURE_SAMPLE sampling intervals is always taken, and counts as itself. */
#define HL_SURE_SAMPLE 32u

/* One processor's state. */
struct hl_heap_processor {
	int64_t sample_countdown; /* bytes until the next sample */
	uint64_t last_freed;	  /* address of a block */
};

/* One processor's share. */
struct hl_heap_counters {
	uint64_t calls[HL_HEAP_CALIBRATION + 1]; /* as probes see them */
	uint64_t requested_bytes;		 /* by them */
	uint64_t unmatched_frees;		 /* of blocks that are not in the table */
	uint64_t lost_events;			 /* blocks that did not fit in, and their bytes */
	uint64_t lost_bytes;
	uint64_t too_large_events; /* calls of functions that throw, let pass unwatched */
	uint64_t too_large_bytes;
};

/* Points between which the table of logarithms is interpolated. */
#define HL_LOG2_STEPS 64u
#define HL_LOG2_SHIFT 16u /* of its fixed-point numbers */
