/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Poisson sampling: each byte asked for is hit with probability 1/mean, independently; a block that
 * is hit is recorded. Sizes are made odd for this, so that blocks of no bytes can be hit, too.
 *
 * A block of s bytes is hit with probability p = 1 - exp(-s/mean), so counting it as 1/p blocks and
 * s/p bytes makes every sum unbiased, whatever the mix of sizes. Counters are whole numbers: a
 * count w is rounded up with probability equal to its fraction, by a random number that the block
 * table keeps with the block, so that the free of the block removes exactly what its allocation
 * added. The address alone would not do: programs get the same few addresses again and again.
 */
#pragma once

#include "base/machine.h"
#include "recorder/recorder.h"

struct hl_weight {
	uint64_t bytes, objects;
};

/* Draws the thread's first distance. ${mean} 0: nothing will be hit. */
void hl_sample_start(struct hl_thread *thread, uint64_t mean);

/* Draws the distance to the next sample, from the point that was hit. */
void hl_sample_next(struct hl_thread *thread, uint64_t mean);

/* The random number of a block that was hit, for hl_block.draw; not 0. */
uint32_t hl_sample_draw(struct hl_thread *thread);

/* What the sampled block at ${address} counts for. */
struct hl_weight hl_sample_weight(uint64_t mean, const void *address, struct hl_block block);

/* Goes the distance of a block of ${requested} bytes. Whether it is hit: then hl_sample_next() is due. */
static inline bool hl_sample_hits(struct hl_thread *thread, uint64_t requested)
{
	thread->sample_countdown -= (int64_t)(requested | 1);
	return thread->sample_countdown <= 0;
}

/* Undoes that. */
static inline void hl_sample_go_back(struct hl_thread *thread, uint64_t requested)
{
	thread->sample_countdown += (int64_t)(requested | 1);
}

/* True when an allocation of ${requested} bytes by ${thread}, the calling one or NULL, is not sampled
 * and may pass through. */
static inline bool hl_sample_thread_passes(struct hl_thread *thread, uint64_t requested)
{
	if (HL_LIKELY(!thread || !thread->sampling))
		return false;
	/* The allocator calls itself, for a request that has been counted. */
	if (HL_UNLIKELY(hl_self_is_nested()))
		return true;
	/* Larger than the address space: it will fail, so no distance has been gone. */
	if (HL_UNLIKELY(requested >> HL_ADDRESS_BITS))
		return false;
	return HL_LIKELY(!hl_sample_hits(thread, requested));
}

/* The same of the calling thread. */
static inline bool hl_sample_passes(uint64_t requested)
{
	return hl_sample_thread_passes(hl_thread_self(), requested);
}
