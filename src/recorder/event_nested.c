/* SPDX-License-Identifier: BSD-2-Clause */
/* Events in the midst of another one: of the allocator's own calls, of signal handlers, and of threads without a slot; see event.h. */
#include "recorder/event_parts.h"

/* For threads that have no slot, because there was no memory or no number left for one. */
static void count_lost_in_header(struct hl_recorder *recorder, uint64_t bytes)
{
	struct hl_region_header *header = recorder->region.header;

	atomic_fetch_add_explicit(&header->lost.events, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&header->lost.bytes, bytes, memory_order_relaxed);
}

/* In the image the calls that the allocator makes of itself come by the hooks, too: realloc(NULL)
 * that is a malloc(), for one. Those of a signal handler that interrupted it look the same. */
static bool is_of_allocator(const struct hl_thread *thread)
{
#ifdef HL_ATTACHED
	return thread &&
	       atomic_load_explicit(&thread->activity, memory_order_relaxed) == HL_IN_ALLOCATOR;
#else
	(void)thread;
	return false;
#endif
}

void hl_event_nested_alloc(uint64_t requested)
{
	struct hl_recorder *recorder = hl_recorder;

	if (!hl_recorder_is_running(recorder) ||
	    hl_mode_of(hl_event_mode(recorder)) == HL_MODE_CLOSED)
		return;
	struct hl_thread *thread = hl_thread_self();
	if (is_of_allocator(thread))
		return;
	if (hl_thread_is_inside(thread))
		hl_event_lose(thread, requested);
	else
		count_lost_in_header(recorder, requested);
}

/* Like hl_block_try_take(), of ${block} by ${key}. */
static bool try_take(struct hl_recorder *recorder, const void *block, const void *key,
		     uint64_t usable, struct hl_block *ret_block, bool *ret_busy)
{
	*ret_busy = false;
	return (key != block && hl_event_take_object(block, ret_block)) ||
	       hl_block_try_take(&recorder->blocks, key, usable, ret_block, ret_busy);
}

/* A free by a thread without a slot. */
static void lose_free(struct hl_recorder *recorder, const void *block, const void *key,
		      uint64_t usable)
{
	struct hl_block it = {0};
	bool busy;

	if (try_take(recorder, block, key, usable, &it, &busy) || busy)
		count_lost_in_header(recorder, it.requested);
}

/*
 * A free in the middle of a call of the allocator: its thread holds no lock of ours and can wait for
 * one. A handler has to give up on a busy shard; that would lose free after free here while the shard's
 * holder waits for a processor.
 */
static void free_in_allocator(struct hl_recorder *recorder, struct hl_thread *thread,
			      const void *block, const void *key, uint64_t usable)
{
	struct hl_block it;

	hl_thread_set(thread, HL_RECORDING); /* a handler is not to wait for it */
	if ((key != block && hl_event_take_object(block, &it)) ||
	    hl_block_take(&recorder->blocks, key, usable, &it))
		hl_event_count_free(thread, block, it, key == block ? usable : it.requested);
	if (key == block && hl_event_has_pieces())
		hl_event_end_pieces(thread, block, usable);
	hl_thread_set(thread, HL_IN_ALLOCATOR);
}

/* ${key}: of ${block}, in the block table. */
static void free_nested(struct hl_recorder *recorder, const void *block, const void *key,
			uint64_t usable)
{
	struct hl_thread *thread = hl_thread_self();
	struct hl_pending_free pending = {.address = block, .usable = usable};
	bool busy;

	if (!hl_thread_is_inside(thread)) {
		lose_free(recorder, block, key, usable);
		return;
	}
	if (is_of_allocator(thread)) {
		free_in_allocator(recorder, thread, block, key, usable);
		return;
	}
	if (!try_take(recorder, block, key, usable, &pending.block, &busy)) {
		if (busy)
			hl_event_lose(thread, 0);
		return;
	}
	if (key != block)
		pending.usable = pending.block.requested;
	uint32_t count = atomic_load_explicit(&thread->pending_count, memory_order_relaxed);
	if (count == HL_PENDING_MAX) {
		hl_event_lose(thread, pending.block.requested);
		return;
	}
	thread->pending[count] = pending;
	atomic_signal_fence(memory_order_release);
	atomic_store_explicit(&thread->pending_count, count + 1, memory_order_relaxed);
}

void hl_event_nested_free(const void *block)
{
	struct hl_recorder *recorder = hl_recorder;

	if (!hl_recorder_is_running(recorder))
		return;
	if ((hl_block_may_hold(&recorder->blocks, block) || hl_event_has_pieces()) &&
	    !hl_event_entry_of_object(block))
		free_nested(recorder, block, block, hl_libc_usable_size(block));
	if (hl_recorder_has_rules(recorder))
		hl_event_nested_free_ruled(block);
}

void hl_event_nested_free_ruled(const void *block)
{
	struct hl_recorder *recorder = hl_recorder;
	const void *key = hl_block_ruled_key(block);

	if (hl_recorder_is_running(recorder) &&
	    (hl_event_entry_of_object(block) || hl_block_may_hold(&recorder->blocks, key)))
		free_nested(recorder, block, key, 0);
}
