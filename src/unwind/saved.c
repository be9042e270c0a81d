/* SPDX-License-Identifier: BSD-2-Clause */
/* The walk with all kept registers; see saved.h. */
#include "unwind/saved.h"

#include "unwind/here.h"
#include "unwind/rule_cache.h"

#include <assert.h>

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
				    is_inside ? module.end : HL_USER_END, pc, ret_function) == 0;
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

#define NOWHERE INT16_MIN

static int16_t word_of(const struct hl_cfi_value *saved)
{
	bool is_word = saved->kind == HL_CFI_OFFSET && saved->offset < 0 &&
		       saved->offset > 8 * INT16_MIN && !(saved->offset & 7);

	return (int16_t)(is_word ? saved->offset / 8 : NOWHERE);
}

/* Where the registers of the caller are, by ${state}. */
static void note_words(struct hl_saved_row *row, const struct hl_cfi_state *state)
{
	int16_t return_word = word_of(&state->saved[HL_CFI_RA]);

	if (return_word != NOWHERE)
		row->return_word = return_word;
	for (unsigned k = 0; k < HL_SAVED_COUNT; k++) {
		const struct hl_cfi_value *saved = &state->saved[k];
		row->words[k] = word_of(saved);
		if (saved->kind == HL_CFI_UNSPECIFIED || saved->kind == HL_CFI_SAME)
			row->words[k] = 0;
	}
}

/* The row of ${pc}: to run the program of a function takes thousands of instructions, and stacks go through the same ones. */
static const struct hl_saved_row *find_row(struct hl_unwind *unwind, struct hl_walk *walk,
					   uint32_t generation, uint64_t pc)
{
	static_assert(HL_COUNT_OF(walk->saved_rows[0].words) == HL_SAVED_COUNT, "a word for each");
	struct hl_saved_row *row =
		&walk->saved_rows[pc * UINT64_C(0x9e3779b97f4a7c15) >> (64 - HL_SAVED_ROW_BITS)];
	struct hl_cfi_function function = {0};

	if (row->pc == pc && row->generation == generation)
		return row;
	*row = (struct hl_saved_row){
		.pc = pc, .generation = generation, .return_word = HL_SAVED_RETURN_WORD};
	row->is_known = find_function(unwind, pc, &function);
	if (row->is_known) {
		row->rule = hl_arch_rule(&function.state, function.is_signal_frame);
		row->function_start = function.begin;
		row->function_end = function.end;
		note_words(row, &function.state);
	} else {
		row->rule = hl_rule_cache_find(unwind, generation, pc);
	}
	return row;
}

static void step_registers(struct hl_saved_frame *frame, const struct hl_saved_row *row)
{
	for (unsigned k = 0; k < HL_SAVED_COUNT; k++) {
		uint64_t at = frame->cfa + (uint64_t)((int64_t)row->words[k] * 8);
		bool is_there =
			row->is_known && row->words[k] != NOWHERE && at >= frame->sp && !(at & 7);
		if (!row->is_known || row->words[k])
			frame->at[k] = is_there ? (const uint64_t *)at : NULL;
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
	uint32_t generation = atomic_load_explicit(&unwind->generation, memory_order_acquire);
	struct hl_saved_frame frame = {0};
	struct hl_arch_frame at = {.pc = start->pc - 1, .sp = start->sp, .bp = start->bp};
	uint64_t record = 0; /* by which the last frame was left, with a guess */

	for (unsigned k = 0; k < HL_SAVED_COUNT; k++)
		frame.at[k] = &start_saved[k];
	if (HL_SAVED_RETURN_WORD)
		frame.returns_at = start->sp + (uint64_t)((int64_t)HL_SAVED_RETURN_WORD * 8);
	for (uint32_t depth = 0; depth < HL_MAX_FRAMES; depth++) {
		struct hl_arch_reads reads = {0};
		uint64_t no_context = 0;
		const struct hl_saved_row *row = find_row(unwind, walk, generation, at.pc);
		uint64_t rule = row->rule;
		if (!rule)
			rule = hl_rule_cache_generated(unwind, walk, generation, at.pc, at.sp,
						       NULL);
		rule &= HL_RULE_MASK;
		hl_rule_correct_sp(rule, record, &at);
		record = HL_ARCH_GUESSES_SP(rule) ? at.bp : 0;
		frame.pc = at.pc;
		frame.sp = at.sp;
		bool is_out = goes_on(rule) &&
			      hl_step(walk, rule, &at, &no_context, &reads) == HL_STEP_OUT;
		frame.cfa = is_out ? at.sp : 0;
		frame.called_at = frame.returns_at;
		frame.returns_at = is_out && row->return_word
					   ? at.sp + (uint64_t)((int64_t)row->return_word * 8)
					   : 0;
		frame.kept = row->is_known ? row->words : NULL;
		frame.function_start = row->function_start;
		frame.function_end = row->function_end;
		if (!visit(context, &frame) || !is_out)
			return;
		step_registers(&frame, row);
	}
}

struct found {
	uint64_t sp, *saved;
	bool is_known;
};

HL_READS_STACK static bool take_caller(void *context, const struct hl_saved_frame *frame)
{
	struct found *found = context;

	if (frame->sp != found->sp)
		return frame->sp < found->sp;
	found->is_known = true;
	for (unsigned k = 0; k < HL_SAVED_COUNT; k++)
		found->saved[k] = frame->at[k] ? *frame->at[k] : 0;
	return false;
}

const uint64_t *hl_saved_find(struct hl_unwind *unwind, struct hl_walk *walk,
			      const struct hl_registers *caller, uint64_t room[HL_SAVED_COUNT])
{
	struct found found = {.sp = caller->sp, .saved = room};
	uint64_t now[HL_SAVED_COUNT];
	struct hl_registers start;

	if (!hl_saved_now(&start.pc, &start.sp, now))
		return NULL;
	start.bp = now[HL_SAVED_FRAME];
	hl_saved_walk(unwind, walk, &start, now, take_caller, &found);
	return found.is_known ? room : NULL;
}

struct calls {
	const struct hl_saved_range *ranges;
	uint32_t range_count, count;
};

static bool count_call(void *context, const struct hl_saved_frame *frame)
{
	struct calls *calls = context;

	for (uint32_t i = 0; i < calls->range_count; i++)
		calls->count += frame->pc - calls->ranges[i].start <
				calls->ranges[i].end - calls->ranges[i].start;
	return true;
}

uint32_t hl_saved_count_calls(struct hl_unwind *unwind, struct hl_walk *walk,
			      const struct hl_registers *start, const uint64_t *saved,
			      const struct hl_saved_range *ranges, uint32_t range_count)
{
	struct calls calls = {.ranges = ranges, .range_count = range_count};
	uint64_t all[HL_SAVED_COUNT] = {0};

	for (unsigned k = 0; saved && k < HL_SAVED_FRAME; k++)
		all[k] = saved[k];
	all[HL_SAVED_FRAME] = start->bp;
	hl_saved_walk(unwind, walk, start, all, count_call, &calls);
	return calls.count;
}
