/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What events of blocks (event.c) and of objects of interpreters (event_objects.c) are made of: the
 * stack's cell, the counters, the log. Inline, as each event goes through it.
 *
 *	tag	what hl_recall carries for a stack
 *	way	the bits of the mode by which a common event goes
 *	kind	what an event is of; a constant, so that each has code of its own
 */
#pragma once

#include "guests/guest.h"
#include "recorder/event.h"
#include "recorder/libc.h"
#include "recorder/recall_check.h"
#include "recorder/sample.h"
#include "recorder/script.h"

/* The share is within +-flush_bytes, so it can leave that by one end only. */
static inline void hl_event_add_inuse(struct hl_recorder *recorder, struct hl_thread *thread,
				      uint64_t bytes)
{
	thread->unflushed_bytes += (int64_t)bytes;
	if (HL_UNLIKELY(thread->unflushed_bytes > thread->flush_bytes))
		hl_event_flush(recorder, thread);
}

static inline void hl_event_take_inuse(struct hl_recorder *recorder, struct hl_thread *thread,
				       uint64_t bytes)
{
	thread->unflushed_bytes -= (int64_t)bytes;
	if (HL_UNLIKELY(thread->unflushed_bytes + thread->flush_bytes < 0))
		hl_event_flush(recorder, thread);
}

/* Chunks lie on pages of their own, so a cell's address leads to its chunk. */
static inline int64_t *hl_event_at_peak_objects(struct hl_cell *cell)
{
	struct hl_cell_chunk *chunk =
		(struct hl_cell_chunk *)((uintptr_t)cell & ~(uintptr_t)(HL_CHUNK_BYTES - 1));

	return &chunk->at_peak_objects[cell - chunk->cells];
}

/* Before a cell changes: keeps what it held at the last peak mark. The epoch is written last, see
 * hl_cell. */
static inline void hl_event_keep_peak(const struct hl_recorder *recorder, struct hl_cell *cell)
{
	uint32_t epoch =
		atomic_load_explicit(&recorder->region.header->peak_epoch, memory_order_relaxed);

	if (cell->epoch == epoch)
		return;
	cell->at_peak_bytes = (int64_t)(cell->alloc_bytes - cell->free_bytes);
	*hl_event_at_peak_objects(cell) = (int64_t)(cell->alloc_objects - cell->free_objects);
	atomic_thread_fence(memory_order_release);
	cell->epoch = epoch;
	atomic_thread_fence(memory_order_release);
}

static inline void hl_event_begin_logged(struct hl_recorder *recorder, struct hl_thread *thread)
{
	if (HL_UNLIKELY(!thread->ring.ring))
		hl_ring_writer_init(&thread->ring, &recorder->region, thread->slot);
	hl_ring_writer_begin(&thread->ring);
}

/* Before anything of an event is counted in ${mode}; hl_event_log() ends it. */
static inline void hl_event_begin(struct hl_recorder *recorder, struct hl_thread *thread,
				  struct hl_cell *cell, uint32_t mode)
{
	if (HL_UNLIKELY(mode & HL_MODE_LOGGING))
		hl_event_begin_logged(recorder, thread);
	hl_event_keep_peak(recorder, cell);
}

static inline void hl_event_lose(struct hl_thread *thread, uint64_t bytes)
{
	thread->in_region->lost.events++;
	thread->in_region->lost.bytes += bytes;
}

/* What hl_recall carries: the address of the stack's cell, and in its lowest bits whether the walk
 * was incomplete, and whether providers of script frames are asked. */
#define HL_EVENT_TAG_INCOMPLETE UINT64_C(1)
#define HL_EVENT_TAG_ASKS	UINT64_C(2)
#define HL_EVENT_TAG_BITS	(HL_EVENT_TAG_INCOMPLETE | HL_EVENT_TAG_ASKS)

/* Walks the calling thread's stack: as hl_event_stack_tag(). ${keep}: hl_recall_keep() it. */
uint64_t hl_event_walk_to_tag(struct hl_recorder *recorder, struct hl_thread *thread,
			      const struct hl_registers *caller, bool keep);

static inline struct hl_cell *hl_event_stack_of_tag(uint64_t tag)
{
	return (struct hl_cell *)(tag & ~HL_EVENT_TAG_BITS);
}

/* The cell of a tag that says more than the cell; NULL when there is no memory for it. */
struct hl_cell *hl_event_cell_of_marked(struct hl_recorder *recorder, struct hl_thread *thread,
					const struct hl_registers *caller, uint64_t tag);

/* The cell of what hl_recall carries, with the frames of scripts; NULL when there is no memory for it. */
static inline struct hl_cell *hl_event_cell_of_tag(struct hl_recorder *recorder,
						   struct hl_thread *thread,
						   const struct hl_registers *caller, uint64_t tag)
{
	return HL_UNLIKELY(tag & HL_EVENT_TAG_BITS)
		       ? hl_event_cell_of_marked(recorder, thread, caller, tag)
		       : hl_event_stack_of_tag(tag);
}

/* What hl_recall carries for the calling thread's stack; 0 when there is no memory for it. ${begins},
 * a constant: the place hl_recall_begins() and does not hl_recall_ends(). */
static inline uint64_t hl_event_stack_tag(struct hl_recorder *recorder, struct hl_thread *thread,
					  const struct hl_registers *caller,
					  const struct hl_recall_slot *place, bool begins)
{
	struct hl_recall *recall = &thread->tables->recall;
	bool wanted = begins || hl_recall_wants(recall);
	uint64_t tag = 0;

	if (begins) {
		tag = hl_recall_by_parts(recall, place, &thread->tables->walk, caller);
		hl_recall_count(recall, tag);
	} else if (HL_LIKELY(wanted)) {
		tag = hl_recall_find(recall, &recorder->unwind, &thread->tables->walk, caller,
				     place);
	}
	if (HL_UNLIKELY(!tag))
		return hl_event_walk_to_tag(recorder, thread, caller, wanted);
	if (HL_UNLIKELY(hl_recall_check_every))
		hl_recall_check(recorder, thread, caller, hl_event_stack_of_tag(tag)->node,
				tag & HL_EVENT_TAG_INCOMPLETE);
	return tag;
}

/* The cell of the calling thread's stack, with the frames of scripts. ${begins}: as above. */
static inline struct hl_cell *hl_event_find_cell(struct hl_recorder *recorder,
						 struct hl_thread *thread,
						 const struct hl_registers *caller,
						 const struct hl_recall_slot *place, bool begins)
{
	if (!begins && HL_UNLIKELY(thread->ahead))
		return thread->ahead;
	return hl_event_cell_of_tag(recorder, thread, caller,
				    hl_event_stack_tag(recorder, thread, caller, place, begins));
}

/* The same in ${mode}, which may want interpreters to be probed first. */
struct hl_cell *hl_event_cell_in_mode(struct hl_recorder *recorder, struct hl_thread *thread,
				      const struct hl_registers *caller,
				      const struct hl_recall_slot *place, uint32_t mode);

static inline void hl_event_write(struct hl_recorder *recorder, struct hl_thread *thread,
				  uint32_t node, struct hl_weight weight, bool is_free)
{
	if (HL_UNLIKELY(!thread->ring.ring ||
			!hl_ring_writer_put(&thread->ring, &recorder->region, node, weight.bytes,
					    weight.objects, is_free))) {
		/* Who sees that the event is lost sees it counted. */
		atomic_thread_fence(memory_order_release);
		thread->in_region->lost_log_events++;
		hl_ring_writer_end(&thread->ring);
	}
}

/* Writes the event into the log, if ${mode}, that of hl_event_begin(), has one. Without a log it costs
 * a branch, no call. */
static inline void hl_event_log(struct hl_recorder *recorder, struct hl_thread *thread,
				uint32_t mode, uint32_t node, struct hl_weight weight, bool is_free)
{
	if (HL_UNLIKELY(mode & HL_MODE_LOGGING))
		hl_event_write(recorder, thread, node, weight, is_free);
}

/* The test case that is open knows the block, too. Into a process that runs already none comes. */
static inline void hl_event_note_alloc(struct hl_recorder *recorder, uint32_t mode,
				       const void *block, uint32_t node, struct hl_weight weight)
{
#ifdef HL_ATTACHED
	(void)recorder, (void)mode, (void)block, (void)node, (void)weight;
#else
	if (HL_UNLIKELY(mode & HL_MODE_CASE))
		hl_cases_alloc(recorder, block, node, weight.bytes);
#endif
}

static inline void hl_event_note_free(struct hl_recorder *recorder, uint32_t mode,
				      const void *block, uint32_t node)
{
#ifdef HL_ATTACHED
	(void)recorder, (void)mode, (void)block, (void)node;
#else
	if (HL_UNLIKELY(mode & HL_MODE_CASE) && block)
		hl_cases_free(recorder, block, node);
#endif
}

/* Counts an allocation that ${weight} stands for, each block with ${slack}, and logs it if ${mode}
 * does. */
static inline __attribute__((always_inline)) void
hl_event_add_alloc(struct hl_recorder *recorder, struct hl_thread *thread, const void *block,
		   struct hl_cell *cell, struct hl_weight weight, uint64_t slack, uint32_t mode)
{
	hl_event_begin(recorder, thread, cell, mode);
	cell->alloc_bytes += weight.bytes;
	cell->alloc_objects += weight.objects;
	cell->slack_bytes += (int64_t)(slack * weight.objects);
	thread->alloc_events++;
	thread->last_block = block;
	hl_event_add_inuse(recorder, thread, weight.bytes);
	hl_event_note_alloc(recorder, mode, block, cell->node, weight);
	hl_event_log(recorder, thread, mode, cell->node, weight, false);
}

/* The same for a free. ${block}: NULL, where it is a mapping. */
static inline __attribute__((always_inline)) void
hl_event_add_free(struct hl_recorder *recorder, struct hl_thread *thread, const void *block,
		  struct hl_cell *cell, struct hl_weight weight, uint64_t slack, uint32_t mode)
{
	hl_event_begin(recorder, thread, cell, mode);
	cell->free_bytes += weight.bytes;
	cell->free_objects += weight.objects;
	cell->slack_bytes -= (int64_t)(slack * weight.objects);
	hl_event_take_inuse(recorder, thread, weight.bytes);
	hl_event_note_free(recorder, mode, block, cell->node);
	hl_event_log(recorder, thread, mode, cell->node, weight, true);
}

/* A block of the real malloc without a known size has no slack, nor one that it does not know yet: gperftools' says 0 until its
 * library's constructors have run. */
static inline uint64_t hl_event_slack(uint64_t usable, uint64_t requested)
{
	return hl_libc_knows_usable_size() && usable > requested ? usable - requested : 0;
}

/* The bits of the mode that say whether an event only counts, and is logged. */
#define HL_EVENT_WAY_BITS                                                                   \
	(HL_MODE_ASKED | HL_MODE_LOGGING | HL_MODE_PROBE | HL_MODE_SAMPLED | HL_MODE_CASE | \
	 HL_MODE_MASK)
#define HL_EVENT_WAY_COUNTED HL_MODE_MEM_FAST
#define HL_EVENT_WAY_LOGGED  (HL_MODE_LOGGING | HL_MODE_LOG_FAST)

struct hl_event_kind {
	bool is_chunk; /* of glibc's: else the thread passes it on to any() */
	/* The usable bytes; false: it takes a call to learn them. */
	bool (*read_usable)(const void *block, uint64_t requested, size_t *ret_usable);
	/* Whether the block's entry of the array may be filled: all else is not common. */
	bool (*takes)(hl_block_entry *entry);
	/* Fills it. False without memory. */
	bool (*set)(hl_block_entry *entry, const void *block, uint32_t node, uint64_t requested,
		    uint64_t slack);
	/* The event where it is not a common one; of a place that hl_recall_begins() and does not
	 * hl_recall_ends(); of a tag that says more than the cell. Not inline. */
	void (*any)(struct hl_thread *thread, const void *block, uint64_t requested,
		    const struct hl_registers *caller, const struct hl_recall_slot *place);
	void (*by_parts)(struct hl_thread *thread, const void *block, uint64_t requested,
			 const struct hl_registers *caller, const struct hl_recall_slot *place,
			 hl_block_entry *entry, uint64_t slack);
	void (*marked)(struct hl_thread *thread, const void *block, uint64_t requested,
		       const struct hl_registers *caller, uint64_t tag, hl_block_entry *entry,
		       uint64_t slack);
};

/* ${cell}: not NULL. */
static inline __attribute__((always_inline)) void
hl_event_add_in_array(const struct hl_event_kind *kind, struct hl_thread *thread, const void *block,
		      uint64_t requested, hl_block_entry *entry, uint64_t slack,
		      struct hl_cell *cell, uint32_t way)
{
	if (HL_LIKELY(kind->set(entry, block, cell->node, requested, slack)))
		hl_event_add_alloc(hl_recorder, thread, block, cell,
				   (struct hl_weight){requested, 1}, slack, way);
	else
		hl_event_lose(thread, requested);
}

/* ${cell}: NULL, where there was no memory for it. */
static inline __attribute__((always_inline)) void
hl_event_add_or_lose(const struct hl_event_kind *kind, struct hl_thread *thread, const void *block,
		     uint64_t requested, hl_block_entry *entry, uint64_t slack,
		     struct hl_cell *cell, uint32_t way)
{
	if (HL_UNLIKELY(thread->stamp.value))
		hl_guest_wants.stamp(thread, block);
	if (HL_LIKELY(cell)) {
		hl_event_add_in_array(kind, thread, block, requested, entry, slack, cell, way);
	} else {
		thread->last_block = NULL;
		hl_event_lose(thread, requested);
	}
}

/* What is done here is what most events are: it calls nothing, but jumps on where that is not
 * enough, while nothing has happened. */
static inline __attribute__((always_inline)) void
hl_event_alloc_of(const struct hl_event_kind *kind, struct hl_thread *thread, const void *block,
		  uint64_t requested, const struct hl_registers *caller,
		  const struct hl_recall_slot *place)
{
	struct hl_recorder *recorder = hl_recorder;
	hl_block_entry *entry;
	size_t usable;

	if (HL_UNLIKELY(hl_sample_hits(thread, requested) ||
			!(kind->is_chunk ? thread->plain_chunks : thread->plain) ||
			(hl_event_mode(recorder) & HL_EVENT_WAY_BITS) != HL_EVENT_WAY_COUNTED ||
			!kind->read_usable(block, requested, &usable) ||
			usable - requested > HL_BLOCK_SLACK_MAX ||
			!(entry = kind->is_chunk ? hl_block_entry_of_chunk(&recorder->blocks, block)
						 : hl_block_entry_at(&recorder->blocks, block)) ||
			!kind->takes(entry) || hl_recall_check_every ||
			!thread->tables->recall.credit ||
			!hl_recall_begins(&thread->tables->recall, &recorder->unwind,
					  &thread->tables->walk, caller, place))) {
		hl_sample_go_back(thread, requested);
		kind->any(thread, block, requested, caller, place);
		return;
	}
	uint64_t slack = usable - requested;
	if (HL_UNLIKELY(!hl_recall_ends(place, &thread->tables->walk))) {
		kind->by_parts(thread, block, requested, caller, place, entry, slack);
		return;
	}
	hl_recall_count_hit(&thread->tables->recall);
	if (HL_UNLIKELY(place->tag & HL_EVENT_TAG_BITS))
		kind->marked(thread, block, requested, caller, place->tag, entry, slack);
	else
		hl_event_add_in_array(kind, thread, block, requested, entry, slack,
				      hl_event_stack_of_tag(place->tag), HL_EVENT_WAY_COUNTED);
}

static inline __attribute__((always_inline)) void
hl_event_by_parts_of(const struct hl_event_kind *kind, struct hl_thread *thread, const void *block,
		     uint64_t requested, const struct hl_registers *caller,
		     const struct hl_recall_slot *place, hl_block_entry *entry, uint64_t slack)
{
	hl_event_add_or_lose(kind, thread, block, requested, entry, slack,
			     hl_event_find_cell(hl_recorder, thread, caller, place, true),
			     HL_EVENT_WAY_COUNTED);
}

static inline __attribute__((always_inline)) void
hl_event_marked_of(const struct hl_event_kind *kind, struct hl_thread *thread, const void *block,
		   uint64_t requested, const struct hl_registers *caller, uint64_t tag,
		   hl_block_entry *entry, uint64_t slack)
{
	struct hl_recorder *recorder = hl_recorder;
	struct hl_cell *cell =
		HL_LIKELY((tag & HL_EVENT_TAG_BITS) == HL_EVENT_TAG_ASKS && !thread->looked_ahead)
			? hl_script_cell(recorder, thread, hl_event_stack_of_tag(tag), caller)
			: hl_event_cell_of_marked(recorder, thread, caller, tag);

	hl_event_add_or_lose(kind, thread, block, requested, entry, slack, cell,
			     HL_EVENT_WAY_COUNTED);
}

/* ---- pieces ---- */

static inline void hl_event_note_pieces(void)
{
	if (HL_UNLIKELY(!hl_event_has_pieces()))
		atomic_fetch_or(&hl_recorder->region.header->mode, HL_MODE_PIECES);
}

/* ---- objects in the array ---- */

/* The array's entry of the object at ${block}; NULL if no object is there. */
static inline hl_block_entry *hl_event_entry_of_object(const void *block)
{
	hl_block_entry *entry = hl_block_entry_find(&hl_recorder->blocks, block);

	return entry && hl_block_word_is_object(atomic_load_explicit(entry, memory_order_relaxed))
		       ? entry
		       : NULL;
}

static inline bool hl_event_take_object(const void *block, struct hl_block *ret_block)
{
	return hl_block_take_object(&hl_recorder->blocks, block, ret_block);
}

/* ---- what objects need of blocks: where the array does not do ---- */

/* By the key of a ruled block; ${usable} bytes of it may be used. ${type}: NULL, or a label. ${is_hit}: it would go into the array,
 * and is hit. */
void hl_event_alloc_in_hash(struct hl_thread *thread, const void *block, uint64_t requested,
			    uint64_t usable, const struct hl_registers *caller,
			    const struct hl_recall_slot *place, const char *type, bool is_hit);

/* ${it} has been taken. ${temporary}: it was the thread's last event. */
void hl_event_finish_free(struct hl_thread *thread, const void *block, struct hl_block it,
			  uint64_t usable, bool temporary);
