/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lends threads of another process a real-time priority, so that they stop at once on a busy machine:
 * a thread stops only when it is scheduled. A child process of ours, the guardian, takes every loan
 * back when we end, even by SIGKILL.
 *
 * Only threads of the usual policy and niceness are lifted, and what they start meanwhile is not.
 */
#pragma once

#include <sys/types.h>

struct hl_guardian;

/* Starts the guardian. 0; -EPERM where priorities may not be changed, which needs CAP_SYS_NICE. */
int hl_guardian_new(struct hl_guardian **ret_guardian);

/* Takes all back, and ends the guardian. NULL is fine, here and below: then nothing is lent. */
void hl_guardian_free(struct hl_guardian *guardian);

/* Puts the calling thread above all that it lifts, until _end(). */
void hl_guardian_begin(struct hl_guardian *guardian);
void hl_guardian_end(struct hl_guardian *guardian);

/* A thread may be lowered that was not lifted, or has ended. */
void hl_guardian_lift(struct hl_guardian *guardian, pid_t tid);
void hl_guardian_lower(struct hl_guardian *guardian, pid_t tid);
