/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Proves that LuaJIT's structures lie as luajit.h says, by a script in a private state.
 *
 * The state has an allocator of its own, so the target's is not called, and no library, without which nothing is
 * compiled. Whatever a walk reads must lie in its memory. At each allocation, and from a function of C that the script calls, in
 * the main state and in a coroutine, all frames must have the lines that lua_getinfo() says.
 */
#include "guests/lua/luajit.h"

#include "unwind/saved.h"

#include <assert.h>
#include <string.h>

#define MEMORY_BYTES	    (1u << 20)
#define DEBUG_BYTES	    512u /* more than lua_Debug */
#define DEBUG_SOURCE	    32u
#define DEBUG_LINE	    40u
#define DEBUG_FIRST_LINE    48u
#define FRAMES_MAX	    16u
#define STACK_SLOTS	    200
#define GLOBAL_BYTES	    4096u /* as far as the running state is looked for */
#define VMSTATE_C	    (~1)
#define VMSTATE_INTERPRETER (~0)

typedef void lua_state;

static const char chunk_name[] = "=heapline";

static const char script[] = "local probe, x = ...\n"
			     "local function inner(a, ...)\n"
			     "  local t = {a, a, a, ...}\n"
			     "  t.k = {x = a, y = {a}}\n"
			     "  probe()\n"
			     "  t[5] = function() return t end\n"
			     "  local s = a .. 'suffix' .. a\n"
			     "  return s\n"
			     "end\n"
			     "local function outer(a)\n"
			     "  local r = inner(a, a, {a})\n"
			     "  local t = {}\n"
			     "  for i = 1, 20 do\n"
			     "    t[i] = {i}\n"
			     "  end\n"
			     "  t.a = 1 t.b = {2,\n"
			     "    {3}}\n"
			     "  t.c = r .. 'c'\n"
			     "  local function g(...) return ... end\n"
			     "  return g(r, {r})\n"
			     "end\n"
			     "local a = outer('abcdefgh')\n"
			     "local b = {outer('a longer text')}\n"
			     "x = b\n";

struct probe {
	struct hl_luajit *lj;
	const struct hl_lua_api *api;
	struct hl_unwind *unwind;
	struct hl_walk *walk;
	uint8_t *memory;
	size_t used;
	lua_state *state, *running;
	bool is_watching;
	uint32_t differences, levels, in_c, in_interpreter;
};

/* ---- functions of the interpreter ---- */

static int call_function(const struct probe *probe, int arguments)
{
	int (*pcall)(lua_state *, int, int, int) =
		(int (*)(lua_state *, int, int, int))probe->api->pcall;

	return pcall(probe->state, arguments, 0, 0);
}

static void push_function(const struct probe *probe, lua_state *state, int (*function)(lua_state *))
{
	void (*push)(lua_state *, int (*)(lua_state *), int) =
		(void (*)(lua_state *, int (*)(lua_state *), int))probe->api->pushcclosure;

	push(state, function, 0);
}

static const char *read_script(lua_state *state, void *context, size_t *ret_bytes)
{
	bool *is_read = context;

	(void)state;
	*ret_bytes = *is_read ? 0 : sizeof(script) - 1;
	*is_read = true;
	return *ret_bytes ? script : NULL;
}

static int load_script(const struct probe *probe, lua_state *state)
{
	typedef const char *reader_fn(lua_state *, void *, size_t *);
	int (*load)(lua_state *, reader_fn *, void *, const char *) =
		(int (*)(lua_state *, reader_fn *, void *, const char *))probe->api->load;
	bool is_read = false;

	return load(state, read_script, &is_read, chunk_name);
}

static bool get_info(const struct probe *probe, int level, uint8_t debug[DEBUG_BYTES])
{
	int (*getstack)(lua_state *, int, void *) =
		(int (*)(lua_state *, int, void *))probe->api->getstack;
	int (*getinfo)(lua_state *, const char *, void *) =
		(int (*)(lua_state *, const char *, void *))probe->api->getinfo;

	return getstack(probe->running, level, debug) == 1 &&
	       getinfo(probe->running, "Sl", debug) == 1;
}

/* ---- whether what will be read is there ---- */

static bool is_own(const struct probe *probe, uint64_t address, uint64_t bytes)
{
	uint64_t offset = address - (uint64_t)probe->memory;

	return offset < MEMORY_BYTES && bytes <= MEMORY_BYTES - offset && !(address & 7);
}

static bool is_sound_state(const struct probe *probe, uint64_t state)
{
	if (!is_own(probe, state, LJ_STATE_BYTES) || lj_byte(state, LJ_TYPE) != LJ_TYPE_THREAD ||
	    !is_own(probe, lj_word(state, LJ_STATE_GLOBAL), GLOBAL_BYTES))
		return false;
	uint64_t stack = lj_word(state, LJ_STATE_STACK), base = lj_word(state, LJ_STATE_BASE);
	uint64_t bytes = (uint64_t)lj_number(state, LJ_STATE_SLOTS) * LJ_SLOT;
	return is_own(probe, stack, bytes) && base > stack && base < stack + bytes;
}

static bool is_sound_proto(struct probe *probe, uint64_t proto)
{
	if (!is_own(probe, proto, LJ_PROTO_BYTES) || lj_byte(proto, LJ_TYPE) != LJ_TYPE_PROTO)
		return false;
	uint64_t count = lj_number(proto, LJ_PROTO_COUNT);
	uint64_t source = lj_word(proto, LJ_PROTO_SOURCE);
	uint64_t table = lj_word(proto, LJ_PROTO_LINE_TABLE);
	return is_own(probe, proto, LJ_PROTO_BYTES + count * LJ_INSTRUCTION) &&
	       is_own(probe, table & ~UINT64_C(7), count) &&
	       is_own(probe, source, LJ_STRING_BYTES + sizeof(chunk_name)) &&
	       memcmp((const void *)(source + LJ_STRING_BYTES), chunk_name, sizeof(chunk_name)) ==
		       0;
}

/* Of the functions on the stack of ${state}: any word there that has the address of one. */
static bool is_sound_stack(struct probe *probe, uint64_t state)
{
	uint64_t first = lj_word(state, LJ_STATE_STACK), at = lj_word(state, LJ_STATE_BASE) - 16;
	uint32_t protos = 0;

	for (; at > first; at -= LJ_SLOT) {
		uint64_t function = lj_word(at, 0) & LJ_POINTER_MASK;
		if (!is_own(probe, function, LJ_FUNCTION_CODE + LJ_SLOT) ||
		    lj_byte(function, LJ_TYPE) != LJ_TYPE_FUNCTION ||
		    lj_byte(function, LJ_FUNCTION_KIND) != LJ_FUNCTION_IS_LUA)
			continue;
		if (!is_sound_proto(probe, lj_proto(function)))
			return false;
		protos++;
	}
	return protos > 0;
}

/* The chunk that has just been loaded is on top of the stack. */
static bool find_string_length(struct probe *probe, uint64_t state)
{
	static const uint8_t places[] = {20, 16};
	struct hl_luajit *lj = probe->lj;

	if (!is_sound_state(probe, state))
		return false;
	uint64_t top = lj_word(state, LJ_STATE_TOP);
	uint64_t function = lj_word(top - LJ_SLOT, 0) & LJ_POINTER_MASK;
	if (!is_own(probe, top - LJ_SLOT, LJ_SLOT) ||
	    !is_own(probe, function, LJ_FUNCTION_CODE + LJ_SLOT) ||
	    !is_sound_proto(probe, lj_proto(function)))
		return false;
	uint64_t source = lj_word(lj_proto(function), LJ_PROTO_SOURCE);
	for (size_t i = 0; i < HL_COUNT_OF(places) && !lj->string_length_at; i++)
		if (lj_number(source, places[i]) == sizeof(chunk_name) - 1)
			lj->string_length_at = places[i];
	return lj->string_length_at;
}

/* ---- comparing ---- */

/* All frames of functions in Lua must be what lua_getinfo() says, in that order. */
static void compare(struct probe *probe, const struct hl_script_caller *caller)
{
	struct hl_script_frame frames[FRAMES_MAX];
	struct hl_script_place place;
	uint8_t debug[DEBUG_BYTES];
	bool truncated = false;
	uint32_t next = 0;

	uint32_t count = hl_luajit_capture(probe->lj, NULL, caller, frames, FRAMES_MAX, &truncated);
	for (int level = 0; get_info(probe, level, debug); level++) {
		uint32_t line = lj_number((uint64_t)debug, DEBUG_LINE);
		if (line == UINT32_MAX)
			continue; /* of C */
		while (next < count && frames[next].function == (uint64_t)&hl_luajit_c)
			next++;
		if (next == count || !hl_luajit_describe(probe->lj, &frames[next], &place) ||
		    place.line != line ||
		    place.first_line != lj_number((uint64_t)debug, DEBUG_FIRST_LINE) ||
		    place.source_bytes != sizeof(chunk_name) - 2 ||
		    memcmp(place.source, chunk_name + 1, place.source_bytes) != 0) {
			probe->differences++;
			return;
		}
		next++;
		probe->levels++;
	}
	while (next < count && frames[next].function == (uint64_t)&hl_luajit_c)
		next++;
	probe->differences += next != count || !count || !frames[count - 1].is_entry;
}

static void check(struct probe *probe, const struct hl_script_caller *caller)
{
	struct hl_luajit *lj = probe->lj;
	uint64_t state = (uint64_t)probe->running, global;

	if (!is_sound_state(probe, state)) {
		probe->differences++;
		return;
	}
	global = lj_word(state, LJ_STATE_GLOBAL);
	int32_t vmstate = (int32_t)lj_number(global, lj->vmstate_at);
	probe->in_c += vmstate == VMSTATE_C;
	probe->in_interpreter += vmstate == VMSTATE_INTERPRETER;
	if (lj_word(global, lj->current_at) != state || lj_word(global, lj->current_at + LJ_SLOT) ||
	    !is_sound_stack(probe, state))
		probe->differences++;
	else
		compare(probe, caller);
}

/* ---- what the private state calls ---- */

#define CALLER_HERE()                                                                \
	({                                                                           \
		const uint64_t *frame_ = __builtin_frame_address(0);                 \
		(struct hl_registers){frame_[1], (uint64_t)(frame_ + 2), frame_[0]}; \
	})

#define SCRIPT_CALLER(probe, registers_)                                                         \
	(struct hl_script_caller)                                                                \
	{                                                                                        \
		.registers = (registers_), .native_node = UINT32_MAX, .unwind = (probe)->unwind, \
		.walk = (probe)->walk                                                            \
	}

/* C functions of Lua have no context: one probe runs at a time. */
static struct probe *active;

static int in_script(lua_state *state)
{
	struct hl_registers registers = CALLER_HERE();
	struct hl_script_caller caller = SCRIPT_CALLER(active, &registers);

	(void)state;
	check(active, &caller);
	return 0;
}

static bool note_vm(void *context, const struct hl_saved_frame *frame)
{
	struct hl_luajit *lj = context;

	lj->vm_start = frame->function_start;
	lj->vm_end = frame->function_end;
	return false;
}

/* In a coroutine: the assembly is what calls, and the running state is this one. */
static int in_coroutine(lua_state *coroutine)
{
	struct hl_registers registers = CALLER_HERE();
	struct probe *probe = active;
	uint64_t saved[HL_SAVED_COUNT] = {0}, state = (uint64_t)coroutine;

	if (!is_sound_state(probe, state))
		return 0;
	hl_saved_walk(probe->unwind, probe->walk, &registers, saved, note_vm, probe->lj);
	uint64_t global = lj_word(state, LJ_STATE_GLOBAL), main_at = 0, current_at = 0;
	for (uint32_t at = 0; at < GLOBAL_BYTES; at += LJ_SLOT) {
		uint64_t word = lj_word(global, at);
		if (word == (uint64_t)probe->state && !main_at &&
		    (int32_t)lj_number(global, at - LJ_SLOT) == VMSTATE_C)
			main_at = at;
		if (word == state && main_at && !current_at && !lj_word(global, at + LJ_SLOT))
			current_at = at;
	}
	probe->lj->current_at = (uint32_t)current_at;
	probe->lj->vmstate_at = (uint32_t)(main_at - LJ_SLOT);
	return 0;
}

static void *allocate(void *context, void *block, size_t old_bytes, size_t bytes)
{
	struct hl_registers registers = CALLER_HERE();
	struct probe *probe = context;
	struct hl_script_caller caller = SCRIPT_CALLER(probe, &registers);

	if (!bytes)
		return NULL;
	if (probe->is_watching)
		check(probe, &caller);
	size_t rounded = (bytes + 15) & ~(size_t)15;
	if (rounded > MEMORY_BYTES - probe->used)
		return NULL;
	void *moved = probe->memory + probe->used;
	probe->used += rounded;
	if (block)
		memcpy(moved, block, old_bytes < bytes ? old_bytes : bytes);
	return moved;
}

/* ---- the probe ---- */

/* A coroutine of C alone shows where the assembly and the running state are. */
static bool find_all(struct probe *probe)
{
	lua_state *(*newthread)(lua_state *) = (lua_state * (*)(lua_state *)) probe->api->newthread;
	int (*resume)(lua_state *, int) = (int (*)(lua_state *, int))probe->api->resume;
	lua_state *coroutine = newthread(probe->state);

	push_function(probe, coroutine, in_coroutine);
	return resume(coroutine, 0) == 0 && probe->lj->vm_end && probe->lj->current_at;
}

/* By the main state, or by a coroutine. */
static bool run_script(struct probe *probe, bool in_main)
{
	lua_state *(*newthread)(lua_state *) = (lua_state * (*)(lua_state *)) probe->api->newthread;
	int (*resume)(lua_state *, int) = (int (*)(lua_state *, int))probe->api->resume;
	lua_state *state = in_main ? probe->state : newthread(probe->state);

	if (load_script(probe, state))
		return false;
	probe->running = state;
	if (!find_string_length(probe, (uint64_t)state))
		return false;
	push_function(probe, state, in_script);
	probe->is_watching = true;
	int result = in_main ? call_function(probe, 1) : resume(state, 1);
	probe->is_watching = false;
	return result == 0;
}

static enum hl_luajit_problem run_all(struct probe *probe)
{
	int (*checkstack)(lua_state *, int) = (int (*)(lua_state *, int))probe->api->checkstack;

	if (!checkstack(probe->state, STACK_SLOTS))
		return HL_LUAJIT_NO_STATE;
	if (!find_all(probe))
		return probe->lj->vm_end ? HL_LUAJIT_OTHER_BUILD : HL_LUAJIT_NO_VM;
	if (!run_script(probe, true) || !run_script(probe, false))
		return probe->differences ? HL_LUAJIT_OTHER_LINES : HL_LUAJIT_NO_STATE;
	return probe->differences || !probe->levels || !probe->in_c || !probe->in_interpreter
		       ? HL_LUAJIT_OTHER_LINES
		       : HL_LUAJIT_PROVED;
}

static_assert(sizeof(struct probe) + MEMORY_BYTES <= HL_LUAJIT_PROBE_BYTES, "there is room");

enum hl_luajit_problem hl_luajit_open(struct hl_luajit *lj, const struct hl_lua_api *api,
				      struct hl_unwind *unwind, struct hl_walk *walk, void *memory)
{
	lua_state *(*newstate)(void *(*)(void *, void *, size_t, size_t), void *) =
		(lua_state * (*)(void *(*)(void *, void *, size_t, size_t), void *)) api->newstate;
	void (*close_state)(lua_state *) = (void (*)(lua_state *))api->close;
	struct probe *probe = memory;

	*probe = (struct probe){.lj = lj, .api = api, .unwind = unwind, .walk = walk};
	probe->memory = (uint8_t *)(probe + 1);
	active = probe;
	probe->state = newstate(allocate, probe);
	enum hl_luajit_problem problem = probe->state ? run_all(probe) : HL_LUAJIT_NO_STATE;
	if (probe->state)
		close_state(probe->state);
	active = NULL;
	lj->known = 0;
	return problem;
}

const char *hl_luajit_problem_text(enum hl_luajit_problem problem)
{
	static const char *const texts[] = {
		[HL_LUAJIT_PROVED] = "its frames are read",
		[HL_LUAJIT_OTHER_BUILD] = "it is not a build of LuaJIT 2.1 with GC64",
		[HL_LUAJIT_NO_STATE] = "a private state cannot be made",
		[HL_LUAJIT_NO_VM] = "its assembly is not found on the stack",
		[HL_LUAJIT_OTHER_LINES] = "what is read differs from what lua_getinfo() says",
	};

	return texts[problem];
}
