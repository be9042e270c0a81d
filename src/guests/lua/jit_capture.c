/* SPDX-License-Identifier: BSD-2-Clause */
/* Captures the frames of LuaJIT on the calling thread's stack; see luajit.h. */
#include "guests/lua/luajit.h"

#include "unwind/saved.h"

#include <assert.h>

#define VMS_MAX	     63u /* of a stack; outer ones are left out */
#define PAGE_MASK    (~UINT64_C(4095))
#define TRACES_MAX   65535u
#define GLOBAL_BYTES 16384u /* as far as the array of traces is looked for */

const char hl_luajit_c, hl_luajit_compiler, hl_luajit_trace;

/* ---- states ---- */

/* Whether a state lies there; the kernel is asked. */
static bool find_state(struct hl_luajit *lj, uint64_t state)
{
	if (!hl_memory_object_is_readable(state, LJ_STATE_BYTES) ||
	    lj_byte(state, LJ_TYPE) != LJ_TYPE_THREAD)
		return false;
	uint64_t global = lj_word(state, LJ_STATE_GLOBAL);
	if (!hl_memory_object_is_readable(global, lj->current_at + 2 * LJ_SLOT))
		return false;
	atomic_store_explicit(&lj->known, state, memory_order_relaxed);
	return true;
}

/* The same for the state of a VM frame that is one by its return address. Such a state lives, so that one which has been seen to
 * be a state still is. */
static bool is_state(struct hl_luajit *lj, uint64_t state)
{
	return HL_LIKELY(state &&
			 state == atomic_load_explicit(&lj->known, memory_order_relaxed)) ||
	       find_state(lj, state);
}

/* Whether the innermost VM frame of ${state} is at ${vm}. */
static bool has_frame(uint64_t state, uint64_t vm)
{
	return (lj_word(state, LJ_STATE_CFRAME) & ~(uint64_t)LJ_VM_FLAGS) == vm;
}

/* Whether ${state} runs a trace. Its number; 0: it is not known. */
static bool runs_trace(const struct hl_luajit *lj, uint64_t state, uint32_t *ret_number)
{
	uint64_t global = lj_word(state, LJ_STATE_GLOBAL);
	uint32_t number = lj_number(global, lj->vmstate_at);
	bool is_number = number - 1 < TRACES_MAX;

	*ret_number = is_number ? number : 0;
	return (is_number || (int32_t)number == LJ_COLLECTING) &&
	       lj_word(global, lj->current_at) == state &&
	       lj_word(global, lj->current_at + LJ_SLOT);
}

/* ---- the VM frames of a native stack ---- */

/* A word of the stack may be what is left of a state that was closed, and unmapped. */
HL_READS_STACK static bool is_vm(struct hl_luajit *lj, struct hl_walk *walk, uint64_t vm)
{
	return !(vm & 15) && hl_memory_is_readable(walk, vm + LJ_VM_STATE) &&
	       hl_memory_is_readable(walk, vm + LJ_VM_BYTES - 8) &&
	       find_state(lj, *(const uint64_t *)(vm + LJ_VM_STATE));
}

HL_READS_STACK uint64_t hl_luajit_trace_frame(struct hl_luajit *lj, struct hl_walk *walk,
					      uint64_t sp)
{
	uint32_t number;

	for (uint64_t vm = sp + LJ_TRACE_SAVES; vm <= sp + LJ_TRACE_SAVES + LJ_TRACE_SPILLS_MAX;
	     vm += 16) {
		if (!is_vm(lj, walk, vm))
			continue;
		uint64_t state = *(const uint64_t *)(vm + LJ_VM_STATE);
		if (has_frame(state, vm) && runs_trace(lj, state, &number))
			return vm + LJ_VM_BYTES - sp;
	}
	return 0;
}

struct search {
	struct hl_luajit *lj;
	struct hl_walk *walk;
	uint64_t sp;
	uint64_t state; /* of the VM frame before */
	struct hl_luajit_vm vms[VMS_MAX];
	uint32_t count;
	bool is_stale; /* a trace has another frame than the rule for it says */
};

static int32_t words_from(const struct search *search, uint64_t address)
{
	return (int32_t)((int64_t)(address - search->sp) / 8);
}

/* Ends where a VM frame is not in order, as where a trace is left. */
HL_READS_STACK static bool keep_vm(void *context, const struct hl_saved_frame *frame)
{
	struct search *search = context;
	struct hl_luajit *lj = search->lj;
	uint64_t bytes = !frame->function_start && !search->count && frame->cfa
				 ? hl_luajit_trace_frame(lj, search->walk, frame->sp)
				 : 0;
	bool is_trace = bytes && bytes == frame->cfa - frame->sp;
	uint64_t vm = is_trace ? frame->cfa - LJ_VM_BYTES : frame->sp;

	search->is_stale = bytes && !is_trace;
	if (search->is_stale)
		return false;
	if (!is_trace && frame->pc - lj->vm_start >= lj->vm_end - lj->vm_start)
		return true;
	if (!frame->cfa || frame->cfa - LJ_VM_BYTES != vm || !is_vm(lj, search->walk, vm))
		return false;
	uint64_t state = *(const uint64_t *)(vm + LJ_VM_STATE);
	if (state != search->state && !has_frame(state, vm))
		return false;
	search->state = state;
	search->vms[search->count++] = (struct hl_luajit_vm){
		.return_address = frame->pc + 1,
		.return_at = words_from(search, frame->sp - 8),
		.frame_at = words_from(search, vm),
		.is_trace = is_trace,
	};
	return search->count < VMS_MAX;
}

#define NODE_SHIFT  32
#define COUNT_SHIFT 26
#define COUNT_MASK  63u
#define FIRST_MASK  ((1u << COUNT_SHIFT) - 1)

static_assert(VMS_MAX <= COUNT_MASK && HL_LUAJIT_VMS < FIRST_MASK, "an entry holds them");

/*
 * All traces have one native node: where one of them was found, further ones are known by where they return to as well. Nodes have fewer than
 * 31 bits.
 */
static uint32_t key_of_trace(uint32_t node, uint64_t return_address)
{
	uint64_t mixed = (return_address ^ (uint64_t)node << 40) * UINT64_C(0x9e3779b97f4a7c15);

	return (uint32_t)(mixed >> 32) | UINT32_C(1) << 31;
}

/* Remembers what was found under ${key}, a node or a trace, if there is room. What a node replaces leaves its frames behind, so replacing
 * ends when half of them are used. */
static void keep_search(struct hl_luajit_cache *cache, const struct search *search, uint32_t key)
{
	_Atomic uint64_t *entry = &cache->nodes[key % HL_LUAJIT_NODES];
	uint32_t first = atomic_load_explicit(&cache->vm_count, memory_order_relaxed);

	if (first > HL_LUAJIT_VMS / 2 && atomic_load_explicit(entry, memory_order_relaxed))
		return;
	do {
		if (HL_LUAJIT_VMS - first < search->count)
			return;
	} while (!atomic_compare_exchange_weak_explicit(&cache->vm_count, &first,
							first + search->count, memory_order_relaxed,
							memory_order_relaxed));
	for (uint32_t i = 0; i < search->count; i++)
		cache->vms[first + i] = search->vms[i];
	/* Release: who reads the entry sees the frames. */
	atomic_store_explicit(
		entry, (uint64_t)key << NODE_SHIFT | search->count << COUNT_SHIFT | (first + 1),
		memory_order_release);
}

/* ---- traces ---- */

static bool is_trace_at(uint64_t array, uint32_t number)
{
	uint64_t at = array + (uint64_t)number * LJ_SLOT;

	if (!hl_memory_object_is_readable(array, LJ_SLOT) ||
	    !hl_memory_object_is_readable(at, LJ_SLOT))
		return false;
	uint64_t trace = lj_word(at, 0);
	return hl_memory_object_is_readable(trace, LJ_TRACE_BYTES) &&
	       lj_byte(trace, LJ_TYPE) == LJ_TYPE_TRACE &&
	       lj_short(trace, LJ_TRACE_NUMBER) == number &&
	       hl_memory_object_is_readable(lj_word(trace, LJ_TRACE_PROTO), LJ_PROTO_BYTES) &&
	       lj_byte(lj_word(trace, LJ_TRACE_PROTO), LJ_TYPE) == LJ_TYPE_PROTO;
}

/* Whether the array that begins at ${array} has nothing at 0, the trace ${number}, and before that nothing but traces: other words lead
 * to traces, too, as those of a trace that is being collected do. */
static bool is_array_of_traces(uint64_t array, uint32_t number)
{
	if (!hl_memory_object_is_readable(array, LJ_SLOT) || lj_word(array, 0) ||
	    !is_trace_at(array, number))
		return false;
	for (uint32_t i = 1; i < number; i++)
		if (lj_word(array, (uint64_t)i * LJ_SLOT) && !is_trace_at(array, i))
			return false;
	return true;
}

/* Where the global state has its array of traces, the one with number ${number} among them. */
static __attribute__((noinline)) void find_traces(struct hl_luajit *lj, uint64_t global,
						  uint32_t number)
{
	for (uint32_t at = lj->current_at; at < GLOBAL_BYTES; at += LJ_SLOT) {
		uint64_t place = global + at;
		if ((!(place & ~PAGE_MASK) || at == lj->current_at) &&
		    !hl_memory_object_is_readable(place, LJ_SLOT))
			return;
		if (is_array_of_traces(lj_word(place, 0), number)) {
			atomic_store_explicit(&lj->traces_at, at, memory_order_relaxed);
			return;
		}
	}
}

/* The trace with number ${number}, which runs or is the root of what runs; 0: it is not found. */
static uint64_t find_trace(struct hl_luajit *lj, uint64_t global, uint32_t number)
{
	uint32_t at = atomic_load_explicit(&lj->traces_at, memory_order_relaxed);

	if (HL_UNLIKELY(!at)) {
		find_traces(lj, global, number);
		at = atomic_load_explicit(&lj->traces_at, memory_order_relaxed);
	}
	return at ? lj_word(lj_word(global, at), (uint64_t)number * LJ_SLOT) : 0;
}

/* ---- the frames of a state ---- */

struct chain {
	struct hl_luajit *lj;
	struct hl_script_frame *frames;
	uint32_t count, max;
	uint32_t group;			/* where the one of the VM frame that is at hand begins */
	const struct hl_luajit_vm *vms; /* of the state, ... */
	uint32_t vm_count, vm;		/* ... how many, and which one is at hand */
	const char *native;		/* what a VM frame is that has no function of Lua */
	uint64_t sp;
};

static uint64_t vm_of(const struct chain *chain, uint32_t index)
{
	return chain->sp + (uint64_t)((int64_t)chain->vms[index].frame_at * 8);
}

/* Another function at the same address mostly has another size or source, or other lines. */
static uint16_t print_of(uint64_t proto)
{
	uint64_t source = lj_word(proto, LJ_PROTO_SOURCE);
	uint64_t lines = lj_word(proto, LJ_PROTO_LINE_TABLE);
	uint32_t count = lj_number(proto, LJ_PROTO_COUNT);
	uint64_t print = (proto >> 4) + count * 33 + lj_number(proto, LJ_PROTO_FIRST_LINE) * 5 +
			 lj_number(proto, LJ_PROTO_LINES) * 7;

	/* All strings are interned; what has their hash is here or there, by the version. */
	if (HL_LIKELY(source))
		print += (source >> 4) + lj_number(source, LJ_STRING_HASH) * 3 +
			 lj_number(source, LJ_STRING_HASH + 4);
	if (HL_LIKELY(lines && count > 4))
		print += lj_number(lines, 0);
	return (uint16_t)(print * UINT64_C(0x9e3779b97f4a7c15) >> 48);
}

static void put(struct chain *chain, struct hl_script_frame frame)
{
	if (HL_LIKELY(chain->count < chain->max))
		chain->frames[chain->count++] = frame;
}

/* ${pc}: of the next instruction. */
static inline __attribute__((always_inline)) struct hl_script_frame frame_of(uint64_t function,
									     uint64_t pc)
{
	uint64_t proto = lj_proto(function), offset = pc - proto - LJ_PROTO_BYTES;
	bool is_inside = offset - 1 < (uint64_t)lj_number(proto, LJ_PROTO_COUNT) * LJ_INSTRUCTION;

	return (struct hl_script_frame){
		.function = proto,
		.at = is_inside ? (uint32_t)(offset / LJ_INSTRUCTION) - 1 : HL_LUAJIT_NOWHERE,
		.print = print_of(proto),
	};
}

/* The trace itself. Returns where the one began that was entered from the interpreter, as if it were the pc after it; 0: unknown. */
static uint64_t put_trace(struct chain *chain, uint64_t global, uint32_t number)
{
	uint64_t trace = number ? find_trace(chain->lj, global, number) : 0;
	struct hl_script_frame frame = {
		.function = (uint64_t)&hl_luajit_trace,
		.at = HL_LUAJIT_IS_TRACE | number,
	};

	if (trace) {
		frame.function = trace;
		frame.print = (uint16_t)(print_of(lj_word(trace, LJ_TRACE_PROTO)) +
					 (lj_word(trace, LJ_TRACE_PC) >> 2));
	}
	put(chain, frame);
	uint32_t root = trace ? lj_short(trace, LJ_TRACE_ROOT) : 0;
	if (root)
		trace = find_trace(chain->lj, global, root);
	return trace ? lj_word(trace, LJ_TRACE_PC) + LJ_INSTRUCTION : 0;
}

/* The VM frame at hand has begun with what was put last; without any function of Lua, it has called native code. */
static void end_group(struct chain *chain)
{
	if (chain->count == chain->group)
		put(chain, (struct hl_script_frame){.function = (uint64_t)chain->native});
	chain->native = &hl_luajit_c;
	if (chain->count > chain->group)
		chain->frames[chain->count - 1].is_entry = true;
	chain->group = chain->count;
	chain->vm++;
}

/* Native code can begin a VM frame for a function of its own, which pushes no frame of Lua: the ones of such calls that are inward of
 * ${frame}. */
HL_READS_STACK static void pass_native(struct chain *chain, uint64_t stack, uint64_t frame)
{
	while (chain->vm < chain->vm_count) {
		int32_t results = *(const int32_t *)(vm_of(chain, chain->vm) + LJ_VM_RESULTS);
		if (results >= 0 || frame >= stack + (uint64_t)(-(int64_t)results))
			return;
		end_group(chain);
	}
}

/* The pc that the VM frame at hand has saved; 0: there is none. */
HL_READS_STACK static uint64_t saved_pc(const struct chain *chain)
{
	return chain->vm < chain->vm_count ? *(const uint64_t *)(vm_of(chain, chain->vm) + LJ_VM_PC)
					   : 0;
}

static bool has_called(uint64_t link, uint64_t frame)
{
	if ((link & LJ_LINK_IS_PLAIN) == LJ_LINK_C)
		return true;
	return (link & LJ_LINK_KIND) == LJ_LINK_CONTINUATION &&
	       lj_word(frame - 3 * LJ_SLOT, 0) == LJ_CALLBACK;
}

/* By its tag, before anything is read there. */
static inline bool is_function(uint64_t value)
{
	return value >> LJ_TAG_SHIFT == LJ_TAG_FUNCTION;
}

static inline bool is_lua(uint64_t function)
{
	return lj_byte(function, LJ_FUNCTION_KIND) == LJ_FUNCTION_IS_LUA;
}

/* A call instruction says in its second byte how far up its callee's frame is. */
static inline uint64_t distance_of(uint64_t link)
{
	return (2 + (uint64_t)lj_byte(link - LJ_INSTRUCTION, 1)) * LJ_SLOT;
}

/* Most frames: called by Lua, above ${bottom}. Returns the first other one; *${pc} is of the frame at hand, before and after. */
static uint64_t walk_plain(struct chain *chain, uint64_t bottom, uint64_t frame, uint64_t *pc)
{
	struct hl_script_frame *next = chain->frames + chain->count;
	struct hl_script_frame *end = chain->frames + chain->max;
	uint64_t at = *pc, link;

	for (; next < end && frame > bottom; frame -= distance_of(link)) {
		link = lj_word(frame, 0);
		uint64_t function = lj_word(frame - LJ_SLOT, 0);
		if (link & LJ_LINK_IS_PLAIN || !is_function(function))
			break;
		function &= LJ_POINTER_MASK;
		if (HL_LIKELY(is_lua(function)))
			*next++ = frame_of(function, at);
		at = link;
	}
	chain->count = (uint32_t)(next - chain->frames);
	*pc = at;
	return frame;
}

/* ${frame}, the address of the innermost link; ${entry_pc}: that of a trace; 0: none. */
static bool walk_links(struct chain *chain, uint64_t state, uint64_t frame, uint64_t entry_pc)
{
	uint64_t stack = lj_word(state, LJ_STATE_STACK);
	uint64_t bytes = (uint64_t)lj_number(state, LJ_STATE_SLOTS) * LJ_SLOT;
	uint64_t pc = 0;
	bool is_saved = true, is_pseudo = false;

	/* Below the first link there is none; a state that is being made has no stack. */
	while (bytes && frame - stack - LJ_SLOT - 1 < bytes - LJ_SLOT) {
		if (is_saved)
			pass_native(chain, stack, frame);
		uint64_t link = lj_word(frame, 0);
		uint64_t value = lj_word(frame - LJ_SLOT, 0), function = value & LJ_POINTER_MASK;
		if (function != state && !is_function(value))
			return false; /* not a frame: it holds no function */
		if (function != state && !is_pseudo && is_lua(function))
			put(chain,
			    frame_of(function,
				     entry_pc ? entry_pc : (is_saved ? saved_pc(chain) : pc)));
		if (chain->count == chain->max)
			return true;
		entry_pc = 0;
		bool is_plain = !(link & LJ_LINK_IS_PLAIN);
		bool is_continuation = (link & LJ_LINK_KIND) == LJ_LINK_CONTINUATION;
		is_saved = !is_plain && (!is_continuation || has_called(link, frame));
		/* Called with more arguments than it has names for, a function has two frames. */
		is_pseudo = (link & LJ_LINK_KIND) == LJ_LINK_VARARGS;
		pc = is_plain ? link : lj_word(frame - 2 * LJ_SLOT, 0);
		if (!is_plain && has_called(link, frame) && chain->vm < chain->vm_count)
			end_group(chain);
		uint64_t distance = is_plain ? distance_of(link) : link & ~(uint64_t)LJ_LINK_KIND;
		if (!distance || distance >= bytes)
			return false;
		frame -= distance;
		if (is_plain)
			frame = walk_plain(chain, stack + LJ_SLOT, frame, &pc);
	}
	return true;
}

/* False: it is not in order. */
HL_READS_STACK static bool walk_state(struct chain *chain, uint64_t state)
{
	bool is_trace = chain->vms[0].is_trace;
	uint64_t global = lj_word(state, LJ_STATE_GLOBAL), entry_pc = 0;
	uint64_t base = lj_word(state, LJ_STATE_BASE);

	if (!chain->count && LJ_IS_COMPILING((int32_t)lj_number(global, chain->lj->vmstate_at)))
		chain->native = &hl_luajit_compiler;
	if (is_trace) {
		uint32_t number;
		runs_trace(chain->lj, state, &number);
		base = lj_word(global, chain->lj->current_at + LJ_SLOT);
		entry_pc = put_trace(chain, global, number);
		entry_pc = entry_pc ? entry_pc : 1; /* in no code */
	}
	bool is_walked = walk_links(chain, state, base - LJ_SLOT, entry_pc);
	while (chain->vm < chain->vm_count && chain->count < chain->max)
		end_group(chain);
	if (chain->count > chain->group)
		chain->frames[chain->count - 1].is_entry = true;
	return is_walked;
}

/* What runs in ${state}, the innermost one, is native code alone: if it is a coroutine, the frame of its maker stands for the innermost. */
static __attribute__((noinline)) void put_maker(const struct chain *chain, uint64_t state)
{
	struct hl_script_frame maker;
	bool is_main = lj_word(state, LJ_STATE_GLOBAL) == state + LJ_STATE_BYTES;

	for (uint32_t i = 0; i < chain->count; i++)
		if (chain->frames[i].function != (uint64_t)&hl_luajit_c)
			return;
	if (is_main || !chain->lj->find_maker || !chain->lj->find_maker(state, &maker))
		return;
	maker.is_entry = chain->frames[0].is_entry;
	chain->frames[0] = maker;
}

/* ---- capture ---- */

HL_READS_STACK static bool load(struct hl_walk *walk, const struct hl_script_caller *caller,
				int32_t at, uint64_t *ret_value)
{
	uint64_t address = caller->registers->sp + (uint64_t)((int64_t)at * 8);

	if (!hl_memory_is_readable(walk, address))
		return false;
	*ret_value = *(const uint64_t *)address;
	return true;
}

/* The state of a VM frame; 0 where it is not what it was. A trace may have been replaced by another at the same place,
 * which says nothing of where the frame is. */
static uint64_t state_of(struct hl_luajit *lj, const struct hl_script_caller *caller,
			 const struct hl_luajit_vm *vm)
{
	uint64_t address, state;
	uint32_t number;

	if (!load(caller->walk, caller, vm->return_at, &address) || address != vm->return_address ||
	    !load(caller->walk, caller, vm->frame_at + LJ_VM_STATE / 8, &state))
		return 0;
	if (!vm->is_trace)
		return state;
	uint64_t at = caller->registers->sp + (uint64_t)((int64_t)vm->frame_at * 8);
	if (is_state(lj, state) && has_frame(state, at) && runs_trace(lj, state, &number))
		return state;
	hl_rule_cache_invalidate(caller->unwind);
	return 0;
}

static uint32_t capture_vms(struct hl_luajit *lj, const struct hl_script_caller *caller,
			    const struct hl_luajit_vm *vms, uint32_t count,
			    struct hl_script_frame *frames, uint32_t max, bool *ret_truncated)
{
	struct chain chain = {.lj = lj,
			      .frames = frames,
			      .max = max,
			      .native = &hl_luajit_c,
			      .sp = caller->registers->sp};
	bool is_in_order = true;
	uint32_t next;

	for (uint32_t i = 0; i < count && is_in_order && chain.count < max; i = next) {
		uint64_t state = state_of(lj, caller, &vms[i]);
		next = i + 1;
		while (state && next < count && state_of(lj, caller, &vms[next]) == state)
			next++;
		chain.group = chain.count;
		chain.vms = &vms[i];
		chain.vm_count = next - i;
		chain.vm = 0;
		is_in_order = state && walk_state(&chain, state);
		if (!i && chain.count && HL_UNLIKELY(frames->function == (uint64_t)&hl_luajit_c))
			put_maker(&chain, state);
	}
	if (HL_UNLIKELY(!is_in_order))
		atomic_fetch_add_explicit(&lj->refused, 1, memory_order_relaxed);
	*ret_truncated = chain.count == max;
	return chain.count;
}

static uint64_t find_kept(const struct hl_luajit_cache *cache, uint32_t key)
{
	uint64_t known = cache ? atomic_load_explicit(&cache->nodes[key % HL_LUAJIT_NODES],
						      memory_order_acquire)
			       : 0;

	return known >> NODE_SHIFT == key ? known : 0;
}

static const struct hl_luajit_vm *vms_of(const struct hl_luajit_cache *cache, uint64_t known)
{
	return &cache->vms[((uint32_t)known & FIRST_MASK) - 1];
}

/* What is known of ${node}, or of the trace that is running in it; 0: nothing. */
static uint64_t find_known(const struct hl_luajit_cache *cache,
			   const struct hl_script_caller *caller, uint32_t *ret_key)
{
	uint64_t known = find_kept(cache, caller->native_node), address;

	*ret_key = caller->native_node;
	if (HL_UNLIKELY(!known) || !((uint32_t)known >> COUNT_SHIFT))
		return known;
	const struct hl_luajit_vm *vm = vms_of(cache, known);
	if (!vm->is_trace || !load(caller->walk, caller, vm->return_at, &address) ||
	    address == vm->return_address)
		return known;
	*ret_key = key_of_trace(caller->native_node, address);
	return find_kept(cache, *ret_key);
}

static __attribute__((noinline)) uint32_t capture_new(struct hl_luajit *lj,
						      struct hl_luajit_cache *cache, uint32_t key,
						      const struct hl_script_caller *caller,
						      struct hl_script_frame *frames, uint32_t max,
						      bool *ret_truncated)
{
	struct search search = {.lj = lj, .walk = caller->walk, .sp = caller->registers->sp};
	uint64_t saved[HL_SAVED_COUNT] = {0};

	saved[HL_SAVED_FRAME] = caller->registers->bp;
	hl_saved_walk(caller->unwind, caller->walk, caller->registers, saved, keep_vm, &search);
	/* Another trace is where one was that has been thrown away. */
	if (search.is_stale)
		hl_rule_cache_invalidate(caller->unwind);
	if (cache)
		keep_search(cache, &search, key);
	return capture_vms(lj, caller, search.vms, search.count, frames, max, ret_truncated);
}

uint32_t hl_luajit_capture(struct hl_luajit *lj, struct hl_luajit_cache *cache,
			   const struct hl_script_caller *caller, struct hl_script_frame *frames,
			   uint32_t max, bool *ret_truncated)
{
	uint32_t key;
	uint64_t known = find_known(cache, caller, &key);

	if (HL_UNLIKELY(!known))
		return capture_new(lj, cache, key, caller, frames, max, ret_truncated);
	return capture_vms(lj, caller, vms_of(cache, known), (uint32_t)known >> COUNT_SHIFT, frames,
			   max, ret_truncated);
}
