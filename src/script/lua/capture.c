/* SPDX-License-Identifier: BSD-2-Clause */
/* Captures the frames of Lua on the calling thread's stack; see lua.h. */
#include "script/lua/layouts.h"
#include "script/lua/lua.h"

#include "unwind/memory.h"
#include "unwind/saved.h"

#include <assert.h>

#define EVALS_MAX	  63u /* of a stack; outer ones are left out */
#define INSTRUCTION_BYTES 4u
#define OPCODE_MASK	  0x3fu /* 5.1 */
#define OPCODE_CALL	  28u
#define OPCODE_TAILCALL	  29u
#define USER_SPACE_END	  (UINT64_C(1) << 47)
#define PAGE_BYTES	  UINT64_C(4096)
#define STATE_BYTES	  128u /* as far as one is read, and more */
#define TAG_THREAD	  8u   /* of every version */

/* Of hl_lua.callers. */
#define CALLER_SHIFT   48
#define CALLER_ADDRESS ((UINT64_C(1) << CALLER_SHIFT) - 1)
#define CALLER_WORDS   (UINT64_C(0xfc) << CALLER_SHIFT) /* HL_LUA_KEPT_FIRST to HL_LUA_KEPT_LAST */

/* ---- the eval frames of a native stack ---- */

struct search {
	struct hl_lua *lua;
	const struct hl_registers *start;
	const uint64_t *start_saved;
	struct hl_lua_eval evals[EVALS_MAX];
	uint32_t count;
};

static int32_t words_from(const struct search *search, uint64_t address)
{
	return (int32_t)((int64_t)(address - search->start->sp) / 8);
}

/* The value of ${place}; 0: unknown. */
HL_READS_STACK static uint64_t value_in(const struct hl_saved_frame *frame,
					struct hl_lua_place place)
{
	if (place.kind == HL_LUA_IN_WORD) {
		uint64_t at = frame->cfa - 8 * (uint64_t)place.index;
		return at >= frame->sp && at < frame->cfa ? *(const uint64_t *)at : 0;
	}
	const uint64_t *at = place.kind == HL_LUA_IN_REGISTER ? frame->at[place.index] : NULL;
	return at ? *at : 0;
}

static int32_t place_in(const struct search *search, const struct hl_saved_frame *frame,
			struct hl_lua_place place)
{
	if (place.kind == HL_LUA_IN_WORD)
		return frame->cfa ? words_from(search, frame->cfa - 8 * (uint64_t)place.index)
				  : HL_LUA_UNKNOWN;
	const uint64_t *at = place.kind == HL_LUA_IN_REGISTER ? frame->at[place.index] : NULL;
	if (!at)
		return HL_LUA_UNKNOWN;
	uint64_t number = (uint64_t)(at - search->start_saved);
	return number < HL_SAVED_COUNT ? HL_LUA_REGISTER(number) : words_from(search, (uint64_t)at);
}

/* The caller's entry; NULL when there is no room for it. */
static _Atomic uint64_t *find_caller(struct hl_lua *lua, uint64_t caller)
{
	for (uint32_t i = 0; i < HL_LUA_CALLERS_MAX; i++) {
		uint64_t known = 0, new = caller | CALLER_WORDS;
		if (atomic_compare_exchange_strong(&lua->callers[i], &known, new) ||
		    (known & CALLER_ADDRESS) == caller)
			return &lua->callers[i];
	}
	return NULL;
}

/* The words of ${mask}, bits from CALLER_SHIFT on, that have ${value}. */
HL_READS_STACK static uint64_t words_with(const struct hl_saved_frame *frame, uint64_t mask,
					  uint64_t value)
{
	const uint64_t *cfa = (const uint64_t *)frame->cfa;

	for (unsigned w = HL_LUA_KEPT_FIRST; w <= HL_LUA_KEPT_LAST; w++)
		if (cfa[-(int)w] != value)
			mask &= ~(UINT64_C(1) << (CALLER_SHIFT + w));
	return mask & CALLER_WORDS;
}

/*
 * The word that has the state of an eval frame: by a register that a word agrees with, else by what
 * is known of the caller. 0: neither.
 */
HL_READS_STACK static uint32_t word_of_state(struct hl_lua *lua, const struct hl_saved_frame *frame)
{
	const uint64_t *cfa = (const uint64_t *)frame->cfa;
	_Atomic uint64_t *caller = find_caller(lua, cfa[-1]);
	uint64_t known = caller ? atomic_load_explicit(caller, memory_order_relaxed) : 0;

	if (frame->cfa - 8 * (uint64_t)HL_LUA_KEPT_LAST < frame->sp)
		return 0;
	for (uint32_t i = 0; i < HL_LUA_PLACES; i++) {
		uint64_t value = value_in(frame, lua->state[i]);
		uint64_t words = value ? words_with(frame, CALLER_WORDS, value) : 0;
		if (!words || (caller && !(known & words)))
			continue;
		if (caller)
			atomic_fetch_and_explicit(caller, words | CALLER_ADDRESS,
						  memory_order_relaxed);
		words = caller ? known & words : words;
		return (uint32_t)__builtin_ctzll(words) - CALLER_SHIFT;
	}
	known &= CALLER_WORDS;
	if (!known || known == CALLER_WORDS)
		return 0;
	uint32_t word = (uint32_t)__builtin_ctzll(known) - CALLER_SHIFT;
	return words_with(frame, known, cfa[-(int)word]) == known ? word : 0;
}

/* Whether a state lies there: a word that a caller keeps may agree with a register by chance, and the
 * state will be read. */
static bool is_state(uint64_t state)
{
	uint64_t last = state + STATE_BYTES - 1;

	return state && state < USER_SPACE_END && !(state & 7) &&
	       hl_memory_page_is_readable(state & ~(PAGE_BYTES - 1)) &&
	       hl_memory_page_is_readable(last & ~(PAGE_BYTES - 1)) &&
	       (hl_lua_byte(state, 8) & 0x3f) == TAG_THREAD;
}

/* Of the frames of lua_resume() only an innermost one is of a coroutine that runs no function in Lua. */
static void keep_resume(struct search *search, const struct hl_saved_frame *frame)
{
	int32_t state_at = place_in(search, frame, search->lua->resume_state);

	if (search->count || state_at == HL_LUA_UNKNOWN)
		return;
	search->evals[search->count++] = (struct hl_lua_eval){
		.return_address = frame->pc + 1,
		.return_at = words_from(search, frame->sp - 8),
		.state_at = state_at,
		.is_resume = true,
	};
}

HL_READS_STACK static bool keep_eval(void *context, const struct hl_saved_frame *frame)
{
	struct search *search = context;
	struct hl_lua *lua = search->lua;

	if (frame->pc - lua->resume_start < lua->resume_end - lua->resume_start)
		keep_resume(search, frame);
	if (frame->pc - lua->eval_start >= lua->eval_end - lua->eval_start)
		return true;
	uint32_t word = frame->cfa ? word_of_state(lua, frame) : 0;
	if (!word || !is_state(*(const uint64_t *)(frame->cfa - 8 * (uint64_t)word))) {
		atomic_fetch_add_explicit(&lua->refused, 1, memory_order_relaxed);
		return false;
	}
	struct hl_lua_eval eval = {
		.return_address = frame->pc + 1,
		.return_at = words_from(search, frame->sp - 8),
		.state_at = words_from(search, frame->cfa - 8 * (uint64_t)word),
	};
	for (uint32_t i = 0; i < HL_LUA_PLACES; i++)
		eval.pc_at[i] = place_in(search, frame, lua->pc[i]);
	search->evals[search->count++] = eval;
	return search->count < EVALS_MAX;
}

#define NODE_SHIFT  32
#define COUNT_SHIFT 26
#define COUNT_MASK  63u
#define FIRST_MASK  ((1u << COUNT_SHIFT) - 1)

static_assert(EVALS_MAX <= COUNT_MASK && HL_LUA_EVALS < FIRST_MASK, "an entry holds them");

/* Remembers what was found for ${node}, if there is room. What a node replaces leaves its frames
 * behind, so replacing ends when half of them are used. */
static void keep_search(struct hl_lua_cache *cache, const struct search *search, uint32_t node)
{
	uint32_t first = atomic_load_explicit(&cache->eval_count, memory_order_relaxed);

	if (first > HL_LUA_EVALS / 2 &&
	    atomic_load_explicit(&cache->nodes[node % HL_LUA_NODES], memory_order_relaxed))
		return;
	do {
		if (HL_LUA_EVALS - first < search->count)
			return;
	} while (!atomic_compare_exchange_weak_explicit(&cache->eval_count, &first,
							first + search->count, memory_order_relaxed,
							memory_order_relaxed));
	for (uint32_t i = 0; i < search->count; i++)
		cache->evals[first + i] = search->evals[i];
	/* Release: who reads the entry sees the frames. */
	atomic_store_explicit(&cache->nodes[node % HL_LUA_NODES],
			      (uint64_t)node << NODE_SHIFT | search->count << COUNT_SHIFT |
				      (first + 1),
			      memory_order_release);
}

static void search_evals(struct hl_lua *lua, const struct hl_lua_reader *reader,
			 const struct hl_script_caller *caller, struct search *search)
{
	uint64_t saved[HL_SAVED_COUNT] = {0};

	for (unsigned k = 0; caller->saved && k < HL_SAVED_RBP; k++)
		saved[k] = caller->saved[k];
	saved[HL_SAVED_RBP] = caller->registers->bp;
	search->lua = lua;
	search->start = caller->registers;
	search->start_saved = saved;
	search->count = 0;
	hl_saved_walk(reader->unwind, reader->walk, caller->registers, saved, keep_eval, search);
}

/* ---- values of eval frames ---- */

HL_READS_STACK static bool load(struct hl_walk *walk, const struct hl_script_caller *caller,
				int32_t at, uint64_t *ret_value)
{
	if (at >= HL_LUA_REGISTER(0) && at < HL_LUA_REGISTER(HL_SAVED_COUNT)) {
		unsigned number = (unsigned)(at - HL_LUA_REGISTER(0));
		if (number != HL_SAVED_RBP && !caller->saved)
			return false;
		*ret_value = number == HL_SAVED_RBP ? caller->registers->bp : caller->saved[number];
		return true;
	}
	uint64_t address = caller->registers->sp + (uint64_t)((int64_t)at * 8);
	if (at == HL_LUA_UNKNOWN || !hl_memory_is_readable(walk, address))
		return false;
	*ret_value = *(const uint64_t *)address;
	return true;
}

/* ---- the calls of a state ---- */

struct chain {
	struct hl_script_frame *frames;
	uint32_t count, max;
	/* Of the running call: the first value in its code is the pc. NULL: the state has it, or is another's. */
	const struct hl_lua_eval *running;
	struct hl_walk *walk;
	const struct hl_script_caller *caller;
	uint32_t entries; /* of the frames of the state that is read now */
};

static inline __attribute__((always_inline)) uint64_t proto_of(const struct hl_lua_layout *layout,
							       uint64_t call)
{
	uint64_t function = hl_lua_word(call, layout->call_function);

	if ((hl_lua_byte(function, 8) & 0x7f) != layout->closure_tag)
		return 0;
	uint64_t closure = hl_lua_word(function, 0);
	if (layout->closure_is_c && hl_lua_byte(closure, layout->closure_is_c))
		return 0;
	return hl_lua_word(closure, layout->closure_proto);
}

/* Another function at the same address mostly has its code elsewhere, of another size, or comes from
 * another line. */
static inline uint16_t print_of(uint64_t code, uint32_t count, uint32_t first_line)
{
	return (uint16_t)((code >> 4) + count * 33 + first_line * 5);
}

/* The next program counter of a call may be the first after the code. */
static inline bool is_in_code(uint64_t pc, uint64_t code, uint32_t count)
{
	return pc - code - 1 < (uint64_t)count * INSTRUCTION_BYTES && !(pc % INSTRUCTION_BYTES);
}

static inline __attribute__((always_inline)) struct hl_script_frame
frame_of(const struct hl_lua_layout *layout, const struct chain *chain, uint64_t proto, uint64_t pc,
	 const struct hl_lua_eval *running)
{
	uint64_t code = hl_lua_word(proto, layout->proto_code);
	uint32_t count = hl_lua_number(proto, layout->proto_code_count);
	uint32_t first_line = hl_lua_number(proto, layout->proto_first_line);

	for (uint32_t i = 0; running && i < HL_LUA_PLACES; i++) {
		uint64_t live;
		if (load(chain->walk, chain->caller, running->pc_at[i], &live) &&
		    is_in_code(live, code, count)) {
			pc = live;
			break;
		}
	}
	return (struct hl_script_frame){
		.function = proto,
		/* The instruction before the next one; hl_lua_describe() checks it. */
		.at = (uint32_t)((pc - code) / INSTRUCTION_BYTES) - 1,
		.print = print_of(code, count, first_line),
	};
}

/* Whether the call that ${pc} of a function of 5.1 goes on after runs in the same luaV_execute(). */
static inline bool is_plain_call(uint64_t pc)
{
	uint32_t opcode = *(const uint32_t *)(pc - INSTRUCTION_BYTES) & OPCODE_MASK;

	return opcode == OPCODE_CALL || opcode == OPCODE_TAILCALL;
}

/* 5.1: an array, in which nothing says who has called. */
static inline __attribute__((always_inline)) void walk_array(const struct hl_lua_layout *layout,
							     uint64_t state, struct chain *chain)
{
	uint64_t call = hl_lua_word(state, layout->state_call);
	uint64_t base = hl_lua_word(state, layout->state_base_call);
	uint64_t pc = hl_lua_word(state, layout->state_pc);
	const struct hl_lua_eval *running = chain->running;
	struct hl_script_frame *inner = NULL;

	for (; call > base; call -= layout->call_bytes) {
		uint64_t proto = proto_of(layout, call);
		if (inner)
			inner->is_entry = !proto || !is_plain_call(pc);
		inner = NULL;
		if (proto && chain->count == chain->max)
			return;
		if (proto) {
			inner = &chain->frames[chain->count++];
			*inner = frame_of(layout, chain, proto, pc, running);
		}
		running = NULL;
		pc = hl_lua_word(call - layout->call_bytes, layout->call_pc);
	}
	if (inner)
		inner->is_entry = true;
}

static inline __attribute__((always_inline)) void walk_list(const struct hl_lua_layout *layout,
							    uint64_t state, struct chain *chain)
{
	uint64_t call = hl_lua_word(state, layout->state_call);
	const struct hl_lua_eval *running = chain->running;

	for (uint64_t outer; (outer = hl_lua_word(call, layout->call_previous)); call = outer) {
		uint64_t proto = proto_of(layout, call);
		if (!proto) {
			running = NULL;
			continue;
		}
		if (chain->count == chain->max)
			return;
		struct hl_script_frame *frame = &chain->frames[chain->count++];
		uint32_t status = layout->entry_bit > UINT16_MAX
					  ? hl_lua_number(call, layout->call_status)
					  : hl_lua_byte(call, layout->call_status);
		struct hl_script_frame it =
			frame_of(layout, chain, proto, hl_lua_word(call, layout->call_pc), running);
		it.is_entry = !(status & layout->entry_bit) == layout->entry_if_clear;
		chain->entries += it.is_entry;
		*frame = it;
		running = NULL;
	}
}

const struct hl_lua_layout *hl_lua_layout(enum hl_lua_version version)
{
	return version > HL_LUA_NONE && version <= HL_LUA_55 ? &hl_lua_layouts[version] : NULL;
}

/* With offsets that the compiler knows. */
#define WALK(VERSION, walk_calls)                                   \
	case VERSION:                                               \
		walk_calls(&hl_lua_layouts[VERSION], state, chain); \
		return

static void walk_calls(enum hl_lua_version version, uint64_t state, struct chain *chain)
{
	switch (version) {
		WALK(HL_LUA_51, walk_array);
		WALK(HL_LUA_52, walk_list);
		WALK(HL_LUA_53, walk_list);
		WALK(HL_LUA_54, walk_list);
		WALK(HL_LUA_55, walk_list);
	default:
		return;
	}
}

/* While it moves a stack, 5.4.6 and later has offsets in place of pointers to it. */
static inline bool is_in_order(const struct hl_lua_layout *layout, uint64_t state)
{
	return state && state < USER_SPACE_END && !(state & 7) &&
	       hl_lua_word(state, layout->state_top) >= hl_lua_word(state, layout->state_stack);
}

/* ---- capture ---- */

/*
 * A coroutine that yielded within lua_pcallk() or the like, and was resumed, has been called by native code more often than
 * luaV_execute() stands on the stack for it: the calls between were left by the yield, and lua_resume() goes on in their place, one
 * after the other. The outermost of its ${evals} calls stands for all of these.
 */
static void join_entries(struct chain *chain, uint32_t first, uint32_t evals)
{
	uint32_t entry = 0, last = chain->entries;

	if (chain->count == chain->max)
		return; /* where it was cut off the numbers say nothing */
	for (uint32_t i = first; i < chain->count; i++) {
		entry += chain->frames[i].is_entry;
		chain->frames[i].is_entry &= entry < evals || entry == last;
	}
}

/* Whether a function has begun to run in the coroutine: before, whoever resumes it makes room on its stack. */
static bool has_begun(const struct hl_lua_layout *layout, uint64_t state)
{
	uint64_t call = hl_lua_word(state, layout->state_call);

	return layout->version == HL_LUA_51 ? call != hl_lua_word(state, layout->state_base_call)
					    : hl_lua_word(call, layout->call_previous) != 0;
}

/* What runs in the coroutine of ${eval} has no frame of a script: that of its maker is to stand for it. */
static __attribute__((noinline)) uint32_t maker_of(const struct hl_lua *lua,
						   const struct hl_lua_reader *reader,
						   const struct hl_script_caller *caller,
						   const struct hl_lua_eval *eval,
						   struct hl_script_frame *ret_frame)
{
	uint64_t address, state;

	return reader->find_maker && load(reader->walk, caller, eval->return_at, &address) &&
	       address == eval->return_address &&
	       load(reader->walk, caller, eval->state_at, &state) &&
	       reader->find_maker(state - lua->coroutine_offset, ret_frame) &&
	       (hl_lua_byte(state, 8) & 0x3f) == TAG_THREAD && has_begun(&lua->layout, state);
}

static uint32_t capture_evals(struct hl_lua *lua, const struct hl_lua_reader *reader,
			      const struct hl_script_caller *caller,
			      const struct hl_lua_eval *evals, uint32_t count,
			      struct hl_script_frame *frames, uint32_t max, bool *ret_truncated)
{
	struct hl_walk *walk = reader->walk;
	struct chain chain = {.frames = frames, .max = max, .walk = walk, .caller = caller};
	uint32_t first = 0, evals_of_state = 0, i = 0;
	uint64_t last = 0, state, address;

	if (HL_UNLIKELY(count && evals[0].is_resume && max)) {
		chain.count = first = maker_of(lua, reader, caller, &evals[0], frames);
		i = 1;
	}
	for (; i < count; i++, evals_of_state++) {
		if (!load(walk, caller, evals[i].return_at, &address) ||
		    address != evals[i].return_address ||
		    !load(walk, caller, evals[i].state_at, &state) ||
		    (state != last && !is_in_order(&lua->layout, state))) {
			atomic_fetch_add_explicit(&lua->refused, 1, memory_order_relaxed);
			chain.entries = 0; /* its calls are not all known */
			break;
		}
		if (state == last)
			continue;
		if (!last && reader->ret_state)
			*reader->ret_state = state;
		if (HL_UNLIKELY(chain.entries > evals_of_state))
			join_entries(&chain, first, evals_of_state);
		chain.entries = evals_of_state = 0;
		first = chain.count;
		last = state;
		chain.running = i || lua->layout.keeps_pc ? NULL : evals;
		walk_calls(lua->layout.version, state, &chain);
	}
	if (HL_UNLIKELY(chain.entries > evals_of_state))
		join_entries(&chain, first, evals_of_state);
	*ret_truncated = chain.count == max;
	return chain.count;
}

static __attribute__((noinline)) uint32_t capture_new(struct hl_lua *lua,
						      const struct hl_lua_reader *reader,
						      const struct hl_script_caller *caller,
						      struct hl_script_frame *frames, uint32_t max,
						      bool *ret_truncated)
{
	struct search search;

	search_evals(lua, reader, caller, &search);
	if (reader->cache)
		keep_search(reader->cache, &search, caller->native_node);
	return capture_evals(lua, reader, caller, search.evals, search.count, frames, max,
			     ret_truncated);
}

uint32_t hl_lua_capture(struct hl_lua *lua, const struct hl_lua_reader *reader,
			const struct hl_script_caller *caller, struct hl_script_frame *frames,
			uint32_t max, bool *ret_truncated)
{
	struct hl_lua_cache *cache = reader->cache;
	uint32_t node = caller->native_node;
	uint64_t known = HL_LIKELY(cache) ? atomic_load_explicit(&cache->nodes[node % HL_LUA_NODES],
								 memory_order_acquire)
					  : 0;

	if (HL_UNLIKELY(!known || known >> NODE_SHIFT != node))
		return capture_new(lua, reader, caller, frames, max, ret_truncated);
	uint32_t count = (uint32_t)known >> COUNT_SHIFT;
	return count ? capture_evals(lua, reader, caller,
				     &cache->evals[((uint32_t)known & FIRST_MASK) - 1], count,
				     frames, max, ret_truncated)
		     : 0;
}
