/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Has all threads of a process stand still for a moment, by ptrace: unlike a stop signal, its
 * parent does not see it. If heapline dies meanwhile, the kernel lets them go on.
 */
#pragma once

#include "base/error.h"

#include <sys/types.h>

struct hl_stop;

/*
 * Stops all threads of ${pid}, those too that begin meanwhile. 0; -EBUSY when it is traced already;
 * -EACCES; -ESRCH; -ETIMEDOUT when a thread does not stop, as it hangs in the kernel; -ENOMEM. With
 * a sentence, and nothing is stopped then. hl_stop_end is to be called by the same thread.
 */
int hl_stop_begin(pid_t pid, struct hl_stop **ret_stop, struct hl_error *err);

/* Lets them go on; signals that came meanwhile are delivered. NULL is fine. */
void hl_stop_end(struct hl_stop *stop);
