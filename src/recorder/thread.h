/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The way into and out of recording, for hooks; and the slots of threads. What happens in between
 * is counted by event.h.
 */
#pragma once

#include "recorder/recorder.h"

/* Starts a forked child's recorder. True when it runs. */
typedef bool hl_thread_start_fn(struct hl_recorder *recorder);

/* Once, by the main thread, before the first thread is entered; a forked child calls ${start_child} at its first event.
 * False when the system has no key left. */
bool hl_thread_init(hl_thread_start_fn *start_child);

/* The slow way into recording: starts a forked child's recorder, gives the thread a slot. NULL =
 * pass through. */
struct hl_thread *hl_thread_enter_slow(void);

/* Handles what signal handlers left in thread->pending. */
void hl_thread_drain(struct hl_thread *thread);

/* Frees the slot of the calling thread, which is about to end. */
void hl_thread_end(struct hl_thread *thread);

#ifdef HL_ATTACHED
/* ${thread} has ended, and was another one than the calling. */
void hl_thread_retire(struct hl_thread *thread);
#endif

/* Whether ${thread}, the calling one or NULL, is there as a whole. In a forked child its tail is not until it has entered, and never where the
 * child is not recorded. */
static inline bool hl_thread_is_whole(struct hl_thread *thread)
{
	return HL_LIKELY(thread && atomic_load_explicit(&thread->activity, memory_order_relaxed) !=
					   HL_NOT_A_THREAD);
}

/* Begins an event, which ${thread}, the calling one or NULL, usually may. False, and nothing has
 * happened, where hl_thread_enter_slow() has to say. */
static inline bool hl_thread_try_enter(struct hl_thread *thread)
{
	if (HL_UNLIKELY(!thread ||
			atomic_load_explicit(&thread->activity, memory_order_relaxed) != HL_IDLE))
		return false;
	hl_thread_set(thread, HL_RECORDING);
	if (HL_LIKELY(thread->in_region))
		return true;
	/* A handler has forked since we looked: this is the child, and all is wiped. */
	hl_thread_set(thread, HL_NOT_A_THREAD);
	return false;
}

/* Begins an event: the calling thread's state, in activity RECORDING; NULL = pass through. */
static inline struct hl_thread *hl_thread_enter(void)
{
	struct hl_thread *thread = hl_thread_self();

	return HL_LIKELY(hl_thread_try_enter(thread)) ? thread : hl_thread_enter_slow();
}

/* Ends an event. False where handlers have left something: then hl_thread_drain() is due. */
static inline bool hl_thread_try_leave(struct hl_thread *thread)
{
	hl_thread_set(thread, HL_IDLE);
	return HL_LIKELY(!atomic_load_explicit(&thread->pending_count, memory_order_relaxed));
}

static inline void hl_thread_leave(struct hl_thread *thread)
{
	if (!hl_thread_try_leave(thread))
		hl_thread_drain(thread);
}
