/* SPDX-License-Identifier: BSD-2-Clause */
/* What happens around fork(); see fork.h. */
#include "recorder/fork.h"

#include "recorder/recorder.h"
#include "recorder/sys.h"

#include <pthread.h>

/* Whether the calling thread is in an event, so that only a signal handler can be forking. */
static bool is_interrupted(void)
{
	struct hl_thread *thread = hl_this_thread;
	return thread && atomic_load_explicit(&thread->activity, memory_order_relaxed) > HL_IDLE;
}

static void advise(int advice)
{
	hl_sys_madvise(hl_this_thread, sizeof(*hl_this_thread), advice);
	hl_sys_madvise(hl_recorder, sizeof(*hl_recorder), advice);
}

static void before_fork(void)
{
	if (is_interrupted())
		advise(MADV_KEEPONFORK);
}

static void after_fork_in_parent(void)
{
	if (is_interrupted())
		advise(MADV_WIPEONFORK);
}

/* Puts memory of the child's own in the place of the region, which its parent goes on using: it
 * reads as a region that is closed and full. */
static void leave_region(struct hl_recorder *recorder)
{
	struct hl_region_header *header = recorder->shared.header;
	if (!header ||
	    hl_sys6(SYS_mmap, (long)header, (long)header->region_bytes, PROT_READ | PROT_WRITE,
		    MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) < 0)
		return;
	/* Nobody reads its rings. */
	atomic_store(&header->flags, HL_REGION_LOSSY);
}

static void after_fork_in_child(void)
{
	if (!is_interrupted())
		return;
	leave_region(hl_recorder);
	atomic_store(&hl_recorder->phase, HL_PHASE_OFF);
	hl_this_thread = NULL;
}

bool hl_fork_init(void)
{
	return pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
}
