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

/* ---- words of the stack ---- */

/*
 * Lets the window begin at ${address}. It ends with the page, so that it does not reach beyond the
 * stack: a copy that fails costs more than the rest of the walk. Close to the end of the page it is
 * worth a try.
 */
static __noinline bool hl_move_window(struct hl_workplace *walk, uint64_t address)
{
	uint64_t in_page = HL_PAGE_BYTES - (address & (HL_PAGE_BYTES - 1));
	uint64_t bytes = in_page < HL_WINDOW_BYTES ? in_page : HL_WINDOW_BYTES;

	walk->window_bytes = 0;
	if (address & 7)
		return false;
	if (bytes < HL_WINDOW_BYTES_MIN)
		bytes = HL_WINDOW_BYTES_MIN;
	if (bpf_probe_read_user(walk->window, bytes, (const void *)address)) {
		if (bytes <= in_page)
			return false;
		bytes = in_page & (HL_WINDOW_BYTES_MIN - 1);
		if (bpf_probe_read_user(walk->window, bytes, (const void *)address))
			return false;
	}
	walk->window_start = address;
	walk->window_bytes = bytes;
	return true;
}

static __always_inline bool hl_in_window(const struct hl_workplace *walk, uint64_t address)
{
	return address - walk->window_start < walk->window_bytes;
}

/* The word at ${address}, which is a multiple of 8 and in the window. */
static __always_inline uint64_t hl_window_word(const struct hl_workplace *walk, uint64_t address)
{
	return walk->window[(address - walk->window_start) / 8 & (HL_WINDOW_WORDS - 1)];
}

static __noinline bool hl_read_word(struct hl_workplace *walk, uint64_t address,
				    uint64_t *ret_value)
{
	if (address & 7)
		return false;
	if (!hl_in_window(walk, address) && !hl_move_window(walk, address))
		return false;
	*ret_value = hl_window_word(walk, address);
	return true;
}

/* ---- rules ---- */

/* The last mapping of list (${generation} & 1) of the target in ${place} that does not begin after
 * ${pc}; NULL: none does. */
static __noinline struct hl_code_mapping *hl_mapping_up_to(uint64_t pc, uint32_t place,
							   uint32_t generation)
{
	uint32_t low = (place * 2 + (generation & 1)) * hl_walk_settings.mappings_max;

	struct hl_walk_view *view = bpf_map_lookup_elem(&hl_view, &place);
	if (!view)
		return NULL;
	uint32_t count = view->count[generation & 1];
	struct hl_code_mapping *mapping;
	for (int step = 0; step < 13 && count > 1; step++) {
		uint32_t half = count / 2, middle = low + half;
		mapping = bpf_map_lookup_elem(&hl_mappings, &middle);
		if (!mapping)
			return NULL;
		if (mapping->start <= pc)
			low = middle;
		count -= half;
	}
	mapping = bpf_map_lookup_elem(&hl_mappings, &low);
	return count && mapping && mapping->start <= pc ? mapping : NULL;
}

/* The mapping of ${pc} becomes the workplace's. */
static __always_inline bool hl_find_mapping(struct hl_workplace *walk, uint64_t pc)
{
	struct hl_code_mapping *mapping = hl_mapping_up_to(pc, walk->place, walk->generation);

	if (!mapping || pc >= mapping->end)
		return false;
	walk->mapping = *mapping;
	return true;
}

static __always_inline uint64_t hl_find_row(struct hl_code_page *page, uint32_t offset)
{
	uint32_t low = page->first_row, count = page->row_count;
	uint64_t *row;

	for (int step = 0; step < HL_CODE_PAGE_SHIFT + 1 && count > 1; step++) {
		uint32_t half = count / 2, middle = low + half;
		row = bpf_map_lookup_elem(&hl_rows, &middle);
		if (!row)
			return HL_RULE_NONE;
		if (*row >> HL_ROW_SHIFT <= offset)
			low = middle;
		count -= half;
	}
	row = bpf_map_lookup_elem(&hl_rows, &low);
	return row && count ? *row & HL_RULE_MASK : HL_RULE_NONE;
}

/* The rule for a pc in the workplace's mapping, with the module id in the upper 16 bits. */
static __always_inline uint64_t hl_rule_in_mapping(const struct hl_workplace *walk, uint64_t pc)
{
	uint32_t number = (pc - walk->mapping.start) >> HL_CODE_PAGE_SHIFT;

	if (number >= walk->mapping.page_count)
		return walk->mapping.module | HL_RULE_NONE;
	number += walk->mapping.first_page;
	struct hl_code_page *page = bpf_map_lookup_elem(&hl_pages, &number);
	if (!page)
		return walk->mapping.module | HL_RULE_NONE;
	return walk->mapping.module | hl_find_row(page, pc & (HL_CODE_PAGE_BYTES - 1));
}

/* As below, from the tables; into ${slot}, unless the code is unknown, which may change soon. */
static __noinline uint64_t hl_rule_miss(struct hl_workplace *walk, uint64_t pc,
					struct hl_rule_slot *slot, uint64_t slot_key)
{
	if (pc - walk->mapping.start >= walk->mapping.end - walk->mapping.start &&
	    !hl_find_mapping(walk, pc)) {
		walk->record.flags |= HL_STACK_UNKNOWN_CODE;
		hl_tell_unknown_code(walk, pc);
		return HL_RULE_UNSUPPORTED;
	}
	uint64_t rule = hl_rule_in_mapping(walk, pc);
	/* Only code of no module may be stepped out of by its frame pointer; see
	 * src/unwind/rule_cache.c. */
	if (rule >> HL_MODULE_SHIFT != HL_MODULE_NONE && !(rule & HL_RULE_MASK))
		rule |= HL_RULE_UNSUPPORTED;
	slot->rule = rule;
	slot->check = rule ^ slot_key;
	return rule;
}

/* Whether ${pc} is in the range of a reload that came after the list. After too many any pc may be.
 */
static __noinline bool hl_is_reloaded(struct hl_workplace *walk, uint64_t pc)
{
	struct hl_walk_view *view = bpf_map_lookup_elem(&hl_view, &walk->place);
	uint32_t unheard = walk->unheard;
	bool is_reloaded = unheard >= HL_BPF_RELOADS; /* the oldest may be overwritten now */

	/* clang 21 would see that the loop needs no bound but this, and the verifier of Linux 6.1 would not. */
	__asm__ volatile("" : "+r"(unheard));
	for (uint32_t i = 0; view && i < HL_BPF_RELOADS && i < unheard && !is_reloaded; i++) {
		struct hl_code_range *range = &view->reloaded[(walk->reloads - i) % HL_BPF_RELOADS];
		is_reloaded = pc - range->start < range->end - range->start;
	}
	if (is_reloaded) {
		walk->record.flags |= HL_STACK_UNKNOWN_CODE;
		hl_tell_unknown_code(walk, pc);
	}
	return is_reloaded;
}

/* The rule for lookup pc ${pc}, with the module id in the upper 16 bits. */
static __always_inline uint64_t hl_find_rule(struct hl_workplace *walk, uint64_t pc)
{
	if (walk->unheard && hl_is_reloaded(walk, pc))
		return HL_RULE_UNSUPPORTED;
	uint64_t slot_key = pc ^ walk->rule_salt;
	uint32_t number = slot_key * UINT64_C(0x9e3779b97f4a7c15) >> hl_walk_settings.rule_shift;
	struct hl_rule_slot *slot = bpf_map_lookup_elem(&hl_rule_slots, &number);
	if (!slot)
		return HL_RULE_NONE;
	uint64_t rule = slot->rule;
	return (slot->check ^ rule) == slot_key ? rule : hl_rule_miss(walk, pc, slot, slot_key);
}

/* ---- steps: src/unwind/rule.c says the same for the recorder ---- */

static __always_inline bool hl_read_place(struct hl_workplace *walk, struct hl_rule_place place,
					  uint64_t *ret_value)
{
	if (place.is_stored && !hl_read_word(walk, place.base, &place.base))
		return false;
	*ret_value = place.base + place.addend;
	return true;
}

static __noinline enum hl_arch_outcome hl_step_by_cfa(struct hl_workplace *walk, hl_rule rule,
						      uint64_t context)
{
	uint64_t cfa = 0, ra = 0, bp = 0;
	struct hl_rule_place place;

	if (!hl_rule_find_cfa(rule, &walk->at, context, &place) ||
	    !hl_read_place(walk, place, &cfa))
		return HL_STEP_LOST;
	if (HL_ARCH_RETURN_IN_REGISTER(rule)) {
		if (!context || cfa < walk->at.sp)
			return HL_STEP_LOST;
		ra = context;
		bp = walk->at.bp;
	} else if (cfa <= walk->at.sp || !hl_read_word(walk, HL_ARCH_RETURN_AT(rule, cfa), &ra) ||
		   !hl_read_place(walk, hl_rule_find_bp(rule, &walk->at, cfa), &bp)) {
		return HL_STEP_LOST;
	}
	ra = HL_CODE_ADDRESS(ra);
	walk->at = (struct hl_arch_frame){.pc = ra - 1, .sp = cfa, .bp = bp};
	return ra ? HL_STEP_OUT : HL_STEP_END;
}

static __noinline enum hl_arch_outcome hl_step_signal(struct hl_workplace *walk)
{
	uint64_t context = walk->at.sp, sp = 0, bp = 0, pc = 0;

	if (!hl_read_word(walk, context + HL_UCONTEXT_RSP, &sp) ||
	    !hl_read_word(walk, context + HL_UCONTEXT_RBP, &bp) ||
	    !hl_read_word(walk, context + HL_UCONTEXT_RIP, &pc) || !HL_KEEP_CONTEXT(walk, context))
		return HL_STEP_LOST;
	walk->at = (struct hl_arch_frame){.pc = pc, .sp = sp, .bp = bp};
	return pc ? HL_STEP_OUT : HL_STEP_END;
}

static __noinline enum hl_arch_outcome hl_step_frame_pointer(struct hl_workplace *walk,
							     uint64_t reach)
{
	uint64_t frame = walk->at.bp, bp = 0, ra = 0;

	if (frame - walk->at.sp > reach || !hl_read_word(walk, frame, &bp) ||
	    !hl_read_word(walk, frame + 8, &ra))
		return HL_STEP_LOST;
	ra = HL_CODE_ADDRESS(ra);
	walk->at =
		(struct hl_arch_frame){.pc = ra - 1, .sp = HL_ARCH_SP_BEYOND(frame, bp), .bp = bp};
	return ra ? HL_STEP_OUT : HL_STEP_END;
}

static __noinline enum hl_arch_outcome hl_step_any(struct hl_workplace *walk, hl_rule rule)
{
	uint64_t context = walk->context;
	enum hl_arch_outcome outcome;

	walk->context = 0;
	if (HL_ARCH_IS_RECORD(rule))
		rule = HL_RULE_NONE;
	switch (hl_rule_kind_of(rule)) {
	case HL_RULE_NONE:
		outcome = hl_step_frame_pointer(walk, HL_FRAME_POINTER_REACH);
		break;
	case HL_RULE_OTHER_STACK: /* 0: what the ABI sets at a thread's start */
		outcome = walk->at.bp ? hl_step_frame_pointer(walk, UINT64_MAX) : HL_STEP_END;
		break;
	case HL_RULE_SIGNAL:
		outcome = hl_step_signal(walk);
		break;
	case HL_RULE_END:
		outcome = HL_STEP_END;
		break;
	case HL_RULE_UNSUPPORTED:
		outcome = HL_STEP_LOST;
		break;
	default:
		outcome = hl_step_by_cfa(walk, rule, context);
	}
	return outcome == HL_STEP_OUT && walk->at.pc > HL_FRAME_PC_MASK ? HL_STEP_LOST : outcome;
}

/* The common step, when everything about it is in order; else nothing has happened. */
static __always_inline bool hl_step_plain(struct hl_workplace *walk, hl_rule rule)
{
	struct hl_arch_plain step = hl_arch_plain_step(rule, walk->at.sp, walk->at.bp);
	uint64_t low = step.bp_at < step.ra_at ? step.bp_at : step.ra_at;
	uint64_t high = step.bp_at < step.ra_at ? step.ra_at : step.bp_at;

	if (step.cfa <= walk->at.sp || (low | high) & 7)
		return false;
	if ((!hl_in_window(walk, low) || !hl_in_window(walk, high)) &&
	    (!hl_move_window(walk, low) || !hl_in_window(walk, high)))
		return false;
	uint64_t ra = HL_CODE_ADDRESS(hl_window_word(walk, step.ra_at));
	uint64_t bp = hl_window_word(walk, step.bp_at);
	if (ra - 1 >= HL_FRAME_PC_MASK)
		return false;
	walk->context = 0;
	walk->at.pc = ra - 1;
	walk->at.sp = step.cfa;
	if (step.bp_saved)
		walk->at.bp = bp;
	return true;
}

/* ---- walks ---- */

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
	if (HL_ARCH_GUESSES_SP(HL_RULE_NONE) && walk->left_record) {
		hl_rule_correct_sp(rule, walk->left_record, &walk->at);
		walk->left_record = 0;
	}
	if (hl_arch_is_plain(rule) && hl_step_plain(walk, rule))
		return 0;
	if (HL_ARCH_GUESSES_SP(rule))
		walk->left_record = walk->at.bp;
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

/* Makes the walk; the stack's id, or 0. ${link}: what the frame may return to, where it is not in a call; else 0. */
static __always_inline uint64_t hl_walk_from(struct hl_workplace *walk, uint64_t pc, uint64_t sp,
					     uint64_t bp, uint64_t link)
{
	struct hl_walk_view *view = bpf_map_lookup_elem(&hl_view, &walk->place);
	/* 0 for the first target. Sets what targets have apart, in keys of rules and in stack ids. */
	uint64_t salt = (walk->record.target - 1) * UINT64_C(0xd6e8feb86659fd93);

	if (!view)
		return 0;
	walk->generation = *(volatile uint32_t *)&view->current;
	/* In this order: what the tool has heard of by now is never more than reloads after it. */
	uint32_t heard = *(volatile uint32_t *)&view->heard[walk->generation & 1];
	walk->reloads = *(volatile uint32_t *)&view->reloads;
	walk->unheard = walk->reloads - heard;
	walk->at = (struct hl_arch_frame){.pc = pc, .sp = sp, .bp = bp};
	walk->context = link;
	walk->left_record = 0;
	walk->rule_salt = salt ^ (uint64_t)walk->generation << HL_MODULE_SHIFT;
	walk->hash = salt;
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
static __always_inline bool hl_was_code(struct hl_walk_view *view, uint32_t place, uint64_t start,
					uint64_t end)
{
	struct hl_code_mapping *mapping =
		hl_mapping_up_to(end - 1, place, *(volatile uint32_t *)&view->current);

	if (mapping && mapping->end > start)
		return true;
	bool was_code = false;
	for (uint32_t i = 0; i < HL_BPF_UNKNOWN_CODE; i++)
		if (view->unknown[i] - start < end - start) {
			view->unknown[i] = 0; /* until code runs there again */
			was_code = true;
		}
	return was_code;
}

/*
 * A process is given an address for a new mapping, under the lock of its mappings. One that asks for a
 * certain one is not seen here: such code is noticed when the tool reads the mappings again.
 */
SEC("raw_tp/vm_unmapped_area")
int hl_place_given(uint64_t *context)
{
	uint64_t start = context[0];
	uint64_t bytes = BPF_CORE_READ((struct vm_unmapped_area_info *)context[1], length);

	struct hl_target_number target = hl_current_target();
	struct hl_walk_view *view = bpf_map_lookup_elem(&hl_view, &target.place);
	if (!view || (int64_t)start <= 0 || !target.number ||
	    !hl_was_code(view, target.place, start, start + bytes))
		return 0;
	view->reloaded[(view->reloads + 1) % HL_BPF_RELOADS] =
		(struct hl_code_range){start, start + bytes};
	__sync_fetch_and_add(&view->reloads, 1);
	return hl_ask_for_mappings(target.number);
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
static __noinline uint64_t hl_stack_from(uint64_t pc, uint64_t sp, uint64_t bp, uint64_t link,
					 bool is_entry)
{
	/* The programs of one target are attached to it, or have asked. */
	struct hl_target_number target = {.number = 1};
	uint64_t id = 0;

	if (hl_walk_settings.places > 1)
		target = hl_current_target();
	if (!target.number)
		return 0;
	struct hl_workplace *walk = hl_take_workplace();
	if (!walk) {
		hl_count_loss(HL_LOSS_BUSY);
		return 0;
	}
	walk->owner = (uint32_t)bpf_get_current_pid_tgid();
	walk->place = target.place;
	walk->record.target = target.number;
	if (hl_move_window(walk, sp) && is_entry) {
		pc = walk->window[0] - 1;
		sp += 8;
	}
	if (pc - 1 < HL_FRAME_PC_MASK)
		id = hl_walk_from(walk, pc, sp, bp, link);
	else
		hl_count_loss(HL_LOSS_NO_STACK);
	walk->owner = 0;
	walk->busy = 0;
	return id;
}

/*
 * The stack at the entry of a function, whose return address is where the call left it: its innermost frame
 * is the caller. The id, or 0 when there is none: hl_losses says why, or the task is of no target of several.
 */
static __always_inline uint64_t hl_stack_of_caller(const struct pt_regs *regs)
{
	return hl_stack_from(HL_REGS_CALLER(regs), HL_REGS_SP(regs), HL_REGS_BP(regs), 0,
			     HL_CALLER_IS_ON_STACK);
}

/*
 * The stack of the user code in which the current task is, or by whose system call it came into the
 * kernel: its innermost frame is the instruction that faulted, or the one that called. As above.
 */
static __always_inline uint64_t hl_stack_of_fault(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	bool in_call = HL_REGS_IN_CALL(regs);

	return hl_stack_from(HL_REGS_PC(regs) - in_call, HL_REGS_SP(regs), HL_REGS_BP(regs),
			     HL_REGS_LINK(regs), false);
}
