/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * States of Lua side by side: lua_states SCRIPT...
 *
 * Each script runs in a state of its own and leaves a function step(), which is called when a line "step" is read. After each step
 * it writes, for each state, the bytes that this has in use as it counts them, and then "done". A line "close" closes the last state;
 * "again" does so and begins one with the first script. "many" makes MANY states one after the other that call leak() and are
 * closed; "kept" makes KEPT that are not, each with a hundred tables. leak() allocates a block in C that outlives its state, so that the next one lies elsewhere.
 * Where INNER is in the environment, blocks of the first states are cut from one block of malloc().
 */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATES_MAX 8
#define MANY	   9000
#define KEPT	   4000

#define POOL_BYTES ((size_t)1 << 26)

static void *volatile leaked;

__attribute__((noinline)) void *cut_realloc(void *pool, void *block, size_t old, size_t size);
__attribute__((noinline)) void *cut_realloc(void *pool, void *block, size_t old, size_t size)
{
	static char *first, *next;

	(void)pool;
	if (!size || (block && size <= old))
		return size ? block : NULL;
	if (!first)
		first = next = malloc(POOL_BYTES);
	if (!first || next + size + 16 > first + POOL_BYTES)
		return NULL;
	next += (size + 31) / 16 * 16;
	void *cut = next - (size + 15) / 16 * 16;
	return block ? memcpy(cut, block, old) : cut;
}

static int leak(lua_State *state)
{
	static int count;

	(void)state;
	leaked = malloc(1024 + 16 * (size_t)(count++ % 7));
	return 0;
}

static lua_State *begin(const char *script)
{
	lua_State *state = getenv("INNER") ? lua_newstate(cut_realloc, NULL) : luaL_newstate();

	luaL_openlibs(state);
	lua_register(state, "leak", leak);
	if (luaL_dofile(state, script)) {
		fprintf(stderr, "%s\n", lua_tostring(state, -1));
		exit(1);
	}
	return state;
}

static void make_many(void)
{
	for (int i = 0; i < MANY; i++) {
		lua_State *state = luaL_newstate();
		lua_register(state, "leak", leak);
		if (luaL_dostring(state, "leak()"))
			exit(1);
		lua_close(state);
	}
}

static void make_kept(void)
{
	for (int i = 0; i < KEPT; i++) {
		lua_State *state = luaL_newstate();
		if (luaL_dostring(state, "t = {} for i = 1, 100 do t[i] = {} end"))
			exit(1);
	}
}

int main(int argc, char **argv)
{
	lua_State *states[STATES_MAX];
	char line[16];
	int count = argc - 1;

	if (count < 1 || count > STATES_MAX) {
		fprintf(stderr, "usage: lua_states SCRIPT...\n");
		return 2;
	}
	for (int i = 0; i < count; i++)
		states[i] = begin(argv[i + 1]);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "close\n"))
			lua_close(states[--count]);
		if (!strcmp(line, "many\n"))
			make_many();
		if (!strcmp(line, "kept\n"))
			make_kept();
		if (!strcmp(line, "again\n")) {
			lua_close(states[count - 1]);
			states[count - 1] = begin(argv[1]);
		}
		for (int i = 0; i < count && !strcmp(line, "step\n"); i++) {
			lua_getglobal(states[i], "step");
			if (lua_pcall(states[i], 0, 0, 0))
				return 1;
		}
		for (int i = 0; i < count; i++)
			printf("%d ", lua_gc(states[i], LUA_GCCOUNT, 0) * 1024 +
					      lua_gc(states[i], LUA_GCCOUNTB, 0));
		printf("done\n");
		fflush(stdout);
	}
	while (count > 0)
		lua_close(states[--count]);
	return 0;
}
