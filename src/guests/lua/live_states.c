/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads states of Lua and the stamps of blocks out of a process; see live_states.h. */
#include "guests/lua/live_states.h"

#include "base/cleanup.h"
#include "base/frame_key.h"
#include "guests/guest.h"
#include "guests/lua/state_table.h"
#include "guests/outside.h"
#include "heap/owners/owner_table.h"
#include "recording/recording.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROVIDER   "lua"
#define DEPTH_MAX  4096u /* nodes of a damaged region may form a ring */
#define TAG_THREAD 8u
#define TAG_MASK   0x3fu
#define AHEAD_MAX  65536 /* more collections than there are while blocks are read */

struct hl_lua_states_now {
	struct hl_block_owners *owners;
	const struct hl_open_region *region;
	uint64_t address; /* of struct hl_lua_states in the process */
	struct hl_lua_state_slot *slots;
	struct hl_lua_state *states;
	size_t count;
	uint32_t refused;
	uint8_t *kinds; /* by stack, enum hl_lua_owner + 1; 0: not looked at yet */
	struct hl_stamp_reader stamps;
};

static bool read_word(const struct hl_lua_states_now *now, uint64_t address, uint64_t *ret_word)
{
	return hl_owners_read_memory(now->region->pid, address, ret_word, sizeof(*ret_word)) == 0;
}

/* ---- states ---- */

/* Whether the state of ${slot} is where it was: nothing says so when it has been closed. Its block is in the table as long, if
 * it was ever there. */
static bool is_open(struct hl_lua_states_now *now, const struct hl_lua_state_slot *slot,
		    const struct hl_lua_collector *collector)
{
	uint64_t main = slot->global + (uint64_t)collector->main_at, global, tag;
	uint32_t entry;

	return slot->global &&
	       hl_owners_read_memory(now->region->pid, (uintptr_t)slot->entry, &entry,
				     sizeof(entry)) == 0 &&
	       entry == slot->mark &&
	       (!slot->is_recorded ||
		hl_block_owners_find(now->owners, slot->global + (uint64_t)collector->block_at,
				     0)) &&
	       read_word(now, main + collector->global_at, &global) && global == slot->global &&
	       read_word(now, main + 8, &tag) && (tag & TAG_MASK) == TAG_THREAD;
}

static bool read_moment(const struct hl_lua_states_now *now, uint64_t global,
			const struct hl_lua_collector *collector, struct hl_lua_moment *ret_moment)
{
	uint8_t bytes[3];

	if (hl_owners_read_memory(now->region->pid, global + collector->white_at, bytes,
				  sizeof(bytes)) < 0 ||
	    !read_word(now, global + collector->base_at, &ret_moment->base))
		return false;
	ret_moment->white = bytes[0];
	ret_moment->phase = bytes[1];
	ret_moment->kind = bytes[2];
	return true;
}

static void read_state(struct hl_lua_states_now *now, const struct hl_lua_collector *collectors,
		       struct hl_lua_state_slot *slot, struct hl_lua_state *ret_state)
{
	const struct hl_lua_collector *collector =
		&collectors[slot->collector % HL_LUA_COLLECTORS_MAX];
	struct hl_lua_moment moment;
	uint64_t bytes[2];

	slot->name[HL_LUA_STATE_NAME_MAX] = '\0';
	*ret_state = (struct hl_lua_state){
		.global = slot->global,
		.name = slot->name,
		.collections = slot->collections,
		.has_generations = hl_lua_is_minor(collector, &slot->last),
	};
	if (!is_open(now, slot, collector) || !read_moment(now, slot->global, collector, &moment) ||
	    hl_owners_read_memory(now->region->pid, slot->global + collector->bytes_at, bytes,
				  sizeof(bytes)) < 0)
		return;
	ret_state->is_open = true;
	ret_state->counted_bytes = bytes[0] + (uint64_t)(int64_t)collector->debt_sign * bytes[1];
	ret_state->has_generations |= hl_lua_is_minor(collector, &moment);
	/* One that nothing has been allocated after is not counted yet; one that still sweeps has not ended. */
	ret_state->collections += hl_lua_was_collected(collector, &slot->last, &moment);
	if (moment.phase >= collector->sweep_first && moment.phase <= collector->sweep_last &&
	    !hl_lua_is_minor(collector, &moment) && ret_state->collections != slot->first)
		ret_state->collections--;
}

static int read_states(struct hl_lua_states_now *now)
{
	struct hl_lua_collector collectors[HL_LUA_COLLECTORS_MAX];
	uint32_t counts[2], count;

	static_assert(offsetof(struct hl_lua_states, refused) ==
			      offsetof(struct hl_lua_states, count) + sizeof(count),
		      "both are read");
	int r = hl_owners_read_memory(now->region->pid,
				      now->address + offsetof(struct hl_lua_states, count), counts,
				      sizeof(counts));
	if (r == 0)
		r = hl_owners_read_memory(now->region->pid,
					  now->address + offsetof(struct hl_lua_states, collectors),
					  collectors, sizeof(collectors));
	if (r < 0)
		return r;
	count = counts[0];
	now->refused = counts[1];
	now->count = count < HL_LUA_STATES_MAX ? count : HL_LUA_STATES_MAX;
	now->slots = calloc(now->count + 1, sizeof(*now->slots));
	now->states = calloc(now->count + 1, sizeof(*now->states));
	now->kinds = calloc(hl_block_owners_count(now->owners), sizeof(*now->kinds));
	if (!now->slots || !now->states || !now->kinds)
		return -ENOMEM;
	r = hl_owners_read_memory(now->region->pid,
				  now->address + offsetof(struct hl_lua_states, slots), now->slots,
				  now->count * sizeof(*now->slots));
	for (size_t i = 0; i < now->count && r == 0; i++)
		read_state(now, collectors, &now->slots[i], &now->states[i]);
	return r;
}

int hl_lua_states_new(struct hl_block_owners *owners, struct hl_lua_states_now **ret_states)
{
	const struct hl_open_region *region = hl_block_owners_region(owners);
	uint64_t address = hl_guest_table_address(region, HL_GUEST_LUA);

	if (!address)
		return -ENOENT;
	struct hl_lua_states_now *now = calloc(1, sizeof(*now));
	if (!now)
		return -ENOMEM;
	now->owners = owners;
	now->region = region;
	now->address = address;
	now->stamps = (struct hl_stamp_reader){
		.pid = region->pid,
		.array = address + offsetof(struct hl_lua_states, stamps),
	};
	int r = read_states(now);
	if (r < 0)
		hl_lua_states_free(now);
	else
		*ret_states = now;
	return r;
}

size_t hl_lua_states_count(const struct hl_lua_states_now *states)
{
	return states->count;
}

uint32_t hl_lua_states_max(const struct hl_lua_states_now *states)
{
	return states->refused ? HL_LUA_STATES_MAX : 0;
}

const struct hl_lua_state *hl_lua_states_get(const struct hl_lua_states_now *states, size_t index)
{
	return &states->states[index];
}

/* ---- blocks ---- */

/* What the code at ${pc} is to an interpreter of Lua. */
static enum hl_frame_part part_of(const struct hl_recording_process *scripts, uint64_t pc)
{
	enum hl_frame_part part = HL_PART_NATIVE;

	for (uint32_t i = 0; i < scripts->provider_count && part == HL_PART_NATIVE; i++)
		if (!strcmp(scripts->providers[i].name, PROVIDER))
			part = hl_frame_part_of_code(&scripts->providers[i], pc);
	return part;
}

/* From the innermost frame outward: if Lua itself asks for memory that stands inward of where it runs a script. */
static enum hl_lua_owner kind_of(const struct hl_lua_states_now *now, uint64_t number)
{
	const struct hl_recording_process *scripts = &now->region->scripts;
	struct hl_frames_outward at = {.node = (uint32_t)number};
	bool runs_script = false;
	uint32_t site;

	for (unsigned i = 0; i < DEPTH_MAX && at.node; i++) {
		struct hl_recording_node node = hl_region_read_node(&now->region->view, at.node);
		if (!hl_frames_step(&at, node.frame, node.parent))
			continue;
		if (hl_frame_key_is_site(node.frame, &site)) {
			if (site && site <= scripts->site_count)
				runs_script |= !strcmp(
					scripts->providers[scripts->sites[site - 1].provider].name,
					PROVIDER);
			continue;
		}
		if (!runs_script)
			continue;
		enum hl_frame_part part = part_of(scripts, node.frame & HL_FRAME_PC_MASK);
		if (part == HL_PART_ALLOCATES)
			return HL_LUA_OWN;
		if (part == HL_PART_EVAL)
			return HL_LUA_CALLEES;
	}
	return runs_script ? HL_LUA_CALLEES : HL_LUA_NOBODYS;
}

/*
 * A state goes on while blocks are read. What was stamped since it was read has outlived none of its collections; nor has
 * what was allocated while the last one swept.
 */
static uint32_t age_of(struct hl_lua_states_now *now, size_t index, uint32_t stamp)
{
	struct hl_lua_state_slot *slot = &now->slots[index];
	uint32_t collections = now->states[index].collections, newest;
	uint32_t age = hl_lua_stamp_age(stamp, collections);
	int32_t ahead = (int32_t)hl_lua_stamp_age(collections, stamp);

	if (ahead >= AHEAD_MAX)
		return age;
	if (ahead > (int32_t)(slot->collections - collections) &&
	    hl_owners_read_memory(now->region->pid,
				  now->address + offsetof(struct hl_lua_states, slots) +
					  index * sizeof(*slot) +
					  offsetof(struct hl_lua_state_slot, collections),
				  &newest, sizeof(newest)) == 0)
		slot->collections = newest;
	return ahead <= (int32_t)(slot->collections - collections) ? 0 : age;
}

enum hl_lua_owner hl_lua_states_find(struct hl_lua_states_now *now, uint64_t number,
				     uint64_t address, size_t *ret_index, uint32_t *ret_age)
{
	uint8_t *kind = &now->kinds[number];

	if (!*kind)
		*kind = (uint8_t)(kind_of(now, number) + 1);
	enum hl_lua_owner owner = (enum hl_lua_owner)(*kind - 1);
	if (owner == HL_LUA_NOBODYS)
		return HL_LUA_NOBODYS;
	uint32_t stamp = hl_stamp_read(&now->stamps, address), slot = stamp >> HL_LUA_STAMP_BITS;
	if (!slot || slot > now->count)
		return HL_LUA_NOBODYS;
	uint32_t age = age_of(now, slot - 1, stamp);
	if (age > now->states[slot - 1].collections - now->slots[slot - 1].first)
		return HL_LUA_NOBODYS; /* it has outlived a state that had this slot before */
	*ret_index = slot - 1;
	*ret_age = age;
	return owner;
}

void hl_lua_states_free(struct hl_lua_states_now *now)
{
	if (!now)
		return;
	free(now->slots);
	free(now->states);
	free(now->kinds);
	free(now);
}

/* ---- ages ---- */

#define GENERATIONS (1u << 31) /* in an age */

struct aging {
	struct hl_inuse_labels *ages;
	struct hl_lua_states_now *states;
	uint64_t count;		     /* of stacks */
	struct hl_owner_counts sums; /* by stack << 32 | age */
};

static int add(void *context, const struct hl_owned_block *block)
{
	struct aging *aging = context;
	uint32_t age;
	size_t index;

	if (block->number >= aging->count ||
	    hl_lua_states_find(aging->states, block->number, block->address, &index, &age) !=
		    HL_LUA_OWN)
		return 0;
	age = age < HL_AGE_MAX ? age : HL_AGE_MAX;
	if (hl_lua_states_get(aging->states, index)->has_generations)
		age |= GENERATIONS;
	return hl_owner_counts_add(&aging->sums, block->number << 32 | age, block->requested, 1);
}

static void name_age(char *text, size_t size, uint32_t age, const void *context)
{
	(void)context;
	snprintf(text, size, "%u%s", age & ~GENERATIONS,
		 age & GENERATIONS ? HL_AGE_GENERATIONS : "");
}

static int read_ages(pid_t pid, struct aging *aging, struct hl_error *err)
{
	struct hl_inuse_labels *ages = aging->ages;

	int r = hl_lua_states_new(ages->owners, &aging->states);
	if (r == -ENOENT)
		hl_error_set(err, r, "no state of Lua was seen in process %d", (int)pid);
	if (r < 0)
		return r;
	aging->count = hl_block_owners_count(ages->owners);
	r = hl_block_owners_each(ages->owners, add, aging);
	return r == 0 ? hl_inuse_labels_add_sums(ages, &aging->sums, name_age, NULL) : r;
}

/*
 * How many collections of their state Lua's own live blocks have outlived, as labels of HL_AGE_PROVIDER, up to
 * HL_AGE_MAX. As of the types of Python, -ENOENT where the recorder has seen no state.
 */
static int ages_read(pid_t pid, struct hl_block_owners *owners, struct hl_inuse_labels **ret_ages,
		     struct hl_error *err)
{
	struct hl_inuse_labels *ages = hl_inuse_labels_new(HL_AGE_PROVIDER, owners);
	struct aging aging = {.ages = ages, .sums.shape = {.start = 1, .width = 1}};
	struct hl_error why = {0};

	int r = ages ? read_ages(pid, &aging, &why) : -ENOMEM;
	hl_owner_counts_release(&aging.sums);
	hl_lua_states_free(aging.states);
	if (r < 0) {
		hl_inuse_labels_free(ages);
		return hl_error_set(err, r, "%s", why.text[0] ? why.text : strerror(-r));
	}
	*ret_ages = ages;
	return 0;
}

const struct hl_guest_outside hl_guest_outside_lua = {
	.labels[HL_GUEST_AGES] = {"what collections Lua's blocks have outlived", ages_read},
};
