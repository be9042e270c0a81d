/* SPDX-License-Identifier: BSD-2-Clause */
/* What is known of Lua and LuaJIT without a process at hand; see guests/traits.h. */
#include "guests/traits.h"

#include "elf/elf.h"
#include "guests/lua/jit_allocator.h"

#include <string.h>

#define JIT_ALLOCATOR "lj_alloc_f" /* as LuaJIT's sources call it; of the type lua_Alloc */
#define JIT_EXPORTED  "luaJIT_setmode"
#define NEWSTATE      "lua_newstate"

#define NEWSTATE_BYTES_MAX 2048u

static const char *const providers[] = {"lua", "luajit", NULL};

static const char *const plumbing[] = {
	"luaM_*",
	"l_alloc",
	"luaC_newobj*",
	"luaH_new",
	"luaH_resize*",
	"luaS_*",
	"luaF_new*",
	"luaD_growstack",
	"luaD_reallocstack",
	"luaE_extendCI",
	"internshrstr",
	"createstrobj",
	NULL,
};

static const struct hl_guest_command commands[] = {{"lua", "-l", NULL, "-e"}, {0}};

/* lua_ident from 5.2 on, that of 5.1, and what LuaJIT calls itself */
static const struct hl_guest_mark marks[] = {
	{"$LuaVersion: Lua ", "Lua "},
	{"$Lua: Lua ", "Lua "},
	{"LuaJIT 2.", "LuaJIT 2."},
	{0},
};

/* By lua_newstate(), which is exported, or has a symbol. */
static uint64_t find_jit_allocator(Elf *elf, uint64_t bias, hl_guest_peek_fn *peek,
				   const void *process)
{
	struct hl_elf_symbols all = {.elf = elf, .tables = HL_ELF_DYNSYM | HL_ELF_SYMTAB};
	uint8_t code[NEWSTATE_BYTES_MAX], first[HL_LUAJIT_ALLOCATOR_BYTES];
	uint64_t mode, newstate = 0;
	size_t bytes = 0;

	if (!hl_elf_find_symbol(elf, all.tables, JIT_EXPORTED, &mode))
		return 0;
	while (!newstate && hl_elf_symbols_next(&all))
		if (all.symbol.st_shndx != SHN_UNDEF && strcmp(all.name, NEWSTATE) == 0) {
			newstate = all.symbol.st_value + bias;
			bytes = all.symbol.st_size < sizeof(code) ? all.symbol.st_size
								  : sizeof(code);
		}
	if (!newstate || !peek(process, newstate, code, bytes))
		return 0;
	uint64_t found = hl_luajit_allocator_find(code, bytes, newstate);
	return found && peek(process, found, first, sizeof(first)) &&
			       hl_luajit_allocator_is(first, sizeof(first))
		       ? found
		       : 0;
}

static const struct hl_guest_allocator jit_allocator = {
	.name = "LuaJIT",
	.provider = "luajit",
	.preset = "luajit",
	.symbol = JIT_ALLOCATOR,
	.exported = JIT_EXPORTED,
	.library = "libluajit",
	.entered = "LuaJIT allocates by a function that it does not export",
	.find = find_jit_allocator,
};

const struct hl_guest_traits hl_guest_traits_lua = {
	.language = "Lua",
	.providers = providers,
	.plumbing = plumbing,
	.trace = "TRACE_",
	.commands = commands,
	.marks = marks,
	.exported = NEWSTATE,
	.allocator = &jit_allocator,
	/* The block of a state itself, which begins with the state, is unmapped without a call as it is closed. */
	.presets = "preset luajit\n"
		   "beside " JIT_ALLOCATOR "\n"
		   "realloc=" JIT_ALLOCATOR "(ptr=2,type=3,size=4)\n"
		   "free=lua_close(ptr=1)\n",
	.hidden_memory_remedy = "name that function, its lua_Alloc: 'heapline attach -p PID --hook "
				"realloc=FUNCTION(ptr=2,type=3,size=4)'",
	.no_types_reason = "Lua tells types to its allocator alone, from 5.2 on: they are known "
			   "where that calls "
			   "realloc(), as luaL_newstate()'s does, or where a rule of 'heapline "
			   "attach --hook' names its "
			   "arguments",
	.no_scripts_reason = "it was recorded with --no-scripts, which leaves types of Lua out",
	.unmatched_reason =
		", as where more than 63 calls of Lua are nested, of which the inner 63 "
		"are known",
	.has_ages = true,
};
