/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Forks by signal handlers that interrupted the recorder. Elsewhere a forked child finds the
 * recorder's memory wiped and starts again at its first event (recorder.h). But when its handler
 * returns, the child goes on in the middle of the event that was interrupted: there the recorder
 * and its thread must be as they were, and what is counted must reach nobody. Such a child is not
 * recorded; programs that it runs are.
 */
#pragma once

#include <stdbool.h>

/* Once, when there is a recorder. False when there is no memory. */
bool hl_fork_init(void);
