/* SPDX-License-Identifier: BSD-2-Clause */
/* Starts threads with all signals blocked; a thread inherits the mask of the one that creates it. */
#include "base/worker.h"

#include <signal.h>
#include <unistd.h>

int hl_worker_start(pthread_t *ret_thread, size_t stack_bytes, void *(*run)(void *), void *argument)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	int error = pthread_attr_init(&attributes);

	if (error)
		return -error;
	if (stack_bytes)
		pthread_attr_setstacksize(&attributes, stack_bytes);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(ret_thread, &attributes, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return -error;
}

unsigned hl_worker_processors(void)
{
	long count = sysconf(_SC_NPROCESSORS_ONLN);

	return count < 1 ? 1 : (unsigned)count;
}
