/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts objects of interpreters; see event.h. See decision 53. */
#include "recorder/event_parts.h"
#include "recorder/hooks.h"

struct hl_objects_hooks hl_objects_hooks;
struct hl_objects_allocator hl_objects_real;
struct hl_objects_arenas hl_objects_real_arenas;

#ifndef HL_ATTACHED

void hl_objects_call(hl_objects_allocator_fn *function, int number,
		     struct hl_objects_allocator *allocator)
{
	function(number, allocator);
}

void hl_objects_take(const struct hl_objects_allocator *real)
{
	(void)real;
}

#endif

/* The array's entry for an object that is allocated in ${mode}; NULL: the hash is for it. */
static inline hl_block_entry *entry_for_object(struct hl_recorder *recorder, uint32_t mode,
					       const void *block, uint64_t requested)
{
	hl_block_entry *entry = hl_block_entry_at(&recorder->blocks, block);

	if (HL_UNLIKELY(!hl_mode_has_array(hl_mode_of(mode)) || !hl_block_holds_object(requested)))
		return NULL;
	if (HL_LIKELY(entry))
		return entry;
	return hl_event_wants_objects(recorder, mode)
		       ? hl_block_entry_make(&recorder->blocks, block)
		       : NULL;
}

/* The entry that a new object is to fill; NULL: it is for the hash. ${ret_is_hit}: there for having been hit; what the array had in its
 * place would be found first. */
static inline hl_block_entry *entry_of_new(struct hl_recorder *recorder, struct hl_thread *thread,
					   uint32_t mode, const void *block, uint64_t requested,
					   bool *ret_is_hit)
{
	if (HL_UNLIKELY(!thread->plain || mode & (HL_MODE_ASKED | HL_MODE_SAMPLED)))
		return NULL;
	hl_block_entry *entry = entry_for_object(recorder, mode, block, requested);
	*ret_is_hit = entry && hl_sample_hits(thread, requested);
	if (HL_LIKELY(!*ret_is_hit))
		return entry;
	hl_sample_go_back(thread, requested); /* it goes there with all that goes into the hash */
	struct hl_block stale;
	hl_event_take_object(block, &stale);
	return NULL;
}

static const struct hl_event_kind of_object;

static __attribute__((noinline)) void alloc_any(struct hl_thread *thread, const void *block,
						uint64_t requested,
						const struct hl_registers *caller,
						const struct hl_recall_slot *place)
{
	struct hl_recorder *recorder = hl_recorder;
	const uint32_t mode = hl_event_mode(recorder);
	uint64_t usable = hl_block_object_usable(requested);
	bool is_hit = false;
	hl_block_entry *entry = entry_of_new(recorder, thread, mode, block, requested, &is_hit);

	if (HL_UNLIKELY(!entry))
		hl_event_alloc_in_hash(thread, block, requested, usable, caller, place, NULL,
				       is_hit);
	else
		hl_event_add_or_lose(&of_object, thread, block, requested, entry,
				     hl_event_slack(usable, requested),
				     hl_event_cell_in_mode(recorder, thread, caller, place, mode),
				     mode);
}

static __attribute__((noinline)) void alloc_by_parts(struct hl_thread *thread, const void *block,
						     uint64_t requested,
						     const struct hl_registers *caller,
						     const struct hl_recall_slot *place,
						     hl_block_entry *entry, uint64_t slack)
{
	hl_event_by_parts_of(&of_object, thread, block, requested, caller, place, entry, slack);
}

static __attribute__((noinline)) void alloc_marked(struct hl_thread *thread, const void *block,
						   uint64_t requested,
						   const struct hl_registers *caller, uint64_t tag,
						   hl_block_entry *entry, uint64_t slack)
{
	hl_event_marked_of(&of_object, thread, block, requested, caller, tag, entry, slack);
}

static inline bool read_usable(const void *block, uint64_t requested, size_t *ret_usable)
{
	(void)block;
	*ret_usable = requested + hl_event_slack(hl_block_object_usable(requested), requested);
	return hl_block_holds_object(requested);
}

/* An arena may have gone with what was in it. */
static inline bool takes_object(hl_block_entry *entry)
{
	(void)entry;
	return true;
}

static inline bool set_object(hl_block_entry *entry, const void *block, uint32_t node,
			      uint64_t requested, uint64_t slack)
{
	(void)slack; /* 0 where none is counted */
	return hl_block_object_set(&hl_recorder->blocks, entry, block, node, requested);
}

static const struct hl_event_kind of_object = {
	.read_usable = read_usable,
	.takes = takes_object,
	.set = set_object,
	.any = alloc_any,
	.by_parts = alloc_by_parts,
	.marked = alloc_marked,
};

void hl_event_alloc_object(struct hl_thread *thread, const void *block, uint64_t requested,
			   const struct hl_registers *caller, const struct hl_recall_slot *place)
{
	hl_event_alloc_of(&of_object, thread, block, requested, caller, place);
}

/* ${mode}: a constant where that is known. */
static inline __attribute__((always_inline)) void
add_beside(struct hl_thread *thread, const void *block, uint64_t requested, const char *type,
	   hl_block_entry *entry, struct hl_cell *cell, uint32_t mode)
{
	if (HL_LIKELY(type))
		cell = hl_script_type_cell(hl_recorder, thread, cell, type);
	hl_event_add_or_lose(&of_object, thread, block, requested, entry, 0, cell, mode);
}

static __attribute__((noinline)) void
beside_any(struct hl_thread *thread, const void *block, uint64_t requested,
	   const struct hl_registers *caller, const struct hl_recall_slot *place, const char *type)
{
	struct hl_recorder *recorder = hl_recorder;
	const uint32_t mode = hl_event_mode(recorder);
	bool is_hit = false;
	hl_block_entry *entry = entry_of_new(recorder, thread, mode, block, requested, &is_hit);

	if (HL_UNLIKELY(!entry)) {
		hl_event_alloc_in_hash(thread, block, requested, requested, caller, place, type,
				       is_hit);
		return;
	}
	add_beside(thread, block, requested, type, entry,
		   hl_event_cell_in_mode(recorder, thread, caller, place, mode), mode);
}

static __attribute__((noinline)) void beside_by_parts(struct hl_thread *thread, const void *block,
						      uint64_t requested,
						      const struct hl_registers *caller,
						      const struct hl_recall_slot *place,
						      const char *type, hl_block_entry *entry)
{
	add_beside(thread, block, requested, type, entry,
		   hl_event_find_cell(hl_recorder, thread, caller, place, true),
		   HL_EVENT_WAY_COUNTED);
}

/* Like hl_event_alloc_of() of a stack that runs a script. */
void hl_event_alloc_beside(struct hl_thread *thread, const void *block, uint64_t requested,
			   const struct hl_registers *caller, const struct hl_recall_slot *place,
			   const char *type)
{
	struct hl_recorder *recorder = hl_recorder;
	hl_block_entry *entry;

	if (HL_UNLIKELY(hl_sample_hits(thread, requested) || !thread->plain ||
			(hl_event_mode(recorder) & HL_EVENT_WAY_BITS) != HL_EVENT_WAY_COUNTED ||
			!hl_block_holds_object(requested) ||
			!(entry = hl_block_entry_at(&recorder->blocks, block)) ||
			hl_recall_check_every || !thread->tables->recall.credit ||
			thread->looked_ahead ||
			!hl_recall_begins(&thread->tables->recall, &recorder->unwind,
					  &thread->tables->walk, caller, place) ||
			(place->tag & HL_EVENT_TAG_BITS) != HL_EVENT_TAG_ASKS)) {
		hl_sample_go_back(thread, requested);
		beside_any(thread, block, requested, caller, place, type);
		return;
	}
	if (!hl_recall_ends(place, &thread->tables->walk)) {
		beside_by_parts(thread, block, requested, caller, place, type, entry);
		return;
	}
	hl_recall_count_hit(&thread->tables->recall);
	add_beside(thread, block, requested, type, entry,
		   hl_script_cell(recorder, thread, hl_event_stack_of_tag(place->tag), caller),
		   HL_EVENT_WAY_COUNTED);
}

static __attribute__((noinline)) bool free_object_any(struct hl_thread *thread, const void *block,
						      bool has_slack)
{
	struct hl_block it;

	/* A recorder that is open from time to time has recorded few. */
	if (hl_event_is_closed(thread) && !hl_event_entry_of_object(block) &&
	    !hl_block_may_hold(&hl_recorder->blocks, hl_block_ruled_key(block)))
		return false;
	if (!hl_event_take_ruled(block, &it))
		return false;
	bool temporary = thread->last_block == block;
	thread->last_block = NULL;
	hl_event_finish_free(thread, block, it,
			     has_slack ? hl_block_object_usable(it.requested) : it.requested,
			     temporary);
	return true;
}

/* Like hl_event_free_plain(). ${has_slack}, a constant. */
static inline __attribute__((always_inline)) bool free_object(struct hl_thread *thread,
							      const void *block, bool has_slack)
{
	struct hl_recorder *recorder = hl_recorder;
	hl_block_entry *entry = hl_block_entry_at(&recorder->blocks, block);
	uint32_t word = entry ? hl_block_word_of(atomic_load_explicit(entry, memory_order_relaxed),
						 (uintptr_t)block)
			      : 0;

	struct hl_cell *cell = hl_block_word_is_object(word)
				       ? hl_cells_find(&thread->cells, &recorder->region,
						       word >> HL_BLOCK_NODE_SHIFT)
				       : NULL;
	if (HL_UNLIKELY(!cell || !thread->plain ||
			hl_event_mode(recorder) & (HL_MODE_LOGGING | HL_MODE_CASE)))
		return free_object_any(thread, block, has_slack);
	struct hl_block it = hl_block_object_take(
		entry, word,
		atomic_load_explicit(hl_block_steps_of(entry, block), memory_order_relaxed));
	uint64_t usable = has_slack ? hl_block_object_usable(it.requested) : it.requested;
	cell->temporary_objects += thread->last_block == block;
	thread->last_block = NULL;
	hl_event_add_free(recorder, thread, block, cell, (struct hl_weight){it.requested, 1},
			  hl_event_slack(usable, it.requested), 0);
	return true;
}

bool hl_event_free_object(struct hl_thread *thread, const void *block)
{
	return free_object(thread, block, true);
}

void hl_event_free_beside(struct hl_thread *thread, const void *block)
{
	if (!free_object(thread, block, false))
		thread->last_block = NULL;
}

void hl_event_count_free_object(struct hl_thread *thread, const void *block, struct hl_block it)
{
	hl_event_count_free(thread, block, it, hl_block_object_usable(it.requested));
}

void hl_event_put_back_object(struct hl_thread *thread, const void *block, struct hl_block it)
{
	struct hl_recorder *recorder = hl_recorder;
	hl_block_entry *entry =
		thread->plain && !it.draw
			? entry_for_object(recorder, hl_event_mode(recorder), block, it.requested)
			: NULL;

	if (HL_UNLIKELY(!entry) ||
	    !hl_block_object_set(&recorder->blocks, entry, block, it.node, it.requested))
		hl_event_put_back_ruled(thread, block, it, 0);
}
