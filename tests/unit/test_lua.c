/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The frames of a Lua that this test is linked with, at each allocation of a script that does what
 * scripts of games do. The truth is what lua_getinfo() says under a hook, which makes the interpreter
 * save its program counter; the same run without a hook allocates on the same lines.
 */
#include "guests/lua/lua.h"
#include "unwind/saved.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define LEVELS_MAX	64
#define NODES		(1u << 16)
#define ALLOCATIONS	(1u << 20)
#define DIFFERENCES_MAX 20

static struct hl_unwind unwinder;
static struct hl_walk walk;
static struct hl_lua lua;
static struct hl_lua_cache cache;
static bool find_maker(uint64_t block, struct hl_script_frame *ret_frame);
static const struct hl_lua_reader reader = {&unwinder, &walk, &cache, find_maker, NULL};

/* ---- the process, as the recorder would have it ---- */

static bool find_module(struct hl_unwind *unwind, uint64_t pc, struct hl_unwind_module *ret_module)
{
	struct dl_find_object found;

	(void)unwind;
	if (_dl_find_object((void *)pc, &found))
		return false;
	*ret_module = (struct hl_unwind_module){
		.id = 1,
		.start = (uint64_t)found.dlfo_map_start,
		.end = (uint64_t)found.dlfo_map_end,
		.eh_frame_hdr = found.dlfo_eh_frame,
		.load_bias = found.dlfo_link_map->l_addr,
	};
	return true;
}

static struct hl_lua_api api_of_library(void)
{
	struct hl_lua_api api = {
		.version = LUA_VERSION_NUM == 501   ? HL_LUA_51
			   : LUA_VERSION_NUM == 502 ? HL_LUA_52
			   : LUA_VERSION_NUM == 503 ? HL_LUA_53
			   : LUA_VERSION_NUM == 504 ? HL_LUA_54
						    : HL_LUA_55,
		.newstate = (uint64_t)lua_newstate,
		.close = (uint64_t)lua_close,
		.load = (uint64_t)lua_load,
#if LUA_VERSION_NUM == 501
		.pcall = (uint64_t)lua_pcall,
#else
		.pcall = (uint64_t)lua_pcallk,
#endif
		.pushcclosure = (uint64_t)lua_pushcclosure,
		.checkstack = (uint64_t)lua_checkstack,
		.getstack = (uint64_t)lua_getstack,
		.getinfo = (uint64_t)lua_getinfo,
		.sethook = (uint64_t)lua_sethook,
		.newthread = (uint64_t)lua_newthread,
		.resume = (uint64_t)lua_resume,
		.gc = (uint64_t)lua_gc,
	};

	return api;
}

static enum hl_lua_problem open_api(const struct hl_lua_api *api)
{
	void *memory = calloc(1, HL_LUA_PROBE_BYTES);

	memset(&lua, 0, sizeof(lua));
	unwinder.find_module = find_module;
	hl_walk_begin(&walk, true);
	assert_non_null(memory);
	enum hl_lua_problem problem = hl_lua_open(&lua, api, &reader, memory);
	if (problem == HL_LUA_PROVED)
		hl_lua_learn_states(&lua, api, &reader, memory);
	free(memory);
	return problem;
}

/* A number for the native stack that has just been walked: equal frames, equal numbers. */
static uint32_t node_of_walk(void)
{
	static struct {
		uint64_t hash;
		uint32_t depth;
	} nodes[NODES];
	uint64_t hash = walk.depth;

	for (uint32_t i = 0; i < walk.depth; i++)
		hash = (hash ^ walk.frames[i].key) * UINT64_C(0x9e3779b97f4a7c15);
	for (uint32_t at = (uint32_t)(hash >> 48);; at++) {
		at %= NODES;
		if (!nodes[at].depth) {
			nodes[at].depth = walk.depth;
			nodes[at].hash = hash;
		}
		if (nodes[at].hash == hash)
			return at;
	}
}

/* ---- the oracle ---- */

static struct {
	lua_State *main;
	bool is_counting, has_truth;
	uint32_t allocations, empty, differences, compared;
	uint32_t lines[ALLOCATIONS]; /* of the run with a hook: the first function in Lua */
	uint32_t lines_differ;
	uint64_t kept;	  /* frames that were remembered */
	uint32_t quick;	  /* captures that compared them all and found no more to do */
	lua_State *state; /* that runs */
} oracle;

static void no_hook(lua_State *state, lua_Debug *debug)
{
	(void)state, (void)debug;
}

static bool is_moving_stack(lua_State *state)
{
	return lua.layout.version >= HL_LUA_54 &&
	       hl_lua_word((uint64_t)state, lua.layout.state_top) <
		       hl_lua_word((uint64_t)state, lua.layout.state_stack);
}

static void report(const char *what, const lua_Debug *truth, const struct hl_script_place *place)
{
	if (++oracle.differences <= DIFFERENCES_MAX)
		print_error("allocation %u: %s: %s:%d, not %.*s:%u\n", oracle.allocations, what,
			    truth->short_src, truth->currentline, (int)place->source_bytes,
			    place->source, place->line);
}

/* All functions in Lua of the running state; those of its resumers come after. */
static void compare(const struct hl_script_frame *frames, uint32_t count)
{
	lua_Debug truth;
	uint32_t at = 0;

	if (is_moving_stack(oracle.state))
		return;
	for (int level = 0; lua_getstack(oracle.state, level, &truth); level++) {
		struct hl_script_place place = {.source = "nothing", .source_bytes = 7};
		lua_getinfo(oracle.state, "Sl", &truth);
		if (*truth.what == 'C' || truth.currentline < 0)
			continue;
		if (at == count || !hl_lua_describe(&lua, &frames[at], &place)) {
			report("nothing", &truth, &place);
			return;
		}
		if (place.line != (uint32_t)truth.currentline ||
		    strncmp(place.source, truth.source + 1, place.source_bytes) != 0)
			report("another line", &truth, &place);
		at++;
	}
	oracle.compared += at > 0;
}

/* A capture that remembers the last one says the same as ${count} ${frames} do, innermost first. */
static void remember(const struct hl_script_caller *caller, const struct hl_script_frame *frames,
		     uint32_t count)
{
	static struct hl_script_memory memory;
	static struct hl_script_frame path[LEVELS_MAX]; /* outermost first */
	static uint32_t depth;
	struct hl_script_frame fresh[LEVELS_MAX];
	struct hl_script_caller remembering = *caller;
	uint64_t global = hl_lua_word((uint64_t)oracle.state, lua.layout.state_global);
	static hl_block_entry entry;
	struct hl_lua_state_slot slot = {.global = global, .entry = &entry};
	struct hl_guest_stamp stamp = {.slot = &slot};
	bool truncated = false;

	slot.white = *(const uint8_t *)(global + lua.collector.white_at);
	remembering.memory = &memory;
	remembering.walk = &walk;
	remembering.stamp = &stamp;
	memory.known = depth;
	memory.kept = 0;
	uint32_t new = hl_lua_recapture(&lua, &cache, &remembering, fresh);
	oracle.quick += new != HL_SCRIPT_GAVE_UP;
	if (new == HL_SCRIPT_GAVE_UP)
		new = hl_lua_capture(&lua, &reader, &remembering, fresh, LEVELS_MAX, &truncated);
	assert_true(memory.kept <= depth);
	assert_int_equal(memory.kept + new, count);
	oracle.kept += memory.kept;
	depth = memory.kept;
	while (new)
		path[depth++] = fresh[--new];
	for (uint32_t i = 0; i < count; i++)
		assert_memory_equal(&path[i], &frames[count - 1 - i], sizeof(*path));
}

static void look(const struct hl_script_caller *caller)
{
	struct hl_script_frame frames[LEVELS_MAX];
	struct hl_script_place place = {0};
	bool truncated = false;

	uint32_t kept = hl_walk_capture(&unwinder, &walk, caller->registers);
	for (uint32_t i = kept; i < walk.depth; i++)
		walk.frames[i].node = i + 1;
	struct hl_script_caller at_node = *caller;
	at_node.native_node = node_of_walk();
	uint32_t count = hl_lua_capture(&lua, &reader, &at_node, frames, LEVELS_MAX, &truncated);
	assert_false(truncated);
	remember(&at_node, frames, count);
	if (count)
		hl_lua_describe(&lua, &frames[0], &place);
	oracle.empty += !count && !is_moving_stack(oracle.state);
	if (oracle.has_truth)
		compare(frames, count);
	uint32_t *line = &oracle.lines[oracle.allocations++];
	if (oracle.has_truth) {
		*line = place.line;
	} else if (*line != place.line && ++oracle.lines_differ <= DIFFERENCES_MAX) {
		print_error("allocation %u without a hook: line %u, not %u\n", oracle.allocations,
			    place.line, *line);
	}
}

static void *allocate(void *context, void *block, size_t old_bytes, size_t bytes)
{
	HL_LUA_CALLER_HERE(&reader, registers, saved);
	struct hl_script_caller caller = {.registers = &registers, .saved = saved};

	(void)context, (void)old_bytes;
	if (!bytes) {
		free(block);
		return NULL;
	}
	if (oracle.is_counting && oracle.allocations < ALLOCATIONS)
		look(&caller);
	return realloc(block, bytes);
}

/* Says which state runs from now on, a coroutine or the caller: the truth is asked of it. */
static int enter(lua_State *state)
{
	if (lua_isthread(state, 1))
		state = lua_tothread(state, 1);
	oracle.state = state;
	lua_checkstack(state, 1000); /* hooks would move the stack sooner */
	if (oracle.has_truth)
		lua_sethook(state, no_hook, LUA_VERSION_NUM == 501 ? LUA_MASKLINE : LUA_MASKCOUNT,
			    1000000000);
	return 0;
}

static const char game[] =
	"local enter = ...\n"
	"local Entity = {}\n"
	"Entity.__index = Entity\n"
	"Entity.__tostring = function(self)\n"
	"  return string.format('%s@%d,%d', self.name, self.x, self.y)\n"
	"end\n"
	"Entity.__add = function(a, b)\n"
	"  return setmetatable({name = a.name .. b.name, x = a.x + b.x, y = a.y, tags = {}},\n"
	"    Entity)\n"
	"end\n"
	"local function make(i)\n"
	"  return setmetatable({\n"
	"    name = 'entity' .. i,\n"
	"    x = i, y = i * 2,\n"
	"    tags = {'a', 'b', i},\n"
	"  }, Entity)\n"
	"end\n"
	"local world = {}\n"
	"local function tick(n)\n"
	"  local messages = {}\n"
	"  for i = 1, n do\n"
	"    local e = world[i] or make(i)\n"
	"    world[i] = e\n"
	"    messages[#messages + 1] = tostring(e)\n"
	"    e.callbacks = {function() return e.name end,\n"
	"      function(...)\n"
	"        return {...}\n"
	"      end}\n"
	"    if i % 7 == 0 then\n"
	"      world[i] = e + make(i + 1000)\n"
	"    end\n"
	"    if i % 5 == 0 then\n"
	"      e.callbacks[2](1, 2, i)\n"
	"      e['key' .. i % 50] = {\n"
	"        nested = {i, {i}},\n"
	"      }\n"
	"    end\n"
	"  end\n"
	"  return table.concat(messages, ';')\n"
	"end\n"
	"local function fail(i)\n"
	"  local ok, message = pcall(function()\n"
	"    local t = {}\n"
	"    error({code = i, text = 'failed ' .. i})\n"
	"  end)\n"
	"  return message\n"
	"end\n"
	"local function deep(n)\n"
	"  if n == 0 then\n"
	"    return {n}\n"
	"  end\n"
	"  local r = deep(n - 1)\n"
	"  r[#r + 1] = n .. 'x'\n"
	"  return r\n"
	"end\n"
	"local function sorted(n)\n"
	"  local t = {}\n"
	"  for i = 1, n do t[i] = {key = (i * 7919) % n} end\n"
	"  table.sort(t, function(a, b)\n"
	"    local pair = {a, b}\n"
	"    return pair[1].key < pair[2].key\n"
	"  end)\n"
	"  return t\n"
	"end\n"
	"local function run(round)\n"
	"  tick(100)\n"
	"  fail(round)\n"
	"  deep(30)\n"
	"  sorted(20)\n"
	"  local s = ''\n"
	"  for i = 1, 20 do s = s .. string.rep('ab', i) end\n"
	"  string.gsub(s, 'a+', function(m)\n"
	"    return m .. round\n"
	"  end)\n"
	"  local t = {}\n"
	"  for w in string.gmatch('one two three', '%a+') do\n"
	"    t[#t + 1] = w .. round\n"
	"  end\n"
	"end\n"
	"for round = 1, 60 do run(round) end\n"
	"local states = {}\n"
	"for i = 1, 20 do\n"
	"  states[i] = coroutine.create(function(a)\n"
	"    local kept = {}\n"
	"    for j = 1, 10 do\n"
	"      kept[j] = {a, j}\n"
	"      tick(20)\n"
	"    end\n"
	"    return kept\n"
	"  end)\n"
	"  enter(states[i])\n"
	"  coroutine.resume(states[i], i)\n"
	"  enter()\n"
	"end\n"
	"if newproxy then\n"
	"  setmetatable = function(t, m)\n"
	"    local proxy = newproxy(true)\n"
	"    getmetatable(proxy).__gc = m.__gc\n"
	"    return proxy\n"
	"  end\n"
	"end\n"
	"local last = {}\n"
	"for i = 1, 2000 do\n"
	"  setmetatable({}, {\n"
	"    __gc = function(t)\n"
	"      last[1] = 'finalized ' .. i\n"
	"      last[2] = {i}\n"
	"    end})\n"
	"end\n";

static lua_State *new_state(lua_Alloc allocator)
{
#if LUA_VERSION_NUM >= 505
	return lua_newstate(allocator, NULL, 0);
#else
	return lua_newstate(allocator, NULL);
#endif
}

static void play(bool has_truth, bool collects)
{
	lua_State *state = new_state(allocate);

	assert_non_null(state);
	oracle.has_truth = has_truth;
	oracle.allocations = oracle.empty = oracle.compared = oracle.differences = 0;
	luaL_openlibs(state);
	if (!collects)
		lua_gc(state, LUA_GCSTOP, 0);
	assert_int_equal(luaL_loadbuffer(state, game, sizeof(game) - 1, "@game.lua"), 0);
	lua_pushcfunction(state, enter);
	enter(state);
	oracle.is_counting = true;
	int result = lua_pcall(state, 1, 0, 0);
	oracle.is_counting = false;
	if (result)
		print_error("%s\n", lua_tostring(state, -1));
	assert_int_equal(result, 0);
	lua_close(state);
}

static void test_lines_are_those_that_lua_says(void **context)
{
	struct hl_lua_api api = api_of_library();
	enum hl_lua_problem problem = open_api(&api);

	(void)context;
	if (problem)
		print_error("%s\n", hl_lua_problem_text(problem));
	assert_int_equal(problem, HL_LUA_PROVED);
	play(true, false);
	uint32_t allocations = oracle.allocations;
	print_message("%u allocations, %u compared, %u without a frame, %u wrong\n", allocations,
		      oracle.compared, oracle.empty, oracle.differences);
	assert_true(oracle.compared > 20000);
	assert_int_equal(oracle.differences, 0);
	assert_int_equal(oracle.empty, 0);
	play(false, false);
	print_message("%u without a hook, %u wrong; %lu refused\n", oracle.allocations,
		      oracle.lines_differ, atomic_load(&lua.refused));
	assert_int_equal(oracle.allocations, allocations);
	assert_int_equal(oracle.lines_differ, 0);
	/* Calls of 5.1 are not remembered. */
	assert_true(LUA_VERSION_NUM == 501 ? !oracle.kept : oracle.kept > allocations);
	print_message("%u by the quick way\n", oracle.quick);
	assert_true(LUA_VERSION_NUM == 501 ? !oracle.quick : oracle.quick > allocations / 4);
}

/* Finalizers run in the middle of whatever allocates. */
static void test_lines_are_right_while_garbage_is_collected(void **context)
{
	struct hl_lua_api api = api_of_library();

	(void)context;
	assert_int_equal(open_api(&api), HL_LUA_PROVED);
	play(true, true);
	print_message("%u allocations, %u compared, %u without a frame, %u wrong\n",
		      oracle.allocations, oracle.compared, oracle.empty, oracle.differences);
	assert_true(oracle.compared > 20000);
	assert_int_equal(oracle.differences, 0);
}

#if LUA_VERSION_NUM >= 502 /* calls of 5.1 are not remembered */
#define PROTO_BYTES 120u   /* and in some versions a word more, for collections */

/* Allocates twice for one call, the first time while what its closure leads to lies in a page that is then gone. */
static int allocate_twice(lua_State *state)
{
	static uint64_t *leads_to, proto;
	static void *page;
	lua_Debug caller;

	if (!page) {
		page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert_ptr_not_equal(page, MAP_FAILED);
		assert_true(lua_getstack(state, 1, &caller) && lua_getinfo(state, "f", &caller));
		leads_to =
			(uint64_t *)((uint64_t)lua_topointer(state, -1) + lua.layout.closure_proto);
		lua_pop(state, 1);
		proto = *leads_to;
		*leads_to = (uint64_t)memcpy(page, (const void *)proto, PROTO_BYTES);
		lua_newuserdata(state, 1);
		*leads_to = proto;
		assert_int_equal(munmap(page, 4096), 0);
	} else {
		lua_newuserdata(state, 1);
	}
	return 0;
}

static void test_a_function_that_was_remembered_and_is_gone_is_not_read(void **context)
{
	static const char script[] = "local allocate = ...\nfor i = 1, 2 do allocate() end";
	struct hl_lua_api api = api_of_library();

	(void)context;
	assert_int_equal(open_api(&api), HL_LUA_PROVED);
	lua_State *state = new_state(allocate);
	assert_non_null(state);
	lua_gc(state, LUA_GCSTOP, 0);
	assert_int_equal(luaL_loadbuffer(state, script, sizeof(script) - 1, "@twice.lua"), 0);
	lua_pushcfunction(state, allocate_twice);
	oracle.state = state;
	oracle.has_truth = oracle.is_counting = true;
	oracle.allocations = oracle.compared = oracle.differences = 0;
	int result = lua_pcall(state, 1, 0, 0);
	oracle.is_counting = false;
	assert_int_equal(result, 0);
	assert_true(oracle.compared >= 2);
	assert_int_equal(oracle.differences, 0);
	lua_close(state);
}
#endif

/* ---- coroutines that run C functions ---- */

#define MADE 12345u /* instead of a site */

static struct {
	bool is_on;
	uint64_t made;	/* the block of the coroutine */
	uint64_t asked; /* the block that find_maker() was asked for last */
	uint32_t in_c;	/* frames of the coroutine's maker that were innermost */
	uint32_t outer; /* and the line outward of it */
} coroutines;

static bool find_maker(uint64_t block, struct hl_script_frame *ret_frame)
{
	coroutines.asked = block;
	*ret_frame = (struct hl_script_frame){.function = MADE};
	return block == coroutines.made;
}

static void *allocate_noting(void *context, void *block, size_t old_bytes, size_t bytes)
{
	HL_LUA_CALLER_HERE(&reader, registers, saved);
	struct hl_script_caller caller = {.registers = &registers, .saved = saved};
	struct hl_script_frame frames[LEVELS_MAX];
	bool truncated = false;

	(void)context, (void)old_bytes;
	if (!bytes) {
		free(block);
		return NULL;
	}
	if (coroutines.is_on) {
		hl_walk_capture(&unwinder, &walk, &registers);
		caller.native_node = node_of_walk();
		uint32_t count =
			hl_lua_capture(&lua, &reader, &caller, frames, LEVELS_MAX, &truncated);
		if (count && frames[0].function == MADE) {
			assert_false(frames[0].is_entry);
			coroutines.in_c++;
			struct hl_script_place place = {0};
			if (count > 1 && hl_lua_describe(&lua, &frames[1], &place))
				coroutines.outer = place.line;
		}
	}
	return realloc(block, bytes);
}

/* coroutine.create(), which in 5.1 takes no function in C. */
static int create(lua_State *state)
{
	lua_State *coroutine = lua_newthread(state);

	lua_pushvalue(state, 1);
	lua_xmove(state, coroutine, 1);
	return 1;
}

/* note(coroutine): it and what follows is looked at. */
static int note(lua_State *state)
{
	coroutines.made = (uint64_t)lua_tothread(state, 1) - lua.coroutine_offset;
	coroutines.is_on = true;
	return 0;
}

static void test_a_coroutine_that_runs_a_c_function_has_the_frame_of_its_maker(void **context)
{
	static const char script[] = "local note, body, create = ...\n"
				     "local co = create(body)\n"
				     "note(co)\n"
				     "local ok, text = coroutine.resume(co, 'ab', 5000)\n"
				     "note(co)\n"
				     "assert(ok and #text == 10000)\n";
	struct hl_lua_api api = api_of_library();

	(void)context;
	assert_int_equal(open_api(&api), HL_LUA_PROVED);
	assert_int_not_equal(lua.resume_start, 0);
	lua_State *state = new_state(allocate_noting);
	memset(&coroutines, 0, sizeof(coroutines));
	luaL_openlibs(state);
	assert_int_equal(luaL_loadbuffer(state, script, sizeof(script) - 1, "@co.lua"), 0);
	lua_pushcfunction(state, note);
	lua_getglobal(state, "string");
	lua_getfield(state, -1, "rep");
	lua_remove(state, -2);
	lua_pushcfunction(state, create);
	int result = lua_pcall(state, 3, 0, 0);
	coroutines.is_on = false;
	if (result)
		print_error("%s\n", lua_tostring(state, -1));
	assert_int_equal(result, 0);
	lua_close(state);
	assert_int_equal(coroutines.asked, coroutines.made);
	assert_true(coroutines.in_c >= 1);
	assert_int_equal(coroutines.outer, 4);
}

static void test_the_collector_is_found_where_the_version_has_it(void **context)
{
	const uint32_t white_at = LUA_VERSION_NUM == 501   ? 32
				  : LUA_VERSION_NUM <= 503 ? 84
				  : LUA_VERSION_NUM == 504 ? 100
							   : 106;
	struct hl_lua_api api = api_of_library();

	(void)context;
	assert_int_equal(open_api(&api), HL_LUA_PROVED);
	assert_int_equal(lua.collector.white_at, white_at);
	lua_State *state = luaL_newstate();
	uint64_t global = hl_lua_word((uint64_t)state, lua.layout.state_global);
	int64_t debt = lua.collector.debt_sign *
		       (int64_t)hl_lua_word(global, (uint8_t)(lua.collector.bytes_at + 8));
	assert_int_equal((int64_t)hl_lua_word(global, (uint8_t)lua.collector.bytes_at) + debt,
			 lua_gc(state, LUA_GCCOUNT, 0) * 1024 + lua_gc(state, LUA_GCCOUNTB, 0));
	assert_int_equal(global + (uint64_t)lua.collector.main_at, (uint64_t)state);
	lua_close(state);
	api.gc = 0;
	assert_int_equal(open_api(&api), HL_LUA_PROVED);
	assert_int_equal(lua.collector.white_at, 0);
}

static void test_another_version_is_refused(void **context)
{
	struct hl_lua_api api = api_of_library();

	(void)context;
	/* Not 5.5 for 5.4: of what the probe reads these differ in one bit. */
	api.version = api.version == HL_LUA_53 ? HL_LUA_52 : HL_LUA_53;
	assert_int_not_equal(open_api(&api), HL_LUA_PROVED);
}

#if LUA_VERSION_NUM >= 503
#define ADDED	    8
#define NAME_LENGTH 9 /* of "=heapline" */

/* Names the chunk so that eight bytes stand before the name that was asked for, as a field would. */
static int load_named_later(lua_State *state, lua_Reader read, void *context, const char *name,
			    const char *mode)
{
	char longer[64];

	snprintf(longer, sizeof(longer), "12345678%s", name);
	int result = lua_load(state, read, context, longer, mode);
	uint64_t proto = hl_lua_word((uint64_t)lua_topointer(state, -1), lua.layout.closure_proto);
	uint64_t source = hl_lua_word(proto, lua.layout.proto_source);
	*(uint8_t *)(source + lua.layout.string_short_length) = NAME_LENGTH;
	return result;
}

static void test_fields_that_a_host_added_to_strings_are_passed_over(void **context)
{
	struct hl_lua_api api = api_of_library();
	uint8_t usual = hl_lua_layout(api.version)->string_bytes;

	(void)context;
	api.load = (uint64_t)load_named_later;
	assert_int_equal(open_api(&api), HL_LUA_PROVED);
	assert_int_equal(lua.layout.string_bytes, usual + ADDED);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
#if LUA_VERSION_NUM >= 503
		cmocka_unit_test(test_fields_that_a_host_added_to_strings_are_passed_over),
#endif
		cmocka_unit_test(
			test_a_coroutine_that_runs_a_c_function_has_the_frame_of_its_maker),
		cmocka_unit_test(test_the_collector_is_found_where_the_version_has_it),
#if LUA_VERSION_NUM >= 502
		cmocka_unit_test(test_a_function_that_was_remembered_and_is_gone_is_not_read),
#endif
		cmocka_unit_test(test_another_version_is_refused),
		cmocka_unit_test(test_lines_are_those_that_lua_says),
		cmocka_unit_test(test_lines_are_right_while_garbage_is_collected),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
