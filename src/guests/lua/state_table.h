/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * States of Lua in the target's memory: which there are, how often each has been collected, and which block belongs
 * to which. For the recorder, and for tools that read it from outside while the target runs.
 *
 *	global		what all coroutines of one state share: Lua's global_State
 *	white		the collector has two marks for "not reached", of which one is the current one; they change
 *			places once in each collection, when all that lives has been found
 *	collection	from one such change to the end of the sweep that follows it; a minor one, which looks at
 *			young objects alone, does not count
 *	stamp		of a block: its state, and how many collections that had begun to sweep by then
 */
#pragma once

#include "region/block_format.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Where a global has what; offsets in bytes. One for each interpreter. */
struct hl_lua_collector {
	uint32_t white_at; /* a byte; behind it are the phase and the kind. 0: not known */
	uint8_t sweep_first, sweep_last; /* phases */
	uint8_t minor_kind;		 /* while collections are minor ones; 0: they never are */
	int8_t debt_sign;  /* how the word after the one at ${bytes_at} counts: 0, 1 or -1 */
	uint32_t bytes_at; /* a word: bytes in use */
	uint32_t
		base_at; /* a word that major collections change, and minor ones do not; 0: unknown */
	int32_t main_at;    /* the main coroutine ... */
	uint32_t global_at; /* ... which has the global's address here */
	int32_t block_at;   /* the block that both are in */
};

/* The collector at one moment. */
struct hl_lua_moment {
	uint8_t white, phase, kind;
	uint64_t base;
};

static inline bool hl_lua_is_minor(const struct hl_lua_collector *collector,
				   const struct hl_lua_moment *now)
{
	return collector->minor_kind && now->kind == collector->minor_kind;
}

/*
 * Whether a collection that counts has begun to sweep from ${last} to ${now}. Major ones return to the kind of minor ones as they
 * end; what has become another kind meanwhile may have been a minor one.
 */
static inline bool hl_lua_was_collected(const struct hl_lua_collector *collector,
					const struct hl_lua_moment *last,
					const struct hl_lua_moment *now)
{
	if (now->white == last->white)
		return false;
	return hl_lua_is_minor(collector, now) ? collector->base_at && now->base != last->base
	       : collector->minor_kind	       ? now->kind == last->kind
					       : true;
}

#define HL_LUA_STATES_MAX     8191u
#define HL_LUA_STATES_INDEX   (1u << 14)
#define HL_LUA_COLLECTORS_MAX 4u
#define HL_LUA_STATE_NAME_MAX 47u

struct hl_lua_state_slot {
	_Atomic uint64_t global;      /* 0: the state has been closed, as one has seen */
	_Atomic uint32_t collections; /* that have begun to sweep, as far as seen */
	uint32_t first;		      /* what ${collections} began with */
	/* Of the state's own block in the array of blocks: ${mark} until the state is closed. */
	_Atomic(hl_block_entry *) entry;
	_Atomic uint32_t mark;
	uint8_t collector;	   /* which of them */
	_Atomic uint8_t white;	   /* as last seen, and in ${last} */
	bool is_recorded;	   /* its own block is in the block table until it is closed */
	struct hl_lua_moment last; /* changes with the white */
	char name[HL_LUA_STATE_NAME_MAX + 1]; /* the script that ran when it was first seen */
};

/*
 * Slots are found by global through the index. Each state has one of its own, also if it lies where another one was
 * closed. Once all are taken, those of closed states are taken again; ${collections} goes on from where it was, so that
 * blocks that have outlived the former state are known by their stamps, which are older than ${first}.
 */
struct hl_lua_states {
	_Atomic uint32_t lock;
	_Atomic uint32_t count;	  /* of slots */
	_Atomic uint32_t refused; /* times that there was no room */
	_Atomic uint32_t collector_count;
	hl_block_entry no_entry; /* 0: for states whose block can have none */
	uint32_t next;		 /* slot that may be taken again */
	_Atomic uint32_t skip;	 /* times not to look for one, since none was found */
	struct hl_lua_collector collectors[HL_LUA_COLLECTORS_MAX];
	_Atomic uint16_t index
		[HL_LUA_STATES_INDEX]; /* slot + 1, by the global's hash, then one after the other */
	struct hl_lua_state_slot slots[HL_LUA_STATES_MAX];
	/* Stamps by address. One is true where the block's stack has frames of Lua. */
	struct hl_block_array stamps;
};

/* Slot + 1 << HL_LUA_STAMP_BITS | collections, of which the highest bits are lost. */
#define HL_LUA_STAMP_BITS 19u
#define HL_LUA_STAMP_NONE 1u /* a block below frames of Lua of a state without a slot */

static inline uint32_t hl_lua_stamp(uint32_t slot, uint32_t collections)
{
	return (slot + 1) << HL_LUA_STAMP_BITS | (collections & ((1u << HL_LUA_STAMP_BITS) - 1));
}

/* Whether the state has certainly been closed. For the recorder. */
static inline bool hl_lua_state_is_closed(const struct hl_lua_state_slot *slot)
{
	const hl_block_entry *entry = atomic_load_explicit(&slot->entry, memory_order_relaxed);

	return atomic_load_explicit(entry, memory_order_relaxed) !=
	       atomic_load_explicit(&slot->mark, memory_order_relaxed);
}

/* How many of the ${collections} of its state a block has outlived. */
static inline uint32_t hl_lua_stamp_age(uint32_t stamp, uint32_t collections)
{
	return (collections - stamp) & ((1u << HL_LUA_STAMP_BITS) - 1);
}
