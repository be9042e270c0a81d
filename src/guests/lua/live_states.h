/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * States of Lua in a process that is recorded: how often each has been collected, and which live blocks belong to
 * it, by the stamps of the recorder (state_table.h).
 */
#pragma once

#include "base/error.h"
#include "heap/owners/owners.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_block_owners;

struct hl_lua_state {
	uint64_t global;
	const char *name;	/* the script that ran when it was first seen; "" */
	bool is_open;		/* else it has been closed, as far as one can tell */
	bool has_generations;	/* it is in generational mode: only major collections count */
	uint32_t collections;	/* that have ended */
	uint64_t counted_bytes; /* in use, as it counts itself: collectgarbage "count" */
};

struct hl_lua_states_now;

/* Reads them out of the process of ${owners}, which stay the caller's. 0; -ENOENT when its recorder has seen none; -ENOMEM; or what
 * reading failed with. */
int hl_lua_states_new(struct hl_block_owners *owners, struct hl_lua_states_now **ret_states);

size_t hl_lua_states_count(const struct hl_lua_states_now *states);
/* How many the recorder keeps, where it has seen more: blocks of the others are nobody's. Else 0. */
uint32_t hl_lua_states_max(const struct hl_lua_states_now *states);
const struct hl_lua_state *hl_lua_states_get(const struct hl_lua_states_now *states, size_t index);

/* Whose a block is. */
enum hl_lua_owner {
	HL_LUA_NOBODYS, /* nothing in Lua ran when it was allocated, or it is not known which state */
	HL_LUA_CALLEES, /* C has it that a script called */
	HL_LUA_OWN,	/* Lua's own */
};

/* The block at ${address} of the stack ${number}: *${ret_index} of its state, and how many of its collections it has
 * outlived. Fast when called in rising order of address. */
enum hl_lua_owner hl_lua_states_find(struct hl_lua_states_now *states, uint64_t number,
				     uint64_t address, size_t *ret_index, uint32_t *ret_age);

void hl_lua_states_free(struct hl_lua_states_now *states); /* NULL is fine */
