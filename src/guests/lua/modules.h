/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds interpreters of Lua among the modules of the process, and makes them providers of script
 * frames: a module is looked at when it is entered, and probed at the next allocation, outside of all
 * locks.
 */
#pragma once

#include "base/compiler.h"
#include "recorder/exports.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct hl_recorder;
struct hl_region_header;
struct hl_unwind;
struct hl_walk;

#define HL_LUA_MODULES_MAX 2u /* of one process; further ones have no frames */

/* A module at [${start}, ${end}) has been entered, the program or a library. True: it must be probed.
 * ${header} is told of one that cannot be read. Under a lock. */
bool hl_lua_modules_note(struct hl_region_header *header, const struct hl_exports *exports,
			 uint64_t start, uint64_t end, bool is_program);

/* What ${tag}, which an interpreter of 5.2 or later gives its allocator as the old size of a new block, says that it
 * is: "table"; NULL where it says nothing. The versions of all interpreters of a process are taken to count alike. */
const char *hl_lua_modules_type(uint64_t tag);

/*
 * Most allocators of interpreters, luaL_newstate()'s among them, call realloc() with that old size still in the register of a third
 * argument. What realloc(), called from ${pc} with ${third} there, is for; NULL: no interpreter says it. ${is_new}: of no block
 * that grows, which is part of an object. Believed until an interpreter has ${third} where none can have it. To be called where
 * hl_lua_tells_types.
 */
const char *hl_lua_modules_told_type(uint64_t pc, bool is_new, uint64_t third);
extern HL_HIDDEN _Atomic bool hl_lua_tells_types;

/* As hl_find_generated_fn: traces of LuaJIT. */
uint64_t hl_lua_modules_find_trace(struct hl_unwind *unwind, struct hl_walk *walk, uint64_t sp);

/* Probes what has been noted. On a thread that is recording, without locks. */
void hl_lua_modules_probe(struct hl_recorder *recorder);
