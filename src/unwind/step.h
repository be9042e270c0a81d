/* SPDX-License-Identifier: BSD-2-Clause */
/* What steps from a frame to its caller have in common on all machines; see hl_arch_step(). */
#pragma once

#include "base/compiler.h"
#include "unwind/arch.h"
#include "unwind/rule.h"
#include "unwind/saved.h"

/* Reads a word of the stack, if it may be read, and keeps it as one that the step depended on. */
HL_READS_STACK static inline bool hl_step_read(struct hl_walk *walk, uint64_t address,
					       struct hl_arch_reads *reads, uint64_t *ret_value)
{
	if (!hl_memory_is_readable(walk, address)) {
		reads->unrepeatable = true; /* it may become readable */
		return false;
	}
	const uint64_t *word = (const uint64_t *)address;
	*ret_value = *word;
	if (reads->count < HL_COUNT_OF(reads->word)) {
		reads->word[reads->count] = word;
		reads->value[reads->count++] = *ret_value;
	} else {
		reads->unrepeatable = true;
	}
	return true;
}

/* The interrupted frame: its program counter has not run yet, so it is looked up as it is. */
static inline enum hl_arch_outcome hl_step_signal(struct hl_walk *walk, struct hl_arch_frame *frame,
						  uint64_t *interrupted_context,
						  struct hl_arch_reads *reads)
{
	uint64_t context = frame->sp;

	reads->unrepeatable = true;
	if (!hl_step_read(walk, context + HL_UCONTEXT_RSP, reads, &frame->sp) ||
	    !hl_step_read(walk, context + HL_UCONTEXT_RBP, reads, &frame->bp) ||
	    !hl_step_read(walk, context + HL_UCONTEXT_RIP, reads, &frame->pc))
		return HL_STEP_LOST;
	*interrupted_context = context;
	return frame->pc ? HL_STEP_OUT : HL_STEP_END;
}
