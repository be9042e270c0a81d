/* SPDX-License-Identifier: BSD-2-Clause */
/* Captures the frames of Lua on the calling thread's stack; see lua.h. */
#include "guests/lua/layouts.h"
#include "guests/lua/lua.h"

#include "unwind/saved.h"

#include <assert.h>
#include <string.h>

#define INSTRUCTION_BYTES 4u
#define OPCODE_MASK	  0x3fu /* 5.1 */
#define OPCODE_CALL	  28u
#define OPCODE_TAILCALL	  29u
#define PRINT_FACTOR	  UINT64_C(0x9e3779b97f4a7c15)

/* ---- values of eval frames ---- */

HL_READS_STACK static bool load(struct hl_walk *walk, const struct hl_script_caller *caller,
				int32_t at, uint64_t *ret_value)
{
	if (at >= HL_LUA_REGISTER(0) && at < HL_LUA_REGISTER(HL_SAVED_COUNT)) {
		unsigned number = (unsigned)(at - HL_LUA_REGISTER(0));
		if (number != HL_SAVED_FRAME && !caller->saved)
			return false;
		*ret_value =
			number == HL_SAVED_FRAME ? caller->registers->bp : caller->saved[number];
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
	const struct hl_lua_layout *learnt; /* of strings, to which a host may have added */
	struct hl_script_frame *frames;
	uint32_t count, max;
	const struct hl_lua_eval *evals;
	uint32_t eval, eval_count; /* the one whose state is read now, of all */
	/* Of the running call: the first value in its code is the pc. NULL: the state has it, or is another's. */
	const struct hl_lua_eval *running;
	struct hl_walk *walk;
	const struct hl_script_caller *caller;
	uint32_t entries;      /* of the frames of the state that is read now */
	struct memory *memory; /* NULL: nothing is remembered */
	uint32_t fresh;	       /* steps */
	uint32_t kept;	       /* steps that are as they were, the outermost ones */
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

/* Long strings have no hash. */
static __attribute__((noinline)) uint64_t print_of_long(const struct hl_lua_layout *layout,
							uint64_t string)
{
	struct hl_lua_text text = hl_lua_string(layout, string);
	uint64_t print = text.count;

	for (uint32_t i = 0; i < 4 && text.count >= sizeof(uint64_t); i++) {
		uint64_t word;
		memcpy(&word, text.bytes + (text.count - sizeof(word)) * i / 3, sizeof(word));
		print = (print ^ word) * PRINT_FACTOR;
	}
	return print;
}

/*
 * Where another function has come to lie at the same address, it mostly is of another source, has its code elsewhere, of another
 * size, or comes from another line. All strings but long ones have a hash, where every version has it. ${learnt}: the layout with
 * what a host has added to strings.
 */
static inline __attribute__((always_inline)) uint32_t print_of(const struct hl_lua_layout *layout,
							       const struct hl_lua_layout *learnt,
							       uint64_t proto, uint64_t code,
							       uint32_t at)
{
	uint64_t source = hl_lua_word(proto, layout->proto_source);
	uint64_t lines = hl_lua_word(proto, layout->proto_lines);
	uint32_t line_bytes = layout->proto_absolute_lines ? 1 : sizeof(uint32_t);
	uint64_t print = (code >> 4) + hl_lua_number(proto, layout->proto_code_count) * 33 +
			 hl_lua_number(proto, layout->proto_first_line) * 5 + (source >> 4);

	if (HL_LIKELY(source))
		print += HL_UNLIKELY(hl_lua_byte(source, 8) & HL_LUA_TAG_LONG)
				 ? print_of_long(learnt, source)
				 : hl_lua_number(source, HL_LUA_STRING_HASH);
	if (HL_LIKELY(lines && at < hl_lua_number(proto, layout->proto_line_count)))
		print += line_bytes == 1 ? *(const uint8_t *)(lines + at)
					 : *(const uint32_t *)(lines + 4 * (uint64_t)at);
	return (uint32_t)(print * PRINT_FACTOR >> 32);
}

/* The next program counter of a call may be the first after the code. */
static inline bool is_in_code(uint64_t pc, uint64_t code, uint32_t count)
{
	return pc - code - 1 < (uint64_t)count * INSTRUCTION_BYTES && !(pc % INSTRUCTION_BYTES);
}

/* Of a running call, whose state has kept ${pc}: that after the instruction that runs. */
static inline __attribute__((always_inline)) uint64_t
running_pc(const struct hl_lua_layout *layout, struct hl_walk *walk,
	   const struct hl_script_caller *caller, const struct hl_lua_eval *running, uint64_t proto,
	   uint64_t pc)
{
	uint64_t code = hl_lua_word(proto, layout->proto_code);
	uint32_t count = hl_lua_number(proto, layout->proto_code_count);

	for (uint32_t i = 0; i < HL_LUA_PLACES; i++) {
		uint64_t live;
		if (load(walk, caller, running->pc_at[i], &live) && is_in_code(live, code, count))
			return live;
	}
	return pc;
}

static inline __attribute__((always_inline)) struct hl_script_frame
frame_of(const struct hl_lua_layout *layout, const struct hl_lua_layout *learnt, uint64_t proto,
	 uint64_t pc)
{
	uint64_t code = hl_lua_word(proto, layout->proto_code);
	/* The instruction before the next one; hl_lua_describe() checks it. */
	uint32_t at = (uint32_t)((pc - code) / INSTRUCTION_BYTES) - 1;

	uint32_t print = print_of(layout, learnt, proto, code, at);

	return (struct hl_script_frame){
		.function = proto | (uint64_t)(print >> 16) << HL_LUA_PRINT_SHIFT,
		.at = at,
		.print = (uint16_t)print,
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
			if (running)
				pc = running_pc(layout, chain->walk, chain->caller, running, proto,
						pc);
			*inner = frame_of(layout, chain->learnt, proto, pc);
		}
		running = NULL;
		pc = hl_lua_word(call - layout->call_bytes, layout->call_pc);
	}
	if (inner)
		inner->is_entry = true;
}

/* While it moves a stack, 5.4.6 and later has offsets instead of pointers to it. */
static inline bool is_moving_stack(const struct hl_lua_layout *layout, uint64_t state)
{
	return hl_lua_word(state, layout->state_top) < hl_lua_word(state, layout->state_stack);
}

static inline bool is_in_order(const struct hl_lua_layout *layout, uint64_t state)
{
	return state && state < HL_LUA_SPACE_END && !(state & 7) && !is_moving_stack(layout, state);
}

/* The state of ${eval}. False: its frame is not what it was when it was searched. */
static inline bool read_state(const struct chain *chain, const struct hl_lua_eval *eval,
			      uint64_t *ret_state)
{
	uint64_t address;

	return load(chain->walk, chain->caller, eval->return_at, &address) &&
	       hl_machine_code_address(address) == eval->return_address &&
	       load(chain->walk, chain->caller, eval->state_at, ret_state);
}

/* ---- what is as it was ---- */

/*
 * All that is read of a call: if it is as it was, what is given of it is, too, and where its caller is. So
 * once a call is found at which the last capture came by, those outward of it are compared where they were, without a
 * load that waits for another.
 */
struct step {
	uint64_t state, call, previous, closure;
	uint64_t proto; /* 0: no function in Lua, so nothing is given of it */
	uint64_t pc;
	uint32_t shape;	  /* of the proto */
	uint32_t status;  /* what it says of entries; see status_of() */
	uint16_t given;	  /* how many of the steps up to this one, the outermost first, are */
	uint16_t entries; /* of these, those of its state alone that native code has called */
	uint16_t outward; /* steps of its state outward of it */
	uint8_t tag;
};

#define STEPS_MAX  256u
#define PLACE_BITS 6

struct memory {
	uint32_t depth;
	uint8_t places[1u << PLACE_BITS]; /* by a hash of the call, its step, where that is right */
	struct step steps[STEPS_MAX];	  /* outermost first */
	struct step fresh[STEPS_MAX];	  /* of the capture that goes on, innermost first */
};

static_assert(sizeof(struct memory) <= HL_SCRIPT_MEMORY_BYTES, "the recorder has room for it");

static inline uint8_t *place_of_call(struct memory *memory, uint64_t call)
{
	return &memory->places[call * UINT64_C(0x9e3779b97f4a7c15) >> (64 - PLACE_BITS)];
}

static inline __attribute__((always_inline)) uint32_t status_of(const struct hl_lua_layout *layout,
								uint64_t call)
{
	uint32_t status = layout->entry_bit > UINT16_MAX ? hl_lua_number(call, layout->call_status)
							 : hl_lua_byte(call, layout->call_status);

	return status & layout->entry_bit;
}

/* Whether native code has called what has that status. */
static inline __attribute__((always_inline)) bool is_entry(const struct hl_lua_layout *layout,
							   uint32_t status)
{
	return !status == layout->entry_if_clear;
}

/* Another function at the same address mostly differs in it. */
static inline __attribute__((always_inline)) uint32_t shape_of(const struct hl_lua_layout *layout,
							       uint64_t proto)
{
	return hl_lua_number(proto, layout->proto_code_count) +
	       hl_lua_number(proto, layout->proto_first_line) * 8;
}

/*
 * Whether ${call}, which is one of the thread's, is that of ${step}, with its pc there. A function that has ended may be
 * mapped no more, so its shape is read only once the closure, which the call keeps alive, has been seen to lead to it.
 */
static inline __attribute__((always_inline)) bool is_unchanged(const struct hl_lua_layout *layout,
							       const struct step *step,
							       uint64_t call, bool with_pc)
{
	uint64_t function = hl_lua_word(call, layout->call_function);

	if (HL_UNLIKELY(hl_lua_word(call, layout->call_previous) != step->previous ||
			hl_lua_word(function, 0) != step->closure))
		return false;
	if (HL_UNLIKELY(!step->proto))
		return (hl_lua_byte(function, 8) & 0x7f) == step->tag;
	return HL_LIKELY(hl_lua_word(step->closure, layout->closure_proto) == step->proto &&
			 !(with_pc && hl_lua_word(call, layout->call_pc) != step->pc) &&
			 status_of(layout, call) == step->status &&
			 shape_of(layout, step->proto) == step->shape);
}

/*
 * Whether the step ${at}, whose call has been reached, and all outward of it are as they were: calls of the state that is read now, and
 * then of those whose eval frames follow. Where calls would have to be joined they are not. See join_entries().
 */
static inline __attribute__((always_inline)) bool
are_unchanged(const struct hl_lua_layout *layout, const struct chain *chain, uint32_t at)
{
	const struct step *step = &chain->memory->steps[at];
	uint32_t entries = chain->entries + step->entries, evals = 1, next = chain->eval + 1;

	for (;;) {
		if (HL_UNLIKELY(!is_unchanged(layout, step, step->call, true)))
			return false;
		if (HL_LIKELY(step->outward)) {
			step--;
			continue;
		}
		uint64_t state = 0;
		for (; next < chain->eval_count; next++, evals++)
			if (!read_state(chain, &chain->evals[next], &state) || state != step->state)
				break;
		if (entries > evals)
			return false;
		if (step-- == chain->memory->steps)
			return next == chain->eval_count;
		if (state != step->state || !is_in_order(layout, state) ||
		    hl_lua_word(state, layout->state_call) != step->call)
			return false;
		entries = step->entries;
		evals = 1;
		next++;
	}
}

/* Puts the fresh steps inward of those that are kept; how many frames the latter gave. */
static inline uint32_t remember(const struct hl_lua_layout *layout, struct memory *memory,
				uint32_t kept, uint32_t count)
{
	const uint16_t kept_given = kept ? memory->steps[kept - 1].given : 0;
	uint16_t given = kept_given;

	for (; count; kept++) {
		struct step *step = &memory->steps[kept];
		*step = memory->fresh[--count];
		given = (uint16_t)(given + (step->proto != 0));
		step->given = given;
		bool is_outermost = !kept || step[-1].state != step->state;
		step->outward = is_outermost ? 0 : step[-1].outward + 1;
		step->entries = (uint16_t)((step->proto && is_entry(layout, step->status)) +
					   (is_outermost ? 0 : step[-1].entries));
		*place_of_call(memory, step->call) = (uint8_t)kept;
	}
	memory->depth = kept;
	return kept_given;
}

/* ---- calls in a list ---- */

/* Whether the call and all outward of it are as they were: then they are kept. */
static inline __attribute__((always_inline)) bool
keep(const struct hl_lua_layout *layout, uint64_t state, uint64_t call, struct chain *chain)
{
	struct memory *memory = chain->memory;
	uint32_t at = *place_of_call(memory, call);

	if (at >= memory->depth || memory->steps[at].call != call ||
	    memory->steps[at].state != state ||
	    memory->steps[at].given + chain->count > chain->max ||
	    !are_unchanged(layout, chain, at))
		return false;
	chain->kept = at + 1;
	return true;
}

static inline __attribute__((always_inline)) void walk_list(const struct hl_lua_layout *layout,
							    uint64_t state, struct chain *chain)
{
	uint64_t call = hl_lua_word(state, layout->state_call);
	const struct hl_lua_eval *running = chain->running;

	for (uint64_t outer; (outer = hl_lua_word(call, layout->call_previous)); call = outer) {
		if (chain->memory && !running && keep(layout, state, call, chain))
			return;
		uint64_t function = hl_lua_word(call, layout->call_function);
		struct step step = {
			.state = state,
			.call = call,
			.previous = outer,
			.closure = hl_lua_word(function, 0),
			.tag = hl_lua_byte(function, 8) & 0x7f,
		};
		if (step.tag == layout->closure_tag) {
			if (chain->count == chain->max)
				return;
			struct hl_script_frame *frame = &chain->frames[chain->count++];
			step.proto = hl_lua_word(step.closure, layout->closure_proto);
			step.pc = hl_lua_word(call, layout->call_pc);
			if (running)
				step.pc = running_pc(layout, chain->walk, chain->caller, running,
						     step.proto, step.pc);
			struct hl_script_frame it =
				frame_of(layout, chain->learnt, step.proto, step.pc);
			step.status = status_of(layout, call);
			it.is_entry = is_entry(layout, step.status);
			step.shape = shape_of(layout, step.proto);
			chain->entries += it.is_entry;
			*frame = it;
		}
		running = NULL;
		if (chain->memory && chain->fresh < STEPS_MAX)
			chain->memory->fresh[chain->fresh] = step;
		chain->fresh++;
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

/* What runs in the innermost coroutine has no frame of a script: that of its maker is to stand for it. */
static __attribute__((noinline)) uint32_t maker_of(const struct hl_lua *lua,
						   const struct hl_lua_reader *reader,
						   const struct chain *chain,
						   struct hl_script_frame *ret_frame)
{
	uint64_t state;

	return reader->find_maker && read_state(chain, &chain->evals[0], &state) &&
	       reader->find_maker(state - lua->coroutine_offset, ret_frame) &&
	       (hl_lua_byte(state, 8) & 0x3f) == HL_LUA_TAG_THREAD &&
	       has_begun(&lua->layout, state);
}

/* What the thread remembers of calls in a list, if that is what the recorder has of its last capture. */
static struct memory *memory_of(const struct hl_lua *lua, const struct hl_script_caller *caller)
{
	if (!caller->memory || lua->layout.version == HL_LUA_51)
		return NULL;
	struct memory *memory = (struct memory *)caller->memory->bytes;
	uint32_t depth = memory->depth;
	if (depth && memory->steps[depth - 1].given != caller->memory->known)
		memory->depth = 0;
	return memory;
}

static uint32_t capture_evals(struct hl_lua *lua, const struct hl_lua_reader *reader,
			      const struct hl_script_caller *caller,
			      const struct hl_lua_eval *evals, uint32_t count,
			      struct hl_script_frame *frames, uint32_t max, bool *ret_truncated)
{
	struct chain chain = {
		.learnt = &lua->layout,
		.frames = frames,
		.max = max,
		.evals = evals,
		.eval_count = count,
		.walk = reader->walk,
		.caller = caller,
		.memory = memory_of(lua, caller),
	};
	uint32_t first = 0, evals_of_state = 0;
	uint64_t last = 0, state;
	bool is_whole = true; /* what was read is all there is, and as it was read */

	if (HL_UNLIKELY(count && evals[0].is_resume && max)) {
		chain.count = first = maker_of(lua, reader, &chain, frames);
		chain.eval = 1;
		if (chain.memory)
			chain.memory->depth = 0; /* it does not know the maker */
		chain.memory = NULL;
	}
	for (; chain.eval < count && !chain.kept; chain.eval++, evals_of_state++) {
		if (!read_state(&chain, &evals[chain.eval], &state) ||
		    (state != last && !is_in_order(&lua->layout, state))) {
			atomic_fetch_add_explicit(&lua->refused, 1, memory_order_relaxed);
			chain.entries = 0; /* its calls are not all known */
			is_whole = false;
			break;
		}
		if (state == last)
			continue;
		if (!last && reader->ret_state)
			*reader->ret_state = state;
		if (HL_UNLIKELY(chain.entries > evals_of_state)) {
			join_entries(&chain, first, evals_of_state);
			is_whole = false;
		}
		chain.entries = evals_of_state = 0;
		first = chain.count;
		last = state;
		chain.running = chain.eval || lua->layout.keeps_pc ? NULL : evals;
		walk_calls(lua->layout.version, state, &chain);
	}
	if (HL_UNLIKELY(!chain.kept && chain.entries > evals_of_state)) {
		join_entries(&chain, first, evals_of_state);
		is_whole = false;
	}
	*ret_truncated = chain.count == max;
	if (chain.memory) {
		is_whole &= chain.kept + chain.fresh <= STEPS_MAX && !*ret_truncated;
		caller->memory->kept = remember(&lua->layout, chain.memory, chain.kept,
						is_whole ? chain.fresh : 0);
		if (HL_UNLIKELY(!is_whole))
			chain.memory->depth = 0;
	}
	return chain.count;
}

static __attribute__((noinline)) uint32_t capture_new(struct hl_lua *lua,
						      const struct hl_lua_reader *reader,
						      const struct hl_script_caller *caller,
						      struct hl_script_frame *frames, uint32_t max,
						      bool *ret_truncated)
{
	struct hl_lua_eval evals[HL_LUA_EVALS_MAX];
	uint32_t count = hl_lua_search_evals(lua, reader, caller, evals);

	return capture_evals(lua, reader, caller, evals, count, frames, max, ret_truncated);
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

	if (HL_UNLIKELY(!known || known >> HL_LUA_NODE_SHIFT != node))
		return capture_new(lua, reader, caller, frames, max, ret_truncated);
	uint32_t count = (uint32_t)known >> HL_LUA_COUNT_SHIFT;
	return count ? capture_evals(lua, reader, caller,
				     &cache->evals[((uint32_t)known & HL_LUA_FIRST_MASK) - 1],
				     count, frames, max, ret_truncated)
		     : 0;
}

/* ---- capture where little has changed ---- */

/* Whether all that the evals of one stack point at, which are in order, innermost first, lies where the thread has read before. */
static inline bool are_readable(const struct hl_walk *walk, const struct hl_lua_eval *evals,
				uint32_t count, uint64_t sp)
{
	uint64_t last = sp + (uint64_t)((int64_t)evals[count - 1].state_at * 8);

	return !(sp & 7) && sp - 8 >= walk->stack_low && last < walk->stack_high;
}

/* Whether all that the last capture came by is as it was, but for the pc of the innermost call. */
HL_READS_STACK static inline __attribute__((always_inline)) bool
is_all_unchanged(const struct hl_lua_layout *layout, const struct memory *memory,
		 const struct hl_lua_eval *eval, const struct hl_lua_eval *end, const uint64_t *sp)
{
	const struct step *step = &memory->steps[memory->depth - 1];

	for (bool with_pc = false;; with_pc = true) {
		const uint64_t state = step->state;
		uint32_t evals = 0;
		for (; eval < end && sp[eval->state_at] == state; eval++, evals++)
			if (HL_UNLIKELY(hl_machine_code_address(sp[eval->return_at]) !=
					eval->return_address))
				return false;
		/* Calls that would have to be joined are not compared; see join_entries(). */
		if (HL_UNLIKELY(!evals || step->entries > evals || is_moving_stack(layout, state) ||
				hl_lua_word(state, layout->state_call) != step->call ||
				!is_unchanged(layout, step, step->call, with_pc)))
			return false;
		for (uint32_t outward = step->outward; outward; outward--) {
			step--;
			if (HL_UNLIKELY(!is_unchanged(layout, step, step->call, true)))
				return false;
		}
		if (step-- == memory->steps)
			return eval == end;
	}
}

/* The function of the innermost call may have gone on, as in a loop: then its frame is given. How many are. */
static inline __attribute__((always_inline)) uint32_t
go_on(const struct hl_lua_layout *layout, const struct hl_lua_layout *learnt,
      const struct hl_script_caller *caller, const struct hl_lua_eval *running, struct step *last,
      struct hl_script_frame *frames)
{
	uint64_t pc = hl_lua_word(last->call, layout->call_pc);

	if (!layout->keeps_pc)
		pc = running_pc(layout, caller->walk, caller, running, last->proto, pc);
	if (pc == last->pc)
		return 0;
	last->pc = pc;
	frames[0] = frame_of(layout, learnt, last->proto, pc);
	frames[0].is_entry = is_entry(layout, last->status);
	return 1;
}

/*
 * Mostly the innermost call is that of last time, and all outward of it is as it was: then no more is to be done than to compare it.
 * HL_SCRIPT_GAVE_UP, and nothing has happened, in all other cases.
 */
static inline __attribute__((always_inline)) uint32_t
compare(const struct hl_lua_layout *layout, const struct hl_lua *lua,
	const struct hl_lua_eval *evals, uint32_t count, const struct hl_script_caller *caller,
	struct hl_script_frame *frames)
{
	struct memory *memory = (struct memory *)caller->memory->bytes;
	struct step *last = &memory->steps[memory->depth - 1];

	if (HL_UNLIKELY(last->given != caller->memory->known ||
			!is_all_unchanged(layout, memory, evals, evals + count,
					  (const uint64_t *)caller->registers->sp)))
		return HL_SCRIPT_GAVE_UP;
	uint32_t stamp = hl_lua_same_stamp(lua, last->state, caller->stamp);
	if (HL_UNLIKELY(!stamp))
		return HL_SCRIPT_GAVE_UP;
	caller->stamp->value = stamp;
	uint32_t changed =
		last->proto ? go_on(layout, &lua->layout, caller, evals, last, frames) : 0;
	caller->memory->kept = last->given - changed;
	return changed;
}

#define COMPARE(VERSION) \
	case VERSION:    \
		return compare(&hl_lua_layouts[VERSION], lua, evals, count, caller, frames)

uint32_t hl_lua_recapture(const struct hl_lua *lua, const struct hl_lua_cache *cache,
			  const struct hl_script_caller *caller, struct hl_script_frame *frames)
{
	const struct memory *memory = (const struct memory *)caller->memory->bytes;
	uint32_t node = caller->native_node;
	uint64_t known =
		atomic_load_explicit(&cache->nodes[node % HL_LUA_NODES], memory_order_acquire);
	uint32_t count = (uint32_t)known >> HL_LUA_COUNT_SHIFT;

	if (HL_UNLIKELY(known >> HL_LUA_NODE_SHIFT != node || !count || !memory->depth))
		return HL_SCRIPT_GAVE_UP;
	const struct hl_lua_eval *evals = &cache->evals[((uint32_t)known & HL_LUA_FIRST_MASK) - 1];
	if (HL_UNLIKELY(evals->is_resume ||
			!are_readable(caller->walk, evals, count, caller->registers->sp)))
		return HL_SCRIPT_GAVE_UP;
	switch (lua->layout.version) {
		COMPARE(HL_LUA_52);
		COMPARE(HL_LUA_53);
		COMPARE(HL_LUA_54);
		COMPARE(HL_LUA_55);
	default:
		return HL_SCRIPT_GAVE_UP;
	}
}
