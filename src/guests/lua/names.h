/* SPDX-License-Identifier: BSD-2-Clause */
/* What functions and chunks of Lua are called, whatever interpreter runs them. */
#pragma once

#include "guests/lua/layout.h"

/* Not terminated. One that is put together stays valid for the next few of the process. */
struct hl_lua_text {
	const char *bytes;
	uint32_t count;
};

/* The bytes of a string, which stay where it is. */
struct hl_lua_text hl_lua_string(const struct hl_lua_layout *layout, uint64_t string);

/* Of a chunk that was loaded as ${source}: a path, what its host calls it, or its first line. First lines beyond the first 4,096
 * different ones are all [string "..."]. */
struct hl_lua_text hl_lua_source_name(struct hl_lua_text source);

/* A function has no name of its own; it is known by where it begins. 0: it is not a function, but a chunk. */
struct hl_lua_text hl_lua_function_name(struct hl_lua_text source, uint32_t first_line);

/* "trace 7": ${what}, a constant of a few letters, and ${number}. */
struct hl_lua_text hl_lua_numbered_name(const char *what, uint32_t number);
