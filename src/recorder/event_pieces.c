/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts pieces of pools that are reset, and ends those of all pools; see event.h. */
#include "recorder/event_parts.h"

static void add_or_lose(struct hl_thread *thread, const void *piece, uint64_t requested,
			hl_block_entry *words, struct hl_cell *cell, uint32_t mode)
{
	if (HL_UNLIKELY(!cell)) {
		thread->last_block = NULL;
		hl_event_lose(thread, requested);
		return;
	}
	hl_piece_array_set(words, cell->node, requested);
	hl_event_add_alloc(hl_recorder, thread, piece, cell, (struct hl_weight){requested, 1}, 0,
			   mode);
}

static __attribute__((noinline)) void alloc_any(struct hl_thread *thread, const void *piece,
						uint64_t requested,
						const struct hl_registers *caller,
						const struct hl_recall_slot *place, uint32_t pool)
{
	struct hl_recorder *recorder = hl_recorder;
	const uint32_t mode = hl_event_mode(recorder);
	bool in_array = thread->plain && !recorder->hash_only &&
			hl_mode_has_array(hl_mode_of(mode)) &&
			!(mode & (HL_MODE_ASKED | HL_MODE_SAMPLED));

	/* First, as there may be no room for the piece in the end. */
	if (in_array)
		hl_event_end_pieces(thread, piece, requested ? requested : 1);
	hl_block_entry *words =
		in_array ? hl_piece_array_make(&recorder->blocks, pool, (uintptr_t)piece, requested,
					       (uintptr_t)thread)
			 : NULL;
	if (HL_UNLIKELY(!words)) {
		hl_event_alloc_ruled(thread, piece, requested, caller, place, NULL, pool);
		return;
	}
	atomic_store_explicit(&recorder->region.header->piece_arrays,
			      (uintptr_t)hl_piece_arrays(&recorder->blocks), memory_order_relaxed);
	hl_event_note_pieces();
	add_or_lose(thread, piece, requested, words,
		    hl_event_cell_in_mode(recorder, thread, caller, place, mode), mode);
}

static __attribute__((noinline)) void alloc_by_parts(struct hl_thread *thread, const void *piece,
						     uint64_t requested,
						     const struct hl_registers *caller,
						     const struct hl_recall_slot *place,
						     hl_block_entry *words)
{
	add_or_lose(thread, piece, requested, words,
		    hl_event_find_cell(hl_recorder, thread, caller, place, true),
		    HL_EVENT_WAY_COUNTED);
}

/* Like hl_event_alloc_of(). */
void hl_event_alloc_piece(struct hl_thread *thread, const void *piece, uint64_t requested,
			  const struct hl_registers *caller, const struct hl_recall_slot *place,
			  uint32_t pool)
{
	struct hl_recorder *recorder = hl_recorder;
	struct hl_recall *recall = &thread->tables->recall;
	const struct hl_walk *walk = &thread->tables->walk;
	hl_block_entry *words;

	bool begins = false;
	if (!place) {
		place = hl_recall_guess(recall, caller);
		begins = hl_recall_begins(recall, &recorder->unwind, walk, caller, place);
		if (HL_UNLIKELY(!begins))
			place = hl_recall_locate_after_guess(recall, walk, caller);
	}
	if (HL_UNLIKELY(!begins))
		begins = hl_recall_begins(recall, &recorder->unwind, walk, caller, place);
	if (HL_UNLIKELY(!thread->plain ||
			(hl_event_mode(recorder) & HL_EVENT_WAY_BITS) != HL_EVENT_WAY_COUNTED ||
			hl_recall_check_every || !recall->credit || thread->looked_ahead ||
			!(words = hl_piece_array_room(&recorder->blocks, pool, (uintptr_t)piece,
						      requested, (uintptr_t)thread)) ||
			!begins || place->tag & HL_EVENT_TAG_INCOMPLETE)) {
		alloc_any(thread, piece, requested, caller, place, pool);
		return;
	}
	if (!hl_recall_ends(place, &thread->tables->walk)) {
		alloc_by_parts(thread, piece, requested, caller, place, words);
		return;
	}
	hl_recall_count_hit(&thread->tables->recall);
	struct hl_cell *cell = hl_event_stack_of_tag(place->tag);
	if (HL_LIKELY(place->tag & HL_EVENT_TAG_ASKS))
		cell = hl_script_cell(recorder, thread, cell, caller);
	add_or_lose(thread, piece, requested, words, cell, HL_EVENT_WAY_COUNTED);
}

void hl_event_free_piece(struct hl_thread *thread, const void *piece, uint32_t pool)
{
	struct hl_recorder *recorder = hl_recorder;
	hl_block_entry *words =
		hl_piece_array_at(hl_piece_array_of(&recorder->blocks, pool), (uintptr_t)piece);
	uint32_t word = words ? atomic_load_explicit(words, memory_order_relaxed) : 0;

	struct hl_cell *cell = word & HL_PIECE_TAG
				       ? hl_cells_find(&thread->cells, &recorder->region,
						       word >> HL_BLOCK_NODE_SHIFT)
				       : NULL;
	if (HL_UNLIKELY(!cell ||
			atomic_load_explicit(&recorder->blocks.has_piece_stores,
					     memory_order_relaxed) ||
			hl_event_mode(recorder) & (HL_MODE_LOGGING | HL_MODE_CASE))) {
		hl_event_free_ruled(thread, piece);
		return;
	}
	struct hl_block it = hl_piece_array_take(words, word);
	cell->temporary_objects += thread->last_block == piece;
	thread->last_block = NULL;
	thread->last_ruled_free = piece;
	hl_event_add_free(recorder, thread, piece, cell, (struct hl_weight){it.requested, 1}, 0, 0);
}

void hl_event_end_pieces(struct hl_thread *thread, const void *start, uint64_t bytes)
{
	const uintptr_t end = (uintptr_t)start + bytes;
	uintptr_t at = (uintptr_t)start, piece;
	struct hl_block it;

	while (hl_block_take_piece(&hl_recorder->blocks, &at, end, &piece, &it))
		hl_event_finish_free(thread, (const void *)piece, it, it.requested, false);
	for (struct hl_piece_array *array = hl_piece_arrays(&hl_recorder->blocks); array;
	     array = array->older) {
		at = (uintptr_t)start;
		while (hl_piece_array_next(array, false, &at, end, &piece, &it))
			hl_event_finish_free(thread, (const void *)piece, it, it.requested, false);
	}
}

void hl_event_end_pool(struct hl_thread *thread, uint32_t pool)
{
	uintptr_t at = 0, piece;
	struct hl_block it;

	thread->last_block = NULL;
	while (hl_block_take_piece_of_pool(&hl_recorder->blocks, pool, (uintptr_t)thread, &at,
					   &piece, &it))
		hl_event_finish_free(thread, (const void *)piece, it, it.requested, false);
	at = 0;
	while (hl_block_take_piece_of_array(&hl_recorder->blocks, pool, (uintptr_t)thread, &at,
					    &piece, &it))
		hl_event_finish_free(thread, (const void *)piece, it, it.requested, false);
}
