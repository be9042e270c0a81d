// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Tells which stacks touch which pages of one process, or counts the faults of each stack.
 *
 * The process is known by its memory: so what a child of vfork or a worker of the kernel touches
 * there is seen, too, and what comes after exec is not.
 */
#include "bpf/walk.bpf.h"

#include "bpf/page_shared.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* asm/trap_pf.h: the processor's error code of a fault */
#define FAULT_PRESENT 1
#define FAULT_WRITE   2
#define FAULT_CODE    16

/* linux/mman.h */
#define MAP_LOCKED	     0x2000
#define MAP_POPULATE	     0x8000
#define MADV_DONTNEED	     4
#define MADV_REMOVE	     9
#define MADV_POPULATE_READ   22
#define MADV_POPULATE_WRITE  23
#define MADV_DONTNEED_LOCKED 24
#define MADV_COLLAPSE	     25
#define MLOCK_ONFAULT	     1
#define MCL_CURRENT	     1
#define MCL_FUTURE	     2
#define MCL_ONFAULT	     4

/* Past this share of the ring the tool is woken; before, it comes by itself from time to time. */
#define RING_WAKE_SHARE 4

/* Faults are counted by stack, and no record is sent. */
const volatile bool count_only = false;
const volatile uint64_t page_bytes = 0;

/* The memory that is watched, a struct mm_struct; 0 until the target's first fault. */
uint64_t target_memory;
/* The target has become another program. */
bool target_replaced;
/* mlockall(MCL_FUTURE): what is mapped from now on is populated. */
bool maps_populate;

/* By stack. */
HL_MAP(fault_counts, PERCPU_HASH, BPF_F_NO_PREALLOC, uint64_t, uint64_t, 1 << 16);

HL_MAP(counters, PERCPU_ARRAY, 0, uint32_t, struct hl_page_counters, 1);

static __always_inline struct hl_page_counters *get_counters(void)
{
	return HL_FIRST(counters);
}

static __always_inline uint64_t memory_of(struct task_struct *task)
{
	return (uint64_t)task->mm;
}

static __always_inline bool touches_target(struct task_struct *task)
{
	uint64_t memory = memory_of(task);

	if (memory == target_memory)
		return memory != 0;
	if (target_memory || target_replaced || !hl_is_target())
		return false;
	target_memory = memory;
	return true;
}

/* ---- faults ---- */

static __always_inline uint64_t wakeup_flags(void)
{
	uint64_t waiting = bpf_ringbuf_query(&hl_records, BPF_RB_AVAIL_DATA);

	return waiting > bpf_ringbuf_query(&hl_records, BPF_RB_RING_SIZE) / RING_WAKE_SHARE
		       ? BPF_RB_FORCE_WAKEUP
		       : BPF_RB_NO_WAKEUP;
}

static __always_inline bool send_touch(uint64_t address, uint64_t flags, uint64_t stack)
{
	struct hl_page_touch_record *record = bpf_ringbuf_reserve(&hl_records, sizeof(*record), 0);

	if (!record)
		return false;
	record->header.kind = HL_RECORD_PAGE_TOUCHED;
	record->header.bytes = sizeof(*record);
	record->page = (address & ~HL_PAGE_RECORD_FLAGS) | flags;
	record->stack = stack;
	bpf_ringbuf_submit(record, wakeup_flags());
	return true;
}

static __always_inline bool count_fault(uint64_t stack)
{
	uint64_t one = 1, *count = bpf_map_lookup_elem(&fault_counts, &stack);

	if (!count)
		return bpf_map_update_elem(&fault_counts, &stack, &one, BPF_NOEXIST) == 0;
	(*count)++;
	return true;
}

/* The page that the kernel gives to a process with probes is nobody's doing but ours. */
static __always_inline bool is_page_of_probes(uint64_t address)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *memory = task->mm;
	struct xol_area *area = memory ? memory->uprobes_state.xol_area : NULL;

	return area && address - area->vaddr < page_bytes;
}

static __always_inline int take_fault(uint64_t address, uint64_t error_code)
{
	struct hl_page_counters *counted = get_counters();
	uint64_t flags = (error_code & FAULT_WRITE ? HL_PAGE_RECORD_WRITE : 0) |
			 (error_code & FAULT_PRESENT ? HL_PAGE_RECORD_PRESENT : 0);

	if ((int64_t)address < 0 || !counted ||
	    (error_code & FAULT_CODE && is_page_of_probes(address)))
		return 0;
	counted->faults++;
	uint64_t stack = hl_stack_of_fault();
	if (!(count_only ? count_fault(stack) : send_touch(address, flags, stack)))
		counted->lost++;
	return 0;
}

static __always_inline int at_user_fault(uint64_t address, uint64_t error_code)
{
	if (!touches_target(bpf_get_current_task_btf()))
		return 0;
	return take_fault(address, error_code);
}

/* Where faults are off, as for the reads of programs like this one, nothing is brought in. */
static __always_inline int at_kernel_fault(uint64_t address, uint64_t error_code)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (!touches_target(task) || task->pagefault_disabled)
		return 0;
	return take_fault(address, error_code);
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(user_fault, uint64_t address, struct pt_regs *regs, uint64_t error_code)
{
	return at_user_fault(address, error_code);
}

SEC("tp_btf/page_fault_kernel")
int BPF_PROG(kernel_fault, uint64_t address, struct pt_regs *regs, uint64_t error_code)
{
	return at_kernel_fault(address, error_code);
}

/* The tracepoints' format, which is the same on all kernels that have them. */
struct fault_event {
	uint64_t common;
	uint64_t address, ip, error_code;
};

SEC("tracepoint/exceptions/page_fault_user")
int user_fault_event(struct fault_event *event)
{
	return at_user_fault(event->address, event->error_code);
}

SEC("tracepoint/exceptions/page_fault_kernel")
int kernel_fault_event(struct fault_event *event)
{
	return at_kernel_fault(event->address, event->error_code);
}

/* struct bpf_perf_event_data, whose header cannot be had together with our registers. */
struct sample {
	uint64_t registers[HL_REGS_WORDS];
	uint64_t period, address;
};

/* Without an error code; each fault then counts as one on a page that was not there. It comes
 * when the fault has been handled, so not for those that were none. */
SEC("perf_event")
int fault_sample(struct sample *event)
{
	if (!touches_target(bpf_get_current_task_btf()))
		return 0;
	return take_fault(event->address, FAULT_WRITE | FAULT_CODE);
}

/* ---- calls that bring pages in, move or discard them ---- */

/* A call that has not returned. */
struct call {
	uint64_t kind; /* enum hl_page_call */
	uint64_t start, bytes, to_bytes;
	uint64_t stack; /* 0: it populates nothing */
};

/* By thread. */
HL_MAP(calls, HASH, BPF_F_NO_PREALLOC, uint32_t, struct call, 1 << 14);

static __always_inline void count_lost_call(void)
{
	struct hl_page_counters *counted = get_counters();

	if (counted)
		counted->lost_calls++;
}

static __always_inline int send_range(uint32_t kind, const struct call *call, uint64_t to)
{
	struct hl_page_range_record record = {
		.header = {kind, sizeof(record)},
		.start = call->start,
		.bytes = call->bytes,
		.to = to,
		.to_bytes = call->to_bytes,
		.stack = call->stack,
	};

	if (bpf_ringbuf_output(&hl_records, &record, sizeof(record), wakeup_flags()))
		count_lost_call();
	return 0;
}

/* The result will say where. */
static __always_inline int keep_call(const struct call *call)
{
	uint32_t thread = (uint32_t)bpf_get_current_pid_tgid();

	if (bpf_map_update_elem(&calls, &thread, call, BPF_ANY))
		count_lost_call();
	return 0;
}

static __always_inline int enter_mmap(const struct pt_regs *regs)
{
	bool populates = maps_populate || HL_REGS_ARGUMENT(regs, 3) & (MAP_POPULATE | MAP_LOCKED);
	struct call call = {
		.kind = HL_PAGE_CALL_MMAP,
		.bytes = HL_REGS_ARGUMENT(regs, 1),
		.stack = populates ? hl_stack_of_caller(regs) : 0,
	};

	return keep_call(&call);
}

static __always_inline int enter_mremap(const struct pt_regs *regs)
{
	struct call call = {
		.kind = HL_PAGE_CALL_MREMAP,
		.start = HL_REGS_ARGUMENT(regs, 0),
		.bytes = HL_REGS_ARGUMENT(regs, 1),
		.to_bytes = HL_REGS_ARGUMENT(regs, 2),
	};

	return keep_call(&call);
}

static __always_inline int send_populated(const struct pt_regs *regs)
{
	struct call call = {
		.start = HL_REGS_ARGUMENT(regs, 0),
		.bytes = HL_REGS_ARGUMENT(regs, 1),
		.stack = hl_stack_of_caller(regs),
	};

	return send_range(HL_RECORD_PAGES_POPULATED, &call, 0);
}

static __always_inline int enter_madvise(const struct pt_regs *regs)
{
	struct call call = {.start = HL_REGS_ARGUMENT(regs, 0), .bytes = HL_REGS_ARGUMENT(regs, 1)};

	switch ((int)HL_REGS_ARGUMENT(regs, 2)) {
	case MADV_DONTNEED:
	case MADV_DONTNEED_LOCKED:
	case MADV_REMOVE:
		return send_range(HL_RECORD_PAGES_GONE, &call, 0);
	case MADV_POPULATE_READ:
	case MADV_POPULATE_WRITE:
	case MADV_COLLAPSE:
		return send_populated(regs);
	default:
		return 0;
	}
}

static __always_inline int enter_mlockall(const struct pt_regs *regs)
{
	struct call call = {0};
	int flags = (int)HL_REGS_ARGUMENT(regs, 0);

	if (flags & MCL_ONFAULT)
		return 0;
	maps_populate = flags & MCL_FUTURE;
	if (!(flags & MCL_CURRENT))
		return 0;
	call.stack = hl_stack_of_caller(regs);
	return send_range(HL_RECORD_PAGES_LOCKED, &call, 0);
}

SEC("uprobe")
int call_entered(struct pt_regs *regs)
{
	switch (bpf_get_attach_cookie(regs)) {
	case HL_PAGE_CALL_MMAP:
		return enter_mmap(regs);
	case HL_PAGE_CALL_MREMAP:
		return enter_mremap(regs);
	case HL_PAGE_CALL_MADVISE:
		return enter_madvise(regs);
	case HL_PAGE_CALL_MLOCK:
		return send_populated(regs);
	case HL_PAGE_CALL_MLOCK2:
		return HL_REGS_ARGUMENT(regs, 2) & MLOCK_ONFAULT ? 0 : send_populated(regs);
	case HL_PAGE_CALL_MLOCKALL:
		return enter_mlockall(regs);
	default:
		return 0;
	}
}

/* For mmap and mremap only. */
SEC("uretprobe")
int call_returned(struct pt_regs *regs)
{
	uint32_t thread = (uint32_t)bpf_get_current_pid_tgid();
	struct call *kept = bpf_map_lookup_elem(&calls, &thread);
	uint64_t result = HL_REGS_RESULT(regs);

	if (!kept)
		return 0;
	struct call call = *kept;
	bpf_map_delete_elem(&calls, &thread);
	if ((int64_t)result < 0)
		return 0;
	if (call.kind == HL_PAGE_CALL_MREMAP)
		return send_range(HL_RECORD_PAGES_MOVED, &call, result);
	call.start = result;
	return send_range(HL_RECORD_PAGES_MAPPED, &call, 0);
}

/* ---- what becomes of the process ---- */

SEC("tp_btf/sched_process_exec")
int BPF_PROG(program_replaced, struct task_struct *task)
{
	if (hl_is_target()) {
		target_replaced = true;
		target_memory = 0;
	}
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(child_born, struct task_struct *parent, struct task_struct *child)
{
	struct hl_page_counters *counted = get_counters();

	if (counted && touches_target(parent) && memory_of(child) != memory_of(parent))
		counted->forks++;
	return 0;
}
