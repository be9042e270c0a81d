/* SPDX-License-Identifier: BSD-2-Clause */
/* Which state of Lua a block belongs to, and how often that had been collected; see state_table.h. Kept once an interpreter
 * is there whose collector is known, and while there is an array of blocks. */
#pragma once

#include "guests/lua/lua.h"
#include "recorder/recorder.h"

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
