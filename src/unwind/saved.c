/* SPDX-License-Identifier: BSD-2-Clause */
/* The walk with all kept registers; see saved.h. */
#include "unwind/saved.h"

#include "unwind/memory.h"
#include "unwind/rule_cache.h"

#define USER_SPACE_END (UINT64_C(1) << 47)

static const uint8_t tracked[HL_SAVED_COUNT] = {
	[HL_SAVED_RBX] = HL_CFI_RBX, [HL_SAVED_R12] = HL_CFI_R12, [HL_SAVED_R13] = HL_CFI_R13,
	[HL_SAVED_R14] = HL_CFI_R14, [HL_SAVED_R15] = HL_CFI_R15, [HL_SAVED_RBP] = HL_CFI_BP,
};

static bool find_function(struct hl_unwind *unwind, uint64_t pc,
			  struct hl_cfi_function *ret_function)
{
	struct hl_unwind_module module = {0};

	if (!unwind->find_module(unwind, pc, &module) || !module.eh_frame_hdr)
		return false;
	uint64_t hdr = (uint64_t)module.eh_frame_hdr;
	/* As rule_cache.c does it: of a program with gaps, the bounds are those of its code. */
	bool is_inside = hdr >= module.start && hdr < module.end;
	return hl_cfi_find_function(module.eh_frame_hdr, hdr < module.start ? hdr : module.start,
				    is_inside ? module.end : USER_SPACE_END, pc, ret_function) == 0;
}

bool hl_saved_find_function(struct hl_unwind *unwind, uint64_t pc, uint64_t *ret_start,
			    uint64_t *ret_end)
{
	struct hl_cfi_function function;

	if (!find_function(unwind, pc, &function))
		return false;
	*ret_start = function.begin;
	*ret_end = function.end;
	return true;
}

/* Where the caller's registers are, by the state of ${frame}. */
static void step_registers(struct hl_saved_frame *frame, const struct hl_cfi_state *state)
{
	for (unsigned k = 0; k < HL_SAVED_COUNT; k++) {
		const struct hl_cfi_value *saved = &state->saved[tracked[k]];
		uint64_t at = frame->cfa + (uint64_t)saved->offset;
		if (saved->kind == HL_CFI_UNSPECIFIED || saved->kind == HL_CFI_SAME)
			continue;
		bool is_word = saved->kind == HL_CFI_OFFSET && at >= frame->sp && at < frame->cfa &&
			       !(at & 7);
		frame->at[k] = is_word ? (const uint64_t *)at : NULL;
	}
}

static bool goes_on(hl_rule rule)
{
	enum hl_rule_kind kind = hl_rule_kind_of(rule);

	return kind != HL_RULE_SIGNAL && kind != HL_RULE_END && kind != HL_RULE_UNSUPPORTED;
}

HL_READS_STACK void hl_saved_walk(struct hl_unwind *unwind, struct hl_walk *walk,
				  const struct hl_registers *start,
				  const uint64_t start_saved[HL_SAVED_COUNT],
				  hl_saved_visit_fn *visit, void *context)
{
	uint32_t generation = atomic_load_explicit(&unwind->generation, memory_order_relaxed);
	struct hl_saved_frame frame = {0};
	struct hl_arch_frame at = {.pc = start->pc - 1, .sp = start->sp, .bp = start->bp};

	for (unsigned k = 0; k < HL_SAVED_COUNT; k++)
		frame.at[k] = &start_saved[k];
	for (uint32_t depth = 0; depth < HL_MAX_FRAMES; depth++) {
		struct hl_cfi_function function = {0};
		struct hl_arch_reads reads = {0};
		uint64_t no_context = 0;
		bool is_known = find_function(unwind, at.pc, &function);
		uint64_t rule = is_known ? hl_arch_rule(&function.state, function.is_signal_frame)
					 : hl_rule_cache_find(unwind, generation, at.pc);
		if (!rule)
			rule = hl_rule_cache_generated(unwind, walk, generation, at.pc, at.sp);
		rule &= HL_RULE_MASK;
		frame.pc = at.pc;
		frame.sp = at.sp;
		bool is_out = goes_on(rule) &&
			      hl_arch_step(walk, rule, &at, &no_context, &reads) == HL_STEP_OUT;
		frame.cfa = is_out ? at.sp : 0;
		frame.function_start = function.begin;
		frame.function_end = function.end;
		if (!visit(context, &frame) || !is_out)
			return;
		for (unsigned k = 0; !is_known && k < HL_SAVED_COUNT; k++)
			frame.at[k] = NULL;
		if (is_known)
			step_registers(&frame, &function.state);
	}
}
