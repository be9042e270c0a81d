/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Makes and closes COUNT states of LuaJIT, each with tables of its own, by LuaJIT's own allocator; then one whose
 * allocator refuses what goes beyond a limit, which its script survives: luajit_states COUNT
 *
 * In between it writes how many bytes one last state says that it has in use, and keeps that state.
 */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include <stdio.h>
#include <stdlib.h>

#define LIMIT_BYTES 1000000u

static size_t used_bytes;

static void *allocate_little(void *context, void *block, size_t old_bytes, size_t bytes)
{
	(void)context;
	old_bytes = block ? old_bytes : 0;
	if (bytes > old_bytes && used_bytes + bytes - old_bytes > LIMIT_BYTES)
		return NULL;
	used_bytes += bytes - old_bytes;
	if (bytes)
		return realloc(block, bytes);
	free(block);
	return NULL;
}

static void run(lua_State *state, const char *script)
{
	luaL_openlibs(state);
	if (luaL_dostring(state, script)) {
		fprintf(stderr, "%s\n", lua_tostring(state, -1));
		exit(1);
	}
}

int main(int argc, char **argv)
{
	for (int i = 0, count = argc > 1 ? atoi(argv[1]) : 1; i < count; i++) {
		lua_State *state = luaL_newstate();
		run(state, "local t = {} for i = 1, 100 do t[i] = {i} end");
		lua_close(state);
	}
	lua_State *kept = luaL_newstate();
	run(kept, "kept = {} for i = 1, 20000 do kept[i] = {i, 'text ' .. i} end collectgarbage()");
	printf("%d\n", lua_gc(kept, LUA_GCCOUNT, 0) * 1024 + lua_gc(kept, LUA_GCCOUNTB, 0));

	lua_State *limited = lua_newstate(allocate_little, NULL);
	run(limited, "local function fill() local t = {} while true do t[#t + 1] = {} end end\n"
		     "for round = 1, 5 do\n"
		     "  local ok, text = pcall(fill)\n"
		     "  collectgarbage()\n"
		     "  assert(not ok and text == 'not enough memory', text)\n"
		     "end\n");
	lua_close(limited);
	return used_bytes != 0;
}
