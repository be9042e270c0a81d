// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Says by which stacks a memory control group has come by its pages: who is given a page is noted by its frame, and forgotten
 * when it is freed; two scans of all pages say which of the group's are new.
 */
#include "bpf/walk.bpf.h"

#include "bpf/growth_shared.h"

static int on_page(uint64_t frame, uint64_t pages, uint32_t kind, uint64_t inode);
#define HL_GROUP_PAGE(frame, pages, kind, inode) on_page(frame, pages, kind, inode)

#include "bpf/group.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define TOLD_MAX 4096
/* A process is not told again before this time has passed. */
#define TELL_PAUSE_NS UINT64_C(50000000)

#define ORDER_MAX	10
#define LARGE_WORDS_MAX 16u /* of bits of a large page */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct css_set {
	struct cgroup_subsys_state *subsys[1];
};

struct task_struct___grouped {
	struct css_set *cgroups;
};

#pragma clang attribute pop

enum cgroup_subsys_id { memory_cgrp_id };

struct hl_growth_state growth;

/* By the first frame. growth.c sets how many elements this and the others have. */
HL_MAP(given, HASH, BPF_F_NO_PREALLOC, uint64_t, struct hl_growth_given, 1);

/* A bit for each frame that the first scan found charged; as words. */
HL_MAP(charged_before, ARRAY, BPF_F_MMAPABLE, uint32_t, uint64_t, 1);

/* A bit for each frame that may be in ${given}: most pages that are freed are of others, who shall pay little. As many words. */
HL_MAP(noted, ARRAY, 0, uint32_t, uint64_t, 1);

/* Pages by how they came. */
HL_MAP(grown, HASH, BPF_F_NO_PREALLOC, struct hl_growth_key, uint64_t, 1);

/* When the tool was told of a process. */
HL_MAP(told, LRU_HASH, 0, uint32_t, uint64_t, TOLD_MAX);

/* ---- pages that are given ---- */

static __always_inline bool is_in_group(struct task_struct *task)
{
	struct css_set *set = ((struct task_struct___grouped *)task)->cgroups;
	uint64_t group = 0;
	uint64_t index = bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);

	bpf_probe_read_kernel(&group, sizeof(group),
			      (const void *)((uint64_t)set +
					     bpf_core_field_offset(struct css_set, subsys) +
					     index * sizeof(group)));
	return group && group_of(group, false) != BELONGS_NOT;
}

static __always_inline uint32_t current_pid(void)
{
	return hl_walk_settings.pid_namespace ? hl_pid_in_namespace()
					      : bpf_get_current_pid_tgid() >> 32;
}

static __always_inline void tell_process(uint32_t pid, bool is_again)
{
	struct hl_growth_process_record record = {{HL_RECORD_NEW_PROCESS, sizeof(record)}, pid, 0};
	uint64_t now = bpf_ktime_get_ns(), *last = bpf_map_lookup_elem(&told, &pid);

	if (!pid || (last && !is_again && now - *last < TELL_PAUSE_NS))
		return;
	bpf_map_update_elem(&told, &pid, &now, BPF_ANY);
	bpf_ringbuf_output(&hl_records, &record, sizeof(record), BPF_RB_FORCE_WAKEUP);
}

/* The first argument of a tracepoint, a struct page, as a number to calculate with. */
static __always_inline uint64_t frame_of_argument(const unsigned long long *context)
{
	uint64_t page = 0;

	bpf_probe_read_kernel(&page, sizeof(page), context);
	return frame_of(page);
}

/* The bits of ${frame} and others. */
static __always_inline uint64_t *noted_bits(uint64_t frame)
{
	uint32_t number = frame / 64;

	return bpf_map_lookup_elem(&noted, &number);
}

static __always_inline bool note_page(uint64_t frame, const struct hl_growth_given *entry)
{
	uint64_t *bits = noted_bits(frame);

	if (!bits || bpf_map_update_elem(&given, &frame, entry, BPF_ANY))
		return false;
	__sync_fetch_and_or(bits, UINT64_C(1) << (frame & 63));
	return true;
}

/* The first part of a large page was freed: the others go on by entries of their own. */
static __noinline int note_parts(uint64_t frame, uint32_t freed_order)
{
	uint64_t *bits = noted_bits(frame);

	if (!bits || !(*bits >> (frame & 63) & 1))
		return 0;
	struct hl_growth_given *entry = bpf_map_lookup_elem(&given, &frame);
	if (!entry)
		return 0;
	struct hl_growth_given part = *entry;
	uint32_t order = part.order;
	for (uint32_t i = 0; i < ORDER_MAX; i++) {
		if (i < freed_order || i >= order)
			continue;
		part.order = i;
		if (!note_page(frame + (UINT64_C(1) << i), &part))
			__sync_fetch_and_add(&growth.lost_pages, UINT64_C(1) << i);
	}
	return 0;
}

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(page_allocated, struct page *page, unsigned int order)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (!page || growth.phase == HL_GROWTH_LAST_SCAN || !task->mm || !is_in_group(task))
		return 0;
	struct hl_growth_given entry = {
		.pid = current_pid(),
		.order = order,
		.is_early = growth.phase == HL_GROWTH_FIRST_SCAN,
	};
	if (hl_is_target())
		entry.stack = hl_stack_of_fault();
	else
		tell_process(entry.pid, false);
	uint64_t frame = frame_of_argument(ctx);
	note_parts(frame, order); /* of a large page, whose free was not seen */
	if (!note_page(frame, &entry))
		__sync_fetch_and_add(&growth.lost_pages, UINT64_C(1) << order);
	return 0;
}

SEC("tp_btf/mm_page_free")
int BPF_PROG(page_freed, struct page *page, unsigned int order)
{
	uint64_t frame = frame_of_argument(ctx), bit = UINT64_C(1) << (frame & 63);
	uint64_t *bits = noted_bits(frame);

	if (!bits || !(*bits & bit))
		return 0;
	note_parts(frame, order);
	__sync_fetch_and_and(bits, ~bit);
	bpf_map_delete_elem(&given, &frame);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(program_changed, struct task_struct *task)
{
	if (is_in_group(task))
		tell_process(current_pid(), true);
	return 0;
}

/* ---- scans ---- */

static __always_inline uint64_t *word_of(uint64_t frame)
{
	uint32_t number = frame / 64;

	return bpf_map_lookup_elem(&charged_before, &number);
}

/* Of large pages all frames, since they may be split later; they are aligned to their size. */
static __noinline int keep_before(uint64_t frame, uint64_t pages)
{
	uint64_t *word = word_of(frame);

	if (pages < 64) {
		if (word)
			*word |= ((UINT64_C(1) << (pages & 63)) - 1) << (frame & 63);
		return 0;
	}
	for (uint32_t i = 0; i < LARGE_WORDS_MAX && i < pages / 64; i++) {
		word = word_of(frame + i * 64);
		if (word)
			*word = UINT64_MAX;
	}
	return 0;
}

/* Who was given the page, which may be a part of a larger one that was split; NULL: nobody was seen. */
static __noinline struct hl_growth_given *giver_of(uint64_t frame)
{
	struct hl_growth_given *found = bpf_map_lookup_elem(&given, &frame);

	for (uint32_t order = 1; !found && order <= ORDER_MAX; order++) {
		uint64_t first = frame >> order << order;
		if (first == frame)
			continue;
		found = bpf_map_lookup_elem(&given, &first);
		if (found && found->order < order)
			found = NULL;
	}
	return found;
}

static __noinline int on_page(uint64_t frame, uint64_t pages, uint32_t kind, uint64_t inode)
{
	struct hl_growth_key key = {.inode = inode, .kind = kind};

	if (growth.phase == HL_GROWTH_FIRST_SCAN)
		return keep_before(frame, pages);
	uint64_t *word = word_of(frame);
	bool was_charged = word && *word >> (frame & 63) & 1;
	struct hl_growth_given *giver = giver_of(frame);
	if (was_charged && (!giver || giver->is_early)) {
		growth.kept_pages += pages;
		return 0;
	}
	if (giver) {
		key.stack = giver->stack;
		key.pid = giver->pid;
		key.is_given = true;
	}
	uint64_t *sum = bpf_map_lookup_elem(&grown, &key);
	if (sum)
		*sum += pages;
	else if (bpf_map_update_elem(&grown, &key, &pages, BPF_NOEXIST))
		growth.lost_keys += pages;
	return 0;
}
