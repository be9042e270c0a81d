/* SPDX-License-Identifier: BSD-2-Clause */
/* The trail of what heapline does to other processes: one line each time it enters, leaves, stops, probes or asks one. */
#pragma once

#include <sys/types.h>

/*
 * Writes one line about process ${pid} (0: not one alone): ${act}, a word, ${result} (0 or more: it was done, else a negative errno), who runs
 * heapline and by which command. It goes to the system's log (/dev/log, authpriv.notice), or to the end of the file that HEAPLINE_AUDIT names.
 * Never waits for a reader, and what cannot be written is left out: the verb goes on in any case. Changes no errno.
 */
void hl_audit(const char *act, pid_t pid, int result);

/* The same before it is done, where heapline may be killed at it: the result is "begins", and a line with another one follows. */
void hl_audit_begin(const char *act, pid_t pid);
