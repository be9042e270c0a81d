/* SPDX-License-Identifier: BSD-2-Clause */
/* What is known of Lua and LuaJIT without a process at hand; see guests/traits.h. */
#include "guests/traits.h"

#include "base/machine.h"
#include "elf/elf.h"

#include <Zydis/Zydis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- LuaJIT's allocator: it is not exported, and has no symbol in stripped files ---- */

/* Of ${code} for is_allocator(). */
#define ALLOCATOR_BYTES 16u

#define ITS_OWN_ALLOCATOR (1237u << 4) /* LJ_ALLOCF_INTERNAL */
#define FIRST_MAX	  3u	       /* instructions before its size is looked at */

struct instruction {
	ZydisDecodedInstruction decoded;
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
};

static bool decode(const uint8_t *code, size_t bytes, struct instruction *ret_instruction)
{
	ZydisDecoder decoder;

	return ZYAN_SUCCESS(ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64,
					     ZYDIS_STACK_WIDTH_64)) &&
	       ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, code, bytes, &ret_instruction->decoded,
						   ret_instruction->operands));
}

static bool compares(const struct instruction *it, ZydisRegister address)
{
	if (it->decoded.mnemonic != ZYDIS_MNEMONIC_CMP)
		return false;
	for (unsigned i = 0; i < it->decoded.operand_count_visible; i++)
		if (it->operands[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    it->operands[i].reg.value == address)
			return true;
	return false;
}

static bool compares_with_number(const struct instruction *it)
{
	return it->decoded.mnemonic == ZYDIS_MNEMONIC_CMP &&
	       it->operands[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
	       it->operands[1].imm.value.u == ITS_OWN_ALLOCATOR;
}

/*
 * By lua_newstate(), of which ${code} is at ${address}: it compares its argument with the number that stands for the
 * interpreter's own allocator, and later with that allocator's address. 0: it does not, as in builds that use malloc().
 */
static uint64_t decode_newstate(const uint8_t *code, size_t bytes, uint64_t address)
{
	ZydisRegister loaded = ZYDIS_REGISTER_NONE;
	uint64_t found = 0;
	bool is_asked = false;
	struct instruction it;

	for (size_t at = 0; at < bytes && decode(code + at, bytes - at, &it);) {
		at += it.decoded.length;
		is_asked |= compares_with_number(&it);
		if (is_asked && found && compares(&it, loaded))
			return found;
		/* The address of code or data is loaded into a register by LEA. */
		if (it.decoded.mnemonic == ZYDIS_MNEMONIC_LEA &&
		    it.operands[1].mem.base == ZYDIS_REGISTER_RIP) {
			loaded = it.operands[0].reg.value;
			found = address + at + (uint64_t)it.operands[1].mem.disp.value;
		} else if (it.operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
			   it.operands[0].reg.value == loaded) {
			found = 0; /* something else by now */
		}
	}
	return 0;
}

/* Whether ${code} begins by asking whether its fourth argument is 0, as that function does. */
static bool is_allocator(const uint8_t *code, size_t bytes)
{
	struct instruction it;

	for (size_t at = 0, i = 0; i < FIRST_MAX && decode(code + at, bytes - at, &it); i++) {
		at += it.decoded.length;
		if (it.decoded.mnemonic == ZYDIS_MNEMONIC_TEST &&
		    it.operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    it.operands[0].reg.value == ZYDIS_REGISTER_RCX)
			return true;
	}
	return false;
}

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
	uint8_t code[NEWSTATE_BYTES_MAX], first[ALLOCATOR_BYTES];
	uint64_t mode, newstate = 0;
	size_t bytes = 0;

	if (HL_ELF_MACHINE != EM_X86_64 ||
	    !hl_elf_find_symbol(elf, all.tables, JIT_EXPORTED, &mode))
		return 0;
	while (!newstate && hl_elf_symbols_next(&all))
		if (all.symbol.st_shndx != SHN_UNDEF && strcmp(all.name, NEWSTATE) == 0) {
			newstate = all.symbol.st_value + bias;
			bytes = all.symbol.st_size < sizeof(code) ? all.symbol.st_size
								  : sizeof(code);
		}
	if (!newstate || !peek(process, newstate, code, bytes))
		return 0;
	uint64_t found = decode_newstate(code, bytes, newstate);
	return found && peek(process, found, first, sizeof(first)) &&
			       is_allocator(first, sizeof(first))
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
	.ages = "collections of Lua",
};
