/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What would harm a target. A function whose return is watched has its return address replaced, and
 * mostly nobody notices. Two do. The C++ runtime finds no way through the replaced address, so that
 * an exception ends the program; of an allocator's functions operator new can throw, when there is
 * no memory. And from kernel 6.11 on that address leads to a system call that filters (seccomp) do
 * not know, so that they end the program; kernel 6.14 exempts it.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Whether the system may refuse memory to ${pid} while the machine has some: limits of the process,
 * or no overcommitment. Then even small requests can fail.
 */
bool hl_caution_memory_is_limited(pid_t pid);

/* Larger requests are refused on any machine like this one: all its memory, in bytes. */
uint64_t hl_caution_request_max(void);

/* Whether returns can be watched in ${pid} without ending it. 0, or -ENOTSUP with a sentence. */
int hl_caution_check_returns(pid_t pid, struct hl_error *err);
