/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs a script of Lua: lua_host SCRIPT [ledger]
 *
 * With "ledger" it writes, for each line of the script on which something was allocated, "line bytes
 * blocks", as lua_getinfo() says under a hook that has the interpreter save its program counter. The
 * same allocations happen without it, so nothing is compiled by LuaJIT. A child that the script makes by fork() goes on without a ledger.
 */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINES_MAX   256
#define STACK_SLOTS 1000   /* so that hooks, which need some, do not move the stack */
#define DEEP_SLOTS  100000 /* of the script's deepest calls */

/* While they move a stack, the calls on it cannot be asked for lines: neither by the ledger nor by whoever records. */
#if defined(LUA_VERSION_RELEASE_NUM) && LUA_VERSION_RELEASE_NUM >= 50407
#define IS_MUTE_IN_MOVES true
#else
#define IS_MUTE_IN_MOVES false
#endif

static bool has_ledger, is_running;
static int known_line; /* where Lua runs, while it cannot be asked; 0: it can */
static lua_State *main_state, *running;
static size_t bytes_by_line[LINES_MAX], blocks_by_line[LINES_MAX];

static void no_hook(lua_State *state, lua_Debug *debug)
{
	(void)state, (void)debug;
}

/* The line that the innermost function in Lua of ${state} is on; 0: there is none. */
static int line_of(lua_State *state)
{
	lua_Debug debug;

	for (int level = 0; lua_getstack(state, level, &debug); level++) {
		lua_getinfo(state, "Sl", &debug);
		if (*debug.what != 'C' && debug.currentline > 0)
			return debug.currentline;
	}
	return 0;
}

static int line_now(void)
{
	int line = line_of(running);

	return line ? line : line_of(main_state);
}

static void *allocate(void *context, void *block, size_t old_bytes, size_t bytes)
{
	(void)context, (void)old_bytes;
	if (!bytes) {
		free(block);
		return NULL;
	}
	if (has_ledger && is_running) {
		int line = known_line ? known_line : line_now();
		bytes_by_line[line % LINES_MAX] += bytes;
		blocks_by_line[line % LINES_MAX]++;
	}
	return realloc(block, bytes);
}

/* Makes room on the running state's stack, for a function of ${state}; that may move it. */
static void make_room(lua_State *state, int slots)
{
	bool was_running = is_running;

	known_line = has_ledger && is_running ? line_now() : 0;
	if (IS_MUTE_IN_MOVES && running == state)
		is_running = false;
	lua_checkstack(running, slots);
	is_running = was_running;
	known_line = 0;
}

/* enter([coroutine]): that one runs from now on, else the caller. */
static int enter(lua_State *state)
{
	running = lua_isthread(state, 1) ? lua_tothread(state, 1) : state;
	make_room(state, STACK_SLOTS);
	if (has_ledger)
		lua_sethook(running, no_hook, LUA_VERSION_NUM == 501 ? LUA_MASKLINE : LUA_MASKCOUNT,
			    1000000000);
	return 0;
}

/* go_deep(): deep calls follow, which shall not be what moves a stack while Lua cannot be asked. */
static int go_deep(lua_State *state)
{
	for (int slots = STACK_SLOTS; IS_MUTE_IN_MOVES && slots <= DEEP_SLOTS; slots *= 10)
		make_room(state, slots);
	return 0;
}

/* fork(): 0 in the child; the caller waits for it. */
static int fork_child(lua_State *state)
{
	pid_t pid = has_ledger ? -1 : fork();

	if (pid > 0)
		waitpid(pid, NULL, 0);
	lua_pushinteger(state, pid);
	return 1;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: lua_host SCRIPT [ledger]\n");
		return 2;
	}
	has_ledger = argc > 2;
	main_state = lua_newstate(allocate, NULL);
	luaL_openlibs(main_state);
	if (luaL_dostring(main_state, "if jit then jit.off() end"))
		return 1;
	lua_gc(main_state, LUA_GCSTOP, 0);
	lua_pushcfunction(main_state, enter);
	lua_setglobal(main_state, "enter");
	lua_pushcfunction(main_state, go_deep);
	lua_setglobal(main_state, "go_deep");
	lua_pushcfunction(main_state, fork_child);
	lua_setglobal(main_state, "fork");
	int result = luaL_loadfile(main_state, argv[1]);
	enter(main_state);
	is_running = true;
	if (!result)
		result = lua_pcall(main_state, 0, 0, 0);
	is_running = false;
	if (result)
		fprintf(stderr, "%s\n", lua_tostring(main_state, -1));
	for (int line = 1; has_ledger && line < LINES_MAX; line++)
		if (blocks_by_line[line])
			printf("%d %zu %zu\n", line, bytes_by_line[line], blocks_by_line[line]);
	lua_close(main_state);
	return result ? 1 : 0;
}
