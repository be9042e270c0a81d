/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that take no signals: these are for the thread that supervises the program. */
#pragma once

#include <pthread.h>
#include <stddef.h>

/* Starts ${run} with a stack of ${stack_bytes}, 0 for the usual one. 0 or a negative errno. */
int hl_worker_start(pthread_t *ret_thread, size_t stack_bytes, void *(*run)(void *),
		    void *argument);

/* How many threads can run at once: 1 or more. */
unsigned hl_worker_processors(void);
