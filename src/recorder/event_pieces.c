/* SPDX-License-Identifier: BSD-2-Clause */
/* Ends pieces; see event.h. */
#include "recorder/event_parts.h"

void hl_event_end_pieces(struct hl_thread *thread, const void *start, uint64_t bytes)
{
	uintptr_t at = (uintptr_t)start, end = at + bytes, piece;
	struct hl_block it;

	while (hl_block_take_piece(&hl_recorder->blocks, &at, end, &piece, &it))
		hl_event_finish_free(thread, (const void *)piece, it, it.requested, false);
}

void hl_event_end_pool(struct hl_thread *thread, uint32_t pool)
{
	uintptr_t at = 0, piece;
	struct hl_block it;

	thread->last_block = NULL;
	while (hl_block_take_piece_of_pool(&hl_recorder->blocks, pool, (uintptr_t)thread, &at,
					   &piece, &it))
		hl_event_finish_free(thread, (const void *)piece, it, it.requested, false);
}
