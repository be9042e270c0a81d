/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walks the user stack of the current task by compiled call frame information, in the kernel. Each
 * BPF program that wants stacks includes this file, once; walker.c fills its maps.
 *
 * A stack is what the recorder's walk (src/unwind) would find at the same place, frame by frame.
 * Frames are handled one after the other by bpf_loop(), with their state in a per-CPU workplace. A
 * walk can be interrupted by another on the same processor, so there are several workplaces.
 *
 * Kernel 5.17 or newer (bpf_loop).
 */
#pragma once

#include "bpf/walk_maps.bpf.h"
#include "bpf/walk_step.bpf.h"

static __always_inline uint64_t hl_mix(uint64_t hash, uint64_t key)
{
	hash = (hash ^ key) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ hash >> 29;
}

/* One frame: bpf_loop() goes on with 0 and stops with 1. */
static long hl_walk_frame(uint32_t number, void *context)
{
	struct hl_workplace *walk = *(struct hl_workplace **)context;
	uint64_t pc = walk->at.pc;
	uint64_t rule = hl_find_rule(walk, pc);
	uint64_t key = (pc | (rule & ~HL_RULE_MASK)) + hl_rule_is_at_next(rule & HL_RULE_MASK);
	walk->hash = hl_mix(walk->hash, key);
	walk->record.keys[walk->record.count++ & (HL_BPF_FRAMES_MAX - 1)] = key;
	rule &= HL_RULE_MASK;
	if (hl_arch_is_plain(rule) && hl_step_plain(walk, rule))
		return 0;
	enum hl_arch_outcome outcome = hl_step_any(walk, rule);
	if (outcome == HL_STEP_OUT)
		return 0;
	walk->ended = true;
	if (outcome == HL_STEP_LOST)
		walk->record.flags |= HL_STACK_INCOMPLETE;
	return 1;
}

static __always_inline bool hl_is_sent(uint64_t id)
{
	uint32_t number = id >> (64 - HL_SEEN_BITS);
	struct hl_seen_set *set = bpf_map_lookup_elem(&hl_seen, &number);
	return set &&
	       (set->ids[0] == id || set->ids[1] == id || set->ids[2] == id || set->ids[3] == id);
}

static __always_inline void hl_keep_sent(uint64_t id)
{
	uint32_t number = id >> (64 - HL_SEEN_BITS);
	struct hl_seen_set *set = bpf_map_lookup_elem(&hl_seen, &number);
	if (set)
		set->ids[id & (HL_SEEN_WAYS - 1)] = id;
}

static __noinline int hl_send_stack(struct hl_workplace *walk)
{
	uint64_t bytes = offsetof(struct hl_stack_record, keys) +
			 walk->record.count * sizeof(walk->record.keys[0]);
	if (bytes > sizeof(walk->record))
		return 0;
	walk->record.header.kind = HL_RECORD_STACK;
	walk->record.header.bytes = bytes;
	if (bpf_ringbuf_output(&hl_records, &walk->record, bytes, 0))
		hl_count_loss(HL_LOSS_RING);
	else
		hl_keep_sent(walk->record.id);
	return 0;
}

/* Takes a workplace that no other walk on this processor uses. */
static __always_inline struct hl_workplace *hl_take_workplace(void)
{
	for (uint32_t i = 0; i < HL_WORKPLACES; i++) {
		uint32_t number = i;
		struct hl_workplace *walk = bpf_map_lookup_elem(&hl_workplaces, &number);
		if (walk && !__sync_lock_test_and_set(&walk->busy, 1))
			return walk;
	}
	return NULL;
}

/* Makes the walk; the stack's id, or 0. */
static __always_inline uint64_t hl_walk_from(struct hl_workplace *walk, uint64_t pc, uint64_t sp,
					     uint64_t bp)
{
	uint32_t zero = 0;
	struct hl_walk_view *view = bpf_map_lookup_elem(&hl_view, &zero);
	if (!view)
		return 0;
	walk->generation = *(volatile uint32_t *)&view->current;
	walk->reloads = *(volatile uint32_t *)&view->reloads;
	walk->unheard = walk->reloads - *(volatile uint32_t *)&view->heard[walk->generation & 1];
	walk->at = (struct hl_arch_frame){.pc = pc, .sp = sp, .bp = bp};
	walk->context = 0;
	walk->hash = 0;
	walk->ended = false;
	walk->record.count = 0;
	walk->record.flags = 0;
	walk->mapping.start = walk->mapping.end = 0;
	bpf_loop(HL_BPF_FRAMES_MAX, hl_walk_frame, &walk, 0);
	if (!walk->ended) {
		walk->record.flags |= HL_STACK_TRUNCATED;
		hl_count_loss(HL_LOSS_TRUNCATED);
	}
	if (walk->record.flags & HL_STACK_INCOMPLETE)
		hl_count_loss(HL_LOSS_INCOMPLETE);
	if (*(volatile uint32_t *)&view->next - walk->generation >= 2) {
		hl_count_loss(HL_LOSS_STALE);
		return 0;
	}
	/* After the next reload the same pc may be other code. */
	if (walk->record.flags & HL_STACK_UNKNOWN_CODE)
		walk->hash = hl_mix(walk->hash, walk->reloads);
	walk->record.reloads = walk->reloads;
	walk->record.id = walk->hash | 1;
	if (!hl_is_sent(walk->record.id))
		hl_send_stack(walk);
	return walk->record.id;
}

/* Whether the tool may take code in the range, which is free, for what was there. */
static __always_inline bool hl_was_code(struct hl_walk_view *view, uint64_t start, uint64_t end)
{
	struct hl_code_mapping *mapping =
		hl_mapping_up_to(end - 1, *(volatile uint32_t *)&view->current);
	if (mapping && mapping->end > start)
		return true;
	for (uint32_t i = 0; i < HL_BPF_UNKNOWN_CODE; i++)
		if (view->unknown[i] - start < end - start)
			return true;
	return false;
}

/*
 * A process is given a place for a new mapping, under the lock of its mappings. One that asks for a
 * certain place is not seen here: such code is noticed when the tool reads the mappings again.
 */
SEC("raw_tp/vm_unmapped_area")
int hl_place_given(uint64_t *context)
{
	uint64_t start = context[0];
	uint64_t bytes = BPF_CORE_READ((struct vm_unmapped_area_info *)context[1], length);
	uint32_t zero = 0;
	struct hl_walk_view *view = bpf_map_lookup_elem(&hl_view, &zero);
	if (!view || (int64_t)start <= 0 || !hl_is_target() ||
	    !hl_was_code(view, start, start + bytes))
		return 0;
	view->reloaded[(view->reloads + 1) % HL_BPF_RELOADS] =
		(struct hl_code_range){start, start + bytes};
	__sync_fetch_and_add(&view->reloads, 1);
	return hl_ask_for_mappings();
}

/*
 * Whether this is an event of the walker's own making: its reads of memory that is not there fault
 * in the kernel, and a program at page_fault_kernel would see that.
 */
static __always_inline bool hl_walk_caused_this(void)
{
	uint32_t thread = (uint32_t)bpf_get_current_pid_tgid();
	for (uint32_t i = 0; i < HL_WORKPLACES; i++) {
		uint32_t number = i;
		struct hl_workplace *walk = bpf_map_lookup_elem(&hl_workplaces, &number);
		if (walk && walk->busy && walk->owner == thread)
			return true;
	}
	return false;
}

/* The stack whose innermost frame has lookup pc ${pc}, or is the caller of the function that was
 * just entered. */
static __noinline uint64_t hl_stack_from(uint64_t pc, uint64_t sp, uint64_t bp, bool is_entry)
{
	struct hl_workplace *walk = hl_take_workplace();
	uint64_t id = 0;
	if (!walk) {
		hl_count_loss(HL_LOSS_BUSY);
		return 0;
	}
	walk->owner = (uint32_t)bpf_get_current_pid_tgid();
	if (hl_move_window(walk, sp) && is_entry) {
		pc = walk->window[0] - 1;
		sp += 8;
	}
	if (pc - 1 < HL_FRAME_PC_MASK)
		id = hl_walk_from(walk, pc, sp, bp);
	else
		hl_count_loss(HL_LOSS_NO_STACK);
	walk->owner = 0;
	walk->busy = 0;
	return id;
}

/*
 * The stack at the entry of a function, where rsp points to the return address: its innermost frame
 * is the caller. The id, or 0 when there is none; then hl_losses says why.
 */
static __always_inline uint64_t hl_stack_of_caller(const struct pt_regs *regs)
{
	return hl_stack_from(0, regs->sp, regs->bp, true);
}

/*
 * The stack of the user code in which the current task is, or by whose system call it came into the
 * kernel: its innermost frame is the instruction that faulted, or the one that called. As above.
 */
static __always_inline uint64_t hl_stack_of_fault(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	bool in_call = (long)regs->orig_ax != -1;
	return hl_stack_from(regs->ip - in_call, regs->sp, regs->bp, false);
}
