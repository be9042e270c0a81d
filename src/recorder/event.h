/* SPDX-License-Identifier: BSD-2-Clause */
/* What allocations, frees and mappings do to the counters. The caller is inside hl_thread_enter()
 * .. hl_thread_leave(); see thread.h. */
#pragma once

#include "recorder/recorder.h"

/* The mode with its flags. It may change at any time, so each event reads it once. */
static inline uint32_t hl_event_mode(const struct hl_recorder *recorder)
{
	return atomic_load_explicit(&recorder->region.header->mode, memory_order_relaxed);
}

/* Whether blocks that are allocated in ${mode} go into the array of the block table, which is made
 * if need be. Without memory for it the hash takes all. */
bool hl_event_wants_array(struct hl_recorder *recorder, uint32_t mode);
/* The same of objects, for which it need not be known what malloc() sets aside. */
bool hl_event_wants_objects(struct hl_recorder *recorder, uint32_t mode);

/* ${block} was allocated for a request of ${requested} bytes by the caller at ${caller}. ${place}:
 * hl_event_locate(), asked before the real allocation. */
void hl_event_alloc(struct hl_thread *thread, const void *block, uint64_t requested,
		    const struct hl_registers *caller, const struct hl_recall_slot *place);

/* Has what the caller's stack may be remembered by come into the cache while the allocator works. */
static inline const struct hl_recall_slot *hl_event_locate(struct hl_thread *thread,
							   const struct hl_registers *caller)
{
	return hl_recall_locate(&thread->tables->recall, &thread->tables->walk, caller);
}

struct hl_cell *hl_event_find_ahead(struct hl_thread *thread, const struct hl_registers *caller,
				    const struct hl_recall_slot *place);

/*
 * Before a reallocation: what the thread's interpreters run is asked now and not afterwards, since they
 * may keep it in the very block that moves. Ends with hl_event_look_back(); at most one allocation is
 * recorded in between. True: by hl_event_alloc_ahead(), or it would be looked for twice.
 */
static inline bool hl_event_look_ahead(struct hl_thread *thread, const struct hl_registers *caller,
				       const struct hl_recall_slot *place)
{
	uint32_t mode = hl_event_mode(hl_recorder);

	if (HL_UNLIKELY(mode & (HL_MODE_SCRIPT | HL_MODE_PROBE)))
		thread->ahead = hl_event_find_ahead(thread, caller, place);
	thread->looked_ahead = true;
	return HL_UNLIKELY(thread->ahead);
}

void hl_event_alloc_ahead(struct hl_thread *thread, const void *block, uint64_t requested,
			  const struct hl_registers *caller, const struct hl_recall_slot *place);

static inline void hl_event_look_back(struct hl_thread *thread)
{
	thread->ahead = NULL;
	thread->looked_ahead = false;
	thread->stamp.value = 0;
}

/* ${block} is about to be freed. */
void hl_event_free(struct hl_thread *thread, const void *block);

/* The same in the common case: a block in the array, and a thread without sampling and sizes. False,
 * and nothing has happened, in all others. */
bool hl_event_free_plain(struct hl_thread *thread, const void *block);

/*
 * realloc in two steps: hl_event_take() before the real call, while the block is certainly the
 * caller's, then hl_event_count_free() if the block was freed or moved, or hl_event_put_back() if
 * the call failed.
 */
bool hl_event_take(struct hl_thread *thread, const void *block, struct hl_block *ret_block,
		   uint64_t *ret_usable);
void hl_event_count_free(struct hl_thread *thread, const void *block, struct hl_block it,
			 uint64_t usable);
void hl_event_put_back(struct hl_thread *thread, const void *block, struct hl_block it,
		       uint64_t usable);

/* The same for blocks of an allocator that is not the real malloc, of which ${usable} bytes may be
 * used: as many at the free as at the allocation. */
void hl_event_alloc_sized(struct hl_thread *thread, const void *block, uint64_t requested,
			  uint64_t usable, const struct hl_registers *caller);
void hl_event_free_sized(struct hl_thread *thread, const void *block, uint64_t usable);
/* False, and nothing happens, where no block is known at ${block}. */
bool hl_event_free_known(struct hl_thread *thread, const void *block, uint64_t usable);
bool hl_event_take_sized(struct hl_thread *thread, const void *block, uint64_t usable,
			 struct hl_block *ret_block);

/*
 * Blocks of functions that rules name (region/attached.h) are in the hash, by keys that no other
 * block has: what the allocator cuts from a block of malloc() may begin where that one does. Their
 * usable bytes are those asked for. ${type}: NULL, or a label. _beside(): those of an allocator beside malloc()
 * lie in no block of it, and are in the array, as objects are.
 *
 * Others are pieces: what a pool cuts from larger blocks, and may give back without a word. A piece ends with
 * the block that it lies in, when another is cut where it begins, and when ${pool}, a number that rules give, is
 * reset; 0: it never is.
 */
void hl_event_alloc_ruled(struct hl_thread *thread, const void *block, uint64_t requested,
			  const struct hl_registers *caller, const struct hl_recall_slot *place,
			  const char *type, uint32_t pool);
void hl_event_alloc_beside(struct hl_thread *thread, const void *block, uint64_t requested,
			   const struct hl_registers *caller, const struct hl_recall_slot *place,
			   const char *type);
/* Nothing is counted where no block is known at ${block}. */
void hl_event_free_beside(struct hl_thread *thread, const void *block);
bool hl_event_take_ruled(const void *block, struct hl_block *ret_block);
void hl_event_put_back_ruled(struct hl_thread *thread, const void *block, struct hl_block it,
			     uint32_t pool);
void hl_event_free_ruled(struct hl_thread *thread, const void *block);

/* Like hl_event_alloc_ruled() and hl_event_free_ruled(), but of a piece of a pool that is reset, not 0, without a type: such a program calls
 * little else. ${place}: NULL, where nothing has been located. */
void hl_event_alloc_piece(struct hl_thread *thread, const void *piece, uint64_t requested,
			  const struct hl_registers *caller, const struct hl_recall_slot *place,
			  uint32_t pool);
void hl_event_free_piece(struct hl_thread *thread, const void *piece, uint32_t pool);

/* The same for a block that has been cut from pool ${pool}; see script.h. It is taken and freed as those
 * above. */
void hl_event_alloc_pool(struct hl_thread *thread, const void *block, uint64_t requested,
			 const struct hl_registers *caller, const char *pool);

/*
 * Objects of an interpreter, of up to HL_EVENT_OBJECT_BYTES, which its own allocator cuts from arenas in steps of 16
 * bytes. They are in the array, or in the hash by the keys of ruled blocks, so no block of malloc() is taken
 * for one.
 */
#define HL_EVENT_OBJECT_BYTES 512u

void hl_event_alloc_object(struct hl_thread *thread, const void *block, uint64_t requested,
			   const struct hl_registers *caller, const struct hl_recall_slot *place);
/* False, and nothing happens, where no object is known at ${block}. */
bool hl_event_free_object(struct hl_thread *thread, const void *block);
/* Like hl_event_take() and what follows it; taken as ruled blocks are. */
void hl_event_count_free_object(struct hl_thread *thread, const void *block, struct hl_block it);
void hl_event_put_back_object(struct hl_thread *thread, const void *block, struct hl_block it);

/* The pieces that begin in the ${bytes} at ${start} end. */
void hl_event_end_pieces(struct hl_thread *thread, const void *start, uint64_t bytes);

/* ${thread} resets the pool of this number: all pieces of it end. None do where several threads have cut pieces of
 * pools of this kind, of which each thread may have one. */
void hl_event_end_pool(struct hl_thread *thread, uint32_t pool);

/* Whether there have been pieces. */
static inline bool hl_event_has_pieces(void)
{
	return HL_UNLIKELY(hl_event_mode(hl_recorder) & HL_MODE_PIECES);
}

/* Whether ${block} is in the block table, under either key, or holds pieces, or possibly so. */
static inline bool hl_event_may_hold(const void *block)
{
	const struct hl_recorder *recorder = hl_recorder;

	return hl_block_may_hold(&recorder->blocks, block) ||
	       (hl_recorder_has_rules(recorder) &&
		hl_block_may_hold(&recorder->blocks, hl_block_ruled_key(block))) ||
	       hl_event_has_pieces();
}

/* Nothing is recorded now, nothing asked, and no memory to be given back. */
static inline bool hl_event_is_closed(const struct hl_thread *thread)
{
	uint32_t mode = hl_event_mode(hl_recorder);

	return HL_UNLIKELY(!(mode & (HL_MODE_ASKED | HL_MODE_MASK))) && !thread->sampling &&
	       !(mode & HL_MODE_SAMPLED);
}

/* Whether an allocation has no more to do than to pass through, or the free of a block that was not
 * recorded. */
static inline bool hl_event_passes(struct hl_thread *thread, const void *freed)
{
	if (HL_LIKELY(!hl_event_is_closed(thread)) || (freed && hl_event_may_hold(freed)))
		return false;
	thread->last_block = NULL;
	return true;
}

/* Whether ${block} was not recorded, in a thread where that is usual, so that its free has no more
 * to do than to pass through. */
static inline bool hl_event_passes_free(struct hl_thread *thread, const void *block)
{
	if (HL_LIKELY(!thread->sampling && !hl_event_is_closed(thread)) || hl_event_may_hold(block))
		return false;
	thread->last_block = NULL;
	return true;
}

/* Changes when the calling thread's hooks see an allocation. */
static inline uint64_t hl_event_seen(void)
{
	struct hl_thread *thread = hl_thread_self();

	if (!thread)
		return 0;
	return thread->sampling ? (uint64_t)thread->sample_countdown : thread->alloc_events;
}

/* A hook was entered while its thread was in the recorder or in the allocator: by a signal handler,
 * or by the allocator itself. These look the same, so the allocation counts as lost; as it
 * does when the thread could not get a slot. Nothing happens while nothing is recorded. */
void hl_event_nested_alloc(uint64_t requested);
void hl_event_nested_free(const void *block);
void hl_event_nested_free_ruled(const void *block);

/*
 * The caller at ${caller} has mapped [${start}, ${end}), whole pages, by ${way}. What the recorder
 * knew to be there is gone with it.
 */
void hl_event_map(struct hl_thread *thread, uint64_t start, uint64_t end, enum hl_pseudo_frame way,
		  const struct hl_registers *caller);

/* [${start}, ${end}), whole pages, has been unmapped. ${bound}: hl_mappings_next() from before
 * the system was asked to; later mappings at these addresses stay. */
void hl_event_unmap(struct hl_thread *thread, uint64_t start, uint64_t end, uint64_t bound);

/* Adds the thread's share to the total in use, and marks the peak when that has risen by a step. */
void hl_event_flush(struct hl_recorder *recorder, struct hl_thread *thread);
