/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the structures of an interpreter of Lua have what a walk of its frames reads. Offsets in
 * bytes, for 64-bit machines, as the C compiler lays out lobject.h, lstate.h of each version.
 * Nothing is believed before a probe has proved it, see probe.c.
 *
 *	state	 lua_State: a coroutine, or the main one
 *	call	 CallInfo: one running function of a state
 *	proto	 Proto: what a function was compiled to
 */
#pragma once

#include "base/compiler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
