/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Around a runtime's allocator of objects; see hooks.h. Compiled with -fno-omit-frame-pointer, see
 * HL_CALLER.
 *
 * The real functions run outside of any event: what they ask malloc() for counts by its own hook, which are
 * large blocks, the arenas' table, and small blocks where no arena can be had. Blocks that it counted
 * are not counted here.
 */
#include "recorder/hooks.h"

#include "recorder/event.h"
#include "recorder/sample.h"
#include "recorder/thread.h"

/* Larger ones, and those of no size, are malloc()'s. */
static inline bool is_small(size_t size)
{
	return size - 1 < HL_EVENT_OBJECT_BYTES;
}

/* ---- the real functions ---- */

static inline void *real_malloc(void *context, size_t size)
{
	hl_self_begin_call();
	void *block = hl_objects_real.malloc(context, size);
	hl_self_end_call();
	return block;
}

static inline void *real_calloc(void *context, size_t number, size_t size)
{
	hl_self_begin_call();
	void *block = hl_objects_real.calloc(context, number, size);
	hl_self_end_call();
	return block;
}

static inline void *real_realloc(void *context, void *block, size_t size)
{
	hl_self_begin_call();
	void *moved = hl_objects_real.realloc(context, block, size);
	hl_self_end_call();
	return moved;
}

static inline void real_free(void *context, void *block)
{
	hl_self_begin_call();
	hl_objects_real.free(context, block);
	hl_self_end_call();
}

/* ---- hooks ---- */

/* Before the real call: of a thread that has been recorded, what hl_event_locate() gives, and a number that
 * changes with each allocation that its hooks record. */
struct before {
	struct hl_thread *thread;
	const struct hl_recall_slot *place;
	uint32_t seen;
};

static inline struct before look(struct hl_thread *thread, const struct hl_registers *caller)
{
	if (!hl_thread_is_whole(thread))
		return (struct before){0};
	return (struct before){thread, hl_event_locate(thread, caller), thread->alloc_events};
}

/* Nothing is recorded now, by a thread that has been. */
static inline bool is_closed(struct hl_thread *thread)
{
	if (!hl_thread_is_whole(thread) || HL_LIKELY(!hl_event_is_closed(thread)))
		return false;
	thread->last_block = NULL;
	return true;
}

static __attribute__((noinline)) void *count_first(void *block, size_t size,
						   const struct hl_registers *caller)
{
	struct hl_thread *thread = hl_thread_enter();

	if (!thread) {
		hl_event_nested_alloc(size);
		return block;
	}
	if (!hl_event_passes(thread, NULL))
		hl_event_alloc_object(thread, block, size, caller, hl_event_locate(thread, caller));
	hl_thread_leave(thread);
	return block;
}

static inline void *count(void *block, size_t size, struct before before,
			  const struct hl_registers *caller)
{
	struct hl_thread *thread = before.thread;

	if (HL_UNLIKELY(!block))
		return NULL;
	if (HL_UNLIKELY(!hl_thread_try_enter(thread)))
		return count_first(block, size, caller);
	bool is_malloced =
		HL_UNLIKELY(thread->alloc_events != before.seen) && thread->last_block == block;
	if (HL_LIKELY(!is_malloced && !hl_event_passes(thread, NULL)))
		hl_event_alloc_object(thread, block, size, caller, before.place);
	hl_thread_leave(thread);
	return block;
}

void *HL_HOOK(object_malloc)(void *context, size_t size)
{
	struct hl_thread *thread = hl_thread_self();

	if (HL_UNLIKELY(!is_small(size)) || hl_sample_thread_passes(thread, size) ||
	    is_closed(thread))
		return real_malloc(context, size);
	const struct hl_registers *caller = HL_CALLER;
	struct before before = look(thread, caller);
	return count(real_malloc(context, size), size, before, caller);
}

void *HL_HOOK(object_calloc)(void *context, size_t number, size_t size)
{
	struct hl_thread *thread = hl_thread_self();
	size_t bytes;

	if (__builtin_mul_overflow(number, size, &bytes) || !is_small(bytes) ||
	    hl_sample_thread_passes(thread, bytes) || is_closed(thread))
		return real_calloc(context, number, size);
	const struct hl_registers *caller = HL_CALLER;
	struct before before = look(thread, caller);
	return count(real_calloc(context, number, size), bytes, before, caller);
}

void HL_HOOK(object_free)(void *context, void *block)
{
	struct hl_thread *thread = block ? hl_thread_enter() : NULL;

	if (HL_LIKELY(thread)) {
		hl_event_free_object(thread, block);
		hl_thread_leave(thread);
	} else if (block) {
		hl_event_nested_free_ruled(block);
	}
	real_free(context, block);
}

/* Takes ${block} off the table: a part of it may be another thread's while it is moved. */
static bool take(void *block, struct hl_block *ret_old)
{
	struct hl_thread *thread = hl_thread_enter();

	if (HL_UNLIKELY(!thread))
		return false;
	bool known = hl_event_take_ruled(block, ret_old);
	hl_thread_leave(thread);
	return known;
}

static void count_free(void *block, struct hl_block old, bool failed)
{
	struct hl_thread *thread = hl_thread_enter();

	if (HL_UNLIKELY(!thread))
		return;
	if (HL_UNLIKELY(failed))
		hl_event_put_back_object(thread, block, old);
	else
		hl_event_count_free_object(thread, block, old);
	hl_thread_leave(thread);
}

/* What was not recorded and stays where it is, stays so: it is malloc()'s, or was there before. */
void *HL_HOOK(object_realloc)(void *context, void *block, size_t size)
{
	struct hl_thread *thread = hl_thread_self();
	struct hl_block old;
	bool known = block && take(block, &old);

	if (!known && !is_small(size))
		return real_realloc(context, block, size);
	const struct hl_registers *caller = HL_CALLER;
	struct before before = look(thread, caller);
	void *moved = real_realloc(context, block, size);
	if (known)
		count_free(block, old, !moved);
	if (!is_small(size) || (block && !known && moved == block) ||
	    hl_sample_thread_passes(thread, size))
		return moved;
	return count(moved, size, before, caller);
}

/* The image has hooks with stubs before them, and leaves arenas alone. */
#ifndef HL_ATTACHED

/* Other things that are allocated as arenas are, stacks of frames for one, are smaller, and mappings as any. */
#define ARENA_BYTES_MIN ((size_t)256 << 10)

static void set_mapping(bool is_arena)
{
	struct hl_thread *thread = hl_thread_self();

	if (hl_thread_is_whole(thread))
		thread->maps_arena = is_arena;
}

static void *arena_allocate(void *context, size_t size)
{
	set_mapping(size >= ARENA_BYTES_MIN);
	void *arena = hl_objects_real_arenas.allocate(context, size);
	set_mapping(false);
	return arena;
}

static void arena_free(void *context, void *arena, size_t size)
{
	set_mapping(size >= ARENA_BYTES_MIN);
	hl_objects_real_arenas.free(context, arena, size);
	set_mapping(false);
}

const struct hl_objects_arenas hl_hooks_arenas = {
	.allocate = arena_allocate,
	.free = arena_free,
};

const struct hl_objects_allocator hl_hooks_objects = {
	.malloc = object_malloc,
	.calloc = object_calloc,
	.realloc = object_realloc,
	.free = object_free,
};

#endif
