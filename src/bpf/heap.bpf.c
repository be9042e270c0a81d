// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Watches the calls of a process' allocators.
 *
 * A block is entered into hl_live when the call that handed it out returns, and taken out when the
 * call that frees it begins, so that another thread that gets the same address in between is never
 * confused with it. Blocks are known by their address alone.
 *
 * Calls of one allocator function by another count once, for the outermost: hl_calls holds what is
 * known of a thread's call until it returns.
 *
 * The same code runs in three ways, see probe.h, and is compiled once for each prototype of the
 * kernel function that only sessions call: libbpf refuses an object that declares one otherwise
 * than the kernel does, whether its caller is loaded or not. With HL_SESSION, 0 or 1 for
 * how many arguments that function takes, hl_heap_entry runs at returns, too; else hl_heap_return.
 */
#include "bpf/walk.bpf.h"

#include "bpf/heap_shared.h"

#include <bpf/bpf_core_read.h>

#define HL_NO_RETURN 1 /* to a session: the return is of no interest */

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#ifdef HL_SESSION
#if HL_SESSION
extern bool bpf_session_is_return(void *context) __ksym; /* kernel 7.0 */
#define IS_RETURN(context) bpf_session_is_return(context)
#else
extern bool bpf_session_is_return(void) __ksym;
#define IS_RETURN(context) bpf_session_is_return()
#endif
#endif

/* Set by heap_trace.c before loading. */
const volatile bool hl_all = false; /* every allocation counts, frees do not */
const volatile bool hl_with_time = false;
const volatile uint64_t hl_sample_bytes = 0;
const volatile uint64_t hl_throwing_max = 0; /* larger requests of functions that throw may fail,
						and their returns must not be watched */
/* log2(1 + i / HL_LOG2_STEPS) in units of 2^-HL_LOG2_SHIFT. */
const volatile uint32_t hl_log2_table[HL_LOG2_STEPS + 1] = {0};

/* Written by heap_trace.c while the programs run. */
volatile bool hl_counting = false;
volatile bool hl_may_nest = false; /* functions that are probed may call each other */
/* Written here: the target runs another program now. */
volatile bool hl_replaced = false;

/* A call of a thread that has not returned. */
struct call {
	uint64_t sp;   /* that it was entered with; 0: there is no call */
	uint64_t slot; /* its return address; 0: replaced, its return is watched */
	uint64_t site; /* the probe's cookie */
	uint64_t stack;
	uint64_t size;
	uint64_t argument;	  /* the old block, or where the new one is to be stored */
	struct hl_live_block old; /* realloc: what was known of the old block */
	bool old_is_known;
	bool is_sampled;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct call);
} hl_calls SEC(".maps");

/* heap_trace.c sets how many. */
HL_MAP(hl_live, HASH, BPF_F_NO_PREALLOC, uint64_t, struct hl_live_block, 1);

HL_MAP(hl_totals, PERCPU_HASH, BPF_F_NO_PREALLOC, uint64_t, struct hl_stack_total, 1 << 18);

HL_MAP(hl_heap_counters, PERCPU_ARRAY, 0, uint32_t, struct hl_heap_counters, 1);

HL_MAP(hl_heap_processors, PERCPU_ARRAY, 0, uint32_t, struct hl_heap_processor, 1);

static __always_inline struct hl_heap_counters *counters(void)
{
	return HL_FIRST(hl_heap_counters);
}

static __always_inline void count_lost(uint64_t size)
{
	struct hl_heap_counters *count = counters();

	if (!count)
		return;
	count->lost_events++;
	count->lost_bytes += size;
}

/* ---- arguments ---- */

/* Reads a register in a way that the compiler does not merge with reads of others: the verifier
 * wants the place in ${regs} to be a constant. */
#define READ_REGISTER(NUMBER, NAME)          \
	case NUMBER: {                       \
		uint64_t value = regs->NAME; \
		barrier_var(value);          \
		return value;                \
	}

static __noinline uint64_t register_by_number(struct pt_regs *regs, uint32_t number)
{
	switch (number & 15) {
		HL_REGS_NUMBERED(READ_REGISTER)
	default: /* the stack's */
		return 0;
	}
}

static __always_inline uint64_t argument(struct pt_regs *regs, uint64_t site, uint32_t number)
{
	if (site & HL_SITE_MOVED)
		return register_by_number(regs, site >> (HL_SITE_ARGUMENTS + 4 * number));
	return HL_REGS_ARGUMENT(regs, number);
}

static __always_inline enum hl_heap_call call_of(uint64_t site)
{
	return site & 0xff;
}

static __always_inline bool is_realloc(uint64_t site)
{
	return call_of(site) >= HL_HEAP_REALLOC;
}

/* Bytes asked for. When a product overflows, the call fails and the size does not matter. */
static __always_inline uint64_t requested(struct pt_regs *regs, uint64_t site)
{
	switch (call_of(site)) {
	case HL_HEAP_CALLOC:
		return argument(regs, site, 0) * argument(regs, site, 1);
	case HL_HEAP_MEMALIGN:
	case HL_HEAP_REALLOC:
		return argument(regs, site, 1);
	case HL_HEAP_POSIX_MEMALIGN:
		return argument(regs, site, 2);
	case HL_HEAP_REALLOCARRAY:
		return argument(regs, site, 1) * argument(regs, site, 2);
	default:
		return argument(regs, site, 0);
	}
}

/* ---- calls within calls ---- */

/* Where functions return to whose return is watched; 0 when the kernel does not say. */
static __noinline uint64_t trampoline(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	uint64_t address = 0;

	if (!bpf_core_field_exists(struct mm_struct, uprobes_state) ||
	    !bpf_core_field_exists(struct xol_area, vaddr))
		return 0;
	if (BPF_CORE_READ_INTO(&address, task, mm, uprobes_state.xol_area, vaddr))
		return 0;
	return address;
}

/*
 * Whether a thread that enters a function at ${site} is still within ${call}. It may
 * have left it by longjmp(), an exception, or an end of the thread's that nobody watched; then what
 * is on the stack where the return address was has changed, or will when it matters: when something
 * else is called from there.
 */
static __noinline bool is_within(const struct call *call, const struct pt_regs *regs, uint64_t site)
{
	uint64_t sp = HL_REGS_SP(regs), expected = call->slot;

	if (!call->sp || sp > call->sp)
		return false;
	if (expected && sp == call->sp && site == call->site)
		return false;
	if (!expected)
		expected = trampoline();
	if (!expected)
		return sp < call->sp;
	return HL_REGS_RETURN_TO(regs, call->sp, expected);
}

static __always_inline struct call *thread_call(uint64_t flags)
{
	return bpf_task_storage_get(&hl_calls, (void *)bpf_get_current_task_btf(), NULL, flags);
}

/* The thread's call, to be begun at ${site}; NULL when it is within another one, or (counted) there
 * is no memory. */
static __always_inline struct call *begin_call(struct pt_regs *regs, uint64_t site, uint64_t size)
{
	struct call *call = thread_call(BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!call) {
		count_lost(size);
		return NULL;
	}
	if (is_within(call, regs, site))
		return NULL;
	call->sp = HL_REGS_SP(regs);
	call->slot = 0;
	call->site = site;
	return call;
}

/* For calls whose return is not watched: false when within another one. */
static __noinline bool enter_unwatched(struct pt_regs *regs, uint64_t site, uint64_t size)
{
	struct call *call = begin_call(regs, site, size);

	if (call && HL_REGS_READ_RETURN(regs, &call->slot))
		call->sp = 0;
	return call != NULL;
}

/* ---- samples ---- */

/* Not static, as hl_take_samples(): the verifier then proves them once, each by itself. Else it walks
 * all branches of this one at each call, and all that follows the other for each number of samples.
 */

/* -log2 of a random number from (0, 1], in units of 2^-HL_LOG2_SHIFT. */
__noinline uint64_t hl_random_exponential(void)
{
	uint64_t number = (uint64_t)bpf_get_prandom_u32() + 1, mantissa;
	uint32_t exponent = 0;

	for (int i = 32; i >= 1; i >>= 1)
		if (number >> exponent >> i)
			exponent += i;
	exponent &= 63;
	mantissa = (number << (32 - exponent & 63)) & 0xffffffff; /* after the leading one */
	uint32_t step = mantissa >> 26 & (HL_LOG2_STEPS - 1);
	uint64_t low = hl_log2_table[step], high = hl_log2_table[step + 1];
	uint64_t fraction = low + ((high - low) * (mantissa & 0x3ffffff) >> 26);
	return ((32 - (uint64_t)exponent) << HL_LOG2_SHIFT) - fraction;
}

/* Bytes until the next sample: exponentially distributed around hl_sample_bytes. 45426 is ln 2 in
 * units of 2^-16. */
static __always_inline int64_t draw_distance(void)
{
	return (hl_sample_bytes * hl_random_exponential() >> HL_LOG2_SHIFT) * 45426 >> 16;
}

/*
 * How many samples a block of ${size} bytes has. Samples are points of a Poisson process along the
 * bytes that are allocated, wherever; as it has no memory, each processor may count for itself.
 */
__noinline uint64_t hl_take_samples(uint64_t size)
{
	struct hl_heap_processor *here = HL_FIRST(hl_heap_processors);

	if (!here)
		return 0;
	if (!size) /* no sample by bytes hits it */
		return 0;
	if (size / HL_SURE_SAMPLE >= hl_sample_bytes)
		return 1;
	uint64_t samples = 0;
	here->sample_countdown -= size;
	for (uint32_t i = 0; i < 4 * HL_SURE_SAMPLE && here->sample_countdown <= 0; i++) {
		here->sample_countdown += draw_distance() + 1;
		samples++;
	}
	return samples;
}

/* ---- blocks ---- */

static __always_inline void enter_block(uint64_t block, const struct hl_live_block *live)
{
	if (bpf_map_update_elem(&hl_live, &block, live, BPF_ANY))
		count_lost(live->size);
}

/* A free that is passed on to another probed function is one free. */
static __always_inline void count_unmatched(struct hl_heap_processor *here, uint64_t block)
{
	struct hl_heap_counters *count = counters();

	if (count && here->last_freed != block)
		count->unmatched_frees++;
}

static __always_inline int free_block(uint64_t block)
{
	struct hl_heap_processor *here = HL_FIRST(hl_heap_processors);

	if (!block || hl_all || !here)
		return HL_NO_RETURN;
	if (hl_sample_bytes && !bpf_map_lookup_elem(&hl_live, &block))
		return HL_NO_RETURN;
	if (bpf_map_delete_elem(&hl_live, &block))
		count_unmatched(here, block);
	here->last_freed = block;
	return HL_NO_RETURN;
}

/* realloc frees its block, but it may fail, and then it has not. */
static __always_inline void take_old_block(struct call *call, uint64_t block)
{
	struct hl_live_block *old = block ? bpf_map_lookup_elem(&hl_live, &block) : NULL;
	struct hl_heap_processor *here = HL_FIRST(hl_heap_processors);

	call->argument = block;
	call->old_is_known = old != NULL;
	if (old) {
		call->old = *old;
		bpf_map_delete_elem(&hl_live, &block);
	} else if (block && here) {
		count_unmatched(here, block);
	}
	if (here)
		here->last_freed = block;
}

static __always_inline bool old_block_is_sampled(struct pt_regs *regs, uint64_t site)
{
	uint64_t block = is_realloc(site) ? argument(regs, site, 0) : 0;

	return block && bpf_map_lookup_elem(&hl_live, &block);
}

/* ---- every allocation: nothing but its stack and its size ---- */

/* What the samples of a block stand for: bytes, in blocks of its size. */
static __always_inline struct hl_stack_total scale_samples(uint64_t samples, uint64_t size)
{
	struct hl_stack_total total = {size, UINT64_C(1) << HL_TOTAL_SHIFT};

	if (size && size / HL_SURE_SAMPLE < hl_sample_bytes) {
		total.bytes = samples * hl_sample_bytes;
		total.objects = (total.bytes << HL_TOTAL_SHIFT) / size;
	}
	return total;
}

static __always_inline void add_total(uint64_t stack, const struct hl_stack_total *added)
{
	struct hl_stack_total *total = bpf_map_lookup_elem(&hl_totals, &stack);

	if (total) {
		total->bytes += added->bytes;
		total->objects += added->objects;
	} else if (bpf_map_update_elem(&hl_totals, &stack, added, BPF_ANY)) {
		count_lost(added->bytes);
	}
}

static __always_inline int total_call(struct pt_regs *regs, uint64_t site, uint64_t size)
{
	if ((hl_may_nest && !enter_unwatched(regs, site, size)) || (is_realloc(site) && !size))
		return HL_NO_RETURN;
	struct hl_stack_total added = {size, 1};
	if (hl_sample_bytes) {
		uint64_t samples = hl_take_samples(size);
		if (!samples)
			return HL_NO_RETURN;
		added = scale_samples(samples, size);
	}
	add_total(hl_stack_of_caller(regs), &added);
	return HL_NO_RETURN;
}

/* ---- entry and return ---- */

static __always_inline void count_call(struct pt_regs *regs, uint64_t site)
{
	struct hl_heap_counters *count = counters();
	uint32_t call = site & HL_SITE_CALIBRATION ? HL_HEAP_CALIBRATION : call_of(site);

	if (!count || call > HL_HEAP_CALIBRATION)
		return;
	count->calls[call]++;
	if (call >= HL_HEAP_CALLS || call == HL_HEAP_FREE || call == HL_HEAP_REALLOC ||
	    call == HL_HEAP_REALLOCARRAY)
		return;
	/* What is resized counts when it is made, and what is larger than the address space never is. */
	uint64_t bytes = requested(regs, site);
	if (!(bytes >> 47))
		count->requested_bytes += bytes;
}

/*
 * A function whose return is watched has its return address replaced, and the C++ runtime knows no
 * way through that: an exception would end the program. So calls that may throw are let pass.
 */
static __always_inline bool may_throw(uint64_t site, uint64_t size)
{
	if (!(site & HL_SITE_THROWS) || size <= hl_throwing_max)
		return false;
	struct hl_heap_counters *count = counters();
	if (count) {
		count->too_large_events++;
		count->too_large_bytes += size;
	}
	return true;
}

static __always_inline int watch_call(struct pt_regs *regs, uint64_t site, uint64_t size,
				      bool is_sampled)
{
	if (may_throw(site, size))
		return HL_NO_RETURN;
	struct call *call = begin_call(regs, site, size);
	if (!call)
		return HL_NO_RETURN;
	call->size = size;
	call->is_sampled = is_sampled;
	call->argument = argument(regs, site, 0);
	call->old_is_known = false;
	if (is_realloc(site))
		take_old_block(call, call->argument);
	call->stack = is_sampled ? hl_stack_of_caller(regs) : 0;
	return 0;
}

static __always_inline int enter(struct pt_regs *regs)
{
	if (!hl_counting || !hl_is_target())
		return HL_NO_RETURN;
	uint64_t site = bpf_get_attach_cookie(regs);
	count_call(regs, site);
	if (call_of(site) == HL_HEAP_FREE)
		return free_block(argument(regs, site, 0));
	uint64_t size = requested(regs, site);
	if (hl_all)
		return total_call(regs, site, size);
	if (!hl_sample_bytes)
		return watch_call(regs, site, size, true);
	if (hl_may_nest && !enter_unwatched(regs, site, size))
		return HL_NO_RETURN;
	bool is_sampled = hl_take_samples(size) != 0;
	if (!is_sampled && !old_block_is_sampled(regs, site))
		return HL_NO_RETURN;
	return watch_call(regs, site, size, is_sampled);
}

/* What the call handed out, or 0. */
static __always_inline uint64_t result_of(const struct call *call, struct pt_regs *regs)
{
	uint64_t block = HL_REGS_RESULT(regs);

	if (call_of(call->site) != HL_HEAP_POSIX_MEMALIGN)
		return block;
	if ((uint32_t)block ||
	    bpf_probe_read_user(&block, sizeof(block), (const void *)call->argument))
		return 0;
	return block;
}

static __always_inline int leave(struct pt_regs *regs)
{
	struct call *call = thread_call(0);

	if (!call || !call->sp || call->slot || call->sp != HL_REGS_ENTRY_SP(regs))
		return 0;
	call->sp = 0;
	uint64_t block = result_of(call, regs);
	if (block && call->is_sampled) {
		struct hl_live_block live = {call->stack, call->size,
					     hl_with_time ? bpf_ktime_get_ns() : 0};
		enter_block(block, &live);
	} else if (!block && call->old_is_known && call->size) {
		enter_block(call->argument, &call->old);
	}
	return 0;
}

SEC("uprobe")
int hl_heap_entry(struct pt_regs *regs)
{
#ifdef HL_SESSION
	return IS_RETURN(regs) ? leave(regs) : enter(regs);
#else
	enter(regs);
	return 0;
#endif
}

SEC("uretprobe")
int hl_heap_return(struct pt_regs *regs)
{
	return leave(regs);
}

/* Counts alone: how often is each kind of function called? Calls that heapline itself makes, to see
 * what they cost, go the same way. */
SEC("uprobe")
int hl_heap_count(struct pt_regs *regs)
{
	uint64_t site = bpf_get_attach_cookie(regs);

	if (hl_is_target() || site & HL_SITE_CALIBRATION)
		count_call(regs, site);
	return 0;
}

/* A program that replaces itself by another (exec) takes all its blocks with it. */
SEC("tp_btf/sched_process_exec")
int hl_heap_exec(uint64_t *context)
{
	if (hl_is_target()) {
		hl_counting = false;
		hl_replaced = true;
	}
	return 0;
}
