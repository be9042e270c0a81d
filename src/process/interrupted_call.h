/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System calls that a stop by ptrace interrupts. Most of them the kernel makes again by itself, with
 * what is left of their timeout. epoll_wait() and its like end with EINTR instead, see signal(7),
 * which a program need not expect where no signal came: such a call is made again from its instruction
 * on, and a timeout begins again.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <sys/user.h>

/* Whether ${registers}, of the stopped thread ${tid}, are those after such a call, and no signal is on
 * its way that explains its end. */
bool hl_interrupted_call_ended(pid_t tid, const struct user_regs_struct *registers);

/* Sets ${registers} back to before the call. */
void hl_interrupted_call_repeat(struct user_regs_struct *registers);

/* Undoes that: the call has ended with EINTR. */
void hl_interrupted_call_end(struct user_regs_struct *registers);

/* Whether a signal is on its way that ${tid} does not block; true if that cannot be read. */
bool hl_interrupted_call_has_signal(pid_t tid);
