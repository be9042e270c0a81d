/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the eval frames of a native stack; see lua.h. */
#include "guests/lua/lua.h"

#include "unwind/saved.h"

#include <assert.h>

#define STATE_BYTES 128u /* as far as one is read, and more */

/* Of hl_lua.callers. */
#define CALLER_SHIFT   48
#define CALLER_ADDRESS ((UINT64_C(1) << CALLER_SHIFT) - 1)
#define CALLER_KEPT(k) \
	(UINT64_C(1) << (CALLER_SHIFT + HL_SAVED_COUNT - 1 - (k))) /* the word with that register */
#define CALLER_WORDS (((UINT64_C(1) << HL_SAVED_COUNT) - 1) << CALLER_SHIFT)

static_assert(CALLER_SHIFT + HL_SAVED_COUNT <= 64, "a bit for each");

struct search {
	struct hl_lua *lua;
	const struct hl_registers *start;
	const uint64_t *start_saved;
	struct hl_lua_eval *evals;
	uint32_t count;
};

static int32_t words_from(const struct search *search, uint64_t address)
{
	return (int32_t)((int64_t)(address - search->start->sp) / 8);
}

/* The value of ${place}; 0: unknown. */
HL_READS_STACK static uint64_t value_in(const struct hl_saved_frame *frame,
					struct hl_lua_place place)
{
	if (place.kind == HL_LUA_IN_WORD) {
		uint64_t at = frame->cfa - 8 * (uint64_t)place.index;
		return at >= frame->sp && at < frame->cfa ? *(const uint64_t *)at : 0;
	}
	const uint64_t *at = place.kind == HL_LUA_IN_REGISTER ? frame->at[place.index] : NULL;
	return at ? *at : 0;
}

static int32_t place_in(const struct search *search, const struct hl_saved_frame *frame,
			struct hl_lua_place place)
{
	if (place.kind == HL_LUA_IN_WORD)
		return frame->cfa ? words_from(search, frame->cfa - 8 * (uint64_t)place.index)
				  : HL_LUA_UNKNOWN;
	const uint64_t *at = place.kind == HL_LUA_IN_REGISTER ? frame->at[place.index] : NULL;
	if (!at)
		return HL_LUA_UNKNOWN;
	uint64_t number = (uint64_t)(at - search->start_saved);
	return number < HL_SAVED_COUNT ? HL_LUA_REGISTER(number) : words_from(search, (uint64_t)at);
}

/* The caller's entry; NULL when there is no room for it. */
static _Atomic uint64_t *find_caller(struct hl_lua *lua, uint64_t caller)
{
	for (uint32_t i = 0; i < HL_LUA_CALLERS_MAX; i++) {
		uint64_t known = 0, new = caller | CALLER_WORDS;
		if (atomic_compare_exchange_strong(&lua->callers[i], &known, new) ||
		    (known & CALLER_ADDRESS) == caller)
			return &lua->callers[i];
	}
	return NULL;
}

/* Where the frame keeps that register of its caller; NULL: nowhere. */
static const uint64_t *kept_at(const struct hl_saved_frame *frame, unsigned k)
{
	int64_t words = frame->kept ? frame->kept[k] : 0;

	return words < 0 && (frame->cfa - frame->sp) / 8 >= (uint64_t)-words
		       ? (const uint64_t *)frame->cfa + words
		       : NULL;
}

/* The words of ${mask}, bits from CALLER_SHIFT on, that have ${value}. */
HL_READS_STACK static uint64_t words_with(const struct hl_saved_frame *frame, uint64_t mask,
					  uint64_t value)
{
	for (unsigned k = 0; k < HL_SAVED_COUNT; k++) {
		const uint64_t *word = kept_at(frame, k);
		if (!word || *word != value)
			mask &= ~CALLER_KEPT(k);
	}
	return mask & CALLER_WORDS;
}

/* The word of the first of ${words}, which is not 0. */
static const uint64_t *first_of(const struct hl_saved_frame *frame, uint64_t words)
{
	return kept_at(frame, HL_SAVED_COUNT - 1 + CALLER_SHIFT - (unsigned)__builtin_ctzll(words));
}

/*
 * The word that has the state of an eval frame: by a register that a word agrees with, else by what
 * is known of the caller. NULL: neither.
 */
HL_READS_STACK static const uint64_t *word_of_state(struct hl_lua *lua,
						    const struct hl_saved_frame *frame)
{
	if (!frame->kept || !frame->returns_at)
		return NULL;
	_Atomic uint64_t *caller =
		find_caller(lua, hl_machine_code_address(*(const uint64_t *)frame->returns_at));
	uint64_t known = caller ? atomic_load_explicit(caller, memory_order_relaxed) : 0;
	for (uint32_t i = 0; i < HL_LUA_PLACES; i++) {
		uint64_t value = value_in(frame, lua->state[i]);
		uint64_t words = value ? words_with(frame, CALLER_WORDS, value) : 0;
		if (!words || (caller && !(known & words)))
			continue;
		if (caller)
			atomic_fetch_and_explicit(caller, words | CALLER_ADDRESS,
						  memory_order_relaxed);
		return first_of(frame, caller ? known & words : words);
	}
	known &= CALLER_WORDS;
	if (!known || known == CALLER_WORDS)
		return NULL;
	const uint64_t *word = first_of(frame, known);
	return word && words_with(frame, known, *word) == known ? word : NULL;
}

/* Whether a state lies there: a word that a caller keeps may agree with a register by chance, and the
 * state will be read. */
static bool is_state(uint64_t state)
{
	return state < HL_LUA_SPACE_END && hl_memory_object_is_readable(state, STATE_BYTES) &&
	       (hl_lua_byte(state, 8) & 0x3f) == HL_LUA_TAG_THREAD;
}

/* Of the frames of lua_resume() only an innermost one is of a coroutine that runs no function in Lua. */
static void keep_resume(struct search *search, const struct hl_saved_frame *frame)
{
	int32_t state_at = place_in(search, frame, search->lua->resume_state);

	if (search->count || state_at == HL_LUA_UNKNOWN || !frame->called_at)
		return;
	search->evals[search->count++] = (struct hl_lua_eval){
		.return_address = frame->pc + 1,
		.return_at = words_from(search, frame->called_at),
		.state_at = state_at,
		.is_resume = true,
	};
}

/* Whether the frame alone has the pc of the instruction that calls from ${return_address}. */
static bool has_live_pc(const struct hl_lua *lua, uint64_t return_address)
{
	if (lua->layout.version < HL_LUA_54)
		return true;
	for (uint32_t i = 0; i < lua->site_count; i++)
		if (lua->sites[i] == return_address)
			return true;
	return false;
}

HL_READS_STACK static bool keep_eval(void *context, const struct hl_saved_frame *frame)
{
	struct search *search = context;
	struct hl_lua *lua = search->lua;

	if (frame->pc - lua->resume_start < lua->resume_end - lua->resume_start)
		keep_resume(search, frame);
	if (frame->pc - lua->eval_start >= lua->eval_end - lua->eval_start)
		return true;
	const uint64_t *word = frame->cfa && frame->called_at ? word_of_state(lua, frame) : NULL;
	if (!word || !is_state(*word)) {
		atomic_fetch_add_explicit(&lua->refused, 1, memory_order_relaxed);
		return false;
	}
	struct hl_lua_eval eval = {
		.return_address = frame->pc + 1,
		.return_at = words_from(search, frame->called_at),
		.state_at = words_from(search, (uint64_t)word),
	};
	bool is_live = has_live_pc(lua, frame->pc + 1);
	for (uint32_t i = 0; i < HL_LUA_PLACES; i++)
		eval.pc_at[i] = is_live ? place_in(search, frame, lua->pc[i]) : HL_LUA_UNKNOWN;
	search->evals[search->count++] = eval;
	return search->count < HL_LUA_EVALS_MAX;
}

static_assert(HL_LUA_EVALS_MAX <= HL_LUA_COUNT_MASK && HL_LUA_EVALS < HL_LUA_FIRST_MASK,
	      "an entry holds them");

/* Remembers what was found for ${node}, if there is room. What a node replaces leaves its frames
 * behind, so replacing ends when half of them are used. */
static void keep_search(struct hl_lua_cache *cache, const struct search *search, uint32_t node)
{
	uint32_t first = atomic_load_explicit(&cache->eval_count, memory_order_relaxed);

	if (first > HL_LUA_EVALS / 2 &&
	    atomic_load_explicit(&cache->nodes[node % HL_LUA_NODES], memory_order_relaxed))
		return;
	do {
		if (HL_LUA_EVALS - first < search->count)
			return;
	} while (!atomic_compare_exchange_weak_explicit(&cache->eval_count, &first,
							first + search->count, memory_order_relaxed,
							memory_order_relaxed));
	for (uint32_t i = 0; i < search->count; i++)
		cache->evals[first + i] = search->evals[i];
	/* Release: who reads the entry sees the frames. */
	atomic_store_explicit(&cache->nodes[node % HL_LUA_NODES],
			      (uint64_t)node << HL_LUA_NODE_SHIFT |
				      search->count << HL_LUA_COUNT_SHIFT | (first + 1),
			      memory_order_release);
}

uint32_t hl_lua_search_evals(struct hl_lua *lua, const struct hl_lua_reader *reader,
			     const struct hl_script_caller *caller,
			     struct hl_lua_eval evals[HL_LUA_EVALS_MAX])
{
	uint64_t saved[HL_SAVED_COUNT] = {0};
	struct search search = {
		.lua = lua,
		.start = caller->registers,
		.start_saved = saved,
		.evals = evals,
	};

	for (unsigned k = 0; caller->saved && k < HL_SAVED_FRAME; k++)
		saved[k] = caller->saved[k];
	saved[HL_SAVED_FRAME] = caller->registers->bp;
	hl_saved_walk(reader->unwind, reader->walk, caller->registers, saved, keep_eval, &search);
	if (reader->cache)
		keep_search(reader->cache, &search, caller->native_node);
	return search.count;
}
