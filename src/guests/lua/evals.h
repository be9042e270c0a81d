/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The eval frames of a native stack, and where each has the running state and the program counter; see lua.h. Found by a walk
 * that recovers callee-saved registers, and then remembered by the stack's node.
 */
#pragma once

#include "guests/lua/lua.h"

#define HL_LUA_EVALS_MAX  63u /* of a stack; outer ones are left out */
#define HL_LUA_SPACE_END  (UINT64_C(1) << 47)
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
