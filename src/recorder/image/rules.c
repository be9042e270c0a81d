/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hook of all functions that rules name, whatever their arguments are; see region/attached.h.
 *
 * What such a function calls while it allocates belongs to its block, unless layers are counted:
 * then these calls count as any others. Frees are counted before the call, which then goes on without
 * us: a destructor may free many more blocks, or leave by longjmp().
 */
#include "recorder/image/image.h"

#include "recorder/event.h"
#include "recorder/hooks.h"
#include "recorder/libc.h"
#include "recorder/sample.h"
#include "recorder/thread.h"
#include "unwind/memory.h"

#define PAGE_BYTES  UINT64_C(4096)
#define STACK_WORDS 8 /* of arguments that do not fit in registers */

struct hl_attached_rule hl_image_rules[HL_ATTACHED_RULES_MAX];

struct call {
	const struct hl_attached_rule *rule;
	const uint64_t *arguments; /* downwards */
	const struct hl_registers *caller;
	uint64_t block, size; /* that it takes, and asks for */
};

static uint64_t argument(const struct call *call, uint8_t at)
{
	return at ? *(call->arguments - (at - 1)) : 0;
}

/* ---- the real function ---- */

typedef uint64_t real_fn(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
			 uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

/* With all arguments that it may have: above the return address is the caller's frame, or the end of
 * the stack. */
static uint64_t call_real(const struct call *call)
{
	static const uint64_t none[STACK_WORDS];
	real_fn *real = (real_fn *)call->rule->real;
	uint64_t last = call->caller->sp + sizeof(none) - 1;

	const uint64_t *stack = (const uint64_t *)call->caller->sp;
	if (HL_UNLIKELY(last / PAGE_BYTES != (call->caller->sp - 1) / PAGE_BYTES &&
			!hl_memory_page_is_readable(last & ~(PAGE_BYTES - 1))))
		stack = none;
	return real(argument(call, 1), argument(call, 2), argument(call, 3), argument(call, 4),
		    argument(call, 5), argument(call, 6), stack[0], stack[1], stack[2], stack[3],
		    stack[4], stack[5], stack[6], stack[7]);
}

/* No exception can pass us. So where there is no memory the caller is to try again without us. */
static uint64_t call_safe(const struct call *call)
{
	uint64_t alignment = argument(call, call->rule->alignment_at);

	if (!call->rule->throws)
		return call_real(call);
	if (!alignment)
		return (uint64_t)hl_libc.malloc(call->size);
	return hl_libc.memalign ? (uint64_t)hl_libc.memalign(alignment, call->size) : 0;
}

/* What the call may count is in another count than that by which nested calls are known. */
static uint64_t call_in_layer(const struct call *call)
{
	struct hl_attached_slot *slot = hl_self_slot();

	slot->in_rule = true;
	atomic_fetch_add(&hl_attached.inside_without_slot, 1);
	atomic_fetch_sub_explicit(&slot->inside, 1, memory_order_relaxed);
	uint64_t result = call_safe(call);
	atomic_fetch_add_explicit(&slot->inside, 1, memory_order_relaxed);
	atomic_fetch_sub(&hl_attached.inside_without_slot, 1);
	slot->in_rule = false;
	return result;
}

static uint64_t block_of(const struct call *call, uint64_t result)
{
	if (!call->rule->result_at)
		return result;
	return (int32_t)result ? 0 : *(const uint64_t *)argument(call, call->rule->result_at);
}

/* ---- blocks ---- */

static void record(struct hl_thread *thread, const struct call *call, uint64_t block,
		   const struct hl_recall_slot *place)
{
	if (call->rule->is_of_malloc)
		hl_event_alloc(thread, (const void *)block, call->size, call->caller, place);
	else
		hl_event_alloc_ruled(thread, (const void *)block, call->size, call->caller, place);
}

struct taken {
	struct hl_block block;
	uint64_t usable;
	bool is_known;
};

static struct taken take(struct hl_thread *thread, const struct call *call)
{
	const void *block = (const void *)call->block;
	struct taken taken = {0};

	if (block && call->rule->is_of_malloc) {
		taken.is_known = hl_event_take(thread, block, &taken.block, &taken.usable);
	} else if (block) {
		taken.is_known = hl_event_take_ruled(block, &taken.block);
		taken.usable = taken.block.requested;
	}
	return taken;
}

static void put_back(struct hl_thread *thread, const struct call *call, struct taken taken)
{
	const void *block = (const void *)call->block;

	if (call->rule->is_of_malloc)
		hl_event_put_back(thread, block, taken.block, taken.usable);
	else
		hl_event_put_back_ruled(thread, block, taken.block);
}

/* ---- calls ---- */

/* Whether the call may go on without us. */
static bool passes(struct hl_thread *thread, const struct call *call)
{
	if (HL_LIKELY(!hl_event_passes(thread, (const void *)call->block)))
		return false;
	hl_thread_leave(thread);
	return true;
}

static void count_free(const struct call *call)
{
	const void *block = (const void *)call->block;
	struct hl_thread *thread;

	if (!block)
		return;
	thread = hl_thread_enter();
	if (!thread) {
		if (call->rule->is_of_malloc)
			hl_event_nested_free(block);
		else
			hl_event_nested_free_ruled(block);
		return;
	}
	if (HL_UNLIKELY(hl_event_passes_free(thread, block))) {
		/* it was not recorded */
	} else if (call->rule->is_of_malloc) {
		if (!hl_event_free_plain(thread, block))
			hl_event_free(thread, block);
	} else if (HL_LIKELY(!hl_self_slot()->in_rule)) {
		hl_event_free_ruled(thread, block);
	} else {
		/* The block that a realloc() moves has been taken already. */
		struct taken taken = take(thread, call);
		if (taken.is_known)
			hl_event_count_free(thread, block, taken.block, taken.usable);
	}
	hl_thread_leave(thread);
}

static bool passes_nested(const struct call *call)
{
	if (call->block && call->rule->is_of_malloc)
		hl_event_nested_free((const void *)call->block);
	else if (call->block)
		hl_event_nested_free_ruled((const void *)call->block);
	hl_event_nested_alloc(call->size);
	return true;
}

/* Whether the call is still to be made. In ${ret_result} what it has returned. */
static bool allocate(const struct call *call, bool counts_layers, uint64_t *ret_result)
{
	bool sampled = !hl_sample_passes(call->size);
	struct hl_thread *thread = hl_thread_enter();
	struct hl_registers const *caller = call->caller;

	if (HL_UNLIKELY(!thread))
		return passes_nested(call);
	if (passes(thread, call))
		return true;
	struct taken taken = take(thread, call);
	const struct hl_recall_slot *place = hl_event_locate(thread, caller);
	if (HL_UNLIKELY(counts_layers))
		hl_thread_leave(thread);
	else
		hl_thread_set(thread, HL_IN_ALLOCATOR);
	uint64_t result = counts_layers ? call_in_layer(call) : call_safe(call);
	uint64_t block = block_of(call, result);
	if (HL_UNLIKELY(counts_layers)) {
		thread = hl_thread_enter();
		place = thread ? hl_event_locate(thread, caller) : NULL;
	}
	*ret_result = result;
	if (HL_UNLIKELY(!thread))
		return false;
	hl_thread_set(thread, HL_RECORDING);
	if (taken.is_known && !block && call->size)
		put_back(thread, call, taken);
	else if (taken.is_known)
		hl_event_count_free(thread, (const void *)call->block, taken.block, taken.usable);
	if (block && sampled)
		record(thread, call, block, place);
	hl_thread_leave(thread);
	return call->rule->throws && !block;
}

/*
 * ${arguments}: the first one, with the others below it. Whether the
 * call is to be made, as if nobody had come between; otherwise *${ret_result} is its result.
 */
bool hl_image_rule(const uint64_t *arguments, uint32_t number, uint64_t *ret_result)
{
	const struct hl_attached_rule *rule = &hl_image_rules[number];
	struct call call = {.rule = rule, .arguments = arguments, .caller = HL_CALLER};
	bool counts_layers = hl_recorder->counts_layers && !rule->is_of_malloc;

	call.block = argument(&call, rule->pointer_at);
	call.size = argument(&call, rule->size_at);
	if (rule->count_at)
		call.size *= argument(&call, rule->count_at);
	if (rule->frees) {
		count_free(&call);
		return true;
	}
	/* Functions of one layer call each other. */
	return (counts_layers && hl_self_slot()->in_rule) ||
	       allocate(&call, counts_layers, ret_result);
}
