/* SPDX-License-Identifier: BSD-2-Clause */
/* Which state of Lua a block belongs to, and how often that had been collected; see region/lua_states.h. Kept once an interpreter
 * is there whose collector is known, and while there is an array of blocks. */
#pragma once

#include "recorder/recorder.h"
#include "script/lua/lua.h"

/*
 * What the block is to be stamped with that the calling thread allocates while ${state} runs on it, or, if that is 0, one that is
 * not known. 0: with nothing. A state that is new is called by the script of ${outermost}, the function in Lua that has
 * begun first; NULL: it has no name.
 */
uint32_t hl_lua_states_look(struct hl_recorder *recorder, const struct hl_lua *lua, uint64_t state,
			    const struct hl_script_frame *outermost, struct hl_lua_stamp *stamp);

/* The same where ${state} is of the one that ran at the thread's last event, and has not been collected since; 0: it is not. */
static inline uint32_t hl_lua_states_same(const struct hl_lua *lua, uint64_t state,
					  const struct hl_lua_stamp *stamp)
{
	const struct hl_lua_state_slot *slot = stamp->slot;

	if (HL_UNLIKELY(!slot || !state))
		return 0;
	uint64_t global = hl_lua_word(state, lua->layout.state_global);
	uint8_t white = *(const uint8_t *)(global + lua->collector.white_at);
	if (HL_UNLIKELY(atomic_load_explicit(&slot->global, memory_order_relaxed) != global ||
			atomic_load_explicit(&slot->white, memory_order_relaxed) != white))
		return 0;
	return hl_lua_stamp(stamp->number,
			    atomic_load_explicit(&slot->collections, memory_order_relaxed));
}

/* Stamps ${block}, which the thread has just allocated, with what its capture has left there. */
void hl_lua_states_stamp(struct hl_thread *thread, const void *block);
