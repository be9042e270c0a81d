/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs a script beside another interpreter of Lua, which has an idle state: lua_beside SCRIPT */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include <dlfcn.h>
#include <stdio.h>

#define LIBRARY "liblua5.1.so.0"

int main(int argc, char **argv)
{
	lua_State *state = argc == 2 ? luaL_newstate() : NULL;

	if (!state) {
		fprintf(stderr, "usage: lua_beside SCRIPT\n");
		return 2;
	}
	luaL_openlibs(state);
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	void *(*new_state)(void) =
		library ? (void *(*)(void))dlsym(library, "luaL_newstate") : NULL;
	if (!new_state || !new_state()) {
		fprintf(stderr, "lua_beside: cannot use '" LIBRARY "': %s\n", dlerror());
		return 1;
	}
	if (luaL_dofile(state, argv[1])) {
		fprintf(stderr, "%s\n", lua_tostring(state, -1));
		return 1;
	}
	return 0;
}
