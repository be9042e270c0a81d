/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts collections of states of Lua, and stamps blocks; see lua.h. */
#include "guests/lua/lua.h"

#include "recorder/libc.h"
#include "recorder/private_map.h"
#include "recorder/spin.h"

#include <string.h>

static uint32_t place_of(uint64_t global)
{
	return (uint32_t)(global * UINT64_C(0x9e3779b97f4a7c15) >> 50);
}

static_assert(HL_LUA_STATES_INDEX == 1u << (64 - 50), "place_of()");

static struct hl_lua_states *known_states(struct hl_recorder *recorder)
{
	return atomic_load_explicit(&recorder->guest_places[HL_GUEST_LUA][HL_LUA_PLACE_OF_STATES],
				    memory_order_acquire);
}

void hl_lua_states_stamp(struct hl_thread *thread, const void *block)
{
	struct hl_lua_states *states = known_states(hl_recorder);
	uintptr_t at = (uintptr_t)block;

	uint32_t value = thread->stamp.value;

	thread->stamp.value = 0;
	/* Others have no entry of their own, and no tool asks for one. */
	if (HL_UNLIKELY(at & 15 || at >> HL_BLOCK_ADDRESS_BITS))
		return;
	hl_block_entry *entry = hl_block_array_make(&states->stamps, hl_block_stamp_plane(at), at);
	if (HL_LIKELY(entry))
		atomic_store_explicit(entry, value, memory_order_relaxed);
}

/* NULL where there is no memory, or little, as for the array of blocks. */
static struct hl_lua_states *states_of(struct hl_recorder *recorder)
{
	_Atomic(void *) *places = recorder->guest_places[HL_GUEST_LUA];
	void *states = known_states(recorder);

	if (HL_LIKELY(states) || recorder->hash_only ||
	    atomic_load_explicit(&places[HL_LUA_PLACE_OF_REFUSAL], memory_order_relaxed))
		return states;
	void *made = hl_private_map_new(sizeof(struct hl_lua_states));
	states = made ? hl_guests_stamp_by(recorder, HL_GUEST_LUA, made) : NULL;
	if (made && states != made)
		hl_private_map_free(made, sizeof(struct hl_lua_states));
	if (states)
		atomic_store(&places[HL_LUA_PLACE_OF_STATES], states);
	else /* not to be tried at each event */
		atomic_store(&places[HL_LUA_PLACE_OF_REFUSAL], (void *)recorder);
	return states;
}

/* ---- slots ---- */

static struct hl_lua_state_slot *find(struct hl_lua_states *states, uint64_t global)
{
	uint16_t number;

	for (uint32_t at = place_of(global);; at = (at + 1) % HL_LUA_STATES_INDEX) {
		/* Acquire: who finds the number sees the slot. */
		number = atomic_load_explicit(&states->index[at], memory_order_acquire);
		if (!number)
			return NULL;
		struct hl_lua_state_slot *slot = &states->slots[number - 1];
		if (atomic_load_explicit(&slot->global, memory_order_relaxed) == global)
			return slot;
	}
}

/* The number of ${collector}, which is added if it is a new one; HL_LUA_COLLECTORS_MAX: there is no room. */
static uint32_t find_collector(struct hl_lua_states *states,
			       const struct hl_lua_collector *collector)
{
	uint32_t count = atomic_load_explicit(&states->collector_count, memory_order_relaxed);

	for (uint32_t i = 0; i < count; i++)
		if (memcmp(&states->collectors[i], collector, sizeof(*collector)) == 0)
			return i;
	if (count < HL_LUA_COLLECTORS_MAX) {
		states->collectors[count] = *collector;
		atomic_store_explicit(&states->collector_count, count + 1, memory_order_release);
	}
	return count;
}

static uint8_t white_of(const struct hl_lua_collector *collector, uint64_t global)
{
	return *(const uint8_t *)(global + collector->white_at);
}

static struct hl_lua_moment moment_of(const struct hl_lua_collector *collector, uint64_t global)
{
	const uint8_t *white = (const uint8_t *)(global + collector->white_at);

	return (struct hl_lua_moment){white[0], white[1], white[2],
				      *(const uint64_t *)(global + collector->base_at)};
}

/* Whether ${slot}, which was found by the state's address, is this state's and not that of one before it. An interpreter of another
 * version may have had a state there. */
static bool is_of(const struct hl_lua_states *states, const struct hl_lua_state_slot *slot,
		  const struct hl_lua_collector *collector)
{
	return !hl_lua_state_is_closed(slot) &&
	       memcmp(&states->collectors[slot->collector], collector, sizeof(*collector)) == 0;
}

/* Takes ${slot} out of the index, and moves later members of its run back, as in block_hash.c. Who looks meanwhile may not find a
 * slot that is there, and looks again with the lock. */
static void close_locked(struct hl_lua_states *states, struct hl_lua_state_slot *slot)
{
	const uint32_t mask = HL_LUA_STATES_INDEX - 1;
	uint32_t hole = place_of(atomic_load(&slot->global)), number;

	while (atomic_load(&states->index[hole]) != (uint16_t)(slot - states->slots + 1))
		hole = (hole + 1) & mask;
	for (uint32_t at = hole; (number = atomic_load(&states->index[at = (at + 1) & mask]));) {
		uint32_t home = place_of(atomic_load(&states->slots[number - 1].global));
		if (((at - home) & mask) < ((at - hole) & mask))
			continue;
		atomic_store(&states->index[hole], (uint16_t)number);
		hole = at;
	}
	atomic_store(&states->index[hole], 0);
	atomic_store(&slot->global, 0);
}

/* A slot that is not in the index: one that was never taken, or that of a closed state; or NULL. */
static struct hl_lua_state_slot *take_slot_locked(struct hl_lua_states *states)
{
	uint32_t count = atomic_load_explicit(&states->count, memory_order_relaxed);

	if (count < HL_LUA_STATES_MAX) {
		atomic_store_explicit(&states->count, count + 1, memory_order_release);
		return &states->slots[count];
	}
	if (states->skip) {
		states->skip--;
		return NULL;
	}
	for (uint32_t tries = 0; tries < HL_LUA_STATES_MAX; tries++) {
		struct hl_lua_state_slot *slot = &states->slots[states->next];
		states->next = (states->next + 1) % HL_LUA_STATES_MAX;
		if (!atomic_load(&slot->global))
			return slot;
		if (hl_lua_state_is_closed(slot)) {
			close_locked(states, slot);
			return slot;
		}
	}
	states->skip = HL_LUA_STATES_MAX;
	return NULL;
}

/* Marks the block of a state, so that one sees when it has been freed. */
static void mark_block(struct hl_recorder *recorder, struct hl_lua_states *states,
		       struct hl_lua_state_slot *slot, const void *block)
{
	hl_block_entry *entry = hl_block_entry_find(&recorder->blocks, block);

	slot->is_recorded = hl_block_node(&recorder->blocks, block);
	slot->mark =
		entry ? hl_block_mark(&recorder->blocks, block, entry, hl_libc_usable_size(block))
		      : 0;
	/* Where it is not in the array, what comes there later is. */
	if (!entry)
		entry = hl_block_entry_make(&recorder->blocks, block);
	if (entry && atomic_load_explicit(entry, memory_order_relaxed) != slot->mark)
		entry = NULL; /* that of another block in the granule */
	atomic_store(&slot->entry, entry ? entry : &states->no_entry);
}

static struct hl_lua_state_slot *add_locked(struct hl_recorder *recorder,
					    struct hl_lua_states *states,
					    const struct hl_lua_collector *collector,
					    uint64_t global, const struct hl_script_place *place)
{
	struct hl_lua_state_slot *slot = find(states, global);
	uint32_t number = find_collector(states, collector), at = place_of(global);

	if (slot && is_of(states, slot, collector))
		return slot;
	if (slot)
		close_locked(states, slot);
	if (number == HL_LUA_COLLECTORS_MAX || !(slot = take_slot_locked(states)))
		return NULL;
	slot->collector = (uint8_t)number;
	for (uint32_t i = 0; i < HL_LUA_STATE_NAME_MAX; i++)
		slot->name[i] = (char)(i < place->source_bytes ? place->source[i] : '\0');
	/* What it had before was stamped with less. */
	slot->first = atomic_load_explicit(&slot->collections, memory_order_relaxed) + 1;
	atomic_store_explicit(&slot->collections, slot->first, memory_order_relaxed);
	slot->last = moment_of(collector, global);
	atomic_store_explicit(&slot->white, slot->last.white, memory_order_relaxed);
	mark_block(recorder, states, slot, (const void *)(global + (uint64_t)collector->block_at));
	atomic_store_explicit(&slot->global, global, memory_order_release);
	while (atomic_load_explicit(&states->index[at], memory_order_relaxed))
		at = (at + 1) % HL_LUA_STATES_INDEX;
	atomic_store_explicit(&states->index[at], (uint16_t)(slot - states->slots + 1),
			      memory_order_release);
	return slot;
}

static __attribute__((noinline)) struct hl_lua_state_slot *
add(struct hl_recorder *recorder, struct hl_lua_states *states, const struct hl_lua *lua,
    uint64_t global, const struct hl_script_frame *outermost)
{
	const struct hl_lua_collector *collector = &lua->collector;
	struct hl_script_place place = {0};

	if (outermost)
		hl_lua_describe(lua, outermost, &place);
	hl_spin_lock(&states->lock);
	struct hl_lua_state_slot *slot = add_locked(recorder, states, collector, global, &place);
	hl_spin_unlock(&states->lock);
	if (!slot)
		atomic_fetch_add_explicit(&states->refused, 1, memory_order_relaxed);
	return slot;
}

/* ---- collections ---- */

/*
 * A state runs on one thread at a time, which alone writes its slot. Two collections are both missed when nothing was allocated between them below
 * a script: too few are counted, never too many.
 */
static __attribute__((noinline)) void
count(struct hl_lua_state_slot *slot, const struct hl_lua_collector *collector, uint64_t global)
{
	struct hl_lua_moment now = moment_of(collector, global);
	uint32_t collections = atomic_load_explicit(&slot->collections, memory_order_relaxed);

	if (hl_lua_was_collected(collector, &slot->last, &now))
		atomic_store_explicit(&slot->collections, collections + 1, memory_order_relaxed);
	slot->last = now;
	atomic_store_explicit(&slot->white, now.white, memory_order_relaxed);
}

uint32_t hl_lua_states_look(struct hl_recorder *recorder, const struct hl_lua *lua, uint64_t state,
			    const struct hl_script_frame *outermost, struct hl_guest_stamp *stamp)
{
	const struct hl_lua_collector *collector = &lua->collector;
	struct hl_lua_states *states =
		HL_LIKELY(collector->white_at) ? states_of(recorder) : known_states(recorder);

	if (HL_UNLIKELY(!states))
		return 0;
	if (HL_UNLIKELY(!state || !collector->white_at))
		return HL_LUA_STAMP_NONE; /* a block of another state may have lain there */
	uint64_t global = hl_lua_word(state, lua->layout.state_global);
	struct hl_lua_state_slot *slot = find(states, global);
	if (HL_UNLIKELY(!slot || !is_of(states, slot, collector)))
		slot = add(recorder, states, lua, global, outermost);
	if (HL_UNLIKELY(!slot))
		return HL_LUA_STAMP_NONE;
	if (HL_UNLIKELY(white_of(collector, global) !=
			atomic_load_explicit(&slot->white, memory_order_relaxed)))
		count(slot, collector, global);
	stamp->slot = slot;
	stamp->number = (uint32_t)(slot - states->slots);
	return hl_lua_stamp(stamp->number,
			    atomic_load_explicit(&slot->collections, memory_order_relaxed));
}

bool hl_lua_states_is_new(struct hl_recorder *recorder, const struct hl_lua *lua, uint64_t state)
{
	struct hl_lua_states *states = known_states(recorder);

	if (!states || !state || !lua->collector.white_at || atomic_load(&states->skip))
		return false;
	const struct hl_lua_state_slot *slot =
		find(states, hl_lua_word(state, lua->layout.state_global));
	return !slot || !is_of(states, slot, &lua->collector);
}
