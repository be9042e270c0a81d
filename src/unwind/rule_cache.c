/* SPDX-License-Identifier: BSD-2-Clause */
/* Fills the rule cache and forgets it; see rule_cache.h. */
#include "unwind/rule_cache.h"

#include <assert.h>

static_assert(HL_RULE_SLOTS == UINT32_C(1) << (64 - 50), "hl_rule_slot_of shifts by 50");

#define USER_SPACE_END (UINT64_C(1) << 47)

/* Malformed information is as good as none: the frame pointer may still be right. */
static hl_rule rule_at(const struct hl_unwind_module *module, uint64_t pc)
{
	hl_rule rule;
	uint64_t start = module->start, end = module->end, hdr = (uint64_t)module->eh_frame_hdr;
	/* Of a program whose segments leave gaps, _dl_find_object names the segment with the code:
	 * its call frame information is in another, whose bounds are not known. */
	if (hdr < start || hdr >= end) {
		start = hdr < start ? hdr : start;
		end = USER_SPACE_END;
	}
	if (hdr && !hl_cfi_find_in_memory(module->eh_frame_hdr, start, end, pc, &rule))
		return rule;
	struct hl_cfi_section debug_frame = {
		.bytes = module->debug_frame,
		.size = module->debug_frame_bytes,
		.is_debug_frame = true,
		.bias = module->load_bias,
	};
	if (module->debug_frame && !hl_cfi_find(&debug_frame, pc, &rule))
		return rule;
	return HL_RULE_NONE;
}

/*
 * No call pushes a return address that is a function's first byte with nothing of a function before
 * it: somebody put it there to start a stack, as makecontext(3) does. Nothing lies outward.
 */
static hl_rule rule_in_module(const struct hl_unwind_module *module, uint64_t pc)
{
	hl_rule rule = rule_at(module, pc);
	if (rule == HL_RULE_NONE && rule_at(module, pc + 1) != HL_RULE_NONE)
		return HL_RULE_END;
	return rule;
}

uint64_t hl_rule_cache_miss(struct hl_unwind *unwind, uint32_t generation, uint64_t pc)
{
	struct hl_unwind_module module = {0};
	uint64_t rule = HL_RULE_NONE;
	if (unwind->find_module(unwind, pc, &module))
		rule = rule_in_module(&module, pc) | (uint64_t)module.id << HL_MODULE_SHIFT;
	struct hl_rule_slot *slot = hl_rule_slot_of(unwind, pc);
	atomic_store_explicit(&slot->rule, rule, memory_order_relaxed);
	atomic_store_explicit(&slot->check, rule ^ hl_rule_key(generation, pc),
			      memory_order_relaxed);
	return rule;
}

static void forget_all(struct hl_unwind *unwind)
{
	for (uint32_t i = 0; i < HL_RULE_SLOTS; i++) {
		atomic_store_explicit(&unwind->slots[i].rule, 0, memory_order_relaxed);
		atomic_store_explicit(&unwind->slots[i].check, 0, memory_order_relaxed);
	}
}

void hl_unwind_invalidate(struct hl_unwind *unwind)
{
	uint32_t generation = atomic_load_explicit(&unwind->generation, memory_order_relaxed);
	do {
		/* Keys hold 16 bits of the generation. Before those come round the table is
		 * emptied; nobody can write an entry of the coming generation until it has come. */
		if (!(uint16_t)(generation + 1))
			forget_all(unwind);
	} while (!atomic_compare_exchange_weak_explicit(&unwind->generation, &generation,
							generation + 1, memory_order_acq_rel,
							memory_order_relaxed));
}
