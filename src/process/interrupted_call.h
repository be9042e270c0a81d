/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System calls that a stop by ptrace interrupts. Most of them the kernel makes again by itself, with
 * what is left of their timeout. Two kinds it does not leave as they were:
 *
 * - epoll_wait() and its like end with EINTR, see signal(7), which a program need not expect where
 *   no signal came;
 * - nanosleep(), poll(), a futex with a timeout and others go on by restart_syscall(2), which the
 *   program has never called: a seccomp filter may end the program for it, or fail it.
 *
 * Such a call is made again instead, and a relative timeout begins again.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <sys/user.h>

/*
 * Sets ${registers} of the stopped thread ${tid} so that an interrupted call of these kinds is made
 * again when the thread goes on; unless a signal with a handler comes first, which ends it with EINTR
 * as ever. Each stop of any thread has to call this, and to write the registers at once: then this
 * also holds if we are killed. Whether they have changed.
 */
bool hl_interrupted_call_mend(pid_t tid, struct user_regs_struct *registers);
