/* SPDX-License-Identifier: BSD-2-Clause */
/* Keeps stacks for recall; see recall.h. */
#include "unwind/recall.h"

void hl_recall_keep(struct hl_recall *recall, const struct hl_walk *walk,
		    const struct hl_registers *at, uint32_t kept, uint64_t tag)
{
	uint32_t inner = walk->depth - kept;
	if (walk->truncated || inner == 0 || inner > HL_RECALL_FRAMES)
		return;
	struct hl_recall_set *set = hl_recall_set_of(recall, at);
	struct hl_recall_slot *slot = &set->ways[set->next++ % HL_RECALL_WAYS];
	slot->pc = at->pc;
	slot->sp = at->sp;
	slot->bp = at->bp;
	slot->bp_matters = walk->frames[walk->depth - 1].flags & HL_FRAME_NEEDS_BP;
	slot->generation = walk->generation;
	slot->inner = (uint8_t)inner;
	slot->tag = tag;
	slot->join = HL_RECALL_NO_JOIN;
	if (kept) {
		const struct hl_walk_frame *join = &walk->frames[kept - 1];
		slot->join = (uint16_t)(kept - 1);
		slot->join_sp = join->sp;
		slot->join_bp = join->bp;
		slot->join_key = join->key;
		slot->join_node = join->node;
	}
	for (uint32_t i = 0; i < inner; i++) {
		const struct hl_walk_frame *frame = &walk->frames[walk->depth - 1 - i];
		for (unsigned k = 0; k < HL_COUNT_OF(frame->word); k++) {
			slot->reads[i].word[k] = frame->word[k];
			slot->reads[i].value[k] = frame->value[k];
		}
	}
}
