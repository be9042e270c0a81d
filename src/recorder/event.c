/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counts events; see event.h.
 *
 * Peak within 1 %: a thread adds its change to the total once that exceeds mark/256 shared among
 * the threads, and the total is marked as a new peak once it exceeds the last mark by mark/256. So
 * the true maximum is at most mark/128 above a mark.
 */
#include "recorder/event_parts.h"

#include "base/clock.h"
#include "guests/guest.h"
#include "recorder/introspect.h"
#include "recorder/node.h"
#include "recorder/sys.h"

#include <time.h>

#define PEAK_STEP_SHIFT 8

static void drop_array(struct hl_recorder *recorder)
{
	atomic_store(&recorder->region.header->block_array, 0);
	hl_block_table_drop_array(&recorder->blocks);
}

/* Samples are few: the hash with its filter answers for all other blocks without touching a page
 * for them. */
static __attribute__((noinline)) bool add_array(struct hl_recorder *recorder)
{
	if (recorder->hash_only)
		return false;
	struct hl_block_array *array = hl_block_table_add_array(&recorder->blocks);
	if (!array) {
		recorder->hash_only = true; /* not to be tried at each event */
		return false;
	}
	atomic_store(&recorder->region.header->block_array, (uintptr_t)array);
	if (!atomic_load(&recorder->has_dropped))
		return true;
	drop_array(recorder); /* another thread had none to drop */
	return false;
}

/*
 * Memory is short: ${thread} samples from here on, and helps to give the array back before it goes on. Of its blocks those stay
 * known that were hit: they are in the hash, with their draws.
 */
static __attribute__((noinline)) void begin_sampling(struct hl_recorder *recorder,
						     struct hl_thread *thread)
{
	thread->sampling = true;
	thread->plain = thread->plain_chunks = false;
	atomic_store(&recorder->hash_only, true);
	atomic_store(&recorder->has_dropped, true);
	drop_array(recorder);
}

bool hl_event_wants_objects(struct hl_recorder *recorder, uint32_t mode)
{
	return hl_mode_has_array(hl_mode_of(mode)) &&
	       (HL_LIKELY(atomic_load_explicit(&recorder->blocks.array, memory_order_relaxed)) ||
		add_array(recorder));
}

bool hl_event_wants_array(struct hl_recorder *recorder, uint32_t mode)
{
	return HL_LIKELY(!recorder->objects_only) && hl_event_wants_objects(recorder, mode);
}

void hl_event_flush(struct hl_recorder *recorder, struct hl_thread *thread)
{
	struct hl_region_header *header = recorder->region.header;
	int64_t change = thread->unflushed_bytes;

	thread->unflushed_bytes = 0;
	int64_t total =
		atomic_fetch_add_explicit(&header->inuse_bytes, change, memory_order_relaxed) +
		change;
	uint64_t mark = atomic_load_explicit(&header->peak_mark, memory_order_relaxed);
	while (total > 0 && (uint64_t)total > mark + (mark >> PEAK_STEP_SHIFT)) {
		if (!atomic_compare_exchange_weak(&header->peak_mark, &mark, (uint64_t)total))
			continue;
		atomic_fetch_add(&header->peak_epoch, 1);
		atomic_store_explicit(&header->peak_mark_ns, hl_clock_ns(HL_SYS_CLOCK),
				      memory_order_relaxed);
		mark = (uint64_t)total;
		break;
	}
	uint32_t threads = atomic_load_explicit(&recorder->live_threads, memory_order_relaxed);
	thread->flush_bytes = (int64_t)((mark >> PEAK_STEP_SHIFT) / (threads ? threads : 1));
}

/* Interns the frames of the walk from ${at} on. The innermost node, or HL_NODE_NONE. */
static uint32_t intern_frames(struct hl_recorder *recorder, struct hl_thread *thread, uint32_t at)
{
	struct hl_walk *walk = &thread->tables->walk;
	uint32_t parent = at ? walk->frames[at - 1].node : 0, count = walk->depth - at;

	uint32_t done = hl_node_intern_path(&recorder->region, &thread->tables->nodes, parent,
					    &walk->frames[at], count);
	if (HL_UNLIKELY(done < count)) {
		walk->depth = at + done; /* frames without nodes must not be remembered */
		return HL_NODE_NONE;
	}
	uint32_t node = walk->depth ? walk->frames[walk->depth - 1].node : 0;
	return node ? node : HL_NODE_NONE;
}

uint64_t hl_event_walk_to_tag(struct hl_recorder *recorder, struct hl_thread *thread,
			      const struct hl_registers *caller, bool keep)
{
	struct hl_walk *walk = &thread->tables->walk;
	uint32_t kept = hl_walk_capture(&recorder->unwind, walk, caller);
	bool asks = HL_UNLIKELY(hl_script_has_evals()) && hl_script_is_asked(walk, kept);

	void (*look)(void) = atomic_load_explicit(&hl_guest_wants.look, memory_order_relaxed);
	if (HL_UNLIKELY(look))
		look();
	uint32_t node = intern_frames(recorder, thread, kept);
	if (HL_UNLIKELY(node == HL_NODE_NONE))
		return 0;
	thread->in_region->lost.truncated_stacks += walk->truncated;
	/* Where the cell is comes into the cache meanwhile. */
	hl_cells_prefetch(&thread->cells, node);
	struct hl_recall_slot *place =
		keep ? hl_recall_keep(&thread->tables->recall, walk, kept, caller) : NULL;
	if (HL_UNLIKELY(hl_recall_wants_room(&thread->tables->recall)))
		hl_recall_give_room(&thread->tables->recall,
				    hl_private_map_new(HL_RECALL_ROOM_BYTES));
	struct hl_cell *cell = hl_cells_get(&thread->cells, &recorder->region, node);
	if (HL_UNLIKELY(!cell)) {
		if (place)
			hl_recall_drop(place);
		return 0;
	}
	uint64_t tag = (uint64_t)cell | (walk->incomplete ? HL_EVENT_TAG_INCOMPLETE : 0) |
		       (asks ? HL_EVENT_TAG_ASKS : 0);
	if (place)
		place->tag = tag;
	return tag;
}

struct hl_cell *hl_event_cell_of_marked(struct hl_recorder *recorder, struct hl_thread *thread,
					const struct hl_registers *caller, uint64_t tag)
{
	struct hl_cell *stack = hl_event_stack_of_tag(tag);

	thread->in_region->lost.incomplete_stacks += tag & HL_EVENT_TAG_INCOMPLETE;
	/* It may have become one that asks since hl_event_look_ahead(). */
	return tag & HL_EVENT_TAG_ASKS && !thread->looked_ahead
		       ? hl_script_cell(recorder, thread, stack, caller)
		       : stack;
}

struct hl_cell *hl_event_cell_in_mode(struct hl_recorder *recorder, struct hl_thread *thread,
				      const struct hl_registers *caller,
				      const struct hl_recall_slot *place, uint32_t mode)
{
	if (HL_UNLIKELY(mode & HL_MODE_PROBE))
		hl_guests_open(recorder);
	return hl_event_find_cell(recorder, thread, caller, place, false);
}

/* The cell of the pseudo frame ${key} below that of a stack; NULL when there is no memory for it.
 */
static struct hl_cell *pseudo_cell(struct hl_recorder *recorder, struct hl_thread *thread,
				   const struct hl_cell *stack, uint64_t key)
{
	if (HL_UNLIKELY(!stack))
		return NULL;
	uint32_t node = hl_node_intern(&recorder->region, &thread->tables->nodes, stack->node, key);
	return HL_UNLIKELY(node == HL_NODE_NONE)
		       ? NULL
		       : hl_cells_get(&thread->cells, &recorder->region, node);
}

struct hl_cell *hl_event_find_ahead(struct hl_thread *thread, const struct hl_registers *caller,
				    const struct hl_recall_slot *place)
{
	uint32_t mode = hl_event_mode(hl_recorder);

	return hl_mode_of(mode) == HL_MODE_CLOSED
		       ? NULL
		       : hl_event_cell_in_mode(hl_recorder, thread, caller, place, mode);
}

/* The cell of blocks of ${requested} bytes of a stack, by size class. */
static struct hl_cell *size_cell(struct hl_recorder *recorder, struct hl_thread *thread,
				 const struct hl_cell *stack, uint64_t requested)
{
	uint32_t size_class = hl_size_class(requested);
	uint64_t key = (uint64_t)stack << 1 | size_class;

	struct hl_size_cell *known = &thread->tables->size_cells[hl_size_cell_place(key)];
	if (HL_LIKELY(known->key == key && known->cell))
		return known->cell;
	struct hl_cell *cell = pseudo_cell(recorder, thread, stack, hl_size_frame_key(size_class));
	if (HL_LIKELY(cell))
		*known = (struct hl_size_cell){key, cell};
	return cell;
}

/* What a block counts for: until others are forgotten, one that was hit counts for itself alone. */
static struct hl_weight weigh(struct hl_recorder *recorder, const void *address,
			      struct hl_block block)
{
	if (HL_LIKELY(!block.draw || !(recorder->sampling || recorder->has_dropped)))
		return (struct hl_weight){block.requested, 1};
	return hl_sample_weight(recorder->sample_mean, address, block);
}

/* Whether a block is to be recorded. ${in_array}: it would go into the array. ${ret_draw}: see struct hl_block. */
static inline bool sample(struct hl_recorder *recorder, struct hl_thread *thread, uint32_t mode,
			  uint64_t requested, bool in_array, uint32_t *ret_draw)
{
	bool is_hit = thread->sampling; /* or a hook had let it pass */

	*ret_draw = 0;
	if (!is_hit && (in_array || mode & HL_MODE_SAMPLED))
		is_hit = hl_sample_hits(thread, requested);
	if (HL_UNLIKELY(is_hit)) {
		hl_sample_next(thread, recorder->sample_mean);
		*ret_draw = recorder->sample_mean ? hl_sample_draw(thread) : 0;
	}
	if (HL_LIKELY(!(mode & HL_MODE_SAMPLED) || thread->sampling))
		return true;
	begin_sampling(recorder, thread);
	return is_hit;
}

/* Whether an allocation is to be recorded in ${mode}: one comparison nearly always decides. */
static inline bool is_open(struct hl_recorder *recorder, struct hl_thread *thread, uint32_t mode)
{
	/* Neither closed nor asked. */
	if (HL_LIKELY((mode & (HL_MODE_ASKED | HL_MODE_MASK)) - 1 < HL_MODE_MASK))
		return true;
	if (mode & HL_MODE_ASKED)
		hl_introspect(recorder, thread);
	return hl_mode_of(mode) != HL_MODE_CLOSED;
}

/* How a block is known. */
enum key {
	BY_ADDRESS,
	RULED,
	RULED_BUT_HIT, /* an object that would be in the array */
	RULED_IN_POOL, /* which ends it by a reset: stamps say nothing of it */
};

static inline bool keep_block(struct hl_recorder *recorder, uint32_t mode, const void *block,
			      struct hl_block it, uint64_t usable, enum key key,
			      struct hl_block_stale *stale)
{
	if (key != BY_ADDRESS)
		return hl_block_hash_set(recorder->blocks.hash,
					 (uintptr_t)hl_block_ruled_key(block), it, NULL);
	return hl_block_set(&recorder->blocks, hl_event_wants_array(recorder, mode), block, it,
			    usable, stale);
}

/*
 * ${stale} was in use at ${block}, where the allocator has just given ${usable} bytes: somebody freed it by a way that no hook
 * sees. What is not known of it is as usual for its stack.
 */
static __attribute__((noinline)) void close_missed(struct hl_recorder *recorder,
						   struct hl_thread *thread, const void *block,
						   struct hl_block_stale stale, uint64_t usable)
{
	const struct hl_cell *cell =
		hl_cells_get(&thread->cells, &recorder->region, stale.block.node);
	int64_t objects = cell ? (int64_t)(cell->alloc_objects - cell->free_objects) : 0;
	int64_t bytes = cell ? (int64_t)(cell->alloc_bytes - cell->free_bytes) : 0;

	if (stale.slack == HL_BLOCK_UNKNOWN)
		stale.slack = objects > 0 && cell->slack_bytes > 0
				      ? (uint64_t)(cell->slack_bytes / objects)
				      : 0;
	if (stale.block.requested == HL_BLOCK_UNKNOWN)
		stale.block.requested = objects > 0 && bytes > 0 ? (uint64_t)(bytes / objects)
					: usable > stale.slack	 ? usable - stale.slack
								 : 0;
	hl_event_count_free(thread, block, stale.block, stale.block.requested + stale.slack);
	thread->in_region->lost.missed_frees++;
}

/* ${known}: the usable bytes of a block of an allocator that is not the real malloc; NULL: it is.
 * ${label}: NULL, or what else is known of it. */
static inline __attribute__((always_inline)) void
count_alloc(struct hl_thread *thread, const void *block, uint64_t requested, const uint64_t *known,
	    enum key key, const struct hl_registers *caller, const struct hl_recall_slot *place,
	    enum hl_label kind, const char *label)
{
	struct hl_recorder *recorder = hl_recorder;
	const uint32_t mode = hl_event_mode(recorder);

	thread->last_block = NULL;
	struct hl_block it = {.requested = requested};
	uint64_t usable = known ? *known : hl_libc_usable_size(block);
	bool in_array = key == BY_ADDRESS ? hl_block_fits_array(block, usable - requested) &&
						    hl_event_wants_array(recorder, mode)
					  : key == RULED_BUT_HIT;
	if (HL_UNLIKELY(!sample(recorder, thread, mode, requested, in_array, &it.draw) ||
			!is_open(recorder, thread, mode)))
		return;
	struct hl_cell *cell = hl_event_cell_in_mode(recorder, thread, caller, place, mode);
	if (HL_UNLIKELY(thread->stamp.value) && key != RULED_IN_POOL)
		hl_guest_wants.stamp(thread, block);
	if (label)
		cell = hl_script_label_cell(recorder, thread, cell, kind, label);
	if (HL_UNLIKELY(recorder->sizes))
		cell = size_cell(recorder, thread, cell, requested);
	it.node = cell ? cell->node : HL_NODE_NONE;
	struct hl_block_stale stale = HL_BLOCK_NOT_STALE;
	bool kept = cell && keep_block(recorder, mode, block, it, usable, key, &stale);
	if (HL_UNLIKELY(stale.block.node))
		close_missed(recorder, thread, block, stale, usable);
	if (HL_UNLIKELY(!kept)) {
		hl_event_lose(thread, requested);
		return;
	}
	hl_event_add_alloc(recorder, thread, block, cell, weigh(recorder, block, it),
			   hl_event_slack(usable, requested), mode);
}

static const struct hl_event_kind of_block, of_shared;

/* Anything else is a block whose free was not seen, or another one's. */
static inline bool is_empty(hl_block_entry *entry)
{
	return !atomic_load_explicit(entry, memory_order_relaxed);
}

/* The usual event, in the mode of ${way}, a constant: the block fits into the array. False, and
 * nothing has happened, in all other cases. */
static inline __attribute__((always_inline)) bool
alloc_in_array(struct hl_thread *thread, const void *block, uint64_t requested,
	       const struct hl_registers *caller, const struct hl_recall_slot *place, uint32_t way)
{
	struct hl_recorder *recorder = hl_recorder;

	if (HL_UNLIKELY(!thread->plain || (hl_event_mode(recorder) & HL_EVENT_WAY_BITS) != way))
		return false;
	hl_block_entry *entry = hl_block_entry_at(&recorder->blocks, block);
	if (HL_UNLIKELY(
		    !entry || !is_empty(entry) ||
		    (!hl_libc_has_glibc_chunks && hl_block_entry_find(&recorder->blocks, block))))
		return false;
	uint64_t slack = hl_libc_usable_size(block) - requested;
	if (HL_UNLIKELY(slack > HL_BLOCK_SLACK_MAX))
		return false;
	if (HL_UNLIKELY(hl_sample_hits(thread, requested))) {
		hl_sample_go_back(thread, requested);
		return false;
	}
	hl_event_add_or_lose(&of_shared, thread, block, requested, entry, slack,
			     hl_event_find_cell(recorder, thread, caller, place, false), way);
	return true;
}

static __attribute__((noinline)) void alloc_any(struct hl_thread *thread, const void *block,
						uint64_t requested,
						const struct hl_registers *caller,
						const struct hl_recall_slot *place)
{
	if (!alloc_in_array(thread, block, requested, caller, place, HL_EVENT_WAY_COUNTED) &&
	    !alloc_in_array(thread, block, requested, caller, place, HL_EVENT_WAY_LOGGED) &&
	    !alloc_in_array(thread, block, requested, caller, place,
			    HL_EVENT_WAY_COUNTED | HL_MODE_CASE))
		count_alloc(thread, block, requested, NULL, BY_ADDRESS, caller, place,
			    HL_LABEL_COUNT, NULL);
}

void hl_event_alloc_ahead(struct hl_thread *thread, const void *block, uint64_t requested,
			  const struct hl_registers *caller, const struct hl_recall_slot *place)
{
	alloc_any(thread, block, requested, caller, place);
}

static __attribute__((noinline)) void alloc_marked(struct hl_thread *thread, const void *block,
						   uint64_t requested,
						   const struct hl_registers *caller, uint64_t tag,
						   hl_block_entry *entry, uint64_t slack)
{
	hl_event_marked_of(&of_block, thread, block, requested, caller, tag, entry, slack);
}

static __attribute__((noinline)) void alloc_by_parts(struct hl_thread *thread, const void *block,
						     uint64_t requested,
						     const struct hl_registers *caller,
						     const struct hl_recall_slot *place,
						     hl_block_entry *entry, uint64_t slack)
{
	hl_event_by_parts_of(&of_block, thread, block, requested, caller, place, entry, slack);
}

static inline bool read_usable(const void *block, uint64_t requested, size_t *ret_usable)
{
	(void)requested;
	return hl_libc_read_chunk(block, ret_usable);
}

/* Of glibc's blocks none begins in the other half of the granule. */
static inline bool set_block(hl_block_entry *entry, const void *block, uint32_t node,
			     uint64_t requested, uint64_t slack)
{
	(void)requested;
	atomic_store_explicit(entry, hl_block_word((uintptr_t)block, node, slack),
			      memory_order_relaxed);
	return true;
}

static inline bool set_shared(hl_block_entry *entry, const void *block, uint32_t node,
			      uint64_t requested, uint64_t slack)
{
	return HL_LIKELY(hl_libc_has_glibc_chunks)
		       ? set_block(entry, block, node, requested, slack)
		       : hl_block_set_shared(&hl_recorder->blocks, block, node, slack);
}

static const struct hl_event_kind of_block = {
	.is_chunk = true,
	.read_usable = read_usable,
	.takes = is_empty,
	.set = set_block,
	.any = alloc_any,
	.by_parts = alloc_by_parts,
	.marked = alloc_marked,
};

/* Of any allocator. */
static const struct hl_event_kind of_shared = {
	.set = set_shared,
};

void hl_event_alloc(struct hl_thread *thread, const void *block, uint64_t requested,
		    const struct hl_registers *caller, const struct hl_recall_slot *place)
{
	hl_event_alloc_of(&of_block, thread, block, requested, caller, place);
}

void hl_event_alloc_sized(struct hl_thread *thread, const void *block, uint64_t requested,
			  uint64_t usable, const struct hl_registers *caller)
{
	count_alloc(thread, block, requested, &usable, BY_ADDRESS, caller,
		    hl_recall_locate(&thread->tables->recall, &thread->tables->walk, caller),
		    HL_LABEL_COUNT, NULL);
}

static inline __attribute__((always_inline)) struct hl_cell *
count_free(struct hl_thread *thread, const void *block, struct hl_block it, uint64_t usable)
{
	struct hl_recorder *recorder = hl_recorder;

	struct hl_cell *cell = hl_cells_get(&thread->cells, &recorder->region, it.node);
	if (HL_UNLIKELY(!cell)) {
		hl_event_lose(thread, it.requested);
		return NULL;
	}
	hl_event_add_free(recorder, thread, block, cell, weigh(recorder, block, it),
			  hl_event_slack(usable, it.requested), hl_event_mode(recorder));
	return cell;
}

void hl_event_count_free(struct hl_thread *thread, const void *block, struct hl_block it,
			 uint64_t usable)
{
	count_free(thread, block, it, usable);
}

static void count_unmatched(struct hl_recorder *recorder, struct hl_thread *thread)
{
	if (HL_UNLIKELY(hl_event_mode(recorder) & HL_MODE_SAMPLED && !thread->sampling))
		begin_sampling(recorder, thread);
	if (thread->sampling || recorder->has_dropped ||
	    hl_mode_of(hl_event_mode(recorder)) == HL_MODE_CLOSED)
		return;
	if (recorder->inherits)
		thread->in_region->lost.inherited_frees++;
	else
		thread->in_region->lost.unmatched_frees++;
}

bool hl_event_take_sized(struct hl_thread *thread, const void *block, uint64_t usable,
			 struct hl_block *ret_block)
{
	struct hl_recorder *recorder = hl_recorder;

	if (HL_LIKELY(hl_block_take(&recorder->blocks, block, usable, ret_block)))
		return true;
	count_unmatched(recorder, thread);
	return false;
}

/* A block that a function of a rule gave may be freed by free(), and layers may both have it. */
static __attribute__((noinline)) bool take_either(struct hl_thread *thread, const void *block,
						  struct hl_block *ret_block, uint64_t *ret_usable)
{
	struct hl_recorder *recorder = hl_recorder;
	struct hl_block ruled;

	if (hl_event_take_object(block, ret_block)) {
		*ret_usable = ret_block->requested;
		return true;
	}
	bool is_plain = hl_block_take(&recorder->blocks, block, *ret_usable, ret_block);
	bool is_ruled =
		(!is_plain || recorder->counts_layers) && hl_event_take_ruled(block, &ruled);
	if (is_plain && is_ruled) {
		count_free(thread, block, ruled, ruled.requested);
	} else if (is_ruled) {
		*ret_block = ruled;
		*ret_usable = ruled.requested;
	} else if (!is_plain && recorder->counts_layers) {
		/* Otherwise blocks that were allocated within a call of a rule are not known. */
		count_unmatched(recorder, thread);
	}
	return is_plain || is_ruled;
}

bool hl_event_take(struct hl_thread *thread, const void *block, struct hl_block *ret_block,
		   uint64_t *ret_usable)
{
	*ret_usable = hl_libc_usable_size(block);
	return hl_recorder_has_rules(hl_recorder)
		       ? take_either(thread, block, ret_block, ret_usable)
		       : hl_event_take_sized(thread, block, *ret_usable, ret_block);
}

/* ${it} has been taken. */
static inline __attribute__((always_inline)) void finish_free(struct hl_thread *thread,
							      const void *block, struct hl_block it,
							      uint64_t usable, bool temporary)
{
	struct hl_cell *cell = count_free(thread, block, it, usable);

	/* Under sampling the thread's next event is mostly not seen, so the question has no answer.
	 */
	if (temporary && cell && !thread->sampling)
		cell->temporary_objects++;
}

void hl_event_finish_free(struct hl_thread *thread, const void *block, struct hl_block it,
			  uint64_t usable, bool temporary)
{
	finish_free(thread, block, it, usable, temporary);
}

static inline __attribute__((always_inline)) void free_block(struct hl_thread *thread,
							     const void *block)
{
	bool temporary = thread->last_block == block;
	uint64_t usable;

	thread->last_block = NULL;
	struct hl_block it;
	if (hl_event_take(thread, block, &it, &usable))
		finish_free(thread, block, it, usable, temporary);
}

/* Not inline, for the registers of the usual way. */
static __attribute__((noinline)) void free_with_pieces(struct hl_thread *thread, const void *block)
{
	free_block(thread, block);
	hl_event_end_pieces(thread, block, hl_libc_usable_size(block));
}

void hl_event_free(struct hl_thread *thread, const void *block)
{
	if (hl_event_has_pieces())
		free_with_pieces(thread, block);
	else
		free_block(thread, block);
}

void hl_event_free_sized(struct hl_thread *thread, const void *block, uint64_t usable)
{
	bool temporary = thread->last_block == block;

	thread->last_block = NULL;
	struct hl_block it;
	if (hl_event_take_sized(thread, block, usable, &it))
		finish_free(thread, block, it, usable, temporary);
	if (hl_event_has_pieces())
		hl_event_end_pieces(thread, block, usable);
}

/* Takes a block of ${usable} bytes out of its entry of the array and counts it. ${logging}, a
 * constant: the mode logs. */
static inline __attribute__((always_inline)) void
free_in_array(struct hl_recorder *recorder, struct hl_thread *thread, const void *block,
	      hl_block_entry *entry, struct hl_cell *cell, uint64_t usable, uint32_t logging)
{
	uint64_t slack = atomic_load_explicit(entry, memory_order_relaxed) & HL_BLOCK_SLACK_IN_HASH;

	atomic_store_explicit(entry, 0, memory_order_relaxed);
	cell->temporary_objects += thread->last_block == block;
	thread->last_block = NULL;
	hl_event_add_free(recorder, thread, block, cell, (struct hl_weight){usable - slack, 1},
			  slack, logging);
}

/* The node of a block of malloc() whose word is in ${entry}, that of the first plane; or 0. */
static inline uint32_t node_in_array(const hl_block_entry *entry, const void *block)
{
	uint32_t word =
		atomic_load_explicit(entry, memory_order_relaxed) ^ hl_block_half((uintptr_t)block);
	/* Of another half; or in the hash, or an object's. */
	bool elsewhere = (word & (HL_BLOCK_HALF | HL_BLOCK_SLACK_IN_HASH)) > HL_BLOCK_SLACK_MAX;

	return HL_UNLIKELY(elsewhere) ? 0 : word >> HL_BLOCK_NODE_SHIFT;
}

/* hl_event_free_plain() where that takes more than a look. */
static __attribute__((noinline)) bool free_plain_any(struct hl_thread *thread, const void *block)
{
	struct hl_recorder *recorder = hl_recorder;
	hl_block_entry *entry = hl_block_entry_at(&recorder->blocks, block);
	const uint32_t mode = hl_event_mode(recorder);

	if (HL_UNLIKELY(!thread->plain || !entry || mode & HL_MODE_PIECES))
		return false;
	uint32_t node = node_in_array(entry, block);
	struct hl_cell *cell = node ? hl_cells_get(&thread->cells, &recorder->region, node) : NULL;
	if (HL_UNLIKELY(!cell))
		return false;
	free_in_array(recorder, thread, block, entry, cell, hl_libc_usable_size(block), mode);
	if (HL_UNLIKELY(mode & HL_MODE_SAMPLED && !thread->sampling))
		begin_sampling(recorder, thread);
	return true;
}

/* Like hl_event_alloc(), what is done here calls nothing. */
bool hl_event_free_plain(struct hl_thread *thread, const void *block)
{
	struct hl_recorder *recorder = hl_recorder;
	hl_block_entry *entry;
	struct hl_cell *cell;
	uint32_t node;
	size_t usable;

	if (HL_UNLIKELY(!thread->plain_chunks ||
			!(entry = hl_block_entry_of_chunk(&recorder->blocks, block)) ||
			!(node = node_in_array(entry, block)) ||
			hl_event_mode(recorder) & (HL_MODE_LOGGING | HL_MODE_PIECES |
						   HL_MODE_SAMPLED | HL_MODE_CASE) ||
			!hl_libc_read_chunk(block, &usable) ||
			!(cell = hl_cells_find(&thread->cells, &recorder->region, node))))
		return free_plain_any(thread, block);
	free_in_array(recorder, thread, block, entry, cell, usable, 0);
	return true;
}

bool hl_event_free_known(struct hl_thread *thread, const void *block, uint64_t usable)
{
	struct hl_block it;

	if (!hl_block_take(&hl_recorder->blocks, block, usable, &it))
		return false;
	bool temporary = thread->last_block == block;
	thread->last_block = NULL;
	finish_free(thread, block, it, usable, temporary);
	return true;
}

/* ---- blocks of functions that rules name ---- */

/* A pool that was reset has given back without a word what lies where it cuts the next piece. */
static void begin_piece(struct hl_thread *thread, const void *piece, uint64_t bytes, uint32_t pool)
{
	hl_event_end_pieces(thread, piece, bytes ? bytes : 1);
	/* Without memory it is in use until it is given back by itself. */
	if (HL_LIKELY(hl_block_note_piece(&hl_recorder->blocks, piece, pool, (uintptr_t)thread)))
		hl_event_note_pieces();
}

void hl_event_alloc_ruled(struct hl_thread *thread, const void *block, uint64_t requested,
			  const struct hl_registers *caller, const struct hl_recall_slot *place,
			  const char *type, uint32_t pool)
{
	begin_piece(thread, block, requested, pool);
	count_alloc(thread, block, requested, &requested, pool ? RULED_IN_POOL : RULED, caller,
		    place, HL_LABEL_TYPE, type);
}

void hl_event_alloc_in_hash(struct hl_thread *thread, const void *block, uint64_t requested,
			    uint64_t usable, const struct hl_registers *caller,
			    const struct hl_recall_slot *place, const char *type, bool is_hit)
{
	count_alloc(thread, block, requested, &usable, is_hit ? RULED_BUT_HIT : RULED, caller,
		    place, HL_LABEL_TYPE, type);
}

void hl_event_alloc_pool(struct hl_thread *thread, const void *block, uint64_t requested,
			 const struct hl_registers *caller, const char *pool)
{
	if (requested > PTRDIFF_MAX) {
		hl_event_lose(thread, 0);
		return;
	}
	begin_piece(thread, block, requested, 0);
	count_alloc(thread, block, requested, &requested, RULED, caller,
		    hl_event_locate(thread, caller), HL_LABEL_POOL, pool);
}

bool hl_event_take_ruled(const void *block, struct hl_block *ret_block)
{
	return HL_LIKELY(hl_event_take_object(block, ret_block)) ||
	       hl_block_take(&hl_recorder->blocks, hl_block_ruled_key(block), 0, ret_block);
}

void hl_event_put_back_ruled(struct hl_thread *thread, const void *block, struct hl_block it,
			     uint32_t pool)
{
	if (pool)
		hl_block_note_piece(&hl_recorder->blocks, block, pool, (uintptr_t)thread);
	if (!hl_block_hash_set(hl_recorder->blocks.hash, (uintptr_t)hl_block_ruled_key(block), it,
			       NULL))
		hl_event_lose(thread, it.requested);
}

void hl_event_free_ruled(struct hl_thread *thread, const void *block)
{
	bool temporary = thread->last_block == block;

	thread->last_block = NULL;
	struct hl_block it;
	if (hl_event_take_ruled(block, &it)) {
		thread->last_ruled_free = block;
		finish_free(thread, block, it, it.requested, temporary);
		if (hl_event_has_pieces())
			hl_event_end_pieces(thread, block, it.requested);
	}
	/* Of a block of malloc() the call of free() within will tell. One function of rules may free by another. */
	else if (block != thread->last_ruled_free &&
		 !hl_block_may_hold(&hl_recorder->blocks, block))
		count_unmatched(hl_recorder, thread);
}

void hl_event_put_back(struct hl_thread *thread, const void *block, struct hl_block it,
		       uint64_t usable)
{
	struct hl_recorder *recorder = hl_recorder;

	struct hl_block_stale stale = HL_BLOCK_NOT_STALE;
	bool in_array = hl_event_wants_array(recorder, hl_event_mode(recorder));
	if (!hl_block_set(&recorder->blocks, in_array, block, it, usable, &stale))
		hl_event_lose(thread, it.requested);
}

/* ---- mappings; see mappings.h. Few and large: all are counted, whatever --sample says. ---- */

static void count_unmapped(void *context, uint32_t node, uint64_t bytes, bool last)
{
	struct hl_thread *thread = context;
	struct hl_recorder *recorder = hl_recorder;

	struct hl_cell *cell = hl_cells_get(&thread->cells, &recorder->region, node);
	if (HL_UNLIKELY(!cell)) {
		hl_event_lose(thread, bytes);
		return;
	}
	hl_event_add_free(recorder, thread, NULL, cell, (struct hl_weight){bytes, last}, 0,
			  hl_event_mode(recorder));
}

void hl_event_unmap(struct hl_thread *thread, uint64_t start, uint64_t end, uint64_t bound)
{
	thread->last_block = NULL;
	if (!hl_mappings_remove(&hl_recorder->mappings, start, end, bound, count_unmapped, thread))
		hl_event_lose(thread, end - start);
}

void hl_event_map(struct hl_thread *thread, uint64_t start, uint64_t end, enum hl_pseudo_frame way,
		  const struct hl_registers *caller)
{
	struct hl_recorder *recorder = hl_recorder;

	hl_event_unmap(thread, start, end, HL_MAPPING_ANY);
	const uint32_t mode = hl_event_mode(recorder);
	if (hl_mode_of(mode) == HL_MODE_CLOSED)
		return;
	const struct hl_recall_slot *place =
		hl_recall_locate(&thread->tables->recall, &thread->tables->walk, caller);
	struct hl_cell *cell = hl_event_cell_in_mode(recorder, thread, caller, place, mode);
	cell = pseudo_cell(recorder, thread, cell, hl_pseudo_frame_key(way));
	if (!cell || !hl_mappings_add(&recorder->mappings, start, end, cell->node)) {
		hl_event_lose(thread, end - start);
		return;
	}
	hl_event_begin(recorder, thread, cell, mode);
	cell->alloc_bytes += end - start;
	cell->alloc_objects++;
	hl_event_add_inuse(recorder, thread, end - start);
	hl_event_log(recorder, thread, mode, cell->node, (struct hl_weight){end - start, 1}, false);
}
