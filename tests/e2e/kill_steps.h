/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Has a tool that enters processes end by SIGKILL at a chosen step: before or after one of its requests
 * to ptrace(2), of its writes at an offset, of its changes of a scheduling policy, or of its calls that take in a child. For programs
 * linked with kill_steps_link_args of tests/meson.build.
 */
#pragma once

/* The calling process ends at its ${step}th step from now; 0: at none. What it forks does not. */
void kill_at_step(long step);

/* How many steps the process has gone since. */
long steps_gone(void);
