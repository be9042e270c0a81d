/* SPDX-License-Identifier: BSD-2-Clause */
/* The memoized walk; see unwind.h for what it promises. */
#include "unwind/rule_cache.h"
#include "unwind/saved.h"

#include <assert.h>
#include <pthread.h>

/*
 * What a frame's step depends on beside (pc, sp, bp) are at most two words, kept in the frame. A
 * frame that read none or one names a word twice, or one that never changes; a frame that must not
 * be remembered names one that never matches. So the check of a frame is two compares, no cases.
 */
static const uint64_t constant_word = 0;
#define VALUE_ALWAYS UINT64_C(0)
#define VALUE_NEVER  UINT64_C(1)

static_assert(sizeof(struct hl_walk_frame) == 64, "one cache line a frame");

/* A frame's lookup pc is the low 48 bits of its key. */
static inline uint64_t lookup_pc_of(const struct hl_walk_frame *frame)
{
	return frame->key & HL_FRAME_PC_MASK;
}

/*
 * Passes remembered frames that lie inward of ${sp}; ${count} of them are not passed yet. How many
 * lie inward of the next caller cannot be predicted, but mostly it is one.
 */
static inline uint32_t pass_inner(const struct hl_walk *walk, uint32_t count, uint64_t sp)
{
	if (HL_LIKELY(count))
		count -= walk->frames[count - 1].sp < sp;
	while (HL_UNLIKELY(count && walk->frames[count - 1].sp < sp))
		count--;
	return count;
}

/* A bp that nothing outward depends on need not be equal: most code uses rbp for data. */
static inline bool is_in_state(const struct hl_walk_frame *frame, const struct hl_arch_frame *at)
{
	uint64_t bp_differs = frame->flags & HL_FRAME_NEEDS_BP ? frame->bp ^ at->bp : 0;

	return !((frame->sp ^ at->sp) | bp_differs | (lookup_pc_of(frame) ^ at->pc));
}

static void remember_reads(struct hl_walk_frame *frame, const struct hl_arch_reads *reads)
{
	for (unsigned i = 0; i < HL_COUNT_OF(frame->word); i++) {
		bool is_read = i < reads->count;
		frame->word[i] = is_read ? reads->word[i] : &constant_word;
		frame->value[i] = is_read ? reads->value[i] : VALUE_ALWAYS;
	}
	if (reads->count == 1) {
		frame->word[1] = frame->word[0];
		frame->value[1] = frame->value[0];
	}
	if (reads->unrepeatable) {
		frame->word[0] = &constant_word;
		frame->value[0] = VALUE_NEVER;
	}
}

/* Any kind of step, with all its checks. Returns false at the stack's end. */
static __attribute__((noinline)) bool step_any(struct hl_walk *walk, struct hl_arch_frame *at,
					       uint64_t *interrupted_context,
					       struct hl_walk_frame *frame, uint64_t rule)
{
	struct hl_arch_reads reads = {0};
	enum hl_arch_outcome outcome =
		hl_step(walk, rule & HL_RULE_MASK, at, interrupted_context, &reads);

	frame->key += hl_rule_is_at_next(rule & HL_RULE_MASK);
	if (rule >> HL_MODULE_SHIFT == HL_MODULE_SCRIPT && !hl_arch_is_plain(rule))
		frame->key = hl_pseudo_frame_key(HL_PSEUDO_RETURN_PROBE);
	frame->flags = hl_arch_uses_bp(rule) ? HL_FRAME_NEEDS_BP : 0;
	if (outcome == HL_STEP_OUT && at->pc > HL_FRAME_PC_MASK)
		outcome = HL_STEP_LOST;
	remember_reads(frame, &reads);
	walk->incomplete = outcome == HL_STEP_LOST;
	return outcome == HL_STEP_OUT;
}

/* The common step, when everything about it is in order; else nothing has happened. */
HL_READS_STACK static inline bool step_plain(const struct hl_walk *walk, struct hl_arch_frame *at,
					     struct hl_walk_frame *frame, uint64_t rule)
{
	struct hl_arch_plain step = hl_arch_plain_step(rule, at->sp, at->bp);
	uint64_t low = walk->stack_low, size = walk->stack_high - low;

	if (HL_UNLIKELY((step.ra_at - low >= size) | (step.bp_at - low >= size) |
			((step.ra_at & 7) != 0) | (step.cfa <= at->sp)))
		return false;
	const uint64_t *ra_word = (const uint64_t *)step.ra_at;
	const uint64_t *bp_word = (const uint64_t *)step.bp_at;
	uint64_t ra_value = *ra_word, ra = hl_machine_code_address(ra_value), bp = *bp_word;
	if (HL_UNLIKELY(ra - 1 >= HL_FRAME_PC_MASK))
		return false;
	frame->word[0] = ra_word;
	frame->word[1] = bp_word;
	frame->value[0] = ra_value;
	frame->value[1] = bp;
	frame->flags = (rule & 1 ? HL_FRAME_NEEDS_BP : 0) | (step.bp_saved ? HL_FRAME_SAVES_BP : 0);
	at->pc = ra - 1;
	at->sp = step.cfa;
	at->bp = step.bp_saved ? bp : at->bp;
	return true;
}

/*
 * Whether bp matters on entry of a frame's step, given whether it does outward of it; and if not,
 * the word in which the frame saved it need not be checked.
 */
static inline bool settle_bp(struct hl_walk_frame *frame, bool outer_needs_bp)
{
	bool saved = frame->flags & HL_FRAME_SAVES_BP;

	if (!saved && outer_needs_bp)
		frame->flags |= HL_FRAME_NEEDS_BP;
	if (saved && !outer_needs_bp) {
		frame->word[1] = frame->word[0];
		frame->value[1] = frame->value[0];
	}
	return frame->flags & HL_FRAME_NEEDS_BP;
}

/* ---- the thread's own stack, and the list of its words ---- */

/* From the beginning of a stack to the outermost frame at most, in bytes: the thread's descriptor
 * and its thread-local variables lie between. Less than the smallest stack. */
#define OWN_TOP_BYTES UINT64_C(12288)

static bool is_repeatable(const struct hl_walk_frame *frame)
{
	return frame->word[0] != &constant_word || frame->value[0] == VALUE_ALWAYS;
}

/*
 * Extends what is known of the thread's own stack to the innermost frame. The way there goes frame
 * by frame, not through a signal's, and all memory in between could be read one page after the
 * other: below a stack there is a page that cannot. False when the innermost frame is elsewhere.
 */
static __attribute__((noinline)) bool find_own_stack(struct hl_walk *walk)
{
	uint64_t low = walk->frames[0].sp, high = walk->own_top;

	if (high - low >= OWN_TOP_BYTES || walk->truncated || walk->incomplete)
		return false;
	high = high < walk->stack_high ? high : walk->stack_high;
	for (uint32_t i = 0; i < walk->depth; i++) {
		if (!is_repeatable(&walk->frames[i]) || walk->frames[i].sp > low ||
		    walk->frames[i].sp < walk->stack_low)
			return false;
		low = walk->frames[i].sp;
	}
	walk->own_low = low;
	walk->own_high = high;
	return true;
}

static bool is_constant(const struct hl_walk_frame *frame, unsigned k)
{
	return frame->word[k] == &constant_word && frame->value[k] == VALUE_ALWAYS;
}

/* Lists what can change of a frame, after those outward of it. False when some of it lies elsewhere
 * than on the thread's own stack. */
static inline bool list_words(struct hl_walk *walk, uint32_t index)
{
	const struct hl_walk_frame *frame = &walk->frames[index];
	uint32_t end = index ? walk->check_end[index - 1] : 0;
	unsigned distinct = frame->word[0] == frame->word[1] ? 1 : 2;

	for (unsigned k = 0; k < distinct; k++) {
		if (HL_UNLIKELY(is_constant(frame, k)))
			continue;
		if (HL_UNLIKELY(!hl_walk_is_own(walk, (uint64_t)frame->word[k])))
			return false;
		walk->checks[end++] = (struct hl_walk_check){frame->word[k], frame->value[k]};
	}
	walk->check_end[index] = (uint16_t)end;
	return true;
}

/* ${kept} frames are listed as they were. */
static void list_frames(struct hl_walk *walk, uint32_t kept)
{
	bool found = HL_UNLIKELY(!hl_walk_is_own(walk, walk->frames[walk->depth - 1].sp)) &&
		     find_own_stack(walk);

	if (HL_UNLIKELY(found))
		kept = 0;
	if (walk->listed > kept)
		walk->listed = kept;
	while (walk->listed < walk->depth && list_words(walk, walk->listed))
		walk->listed++;
}

/* Puts the fresh frames after the ${kept} outer ones. Returns how many are unchanged there. */
static uint32_t settle(struct hl_walk *walk, uint32_t kept, uint32_t fresh)
{
	uint32_t unchanged = kept;

	if (HL_UNLIKELY(kept + fresh > HL_MAX_FRAMES)) {
		uint32_t surplus = kept + fresh - HL_MAX_FRAMES;
		for (uint32_t i = surplus; i < kept; i++)
			walk->frames[i - surplus] = walk->frames[i];
		kept -= surplus;
		unchanged = 0; /* their outer frames are cut off */
		walk->truncated = true;
	}
	bool needs_bp = kept && walk->frames[kept - 1].flags & HL_FRAME_NEEDS_BP;
	for (uint32_t i = 0; i < fresh; i++) {
		walk->frames[kept + i] = walk->fresh[fresh - 1 - i];
		needs_bp = settle_bp(&walk->frames[kept + i], needs_bp);
	}
	walk->depth = kept + fresh;
	list_frames(walk, unchanged);
	return unchanged;
}

/* A walk of another generation, or one that lacks its outer part, proves nothing. */
static inline uint32_t usable_depth(struct hl_walk *walk, uint32_t generation)
{
	if (HL_UNLIKELY(walk->generation != generation || walk->truncated))
		return 0;
	return walk->depth;
}

uint32_t hl_walk_capture(struct hl_unwind *unwind, struct hl_walk *walk,
			 const struct hl_registers *start)
{
	uint32_t generation = atomic_load_explicit(&unwind->generation, memory_order_acquire);
	uint32_t remembered = usable_depth(walk, generation), fresh = 0;
	bool was_incomplete = walk->incomplete;
	struct hl_arch_frame at = {start->pc - 1, start->sp, start->bp};
	uint64_t context = 0;

	walk->generation = generation;
	walk->truncated = false;
	for (;;) {
		remembered = pass_inner(walk, remembered, at.sp);
		if (remembered && is_in_state(&walk->frames[remembered - 1], &at)) {
			if (HL_LIKELY(hl_walk_is_unchanged(walk, remembered))) {
				walk->incomplete = was_incomplete;
				return settle(walk, remembered, fresh);
			}
			/* Only what lies outward of the change can still match; a word that is what
			 * it was by now, as others write there, proves nothing. */
			uint32_t changed = hl_walk_first_changed(walk, remembered);
			remembered = changed ? changed - 1 : 0;
		}
		if (HL_UNLIKELY(fresh == HL_MAX_FRAMES))
			break;
		uint64_t rule = hl_rule_cache_find(unwind, generation, at.pc);
		if (HL_UNLIKELY(!rule))
			rule = hl_rule_cache_generated(unwind, walk, generation, at.pc, at.sp,
						       fresh ? &walk->fresh[fresh - 1] : NULL);
		struct hl_walk_frame *frame = &walk->fresh[fresh++];
		frame->sp = at.sp;
		frame->bp = at.bp;
		frame->key = at.pc | (rule & ~HL_RULE_MASK);
		if (HL_LIKELY(hl_arch_is_plain(rule)) &&
		    HL_LIKELY(step_plain(walk, &at, frame, rule))) {
			context = 0;
			continue;
		}
		/* Copies, so that the loop's own variables stay in registers. */
		struct hl_arch_frame stepping = at;
		uint64_t stepping_context = context;
		if (!step_any(walk, &stepping, &stepping_context, frame, rule))
			return settle(walk, 0, fresh);
		if (HL_ARCH_GUESSES_SP(rule))
			hl_rule_correct_sp(hl_rule_cache_find(unwind, generation, stepping.pc),
					   at.bp, &stepping);
		at = stepping;
		context = stepping_context;
	}
	walk->truncated = true;
	walk->incomplete = false;
	return settle(walk, 0, fresh);
}

/* Where the main thread's stack begins; glibc's alone (its loader's). */
extern void *__libc_stack_end;
#pragma weak __libc_stack_end

void hl_walk_begin(struct hl_walk *walk, bool is_main)
{
	walk->depth = walk->listed = 0;
	walk->stack_low = walk->stack_high = 0;
	walk->own_low = walk->own_high = 0;
	if (is_main)
		walk->own_top = &__libc_stack_end ? (uint64_t)__libc_stack_end : 0;
	else /* it lies below the thread's descriptor, in one mapping */
		walk->own_top = (uint64_t)pthread_self();
}
