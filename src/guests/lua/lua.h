/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads what an interpreter of Lua runs, out of its own structures: PUC Lua 5.1 to 5.5, linked in any
 * way, stripped or not.
 *
 * Nothing of the interpreter is hooked or changed. A stack that runs Lua has a frame of its main
 * function, luaV_execute(), for each call from native code into Lua. That frame has the running state
 * and the program counter in registers or words that the compiler chose; a probe in a private state
 * finds out which, and whether all that is read is true.
 *
 *	eval frame	a native frame of luaV_execute()
 *	place		where a native frame has a value, seen from the innermost frame
 *
 * In-process code: capture and description take no lock, allocate nothing and call nothing of the
 * interpreter's.
 */
#pragma once

#include "base/compiler.h"
#include "base/machine.h"
#include "guests/lua/state_table.h"
#include "guests/provider.h"
#include "recorder/recorder.h"
#include "unwind/unwind.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- layouts ---- */

/*
 * Where the structures of an interpreter have what a walk of its frames reads. Offsets in
 * bytes, for 64-bit machines, as the C compiler lays out lobject.h, lstate.h of each version.
 * Nothing is believed before a probe has proved it, see probe.c.
 *
 *	state	 lua_State: a coroutine, or the main one
 *	call	 CallInfo: one running function of a state
 *	proto	 Proto: what a function was compiled to
 */

enum hl_lua_version {
	HL_LUA_NONE,
	HL_LUA_51,
	HL_LUA_52,
	HL_LUA_53,
	HL_LUA_54,
	HL_LUA_55,
};

#define HL_LUA_TAG_LONG	   0x10u /* of long strings, in their tag */
#define HL_LUA_STRING_HASH 12u	 /* of other strings, in any version: where their hash is */

struct hl_lua_layout {
	enum hl_lua_version version;
	uint8_t state_top, state_stack, state_call;
	uint8_t state_global;	 /* what all coroutines of one state share */
	uint8_t state_base_call; /* 5.1: calls are an array that begins here; otherwise 0 */
	uint8_t state_pc;	 /* 5.1: of the running call */
	uint8_t call_function, call_previous, call_pc;
	uint8_t call_bytes;   /* of the array's elements; 0: calls are linked */
	uint8_t call_status;  /* four bytes are read where ${entry_bit} is above the first */
	uint32_t entry_bit;   /* in it: called by native code ... */
	bool entry_if_clear;  /* ... where it is 0 */
	bool keeps_pc;	      /* the running call's saved pc is always exact */
	uint8_t closure_is_c; /* 5.1: a byte; otherwise 0, and the tag says it */
	uint8_t closure_tag;  /* of a function in Lua */
	uint8_t closure_proto;
	uint8_t proto_code, proto_code_count, proto_lines, proto_line_count, proto_source,
		proto_first_line;
	uint8_t proto_absolute_lines, proto_absolute_count; /* 0: a line for each instruction */
	uint8_t string_bytes;
	uint8_t string_short_length, string_long_length;
	bool string_is_pointer; /* bytes of long ones are behind a pointer */
	uint8_t debug_source, debug_line, debug_first_line; /* in lua_Debug */
};

/* That of ${version}; NULL: it is not known. */
const struct hl_lua_layout *hl_lua_layout(enum hl_lua_version version);

static inline uint64_t hl_lua_word(uint64_t object, uint8_t offset)
{
	return *(const uint64_t *)(object + offset);
}

static inline uint32_t hl_lua_number(uint64_t object, uint8_t offset)
{
	return *(const uint32_t *)(object + offset);
}

static inline uint8_t hl_lua_byte(uint64_t object, uint8_t offset)
{
	return *(const uint8_t *)(object + offset);
}

/* ---- the reader ---- */

/* Functions of the interpreter, by their addresses. */
struct hl_lua_api {
	enum hl_lua_version version;
	uint64_t newstate, close, load, pcall, /* or lua_pcallk() */
		pushcclosure, checkstack, getstack, getinfo, sethook;
	uint64_t newthread, resume; /* 0: coroutines that run C functions are not told apart */
	uint64_t gc;		    /* 0: collections are not counted */
};

/*
 * Of an eval frame, where it may have a value: the compiler chooses for each part of so long a
 * function. Word w lies w words below the frame's CFA. Some can only have what the function
 * keeps for its caller, and every caller has the state in some register: so a register that may have
 * the state has it if one of these words says the same.
 */
#define HL_LUA_PLACES	   4u
#define HL_LUA_CALLERS_MAX 16u
#define HL_LUA_SITES_MAX   16u

struct hl_lua_place {
	enum { HL_LUA_NOWHERE, HL_LUA_IN_REGISTER, HL_LUA_IN_WORD } kind;
	uint32_t index; /* enum hl_saved_register, or the word */
};

/* An eval frame of a native stack, in words from the innermost frame's stack pointer on. The innermost one may be of
 * lua_resume() instead: then a coroutine runs a C function. */
struct hl_lua_eval {
	uint64_t return_address; /* into luaV_execute() ... */
	int32_t return_at;	 /* ... and where it is: then the rest is right, too */
	int32_t state_at;
	int32_t pc_at[HL_LUA_PLACES]; /* the first that has an address in the function's code */
	bool is_resume;
};

/* Instead of a word: in a register of enum hl_saved_register. */
#define HL_LUA_REGISTER(k) (INT32_MIN + 1 + (int32_t)(k))
#define HL_LUA_UNKNOWN	   INT32_MIN

/* What was proved of an interpreter; valid in forked children, too. */
struct hl_lua {
	struct hl_lua_layout layout;
	uint64_t eval_start, eval_end;
	uint64_t alloc_start, alloc_end; /* functions that call the allocator; 0: not known */
	struct hl_lua_place state[HL_LUA_PLACES], pc[HL_LUA_PLACES]; /* likely ones first */
	/* Return addresses into luaV_execute() at which the call has not saved its pc, from 5.4 on: elsewhere it is exact, and the places may
	 * have the pc of an earlier instruction. */
	uint64_t sites[HL_LUA_SITES_MAX];
	uint32_t site_count;
	uint64_t resume_start, resume_end; /* of lua_resume(); 0: coroutines are not told apart */
	struct hl_lua_place resume_state;  /* of its frame: the coroutine ... */
	uint32_t coroutine_offset;	   /* ... and where in its block that begins, in bytes */
	struct hl_lua_collector collector; /* all zero: collections are not counted */
	bool tells_types; /* to its allocator, which is the first word of what coroutines share */
	/* Return addresses into functions that call luaV_execute(), and from bit 48 on which words had
	 * the state whenever it was known. */
	_Atomic uint64_t callers[HL_LUA_CALLERS_MAX];
	_Atomic uint64_t refused; /* captures in which a state was not in order */
};

#define HL_LUA_NODES (1u << 16)
#define HL_LUA_EVALS (1u << 18)

/* The eval frames of native stacks, remembered by their nodes. Zero-initialize. When it is full, or two
 * stacks want one place, stacks are searched again. */
struct hl_lua_cache {
	/* The node << 32 | number of eval frames << 26 | number of the first + 1. */
	_Atomic uint64_t nodes[HL_LUA_NODES];
	_Atomic uint32_t eval_count;
	struct hl_lua_eval evals[HL_LUA_EVALS];
};

/* By what a thread reads stacks. */
struct hl_lua_reader {
	struct hl_unwind *unwind;
	struct hl_walk *walk;
	struct hl_lua_cache *cache; /* NULL if there is none */
	/* The frame that made the block at ${block}, a coroutine; false: it is not known. NULL: none is. */
	bool (*find_maker)(uint64_t block, struct hl_script_frame *ret_frame);
	uint64_t *ret_state; /* NULL; or where the state goes that runs, if one does */
};

/* How hl_lua_open() went; texts for messages. */
enum hl_lua_problem {
	HL_LUA_PROVED,
	HL_LUA_UNKNOWN_VERSION,
	HL_LUA_NO_STATE,   /* lua_newstate() or a call in the private state failed */
	HL_LUA_NO_EVAL,	   /* luaV_execute() was not found on the stack */
	HL_LUA_NO_PLACE,   /* it has its state nowhere all the time */
	HL_LUA_OTHER_LINES /* what was read differs from what lua_getinfo() says */
};

const char *hl_lua_problem_text(enum hl_lua_problem problem);

/*
 * Runs the probe: a millisecond, with calls of the interpreter's functions, but none of the target's
 * allocator. ${memory}: HL_LUA_PROBE_BYTES that are zero, not needed afterwards. ${lua} is zero, and
 * usable when HL_LUA_PROVED is returned. One at a time.
 */
#define HL_LUA_PROBE_BYTES ((size_t)5 << 18)

enum hl_lua_problem hl_lua_open(struct hl_lua *lua, const struct hl_lua_api *api,
				const struct hl_lua_reader *reader, void *memory);

/* After that: what struct hl_lua says of coroutines and of collections, if it can be learnt. ${memory}: as above. */
void hl_lua_learn_states(struct hl_lua *lua, const struct hl_lua_api *api,
			 const struct hl_lua_reader *reader, void *memory);

/* As capture of hl_script_provider. A coroutine that runs a C function has the frame of its maker. */
uint32_t hl_lua_capture(struct hl_lua *lua, const struct hl_lua_reader *reader,
			const struct hl_script_caller *caller, struct hl_script_frame *frames,
			uint32_t max, bool *ret_truncated);

/* As recapture of it, from 5.2 on, of states that have been collected no more since. */
uint32_t hl_lua_recapture(const struct hl_lua *lua, const struct hl_lua_cache *cache,
			  const struct hl_script_caller *caller, struct hl_script_frame *frames);

/* The stamp of a block that is allocated while ${state} runs, if that is of the one that ran at the thread's last event,
 * and has not been collected since; or 0. */
static inline uint32_t hl_lua_same_stamp(const struct hl_lua *lua, uint64_t state,
					 const struct hl_guest_stamp *stamp)
{
	const struct hl_lua_state_slot *slot = stamp->slot;

	if (HL_UNLIKELY(!slot || !state))
		return 0;
	uint64_t global = hl_lua_word(state, lua->layout.state_global);
	uint8_t white = *(const uint8_t *)(global + lua->collector.white_at);
	if (HL_UNLIKELY(atomic_load_explicit(&slot->global, memory_order_relaxed) != global ||
			atomic_load_explicit(&slot->white, memory_order_relaxed) != white ||
			hl_lua_state_is_closed(slot)))
		return 0;
	return hl_lua_stamp(stamp->number,
			    atomic_load_explicit(&slot->collections, memory_order_relaxed));
}

/* As describe of hl_script_provider. */
bool hl_lua_describe(const struct hl_lua *lua, const struct hl_script_frame *frame,
		     struct hl_script_place *ret_place);

/* ---- evals.c ---- */

/*
 * The eval frames of a native stack, and where each has the running state and the program counter. Found by a walk
 * that recovers callee-saved registers, and then remembered by the stack's node.
 */

#define HL_LUA_EVALS_MAX  63u /* of a stack; outer ones are left out */
#define HL_LUA_SPACE_END  HL_USER_END
#define HL_LUA_TAG_THREAD 8u /* of every version */

/* Above the address of a frame's function are more bits of its print. */
#define HL_LUA_PRINT_SHIFT 48

/* An entry of hl_lua_cache.nodes. */
#define HL_LUA_NODE_SHIFT  32
#define HL_LUA_COUNT_SHIFT 26
#define HL_LUA_COUNT_MASK  63u
#define HL_LUA_FIRST_MASK  ((1u << HL_LUA_COUNT_SHIFT) - 1)

/* Fills ${evals}, innermost first; returns how many they are. They are remembered, where there is a cache with room. */
uint32_t hl_lua_search_evals(struct hl_lua *lua, const struct hl_lua_reader *reader,
			     const struct hl_script_caller *caller,
			     struct hl_lua_eval evals[HL_LUA_EVALS_MAX]);

/* ---- describe.c: what functions and chunks are called, whatever interpreter runs them ---- */

/* Not terminated. One that is put together stays valid for the next few of the process. */
struct hl_lua_text {
	const char *bytes;
	uint32_t count;
};

/* The bytes of a string, which stay where it is. */
struct hl_lua_text hl_lua_string(const struct hl_lua_layout *layout, uint64_t string);

/* ---- the probes ---- */

/* In a function that the interpreter calls, compiled with a frame pointer: the registers of its caller, and those that its own
 * caller keeps, or NULL. Expand it first. */
#define HL_LUA_CALLER_HERE(READER, REGISTERS, SAVED)                                     \
	const uint64_t *SAVED = HL_SAVED_HERE();                                         \
	struct hl_registers REGISTERS = {(uint64_t)__builtin_return_address(0),          \
					 (uint64_t)__builtin_dwarf_cfa(),                \
					 *(const uint64_t *)__builtin_frame_address(0)}; \
	uint64_t room_[HL_SAVED_COUNT];                                                  \
	if (!SAVED)                                                                      \
	SAVED = hl_saved_find((READER)->unwind, (READER)->walk, &REGISTERS, room_)

/* ---- stamps ---- */

/* Which state of Lua a block belongs to, and how often that had been collected; see state_table.h. Kept once an interpreter
 * is there whose collector is known, and while there is an array of blocks. */

/* Of the places of this guest in a recorder; those before them are the interpreters', see modules.c. */
#define HL_LUA_PLACE_OF_STATES	(HL_GUEST_PLACES - 2)
#define HL_LUA_PLACE_OF_REFUSAL (HL_GUEST_PLACES - 1) /* not NULL: there was no memory for states */

/*
 * What the block is to be stamped with that the calling thread allocates while ${state} runs on it, or, if that is 0, one that is
 * not known. 0: with nothing. A state that is new is called by the script of ${outermost}, the function in Lua that has
 * begun first; NULL: it has no name.
 */
uint32_t hl_lua_states_look(struct hl_recorder *recorder, const struct hl_lua *lua, uint64_t state,
			    const struct hl_script_frame *outermost, struct hl_guest_stamp *stamp);

/* See hl_guest.stamp. */
void hl_lua_states_stamp(struct hl_thread *thread, const void *block);

/* Whether hl_lua_states_look() would give ${state} a slot. */
bool hl_lua_states_is_new(struct hl_recorder *recorder, const struct hl_lua *lua, uint64_t state);
