/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compares recalled stacks with freshly walked ones: for tests, and for whoever doubts a stack.
 *
 * HEAPLINE_CHECK_RECALL=N in the environment has each thread compare every Nth stack that it
 * recalls. A difference ends the program: one line on stderr names both stacks, then abort().
 */
#pragma once

#include "recorder/recorder.h"

#ifdef HL_ATTACHED

/* The image has no environment. */
#define hl_recall_check_every 0u

static inline void hl_recall_check(struct hl_recorder *recorder, struct hl_thread *thread,
				   const struct hl_registers *caller, uint32_t node,
				   bool incomplete)
{
	(void)recorder, (void)thread, (void)caller, (void)node, (void)incomplete;
}

static inline void hl_recall_check_release(struct hl_thread *thread)
{
	(void)thread;
}

#else

/* N; 0: nothing is compared. Written at the start only; forked children keep it. */
extern uint32_t hl_recall_check_every;

void hl_recall_check_read_environment(char *const *environment);

/* The stack at ${caller} was recalled: its innermost node is ${node}, and its walk ${incomplete}.
 * Compares it when it is its turn. The walk that recall goes by stays as it is. */
void hl_recall_check(struct hl_recorder *recorder, struct hl_thread *thread,
		     const struct hl_registers *caller, uint32_t node, bool incomplete);

/* Frees what the thread has for comparing. */
void hl_recall_check_release(struct hl_thread *thread);

#endif
