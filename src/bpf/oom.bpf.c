// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Sees whom the kernel kills for want of memory. Only copies: who asked waits for its memory meanwhile.
 *
 * mark_victim's argument is a number on older kernels and a task on newer ones; but the SIGKILL that the same thread has just generated names the
 * task on all.
 */
#define __VMLINUX_H__

#include <linux/bpf.h>
#include <stdbool.h>
#include <stdint.h>

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>

#include "base/frame_key.h"
#include "bpf/oom_shared.h"
#include "bpf/registers.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define KILL_SIGNAL 9
#define PAGE_SHIFT  12
#define COUNTERS    4 /* of mm_struct.rss_stat: file, anonymous, swap, shared */
#define CPUS_MAX    512
#define PLACES	    4u
#define LOOKUPS_MAX 256u
#define SHARE_PARTS 65536
#define PAGES_MAX   (UINT64_C(1) << 40) /* a counter without a limit has more */
#define PASSING_NS  UINT64_C(250000000) /* the least time between two of one group */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	long counter;
} atomic_long_t;

struct percpu_counter {
	long long count;
	int *counters; /* of each processor */
};

/* Before 6.2. */
struct mm_rss_stat {
	atomic_long_t count[COUNTERS];
};

struct mm_struct___old {
	struct mm_rss_stat rss_stat;
};

struct mm_struct {
	unsigned long arg_start, arg_end;
	atomic_long_t pgtables_bytes;
	struct percpu_counter rss_stat[COUNTERS];
};

struct qstr {
	const unsigned char *name;
};

struct super_block;

struct inode {
	unsigned long i_ino;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
};

struct path {
	struct dentry *dentry;
};

struct file {
	struct path f_path;
};

struct vm_area_struct {
	unsigned long vm_start, vm_end, vm_pgoff;
	struct file *vm_file;
};

struct kernfs_node {
	const char *name;
	unsigned long long id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct css_set {
	struct cgroup_subsys_state *subsys[1];
};

struct page_counter {
	atomic_long_t usage;
	unsigned long high, max;
	struct page_counter *parent;
};

struct mem_cgroup {
	struct cgroup_subsys_state css;
	struct page_counter memory;
};

struct bpf_array {
	void *pptrs[1];
};

struct signal_struct {
	short oom_score_adj;
};

struct task_struct {
	int pid, tgid;
	char comm[16];
	struct mm_struct *mm;
	struct signal_struct *signal;
	struct css_set *cgroups;
};

enum cgroup_subsys_id { memory_cgrp_id = 4 };

#pragma clang attribute pop

#define HL_MAP(name, kind, key_type, element, count) \
	struct {                                     \
		__uint(type, BPF_MAP_TYPE_##kind);   \
		__uint(max_entries, count);          \
		__type(key, key_type);               \
		__type(value, element);              \
	} name SEC(".maps")

struct signalled {
	uint64_t task;
	uint32_t pid;
};

struct place {
	uint32_t busy;
	uint32_t lookups;
	uint64_t address; /* of an element of ${offsets} */
	struct hl_oom_record record;
};

HL_MAP(signals, LRU_HASH, uint64_t, struct signalled,
       256);					     /* by the thread that sent SIGKILL last */
HL_MAP(victims, LRU_HASH, uint32_t, uint32_t, 1024); /* whose death is to be seen, by process */
HL_MAP(places, ARRAY, uint32_t, struct place, PLACES);
HL_MAP(offsets, PERCPU_ARRAY, uint32_t, uint64_t,
       1); /* whose addresses tell where the data of each processor are */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 2 << 20);
} records SEC(".maps");

/* Kills of which the reader gets no record. */
uint64_t lost;

/* Of a limit, in parts of SHARE_PARTS, that are reported when they are passed. */
const volatile uint32_t shares[HL_OOM_SHARES];

HL_MAP(passings, LRU_HASH, uint64_t, uint64_t,
       4096); /* when the last one of a counter was reported */

/* ---- what is copied ---- */

struct sum {
	uint64_t counters; /* a pointer to a number of each processor, as the kernel has it */
	uint64_t own;	   /* the same to the element of ${offsets} */
	struct place *place;
	int64_t sum;
};

/* By way of memory, since the verifier lets nobody calculate with such a pointer. */
static __always_inline uint64_t address_of(struct place *place, const void *pointer)
{
	*(const void *volatile *)&place->address = pointer;
	return *(volatile uint64_t *)&place->address;
}

static long add_processor(uint32_t cpu, struct sum *sum)
{
	uint32_t first = 0;
	uint64_t *element = bpf_map_lookup_percpu_elem(&offsets, &first, cpu);
	int number = 0;

	if (!element)
		return 1;
	uint64_t address = address_of(sum->place, element);
	bpf_probe_read_kernel(&number, sizeof(number),
			      (const void *)(sum->counters + (address - sum->own)));
	sum->sum += number;
	return 0;
}

static __always_inline int64_t read_counter(struct place *place, struct mm_struct *memory,
					    uint32_t i)
{
	struct sum sum = {.place = place};

	/* A structure of numbers before 6.2, not an array: a type that a kernel lacks takes CAP_SYS_ADMIN to look for in its modules. */
	if (!bpf_core_field_exists(struct mm_struct, rss_stat)) {
		bpf_probe_read_kernel(
			&sum.sum, 8,
			(const char *)memory +
				bpf_core_field_offset(struct mm_struct___old, rss_stat) + i * 8);
		return sum.sum;
	}
	struct percpu_counter *counter =
		(void *)((char *)memory + bpf_core_field_offset(struct mm_struct, rss_stat) +
			 i * bpf_core_type_size(struct percpu_counter));
	sum.sum = BPF_CORE_READ(counter, count);
	sum.counters = (uint64_t)BPF_CORE_READ(counter, counters);
	/* A processor keeps back up to twice as many pages as there are processors. */
	bpf_probe_read_kernel(&sum.own, sizeof(sum.own),
			      (const void *)(address_of(place, &offsets) +
					     bpf_core_field_offset(struct bpf_array, pptrs)));
	if (sum.own)
		bpf_loop(CPUS_MAX, add_processor, &sum, 0);
	return sum.sum;
}

static __always_inline void copy_memory(struct place *place, struct mm_struct *memory)
{
	struct hl_oom_memory *to = &place->record.memory;

	to->file = read_counter(place, memory, 0);
	to->anonymous = read_counter(place, memory, 1);
	to->swap = read_counter(place, memory, 2);
	to->shared = read_counter(place, memory, 3);
	to->page_table_bytes = BPF_CORE_READ(memory, pgtables_bytes.counter);
}

static __noinline int copy_levels(struct place *place, uint64_t task_address, uint32_t which)
{
	struct task_struct *task = (void *)task_address;
	uint32_t count = 0;

	if (!place)
		return 0;
	uint64_t at = (uint64_t)BPF_CORE_READ(task, cgroups) +
		      bpf_core_field_offset(struct css_set, subsys) +
		      bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id) * 8;
	struct mem_cgroup *group = NULL;
	bpf_probe_read_kernel(&group, sizeof(group), (const void *)at);
	for (uint32_t i = 0; i < HL_OOM_LEVELS && group; i++) {
		struct hl_oom_level *level = &place->record.levels[which & 1][i];
		level->inode = BPF_CORE_READ(group, css.cgroup, kn, id);
		level->usage_pages = BPF_CORE_READ(group, memory.usage.counter);
		level->max_pages = BPF_CORE_READ(group, memory.max);
		bpf_probe_read_kernel_str(level->name, sizeof(level->name),
					  BPF_CORE_READ(group, css.cgroup, kn, name));
		group = (struct mem_cgroup *)BPF_CORE_READ(group, css.parent);
		count++;
	}
	place->record.level_counts[which & 1] = count;
	return 0;
}

static __always_inline void copy_arguments(struct hl_oom_record *record, struct mm_struct *memory)
{
	uint64_t start = BPF_CORE_READ(memory, arg_start);
	uint64_t bytes = BPF_CORE_READ(memory, arg_end) - start;

	if (bytes > HL_OOM_ARGS_BYTES)
		bytes = HL_OOM_ARGS_BYTES;
	if (bytes && bpf_probe_read_user(record->args, bytes, (const void *)start) == 0)
		record->args_bytes = bytes;
}

static __always_inline void copy_path(struct hl_oom_map *map, struct dentry *at)
{
	for (uint32_t i = 0; i < HL_OOM_PARTS; i++) {
		struct dentry *above = BPF_CORE_READ(at, d_parent);
		if (!above || above == at)
			break;
		bpf_probe_read_kernel_str(map->parts[i], sizeof(map->parts[i]),
					  BPF_CORE_READ(at, d_name.name));
		at = above;
	}
}

static long keep_map(struct task_struct *task, struct vm_area_struct *area, void *context)
{
	struct place *place = *(struct place **)context;
	uint32_t number = place->record.map_count;

	if (number >= HL_OOM_MAPS)
		return 0;
	struct hl_oom_map *map = &place->record.maps[number];
	map->start = BPF_CORE_READ(area, vm_start);
	map->end = BPF_CORE_READ(area, vm_end);
	map->offset = BPF_CORE_READ(area, vm_pgoff);
	for (uint32_t i = 0; i < HL_OOM_PARTS; i++)
		map->parts[i][0] = 0;
	struct dentry *entry = BPF_CORE_READ(area, vm_file, f_path.dentry);
	map->inode = entry ? BPF_CORE_READ(entry, d_inode, i_ino) : 0;
	if (entry)
		copy_path(map, entry);
	place->record.map_count = number + 1;
	return 0;
}

static __noinline bool is_known(struct place *place, uint64_t address)
{
	if (!place)
		return true;
	for (uint32_t i = 0; i < HL_OOM_MAPS && i < place->record.map_count; i++)
		if (address - place->record.maps[i].start <
		    place->record.maps[i].end - place->record.maps[i].start)
			return true;
	return false;
}

static __always_inline void look_up(struct place **context, uint64_t address)
{
	struct place *place = *context;

	if (address < PAGE_SHIFT || address >= HL_BPF_USER_END || place->lookups >= LOOKUPS_MAX ||
	    is_known(place, address))
		return;
	place->lookups++;
	bpf_find_vma(bpf_get_current_task_btf(), address, keep_map, context, 0);
}

static long look_up_word(uint32_t i, struct place **context)
{
	struct place *place = *context;
	uint64_t word = place->record.stack[i % (HL_OOM_STACK_BYTES / 8)];

	if (i >= place->record.stack_bytes / 8 || place->record.map_count >= HL_OOM_MAPS)
		return 1;
	/* A return address may be signed, which leaves bit 55 of it alone. */
	look_up(context, word >> 55 & 1 ? word : HL_CODE_ADDRESS(word));
	return 0;
}

/* Registers and stack of the current thread; up to where its stack ends, which pages tell. */
static __always_inline void copy_stack(struct place *place)
{
	struct hl_oom_record *record = &place->record;
	struct pt_regs *regs =
		(void *)bpf_task_pt_regs((struct task_struct *)bpf_get_current_task_btf());
	uint64_t bytes = 0;

	record->ip = HL_REGS_PC(regs);
	record->sp = HL_REGS_SP(regs);
	record->bp = HL_REGS_BP(regs);
	record->link = HL_REGS_LINK(regs);
	record->in_call = HL_REGS_IN_CALL(regs);
	for (uint32_t i = 0; i < HL_OOM_STACK_BYTES / 1024; i++) {
		if (bpf_probe_read_user(&record->stack[i * 128], 1024,
					(const void *)(record->sp + i * 1024)))
			break;
		bytes += 1024;
	}
	record->stack_bytes = bytes;
	struct place *context = place;
	look_up(&context, record->ip);
	look_up(&context, record->sp); /* so that words that lead to the stack are known */
	bpf_loop(HL_OOM_STACK_BYTES / 8, look_up_word, &context, 0);
}

/* The stack of a death that is lost is missing in its kill, which is kept. */
static __always_inline void lose(uint32_t kind)
{
	if (kind == HL_OOM_KILL)
		__sync_fetch_and_add(&lost, 1);
}

static __always_inline struct place *take_place(uint32_t kind)
{
	for (uint32_t i = 0; i < PLACES; i++) {
		uint32_t number = i;
		struct place *place = bpf_map_lookup_elem(&places, &number);
		if (place && !__sync_lock_test_and_set(&place->busy, 1))
			return place;
	}
	lose(kind);
	return NULL;
}

static __always_inline void begin(struct hl_oom_record *record, uint32_t kind)
{
	record->kind = kind;
	record->clock_ns = bpf_ktime_get_ns();
	record->stack_bytes = record->args_bytes = record->map_count = 0;
	record->level_counts[0] = record->level_counts[1] = 0;
	__builtin_memset(&record->asked, 0, sizeof(record->asked));
	__builtin_memset(&record->memory, 0, sizeof(record->memory));
}

static __always_inline void send(struct place *place)
{
	if (bpf_ringbuf_output(&records, &place->record, sizeof(place->record), 0))
		lose(place->record.kind);
	place->lookups = 0;
	place->busy = 0;
}

static __always_inline void name_process(struct task_struct *task, struct hl_oom_process *to)
{
	to->pid = BPF_CORE_READ(task, tgid);
	to->tid = BPF_CORE_READ(task, pid);
	bpf_core_read_str(to->comm, sizeof(to->comm), &task->comm);
}

/* ---- events ---- */

SEC("raw_tp/signal_generate")
int kill_sent(struct bpf_raw_tracepoint_args *context)
{
	uint64_t thread = bpf_get_current_pid_tgid();

	if ((int)context->args[0] != KILL_SIGNAL)
		return 0;
	struct task_struct *task = (void *)context->args[2];
	struct signalled signalled = {.task = (uint64_t)task, .pid = BPF_CORE_READ(task, pid)};
	bpf_map_update_elem(&signals, &thread, &signalled, BPF_ANY);
	return 0;
}

SEC("raw_tp/mark_victim")
int victim_marked(struct bpf_raw_tracepoint_args *context)
{
	uint64_t thread = bpf_get_current_pid_tgid();
	struct signalled *found = bpf_map_lookup_elem(&signals, &thread);

	if (!found)
		return 0; /* it was about to end anyway */
	struct signalled signalled = *found;
	bpf_map_delete_elem(&signals, &thread);
	struct task_struct *task = (void *)signalled.task;
	if (context->args[0] != signalled.task && (uint32_t)context->args[0] != signalled.pid)
		return 0;
	struct place *place = take_place(HL_OOM_KILL);
	if (!place)
		return 0;
	struct hl_oom_record *record = &place->record;
	begin(record, HL_OOM_KILL);
	name_process(task, &record->victim);
	name_process((struct task_struct *)bpf_get_current_task(), &record->asked);
	record->oom_score_adj = BPF_CORE_READ(task, signal, oom_score_adj);
	struct mm_struct *memory = BPF_CORE_READ(task, mm);
	if (memory)
		copy_memory(place, memory);
	copy_levels(place, (uint64_t)task, 0);
	copy_levels(place, bpf_get_current_task(), 1);
	uint32_t pid = record->victim.pid, one = 1;
	if (memory && pid == thread >> 32)
		copy_arguments(record, memory);
	else
		bpf_map_update_elem(&victims, &pid, &one, BPF_ANY);
	copy_stack(place);
	send(place);
	return 0;
}

/* The first thread of a victim that takes its SIGKILL. */
SEC("raw_tp/signal_deliver")
int kill_delivered(struct bpf_raw_tracepoint_args *context)
{
	uint32_t pid = bpf_get_current_pid_tgid() >> 32;

	if ((int)context->args[0] != KILL_SIGNAL || bpf_map_delete_elem(&victims, &pid))
		return 0;
	struct place *place = take_place(HL_OOM_DEATH);
	if (!place)
		return 0;
	struct hl_oom_record *record = &place->record;
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	begin(record, HL_OOM_DEATH);
	name_process(task, &record->victim);
	struct mm_struct *memory = BPF_CORE_READ(task, mm);
	if (memory)
		copy_arguments(record, memory);
	copy_stack(place);
	send(place);
	return 0;
}

/* ---- before that ---- */

/* ${counter}: of a group, or of its swap or its huge pages, whose group is nobody's then. */
static __always_inline void report(uint64_t counter)
{
	struct mem_cgroup *group =
		(void *)(counter - bpf_core_field_offset(struct mem_cgroup, memory));
	uint64_t now_ns = bpf_ktime_get_ns();
	uint64_t *last_ns = bpf_map_lookup_elem(&passings, &counter);

	if (last_ns && now_ns - *last_ns < PASSING_NS)
		return;
	bpf_map_update_elem(&passings, &counter, &now_ns, BPF_ANY);
	struct hl_oom_passing passing = {.inode = BPF_CORE_READ(group, css.cgroup, kn, id)};
	bpf_ringbuf_output(&records, &passing, sizeof(passing), 0);
}

static __always_inline bool passes(struct page_counter *counter, uint64_t pages)
{
	uint64_t max = BPF_CORE_READ(counter, max), high = BPF_CORE_READ(counter, high);
	uint64_t limit = high < max ? high : max, usage;

	if (limit >= PAGES_MAX)
		return false;
	usage = BPF_CORE_READ(counter, usage.counter);
	for (uint32_t share = 0; share < HL_OOM_SHARES; share++) {
		uint64_t bound = limit * shares[share] / SHARE_PARTS;
		if (usage < bound && usage + pages >= bound)
			return true;
	}
	return false;
}

/* Called for 64 pages at once, as a processor takes them in advance. */
static __always_inline int charge(uint64_t counter, uint64_t pages)
{
	for (uint32_t i = 0; i < HL_OOM_LEVELS && counter; i++) {
		if (passes((void *)counter, pages))
			report(counter);
		counter = (uint64_t)BPF_CORE_READ((struct page_counter *)counter, parent);
	}
	return 0;
}

SEC("fentry/page_counter_try_charge")
int charged(uint64_t *context)
{
	__u64 counter = 0, pages = 0;

	bpf_get_func_arg(context, 0, &counter);
	bpf_get_func_arg(context, 1, &pages);
	return charge(counter, pages);
}

/* Where functions of the kernel cannot be entered so: aarch64 before Linux 6.4. */
SEC("kprobe/page_counter_try_charge")
int charged_by_probe(struct pt_regs *regs)
{
	return charge(HL_REGS_ARGUMENT(regs, 0), HL_REGS_ARGUMENT(regs, 1));
}
