/* SPDX-License-Identifier: BSD-2-Clause */
/* What happens around fork(); see fork.h. */
#include "recorder/fork.h"

#include "recorder/kin.h"
#include "recorder/recorder.h"
#include "recorder/sys.h"

#include <pthread.h>

/* Whether the calling thread is in an event, so that only a signal handler can be forking. */
static bool is_interrupted(void)
{
	struct hl_thread *thread = hl_this_thread;
	return thread && atomic_load_explicit(&thread->activity, memory_order_relaxed) > HL_IDLE;
}

static void before_fork(void)
{
	if (!is_interrupted())
		return;
	hl_private_map_keep(hl_this_thread, sizeof(*hl_this_thread));
	hl_private_map_keep(hl_recorder, sizeof(*hl_recorder));
}

static void after_fork_in_parent(void)
{
	if (!is_interrupted())
		return;
	hl_private_map_wipe(hl_this_thread, sizeof(*hl_this_thread), false);
	hl_private_map_wipe(hl_recorder, sizeof(*hl_recorder), true);
}

static void after_fork_in_child(void)
{
	if (!is_interrupted())
		return;
	/* In the place of the region, which the parent goes on using, is one that is closed and
	 * full. */
	hl_private_map_replace();
	hl_kin_leave();
	hl_private_map_separate(hl_this_thread, sizeof(*hl_this_thread));
	hl_private_map_separate(hl_recorder, sizeof(*hl_recorder));
	/* Nobody reads its rings. */
	atomic_store(&hl_recorder->region.header->flags, HL_REGION_LOSSY);
	atomic_store(&hl_recorder->phase, HL_PHASE_OFF);
	hl_this_thread = NULL;
}

bool hl_fork_init(void)
{
	return pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
}
