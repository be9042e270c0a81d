/* SPDX-License-Identifier: BSD-2-Clause */
/* The calling thread by thread-local storage, and its end by a key of libc; see self.h. */
#include "recorder/self.h"

#include "recorder/thread.h"

#include <pthread.h>

__thread struct hl_self hl_self __attribute__((tls_model("initial-exec")));

static pthread_key_t end_key;
static pthread_t main_thread; /* forked children that another thread made have none */

/* Other keys' destructors come after ours, and free: the slot stays for a round of them. */
static void on_thread_end(void *value)
{
	struct hl_thread *thread = value;

	/* A value inherited by a forked child is wiped: not this process' thread. */
	if (thread != hl_thread_self() || atomic_load(&thread->activity) != HL_IDLE)
		return;
	if (!hl_self.waited_for_others && pthread_setspecific(end_key, thread) == 0)
		hl_self.waited_for_others = true;
	else
		hl_thread_end(thread);
}

bool hl_self_init(void)
{
	main_thread = pthread_self();
	/* Early in the program's life, so among the first 32 keys: setting those never allocates.
	 */
	return pthread_key_create(&end_key, on_thread_end) == 0;
}

bool hl_self_is_main(void)
{
	return pthread_equal(pthread_self(), main_thread);
}

void hl_self_begin(struct hl_thread *thread)
{
	hl_thread_become(thread);
	pthread_setspecific(end_key, thread);
}
