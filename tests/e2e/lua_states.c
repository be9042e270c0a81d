/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * States of Lua side by side: lua_states SCRIPT...
 *
 * Each script runs in a state of its own and leaves a function step(), which is called when a line "step" is read. After each step
 * it writes, for each state, the bytes that this has in use as it counts them, and then "done". A line "close" closes the last state.
 */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include <stdio.h>
#include <string.h>

#define STATES_MAX 8

int main(int argc, char **argv)
{
	lua_State *states[STATES_MAX];
	char line[16];
	int count = argc - 1;

	if (count < 1 || count > STATES_MAX) {
		fprintf(stderr, "usage: lua_states SCRIPT...\n");
		return 2;
	}
	for (int i = 0; i < count; i++) {
		states[i] = luaL_newstate();
		luaL_openlibs(states[i]);
		if (luaL_dofile(states[i], argv[i + 1])) {
			fprintf(stderr, "%s\n", lua_tostring(states[i], -1));
			return 1;
		}
	}
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "close\n"))
			lua_close(states[--count]);
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
