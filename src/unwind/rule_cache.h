/* SPDX-License-Identifier: BSD-2-Clause */
/* The direct-mapped table lookup pc -> rule and module, shared by all threads without a lock. */
#pragma once

#include "base/compiler.h"
#include "unwind/arch.h"
#include "unwind/unwind.h"

#define HL_RULE_MASK HL_FRAME_PC_MASK

/* Finds the rule where the table does not have it, and puts it there. Same result as below. */
uint64_t hl_rule_cache_miss(struct hl_unwind *unwind, uint32_t generation, uint64_t pc);

/* The rule of generated code that called with ${sp}, if it is known, and puts it there; or 0. */
uint64_t hl_rule_cache_generated(struct hl_unwind *unwind, struct hl_walk *walk,
				 uint32_t generation, uint64_t pc, uint64_t sp);

static inline uint64_t hl_rule_key(uint32_t generation, uint64_t pc)
{
	return pc | (uint64_t)generation << HL_MODULE_SHIFT;
}

static inline struct hl_rule_slot *hl_rule_slot_of(struct hl_unwind *unwind, uint64_t pc)
{
	return &unwind->slots[(uint32_t)(pc * UINT64_C(0x9e3779b97f4a7c15) >> 50)];
}

/*
 * The rule for lookup pc ${pc}, with the module id in the upper 16 bits.
 *
 * Relaxed: the two words of a slot are published in no order, and two writers may mix theirs, but a
 * reader believes only a pair whose xor is its own key. A rule is a value, nothing hangs on it.
 */
static inline uint64_t hl_rule_cache_find(struct hl_unwind *unwind, uint32_t generation,
					  uint64_t pc)
{
	struct hl_rule_slot *slot = hl_rule_slot_of(unwind, pc);
	uint64_t rule = atomic_load_explicit(&slot->rule, memory_order_relaxed);

	uint64_t check = atomic_load_explicit(&slot->check, memory_order_relaxed);
	if (HL_LIKELY((check ^ rule) == hl_rule_key(generation, pc)))
		return rule;
	return hl_rule_cache_miss(unwind, generation, pc);
}
