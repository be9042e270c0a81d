/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs a function in a thread with file descriptors of its own: for those who need one where the
 * program has used up all that it may have.
 */
#pragma once

typedef void hl_apart_fn(void *argument);

/*
 * Runs ${run} with ${argument} and waits for its end. It finds a copy of the program's descriptors,
 * of which it may close any, and shares all else: memory, process, and the caller's thread-local
 * storage, so that it may call nothing of libc. No signal comes meanwhile. 0 or a negative errno.
 */
int hl_apart_run(hl_apart_fn *run, void *argument);
