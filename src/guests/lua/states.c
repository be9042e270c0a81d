/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Learns by a private state what is not needed for frames.
 *
 * How a coroutine that runs a C function is found: no frame of the interpreter's main function has its
 * state, but lua_resume() does, in a register or word of its own frame. A few coroutines tell which, and
 * where in its block a coroutine begins.
 *
 * Where the collector keeps its white (state_table.h): a few collections tell. It is the one byte
 * that alternates between two bits side by side, before the phase, which is a pause each time.
 *
 * Whether it tells its allocator what a new block is for, and where it keeps that allocator.
 */
#include "guests/lua/lua.h"

#include "unwind/here.h"
#include "unwind/saved.h"

#include <string.h>

#define MEMORY_BYTES ((size_t)1 << 19)
#define ROUNDS	     4u
#define WORDS_MAX    32u /* of the frame of lua_resume() */
#define RECENT	     16u
#define OFFSET_MAX   64u
#define GLOBAL_BYTES 512u /* as far as the white is looked for */

/* Of lua_gc(). */
enum { COLLECT = 2, COUNT_KIB = 3, COUNT_BYTES = 4 };

typedef void lua_state;

/* Of the frame of lua_resume(): bit k for register k, bit HL_SAVED_COUNT + w for word w. */
#define WORD_BIT(w) (UINT64_C(1) << (HL_SAVED_COUNT + (w)))

static struct trial {
	struct hl_lua *lua;
	const struct hl_lua_api *api;
	const struct hl_lua_reader *reader;
	uint8_t *memory;
	size_t used;
	uint64_t recent
		[RECENT]; /* blocks; a collection may allocate, too, when a coroutine is made */
	uint32_t blocks;
	uint64_t first;	    /* block */
	uint64_t coroutine; /* that runs now */
	uint64_t places;    /* that had the running one each time */
	uint32_t seen;
} * running; /* one at a time, as C functions of Lua have no context */

static void *allocate(void *context, void *block, size_t old_bytes, size_t bytes)
{
	struct trial *trial = context;
	size_t rounded = (bytes + 15) & ~(size_t)15;

	if (!bytes || rounded > MEMORY_BYTES - trial->used)
		return NULL;
	void *moved = trial->memory + trial->used;
	trial->used += rounded;
	trial->recent[trial->blocks++ % RECENT] = (uint64_t)moved;
	if (!trial->first)
		trial->first = (uint64_t)moved;
	if (block)
		memcpy(moved, block, old_bytes < bytes ? old_bytes : bytes);
	return moved;
}

HL_READS_STACK static bool look(void *context, const struct hl_saved_frame *frame)
{
	struct trial *trial = context;
	uint64_t resume = trial->api->resume, places = 0;

	if (resume - frame->function_start >= frame->function_end - frame->function_start)
		return true;
	trial->lua->resume_start = frame->function_start;
	trial->lua->resume_end = frame->function_end;
	for (unsigned k = 0; k < HL_SAVED_COUNT; k++)
		if (frame->at[k] && *frame->at[k] == trial->coroutine)
			places |= UINT64_C(1) << k;
	for (unsigned w = 1;
	     frame->cfa && w <= WORDS_MAX && frame->cfa - 8 * (uint64_t)w >= frame->sp; w++)
		if (((const uint64_t *)frame->cfa)[-(int)w] == trial->coroutine)
			places |= WORD_BIT(w);
	trial->places &= places;
	trial->seen++;
	return false;
}

/* What the coroutines run. */
static int in_coroutine(lua_state *state)
{
	HL_LUA_CALLER_HERE(running->reader, registers, saved);
	uint64_t all[HL_SAVED_COUNT];

	(void)state;
	if (!saved)
		return 0;
	memcpy(all, saved, HL_SAVED_FRAME * sizeof(*saved));
	all[HL_SAVED_FRAME] = registers.bp;
	hl_saved_walk(running->reader->unwind, running->reader->walk, &registers, all, look,
		      running);
	return 0;
}

/* Where the recent block begins that has ${address}. */
static uint64_t block_at(const struct trial *trial, uint64_t address)
{
	uint64_t block = 0;

	for (uint32_t i = 0; i < RECENT; i++)
		if (trial->recent[i] <= address && trial->recent[i] > block)
			block = trial->recent[i];
	return block;
}

/* 5.1 has no caller among its arguments. Registers that functions keep are cleared: what lua_resume() does not use
 * must not have the coroutine by chance. */
static __attribute__((noinline)) int resume(const struct hl_lua_api *api, lua_state *coroutine,
					    lua_state *from)
{
	int results;

	HL_SAVED_CLEAR();
	if (api->version == HL_LUA_51)
		return ((int (*)(lua_state *, int))api->resume)(coroutine, 0);
	return ((int (*)(lua_state *, lua_state *, int, int *))api->resume)(coroutine, from, 0,
									    &results);
}

/* All are made before the first one runs: a word that is left from the making of one has another. */
static void run_rounds(struct trial *trial, lua_state *state)
{
	const struct hl_lua_api *api = trial->api;

	lua_state *(*newthread)(lua_state *) = (lua_state * (*)(lua_state *)) api->newthread;
	void (*push)(lua_state *, int (*)(lua_state *), int) =
		(void (*)(lua_state *, int (*)(lua_state *), int))api->pushcclosure;
	lua_state *coroutines[ROUNDS];

	for (uint32_t i = 0; i < ROUNDS; i++) {
		coroutines[i] = newthread(state);
		uint64_t offset =
			(uint64_t)coroutines[i] - block_at(trial, (uint64_t)coroutines[i]);
		if (offset > OFFSET_MAX || (i && offset != trial->lua->coroutine_offset))
			return;
		trial->lua->coroutine_offset = (uint32_t)offset;
		push(coroutines[i], in_coroutine, 0);
	}
	for (uint32_t i = 0; i < ROUNDS; i++) {
		trial->coroutine = (uint64_t)coroutines[i];
		if (resume(api, coroutines[i], state) != 0)
			return;
	}
}

static struct hl_lua_place place_of(uint64_t places)
{
	uint32_t first = (uint32_t)__builtin_ctzll(places);

	return first < HL_SAVED_COUNT
		       ? (struct hl_lua_place){HL_LUA_IN_REGISTER, first}
		       : (struct hl_lua_place){HL_LUA_IN_WORD, first - HL_SAVED_COUNT};
}

/* ---- collections ---- */

static const struct collector_facts {
	uint8_t pause, sweep_first, sweep_last, minor_kind;
	uint8_t bytes_at, base_at;
	int8_t debt_sign;
} facts_of[] = {
	[HL_LUA_51] = {0, 2, 3, 0, 120, 0, 0},	[HL_LUA_52] = {5, 2, 4, 2, 16, 0, 1},
	[HL_LUA_53] = {7, 2, 5, 0, 16, 0, 1},	[HL_LUA_54] = {8, 3, 6, 1, 16, 32, 1},
	[HL_LUA_55] = {8, 3, 6, 1, 16, 40, -1},
};

/* Whether byte ${at} is the white after each of the collections that ${bytes} are of. */
static bool is_white(uint8_t bytes[ROUNDS][GLOBAL_BYTES], uint32_t at, uint8_t pause)
{
	uint8_t one = bytes[0][at], other = bytes[1][at];
	uint8_t bits = one ^ other, first = bits & (uint8_t)-bits;

	if (!first || bits != (uint8_t)(first * 3) || !(one & bits) || !(other & bits))
		return false;
	for (uint32_t i = 0; i < ROUNDS; i++)
		if (bytes[i][at] != (i % 2 ? other : one) || bytes[i][at + 1] != pause)
			return false;
	return true;
}

static void learn_collector(struct trial *trial, lua_state *state)
{
	static uint8_t bytes[ROUNDS][GLOBAL_BYTES];
	int (*control)(lua_state *, int, int) = (int (*)(lua_state *, int, int))trial->api->gc;
	const struct hl_lua_layout *layout = &trial->lua->layout;
	const struct collector_facts *facts = &facts_of[layout->version];
	uint64_t global = hl_lua_word((uint64_t)state, layout->state_global);
	uint32_t found = 0, white_at = 0;

	/* The bytes that are looked at may lie beyond the global, but not beyond the memory. */
	if (!control || global - (uint64_t)trial->memory > MEMORY_BYTES - GLOBAL_BYTES)
		return;
	for (uint32_t i = 0; i < ROUNDS; i++) {
		control(state, COLLECT, 0);
		memcpy(bytes[i], (const void *)global, GLOBAL_BYTES);
	}
	for (uint32_t at = 1; at < GLOBAL_BYTES - 1; at++)
		if (is_white(bytes, at, facts->pause)) {
			white_at = at;
			found++;
		}
	int64_t counted =
		(int64_t)control(state, COUNT_KIB, 0) * 1024 + control(state, COUNT_BYTES, 0);
	int64_t debt = (int64_t)hl_lua_word(global, (uint8_t)(facts->bytes_at + 8));
	if (found != 1 ||
	    counted != (int64_t)hl_lua_word(global, facts->bytes_at) + facts->debt_sign * debt)
		return;
	trial->lua->collector = (struct hl_lua_collector){
		.white_at = white_at,
		.sweep_first = facts->sweep_first,
		.sweep_last = facts->sweep_last,
		.minor_kind = facts->minor_kind,
		.debt_sign = facts->debt_sign,
		.bytes_at = facts->bytes_at,
		.base_at = facts->base_at,
		.main_at = (int32_t)((int64_t)state - (int64_t)global),
		.global_at = layout->state_global,
		.block_at = (int32_t)((int64_t)trial->first - (int64_t)global),
	};
}

/* ---- the allocator ---- */

static void learn_allocator(struct hl_lua *lua, lua_state *state)
{
	uint64_t global = hl_lua_word((uint64_t)state, lua->layout.state_global);

	lua->tells_types =
		lua->layout.version > HL_LUA_51 && hl_lua_word(global, 0) == (uint64_t)allocate;
}

/* ---- all ---- */

void hl_lua_learn_states(struct hl_lua *lua, const struct hl_lua_api *api,
			 const struct hl_lua_reader *reader, void *memory)
{
	lua_state *(*newstate)(void *(*)(void *, void *, size_t, size_t), void *, unsigned) =
		(lua_state * (*)(void *(*)(void *, void *, size_t, size_t), void *, unsigned))
			api->newstate;
	struct trial trial = {
		.lua = lua, .api = api, .reader = reader, .memory = memory, .places = UINT64_MAX};

	lua_state *state = newstate(allocate, &trial, 0);
	if (!state)
		return;
	if (api->newthread && api->resume) {
		running = &trial;
		run_rounds(&trial, state);
		running = NULL;
	}
	learn_collector(&trial, state);
	learn_allocator(lua, state);
	((void (*)(lua_state *))api->close)(state);
	if (trial.seen == ROUNDS && trial.places)
		lua->resume_state = place_of(trial.places);
	else
		lua->resume_start = lua->resume_end = 0;
}
