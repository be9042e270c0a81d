/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hook of all functions that rules name, whatever their arguments are; see region/attached.h.
 *
 * What such a function calls while it allocates belongs to its block, unless layers are counted:
 * then these calls count as any others. Frees are counted before the call, which then goes on without
 * us: a destructor may free many more blocks, or leave by longjmp().
 */
#include "recorder/image/image.h"
#include "recorder/image/machine.h"

#include "base/clock.h"
#include "guests/guest.h"
#include "recorder/event.h"
#include "recorder/hooks.h"
#include "recorder/libc.h"
#include "recorder/sample.h"
#include "recorder/thread.h"
#include "unwind/saved.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define PAGE_BYTES  UINT64_C(4096)
#define STACK_WORDS 8 /* of arguments that do not fit in registers */
#define NEAR_BYTES  (UINT64_C(64) << 10)
#define FRAME_BYTES (HL_ATTACHED_RULE_FRAME_WORDS * sizeof(uint64_t))

struct hl_attached_rule hl_image_rules[HL_ATTACHED_RULES_MAX];

struct call {
	const struct hl_attached_rule *rule;
	const uint64_t *arguments; /* downwards */
	const struct hl_registers *caller;
	uint64_t block, size; /* that it takes, and asks for */
	const uint64_t *saved;
	uint64_t frame; /* of the stub */
	struct hl_attached_slot *slot;
};

static inline uint64_t argument(const struct call *call, uint8_t at)
{
	return at ? *(call->arguments - (at - 1)) : 0;
}

/* ---- the real function ---- */

typedef uint64_t real_fn(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
			 uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

/* With all arguments that it may have: above the return address is the caller's frame, or the end of
 * the stack. */
static inline uint64_t call_with(uint64_t real, const uint64_t *arguments,
				 const struct hl_registers *caller)
{
	static const uint64_t none[STACK_WORDS];
	uint64_t last = caller->sp + sizeof(none) - 1;

	const uint64_t *stack = (const uint64_t *)caller->sp;
	if (HL_UNLIKELY(last / PAGE_BYTES != (caller->sp - 1) / PAGE_BYTES &&
			!hl_memory_page_is_readable(last & ~(PAGE_BYTES - 1))))
		stack = none;
	if (HL_ARGUMENT_REGISTERS == 6)
		return ((real_fn *)real)(arguments[0], arguments[-1], arguments[-2], arguments[-3],
					 arguments[-4], arguments[-5], stack[0], stack[1], stack[2],
					 stack[3], stack[4], stack[5], stack[6], stack[7]);
	return ((real_fn *)real)(arguments[0], arguments[-1], arguments[-2], arguments[-3],
				 arguments[-4], arguments[-5], arguments[-6], arguments[-7],
				 stack[0], stack[1], stack[2], stack[3], stack[4], stack[5]);
}

static uint64_t call_real(const struct call *call)
{
	return call_with(call->rule->real, call->arguments, call->caller);
}

/* No exception can pass us. So where there is no memory the caller is to try again without us. */
static uint64_t call_safe(const struct call *call)
{
	uint64_t alignment = argument(call, call->rule->alignment_at);

	/* Often two names of one function, of which one has the hook. */
	void *(*aligned)(size_t, size_t) =
		hl_libc.memalign ? hl_libc.memalign : hl_libc.aligned_alloc;

	if (!call->rule->throws)
		return call_real(call);
	if (!alignment)
		return (uint64_t)hl_libc.malloc(call->size);
	return aligned ? (uint64_t)aligned(alignment, call->size) : 0;
}

static inline uint64_t sum_at(uint64_t frame)
{
	return hl_attached_rule_frame_sum((const uint64_t *)(frame - HL_ATTACHED_RULE_FRAME_BELOW));
}

/* What the call allocates by others counts, if layers do. */
static uint64_t call_from(const struct call *call, bool counts_layers)
{
	struct hl_attached_slot *slot = call->slot;
	/* An operator may be called by another rule's. */
	const int32_t closing = slot->closing, rule_inside = slot->rule_inside;
	const int32_t rule_closing = slot->rule_closing;
	const uint64_t rule_sum = slot->rule_sum, rule_frame = slot->rule_frame;

	slot->rule_inside = atomic_load_explicit(&slot->inside, memory_order_relaxed);
	slot->rule_closing = slot->closing;
	slot->rule_sum = sum_at(call->frame);
	slot->rule_frame = call->frame;
	slot->closing += counts_layers;
	uint64_t result = call_safe(call);
	slot->closing = closing;
	slot->rule_inside = rule_inside;
	slot->rule_closing = rule_closing;
	slot->rule_sum = rule_sum;
	slot->rule_frame = rule_frame;
	return result;
}

/* Of a call that has returned ${result}; argument n is ${from}[-n]. */
static inline uint64_t block_at(const struct hl_attached_rule *rule, const uint64_t *from,
				uint64_t result)
{
	if (HL_LIKELY(!rule->result_at))
		return result;
	return (int32_t)result ? 0 : *(const uint64_t *)from[-rule->result_at];
}

/* ---- blocks ---- */

static const char *type_of(uint64_t number)
{
	return hl_guest_wants.type ? hl_guest_wants.type(number) : NULL;
}

static void record(struct hl_thread *thread, const struct call *call, uint64_t block,
		   const struct hl_recall_slot *place)
{
	/* What grows is an array of some object. */
	const char *type = call->rule->type_at
				   ? type_of(call->block ? 0 : argument(call, call->rule->type_at))
				   : NULL;

	if (HL_LIKELY(call->rule->is_beside))
		hl_event_alloc_beside(thread, (const void *)block, call->size, call->caller, place,
				      type);
	else if (call->rule->pool && !type)
		hl_event_alloc_piece(thread, (const void *)block, call->size, call->caller, place,
				     call->rule->pool);
	else if (!call->rule->is_of_malloc)
		hl_event_alloc_ruled(thread, (const void *)block, call->size, call->caller, place,
				     type, call->rule->pool);
	else if (HL_UNLIKELY(thread->ahead))
		hl_event_alloc_ahead(thread, (const void *)block, call->size, call->caller, place);
	else
		hl_event_alloc(thread, (const void *)block, call->size, call->caller, place);
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
		hl_event_put_back_ruled(thread, block, taken.block, call->rule->pool);
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

static void free_nested(const struct call *call)
{
	const void *block = (const void *)call->block;

	if (call->rule->is_of_malloc)
		hl_event_nested_free(block);
	else
		hl_event_nested_free_ruled(block);
}

/* An operator delete, which may be a jump to free(). */
static void free_of_malloc(struct hl_thread *thread, const struct call *call)
{
	const void *block = (const void *)call->block;

	if (!hl_event_free_plain(thread, block))
		hl_event_free(thread, block);
	hl_thread_set(thread, HL_IN_ALLOCATOR);
	call_real(call);
	hl_thread_leave(thread);
}

static void count_free(struct hl_thread *thread, const struct call *call)
{
	struct taken taken;

	if (HL_LIKELY(call->rule->is_beside)) {
		hl_event_free_beside(thread, (const void *)call->block);
	} else if (HL_LIKELY(!call->slot->rule_frame)) {
		hl_event_free_ruled(thread, (const void *)call->block);
	} else {
		/* The block that a realloc() moves has been taken already. */
		taken = take(thread, call);
		if (taken.is_known)
			hl_event_count_free(thread, (const void *)call->block, taken.block,
					    taken.usable);
	}
	hl_thread_leave(thread);
}

/* Whether the call is still to be made. */
static bool release(const struct call *call)
{
	const void *block = (const void *)call->block;
	struct hl_thread *thread = block ? hl_thread_enter() : NULL;

	if (!block)
		return true;
	if (HL_UNLIKELY(!thread)) {
		free_nested(call);
		return true;
	}
	if (HL_UNLIKELY(hl_event_passes_free(thread, block))) {
		hl_thread_leave(thread);
		return true;
	}
	if (!call->rule->is_of_malloc) {
		count_free(thread, call);
		return true;
	}
	free_of_malloc(thread, call);
	return false;
}

static bool passes_nested(const struct call *call)
{
	if (call->block)
		free_nested(call);
	hl_event_nested_alloc(call->size);
	return true;
}

/* Whether the call is still to be made. In ${ret_result} what it has returned. */
static bool allocate(const struct call *call, bool counts_layers, uint64_t *ret_result)
{
	bool sampled = !hl_sample_passes(call->size);
	struct hl_thread *thread = hl_thread_enter();
	struct hl_registers const *caller = call->caller;
	struct hl_cell *ahead = NULL;

	if (HL_UNLIKELY(!thread))
		return passes_nested(call);
	if (passes(thread, call))
		return true;
	struct taken taken = take(thread, call);
	const struct hl_recall_slot *place = hl_event_locate(thread, caller);
	thread->saved = call->saved;
	if (call->block && sampled)
		hl_event_look_ahead(thread, caller, place);
	if (HL_UNLIKELY(counts_layers)) {
		ahead = thread->ahead; /* not for what is nested */
		hl_event_look_back(thread);
		thread->saved = NULL;
		hl_thread_leave(thread);
	} else {
		hl_thread_set(thread, HL_IN_ALLOCATOR);
	}
	uint64_t result = call_from(call, counts_layers);
	uint64_t block = block_at(call->rule, call->arguments + 1, result);
	if (HL_UNLIKELY(counts_layers)) {
		thread = hl_thread_enter();
		place = thread ? hl_event_locate(thread, caller) : NULL;
		if (thread && call->block) {
			thread->ahead = ahead;
			thread->looked_ahead = true;
		}
	}
	*ret_result = result;
	if (HL_UNLIKELY(!thread))
		return false;
	thread->saved = call->saved;
	hl_thread_set(thread, HL_RECORDING);
	if (taken.is_known && !block && call->size)
		put_back(thread, call, taken);
	else if (taken.is_known)
		hl_event_count_free(thread, (const void *)call->block, taken.block, taken.usable);
	if (block && sampled)
		record(thread, call, block, place);
	hl_event_look_back(thread);
	thread->saved = NULL;
	hl_thread_leave(thread);
	return call->rule->throws && !block;
}

/* ---- calls that never returned ---- */

/* Stacks of coroutines go away. Between two frames of one stack all is readable, though. */
static bool is_left(const struct call *call)
{
	uint64_t old = call->slot->rule_frame, distance = call->frame - old;

	if (distance + FRAME_BYTES < 2 * FRAME_BYTES)
		return true; /* this call has its place */
	if (distance + NEAR_BYTES >= 2 * NEAR_BYTES &&
	    !hl_memory_range_is_readable(old - HL_ATTACHED_RULE_FRAME_BELOW, old + 8))
		return true;
	return sum_at(old) != call->slot->rule_sum;
}

/* The thread's last call of a rule's function was left by longjmp(), with all that it had called. */
static void leave_for_it(const struct call *call)
{
	struct hl_attached_slot *slot = call->slot;
	struct hl_thread *thread = hl_thread_self();

	atomic_store_explicit(&slot->inside, slot->rule_inside, memory_order_relaxed);
	slot->closing = slot->rule_closing;
	slot->rule_frame = 0;
	if (thread &&
	    atomic_load_explicit(&thread->activity, memory_order_relaxed) == HL_IN_ALLOCATOR) {
		hl_event_look_back(thread);
		thread->saved = NULL;
		hl_thread_leave(thread);
	}
}

/* ---- what rules mean ---- */

void hl_image_note_rules(struct hl_recorder *recorder)
{
	for (size_t i = 0; i < HL_ATTACHED_RULES_MAX; i++) {
		const struct hl_attached_rule *rule = &hl_image_rules[i];
		if (!rule->real)
			continue;
		/* Others' free() may be called for blocks whose keys are their own. */
		recorder->has_rules |= !rule->is_of_malloc && rule->does <= HL_RULE_FREES;
		recorder->has_type_rules |= rule->type_at != 0;
	}
}

/* ---- what the program tells by heapline.h ---- */

static int64_t change_mode(struct hl_region_header *header, uint64_t mode)
{
	if (mode >= HL_MODE_COUNT)
		return -EINVAL;
	if (hl_mode_logs((enum hl_mode)mode) && !header->areas[HL_AREA_RINGS].capacity)
		return -EOPNOTSUPP;
	if (hl_mode_switch(&header->mode, (enum hl_mode)mode) == (enum hl_mode)mode)
		return 0;
	/* The figures over time show why they change. */
	char text[HL_MARK_MAX + 1] = HL_MODE_MARK;
	const char *name = hl_mode_names[mode];
	memcpy(text + strlen(text), name, strlen(name) + 1);
	hl_mailbox_mark(&header->mailbox, hl_clock_ns(CLOCK_MONOTONIC), text);
	return 0;
}

static bool reset(const struct call *call)
{
	struct hl_thread *thread = hl_event_has_pieces() ? hl_thread_enter() : NULL;

	if (thread) {
		hl_event_end_pool(thread, call->rule->pool);
		hl_thread_leave(thread);
	}
	HL_GUESTS_CALL(pool_resets, call->caller->pc);
	return true;
}

/* Nothing is left to be called. */
static bool told(const struct call *call, uint64_t *ret_result)
{
	struct hl_region_header *header = hl_recorder->region.header;
	const char *name = (const char *)argument(call, 1);
	const void *block = (const void *)argument(call, 2);

	*ret_result = 0;
	if (call->rule->does == HL_RULE_TELLS_SERVICE) {
		HL_GUESTS_CALL(service_begins, name, (const void *)argument(call, 3),
			       (const char *)argument(call, 4));
		return true;
	}
	if (call->rule->does == HL_RULE_TELLS_ALLOC)
		hl_pools_alloc(name, block, argument(call, 3), call->caller);
	else if (call->rule->does == HL_RULE_TELLS_FREE)
		hl_pools_free(block);
	else if (call->rule->does == HL_RULE_TELLS_MARK && name)
		*ret_result = (uint64_t)hl_mailbox_mark(&header->mailbox,
							hl_clock_ns(CLOCK_MONOTONIC), name);
	else if (call->rule->does == HL_RULE_TELLS_MODE)
		*ret_result = (uint64_t)change_mode(header, (uint32_t)argument(call, 1));
	return false;
}

/* ---- the hook ---- */

/*
 * Of an interpreter's allocator, which is told types and has four arguments, whose blocks lie in none of malloc(), and which no
 * function of another rule has called. Such a program calls little else, so the usual calls have a way of their own.
 */
static inline bool is_of_interpreter(const struct hl_attached_rule *rule,
				     const struct hl_attached_slot *slot)
{
	return HL_LIKELY(rule->is_beside && rule->type_at && !slot->rule_frame);
}

/* What a copy takes. */
static uint64_t text_bytes(const struct call *call)
{
	const char *text = (const char *)argument(call, call->rule->size_at);
	uint64_t bound = call->rule->count_at ? argument(call, call->rule->count_at) : UINT64_MAX;
	uint64_t count = 0;

	while (text && count < bound && text[count])
		count++;
	return text ? count + 1 : 0;
}

static inline uint64_t size_of(const struct call *call)
{
	const struct hl_attached_rule *rule = call->rule;

	if (rule->has_size)
		return rule->size;
	if (HL_UNLIKELY(rule->is_text))
		return text_bytes(call);
	return argument(call, rule->size_at) *
	       (rule->count_at ? argument(call, rule->count_at) : 1);
}

/* Calls that are not the usual ones. */
static __attribute__((noinline)) bool handle_unusual(struct call *call, uint64_t *ret_result)
{
	const struct hl_attached_rule *rule = call->rule;
	bool counts_layers = hl_recorder->counts_layers && !rule->is_of_malloc;

	if (HL_UNLIKELY(call->slot->rule_frame) && is_left(call))
		leave_for_it(call);
	call->block = argument(call, rule->pointer_at);
	call->size = size_of(call);
	/* Who is told types frees by size 0. */
	if (rule->does == HL_RULE_FREES || (rule->type_at && !call->size))
		return release(call);
	if (rule->does == HL_RULE_RESETS)
		return reset(call);
	if (rule->does != HL_RULE_ALLOCATES)
		return told(call, ret_result);
	/* Functions of one layer call each other. */
	return (counts_layers && call->slot->rule_frame) ||
	       allocate(call, counts_layers, ret_result);
}

/* Of a pool that is reset, when no function of another rule has called it. A program with one calls little else, too. */
static inline bool is_of_pool(const struct hl_attached_rule *rule,
			      const struct hl_attached_slot *slot)
{
	return rule->pool && !slot->rule_frame && !hl_recorder->counts_layers;
}

/* The same of a function that only allocates. */
static inline bool cuts_piece(const struct hl_attached_rule *rule,
			      const struct hl_attached_slot *slot)
{
	return is_of_pool(rule, slot) && rule->does == HL_RULE_ALLOCATES && !rule->pointer_at &&
	       !rule->type_at && !rule->throws && !rule->is_text;
}

typedef uint64_t typed_alloc_fn(uint64_t, uint64_t, uint64_t, uint64_t);

/* All calls but frees of interpreters and pools; their new blocks go no farther than here. */
static __attribute__((noinline)) bool handle_any(const uint64_t *arguments, uint32_t number,
						 uint64_t *ret_result,
						 struct hl_attached_slot *slot)
{
	const uint64_t *saved = HL_SAVED_HERE();
	const uint64_t *from = arguments + 1; /* argument n is from[-n] */
	const struct hl_attached_rule *rule = &hl_image_rules[number];
	const struct hl_registers *caller = HL_CALLER;
	struct hl_thread *thread = (struct hl_thread *)slot->thread;
	const bool cuts = cuts_piece(rule, slot);
	uint64_t block;

	if (HL_UNLIKELY(!(cuts || (is_of_interpreter(rule, slot) && !from[-rule->pointer_at])) ||
			!thread || !thread->plain || hl_event_is_closed(thread) ||
			!hl_thread_try_enter(thread))) {
		struct call call = {.rule = rule,
				    .arguments = arguments,
				    .saved = saved,
				    .caller = caller,
				    .frame = HL_CALLER_FRAME,
				    .slot = slot};
		return handle_unusual(&call, ret_result);
	}
	uint64_t size = rule->has_size ? rule->size : from[-rule->size_at];
	const struct hl_recall_slot *place = cuts ? NULL : hl_event_locate(thread, caller);
	thread->saved = saved;
	hl_thread_set(thread, HL_IN_ALLOCATOR);
	slot->rule_inside = atomic_load_explicit(&slot->inside, memory_order_relaxed);
	slot->rule_closing = slot->closing;
	slot->rule_sum = sum_at(HL_CALLER_FRAME);
	slot->rule_frame = HL_CALLER_FRAME;
	if (cuts) {
		if (!rule->has_size && rule->count_at)
			size *= from[-rule->count_at];
		*ret_result = call_with(rule->real, arguments, caller);
		block = block_at(rule, from, *ret_result);
	} else {
		*ret_result = block =
			((typed_alloc_fn *)rule->real)(from[-1], from[-2], from[-3], from[-4]);
	}
	slot->rule_frame = 0;
	hl_thread_set(thread, HL_RECORDING);
	if (HL_LIKELY(block)) {
		if (cuts)
			hl_event_alloc_piece(thread, (const void *)block, size, caller, place,
					     rule->pool);
		else
			hl_event_alloc_beside(thread, (const void *)block, size, caller, place,
					      type_of(from[-rule->type_at]));
		hl_event_look_back(thread);
	}
	thread->saved = NULL;
	hl_thread_leave(thread);
	return false;
}

/*
 * ${arguments}: the first one, with the others below it. Whether the
 * call is to be made, as if nobody had come between; otherwise *${ret_result} is its result.
 */
bool hl_image_rule(const uint64_t *arguments, uint32_t number, uint64_t *ret_result,
		   struct hl_attached_slot *slot)
{
	const struct hl_attached_rule *rule = &hl_image_rules[number];
	const uint64_t *from = arguments + 1;
	struct hl_thread *thread = (struct hl_thread *)slot->thread;
	const void *block;

	if (rule->pool && rule->does == HL_RULE_ALLOCATES)
		return handle_any(arguments, number, ret_result, slot);
	if (rule->does == HL_RULE_FREES && is_of_pool(rule, slot) && thread &&
	    (block = (const void *)from[-rule->pointer_at]) &&
	    HL_LIKELY(hl_thread_try_enter(thread))) {
		if (HL_LIKELY(!hl_event_passes_free(thread, block)))
			hl_event_free_piece(thread, block, rule->pool);
		hl_thread_leave(thread);
		return true;
	}
	if (!is_of_interpreter(rule, slot) || from[-rule->size_at] ||
	    !(block = (const void *)from[-rule->pointer_at]) ||
	    HL_UNLIKELY(!hl_thread_try_enter(thread)))
		return handle_any(arguments, number, ret_result, slot);
	if (HL_LIKELY(!hl_event_passes_free(thread, block)))
		hl_event_free_beside(thread, block);
	hl_thread_leave(thread);
	return true;
}
