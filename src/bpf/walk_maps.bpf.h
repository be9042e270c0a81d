/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What BPF programs need to know of the kernel, and no more: the fields they touch, found at load
 * time by name and not by place (CO-RE). Then the stack walker's maps and constants: which task is
 * the target's, what was lost; see walk.bpf.h.
 */
#pragma once

/* bpf_tracing.h then takes the kernel's own names of registers. */
#define __VMLINUX_H__

#include <linux/bpf.h>
#include <stdbool.h>
#include <stdint.h>

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>

#include "bpf/registers.h"
#include "bpf/walk_shared.h"
#include "unwind/rule.h"

#define HL_PAGE_BYTES UINT64_C(4096)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1]; /* ${level} + 1 of them */
};

#define HL_PIDTYPE_TGID 1

struct signal_struct {
	struct pid *pids[4]; /* by enum pid_type of the kernel */
};

/* The page of a process in which the kernel keeps its breakpoints; functions whose return is
 * watched return to its first byte. */
struct xol_area {
	unsigned long vaddr;
};

struct uprobes_state {
	struct xol_area *xol_area;
};

struct mm_struct {
	struct uprobes_state uprobes_state;
};

struct task_struct {
	struct signal_struct *signal;
	struct mm_struct *mm;
	int pagefault_disabled;
};

struct vm_unmapped_area_info {
	unsigned long length;
};

#pragma clang attribute pop

/* Walks that may interrupt each other on one processor. */
#define HL_WORKPLACES 4u

/* Words of the stack come by the window: one copy is cheaper than a few reads of single words. */
#define HL_WINDOW_WORDS	    256u
#define HL_WINDOW_BYTES	    (HL_WINDOW_WORDS * 8)
#define HL_WINDOW_BYTES_MIN 256u

#define HL_RULE_MASK HL_FRAME_PC_MASK

struct hl_workplace {
	uint32_t busy;	/* 1 while a walk uses it */
	uint32_t owner; /* the walk's thread */
	uint32_t place; /* of the target */
	struct hl_arch_frame at;
	uint64_t
		context; /* of the frame that is not in a call, or was interrupted by a signal: HL_KEEP_CONTEXT; else 0 */
	uint64_t left_record; /* by which the last frame was left, with a guess; else 0 */
	uint64_t hash;
	uint64_t rule_salt; /* of the target and the generation, for keys of rules */
	bool ended;	    /* the outermost frame was reached */
	uint32_t generation;
	uint32_t reloads, unheard;	/* how many there were; those that came after the list */
	struct hl_code_mapping mapping; /* the one used last */
	uint64_t window_start, window_bytes;
	uint64_t window[HL_WINDOW_WORDS];
	struct hl_stack_record record;
};

/* A map of up to ${count} elements; ${flags} are BPF_F_ flags or 0. */
#define HL_MAP(name, kind, flags, key_type, element, count) \
	struct {                                            \
		__uint(type, BPF_MAP_TYPE_##kind);          \
		__uint(map_flags, flags);                   \
		__uint(max_entries, count);                 \
		__type(key, key_type);                      \
		__type(value, element);                     \
	} name SEC(".maps")

/* The element of a map that has one, or NULL. */
#define HL_FIRST(map)                                 \
	({                                            \
		uint32_t first_ = 0;                  \
		bpf_map_lookup_elem(&(map), &first_); \
	})

/* walker.c sets how many elements these have. */
HL_MAP(hl_rows, ARRAY, BPF_F_MMAPABLE, uint32_t, uint64_t, 1);
HL_MAP(hl_pages, ARRAY, BPF_F_MMAPABLE, uint32_t, struct hl_code_page, 1);

/* Two lists for each place, see struct hl_walk_view. */
HL_MAP(hl_mappings, ARRAY, BPF_F_MMAPABLE, uint32_t, struct hl_code_mapping, 1);

/* By place. */
HL_MAP(hl_view, ARRAY, BPF_F_MMAPABLE, uint32_t, struct hl_walk_view, 1);

/* By pid; not used with one target. */
HL_MAP(hl_target_numbers, HASH, 0, uint32_t, struct hl_target_number, 1);

/*
 * Rules found lately, by pc, target and generation, which is how often the target's mappings have
 * changed. Written without a lock, so each half proves the other: check is the key ^ rule.
 */
struct hl_rule_slot {
	uint64_t check, rule;
};

HL_MAP(hl_rule_slots, ARRAY, BPF_F_MMAPABLE, uint32_t, struct hl_rule_slot, 1);

/* Stacks that were sent. Written without a lock: an id that is lost is sent again. */
HL_MAP(hl_seen, ARRAY, 0, uint32_t, struct hl_seen_set, 1 << 14);
#define HL_SEEN_BITS 14

HL_MAP(hl_workplaces, PERCPU_ARRAY, 0, uint32_t, struct hl_workplace, HL_WORKPLACES);
HL_MAP(hl_losses, PERCPU_ARRAY, 0, uint32_t, struct hl_walk_losses, 1);

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} hl_records SEC(".maps");

#define HL_UNKNOWN_PAUSE_NS UINT64_C(10000000)

/* Set by walker.c before loading. */
const volatile struct hl_walk_settings hl_walk_settings SEC(".rodata.walk") = {0};

/* Namespaces inside of each other; the kernel allows as many. */
#define HL_PID_LEVELS 32

/* The current process' id in the tool's pid namespace; 0: it has none. */
static __noinline uint32_t hl_pid_in_namespace(void)
{
	struct pid *pid = bpf_get_current_task_btf()->signal->pids[HL_PIDTYPE_TGID];
	uint32_t level = pid->level;

	for (uint32_t i = 0; i < HL_PID_LEVELS && i <= level; i++) {
		struct upid number = {0};
		bpf_probe_read_kernel(&number, sizeof(number), &pid->numbers[i]);
		if (BPF_CORE_READ(number.ns, ns.inum) == hl_walk_settings.pid_namespace)
			return number.nr;
	}
	return 0;
}

/* The target of which the current task is a thread; number 0: of none. */
static __always_inline struct hl_target_number hl_current_target(void)
{
	uint32_t pid = hl_walk_settings.pid_namespace ? hl_pid_in_namespace()
						      : bpf_get_current_pid_tgid() >> 32;
	struct hl_target_number target = {.number = pid == hl_walk_settings.pid};

	if (hl_walk_settings.places > 1) {
		struct hl_target_number *known = bpf_map_lookup_elem(&hl_target_numbers, &pid);
		target.number = known ? known->number : 0;
		target.place = known ? known->place : 0;
	}
	return target;
}

static __always_inline uint32_t hl_target_number(void)
{
	return hl_current_target().number;
}

static __always_inline bool hl_is_target(void)
{
	return hl_target_number() != 0;
}

static __always_inline void hl_count_loss(enum hl_walk_loss loss)
{
	struct hl_walk_losses *losses = HL_FIRST(hl_losses);

	if (losses)
		losses->count[loss]++;
}

static __noinline int hl_ask_for_mappings(uint32_t target)
{
	struct hl_unknown_code_record record = {
		{HL_RECORD_UNKNOWN_CODE, sizeof(record)}, target, 0};

	bpf_ringbuf_output(&hl_records, &record, sizeof(record), BPF_RB_FORCE_WAKEUP);
	return 0;
}

/* Says that code ran at ${pc}, which is in no list, but not more often than the tool can follow. */
static __noinline int hl_tell_unknown_code(struct hl_workplace *walk, uint64_t pc)
{
	uint64_t now = bpf_ktime_get_ns();
	struct hl_walk_view *view = bpf_map_lookup_elem(&hl_view, &walk->place);

	if (!view)
		return 0;
	view->unknown[view->unknown_count++ % HL_BPF_UNKNOWN_CODE] = pc;
	if (now - view->unknown_told_ns < HL_UNKNOWN_PAUSE_NS)
		return 0;
	view->unknown_told_ns = now;
	return hl_ask_for_mappings(walk->record.target);
}
