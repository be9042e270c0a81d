/* SPDX-License-Identifier: BSD-2-Clause */
/* Records what programs tell of their pools; see hooks.h. */
#include "recorder/hooks.h"

#include "recorder/event.h"
#include "recorder/sample.h"
#include "recorder/thread.h"

void hl_pools_alloc(const char *pool, const void *block, size_t size,
		    const struct hl_registers *caller)
{
	if (!block || !pool || hl_sample_passes(size))
		return;
	struct hl_thread *thread = hl_thread_enter();
	if (!thread) {
		hl_event_nested_alloc(size);
		return;
	}
	if (!hl_event_passes(thread, NULL))
		hl_event_alloc_pool(thread, block, size, caller, pool);
	hl_thread_leave(thread);
}

void hl_pools_unmap(const void *start, size_t bytes)
{
	struct hl_thread *thread = hl_recorder_is_running(hl_recorder) && hl_event_has_pieces()
					   ? hl_thread_enter()
					   : NULL;

	if (!thread)
		return;
	hl_event_end_pieces(thread, start, bytes);
	hl_thread_leave(thread);
}

void hl_pools_free(const void *block)
{
	if (!block)
		return;
	struct hl_thread *thread = hl_thread_enter();
	if (!thread) {
		hl_event_nested_free_ruled(block);
		return;
	}
	hl_event_free_ruled(thread, block);
	hl_thread_leave(thread);
}
