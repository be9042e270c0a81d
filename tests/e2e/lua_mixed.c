/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program whose stacks run scripts of Lua by turns: lua_mixed COUNT [early]
 *
 * It works without Lua first, then in Lua and without by turns, and a second thread works without Lua meanwhile,
 * each COUNT times. Work keeps a block of 100 bytes that has grown to 700. The script does it on
 * line 3, and by a function of a coroutine on line 7.
 *
 * The second thread begins when Lua has allocated, so that its interpreter has been probed by the first. With
 * "early" it begins after Lua's first block, so that it may be the one that probes, while the first runs the script; and
 * when the second has ended the first goes on for another COUNT times, from the same stacks.
 */
#include <lauxlib.h>
#include <lua.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static const char script[] = "local create, resume, work = ...\n"
			     "local function here()\n"
			     "  work()\n"
			     "end\n"
			     "local function there()\n"
			     "  while true do\n"
			     "    work()\n"
			     "    create()\n" /* returns to where it is resumed */
			     "  end\n"
			     "end\n"
			     "local thread\n"
			     "return function()\n"
			     "  here()\n"
			     "  thread = resume(thread, there)\n"
			     "end\n";

__attribute__((noinline)) static void *grow(void *block)
{
	void *volatile grown = realloc(block, 700);

	return grown;
}

__attribute__((noinline)) static void work(void)
{
	void *volatile block = malloc(100);

	if (!block || !grow(block))
		abort();
}

static int work_in_lua(lua_State *state)
{
	(void)state;
	work();
	return 0;
}

static int yield(lua_State *state)
{
	return lua_yield(state, 0);
}

/* resume(thread or nil, function): the thread, made of the function if there is none. */
static int resume(lua_State *state)
{
	lua_State *thread = lua_tothread(state, 1);
	int results;

	if (!thread) {
		thread = lua_newthread(state);
		lua_pushvalue(state, 2);
		lua_xmove(state, thread, 1);
		lua_replace(state, 1);
	}
	if (lua_resume(thread, state, 0, &results) != LUA_YIELD)
		abort();
	lua_settop(state, 1);
	return 1;
}

static atomic_int at_work; /* how many threads have begun work_alone() ... */
static atomic_bool held;   /* ... which then waits */

static void *work_alone(void *count)
{
	while (held)
		sched_yield();
	at_work++;
	for (uintptr_t i = 0; i < (uintptr_t)count; i++)
		work();
	return NULL;
}

/* Lets the second thread work after the first block. */
static void *allocate(void *context, void *block, size_t old_size, size_t size)
{
	(void)context, (void)old_size;
	if (!size) {
		free(block);
		return NULL;
	}
	void *made = realloc(block, size);
	if (held) {
		held = false;
		while (at_work < 2)
			sched_yield();
	}
	return made;
}

int main(int argc, char **argv)
{
	uintptr_t count = argc > 1 ? (uintptr_t)atoi(argv[1]) : 1, end = count;
	bool is_early = argc > 2;
	pthread_t other;

	work_alone((void *)count);
	if (is_early) {
		end += count;
		held = true;
		if (pthread_create(&other, NULL, work_alone, (void *)count) != 0)
			return 1;
	}
	lua_State *state = lua_newstate(allocate, NULL);
	if (!state || luaL_loadbuffer(state, script, sizeof(script) - 1, "=mixed"))
		return 1;
	lua_pushcfunction(state, yield);
	lua_pushcfunction(state, resume);
	lua_pushcfunction(state, work_in_lua);
	lua_call(state, 3, 1);
	if (!is_early && pthread_create(&other, NULL, work_alone, (void *)count) != 0)
		return 1;
	for (uintptr_t i = 0; i < end; i++) {
		if (i == count)
			pthread_join(other, NULL);
		lua_pushvalue(state, -1);
		lua_call(state, 0, 0);
		work();
	}
	if (!is_early)
		pthread_join(other, NULL);
	return 0;
}
